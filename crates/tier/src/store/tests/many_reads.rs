//! Batches of reads: adjacent places are one request, and each page has its own outcome.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_reads::PageReads;
use crate::page_tier::PageTier;
use crate::store::{Journal, Store};
use crate::testing::small_store::{ReadPage, WAYS, Way, read_as_they_come, read_many};
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{
    Calls, Counting, Device, DeviceError, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice,
    When,
};
use firndb_testkit::hooked::{Call, Hooked, Trap};
use std::time::Duration;

/// A store of 100 written pages on `device`, some of them moved; they are returned in no order.
fn written(device: Arc<dyn Device>, log: &Arc<TestLog>) -> (Arc<Store>, Vec<PageId>) {
    let store = create(device, log);
    let mut pages = allocate(&store, log, 100).unwrap();
    write(&store, log, &pages);
    for chunk in pages.chunks(20) {
        write(&store, log, &chunk[..3]);
    }
    pages.sort_unstable_by_key(|page| page.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (Arc::new(store), pages)
}

/// Sizes of the runs of adjacent places of `pages`.
fn runs(store: &Store, pages: &[PageId]) -> Vec<usize> {
    let place = |page: &PageId| store.geometry.place_offset(store.entry_of(*page).unwrap().place().unwrap());
    let mut places: Vec<u64> = pages.iter().map(place).collect();
    places.sort_unstable();
    places.chunk_by(|a, b| a + PAGE_SIZE as u64 == *b).map(<[u64]>::len).collect()
}

fn runs_of(store: &Store, pages: &[PageId]) -> usize {
    runs(store, pages).len()
}

/// Compares what was read with the newest version of the page.
fn expect(store: &Store, page: PageId, read: &ReadPage) {
    let ((version, _), bytes) = read.as_ref().unwrap();
    assert_eq!(Some(*version), store.version_of(page).unwrap(), "{page}");
    assert!(*bytes == image(page, *version), "{page} has other bytes than its version {version}");
}

#[test]
fn adjacent_places_are_read_by_one_request() {
    let device = Arc::new(Counting::new(Arc::new(MemoryDevice::new("store"))));
    let log = TestLog::new();
    let (store, mut pages) = written(device.clone(), &log);
    let runs = runs_of(&store, &pages);
    assert!(runs > 1 && runs < 40, "{runs} runs of 100 pages");
    let (unwritten, gone) = (allocate(&store, &log, 1).unwrap()[0], PageId(1 << 30));
    pages.extend([unwritten, gone, PageId(0)]);
    // What is begun in parts has more of them.
    let in_parts = runs_of(&store, &pages[..64]) + pages[64..100].len();
    for (way, most) in WAYS.into_iter().zip([runs, in_parts]) {
        let (before, counted) = (store.statistics(), device.snapshot());
        let read = way(&*store, &pages);
        let now = store.statistics();
        let requests = now.read_requests - before.read_requests;
        assert_eq!(device.snapshot().reads.since(counted.reads).ops, requests);
        assert!((runs..=most).contains(&(requests as usize)), "{requests} requests for {runs} runs");
        assert_eq!(now.pages_read - before.pages_read, 103);
        pages.iter().zip(&read).take(100).for_each(|(page, read)| expect(&store, *page, read));
        assert_eq!(read[100].as_ref().unwrap().1, vec![0; PAGE_SIZE]);
        for read in &read[101..] {
            assert_eq!(read.as_ref().unwrap_err().kind, TierErrorKind::NotAllocated);
        }
    }
}

#[test]
fn a_page_wanted_twice_is_read_twice() {
    let log = TestLog::new();
    let (store, pages) = written(Arc::new(MemoryDevice::new("store")), &log);
    let twice: Vec<PageId> = pages.iter().chain(&pages).copied().collect();
    for way in WAYS {
        let read = way(&*store, &twice);
        twice.iter().zip(&read).for_each(|(page, read)| expect(&store, *page, read));
    }
}

/// Each read of a batch in turn goes wrong.
#[test]
fn a_read_that_goes_wrong_harms_no_other_page() {
    let faults = [
        Fault::Fail(DeviceErrorKind::Failed),
        Fault::BitRot { bits: 1 },
        Fault::Misdirected { by: PAGE_SIZE as i64 },
        Fault::Stall(Duration::from_millis(1)),
    ];
    for (fault, (way, is_batch)) in
        faults.into_iter().flat_map(|fault| WAYS.into_iter().zip([true, false]).map(move |way| (fault, way)))
    {
        let (mut failed, mut nth) = (0, 0);
        loop {
            let plan = FaultPlan::new(nth);
            let log = TestLog::new();
            let device = Faulty::new(Arc::new(MemoryDevice::new("store")), &plan);
            let (store, pages) = written(Arc::new(device), &log);
            let alone = runs(&store, &pages).iter().filter(|pages| **pages == 1).count();
            // What is begun in parts is in smaller requests.
            let alone = alone..=if is_batch { alone } else { 100 };
            plan.add(FaultRule { calls: Calls::Reads, device: None, when: When::Nth(nth), fault });
            let read = way(&*store, &pages);
            let (sound, harmed): (Vec<_>, Vec<_>) =
                pages.iter().zip(&read).partition(|(_, read)| read.is_ok());
            sound.iter().for_each(|(page, read)| expect(&store, **page, read));
            failed += harmed.len();
            if plan.fired() == 0 {
                match fault {
                    Fault::Fail(_) => {
                        assert!(alone.contains(&failed), "what was merged is repeated page by page")
                    }
                    // Every page is verified, and what was wrong once is read once more.
                    _ => assert_eq!(failed, 0, "{fault:?}"),
                }
                break;
            }
            pages.iter().for_each(|page| expect(&store, *page, &read_many(&*store, &[*page]).remove(0)));
            nth += 1;
        }
        assert!(nth > 1, "{nth} requests");
    }
}

#[test]
fn a_bad_block_in_a_merged_request_harms_one_page() {
    let log = TestLog::new();
    let inner: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let (store, pages) = written(inner.clone(), &log);
    store.sync().unwrap();
    let bad = store.geometry.place_offset(store.entry_of(pages[5]).unwrap().place().unwrap()) + 512;
    drop(store);
    let device = Hooked::over(inner, move |call| match call {
        Call::Read { offset, len } if (offset..offset + len as u64).contains(&bad) => {
            Err(DeviceError::new(DeviceErrorKind::Failed, "a bad block"))
        }
        _ => Ok(()),
    });
    let store = recover(device, &log.records(), log.end(), log.end()).unwrap();
    for (page, read) in WAYS.into_iter().flat_map(|way| pages.iter().zip(way(&store, &pages))) {
        if *page == pages[5] {
            assert_eq!(read.unwrap_err().kind, TierErrorKind::Unreadable);
        } else {
            expect(&store, *page, &read);
        }
    }
}

/// Between the first look at the map and the second all pages move, and some of their places are
/// written again.
#[test]
fn a_batch_overtaken_by_moves_is_repeated() {
    for way in WAYS {
        let (log, trap) = (TestLog::new(), Trap::default());
        let (store, pages) = written(trap.over_reads(Arc::new(MemoryDevice::new("store"))), &log);
        let first = store.entry_of(pages[0]).unwrap().place();
        trap.set(reusing((&store, &log), &pages, first));
        let read = way(&*store, &pages);
        assert!(!trap.is_set(), "the pages moved during the read");
        pages.iter().zip(&read).for_each(|(page, read)| expect(&store, *page, read));
    }
}

#[test]
fn a_batch_of_groups_that_are_cut_off_meanwhile_finds_no_page() {
    WAYS.into_iter().for_each(cut_off_meanwhile);
}

fn cut_off_meanwhile(way: Way) {
    let (log, trap) = (TestLog::new(), Trap::default());
    let device = trap.over_reads(Arc::new(MemoryDevice::new("store")));
    let store = Arc::new(create(device.clone(), &log));
    let pages = allocate(&store, &log, 500).unwrap();
    write(&store, &log, &pages[300..]);
    read_many(&*store, &pages[300..]);
    let large = device.len();
    let cut = {
        let (store, log, pages) = (store.clone(), log.clone(), pages.clone());
        move || {
            log.flush(log.end()).unwrap();
            publish(&store, &log, &[], &pages).unwrap();
            log.flush(log.end()).unwrap();
            while store.give_back_step().unwrap() == Progress::Worked {}
        }
    };
    trap.set(cut);
    let read = way(&*store, &pages[300..]);
    assert!(!trap.is_set() && device.len() < large, "groups were cut off");
    for read in read {
        // What was read of a page before it was freed may be returned, if it was right.
        match read {
            Ok(((version, _), _)) => assert!(version > Lsn::ZERO),
            Err(error) => assert_eq!(error.kind, TierErrorKind::NotAllocated),
        }
    }
    for read in read_many(&*store, &pages[300..]) {
        assert_eq!(read.unwrap_err().kind, TierErrorKind::NotAllocated);
    }
}

/// A store of which it is known how long a read alone takes: a millisecond of virtual time.
fn used(plan: &FaultPlan) -> (Arc<Store>, Vec<PageId>) {
    let log = TestLog::new();
    let device = Faulty::new(Arc::new(MemoryDevice::new("store")), plan);
    let (store, pages) = written(Arc::new(device), &log);
    stall(plan, When::From(0), Duration::from_millis(1));
    for page in pages.iter().chain(&pages) {
        expect(&store, *page, &read_as_they_come(&*store, &[*page]).remove(0));
    }
    plan.heal();
    (store, pages)
}

fn stall(plan: &FaultPlan, when: When, time: Duration) {
    plan.add(FaultRule { calls: Calls::Reads, device: None, when, fault: Fault::Stall(time) });
}

#[test]
fn a_late_read_is_made_twice_and_the_first_answer_counts() {
    let run = sim::run(SimOptions::measuring(1, 2), || {
        let plan = FaultPlan::new(1);
        let (store, pages) = used(&plan);
        let (before, begun) = (store.statistics().read_requests, clock::now());
        stall(&plan, When::Nth(0), Duration::from_secs(10));
        stall(&plan, When::From(0), Duration::from_millis(1));
        // Its map page is in memory.
        let last = pages[99];
        let read = read_as_they_come(&*store, &[last]).remove(0);
        expect(&store, last, &read);
        assert_eq!(store.statistics().read_requests - before, 2);
        begun.elapsed()
    });
    let took = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert!((2..6).contains(&took.as_millis()), "{took:?}: late after some reads' time, then read in one's");
}

/// Reads whose turn came long ago when their thread looks for them first: those that are complete
/// by then use up no credit, and the late one has its copy made at once.
#[test]
fn a_thread_that_was_away_pays_for_no_read_that_came() {
    let run = sim::run(SimOptions::measuring(1, 2), || {
        let plan = FaultPlan::new(1);
        let (store, pages) = used(&plan);
        let begin = |time| {
            plan.heal();
            stall(&plan, When::Nth(0), time);
            stall(&plan, When::From(0), Duration::from_millis(1));
            let (before, mut reads) = (store.statistics().read_requests, PageReads::default());
            store.begin_reads(&mut reads, &[(0, pages[99])]);
            clock::sleep(Duration::from_millis(20));
            let begun = clock::now();
            assert!(PageTier::next_reads(&*store, &mut reads));
            reads.came().for_each(|came| assert!(came.outcome.is_ok(), "{came:?}"));
            (store.statistics().read_requests - before, begun.elapsed())
        };
        // More than there is credit for.
        let came = [Duration::from_millis(10); 10].map(begin);
        (came, begin(Duration::from_secs(10)))
    });
    let (came, late) = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert_eq!(came, [(1, Duration::ZERO); 10]);
    assert!(late.0 == 2 && (1..2).contains(&late.1.as_millis()), "{late:?}");
}

/// A device that stalls whatever it is asked is not asked again and again.
#[test]
fn few_reads_are_made_twice_and_a_stall_harms_no_page() {
    let run = sim::run(SimOptions::measuring(2, 2), || {
        let plan = FaultPlan::new(2);
        let (store, pages) = used(&plan);
        let read = || {
            let before = store.statistics().read_requests;
            let read = read_as_they_come(&*store, &pages);
            pages.iter().zip(&read).for_each(|(page, read)| expect(&store, *page, read));
            store.statistics().read_requests - before
        };
        let wanted = read();
        stall(&plan, When::From(0), Duration::from_millis(100));
        (wanted, (0..10).map(|_| read()).collect::<Vec<_>>())
    });
    let (wanted, requests) = run.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert!(requests[0] > wanted, "some were late: {requests:?} for {wanted}");
    // In vain: it takes longer and longer until a read counts as late.
    let more: u64 = requests.iter().map(|requests| requests.saturating_sub(wanted + wanted / 2)).sum();
    assert!(more <= 2 * 8 && requests[9] <= wanted + wanted / 2, "{requests:?}, {wanted} were wanted");
}
