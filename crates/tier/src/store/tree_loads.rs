//! Reads and writes of pages by tree, over an array: how many, how long they took, and how many
//! were under way at once.
//!
//! A page names its tree, so a read is counted when it has come. Trees are counted by themselves
//! that the engine names: whole pages of page files and of large values have any bytes where others
//! name their tree. Counting takes no lock. The memory is bounded: what finds no slot is counted
//! together. Copies that the store makes for itself are not counted.

use super::tree_codes::tree_of;
use crate::page_tier::{PageRead, PageWrite};
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet};

/// A power of two: for some thousand tables, which may all have layouts by their loads. 160 KiB.
const SLOTS: usize = 4096;
/// Most trees that are counted by themselves: with more, some would find no slot.
const TREES_MAX: usize = SLOTS / 4 * 3;
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

/// Loads of all trees.
#[derive(Clone, Debug, Default)]
pub struct StoreLoad {
    /// By tree, since it is counted by itself.
    pub trees: BTreeMap<u32, TreeLoad>,
    /// Of pages of no such tree, since the store was opened.
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
    /// 0: free. Written with `Release` after the counts, and read with `Acquire` before them.
    tree: AtomicU32,
    counts: Counts,
}

impl Slot {
    fn tree(&self) -> u32 {
        self.tree.load(Ordering::Acquire)
    }

    /// Has it count another tree. A thread that found the slot before may add to it once more: an
    /// operation that is counted for the wrong tree.
    fn give_to(&self, tree: u32) {
        self.tree.store(0, Ordering::Release);
        self.counts.clear();
        self.tree.store(tree, Ordering::Release);
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
    fn clear(&self) {
        let all = [&self.reads, &self.read_ns, &self.writes, &self.write_ns];
        all.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

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

    /// The slots that a tree may have.
    fn probes(&self, tree: u32) -> impl Iterator<Item = &Slot> {
        let first = (tree.wrapping_mul(0x9E37_79B1) >> (32 - SLOTS.ilog2())) as usize;
        (0..PROBES).map(move |probe| &self.slots[(first + probe) % SLOTS])
    }

    fn counts_of(&self, tree: u32) -> &Counts {
        // Tree 0 is none: a page without content.
        let own = if tree == 0 { None } else { self.probes(tree).find(|slot| slot.tree() == tree) };
        own.map_or(&self.others, |slot| &slot.counts)
    }

    /// Counts these trees by themselves, the first of them if they are too many. One thread at a
    /// time calls this. Numbers of trees are not used again.
    pub(crate) fn count_trees(&self, trees: &[u32]) {
        let trees = &trees[..trees.len().min(TREES_MAX)];
        let wanted: BTreeSet<u32> = trees.iter().copied().collect();
        let gone = self.slots.iter().filter(|slot| slot.tree() != 0 && !wanted.contains(&slot.tree()));
        gone.for_each(|slot| slot.give_to(0));
        for tree in trees.iter().copied().filter(|tree| *tree != 0) {
            if !self.probes(tree).any(|slot| slot.tree() == tree)
                && let Some(free) = self.probes(tree).find(|slot| slot.tree() == 0)
            {
                free.give_to(tree);
            }
        }
    }

    pub(crate) fn load(&self) -> StoreLoad {
        let slots = self.slots.iter().map(|slot| (slot.tree(), &slot.counts));
        let trees = slots.filter(|(tree, _)| *tree != 0).map(|(tree, counts)| (tree, counts.load()));
        StoreLoad { trees: trees.collect(), others: self.others.load() }
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
        one(Operation::Read, 7);
        assert_eq!((loads.load().trees.len(), loads.load().others.reads), (0, 1), "not named yet");
        loads.count_trees(&[7]);
        (0..3).for_each(|_| one(Operation::Read, 7));
        one(Operation::Write, 7);
        one(Operation::Read, 0);
        let load = loads.load();
        assert_eq!((load.trees[&7].reads, load.trees[&7].writes, load.others.reads), (3, 1, 2));
        // What was named first is counted if there are too many.
        let many: Vec<u32> = (1..=6000).collect();
        loads.count_trees(&many);
        many.iter().for_each(|tree| one(Operation::Write, *tree));
        let load = loads.load();
        assert!(load.trees.len() <= TREES_MAX && load.trees.len() > TREES_MAX - 32, "{}", load.trees.len());
        assert!(load.trees.keys().all(|tree| *tree as usize <= TREES_MAX));
        let counted: u64 = load.trees.values().map(|it| it.writes).sum();
        assert_eq!((counted + load.others.writes, load.trees[&7].reads), (6001, 3));
    }

    /// Cause: a tree kept its slot for ever, and any number that a page had in a tree's place took
    /// one. Effect: trees that came later were not counted.
    #[test]
    fn trees_that_went_away_leave_their_slots_to_others_empty() {
        let loads = Arc::new(TreeLoads::default());
        for first in (1..40_000).step_by(TREES_MAX) {
            let trees: Vec<u32> = (first..first + TREES_MAX as u32).collect();
            loads.count_trees(&trees);
            for tree in trees.iter().copied().chain((0..1000).map(|n| u32::MAX - n)) {
                UnderWay::begin(&loads, Operation::Read, 1).count([&image(tree)[..]].into_iter());
            }
            let load = loads.load();
            assert!(load.trees.len() > TREES_MAX - 32, "{}", load.trees.len());
            assert!(load.trees.iter().all(|(tree, load)| trees.contains(tree) && load.reads == 1));
        }
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
