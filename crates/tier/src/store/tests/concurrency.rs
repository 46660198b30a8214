//! Many readers, two writers, allocation and checkpoints at once.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::Store;
use crate::testing::Took;
use crate::testing::small_store::read_many;
use firndb_base::PageId;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_device::MemoryDevice;
use firndb_testkit::hooked::Trap;

/// Every read must find a version at least as new as what was taken before it began, with its own
/// bytes.
fn reader(store: &Store, pages: &[PageId], newest: &[AtomicU64], stop: &AtomicBool, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let index = rng.below(pages.len() as u64) as usize;
        let at_least = newest[index].load(Ordering::SeqCst);
        let (version, bytes) = read(store, pages[index]).unwrap();
        assert!(version.0 >= at_least, "{} went back to {version} from {at_least}", pages[index]);
        assert!(at_least == 0 || bytes == image(pages[index], version));
        reads += 1;
    }
    reads
}

/// As `reader`, of several pages at a time.
fn batch_reader(store: &Store, pages: &[PageId], newest: &[AtomicU64], stop: &AtomicBool) -> u64 {
    let mut rng = Rng::new(99);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let begin = rng.below(pages.len() as u64 - 1) as usize;
        let some: Vec<usize> = (begin..pages.len()).step_by(1 + rng.below(3) as usize).take(20).collect();
        let at_least: Vec<u64> = some.iter().map(|index| newest[*index].load(Ordering::SeqCst)).collect();
        let ids: Vec<PageId> = some.iter().map(|index| pages[*index]).collect();
        for ((page, at_least), read) in ids.iter().zip(at_least).zip(read_many(store, &ids)) {
            let ((version, _), bytes) = read.unwrap();
            assert!(version.0 >= at_least, "{page} went back to {version} from {at_least}");
            assert!(at_least == 0 || bytes == image(*page, version));
            reads += 1;
        }
    }
    reads
}

fn writer(store: &Store, log: &TestLog, pages: &[PageId], newest: &[AtomicU64], part: usize, rounds: u64) {
    let mut rng = Rng::new(part as u64);
    for _ in 0..rounds {
        let mut mine: Vec<usize> =
            (0..6).map(|_| 2 * rng.below(pages.len() as u64 / 2) as usize + part).collect();
        mine.sort_unstable();
        mine.dedup();
        let batch: Vec<PageId> = mine.iter().map(|index| pages[*index]).collect();
        for (index, (version, outcome)) in mine.iter().zip(write(store, log, &batch)) {
            assert_eq!(outcome, Ok(Took::Taken));
            newest[*index].store(version.0, Ordering::SeqCst);
        }
    }
}

fn allocator(store: &Store, log: &TestLog, stop: &AtomicBool) {
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match allocate(store, log, 3) {
            Ok(pages) => held.extend(pages),
            Err(error) => assert_eq!(error.kind, TierErrorKind::Full),
        }
        write(store, log, &held[held.len().saturating_sub(2)..]);
        if held.len() > 40 {
            publish(store, log, &[], &held.split_off(4)).unwrap();
        }
        store.give_back_step().unwrap();
    }
}

fn run(limit: u64, rounds: u64) {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::with("store", 512, limit)), &log);
    let pages = allocate(&store, &log, 90).unwrap();
    let newest: Vec<AtomicU64> = pages.iter().map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn({
                    let (s, p, n, t) = (&store, &pages, &newest, &stop);
                    move || reader(s, p, n, t, seed)
                })
            })
            .collect();
        let batches = scope.spawn(|| batch_reader(&store, &pages, &newest, &stop));
        let others = [
            scope.spawn(|| allocator(&store, &log, &stop)),
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    store.sync().unwrap();
                    let needed = store.oldest_needed_lsn();
                    assert!(needed.is_none_or(|lsn| lsn <= log.end()));
                    store.learn_step(true).unwrap();
                }
            }),
        ];
        let writers: Vec<_> = (0..2)
            .map(|part| {
                scope.spawn({
                    let (s, l, p, n) = (&store, &log, &pages, &newest);
                    move || writer(s, l, p, n, part, rounds)
                })
            })
            .collect();
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(batches.join().unwrap() > 0);
        assert!(readers.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() > 0);
    });
    log.flush(log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
}

#[test]
fn a_read_overtaken_by_a_move_and_a_reuse_of_the_place_is_repeated() {
    let log = TestLog::new();
    let trap = Trap::default();
    let store = Arc::new(create(trap.over_reads(Arc::new(MemoryDevice::new("store"))), &log));
    let pages = allocate(&store, &log, 40).unwrap();
    write(&store, &log, &pages);
    let place = store.entry_of(pages[0]).unwrap().place();
    trap.set(reusing((&store, &log), &pages, place));
    let (version, bytes) = read(&store, pages[0]).unwrap();
    assert!(store.entry_of(pages[0]).unwrap().place() != place && !trap.is_set());
    assert_eq!(Some(version), store.version_of(pages[0]).unwrap());
    assert_eq!(bytes, image(pages[0], version));
}

#[test]
fn reads_never_go_back_while_pages_move_and_places_are_reused() {
    run(u64::MAX, 300);
}

#[test]
fn writers_share_the_last_places_of_a_full_device() {
    run(320 * 1024 + 2 * 90_000, 300);
}

#[test]
fn a_page_freed_while_its_image_is_under_way_stays_free() {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::new("store")), &log);
    let page = allocate(&store, &log, 1).unwrap()[0];
    let old = log.tick();
    log.flush(log.end()).unwrap();
    // The image was copied at `old`; before it is offered, the page is freed and allocated anew.
    publish(&store, &log, &[], &[page]).unwrap();
    let outcome = write_versions(&store, &log, &[page], &[old]);
    assert_eq!(outcome[0].as_ref().unwrap_err().kind, TierErrorKind::NotAllocated);
    log.flush(log.end()).unwrap();
    let again = allocate(&store, &log, 1).unwrap()[0];
    assert_eq!(again, page, "the lowest free number");
    assert_eq!(write_versions(&store, &log, &[page], &[old]), [Ok(Took::Declined)]);
    assert_eq!(read(&store, page).unwrap().1, vec![0; PAGE_SIZE]);
    assert_eq!(store.check(true, &mut |_| {}).unwrap().faults, 0);
}
