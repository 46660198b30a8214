//! What the fuzzers do with bytes: see [`harness`].

mod harness;
pub use harness::*;
