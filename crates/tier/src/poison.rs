//! What keeps a part from writing after a write that failed in doubt.

use crate::error::{TierError, TierErrorKind};
use firndb_base::sync::OnceLock;
use std::borrow::Cow;

/// Set by the first write that fails; never cleared while the database is open.
#[derive(Debug)]
pub struct Poison {
    /// What the part does no more, as the beginning of a sentence.
    refused: &'static str,
    cause: OnceLock<Cow<'static, str>>,
}

impl Poison {
    /// Not set. `refused`: "the store writes nothing more".
    #[must_use]
    pub fn new(refused: &'static str) -> Poison {
        Poison { refused, cause: OnceLock::new() }
    }

    /// Sets it. The first cause stays.
    pub fn set(&self, cause: &TierError) {
        let _ = self.cause.set(cause.message.clone());
    }

    /// Why it is set, if it is.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        self.cause.get().map(|cause| &**cause)
    }

    /// Errors: `Failed`, with the cause, if it is set.
    pub fn check(&self) -> Result<(), TierError> {
        match self.cause() {
            None => Ok(()),
            Some(cause) => Err(TierError::new(
                TierErrorKind::Failed,
                format!("{} until the database is opened again, because: {cause}", self.refused),
            )),
        }
    }
}
