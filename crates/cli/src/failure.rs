//! How a command fails.

use firn::ErrorKind;
use firn_workloads::EngineError;
use std::fmt;
use std::process::ExitCode;

/// Why a command ended early: a sentence, and whether the arguments were at fault.
#[derive(Debug)]
pub struct Failure {
    message: String,
    bad_argument: bool,
}

impl Failure {
    /// Something went wrong.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), bad_argument: false }
    }
    /// The arguments make no sense.
    pub fn bad_argument(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), bad_argument: true }
    }
    /// 2 for bad arguments, 1 for everything else.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.bad_argument { 2 } else { 1 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<firn::Error> for Failure {
    fn from(error: firn::Error) -> Failure {
        let bad_argument = error.kind() == ErrorKind::BadArgument;
        Failure { message: error.to_string(), bad_argument }
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
