//! What the tests of several crates share.
//!
//! Place in the stack: above `base` and `device` only, so that every crate above those can have it
//! as a dev-dependency, for unit tests as well. Nothing else depends on it.
//!
//! * [`hooked`]: devices that run a test's code before each call; [`gate`]: those that are held,
//!   fail or are full while a test says so.
//! * [`bytes`]: what devices hold, and bits that flip on them.
//! * [`cases`]: many cases in one test, by name; [`seeds`]: many seeds, or the one that failed.
//! * [`watchdog`]: a hang is a failure with a name.

pub mod bytes;
pub mod cases;
pub mod gate;
pub mod hooked;
pub mod seeds;
pub mod watchdog;
