//! The options of a launch, as JavaScript passes them.
//!
//! [`launch_options!`] declares each option once, with its JavaScript type. It derives the TypeScript
//! type, the names in order, and the reader. `ts/native/addon.ts` gets the names and passes the
//! values in their order, because looking up each name would cost more than everything else.
//!
//! Each option has the name of its field in [`spawn::LaunchOptions`]. If either of them is missing,
//! the compiler says so.

use std::collections::BTreeMap;

use napi::bindgen_prelude::{Array, FromNapiValue};
use napi_derive::napi;

use super::convert::{size, whole};
use crate::run::Policy;
use crate::spawn::{self, RequestedContainment, TerminalSettings};

macro_rules! launch_options {
    ($(#[$about:meta])* struct LaunchOptions { $($fields:tt)* }) => {
        $(#[$about])*
        #[napi(object, object_to_js = false)]
        #[allow(clippy::struct_excessive_bools)] // The fields are those of the JS options.
        pub struct LaunchOptions { $($fields)* }
        launch_options! { @reader $($fields)* }
    };
    (@reader $($(#[$attribute:meta])* pub $name:ident: $js:ty,)*) => {
        /// The names of the options, in the order in which [`read`] reads them.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// Reads the values of the options, in the order of [`launch_option_names`].
        pub fn read(values: &Array) -> Result<spawn::LaunchOptions, String> {
            let mut values = Values { values, next: 0 };
            Ok(spawn::LaunchOptions { $($name: values.next::<$js>()?.into_core()?),* })
        }
    };
}

launch_options! {
    /// What to start. The strings have the format of the keeper's protocol: each argument and each
    /// variable ends with a NUL.
    struct LaunchOptions {
        pub run_id: String,
        /// True if the caller chose the run id.
        pub given_id: bool,
        pub session_id: Option<String>,
        pub backend_id: Option<String>,
        pub scope_key: Option<String>,
        /// The name of the service, if the run is one.
        pub service: Option<String>,
        /// A JSON object. Absent if there are no labels.
        pub labels: Option<String>,
        /// A JSON value, if any.
        pub metadata: Option<String>,
        pub preview: String,
        pub file: String,
        pub argv: String,
        pub env: String,
        pub cwd: Option<String>,
        pub uid: Option<i32>,
        pub gid: Option<i32>,
        /// Windows only.
        pub windows_hide: bool,
        /// Windows only.
        pub windows_verbatim_arguments: bool,
        /// The terminal, if any. Then the first two descriptors are its input and output, and the
        /// third is unused.
        pub terminal: Option<TerminalOptions>,
        #[napi(ts_type = "'kill' | 'keep'")]
        pub on_owner_exit: String,
        #[napi(ts_type = "'kill' | 'keep'")]
        pub on_leader_exit: String,
        pub grace_ms: f64,
        /// 0: no deadline.
        pub timeout_ms: f64,
        pub timeout_signal: i32,
        /// 0: no idle timeout.
        pub idle_timeout_ms: f64,
        #[napi(ts_type = "'auto' | 'keeper' | 'cgroup'")]
        pub containment: String,
        /// Absent: no limit.
        pub memory_bytes: Option<f64>,
        pub processes: Option<f64>,
    }
}

#[napi(object, object_to_js = false)]
pub struct TerminalOptions {
    pub cols: u32,
    pub rows: u32,
    pub name: Option<String>,
}

/// The names of the launch options in JavaScript, in the order in which [`super::Host::begin`] reads
/// their values.
#[napi(catch_unwind, ts_return_type = "Array<keyof LaunchOptions>")]
pub fn launch_option_names() -> Vec<String> {
    NAMES.iter().map(|name| camel_case(name)).collect()
}

/// The name that N-API gives to a field in JavaScript.
fn camel_case(name: &str) -> String {
    let mut upper = false;
    let mut camel = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '_' => upper = true,
            letter if upper => {
                camel.push(letter.to_ascii_uppercase());
                upper = false;
            }
            letter => camel.push(letter),
        }
    }
    camel
}

/// Reads the values of an array in order.
struct Values<'a> {
    values: &'a Array<'a>,
    next: u32,
}

impl Values<'_> {
    fn next<T: FromNapiValue>(&mut self) -> Result<T, String> {
        let index = self.next;
        self.next += 1;
        let value = self.values.get(index).map_err(|error| error.reason.clone())?;
        value.ok_or_else(|| {
            "the addon and its JavaScript have different versions: reinstall spawn-owned".to_owned()
        })
    }
}

/// Converts the JavaScript type of an option into the type of its field in [`spawn::LaunchOptions`].
trait IntoCore<T> {
    fn into_core(self) -> Result<T, String>;
}

impl<T> IntoCore<T> for T {
    fn into_core(self) -> Result<T, String> {
        Ok(self)
    }
}

impl IntoCore<u64> for f64 {
    fn into_core(self) -> Result<u64, String> {
        Ok(whole(self))
    }
}

impl IntoCore<Option<u64>> for f64 {
    /// 0 means none.
    fn into_core(self) -> Result<Option<u64>, String> {
        Ok(Some(whole(self)).filter(|&value| value > 0))
    }
}

impl IntoCore<Option<u64>> for Option<f64> {
    fn into_core(self) -> Result<Option<u64>, String> {
        Ok(self.map(whole))
    }
}

impl IntoCore<Option<u32>> for Option<i32> {
    /// The ID of a user or group. Like Node, this reads a negative value as the kernel does.
    fn into_core(self) -> Result<Option<u32>, String> {
        Ok(self.map(i32::cast_unsigned))
    }
}

impl IntoCore<Policy> for String {
    fn into_core(self) -> Result<Policy, String> {
        match self.as_str() {
            "keep" => Ok(Policy::Keep),
            "kill" => Ok(Policy::Kill),
            other => Err(format!("a policy is 'kill' or 'keep', not '{other}'")),
        }
    }
}

impl IntoCore<RequestedContainment> for String {
    fn into_core(self) -> Result<RequestedContainment, String> {
        match self.as_str() {
            "auto" => Ok(RequestedContainment::Auto),
            "keeper" => Ok(RequestedContainment::Keeper),
            "cgroup" => Ok(RequestedContainment::Cgroup),
            other => Err(format!("containment is 'auto', 'keeper' or 'cgroup', not '{other}'")),
        }
    }
}

impl IntoCore<BTreeMap<String, String>> for Option<String> {
    fn into_core(self) -> Result<BTreeMap<String, String>, String> {
        let labels = self.map(|json| serde_json::from_str(&json)).transpose();
        Ok(labels.map_err(|error| error.to_string())?.unwrap_or_default())
    }
}

impl IntoCore<Option<serde_json::Value>> for Option<String> {
    fn into_core(self) -> Result<Option<serde_json::Value>, String> {
        let metadata = self.map(|json| serde_json::from_str(&json)).transpose();
        metadata.map_err(|error: serde_json::Error| error.to_string())
    }
}

impl IntoCore<Option<TerminalSettings>> for Option<TerminalOptions> {
    fn into_core(self) -> Result<Option<TerminalSettings>, String> {
        let Some(TerminalOptions { cols, rows, name }) = self else { return Ok(None) };
        let size = size(cols, rows).ok_or("a terminal has at most 65535 columns and rows")?;
        Ok(Some(TerminalSettings { size, name }))
    }
}
