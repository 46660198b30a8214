//! A request for a lock, from its first try to its last.

use crate::locks::Turn;
use crate::waits::WaitLimit;

/// How often a request is passed over before it joins the queue.
pub(crate) const PASSED_MAX: u32 = 4;

/// A request for a lock, with all of its waits.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Filled in when the first wait begins: it bounds all of them together.
    pub limit: Option<WaitLimit>,
    /// How often it has slept.
    pub sleeps: u32,
    /// It does not wait for the queue any more.
    pub goes_first: bool,
}

impl Request {
    pub fn turn(&self) -> Turn {
        if self.goes_first { Turn::First } else { Turn::Fair }
    }
}
