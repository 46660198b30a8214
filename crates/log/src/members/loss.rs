//! What the caller learns of a log device that failed, and decides about it.

use crate::error::LogError;
use crate::ids::MemberId;
use firndb_base::Lsn;
use firndb_base::sync::Arc;

/// A log device that failed.
pub struct LostMember<'a> {
    /// The member's id.
    pub member: MemberId,
    /// The device's name.
    pub device: String,
    /// The device's error.
    pub error: String,
    /// All log before this LSN had been handed to devices by then. Log from there on goes to the
    /// devices that are left, once each handler that runs has returned.
    pub requested: Lsn,
    /// Returns what is left at the moment of the call. Several devices may fail at once, and their
    /// handlers run in any order: the last handler to make something durable has to call this for
    /// it.
    pub left: &'a dyn Fn() -> Left,
}

impl std::fmt::Debug for LostMember<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LostMember")
            .field("member", &self.member)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// What is left of the log's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Devices in use.
    pub devices: usize,
    /// Copies that log gets which has not been handed to devices yet.
    pub copies: usize,
}

/// What became of a device that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Durably, the device is no member any more.
    Dropped,
    /// The device stays a member: log that is still needed may be on it alone.
    Kept,
}

/// Decides what becomes of a log device that failed: see [`crate::Log::on_device_lost`].
#[derive(Clone)]
pub struct LossHandler(Arc<Decide>);

type Decide = dyn Fn(&LostMember<'_>) -> Result<Loss, LogError> + Send + Sync;

impl LossHandler {
    /// A handler that calls `handler`.
    pub fn new(
        handler: impl Fn(&LostMember<'_>) -> Result<Loss, LogError> + Send + Sync + 'static,
    ) -> LossHandler {
        LossHandler(Arc::new(handler))
    }

    pub(crate) fn decide(&self, lost: &LostMember<'_>) -> Result<Loss, LogError> {
        (self.0)(lost)
    }
}

impl std::fmt::Debug for LossHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LossHandler")
    }
}

/// See [`crate::Log::on_failed`].
pub(crate) type FailureListener = dyn Fn(&LogError) + Send + Sync;
