//! What the engine remembers of the log's devices beside the superblock: recent events, and what a
//! failure still asks for.

use crate::options::callbacks::{LogEvent, LogEventKind};
use crate::ranks;
use firndb_base::sync::Mutex;
use firndb_log::MemberId;

/// The engine's knowledge of the array beside the superblock.
pub(crate) struct LogArray {
    /// One change at a time.
    pub changing: Mutex<()>,
    pub known: Mutex<Known>,
}

impl Default for LogArray {
    fn default() -> LogArray {
        LogArray { changing: ranks::ARRAY_CHANGING.mutex(()), known: ranks::KNOWN.mutex(Known::default()) }
    }
}

#[derive(Default)]
pub(crate) struct Known {
    /// Events since the database was opened; the oldest are forgotten.
    pub events: Vec<LogEvent>,
    /// Redundancy was lost, and its return has not been reported.
    pub thin: bool,
    /// A device was lost.
    pub lost: bool,
    /// Checkpoints asked for since a device was lost.
    pub checkpoints_wanted: u32,
}

/// Number of events that are remembered.
const EVENTS_MAX: usize = 64;

impl LogArray {
    pub fn events(&self) -> Vec<LogEvent> {
        self.known.lock().events.clone()
    }

    /// Notes an event.
    pub fn note(&self, kind: LogEventKind, member: Option<MemberId>, message: String) -> LogEvent {
        let event = LogEvent { kind, member: member.map(|id| id.0), message };
        let mut known = self.known.lock();
        if known.events.len() == EVENTS_MAX {
            known.events.remove(0);
        }
        known.events.push(event.clone());
        event
    }

    /// Records that a device was lost, and whether redundancy was lost with it.
    pub fn lost(&self, thin: bool) {
        let mut known = self.known.lock();
        known.thin |= thin;
        (known.lost, known.checkpoints_wanted) = (true, 0);
    }

    /// Whether a device was lost, so that a checkpoint should make the log on it needless.
    pub fn is_checkpoint_wanted(&self) -> bool {
        self.known.lock().lost
    }
}
