//! Devices that behave like others, in real and in virtual time.
//!
//! Place in the stack: beside the engine, above `device` and `profile`. [`Model`] says when a
//! device of a profile completes which request; [`Pacer`] makes threads wait for it on the engine's
//! clock; [`Emulated`] is a [`firndb_device::Device`] that does so; [`profiles`] are the devices
//! that ship. [`nand`] models flash chips and translation layers, where the inside of a device is
//! the question.
//!
//! Invariants: nothing completes before it was submitted; a model's completions follow from its
//! profile, its seed, and the requests with their moments, so that a simulation replays; the
//! completion of a request, once computed, never changes.
//!
//! How it fails: a profile that contradicts itself is refused when a model is made of it; after
//! that the timing cannot fail, and errors are those of the device below.
//! `docs/lab/tools/profiles.md` describes profiles for users.
#![forbid(unsafe_code)]

pub mod blkparse;
mod cache;
mod channels;
mod disk;
mod emulated;
mod freezes;
mod limits;
mod load;
mod model;
pub mod nand;
mod outliers;
mod pacer;
pub mod profiles;
mod request;
mod statistics;
mod streams;
mod time;

pub use emulated::Emulated;
pub use load::{Load, LoadOutcome};
pub use model::Model;
pub use pacer::Pacer;
pub use request::{Request, RequestKind};
pub use statistics::{KindStatistics, Statistics};
