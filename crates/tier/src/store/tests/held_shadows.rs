//! Places of shadows are held until others have the images: whatever becomes of the pages, of the
//! file's space and of the store itself.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::{PageTier, PageWrite};
use crate::store::geometry::{Geometry, Place};
use crate::store::space::Space;
use crate::store::space::shadows::{ShadowImage, Shadows};
use crate::store::{Journal, Placement, Policy, Store, shadows_of};
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, OnceLock, Weak};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{Device, MemoryDevice};
use firndb_log::{Appended, Kind, LogError, Record};

/// Allocates pages and writes shadows of them; returns those that were taken.
fn shadow(store: &Store, log: &TestLog, count: usize) -> Vec<PageId> {
    let pages = allocate(store, log, count).unwrap();
    let versions: Vec<Lsn> = pages.iter().map(|_| log.tick()).collect();
    let images: Vec<Vec<u8>> = pages.iter().zip(&versions).map(|(page, lsn)| image(*page, *lsn)).collect();
    let each = pages.iter().zip(&versions).zip(&images);
    let mut writes: Vec<PageWrite<'_>> =
        each.map(|((page, version), bytes)| PageWrite::back(*page, *version, Lsn::MAX, bytes)).collect();
    store.write_shadows(&mut writes);
    let taken: Vec<PageId> = writes.iter().filter(|write| write.is_taken()).map(|write| write.page).collect();
    let left: Vec<PageId> = pages.into_iter().filter(|page| !taken.contains(page)).collect();
    write(store, log, &left);
    taken
}

fn assert_readable(store: &Store, images: &[ShadowImage]) {
    let mut out = vec![0; images.len() * PAGE_SIZE];
    for (outcome, held) in store.read_held_shadows(images, &mut out).into_iter().zip(images) {
        outcome.unwrap_or_else(|error| panic!("{held:?}: {error}"));
    }
    for (bytes, held) in out.chunks(PAGE_SIZE).zip(images) {
        assert!(bytes == image(held.page, held.version), "{held:?}");
    }
}

fn all(store: &Store) -> Vec<ShadowImage> {
    store.held_shadows(Lsn::ZERO..Lsn::MAX)
}

#[test]
fn a_held_place_is_not_given_out_although_its_page_is_elsewhere_or_gone() {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::new("store")), &log);
    let others = allocate(&store, &log, 100).unwrap();
    others.chunks(6).for_each(|some| drop(write(&store, &log, some)));
    let unheld = shadow(&store, &log, 3);
    let from = log.end();
    assert_eq!(store.hold_shadows(Some(from)), from);
    let pages = shadow(&store, &log, 6);
    assert_eq!((unheld.len(), pages.len()), (3, 6));
    let images = all(&store);
    assert_eq!(images.iter().map(|image| image.page).collect::<Vec<_>>(), pages);
    assert_eq!(store.oldest_held_shadow(), Some(images[0].record));
    assert_eq!(store.statistics().shadows_held, 6);
    write(&store, &log, &pages[..3]);
    publish(&store, &log, &[], &pages[3..]).unwrap();
    for _ in 0..20 {
        log.flush(log.end()).unwrap();
        others.chunks(6).for_each(|some| drop(write(&store, &log, some)));
        assert_readable(&store, &images);
    }
    // Once others have them, the places are used again.
    log.flush(log.end()).unwrap();
    store.hold_shadows(Some(images[0].record));
    assert_eq!(all(&store).len(), 6, "the record itself is needed still");
    store.hold_shadows(Some(Lsn(images[0].record.0 + 1)));
    assert_eq!((all(&store), store.oldest_held_shadow()), (Vec::new(), None));
    for _ in 0..20 {
        log.flush(log.end()).unwrap();
        others.chunks(6).for_each(|some| drop(write(&store, &log, some)));
    }
    let mut out = vec![0; PAGE_SIZE];
    let reused = images.iter().filter(|image| {
        let outcome = store.read_held_shadows(&[**image], &mut out).remove(0);
        outcome.is_err_and(|error| error.kind == TierErrorKind::NotAllocated)
    });
    assert!(reused.count() > 0);
}

#[test]
fn no_more_than_an_eighth_is_held_and_the_rest_is_declined() {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::new("store")), &log);
    store.hold_shadows(Some(log.end()));
    let mut taken = 0;
    for _ in 0..40 {
        taken += shadow(&store, &log, 6).len() as u64;
        log.flush(log.end()).unwrap();
        assert!(store.statistics().shadows_held <= store.statistics().places / 8);
    }
    assert!(taken > 10 && taken < 120, "{taken}");
    assert_readable(&store, &all(&store));
    assert!(store.holds_many_shadows());
    store.hold_shadows(None);
    assert_eq!(store.statistics().shadows_held, 0);
    assert_eq!(shadow(&store, &log, 6).len(), 6, "none is held, so all are taken");
    assert!(!store.holds_many_shadows());
}

#[test]
fn recovery_keeps_the_newest_of_too_many() {
    let mut shadows = Shadows::default();
    let mut space = Space::new(8);
    let geometry = Geometry::new(PAGE_SIZE, LAYOUT).unwrap();
    for record in 0..10u64 {
        let image = |at| ShadowImage {
            record: Lsn(100 + record),
            page: PageId(1),
            version: Lsn(1),
            checksum: 0,
            place: Place(3 * record + at),
        };
        space.hold_shadows(&geometry, &[0, 1, 2].map(image));
    }
    std::mem::swap(&mut shadows, &mut space.shadows);
    shadows.forget_oldest(7);
    assert_eq!((shadows.oldest(), shadows.count()), (Some(Lsn(107)), 9));
    shadows.forget_oldest(9);
    assert_eq!(shadows.count(), 9);
}

/// The store opened anew, with what it held at or after `from`.
fn restarted(
    (store, log): (Store, &TestLog),
    (memory, policy): (&Arc<dyn Device>, Policy),
    from: Lsn,
    rng: &mut Rng,
) -> (Store, Arc<TestLog>) {
    store.sync().unwrap();
    log.flush(log.end()).unwrap();
    let (records, end) = (log.records(), log.end());
    let redo = store.oldest_needed_lsn().unwrap_or(end).min(end);
    let held = all(&store);
    drop(store);
    let store = recover_under(policy, memory.clone(), &records, Lsn::ZERO, redo, end).unwrap();
    let shadows = records.iter().filter(|logged| logged.kind == Kind::PAGES_SHADOWED);
    // Of older ones recovery may not know that others have them.
    for logged in shadows.filter(|logged| logged.lsn >= from || rng.one_in(2)) {
        assert!(!shadows_of(logged.lsn, logged.record()).unwrap().is_empty());
        store.redo_held_shadows(logged.lsn, logged.record()).unwrap();
    }
    let log = TestLog::with(records);
    store.attach_journal(log.clone());
    store.hold_shadows(Some(from));
    assert_eq!(all(&store), held);
    (store, log)
}

/// Cause: recovery knows not what an archive has that cannot be reached. Effect: it held all that
/// the log names, and a store that cannot grow was full. Mend: each record says what is held.
#[test]
fn recovery_holds_no_more_than_was_held_with_the_newest_record() {
    for (holds_at_end, expected) in [(true, 2), (false, 0)] {
        let log = TestLog::new();
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
        let store = create(memory.clone(), &log);
        let others = allocate(&store, &log, 200).unwrap();
        others.chunks(6).for_each(|some| drop(write(&store, &log, some)));
        store.hold_shadows(Some(log.end()));
        (0..2).for_each(|_| assert_eq!(shadow(&store, &log, 6).len(), 6));
        let from = log.end();
        store.hold_shadows(holds_at_end.then_some(from));
        assert_eq!(all(&store), []);
        assert_eq!(shadow(&store, &log, 2).len(), 2);
        log.flush(log.end()).unwrap();
        let (records, end) = (log.records(), log.end());
        drop(store);
        let store = recover_under(Policy::default(), memory, &records, Lsn::ZERO, Lsn::ZERO, end).unwrap();
        for logged in records.iter().filter(|logged| logged.kind == Kind::PAGES_SHADOWED) {
            store.redo_held_shadows(logged.lsn, logged.record()).unwrap();
        }
        assert_eq!(all(&store).len(), expected);
    }
}

/// A log under which a hold begins between the encoding of a record of shadows and its append.
struct Racing {
    log: Arc<TestLog>,
    store: OnceLock<Weak<Store>>,
}

impl Journal for Racing {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        let store = self.store.get().and_then(Weak::upgrade);
        if let Some(store) = store.filter(|_| record.kind == Kind::PAGES_SHADOWED) {
            let (beginning, from) = (store.clone(), self.log.end());
            // It waits for this append, which is made under `order`.
            std::thread::spawn(move || beginning.hold_shadows(Some(from)));
            while store.state.lock().space.shadows.from.is_none() {
                std::thread::yield_now();
            }
        }
        self.log.append(record)
    }
    fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError> {
        self.log.wait_for_buffer(bytes)
    }
    fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        self.log.flush(lsn)
    }
    fn durable(&self) -> Lsn {
        self.log.durable()
    }
    fn end(&self) -> Lsn {
        self.log.end()
    }
    fn has_spare(&self) -> bool {
        self.log.has_spare()
    }
}

/// Cause: the record said what held before its append, and its places were held by what held after
/// it. Effect: a restart gave up images that had been held, and the archive went on over them.
#[test]
fn a_hold_that_begins_beside_an_append_holds_none_of_its_images() {
    let log = TestLog::new();
    let racing = Arc::new(Racing { log: log.clone(), store: OnceLock::new() });
    let store = Store::create_with(Arc::new(MemoryDevice::new("store")), DATABASE, options(), LAYOUT, POLICY);
    let store = Arc::new(store.unwrap());
    store.attach_journal(racing.clone());
    racing.store.set(Arc::downgrade(&store)).expect("set once");
    assert_eq!(shadow(&store, &log, 2).len(), 2);
    let records = log.records();
    let record = records.iter().find(|logged| logged.kind == Kind::PAGES_SHADOWED).unwrap();
    assert_eq!((all(&store), store.newest_shadow_not_held()), (Vec::new(), Some(record.lsn)));
}

/// Allocates, writes, frees, shadows, empties, cuts off, holds less, and restarts, at random; what
/// is held is there, and so are all pages.
fn model(policy: Policy, seed: u64) {
    let (mut log, mut rng) = (TestLog::new(), Rng::new(seed));
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let mut store = create_under(policy, memory.clone(), &log);
    let (mut from, mut most, mut restarts) = (log.end(), 0, 0);
    store.hold_shadows(Some(from));
    for step in 0..400 {
        let pages: Vec<PageId> = fold(&log.records(), log.end()).into_keys().collect();
        let mut some: Vec<PageId> = (0..rng.below(12))
            .filter_map(|_| pages.get(rng.below(pages.len().max(1) as u64) as usize).copied())
            .collect();
        some.sort_unstable();
        some.dedup();
        match rng.below(16) {
            0..4 => drop(shadow(&store, &log, 1 + rng.below(8) as usize)),
            4..8 => drop(write(&store, &log, &some)),
            8 | 9 if !some.is_empty() => _ = publish(&store, &log, &[], &some).unwrap(),
            10 if rng.one_in(4) => {
                pages.chunks(20).for_each(|some| _ = publish(&store, &log, &[], some).unwrap());
            }
            11 => log.flush(log.end()).unwrap(),
            12 => {
                store.begin_compaction();
                (0..20).for_each(|_| _ = store.compact_step().unwrap());
            }
            13 => {
                let steps = rng.below(30);
                (0..steps).for_each(|_| _ = store.learn_step(true).unwrap());
                while store.give_back_step().unwrap() == Progress::Worked {}
            }
            14 => {
                let all = all(&store);
                if let Some(image) = all.get(rng.below(all.len().max(1) as u64) as usize) {
                    from = image.record;
                    store.hold_shadows(Some(from));
                }
            }
            15 if rng.one_in(2) => {
                (store, log) = restarted((store, &log), (&memory, policy), from, &mut rng);
                restarts += 1;
            }
            _ => {}
        }
        let held = all(&store);
        most = most.max(held.len());
        assert_readable(&store, &held);
        if step % 50 == 49 {
            log.flush(log.end()).unwrap();
            compare(&store, &fold(&log.records(), log.end()));
        }
    }
    assert!(most > 5 && restarts > 2, "{most} held, {restarts} restarts");
    store.hold_shadows(None);
    let pages: Vec<PageId> = fold(&log.records(), log.end()).into_keys().collect();
    pages.chunks(20).for_each(|some| _ = publish(&store, &log, &[], some).unwrap());
    log.flush(log.end()).unwrap();
    let took = allocate(&store, &log, 60).unwrap();
    for some in took.chunks(6) {
        assert!(write(&store, &log, some).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
    }
    compare(&store, &fold(&log.records(), log.end()));
}

#[test]
fn held_images_survive_all_that_a_store_does() {
    for seed in 0..12 {
        let placement = if seed % 2 == 0 { Placement::Threaded } else { Placement::Segments };
        model(Policy { placement, ..POLICY }, seed);
    }
}
