//! The base layer: what every other crate is built from.
//!
//! Place in the stack: the lowest; uses no other Firn crate. It holds
//! * [`ids`] — newtypes for everything that is a number but not a quantity ([`Lsn`], [`PageId`],
//!   …);
//! * [`codec`] — bounds-checked little-endian reading and writing of on-disk bytes;
//! * [`checksum`] — CRC32C;
//! * [`hash`] — maps whose hash is fixed;
//! * [`record_kind`]: the registry of log record kinds;
//! * [`sync`], [`clock`], [`rng`]: the only way to locks, threads, time and randomness. Everything
//!   above goes through them, so that the whole engine can be run by a scheduler that replays from
//!   a seed. `.ci/seam` refuses engine code that goes around them;
//! * [`sim`]: that scheduler, with a virtual clock.
//!
//! Invariants: nothing here does I/O (except for asking the system for entropy), nothing here
//! panics on bytes from outside.

#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

pub mod checksum;
pub mod clock;
pub mod codec;
pub mod hash;
pub mod ids;
pub mod machine;
pub mod record_kind;
pub mod rng;
pub mod sim;
pub mod sync;

pub use checksum::{Crc32c, crc32c};
pub use ids::{DatabaseId, Epoch, Lsn, PageId, TreeId, TxnId};

/// What a step function of background work returns (see [`Progress::Idle`]).
///
/// Background work is a function `step(budget) -> Progress` that either a thread or a simulator
/// drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done and more may be waiting: call again.
    Worked,
    /// Nothing to do now: wait until notified, or for the step's own interval.
    Idle,
}

impl Progress {
    /// Of two steps together: `Worked` if either did.
    #[must_use]
    pub fn or(self, other: Progress) -> Progress {
        if self == Progress::Worked { self } else { other }
    }
}
