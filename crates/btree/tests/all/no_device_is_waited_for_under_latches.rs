//! Structure changes and changes of entries beside a pool of few frames, a page map that is rarely
//! in memory and a log buffer that is full all the time: a thread that has to wait for a device
//! releases its latches first.
//!
//! Every call of the tier below that may wait says so to `before_device`, as the buffer and the log
//! do of themselves; it panics if its thread has a page latched exclusively. (Only in builds with
//! debug assertions, as tests are.)

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, before_device};
use firndb_base::{Epoch, PageId, TreeId};
use firndb_btree::{Change, NewLeaf, Tree, TreeError, fill_page};
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Appended, Log, LogClass, LogError, LogOptions, Record, testing};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageRead, PageTier, PageWrite, Prepared, TierError, TierErrorKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A tier that waits where a tier may, and in every third publication finds that its map is not in
/// memory.
struct Waiting {
    inner: MemoryTier,
    publications: AtomicU64,
    unprepared: AtomicU64,
    reservations: AtomicU64,
}

impl PageTier for Waiting {
    firndb_tier::forward_tier!(inner: page_size, unreserve, sync, version_of, oldest_needed_lsn, statistics, whereabouts);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        before_device();
        self.inner.read_batch(reads);
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        before_device();
        self.inner.write_batch(writes);
    }
    fn make_batch_space(&self) -> usize {
        before_device();
        self.inner.make_batch_space()
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        before_device();
        self.reservations.fetch_add(1, Relaxed);
        self.inner.reserve(class)
    }
    fn prepare(&self, pages: &[PageId]) -> Result<Prepared<'_>, TierError> {
        before_device();
        self.inner.prepare(pages)
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        if self.publications.fetch_add(1, Relaxed).is_multiple_of(3) {
            self.unprepared.fetch_add(1, Relaxed);
            return Err(TierError::new(TierErrorKind::Unprepared, "the test says so"));
        }
        self.inner.publish(change, append)
    }
}

struct World {
    tier: Arc<Waiting>,
    log: Arc<Log>,
    tree: Tree,
}

impl World {
    fn new(frames: usize) -> World {
        let tier = Arc::new(Waiting {
            inner: MemoryTier::new(512),
            publications: AtomicU64::new(0),
            unprepared: AtomicU64::new(0),
            reservations: AtomicU64::new(0),
        });
        // The least there is: a few dozen changes fill it.
        let options = LogOptions { buffer_bytes: 8 << 10, ..testing::options() };
        let device = testing::memory_device("log", 256 << 20);
        let log = Log::create(vec![device], testing::identity(1), Epoch(1), options).unwrap();
        let budget = PoolOptions { budget_bytes: frames * 1024 + (1 << 15) };
        let pool = Arc::new(BufferPool::new(tier.clone(), log.clone(), budget).unwrap());
        let tree = Tree::create(pool, TreeId(7), CLASS, b"").unwrap();
        World { tier, log, tree }
    }

    /// That there was something to wait for.
    fn assert_waited(&self) {
        assert!(self.tier.unprepared.load(Relaxed) > 10);
        let (read, waits) = (self.tier.statistics().pages_read, self.log.statistics().buffer_waits);
        // Every page that is evicted has the log flushed before it: with few frames the buffer is
        // rarely full.
        assert!(read > 100 || waits > 10, "{read} pages read, the log's buffer full {waits} times");
    }
}

fn key(number: u64, part: u8) -> Vec<u8> {
    [&number.to_be_bytes()[4..], &[part]].concat()
}

fn work(world: &World, part: u8, rounds: u64) -> Model {
    let (mut model, mut rng) = (Model::new(), Rng::new(u64::from(part)));
    for round in 0..rounds {
        // By turns it grows and shrinks: splits up to the root, merges and lower roots.
        let key = key(rng.below(1500), part);
        if rng.below(10) < if round / 1500 % 2 == 0 { 9 } else { 1 } {
            let value = vec![part; rng.below(70) as usize];
            put(&world.tree, &key, &value);
            model.insert(key, value);
        } else {
            assert_eq!(remove(&world.tree, &key), model.remove(&key).is_some());
        }
    }
    model
}

#[test]
fn by_one_thread() {
    for frames in [20, 3000] {
        let world = World::new(frames);
        let model = work(&world, 1, 6000);
        world.assert_waited();
        let waits = world.log.statistics().buffer_waits;
        assert_eq!(frames > 20, waits > 10, "{waits}");
        assert_equal(&world.tree, &model);
    }
}

#[test]
fn by_several_threads() {
    for _ in 0..3 {
        let world = World::new(60);
        let model = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|part| {
                    scope.spawn({
                        let world = &world;
                        move || work(world, part, 3000)
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Model>()
        });
        world.assert_waited();
        assert_equal(&world.tree, &model);
    }
}

#[test]
fn by_loading_clearing_and_dropping() {
    let world = World::new(20);
    let entries = (0..3000u64).map(|number| Ok::<_, TreeError>((key(number, 0), vec![3; 50])));
    let write = |leaf: NewLeaf| fill_page(world.tree.pool(), leaf.page, &leaf.image, CLASS);
    assert_eq!(world.tree.bulk_load(CLASS, 90, entries, write).unwrap(), 3000);
    let report = world.tree.check().unwrap().into_result().unwrap();
    assert!(report.height >= 3 && report.entries == 3000);
    world.tree.clear(CLASS).unwrap();
    assert_sound(&world.tree, &Model::new());
    world.assert_waited();
    let tier = world.tier.clone();
    world.tree.drop_root(CLASS, b"").unwrap();
    assert_eq!(tier.statistics().pages_allocated, 0);
}

#[test]
fn by_sweeping() {
    let world = World::new(20);
    (0..2000).for_each(|number| put(&world.tree, &key(number, 0), &[9; 40]));
    let (mut next, mut swept) = (Some(Vec::new()), 0);
    while let Some(from) = next {
        let found = world.tree.sweep_leaf(&from, CLASS, |key, _| !key[3].is_multiple_of(16)).unwrap();
        swept += found.removed;
        if found.small {
            world.tree.merge_small(&found.low, CLASS).unwrap();
        }
        next = found.high;
    }
    let kept: Model = (0..2000).filter(|n| n % 16 == 0).map(|n| (key(n, 0), vec![9; 40])).collect();
    assert_eq!(swept, 2000 - kept.len());
    assert_equal(&world.tree, &kept);
}

/// A page that cannot be read is an error of the callers that need it, and of no other; no retry
/// loops for ever.
#[test]
fn a_child_that_cannot_be_read_is_reported() {
    let world = World::new(20);
    let tree = &world.tree;
    let pages = || tree.check().unwrap().into_result().unwrap().pages;
    let (mut before, mut number) = (pages(), 0);
    // A page that came alone is the right half of a leaf.
    let leaf = loop {
        put(tree, &key(number, 0), &[9; 40]);
        number += 1;
        let after = pages();
        let new: Vec<PageId> = after.iter().filter(|page| !before.contains(page)).copied().collect();
        before = after;
        if number > 500 && new.len() == 1 {
            break new[0];
        }
    };
    (number..800).for_each(|number| put(tree, &key(number, 0), &[9; 40]));
    tree.pool().exclusive(leaf).unwrap().discard();
    world.log.flush(world.log.end()).unwrap();
    let freed = Allocation { allocate: &[], free: &[leaf] };
    world.tier.inner.publish(freed, &mut |record| world.log.try_append(CLASS, record)).unwrap();
    let outcomes: Vec<Result<_, TreeError>> = (0..800)
        .map(|number| {
            tree.modify(&key(number, 0), CLASS, |value, change, _| {
                if value.is_some() {
                    *change = Change::Remove;
                }
                Ok::<_, TreeError>(())
            })
        })
        .collect();
    let damaged = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!(damaged > 0 && damaged < 20, "one leaf's keys: {damaged}");
}

/// Cause: a group that was refused for want of the page map or of space in the log's buffer gave
/// its new pages back to the tier. Effect: the next attempt reserved them again, each with a frame,
/// for which other pages may have to be written.
#[test]
fn a_refused_group_keeps_its_new_pages_for_the_next_attempt() {
    let world = World::new(100);
    // A root over a few leaves: no split stops at a full parent, which would leave a page unused.
    (0..60).for_each(|number| put(&world.tree, &key(number, 0), &[9; 40]));
    assert!(world.tier.unprepared.load(Relaxed) > 2, "some groups were refused");
    let (reserved, allocated) =
        (world.tier.reservations.load(Relaxed), world.tier.statistics().pages_allocated);
    assert!(allocated > 5, "{allocated}");
    assert_eq!(reserved, allocated, "each page was reserved once");
}
