//! What pages, rows and spilled bytes cost.
//!
//! A page costs what its tier asks for it: nothing in DRAM, else a read at the depth at which the
//! operator has reads outstanding. Computing is constants, of one core, for what operators count;
//! that of finding a page is in its rows'.

use super::times::DeviceTimes;
use crate::context::divided;
use crate::fetch::keys_of;
use crate::work::Computing;
use firndb_base::sync::Arc;
use firndb_profile::{Access, Order, Submission, Work};
use firndb_table::Residency;

/// Most reads that an operator has outstanding.
const DEPTH_MAX: f64 = 64.0;
/// Leaves that a scan has read ahead together.
const SCAN_AHEAD: f64 = 32.0;
/// Reads that a scan waits for until it has as many ahead.
const WINDOWS: f64 = 6.0;
/// Bytes of one read of a scan, whose leaves are read ahead together.
const SCAN_BYTES: u64 = 128 << 10;
/// The parts of a small pool that other operators read at once, and a scan: it has two such ahead.
const BATCHES_OF_POOL: f64 = 8.0;
const WINDOWS_OF_POOL: f64 = 64.0;
/// What a page of the flash cache has besides: its seal, in whole blocks.
const SEAL_BYTES: u64 = 512;
/// Operators of a plan: scans, a join, and what comes above.
const OPERATORS: usize = 4;

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
    /// The leaves of a list, in the order of their keys, by as many reads of several in all: each
    /// is waited for.
    Ascending { list: f64, reads: f64 },
    /// Leaves anywhere, this many together.
    Anywhere(f64),
}

/// The tree that pages are of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tree {
    pub(super) leaves: f64,
    pub(super) residency: Residency,
}

/// The devices' times, and what a query may use.
#[derive(Clone, Debug)]
pub struct Costs {
    /// The store's device.
    pub store: Arc<DeviceTimes>,
    /// The flash cache's device, if there is one.
    pub cache: Option<Arc<DeviceTimes>>,
    /// The spill device, if there is one.
    pub spill: Option<Arc<DeviceTimes>>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages that the buffer pool holds.
    pub pool_pages: f64,
    /// Bytes of memory that the query may have.
    pub memory_bytes: f64,
    pub computing: Computing,
}

impl Costs {
    /// Of a database without profiles: the shape of a SATA SSD, no flash cache.
    #[must_use]
    pub fn assumed(page_bytes: u64) -> Costs {
        Costs {
            store: DeviceTimes::assumed(),
            cache: None,
            spill: None,
            page_bytes,
            pool_pages: 16_384.0,
            memory_bytes: (64 << 20) as f64,
            computing: Computing::FIRN,
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

    /// How many pages are read of a tree, of which `distinct` ones are visited, if `visited` are
    /// asked for one after the other: what stays in the pool is read once.
    pub(super) fn read_again(&self, distinct: f64, visited: f64) -> f64 {
        let stays = (self.pool_pages / 4.0 / distinct.max(1.0)).min(1.0);
        distinct + (visited - distinct).max(0.0) * (1.0 - stays)
    }

    /// Microseconds to read these pages of a tree.
    pub(super) fn pages_us(&self, pages: Pages, reading: Reading, tree: Tree) -> f64 {
        let span = (tree.leaves.max(1.0) * self.page_bytes as f64) as u64;
        // Flash of a cache holds pages in the order in which they came.
        let cache = match (&self.cache, pages.cache > 0.0) {
            (Some(cache), true) => {
                let bytes = self.page_bytes + SEAL_BYTES;
                let us = match reading {
                    Reading::Ascending { reads, .. } => {
                        self.batch_us(cache, bytes, Order::Random, pages.cache / reads, span)
                    }
                    Reading::Anywhere(depth) => self.read_us(cache, bytes, Order::Random, depth, span),
                    Reading::Scan => self.read_us(cache, bytes, Order::Random, SCAN_AHEAD, span),
                };
                pages.cache * us
            }
            _ => 0.0,
        };
        let store = match pages.store > 0.0 {
            true => pages.store * self.store_us(pages, reading, tree, span),
            false => 0.0,
        };
        // Windows that double: a short scan waits for each.
        let begins = match reading {
            Reading::Scan if pages.store >= 1.0 => {
                let waits = (pages.store + 1.0).log2().min(WINDOWS);
                waits * self.read_us(&self.store, self.page_bytes, Order::Random, 1.0, span)
            }
            _ => 0.0,
        };
        cache + store + begins
    }

    /// Microseconds for each page that comes from the store.
    fn store_us(&self, pages: Pages, reading: Reading, tree: Tree, span: u64) -> f64 {
        let adjacent = tree.residency.adjacent.clamp(0.0, 1.0);
        // Those of one batch are read in the order of their places, wherever they are.
        let swept = |depth: f64| {
            let gap = (span as f64 / depth.clamp(1.0, DEPTH_MAX)) as u64;
            self.read_us(&self.store, self.page_bytes, Order::Ascending { gap_bytes: gap }, depth, span)
        };
        // As many of the tree's leaves, in the order of their places.
        let ascending = |leaves: f64, depth: f64| {
            let gap = (tree.leaves / leaves.max(1.0) - 1.0).max(0.0) * self.page_bytes as f64;
            self.read_us(
                &self.store,
                self.page_bytes,
                Order::Ascending { gap_bytes: gap as u64 },
                depth,
                span,
            )
        };
        let read = pages.store / pages.total().max(f64::MIN_POSITIVE);
        match reading {
            Reading::Anywhere(depth) => {
                self.read_us(&self.store, self.page_bytes, Order::Random, depth, span)
            }
            Reading::Ascending { list, reads } => {
                let depth = pages.store / reads;
                let order = |gap| Order::Ascending { gap_bytes: (gap * self.page_bytes as f64) as u64 };
                let of = |gap: f64| self.batch_us(&self.store, self.page_bytes, order(gap), depth, span);
                let gap = (tree.leaves / (list * read).max(1.0) - 1.0).max(0.0);
                adjacent * of(gap) + (1.0 - adjacent) * of(tree.leaves / depth.clamp(1.0, DEPTH_MAX))
            }
            // What is in memory parts the runs that are read.
            Reading::Scan => {
                let ahead = SCAN_AHEAD.min(2.0 * self.pool_pages / WINDOWS_OF_POOL);
                let run = read * self.run_us(span) + (1.0 - read) * ascending(tree.leaves * read, ahead);
                adjacent * run + (1.0 - adjacent) * swept(ahead)
            }
        }
    }

    fn read_us(&self, device: &DeviceTimes, bytes: u64, order: Order, depth: f64, span_bytes: u64) -> f64 {
        let of = |submission, most: f64| {
            let (depth, access) = (depth.clamp(1.0, most.clamp(1.0, DEPTH_MAX)) as u32, Access::Read);
            device.request_us(&Work { access, bytes, order, depth, submission, span_bytes })
        };
        // A batch is asked for while the one before is being read: a disk sweeps over each, and the
        // channels of flash are never idle. A small pool has frames for two halves then.
        let most = self.pool_pages / BATCHES_OF_POOL;
        of(Submission::Batches, most).min(of(Submission::Steady, most / 2.0))
    }

    /// Each of as many pages that are read together, before any others: if they are no more than
    /// the pool takes at once and the device has under way, it is idle until the next.
    fn batch_us(&self, device: &DeviceTimes, bytes: u64, order: Order, pages: f64, span_bytes: u64) -> f64 {
        if pages > DEPTH_MAX.min(self.pool_pages / BATCHES_OF_POOL) {
            return self.read_us(device, bytes, order, pages, span_bytes);
        }
        let (depth, submission) = (pages.clamp(1.0, DEPTH_MAX) as u32, Submission::Batches);
        let access = Access::Read;
        device.request_us(&Work { access, bytes, order, depth, submission, span_bytes })
    }

    /// Rows that one read by sorted keys returns, in a share of as many bytes of memory.
    pub(super) fn fetched_together(&self, share: f64) -> f64 {
        keys_of(share as usize / 2, self.page_bytes as usize) as f64
    }

    /// A page's part of a read of adjacent ones.
    fn run_us(&self, span_bytes: u64) -> f64 {
        let window = (self.pool_pages / WINDOWS_OF_POOL) as u64 * self.page_bytes;
        let bytes = SCAN_BYTES.min(window).max(self.page_bytes).min(span_bytes.max(self.page_bytes));
        let (access, submission) = (Access::Read, Submission::Steady);
        let work = Work { access, bytes, order: Order::Sequential, depth: 2, submission, span_bytes };
        self.store.request_us(&work) * self.page_bytes as f64 / bytes as f64
    }

    /// Bytes of rows that an operator keeps in memory, of a plan with as many parts of it.
    pub(super) fn share_bytes(&self, shares: usize) -> f64 {
        divided(self.memory_bytes as usize, OPERATORS, shares).1 as f64
    }

    pub(super) fn rows_us(&self, rows: f64) -> f64 {
        rows * self.computing.row_us
    }
    pub(super) fn entries_us(&self, entries: f64) -> f64 {
        entries * self.computing.entry_us
    }
    pub(super) fn lookups_us(&self, rows: f64) -> f64 {
        rows * self.computing.lookup_us
    }
    pub(super) fn probes_us(&self, keys: f64) -> f64 {
        keys * self.computing.probe_us
    }
    pub(super) fn returned_us(&self, rows: f64) -> f64 {
        rows * self.computing.return_us
    }
    pub(super) fn kept_us(&self, rows: f64) -> f64 {
        rows * self.computing.keep_us
    }
    pub(super) fn compared_us(&self, pairs: f64) -> f64 {
        pairs * self.computing.compare_us
    }
    pub(super) fn sorted_us(&self, rows: f64) -> f64 {
        self.keys_sorted_us(rows) + self.kept_us(rows)
    }
    /// A list of keys, which are compared where they lie.
    pub(super) fn keys_sorted_us(&self, keys: f64) -> f64 {
        self.compared_us(keys * keys.max(2.0).log2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_that_few_reads_miss_come_one_by_one() {
        let (costs, residency) = (Costs::assumed(4096), Residency::default());
        let tree = Tree { leaves: 10_000.0, residency };
        let pages = Pages { dram: 4000.0, cache: 0.0, store: 64.0 };
        let us = |reads| costs.pages_us(pages, Reading::Ascending { list: 4064.0, reads }, tree);
        assert!(us(64.0) > 4.0 * us(1.0), "{} beside {}", us(64.0), us(1.0));
        assert_eq!(us(64.0), us(1000.0), "no read is of less than a page");
    }
}
