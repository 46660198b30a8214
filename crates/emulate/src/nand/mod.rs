//! Flash from the inside: chips, translation layers, garbage collection, wear.
//!
//! A profile says how a device behaves; this module explains why. [`Flash`] models the chips and
//! asserts their constraints, an [`Ftl`] is the controller's program over them, [`Nand`] combines
//! both with a host's interface and a [`NandReport`], and [`NandDevice`] is a device that takes its
//! time from them. All of it is deterministic: equal configurations and requests give equal counts
//! and moments.
//!
//! Translation layers: [`NaiveFtl`] and [`DynamicFtl`] as in Myers's thesis (2008, chapter 2),
//! [`PageFtl`] and [`BlockFtl`] as in devices. [`equations`] has their costs in theory.
//!
//! Not modelled: the host's bus, a write buffer in the controller (every write goes to flash before
//! it returns), writing the maps themselves to flash, collection while idle, read disturb and
//! retention. `docs/lab/tools/nand.md` describes it for users.

mod block;
pub mod curve;
mod device;
mod dynamic;
pub mod equations;
mod flash;
mod free_blocks;
mod ftl;
mod geometry;
mod mapping;
mod naive;
mod of_profile;
mod page;
pub mod replay;
mod report;
mod simulated;
mod victim;
mod wear;

pub use block::BlockFtl;
pub use device::NandDevice;
pub use dynamic::DynamicFtl;
pub use flash::{Content, Erased, Flash, FlashCounts};
pub use ftl::{Ftl, FtlCounts, NandError};
pub use geometry::{BlockAddress, FlashTimes, Geometry, LogicalPage, PageAddress};
pub use naive::NaiveFtl;
pub use page::{PageFtl, PageFtlOptions};
pub use report::{NandReport, WearReport};
pub use simulated::{HostCounts, Nand, NandConfig, Translation};
pub use victim::{Candidate, VictimPolicy};
pub use wear::{Temperature, WearLevelling};
