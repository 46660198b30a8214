//! A request for a lock, from its first try to its last.

use crate::locks::{Blockers, Turn};
use crate::waits::WaitLimit;

/// How often a request is passed over before it joins the queue.
pub(crate) const PASSED_MAX: u32 = 4;

/// A request for a lock, with all of its waits.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Filled in when the first wait begins: it bounds all of them together.
    pub limit: Option<WaitLimit>,
    /// How often it has slept and may have been passed over: see [`Request::note_sleep`].
    pub passed: u32,
    /// It slept last over the queue.
    behind: bool,
    /// It does not wait for the queue any more.
    pub goes_first: bool,
}

impl Request {
    /// Counts a sleep over holders. One over the queue ends with the turn of another, which was
    /// ahead; only the next one in a row is over a request that joined later.
    pub fn note_sleep(&mut self, blockers: &Blockers) {
        let behind = matches!(blockers, Blockers::Ahead(_));
        self.passed += u32::from(!behind || self.behind);
        self.behind = behind;
    }

    pub fn turn(&self) -> Turn {
        if self.goes_first { Turn::First } else { Turn::Fair }
    }
}
