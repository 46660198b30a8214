//! Options of a store.

use crate::error::{TierError, TierErrorKind};

/// Options that every opening gives.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Page size in bytes; a power of two from 512 to 65536.
    pub page_size: usize,
    /// DRAM in bytes for the map: changed entries, and metadata pages. Exceeded only by what calls
    /// under way use.
    pub map_budget_bytes: usize,
}

/// Division of the file into groups; chosen when the store is created and kept in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a metadata page; a power of two from 512 to 65536.
    pub meta_bytes: usize,
    /// Map pages in a group. With the entries of a map page this determines the number of page
    /// places in a group.
    pub maps_per_group: u32,
}

impl Default for Layout {
    /// Metadata pages of 4 KiB, 168 entries each; groups of 4032 places, 16 MiB with pages of 4
    /// KiB.
    fn default() -> Layout {
        Layout { meta_bytes: 4096, maps_per_group: 24 }
    }
}

/// Placement of a new version of a page: in a free place; the old place becomes free when the map
/// change is durable. Both leave the same file, so a store may be opened with either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// In runs as long as can be found, the emptiest segments first. Nothing is copied; where a
    /// fifth of the places is free, a run is about two pages long.
    #[default]
    Threaded,
    /// In whole empty segments, one after the other, which a cleaner makes by copying what is left
    /// in sparse ones. Where none is empty, as with [`Placement::Threaded`].
    Segments,
}

/// Behaviour of an open store; may differ from one opening to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Where new versions go.
    pub placement: Placement,
    /// Pages written in one batch, 1 to 1024. Three times as many places are kept free beyond what
    /// allocated and reserved pages need.
    pub batch_pages: usize,
    /// Percentage of free places below which the file is extended, if it can be. More of them make
    /// longer runs and a larger file.
    pub free_target_percent: u8,
    /// Whether pages are written as deltas, and how.
    pub deltas: DeltaPolicy,
    /// Whether reads that are late are begun again.
    pub hides_late_reads: bool,
}

/// How pages are written as changes of an image on the device. A store with deltas is read, and its
/// deltas written whole as pages change, whatever the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaPolicy {
    /// Whether new deltas are written.
    pub enabled: bool,
    /// DRAM in bytes for deltas that wait to be written together; with 0 each call writes its own.
    pub buffer_bytes: usize,
    /// Most places with delta pages, as a percentage of all.
    pub pages_percent: u8,
    /// Cost of reading a delta page, as a percentage of that of writing a page. The second reads of
    /// a page count against its deltas with this; with 0 they cost nothing.
    pub read_cost_percent: u16,
}

impl DeltaPolicy {
    /// No new deltas.
    pub const OFF: DeltaPolicy =
        DeltaPolicy { enabled: false, buffer_bytes: 0, pages_percent: 12, read_cost_percent: 50 };
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            placement: Placement::Threaded,
            batch_pages: 64,
            free_target_percent: 20,
            deltas: DeltaPolicy::OFF,
            hides_late_reads: true,
        }
    }
}

impl Policy {
    pub(crate) fn check(&self) -> Result<(), TierError> {
        if !(1..=1024).contains(&self.batch_pages) {
            return Err(TierError::new(TierErrorKind::BadArgument, "batch_pages must be from 1 to 1024"));
        }
        if self.deltas.pages_percent > 50 {
            return Err(TierError::new(TierErrorKind::BadArgument, "pages_percent must be from 0 to 50"));
        }
        if self.free_target_percent > 80 {
            return Err(TierError::new(
                TierErrorKind::BadArgument,
                "free_target_percent must be from 0 to 80",
            ));
        }
        Ok(())
    }
}
