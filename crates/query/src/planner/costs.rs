//! What pages, rows and spilled bytes cost.
//!
//! A page costs what its tier asks for it: nothing but computing in DRAM, else a read at the depth
//! at which the operator has reads outstanding. Computing is constants, of one core.

use firndb_profile::{Access, DeviceCosts, Order, Submission, Work};
use firndb_table::Residency;

/// Microseconds of computing: a page found and latched, a row read and tested, an index entry
/// stepped over, a row looked up by its key, a row hashed or copied, two compared, a row returned.
/// Rough: they decide between plans only where few pages have to be read.
const PAGE_US: f64 = 0.5;
const ROW_US: f64 = 0.2;
const ENTRY_US: f64 = 0.1;
const LOOKUP_US: f64 = 1.0;
const HASH_US: f64 = 0.15;
const COMPARE_US: f64 = 0.01;
const RETURN_US: f64 = 0.05;

/// Most reads that an operator has outstanding.
const DEPTH_MAX: f64 = 64.0;
/// Bytes of one read of a scan, whose leaves are read ahead together.
const SCAN_BYTES: u64 = 128 << 10;
/// Bytes of a transfer of the spill device.
const SPILL_BYTES: u64 = 256 << 10;

/// Pages by where they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pages {
    /// In DRAM.
    pub dram: f64,
    /// Read from the flash cache.
    pub cache: f64,
    /// Read from the store.
    pub store: f64,
}

impl Pages {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.dram + self.cache + self.store
    }
    pub(super) fn plus(self, other: Pages) -> Pages {
        let Pages { dram, cache, store } = other;
        Pages { dram: self.dram + dram, cache: self.cache + cache, store: self.store + store }
    }
    pub(super) fn times(self, factor: f64) -> Pages {
        Pages { dram: self.dram * factor, cache: self.cache * factor, store: self.store * factor }
    }
}

/// How an operator reads pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reading {
    /// Leaves in the order of their keys, ahead of the scan.
    Scan,
    /// Leaves known beforehand, this many together.
    Together(f64),
}

/// The devices' times, and what a query may use.
#[derive(Clone, Debug)]
pub struct Costs {
    /// The store's device.
    pub store: DeviceCosts,
    /// The flash cache's device, if there is one.
    pub cache: Option<DeviceCosts>,
    /// The spill device, if there is one.
    pub spill: Option<DeviceCosts>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages that the buffer pool holds.
    pub pool_pages: f64,
    /// Bytes of memory that the query may have.
    pub memory_bytes: f64,
}

impl Costs {
    /// Of a database without profiles: the shape of a SATA SSD, no flash cache.
    #[must_use]
    pub fn assumed(page_bytes: u64) -> Costs {
        Costs {
            store: DeviceCosts::assumed(),
            cache: None,
            spill: None,
            page_bytes,
            pool_pages: 16_384.0,
            memory_bytes: (64 << 20) as f64,
        }
    }

    /// The pages among `pages` of a tree that lie in each tier.
    pub(super) fn by_tier(&self, pages: f64, residency: Residency) -> Pages {
        let cache = if self.cache.is_some() { residency.cache } else { 0.0 };
        Pages {
            dram: pages * residency.dram,
            cache: pages * cache,
            store: pages * (1.0 - residency.dram - cache).max(0.0),
        }
    }

    /// Microseconds to read these pages, of a tree of `leaves` pages.
    pub(super) fn pages_us(&self, pages: Pages, reading: Reading, leaves: f64) -> f64 {
        let span = (leaves.max(1.0) * self.page_bytes as f64) as u64;
        let read = |device: &DeviceCosts, count: f64| match count > 0.0 {
            true => count * self.read_us(device, reading, span),
            false => 0.0,
        };
        let cache = self.cache.as_ref().map_or(0.0, |cache| read(cache, pages.cache));
        pages.total() * PAGE_US + cache + read(&self.store, pages.store)
    }

    fn read_us(&self, device: &DeviceCosts, reading: Reading, span_bytes: u64) -> f64 {
        let work = Work {
            access: Access::Read,
            bytes: self.page_bytes,
            order: Order::Random,
            depth: 1,
            submission: Submission::Steady,
            span_bytes,
        };
        match reading {
            Reading::Together(depth) => {
                device.request_us(&Work { depth: depth.clamp(1.0, DEPTH_MAX) as u32, ..work })
            }
            Reading::Scan => {
                let bytes = SCAN_BYTES.max(self.page_bytes).min(span_bytes.max(self.page_bytes));
                let work = Work { bytes, order: Order::Sequential, depth: 2, ..work };
                device.request_us(&work) * self.page_bytes as f64 / bytes as f64
            }
        }
    }

    /// Microseconds to write these bytes to the spill device and to read them back; `None`: there
    /// is no such device.
    pub(super) fn spill_us(&self, bytes: f64) -> Option<f64> {
        if bytes <= 0.0 {
            return Some(0.0);
        }
        let work = |access| Work {
            access,
            bytes: SPILL_BYTES,
            order: Order::Sequential,
            depth: 1,
            submission: Submission::Steady,
            span_bytes: bytes as u64,
        };
        let device = self.spill.as_ref()?;
        let both = device.request_us(&work(Access::Write)) + device.request_us(&work(Access::Read));
        Some(both * bytes / SPILL_BYTES as f64)
    }

    /// Bytes of rows that an operator keeps in memory, of a plan with this many that do.
    pub(super) fn share_bytes(&self, operators: usize) -> f64 {
        self.memory_bytes * 3.0 / 8.0 / operators.max(1) as f64
    }

    pub(super) fn rows_us(&self, rows: f64) -> f64 {
        rows * ROW_US
    }
    pub(super) fn entries_us(&self, entries: f64) -> f64 {
        entries * ENTRY_US
    }
    pub(super) fn lookups_us(&self, rows: f64) -> f64 {
        rows * LOOKUP_US
    }
    pub(super) fn returned_us(&self, rows: f64) -> f64 {
        rows * RETURN_US
    }
    pub(super) fn hashed_us(&self, rows: f64) -> f64 {
        rows * HASH_US
    }
    pub(super) fn compared_us(&self, pairs: f64) -> f64 {
        pairs * COMPARE_US
    }
    pub(super) fn sorted_us(&self, rows: f64) -> f64 {
        self.keys_sorted_us(rows) + self.hashed_us(rows)
    }
    /// A list of keys, which are compared where they lie.
    pub(super) fn keys_sorted_us(&self, keys: f64) -> f64 {
        self.compared_us(keys * keys.max(2.0).log2())
    }
}
