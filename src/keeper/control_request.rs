//! The requests that a control client may send.

use super::protocol::{self, Request};

/// A request of a control client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlRequest {
    Cancel { signal: i32, grace_ms: u64, reason: String },
    Usage,
    Adopt,
}

impl ControlRequest {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "Cancel",
            Self::Usage => "Usage",
            Self::Adopt => "Adopt",
        }
    }

    /// Decodes a payload. `None` if the client has violated the protocol: disconnect it.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        match protocol::decode(payload).ok()? {
            Request::Cancel { signal, grace_ms, reason } => {
                Some(Self::Cancel { signal, grace_ms, reason: reason.to_owned() })
            }
            Request::Usage => Some(Self::Usage),
            Request::Adopt => Some(Self::Adopt),
            Request::AssignRun(_)
            | Request::Started
            | Request::Extend { .. }
            | Request::SetTimeout { .. }
            | Request::IdleTimeout { .. }
            | Request::Signal { .. }
            | Request::ControlClient { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_client_may_only_cancel_adopt_and_request_the_usage() {
        let cancel = Request::Cancel { signal: 15, grace_ms: 7, reason: "shutdown" };
        let cancelled = ControlRequest::Cancel { signal: 15, grace_ms: 7, reason: "shutdown".to_owned() };
        for (request, expected) in [
            (cancel, Some(cancelled)),
            (Request::Usage, Some(ControlRequest::Usage)),
            (Request::Adopt, Some(ControlRequest::Adopt)),
            (Request::Started, None),
            (Request::Extend { ms: 1 }, None),
            (Request::SetTimeout { timeout: None }, None),
            (Request::IdleTimeout { limit_ms: 1 }, None),
            (Request::Signal { signal: 9 }, None),
            (Request::ControlClient { key: "k" }, None),
        ] {
            let payload = protocol::payload(&request).unwrap();
            assert_eq!(ControlRequest::decode(&payload), expected, "{request:?}");
        }
        assert_eq!(ControlRequest::decode(&[0xff; 9]), None);
    }
}
