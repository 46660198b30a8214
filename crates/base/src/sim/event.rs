//! The events that a simulation records for the report of its failure.

use std::panic::Location;

/// What a thread does at a scheduling point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Action {
    Acquire,
    Try,
    Release,
    Wait,
    Notify,
    Sleep,
    Charge,
    Yield,
    Spawn,
    Join,
    End,
}

/// A recorded event.
pub(super) enum Event {
    Point { step: u64, now: u64, thread: usize, action: Action, at: &'static Location<'static> },
    Note { now: u64, thread: usize, text: String },
}
