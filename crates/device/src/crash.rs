//! Crashes: what a power cut at any moment may leave.
//!
//! A [`CrashPlan`] records what is done to its devices, in one order over all of them. After the
//! workload has run *once*, a [`CrashReplay`] walks through the record, and at each event returns
//! *images*: devices as a power cut at that moment may leave them.
//!
//! ```
//! use firndb_base::rng::Rng;
//! use firndb_device::{CrashPlan, Device, Durability, Fill, Survival};
//!
//! let plan = CrashPlan::new();
//! let device = plan.device("data");
//! device.grow(4096, Fill::Written)?;
//! plan.settle();
//! device.write(0, &[1; 4096], Durability::Later)?;
//! device.sync()?;
//! plan.mark(1);
//!
//! let mut replay = plan.replay();
//! let mut rng = Rng::new(7);
//! loop {
//!     for survival in Survival::ALL {
//!         let image = &replay.image(survival, &mut rng)[0];
//!         let mut bytes = [0; 4096];
//!         image.read(0, &mut bytes)?;
//!         // Here a test opens the database on the image; what was acknowledged must be in it.
//!         assert!(replay.marks().is_empty() || bytes == [1; 4096]);
//!     }
//!     if replay.step().is_none() {
//!         break;
//!     }
//! }
//! # Ok::<(), firndb_device::DeviceError>(())
//! ```
//!
//! What is durable, as [`Device`](crate::device::Device) promises it and not more:
//! * a write with [`Durability::Durable`](crate::device::Durability) when it returned;
//! * another write when a sync of its device returned that began after the write had returned;
//! * a change of length when it returned;
//! * a mark, which is the test's own note, never.
//!
//! Everything else may survive or not, sector by sector ([`SECTOR_BYTES`]), in any order and
//! mixture over all devices: a drive's cache keeps no order, and different versions of a sector may
//! survive. A durable write does not make an earlier one durable. Only a later write that is
//! durable replaces an earlier one of the same sector for good. Within a sector nothing tears,
//! which is what disks promise.
//!
//! Locks, in this order: `CrashDevice::resizing`, the plan's `state`, `CrashDevice::live`.

mod device;
mod event;
mod plan;
mod replay;
mod survival;

pub use device::CrashDevice;
pub use event::{Content, Event, WriteId};
pub use plan::CrashPlan;
pub use replay::CrashReplay;
pub use survival::Survival;

/// Bytes that survive a power cut together or not at all.
pub const SECTOR_BYTES: usize = 512;
