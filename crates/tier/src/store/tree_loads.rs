//! Reads and writes of pages by tree, over an array: how many, how long they took, and how many
//! were under way at once.
//!
//! A page names its tree, so a read is counted when it has come. Counting takes no lock. The memory
//! is bounded: what finds no slot is counted together. Copies that the store makes for itself are
//! not counted.

use super::tree_codes::tree_of;
use crate::page_tier::{PageRead, PageWrite};
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeMap;

/// Trees that are counted by themselves: a power of two.
const SLOTS: usize = 512;
/// Slots that a tree may have.
const PROBES: usize = 16;

/// Reads and writes of the pages of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeLoad {
    /// Pages read.
    pub reads: u64,
    /// Nanoseconds that these took, one after another.
    pub read_ns: u64,
    /// Pages written.
    pub writes: u64,
    /// Nanoseconds that these took, one after another.
    pub write_ns: u64,
}

impl TreeLoad {
    /// What came since an earlier count.
    #[must_use]
    pub fn since(self, earlier: TreeLoad) -> TreeLoad {
        TreeLoad {
            reads: self.reads.saturating_sub(earlier.reads),
            read_ns: self.read_ns.saturating_sub(earlier.read_ns),
            writes: self.writes.saturating_sub(earlier.writes),
            write_ns: self.write_ns.saturating_sub(earlier.write_ns),
        }
    }

    /// This and another.
    #[must_use]
    pub fn and(self, other: TreeLoad) -> TreeLoad {
        TreeLoad {
            reads: self.reads + other.reads,
            read_ns: self.read_ns + other.read_ns,
            writes: self.writes + other.writes,
            write_ns: self.write_ns + other.write_ns,
        }
    }
}

/// Loads of all trees since the store was opened.
#[derive(Clone, Debug, Default)]
pub struct StoreLoad {
    /// By tree.
    pub trees: BTreeMap<u32, TreeLoad>,
    /// Of trees that had no slot.
    pub others: TreeLoad,
}

/// The most pages that were being read at once, and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtOnce {
    /// Read.
    pub reads: usize,
    /// Written.
    pub writes: usize,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    read_ns: AtomicU64,
    writes: AtomicU64,
    write_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    /// 0: free.
    tree: AtomicU32,
    counts: Counts,
}

impl Slot {
    /// Whether it counts this tree, which takes it if it is free.
    fn is_of(&self, tree: u32) -> bool {
        let owner = match self.tree.load(Ordering::Relaxed) {
            0 => self.tree.compare_exchange(0, tree, Ordering::Relaxed, Ordering::Relaxed),
            owner => Err(owner),
        };
        owner.map_or_else(|owner| owner == tree, |_| true)
    }
}

/// What is under way, and the most that was.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn begin(&self, count: usize) {
        let now = self.now.fetch_add(count, Ordering::Relaxed) + count;
        if now > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// The counters.
#[derive(Debug)]
pub(crate) struct TreeLoads {
    slots: Box<[Slot]>,
    others: Counts,
    reading: Gauge,
    writing: Gauge,
}

impl Default for TreeLoads {
    fn default() -> TreeLoads {
        TreeLoads {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            others: Counts::default(),
            reading: Gauge::default(),
            writing: Gauge::default(),
        }
    }
}

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// Pages that are being read or written, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    loads: Arc<TreeLoads>,
    operation: Operation,
    pages: usize,
    began: Moment,
}

impl UnderWay {
    pub(crate) fn begin(loads: &Arc<TreeLoads>, operation: Operation, pages: usize) -> UnderWay {
        loads.gauge(operation).begin(pages);
        UnderWay { loads: loads.clone(), operation, pages, began: clock::now() }
    }

    /// Counts those that have come.
    pub(crate) fn count_read(&self, reads: &[PageRead<'_>]) {
        self.count(reads.iter().filter(|read| read.outcome.is_ok()).map(|read| &*read.buf));
    }

    /// Counts those that were written.
    pub(crate) fn count_written<'a>(&self, writes: impl Iterator<Item = &'a PageWrite<'a>>) {
        self.count(writes.filter(|write| write.is_taken()).map(|write| write.data));
    }

    fn count<'a>(&self, images: impl Iterator<Item = &'a [u8]>) {
        let ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        images.for_each(|image| self.loads.count(self.operation, tree_of(image), ns));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.loads.gauge(self.operation).now.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

impl Counts {
    fn load(&self) -> TreeLoad {
        TreeLoad {
            reads: self.reads.load(Ordering::Relaxed),
            read_ns: self.read_ns.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            write_ns: self.write_ns.load(Ordering::Relaxed),
        }
    }
}

impl TreeLoads {
    fn gauge(&self, operation: Operation) -> &Gauge {
        match operation {
            Operation::Read => &self.reading,
            Operation::Write => &self.writing,
        }
    }

    fn count(&self, operation: Operation, tree: u32, ns: u64) {
        let counts = self.counts_of(tree);
        let (number, time) = match operation {
            Operation::Read => (&counts.reads, &counts.read_ns),
            Operation::Write => (&counts.writes, &counts.write_ns),
        };
        number.fetch_add(1, Ordering::Relaxed);
        time.fetch_add(ns, Ordering::Relaxed);
    }

    fn counts_of(&self, tree: u32) -> &Counts {
        let first = (tree.wrapping_mul(0x9E37_79B1) >> (32 - SLOTS.ilog2())) as usize;
        let mut probes = (0..PROBES).map(|probe| &self.slots[(first + probe) % SLOTS]);
        // Tree 0 is none: a page without content, or of a page file.
        let own = if tree == 0 { None } else { probes.find(|slot| slot.is_of(tree)) };
        own.map_or(&self.others, |slot| &slot.counts)
    }

    pub(crate) fn load(&self) -> StoreLoad {
        let mut trees = BTreeMap::new();
        for slot in &self.slots {
            match slot.tree.load(Ordering::Relaxed) {
                0 => {}
                tree => _ = trees.insert(tree, slot.counts.load()),
            }
        }
        StoreLoad { trees, others: self.others.load() }
    }

    /// The most at once since the last call.
    pub(crate) fn take_at_once(&self) -> AtOnce {
        let take = |gauge: &Gauge| gauge.most.swap(gauge.now.load(Ordering::Relaxed), Ordering::Relaxed);
        AtOnce { reads: take(&self.reading), writes: take(&self.writing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(tree: u32) -> Vec<u8> {
        let mut image = vec![0; 64];
        image[20..24].copy_from_slice(&tree.to_le_bytes());
        image
    }

    #[test]
    fn pages_count_for_their_trees_and_what_has_no_slot_together() {
        let loads = Arc::new(TreeLoads::default());
        let one = |operation: Operation, tree: u32| {
            let image = image(tree);
            UnderWay::begin(&loads, operation, 1).count([&image[..]].into_iter());
        };
        (0..3).for_each(|_| one(Operation::Read, 7));
        one(Operation::Write, 7);
        one(Operation::Read, 0);
        let load = loads.load();
        assert_eq!((load.trees[&7].reads, load.trees[&7].writes, load.others.reads), (3, 1, 1));
        (1..=3000).for_each(|tree| one(Operation::Write, tree));
        let load = loads.load();
        assert!(load.trees.len() <= SLOTS && load.trees.len() > SLOTS / 2, "{}", load.trees.len());
        let counted: u64 = load.trees.values().map(|it| it.writes).sum();
        assert_eq!((counted + load.others.writes, load.trees[&7].reads), (3001, 3));
    }

    #[test]
    fn the_most_at_once_is_that_since_it_was_asked_last() {
        let loads = Arc::new(TreeLoads::default());
        let two = [UnderWay::begin(&loads, Operation::Read, 3), UnderWay::begin(&loads, Operation::Read, 4)];
        drop(UnderWay::begin(&loads, Operation::Write, 9));
        let [first, second] = two;
        drop(first);
        assert_eq!(loads.take_at_once(), AtOnce { reads: 7, writes: 9 });
        assert_eq!(loads.take_at_once(), AtOnce { reads: 4, writes: 0 });
        drop(second);
        assert_eq!((loads.take_at_once().reads, loads.take_at_once().reads), (4, 0));
    }
}
