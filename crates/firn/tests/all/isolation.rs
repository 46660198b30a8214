//! What transactions see of each other, and wait for.

mod anomalies;
mod locks;
mod long_transactions;
mod queue;
mod script;
mod support;
mod two_phase;
mod waits;
