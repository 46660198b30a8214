//! How a command fails.

use firndb::ErrorKind;
use firndb_workloads::EngineError;
use std::fmt;
use std::process::ExitCode;

/// Why a command ended early: a sentence, and the exit status.
#[derive(Debug)]
pub struct Failure {
    message: String,
    exit_code: u8,
}

/// Something went wrong.
const FAILED: u8 = 1;
/// The arguments make no sense.
const BAD_ARGUMENT: u8 = 2;
/// Ctrl-C, as shells have it: 128 and the signal's number.
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    /// Something went wrong.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exit_code: FAILED }
    }
    /// The arguments make no sense.
    pub fn bad_argument(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exit_code: BAD_ARGUMENT }
    }
    /// Ctrl-C ended it in order.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exit_code: INTERRUPTED }
    }
    /// 2 for bad arguments, 130 for Ctrl-C, 1 for everything else.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<firndb::Error> for Failure {
    fn from(error: firndb::Error) -> Failure {
        let exit_code = match error.kind() {
            ErrorKind::BadArgument => BAD_ARGUMENT,
            // Only Ctrl-C cancels what a command does.
            ErrorKind::Cancelled => INTERRUPTED,
            _ => FAILED,
        };
        Failure { message: error.to_string(), exit_code }
    }
}
impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        Failure::new(error.to_string())
    }
}
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}
