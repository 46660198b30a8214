//! Redo on demand as the buffer sees it: no thread sees a page before its redo, one that cannot be
//! redone is in no frame, and a checkpoint that reads the pending changes and then the buffer
//! misses no change.

use crate::common::{World, count_up, counter_of};
use firndb_base::sync::before_device;
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferError, BufferErrorKind, ExclusiveGuard, PageUse, PendingChanges, Repeated};
use firndb_tier::Found;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pending changes: LSNs at which a page's counter goes up.
#[derive(Default)]
struct Counting {
    waiting: Mutex<BTreeMap<PageId, Vec<Lsn>>>,
    /// Pages whose changes have to be read from the log first.
    in_log: Mutex<BTreeSet<PageId>>,
    fails: AtomicBool,
    makes_anew: AtomicBool,
    shown: AtomicU64,
}

impl Counting {
    fn oldest(&self) -> Option<Lsn> {
        self.waiting.lock().unwrap().values().filter_map(|lsns| lsns.first()).min().copied()
    }
}

impl PendingChanges for Counting {
    fn redo(&self, page: &mut ExclusiveGuard<'_>, found: Found) -> Result<Repeated, BufferError> {
        self.shown.fetch_add(1, SeqCst);
        let id = page.page();
        assert_eq!(page.version(), found.version);
        if self.in_log.lock().unwrap().contains(&id) {
            return Ok(Repeated::NotInMemory);
        }
        let lsns = self.waiting.lock().unwrap().get(&id).cloned().unwrap_or_default();
        for (done, lsn) in lsns.into_iter().enumerate() {
            if self.fails.load(SeqCst) && done == 1 {
                return Err(BufferError::new(BufferErrorKind::Damaged, format!("{id:?} cannot be redone")));
            }
            std::thread::sleep(Duration::from_micros(200));
            page.redo(lsn, |bytes| count_up(id, bytes));
        }
        self.waiting.lock().unwrap().remove(&id);
        Ok(Repeated::All)
    }

    fn fetch(&self, page: PageId) -> Result<(), BufferError> {
        // As the log does before it is read.
        before_device();
        if self.fails.load(SeqCst) {
            return Err(BufferError::new(BufferErrorKind::Unreadable, "the log cannot be read"));
        }
        self.in_log.lock().unwrap().remove(&page);
        Ok(())
    }

    fn freed(&self, page: PageId) {
        self.waiting.lock().unwrap().remove(&page);
    }

    fn makes_anew(&self, _: PageId) -> bool {
        self.makes_anew.load(SeqCst)
    }
}

/// A world in which each page has three changes pending, and a log that has them.
fn pending(frames: usize, pages: usize) -> (World, Arc<Counting>) {
    let world = World::new(frames, pages);
    let changes = Arc::new(Counting::default());
    for _ in 0..3 {
        for page in &world.pages {
            changes.waiting.lock().unwrap().entry(*page).or_default().push(world.append());
        }
    }
    world.log.flush(world.log.end()).expect("a memory log");
    world.pool.redo_with(changes.clone());
    (world, changes)
}

#[test]
fn every_reader_of_a_page_sees_it_redone() {
    let (world, changes) = pending(16, 40);
    world.tier.delay_us.store(100, SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..80 {
                    let page = world.pages[(turn * 7 + thread / 2) % world.pages.len()];
                    if turn % 5 == 0 {
                        world.pool.bring_in(&[page], PageUse::Working);
                    }
                    let guard = world.pool.exclusive(page).expect("fixed");
                    assert_eq!(counter_of(page, &guard), 3);
                }
            });
        }
    });
    assert_eq!(changes.oldest(), None);
    // Evicted and read again they have all changes; after the end of redo `changes` is not called.
    let shown = changes.shown.load(SeqCst);
    world.pool.end_redo();
    world.pages.iter().for_each(|page| assert_eq!(world.counter(*page), 3));
    assert_eq!(changes.shown.load(SeqCst), shown);
    assert_eq!(world.tier.wal_violations.load(SeqCst), 0);
    assert_eq!(world.pool.statistics().frames, world.pool.statistics().resident, "more pages than frames");
}

#[test]
fn a_page_that_cannot_be_redone_is_in_no_frame_and_stays_pending() {
    let (world, changes) = pending(16, 10);
    changes.fails.store(true, SeqCst);
    let oldest = changes.oldest();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let error = world.pool.shared(world.pages[4]).err().expect("it cannot be redone");
                assert_eq!(error.kind, BufferErrorKind::Damaged);
            });
        }
    });
    assert_eq!(world.pool.bring_in(&world.pages, PageUse::Working).unwrap_or(0), 0);
    let statistics = world.pool.statistics();
    assert_eq!((statistics.resident, statistics.dirty), (0, 0), "half redone is not redone");
    assert_eq!((changes.oldest(), world.pool.oldest_recovery_lsn()), (oldest, None));
    world.pool.write_older_than(world.log.end()).expect("nothing to write");
    assert_eq!(world.tier.dirty_writes.load(SeqCst), 0);

    changes.fails.store(false, SeqCst);
    world.pages.iter().for_each(|page| assert_eq!(world.counter(*page), 3));
}

/// What a checkpoint computes, while pages are redone and written.
#[test]
fn the_oldest_change_is_seen_pending_or_dirty_or_it_is_in_the_tier() {
    let (world, changes) = pending(64, 60);
    let first: BTreeMap<PageId, Lsn> =
        changes.waiting.lock().unwrap().iter().map(|(page, lsns)| (*page, lsns[0])).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for page in &world.pages {
                drop(world.pool.shared(*page).expect("fixed"));
            }
            over.store(true, SeqCst);
        });
        scope.spawn(|| {
            while !over.load(SeqCst) {
                world.pool.write_older_than(world.log.end()).expect("written");
            }
        });
        while !over.load(SeqCst) {
            let pending = changes.oldest();
            let dirty = world.pool.oldest_recovery_lsn();
            let needed = pending.into_iter().chain(dirty).min().unwrap_or(world.log.end());
            for (page, lsn) in first.iter().filter(|(_, lsn)| **lsn < needed) {
                assert_eq!(
                    counter_of(*page, &world.tier.page(*page)),
                    3,
                    "{page:?} of {lsn}, needed {needed}"
                );
            }
        }
    });
}

/// It was once a byte past the last change where a page was written while another thread held it: a
/// redo start at which no record begins.
#[test]
fn a_redone_page_that_is_written_while_it_is_held_needs_the_log_from_where_a_record_begins() {
    let (world, changes) = pending(16, 1);
    let page = world.pages[0];
    let lsns = changes.waiting.lock().unwrap()[&page].clone();
    drop(world.pool.shared(page).expect("fixed"));
    assert_eq!(world.pool.oldest_recovery_lsn(), Some(lsns[0]));
    world.tier.delay_us.store(50_000, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| world.pool.write_older_than(world.log.end()).expect("written"));
        // Between the copy of the image and the end of its write.
        while world.pool.statistics().batches_written == 0 && world.tier.dirty_writes.load(SeqCst) == 0 {
            let guard = world.pool.exclusive(page).expect("fixed");
            std::thread::sleep(Duration::from_millis(60));
            drop(guard);
        }
    });
    let end = world.log.end();
    let oldest = world.pool.oldest_recovery_lsn();
    assert!(oldest.is_none_or(|lsn| lsn == end || lsns.contains(&lsn)), "{oldest:?}, {lsns:?}, {end}");
}

#[test]
fn a_page_that_redo_makes_anew_needs_no_stored_image() {
    let (world, changes) = pending(16, 4);
    world.tier.damaged.store(true, SeqCst);
    let page = world.pages[1];
    assert_eq!(world.pool.shared(page).err().expect("damaged").kind, BufferErrorKind::Damaged);
    changes.makes_anew.store(true, SeqCst);
    let guard = world.pool.shared(page).expect("made anew");
    assert_eq!(counter_of(page, &guard), 3);
    drop(guard);
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(counter_of(page, &world.tier.page(page)), 3, "it replaced the damaged image");
}

#[test]
fn what_takes_the_place_of_a_damaged_page_is_written_as_its_newest_version() {
    let (world, changes) = pending(16, 4);
    let last = |page: &PageId| *changes.waiting.lock().unwrap()[page].last().expect("pending");
    let (page, version) = (world.pages[2], last(&world.pages[2]));
    let mark = |bytes: &mut [u8]| {
        bytes.fill(7);
        firndb_buffer::Changed::Most
    };
    world.tier.damaged.store(true, SeqCst);
    assert!(world.pool.replace_unreadable(page, version, false, mark).expect("replaced"));
    assert!(!world.pool.replace_unreadable(page, version, false, mark).expect("asked"), "it is in DRAM");
    world.tier.damaged.store(false, SeqCst);
    let guard = world.pool.shared(page).expect("in DRAM");
    assert_eq!((guard.version(), guard[100]), (version, 7));
    drop(guard);
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(world.tier.page(page)[100], 7);
    // A page that can be read in that version is left alone.
    let whole = world.pages[3];
    let stored = world.pool.tier().version_of(whole).expect("known").expect("allocated");
    assert!(!world.pool.replace_unreadable(whole, stored, false, mark).expect("asked"));
    assert_eq!(world.tier.page(whole)[100], 0);
}

#[test]
fn a_page_whose_changes_are_in_the_log_only_comes_once_they_were_read() {
    let (world, changes) = pending(16, 6);
    changes.in_log.lock().unwrap().extend(&world.pages);
    changes.fails.store(true, SeqCst);
    let error = world.pool.shared(world.pages[1]).err().expect("the log cannot be read");
    assert_eq!(error.kind, BufferErrorKind::Unreadable);
    let came = world.pool.bring_in(&world.pages, PageUse::Working).unwrap_or(0);
    assert_eq!(came, 0, "the log is not read for a hint");
    assert_eq!(world.pool.statistics().resident, 0, "no reader gets the page without its changes");
    changes.fails.store(false, SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| world.pages.iter().for_each(|page| assert_eq!(world.counter(*page), 3)));
        }
    });
    assert_eq!(changes.oldest(), None);
}

#[test]
fn of_a_freed_page_nothing_is_pending() {
    let (world, changes) = pending(16, 3);
    world.pool.note_freed(&world.pages[..2]);
    assert_eq!(changes.waiting.lock().unwrap().keys().copied().collect::<Vec<_>>(), [world.pages[2]]);
}

/// Redo of a record that writes the page whole.
#[test]
fn a_damaged_image_is_overwritten_if_it_is_older() {
    let world = World::new(16, 2);
    let [page, newer] = world.pages[..] else { panic!("two pages") };
    let lsn = world.append();
    world.count_up(newer);
    world.pool.write_older_than(world.log.end()).expect("written");
    world.pool.exclusive(newer).expect("resident").discard();
    world.tier.damaged.store(true, SeqCst);
    assert_eq!(world.pool.exclusive(page).err().expect("damaged").kind, BufferErrorKind::Damaged);
    let mut guard = world.pool.exclusive_to_overwrite(page, lsn).expect("it is not needed");
    assert_eq!((guard.version(), guard[8]), (Lsn::ZERO, 0));
    assert!(guard.redo(lsn, |bytes| count_up(page, bytes)));
    drop(guard);
    let error = world.pool.exclusive_to_overwrite(newer, lsn).err().expect("that would take it back");
    assert_eq!(error.kind, BufferErrorKind::Damaged);
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(counter_of(page, &world.tier.page(page)), 1);
}
