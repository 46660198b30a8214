//! Whatever happens to a page, the tier is offered its base and exactly what was changed since.

use crate::common::{PAGE_SIZE, budget_for, count_up, counter_of};
use firndb_base::rng::Rng;
use firndb_base::sync::DevicePermit;
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferPool, Changed, PageUse, PoolOptions};
use firndb_log::{Kind, Log, LogClass, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{
    Allocation, Base, Changes, Found, PageRead, PageTier, PageWrite, TierError, TierErrorKind, Written,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// What the tier has of a page: the whole image, and what the newest version differs from it by.
struct Known {
    base: Base,
    image: Vec<u8>,
    changes: Changes,
}

/// A tier that takes an image whole, or as a delta against the base that it keeps, or not at all.
struct DeltaTier {
    inner: MemoryTier,
    log: Arc<Log>,
    rng: Mutex<Rng>,
    known: Mutex<BTreeMap<PageId, Known>>,
    /// Changes pages while their images are on their way.
    pool: OnceLock<Weak<BufferPool>>,
    meddles: AtomicBool,
    /// Writes seen by what became of them.
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl DeltaTier {
    fn one_in(&self, n: u64) -> bool {
        self.rng.lock().unwrap().one_in(n)
    }

    fn check(&self, write: &PageWrite<'_>) {
        let known = self.known.lock().unwrap();
        let known = known.get(&write.page);
        assert_eq!(write.base, known.map(|known| known.base), "{:?}: the base that the tier has", write.page);
        let Some(Known { image, .. }) = known else {
            return assert_eq!(write.changes, Changes::ALL, "{:?} was never written", write.page);
        };
        let mut rebuilt = image.clone();
        write.changes.apply(write.data, &mut rebuilt);
        assert!(rebuilt == write.data, "{:?}: a change outside {:?}", write.page, write.changes);
        let (from, to) = (counter_of(write.page, image), counter_of(write.page, write.data));
        let expected = (from + 1..=to).fold(Changes::NONE, |all, counter| all | changed_by(counter));
        assert_eq!(write.changes, expected, "{:?}: no more than was changed from {from} to {to}", write.page);
    }

    fn take(&self, write: &mut PageWrite<'_>) -> &'static str {
        self.check(write);
        if self.one_in(5) {
            write.outcome = match write.dirty {
                true => Err(TierError::new(TierErrorKind::Failed, "the device is asked to fail")),
                false => Ok(Written::Declined),
            };
            return "refused";
        }
        let clean = !write.dirty;
        if write.dirty {
            self.inner.write_batch(std::slice::from_mut(write));
            let Ok(Written::Taken { base: Some(base), .. }) = write.outcome else { panic!("it takes all") };
            let mut known = self.known.lock().unwrap();
            let whole = write.base.is_none() || self.one_in(3);
            if whole {
                let image = write.data.to_vec();
                known.insert(write.page, Known { base, image, changes: Changes::NONE });
                return "whole";
            }
            known.get_mut(&write.page).expect("it has a base").changes = write.changes;
        }
        write.outcome = Ok(Written::Taken { base: write.base, changes: write.changes });
        if clean { "clean" } else { "delta" }
    }

    /// Another thread changes the page while its image is with the tier.
    fn meddle(&self, page: PageId) {
        let pool = self.pool.get().and_then(Weak::upgrade).expect("the pool is there");
        let log = &self.log;
        std::thread::scope(|scope| {
            scope.spawn(move || change(&pool, log, page));
        });
        *self.counts.lock().unwrap().entry("meddled").or_default() += 1;
    }
}

impl PageTier for DeltaTier {
    firndb_tier::forward_tier!(inner: page_size, make_batch_space, reserve, unreserve, prepare, publish);
    firndb_tier::forward_tier!(inner: sync, version_of, oldest_needed_lsn, statistics, whereabouts);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.inner.read_batch(reads);
        for read in reads {
            let Ok(found) = &mut read.outcome else { continue };
            *found = match self.known.lock().unwrap().get(&read.page) {
                Some(known) => Found { base: Some(known.base), changes: known.changes, ..*found },
                None => Found::without_base(found.version),
            };
        }
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        for write in writes {
            if self.meddles.load(SeqCst) && self.one_in(4) {
                self.meddle(write.page);
            }
            let what = self.take(write);
            *self.counts.lock().unwrap().entry(what).or_default() += 1;
            if self.meddles.load(SeqCst) && self.one_in(4) {
                self.meddle(write.page);
            }
        }
    }
    fn wants_clean(&self) -> bool {
        true
    }
}

/// What `count_up` reports when it counts to `counter`.
fn changed_by(counter: u64) -> Changes {
    let mut bytes = vec![0; PAGE_SIZE];
    bytes[8..16].copy_from_slice(&(counter - 1).to_le_bytes());
    let Changed::Ranges(ranges) = count_up(PageId(1), &mut bytes) else { panic!("a few ranges") };
    let of = |range: std::ops::Range<u16>| Changes::of(range.start.into()..range.end.into(), PAGE_SIZE);
    ranges.iter().fold(Changes::NONE, |all, range| all | of(range))
}

fn change(pool: &BufferPool, log: &Log, page: PageId) {
    let intent = pool.exclusive(page).expect("the page can be fixed").intend();
    let _ = intent.apply(append(log), |bytes| count_up(page, bytes));
}

fn append(log: &Log) -> Lsn {
    // Under a latch, as trees do, which try only.
    let _permit = DevicePermit::granted();
    let record = Record { kind: Kind(0x20), body: b"change" };
    log.append(LogClass::Normal, record).expect("the log has space").first
}

struct Model {
    tier: Arc<DeltaTier>,
    pool: Arc<BufferPool>,
    log: Arc<Log>,
    pages: Vec<PageId>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let log = firndb_log::testing::memory_log_with(4 << 20);
        let tier = Arc::new(DeltaTier {
            inner: MemoryTier::new(PAGE_SIZE),
            log: log.clone(),
            rng: Mutex::new(Rng::new(seed)),
            known: Mutex::default(),
            pool: OnceLock::new(),
            meddles: AtomicBool::new(false),
            counts: Mutex::default(),
        });
        let options = PoolOptions { budget_bytes: budget_for(20) };
        let pool = Arc::new(BufferPool::new(tier.clone(), log.clone(), options).expect("a large budget"));
        tier.pool.set(Arc::downgrade(&pool)).expect("set once");
        let mut model = Model { tier, pool, log, pages: Vec::new() };
        for _ in 0..60 {
            let page = model.tier.reserve(LogClass::Normal).expect("never full");
            model.publish(&[page], &[]);
            model.pages.push(page);
        }
        model
    }

    fn publish(&self, allocate: &[PageId], free: &[PageId]) {
        let _permit = DevicePermit::granted();
        let append = &mut |record: Record<'_>| self.log.append(LogClass::Normal, record);
        self.tier.publish(Allocation { allocate, free }, append).expect("the log has space");
    }

    /// The page ends, and another begins under its number.
    fn begin_anew(&self, page: PageId) {
        let Ok(guard) = self.pool.exclusive(page) else { return };
        self.publish(&[], &[page]);
        self.tier.known.lock().unwrap().remove(&page);
        guard.discard();
        self.publish(&[page], &[]);
        if self.tier.one_in(2)
            && let Ok(guard) = self.pool.create(page)
        {
            drop(guard.intend().apply(append(&self.log), |bytes| count_up(page, bytes)));
        }
    }

    fn step(&self, rng: &mut Rng) {
        let page = self.pages[rng.below(self.pages.len() as u64) as usize];
        match rng.below(100) {
            0..55 => {
                // Fails when no frame can be freed: then no change was logged.
                if let Ok(guard) = self.pool.exclusive(page) {
                    let intent = guard.intend();
                    drop(intent.apply(append(&self.log), |bytes| count_up(page, bytes)));
                }
            }
            55..80 => {
                let page_use = if rng.one_in(2) { PageUse::Once } else { PageUse::Working };
                if let Ok(guard) = self.pool.shared_for(page, page_use) {
                    counter_of(page, &guard);
                }
            }
            80..88 => drop(self.pool.clean_step()),
            88..94 => drop(self.pool.write_older_than(self.log.end())),
            94..97 => self.begin_anew(page),
            _ => self.tier.meddles.store(rng.one_in(2), SeqCst),
        }
    }
}

#[test]
fn base_and_changes_are_exact_beside_reads_writes_failures_and_pages_made_anew() {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..8 {
        let (model, mut rng) = (Model::new(seed), Rng::new(seed + 100));
        (0..3000).for_each(|_| model.step(&mut rng));
        for (what, count) in &*model.tier.counts.lock().unwrap() {
            *counts.entry(what).or_default() += count;
        }
    }
    let enough = |what| counts.get(what).is_some_and(|count| *count > 200);
    assert!(["whole", "delta", "clean", "refused", "meddled"].into_iter().all(enough), "{counts:?}");
}
