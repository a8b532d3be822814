//! The names of messages, for the trace. It never contains a message's content.

use super::{Report, Request};

impl Request<'_> {
    pub fn name(&self) -> &'static str {
        match self {
            Self::AssignRun(_) => "AssignRun",
            Self::Started => "Started",
            Self::Extend { .. } => "Extend",
            Self::SetTimeout { .. } => "SetTimeout",
            Self::IdleTimeout { .. } => "IdleTimeout",
            Self::Usage => "Usage",
            Self::Signal { .. } => "Signal",
            Self::Cancel { .. } => "Cancel",
            Self::Adopt => "Adopt",
            Self::ControlClient { .. } => "ControlClient",
        }
    }
}

impl Report {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "Ready",
            #[cfg(unix)]
            Self::NoCgroup(_) => "NoCgroup",
            Self::Adopted { granted: true } => "Adopted",
            Self::Adopted { granted: false } => "Adopted (refused)",
            Self::SignalFailed { .. } => "SignalFailed",
            Self::Warning { .. } => "Warning",
            Self::Usage(_) => "Usage",
            Self::Ending { .. } => "Ending",
            Self::RootExited(_) => "RootExited",
            Self::Extinct(_) => "Extinct",
            Self::NoRoot { .. } => "NoRoot",
        }
    }
}
