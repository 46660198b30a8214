//! I/O calls that fail, one after the other.

mod nth_call;
mod wake_waiters;
