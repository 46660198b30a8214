use super::*;
use crate::engine::page_changes::PAGE_OVERHEAD;
use crate::engine::pending_collector::Collector;
use firndb_base::codec::Reader;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::AtomicBool;
use firndb_btree::PageChange;
use firndb_buffer::PendingChanges;
use firndb_log::LogClass;
use firndb_log::{Kind, Record};
use firndb_tier::Cached;
use firndb_tier::store::PageEvent;
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageRead, TierError, TierErrorKind};

const REMOVE: u8 = 0x23;
const DROP: u8 = 0x2b;

/// Hands the collector a change of `page` at `lsn`, with an attachment of that many bytes.
fn change(collector: &mut Collector, lsn: u64, kind: u8, page: u8, attachment: u8) {
    change_beside(collector, lsn, kind, (page, attachment), &|_| Cached::No);
}

/// As [`change`], beside a cache.
fn change_beside(
    collector: &mut Collector,
    lsn: u64,
    kind: u8,
    (page, attachment): (u8, u8),
    cached: &dyn Fn(PageId) -> Cached,
) {
    let mut body = vec![page, 1, attachment];
    body.resize(body.len() + usize::from(attachment), 0xaa);
    if kind == REMOVE {
        body.push(7);
    }
    let decoded = PageChange::decode(Record { kind: Kind(kind), body: &body }).expect("well-formed");
    collector.change(Lsn(lsn), Kind(kind), &decoded, cached);
}

fn lsns(pending: &Pending, page: u64) -> Vec<u64> {
    let waiting = pending.waiting.lock();
    let Some(changes) = waiting.pages.get(&PageId(page)) else { return Vec::new() };
    let mut reader = Reader::new(&changes.bytes);
    std::iter::from_fn(|| PageChanges::next(&mut reader)).map(|(lsn, _)| lsn.0).collect()
}

#[test]
fn what_the_tiers_have_by_the_log_is_dropped() {
    let mut collector = Collector::new(1 << 20);
    for lsn in 100..110 {
        (1..=5).for_each(|page| change(&mut collector, lsn * 10 + u64::from(page), REMOVE, page, 3));
    }
    let store = |_| Cached::No;
    collector.event(PageEvent::Stored { page: PageId(1), version: Lsn(1051) }, &store);
    collector.event(PageEvent::Stored { page: PageId(2), version: Lsn(1092) }, &store);
    collector.event(PageEvent::Incarnation(PageId(3)), &store);
    change(&mut collector, 1100, DROP, 4, 0);
    collector.event(PageEvent::Stored { page: PageId(77), version: Lsn(5) }, &store);
    let known = |page| if page == PageId(5) { Cached::As(Lsn(1085)) } else { Cached::No };
    let (pending, given_up) = collector.finish(&known, 1);
    assert_eq!(lsns(&pending, 1), [1061, 1071, 1081, 1091]);
    assert_eq!(lsns(&pending, 2), [], "its last change is stored");
    assert_eq!(lsns(&pending, 3), [], "another incarnation of it");
    assert_eq!(lsns(&pending, 4), [], "freed");
    assert_eq!(lsns(&pending, 5), [1095]);
    assert_eq!((pending.left(), pending.oldest()), (2, Some(Lsn(1061))));
    assert!(given_up.is_empty());
}

/// The store took a version that by-passed a cache being detached; a crash has brought the
/// older image back.
#[test]
fn what_the_store_has_counts_for_nothing_while_the_cache_has_the_page() {
    let mut collector = Collector::new(1 << 20);
    for lsn in 100..110 {
        (1..=3).for_each(|page| change(&mut collector, lsn * 10 + u64::from(page), REMOVE, page, 0));
    }
    let cached = |page: PageId| match page.0 {
        1 => Cached::Somehow,
        2 => Cached::As(Lsn(1032)),
        _ => Cached::No,
    };
    (1..=3).for_each(|page| {
        collector.event(PageEvent::Stored { page: PageId(page), version: Lsn(1095) }, &cached)
    });
    let (pending, _) = collector.finish(&cached, 1);
    assert_eq!(lsns(&pending, 1).len(), 10);
    assert_eq!(lsns(&pending, 2), [1042, 1052, 1062, 1072, 1082, 1092]);
    assert_eq!(lsns(&pending, 3), []);
}

#[test]
fn changes_are_kept_without_what_undo_needs() {
    let mut collector = Collector::new(1 << 20);
    change(&mut collector, 10, REMOVE, 9, 100);
    assert_eq!(collector.bytes, PAGE_OVERHEAD + 8 + 1 + 1 + 4);
    collector.event(PageEvent::Incarnation(PageId(9)), &|_| Cached::No);
    assert_eq!(collector.bytes, 0);
}

#[test]
fn over_the_budget_the_pages_with_the_most_changes_are_given_up() {
    let mut collector = Collector::new(3000);
    let mut lsn = 0;
    let mut next = || {
        lsn += 1;
        lsn
    };
    for _ in 0..60 {
        change(&mut collector, next(), REMOVE, 1, 0);
        change(&mut collector, next(), REMOVE, 2, 0);
    }
    (3..=10).for_each(|page| change(&mut collector, next(), REMOVE, page, 0));
    assert!(collector.bytes <= 3000);
    assert!(!collector.given_up.is_empty());
    change(&mut collector, next(), REMOVE, 1, 0);
    change(&mut collector, next(), REMOVE, 2, 0);
    let (pending, given_up) = collector.finish(&|_| Cached::No, 0);
    assert!(given_up.iter().all(|page| page.0 <= 2), "{given_up:?}");
    (3..=10).for_each(|page| assert_eq!(lsns(&pending, page).len(), 1));
    for page in given_up {
        assert_eq!(lsns(&pending, page.0), [], "given up is given up");
    }
}

/// Cause: what the cache has was dropped at the log's end only. Effect: with a large enough log
/// pages were given up, and redone before the opening returned, although flash had their last
/// versions.
#[test]
fn what_the_cache_has_counts_nothing_against_the_budget() {
    let mut collector = Collector::new(3000);
    let cached = |page: PageId| match page.0 {
        1 | 2 => Cached::As(Lsn(1000)),
        3 => Cached::As(Lsn(40)),
        _ => Cached::No,
    };
    for lsn in 1..=300 {
        change_beside(&mut collector, lsn, REMOVE, (1 + (lsn % 2) as u8, 0), &cached);
        if lsn % 30 == 0 {
            change_beside(&mut collector, lsn + 1, REMOVE, (3 + (lsn % 60 == 0) as u8, 0), &cached);
        }
        assert!(collector.bytes <= 3000);
    }
    let (pending, given_up) = collector.finish(&cached, 3);
    assert!(given_up.is_empty(), "{given_up:?}");
    assert_eq!((lsns(&pending, 1), lsns(&pending, 2)), (vec![], vec![]));
    assert_eq!(lsns(&pending, 3), [91, 151, 211, 271], "31 is in the cache");
    assert_eq!(lsns(&pending, 4), [61, 121, 181, 241, 301]);
}

fn collected(pages: std::ops::RangeInclusive<u8>) -> Pending {
    let mut collector = Collector::new(1 << 20);
    pages.for_each(|page| change(&mut collector, 100 + u64::from(page), REMOVE, page, 0));
    collector.finish(&|_| Cached::No, 0).0
}

/// Cause: whether all pending pages are set aside was computed from two counters that changed
/// one after the other. Effect: recovery was taken for complete, and the database closed as if
/// cleanly, while a page was still to be redone.
#[test]
fn recovery_is_not_at_rest_while_a_page_is_to_be_redone() {
    let pending = collected(1..=1);
    let error = BufferError::new(BufferErrorKind::Damaged, "of a test");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200_000 {
                let failed = Unredone { page: PageId(2), last: Lsn(200), error: error.clone() };
                pending.add_failed(Lsn(50), vec![failed]);
                pending.is_obsolete(PageId(2));
            }
            ended.store(true, Relaxed);
        });
        while !ended.load(Relaxed) {
            assert!(!pending.is_at_rest(), "page 1 is pending and not set aside");
            assert!(!pending.is_empty() && pending.first_left().is_some());
        }
    });
    pending.freed(PageId(1));
    assert!(pending.is_at_rest() && pending.is_empty() && pending.first_left().is_none());
}

/// A tier with one damaged page, and another one that cannot be read for a reason that is not
/// its own.
struct Failing {
    inner: MemoryTier,
    damaged: PageId,
    refused: PageId,
}

impl PageTier for Failing {
    firndb_tier::forward_tier!(inner: page_size, write_batch, make_batch_space, reserve, unreserve, prepare);
    firndb_tier::forward_tier!(inner: publish, sync, version_of, oldest_needed_lsn, statistics, whereabouts);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.inner.read_batch(reads);
        for read in reads {
            if read.page == self.damaged {
                read.outcome = Err(TierError::new(TierErrorKind::Damaged, "damaged"));
            } else if read.page == self.refused {
                read.outcome = Err(TierError::new(TierErrorKind::Failed, "the store failed"));
            }
        }
    }
}

/// Cause: a step that failed at one page dropped its list of those that it had set aside.
/// Effect: they were passed over from then on, and never reported.
#[test]
fn what_a_step_sets_aside_is_returned_although_it_fails_at_another_page() {
    let log = firndb_log::testing::memory_log_with(1 << 20);
    let tier = Failing { inner: MemoryTier::new(512), damaged: PageId(1), refused: PageId(2) };
    for expected in 1..=2 {
        let page = tier.reserve(LogClass::Normal).expect("a memory tier is never full");
        assert_eq!(page, PageId(expected));
        let change = Allocation { allocate: &[page], free: &[] };
        tier.publish(change, &mut |record| log.append(LogClass::Normal, record)).expect("there is space");
    }
    let options = firndb_buffer::PoolOptions { budget_bytes: 64 << 10 };
    let pool = BufferPool::new(Arc::new(tier), log, options).expect("a large budget");
    let pending = collected(1..=2);
    let (set_aside, outcome) = pending.step(&pool);
    assert_eq!(set_aside.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [PageId(1)]);
    assert_eq!(outcome.expect_err("page 2 cannot be read").kind(), crate::error::ErrorKind::Failed);
    assert_eq!((pending.left(), pending.is_at_rest()), (2, false), "page 2 is tried again");
    assert_eq!(pending.set_aside(), set_aside);
}

#[test]
fn a_page_that_is_freed_is_pending_no_more() {
    let pending = collected(1..=3);
    let failed = Unredone {
        page: PageId(9),
        last: Lsn(200),
        error: BufferError::new(BufferErrorKind::Damaged, "of a test"),
    };
    pending.add_failed(Lsn(50), vec![failed]);
    assert_eq!((pending.left(), pending.oldest()), (4, Some(Lsn(50))));
    [9, 1, 77].into_iter().for_each(|page| pending.freed(PageId(page)));
    assert_eq!((pending.left(), pending.oldest()), (2, Some(Lsn(102))));
    assert!(pending.set_aside().is_empty() && !pending.is_at_rest());
}
