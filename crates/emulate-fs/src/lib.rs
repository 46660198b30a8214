//! A file system with files that behave as if they lay on another device, so that any program can
//! be tested on it.
//!
//! Place in the stack: a tool beside the engine, over `base` and FUSE. The device's costs come
//! through [`Timing`].
//!
//! How a request goes: the kernel hands it to `filesystem`; `store` applies it at once and returns
//! the device requests that it costs; `device` computes when these would be done, including the
//! script's faults; `completion` sends the reply at that time. Only replies wait for the emulated
//! device.
//!
//! Invariants: the backing directory holds the newest bytes under the same names; the state to
//! which a power cut may return is kept beside it (`undo` for bytes, `journal` for names) until a
//! sync that began later has ended; bytes and names survive every cut once their sync is
//! acknowledged. `docs/lab/tools/emulate.md` states the rules of durability for users, `store` the
//! lock order.
//!
//! How it fails: an error of mounting says what to do ([`EmulateError`]); the program receives a
//! failure of the real disk below as the error of its own call; if this process is killed, the
//! backing directory holds the newest bytes.
#![forbid(unsafe_code)]

mod backing;
mod completion;
mod content;
mod counters;
mod device;
mod dirty;
mod emulation;
mod error;
mod faults;
mod filesystem;
mod journal;
mod model;
mod mount;
mod names;
pub mod script;
mod space;
mod store;
mod timing;
mod tree;
mod undo;
mod work;

pub use counters::{Counts, KINDS, Kind, KindCounts};
pub use error::EmulateError;
pub use model::timing_of;
pub use mount::{Ending, MountOptions, Mounted};
pub use space::EXTENT;
pub use timing::{DeviceOperation, DeviceRequest, FixedTiming, Timing};
