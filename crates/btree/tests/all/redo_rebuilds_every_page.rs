//! The log alone rebuilds the tree: replayed in LSN order on empty pages, or on any version of a
//! page that was ever written, it gives the same bytes as the run that wrote it.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{Epoch, Lsn, PageId, TreeId};
use firndb_btree::{PageChange, Position, Redone, Tree, TreeError, redo as redo_record};
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_device::Device;
use firndb_log::{Appended, Log, LogError, LogScan, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageTier, PageWrite, TierError};
use std::collections::BTreeMap;

/// A tier that notes where each group with allocations ends.
struct NotingTier {
    inner: MemoryTier,
    ends: Mutex<Vec<Lsn>>,
}

impl PageTier for NotingTier {
    firndb_tier::forward_tier!(inner: page_size, read_batch, write_batch, make_batch_space, reserve, unreserve);
    firndb_tier::forward_tier!(inner: prepare, sync, version_of, oldest_needed_lsn, statistics, whereabouts);
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        let appended = self.inner.publish(change, append)?;
        self.ends.lock().push(appended.end);
        Ok(appended)
    }
}

/// Pages have numbers above until they are moved.
const HIGH: PageId = PageId(100_000);

struct Run {
    page_size: usize,
    device: Arc<dyn Device>,
    log: Arc<Log>,
    tier: Arc<NotingTier>,
    tree: Tree,
}

impl Run {
    fn new(page_size: usize) -> Run {
        let device = firndb_log::testing::memory_device("log", 64 << 20);
        let log = Log::create(
            vec![Arc::clone(&device)],
            firndb_log::testing::identity(1),
            Epoch(1),
            firndb_log::testing::options(),
        )
        .expect("a log in memory");
        let tier = Arc::new(NotingTier { inner: MemoryTier::new(page_size), ends: Mutex::default() });
        let pool = pool_over(Arc::clone(&tier) as Arc<dyn PageTier>, &log, 400);
        let tree = Tree::create(pool, TreeId(3), CLASS, b"created").expect("a tree");
        tier.inner.hand_out_after(HIGH);
        Run { page_size, device, log, tier, tree }
    }

    /// Moves every node but the root to numbers below `HIGH`.
    fn relocate(&self) {
        self.tier.inner.hand_out_after(self.tree.root());
        assert!(relocate(&self.tree, HIGH.0, 3).moved > 0);
    }

    /// All page changes in the log, each with its LSN.
    fn records(&self) -> Vec<(Lsn, firndb_log::Kind, Vec<u8>)> {
        self.log.flush(self.log.end()).expect("flushed");
        let scan = LogScan::new(
            vec![Arc::clone(&self.device)],
            firndb_log::testing::identity(1),
            Lsn::FIRST,
            &mut |_, _| {},
        )
        .expect("a whole log");
        let (mut records, mut all) = (scan.records(Lsn::FIRST), Vec::new());
        while let Some((lsn, record)) = records.next().expect("readable") {
            if (0x20..0x40).contains(&record.kind.0) {
                all.push((lsn, record.kind, record.body.to_vec()));
            }
        }
        all
    }
}

fn pool_over(tier: Arc<dyn PageTier>, log: &Arc<Log>, frames: usize) -> Arc<BufferPool> {
    let options = PoolOptions { budget_bytes: frames * (tier.page_size() + 512) + (1 << 16) };
    Arc::new(BufferPool::new(tier, Arc::clone(log), options).expect("a pool"))
}

type Pages = BTreeMap<PageId, (Lsn, Vec<u8>)>;

/// What recovery does with a record.
fn redo(pages: &mut Pages, page_size: usize, (lsn, kind, body): &(Lsn, firndb_log::Kind, Vec<u8>)) {
    let change = PageChange::decode(Record { kind: *kind, body }).expect("well-formed");
    let (version, bytes) = pages.entry(change.page).or_insert_with(|| (Lsn::ZERO, vec![0; page_size]));
    if *version >= *lsn {
        return;
    }
    assert_eq!(change.previous, *version, "the chain of a page's records has no gap");
    change.apply(bytes).expect("a record applies to the version it was written for");
    *version = *lsn;
}

fn random_work(
    run: &Run,
    rng: &mut Rng,
    model: &mut Model,
    steps: usize,
    removals: u64,
    mut after: impl FnMut(),
) {
    for _ in 0..steps {
        let key = random_key(rng, run.page_size, 300);
        match rng.below(8 + removals) {
            0..7 => {
                let value = random_value(rng, run.page_size, &key);
                put(&run.tree, &key, &value);
                model.insert(key, value);
            }
            7 => {
                let low = u64::from(key.first().copied().unwrap_or_default());
                let odd = |key: &[u8]| key.len() as u64 % 5 == low % 5;
                let swept = run.tree.sweep_leaf(&key, CLASS, |key, _| odd(key)).expect("swept");
                if swept.small {
                    run.tree.merge_small(&swept.low, CLASS).expect("merged");
                }
                let within =
                    |key: &Vec<u8>| *key >= swept.low && swept.high.as_ref().is_none_or(|high| key < high);
                model.retain(|key, _| !within(key) || !odd(key));
            }
            _ => {
                remove(&run.tree, &key);
                model.remove(&key);
            }
        }
        after();
    }
}

fn assert_same_bytes(run: &Run, pages: &Pages) {
    for page in run.tree.check().unwrap().into_result().unwrap().pages {
        let guard = run.tree.pool().shared(page).unwrap();
        let (version, bytes) = &pages[&page];
        assert_eq!(guard.version(), *version, "{page:?}");
        assert!(guard[..] == bytes[..], "{page:?} at {version:?} differs");
    }
}

#[test]
fn from_empty_pages_and_from_any_version_between() {
    for (seed, page_size) in [(1, 512), (2, 512), (3, 4096), (4, 65536)] {
        let run = Run::new(page_size);
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        let mut snapshots: Vec<Pages> = Vec::new();
        for round in 0..4 {
            random_work(&run, &mut rng, &mut model, 500, if round % 2 == 0 { 1 } else { 20 }, || {});
            let pages = run.tree.check().unwrap().pages;
            let copy = |page: PageId| {
                let guard = run.tree.pool().shared(page).unwrap();
                (page, (guard.version(), guard.to_vec()))
            };
            snapshots.push(pages.into_iter().map(copy).collect());
            if round == 1 {
                run.relocate();
                assert_equal(&run.tree, &model);
            }
        }
        assert_equal(&run.tree, &model);
        let records = run.records();
        let mut pages = Pages::new();
        for record in &records {
            redo(&mut pages, page_size, record);
        }
        assert_same_bytes(&run, &pages);
        for mut pages in snapshots {
            // As after a crash: some pages were written, the others were not.
            pages.retain(|_, _| rng.one_in(2));
            for record in &records {
                redo(&mut pages, page_size, record);
            }
            assert_same_bytes(&run, &pages);
        }
    }
}

#[test]
fn through_a_pool_as_recovery_does_it() {
    let run = Run::new(512);
    let (mut rng, mut model) = (Rng::new(21), Model::new());
    random_work(&run, &mut rng, &mut model, 1200, 4, || {});
    let pages = run.tree.check().unwrap().pages;
    let tier = MemoryTier::new(512);
    let nowhere = Appended { first: Lsn::ZERO, end: Lsn::ZERO };
    tier.publish(Allocation { allocate: &pages, free: &[] }, &mut |_| Ok(nowhere)).unwrap();
    // Fewer frames than pages: recovery evicts too.
    let pool = pool_over(Arc::new(tier), &run.log, 40);
    let records = run.records();
    let replay = |from: usize| {
        let mut counts = [0; 3];
        for (lsn, kind, body) in &records[from..] {
            match redo_record(&pool, *lsn, Record { kind: *kind, body }).unwrap() {
                Redone::Applied => counts[0] += 1,
                Redone::Known => counts[1] += 1,
                Redone::Freed => counts[2] += 1,
            }
        }
        counts
    };
    let first = replay(0);
    assert!(first[0] > 900 && first[1] == 0 && first[2] > 10, "{first:?}");
    let again = replay(records.len() / 2);
    assert_eq!(again[0], 0, "what a page has is not applied again");
    let tree = Tree::open(pool, run.tree.id(), run.tree.root());
    let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(scan(&tree, Position::Start, firndb_btree::Direction::Forward), all);
    tree.check().unwrap().into_result().unwrap();
}

#[test]
fn a_missing_record_is_noticed() {
    let run = Run::new(512);
    (0..3u8).for_each(|n| put(&run.tree, &[n], b"v"));
    let tier = MemoryTier::new(512);
    let nowhere = Appended { first: Lsn::ZERO, end: Lsn::ZERO };
    tier.publish(Allocation { allocate: &[run.tree.root()], free: &[] }, &mut |_| Ok(nowhere)).unwrap();
    let pool = pool_over(Arc::new(tier), &run.log, 40);
    let records = run.records();
    let redo = |at: usize| {
        let (lsn, kind, body) = &records[at];
        redo_record(&pool, *lsn, Record { kind: *kind, body })
    };
    assert_eq!(redo(0).unwrap(), Redone::Applied);
    assert_eq!(redo(2).unwrap_err().kind, firndb_btree::TreeErrorKind::Damaged);
    assert_eq!(redo(1).unwrap(), Redone::Applied);
    assert_eq!(redo(2).unwrap(), Redone::Applied);
    assert_eq!(redo(1).unwrap(), Redone::Known);
}

/// A tree over nothing but these pages.
fn reopen(run: &Run, pages: &Pages) -> Tree {
    let tier = MemoryTier::new(run.page_size);
    let ids: Vec<PageId> = pages.keys().copied().collect();
    let nowhere = Appended { first: Lsn::ZERO, end: Lsn::ZERO };
    tier.publish(Allocation { allocate: &ids, free: &[] }, &mut |_| Ok(nowhere)).unwrap();
    for (&page, (version, data)) in pages {
        let mut writes = [PageWrite::back(page, *version, *version, data)];
        tier.write_batch(&mut writes);
        assert!(writes[0].is_taken(), "{:?}", writes[0].outcome);
    }
    // Page numbers continue after those in use.
    ids.last().into_iter().for_each(|last| tier.hand_out_after(*last));
    Tree::open(pool_over(Arc::new(tier), &run.log, 100), run.tree.id(), run.tree.root())
}

#[test]
fn a_log_that_ends_after_any_group_holds_a_sound_tree() {
    for seed in 5..8 {
        let run = Run::new(512);
        let (mut rng, mut model) = (Rng::new(seed), Model::new());
        // After a whole call the contents are known too.
        let states = Mutex::new(BTreeMap::new());
        for round in 0..2 {
            for _ in 0..90 {
                random_work(&run, &mut rng, &mut model, 1, if round == 0 { 1 } else { 25 }, || {});
                states.lock().insert(run.log.end(), model.clone());
            }
            if round == 0 {
                run.relocate();
                states.lock().insert(run.log.end(), model.clone());
            }
        }
        let mut ends = run.tier.ends.lock().clone();
        ends.extend(states.lock().keys());
        ends.sort_unstable();
        ends.dedup();
        let (records, states) = (run.records(), states.into_inner());
        let (mut pages, mut replayed) = (Pages::new(), 0);
        for end in ends {
            while replayed < records.len() && records[replayed].0 < end {
                redo(&mut pages, run.page_size, &records[replayed]);
                replayed += 1;
            }
            let tree = reopen(&run, &pages);
            assert_eq!(tree.check().unwrap().damage, Vec::<String>::new(), "the log ends at {end:?}");
            if let Some(model) = states.get(&end) {
                let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                assert_eq!(scan(&tree, Position::Start, firndb_btree::Direction::Forward), all);
            }
        }
    }
}

#[test]
fn clearing_can_be_taken_up_again_after_a_crash_between_any_two_groups() {
    let run = Run::new(512);
    let mut rng = Rng::new(9);
    for _ in 0..1500 {
        let key = random_key(&mut rng, 512, 5000);
        put(&run.tree, &key, &[1; 14]);
    }
    let height = run.tree.check().unwrap().height;
    assert!(height >= 3);
    let from = run.log.end();
    run.tree.clear(CLASS).unwrap();
    let empty = run.tree.check().unwrap().into_result().unwrap();
    assert_eq!((empty.entries, empty.pages), (0, vec![run.tree.root()]));
    assert_eq!(run.tier.statistics().pages_allocated, 1, "all other pages were freed");

    let (records, mut pages) = (run.records(), Pages::new());
    for record in records.iter().filter(|record| record.0 < from) {
        redo(&mut pages, 512, record);
    }
    let later: Vec<_> = records.iter().filter(|record| record.0 >= from).collect();
    assert!(later.len() > 5, "several groups");
    // Each of these groups changes one page.
    for record in later {
        let tree = reopen(&run, &pages);
        tree.clear(CLASS).expect("clearing goes on");
        assert_eq!(tree.check().unwrap().into_result().unwrap().entries, 0);
        put(&tree, b"usable", b"again");
        redo(&mut pages, 512, record);
        let tree = reopen(&run, &pages);
        if let Err(error) = tree.get(b"key", |_| ()) {
            assert_eq!(error.kind, firndb_btree::TreeErrorKind::Condemned, "{error}");
        }
    }
}

#[test]
fn attachments_of_creation_changes_and_dropping_are_in_the_log() {
    let run = Run::new(512);
    run.tree
        .modify(b"k", CLASS, |_, change, attachment| {
            attachment.extend_from_slice(b"row");
            *change = firndb_btree::Change::Put(b"v".to_vec());
            Ok::<_, TreeError>(())
        })
        .unwrap();
    let refused = run.tree.clone().drop_root(CLASS, b"dropped").unwrap_err();
    assert_eq!(refused.kind, firndb_btree::TreeErrorKind::BadArgument);
    run.tree.clear(CLASS).unwrap();
    run.tree.clone().drop_root(CLASS, b"dropped").unwrap();
    assert_eq!(run.tier.statistics().pages_allocated, 0);
    let attachments: Vec<Vec<u8>> = run
        .records()
        .iter()
        .map(|(_, kind, body)| PageChange::decode(Record { kind: *kind, body }).unwrap().attachment.to_vec())
        .collect();
    assert_eq!(attachments, [&b"created"[..], b"row", b"", b"dropped"]);
}
