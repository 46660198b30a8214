//! A file system whose files behave as if they lay on another device, so that any program can be tried on it.
//!
//! Place in the stack: a tool beside the engine, over `base` and FUSE. The device's costs come through [`Timing`].
//!
//! How a request goes: the kernel hands it to `filesystem`; `store` has it take effect at once and says what it asks
//! of the device; `device` says when that would be done, faults of the script included; `completion` gives the
//! answer then. Nothing waits for the emulated device but answers.
//!
//! Invariants: the backing directory holds the newest bytes under the same names; what a power cut may take is kept
//! beside it (`undo` for bytes, `journal` for names) until a sync that began later has ended; what was answered as
//! synced survives every cut. `docs/lab/tools/emulate.md` states the rules of durability for users, `store` the lock order.
//!
//! How it fails: mounting says what to do ([`EmulateError`]); a failure of the real disk below is handed to the
//! program as its own error; if this process is killed, the backing directory holds the newest bytes.
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
