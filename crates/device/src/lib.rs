//! Devices: where bytes meet hardware.
//!
//! Place in the stack: above `base`, below everything that stores. [`Device`] is the one seam for
//! I/O: files and raw devices, memory, and wrappers that count, record, fail, crash or keep writes
//! aside are chosen at assembly and look the same from above.
//!
//! Invariants: every read and write is whole logical blocks at block-aligned offsets; from memory
//! aligned as [`AlignedBuf`] is, nothing is copied; what was written is durable only after a `sync`
//! that began later, or if it was written with [`Durability::Durable`]; a failed write or sync is
//! never retried here.
//!
//! How it fails: a [`DeviceError`] says by its kind what a caller can do, and names device,
//! operation, place and cause. Transfers that are not whole blocks are a caller's mistake and
//! panic.
//!
//! Unsafe code is in `aligned` (memory), `ring` and its one caller in `file` (memory lent to the
//! kernel), and `ring_reads` (memory handed to it). `docs/internals/devices.md` has the whole for
//! users.

mod absent;
mod aligned;
mod bytes;
mod contents;
mod counting;
pub mod crash;
mod device;
mod error;
pub mod faulty;
mod file;
pub mod forward;
mod in_flight;
mod late_reads;
mod memory;
mod overlay;
mod ranks;
mod recording;
mod ring;
mod ring_reads;
pub mod trace;

pub use absent::AbsentDevice;
pub use aligned::AlignedBuf;
pub use contents::{erase_contents, find_contents, find_contents_anywhere};
pub use counting::{Count, Counting, DeviceCounts};
pub use crash::{CrashDevice, CrashPlan, CrashReplay, Survival};
pub use device::{Device, DeviceInfo, Durability, Fill, Io, IoOp};
pub use error::{DeviceError, DeviceErrorKind};
pub use faulty::{Calls, Fault, FaultPlan, FaultRule, Faulty, When};
pub use file::{FileDevice, FileOptions, available_bytes, remove_file, sync_directory};
pub use in_flight::{Composed, InFlight, OwnedRead, ReadDone};
pub use late_reads::{CopyBudget, LateReads, Lateness};
pub use memory::MemoryDevice;
pub use overlay::{Overlay, OverlaySpace};
pub use recording::Recording;
