//! The interface between host and chips, which every translation layer implements.

use super::{Flash, LogicalPage};
use std::fmt;

/// A flash translation layer: the controller's program that makes chips look like a disk.
///
/// Moments are nanoseconds of the caller's clock. Maps are in the controller's memory and survive
/// power cuts (as with capacitors); the cost of writing them to flash is not modelled.
pub trait Ftl: fmt::Debug + Send {
    /// Pages that the host can use.
    fn logical_pages(&self) -> u32;

    /// Reads a page; `None` in place of a token if it was never written, or was discarded. Also
    /// returns the moment of completion.
    fn read(&mut self, page: LogicalPage, from_ns: u64) -> (Option<u64>, u64);

    /// Writes a page; returns the moment of completion. After an error the page is unchanged.
    fn write(&mut self, page: LogicalPage, token: u64, from_ns: u64) -> Result<u64, NandError>;

    /// Forgets a page's contents, so that they need not be copied any more.
    fn discard(&mut self, page: LogicalPage);

    /// The chips.
    fn flash(&self) -> &Flash;

    /// Counts of the layer's own work, beside the host's requests.
    fn counts(&self) -> FtlCounts;

    /// Whether too few good blocks are left to write. Never changes back.
    fn is_read_only(&self) -> bool;
}

/// Counts of a translation layer's own work, beside the host's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlCounts {
    /// Blocks reclaimed by garbage collection.
    pub collections: u64,
    /// Pages copied by garbage collection and merges.
    pub copies: u64,
    /// Pages copied to level wear.
    pub wear_copies: u64,
    /// Merges of a data block and a log block, page by page into a third block.
    pub full_merges: u64,
    /// Merges that completed a log block from its data block.
    pub partial_merges: u64,
    /// Log blocks that replaced their data blocks without a copy.
    pub switch_merges: u64,
}

impl FtlCounts {
    /// The difference from `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &FtlCounts) -> FtlCounts {
        FtlCounts {
            collections: self.collections - earlier.collections,
            copies: self.copies - earlier.copies,
            wear_copies: self.wear_copies - earlier.wear_copies,
            full_merges: self.full_merges - earlier.full_merges,
            partial_merges: self.partial_merges - earlier.partial_merges,
            switch_merges: self.switch_merges - earlier.switch_merges,
        }
    }
}

/// Why a NAND device refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NandError {
    /// Too few good blocks are left: the device is read-only.
    WornOut,
    /// A range beyond the device's end.
    OutOfRange {
        /// First byte requested.
        offset: u64,
        /// Bytes requested.
        bytes: u64,
        /// Bytes of the device.
        capacity: u64,
    },
    /// The description of the device makes no sense; the sentence says why.
    BadConfig(String),
}

impl fmt::Display for NandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NandError::WornOut => f.write_str(
                "the flash is worn out: too few good blocks are left to write; what is stored can still be read",
            ),
            NandError::OutOfRange { offset, bytes, capacity } => {
                write!(f, "{bytes} bytes at offset {offset} lie beyond the device's end at {capacity}")
            }
            NandError::BadConfig(message) => f.write_str(message),
        }
    }
}
impl std::error::Error for NandError {}
