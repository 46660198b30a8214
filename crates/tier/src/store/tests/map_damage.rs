//! A damaged map or bitmap page costs what it holds: checkpoints, the map log, and all other pages
//! go on, and what changed of it since stays known.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::Store;
use crate::store::geometry::Slot;
use crate::store::meta_page::MetaId;
use crate::testing::Took;
use firndb_base::PageId;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{Device, DeviceError, DeviceErrorKind, Durability, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};
use std::ops::Range;

/// Flips a bit in both slots of a metadata page.
pub(super) fn damage(store: &Store, device: &dyn Device, id: MetaId) {
    for slot in [Slot::A, Slot::B] {
        let at = store.geometry.meta_offset(id, slot);
        let mut block = [0; 512];
        device.read(at, &mut block).unwrap();
        block[100] ^= 4;
        device.write(at, &block, Durability::Later).unwrap();
    }
}

/// Writes all of a store's map, and damages a map page, which is not in memory then. Damaging it
/// once more mends it.
pub(crate) fn sweep_and_damage(store: &Store, device: &dyn Device, map: u64) {
    sweep(store);
    store.state.lock().cache.forget([MetaId::Map(map)].into_iter());
    damage_map(store, device, map);
}

/// As [`damage`], of a map page.
pub(crate) fn damage_map(store: &Store, device: &dyn Device, map: u64) {
    damage(store, device, MetaId::Map(map));
}

/// Whether a page's entry is in a map page.
pub(crate) fn is_of_map(store: &Store, page: PageId, map: u64) -> bool {
    store.geometry.map_of_page(page) == MetaId::Map(map)
}

/// A store that was opened with moves in the map log, and the page damaged that `id` chooses.
pub(super) struct Opened {
    pub device: Arc<MemoryDevice>,
    pub log: Arc<TestLog>,
    pub store: Store,
    pub pages: Vec<PageId>,
    /// Of these the map log has moves.
    pub moved: Vec<PageId>,
}

/// A store with moves in the map log: its device, all of its pages, and those that moved, two of
/// each map page.
pub(super) fn prepared(log: &Arc<TestLog>) -> (Arc<MemoryDevice>, Store, Vec<PageId>, Vec<PageId>) {
    let device = Arc::new(MemoryDevice::new("store"));
    let store = create(device.clone(), log);
    let pages = allocate(&store, log, 150).unwrap();
    write(&store, log, &pages);
    sweep(&store);
    let moved: Vec<PageId> = pages.iter().copied().filter(|page| page.0 % 20 == 5).collect();
    write(&store, log, &moved);
    store.sync().unwrap();
    log.flush(log.end()).unwrap();
    (device, store, pages, moved)
}

/// Opens it over a device.
pub(super) fn open(device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let store = recover(device, &log.records(), log.end(), log.end()).unwrap();
    store.attach_journal(log.clone());
    store
}

pub(super) fn opened(id: MetaId) -> Opened {
    let log = TestLog::new();
    let (device, store, pages, moved) = prepared(&log);
    damage(&store, &*device, id);
    drop(store);
    Opened { store: open(device.clone(), &log), device, log, pages, moved }
}

/// The bytes of a metadata page's slots.
pub(super) fn slots_of(store: &Store, id: MetaId) -> Range<u64> {
    let at = store.geometry.meta_offset(id, Slot::A).min(store.geometry.meta_offset(id, Slot::B));
    at..at + 2 * store.geometry.meta_bytes as u64
}

/// A device that fails reads of these bytes while it is told to.
pub(super) fn failing(
    inner: &Arc<MemoryDevice>,
    bytes: Range<u64>,
    fails: &Arc<AtomicBool>,
) -> Arc<dyn Device> {
    let fails = fails.clone();
    Hooked::over(inner.clone(), move |call| match call {
        Call::Read { offset, len } if fails.load(Relaxed) && meets(&bytes, offset, len) => Err(unreadable()),
        _ => Ok(()),
    })
}

pub(super) fn meets(bytes: &Range<u64>, offset: u64, len: usize) -> bool {
    offset < bytes.end && bytes.start < offset + len as u64
}

pub(super) fn unreadable() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, "unreadable on purpose")
}

impl Opened {
    pub fn is_of(&self, id: MetaId) -> impl Fn(&PageId) -> bool + use<> {
        let geometry = self.store.geometry;
        move |page| geometry.map_of_page(*page) == id
    }

    /// Writes and checkpoints far beyond what the map log holds, reopening now and then.
    pub fn work(&mut self, on: &[PageId], rounds: usize) {
        for round in 0..rounds {
            for chunk in on.chunks(6) {
                for (_, outcome) in write(&self.store, &self.log, chunk) {
                    assert_eq!(outcome, Ok(Took::Taken));
                }
            }
            self.store.sync().unwrap_or_else(|error| panic!("checkpoint {round}: {error}"));
            assert_eq!(self.store.oldest_needed_lsn().filter(|_| round == 0), None);
            if round % 7 == 6 {
                self.log.flush(self.log.end()).unwrap();
                let contained = self.store.metadata_version();
                self.store = recover_after(
                    self.device.clone(),
                    &self.log.records(),
                    contained,
                    self.log.end(),
                    self.log.end(),
                )
                .unwrap();
                self.store.attach_journal(self.log.clone());
            }
        }
    }

    /// Every page of `which` has its newest version.
    pub fn assert_newest(&self, which: &[PageId]) {
        let newest = fold(&self.log.records(), self.log.end());
        for page in which {
            let (version, bytes) = read(&self.store, *page).unwrap();
            assert_eq!(version, newest[page].0, "{page}");
            assert!(bytes == image(*page, version), "{page}");
        }
    }
}

/// Cause: what a damaged map page lacked was in the map log only, which could not be dropped.
/// Effect: when the map log was full, checkpoints failed, and the log filled up.
#[test]
fn checkpoints_go_on_past_a_damaged_map_page_that_has_changed() {
    let id = MetaId::Map(1);
    let mut opened = opened(id);
    let is_of = opened.is_of(id);
    let (there, others): (Vec<PageId>, Vec<PageId>) = opened.pages.iter().partition(|page| is_of(page));
    opened.work(&others, 60);
    opened.assert_newest(&others);
    // Entries that changed since are known, the others are not.
    let (known, lost): (Vec<PageId>, Vec<PageId>) =
        there.iter().partition(|page| opened.moved.contains(page));
    assert!(known.len() == 2 && lost.len() > 30);
    opened.assert_newest(&known);
    for page in &lost {
        let error = read(&opened.store, *page).unwrap_err();
        assert_eq!(error.kind, TierErrorKind::Damaged);
        assert!(error.message.contains("map page 1 is damaged in both"), "{error}");
    }
    // A known page can be written, and its new place is known after the next opening.
    opened.work(&known, 60);
    opened.assert_newest(&known);
    opened.assert_newest(&others);
    let report = opened.store.check(true, &mut |_| {}).unwrap();
    assert!(report.damage[0].contains("map page 1 is damaged in both"), "{:?}", report.damage);
}

/// A slot that can be mended by the device, or put back from a copy, has everything again.
#[test]
fn a_map_page_that_can_be_read_again_gets_what_it_lacks() {
    let id = MetaId::Map(1);
    let mut opened = opened(id);
    let known: Vec<PageId> = opened.moved.clone();
    opened.work(&known, 40);
    damage(&opened.store, &*opened.device, id);
    opened.work(&known, 20);
    let newest = fold(&opened.log.records(), opened.log.end());
    sweep(&opened.store);
    compare(&opened.store, &newest);
}

/// Cause: the place that a page leaves must be cleared in its bitmap page. Effect: one that could
/// not be read failed the whole batch, and dirty pages with images in its group stayed dirty.
#[test]
fn pages_are_written_although_the_bitmap_page_of_their_old_place_is_damaged() {
    let id = MetaId::Bitmap(0);
    let mut opened = opened(id);
    let all = opened.pages.clone();
    opened.work(&all, 60);
    opened.assert_newest(&all);
    let report = opened.store.check(true, &mut |_| {}).unwrap();
    assert!(!report.damage.is_empty());
    let others = |sentence: &&String| !sentence.contains("bitmap page of group 0 is damaged in both");
    assert_eq!(report.damage.iter().find(others), None);
    // Nothing was forgotten: put right, it agrees with the maps.
    damage(&opened.store, &*opened.device, id);
    opened.work(&all, 8);
    let newest = fold(&opened.log.records(), opened.log.end());
    sweep(&opened.store);
    compare(&opened.store, &newest);
}

/// Cause: another thread read a bitmap page after the round had found it unreadable, and what it
/// lacked was then carried on as nothing. Effect: places in use counted as free after an opening.
#[test]
fn a_bitmap_page_that_another_thread_could_read_is_written_by_the_round() {
    let (bits, map) = (MetaId::Bitmap(0), MetaId::Map(1));
    let log = TestLog::new();
    let (device, store, ..) = prepared(&log);
    let (bits_at, map_at) = (slots_of(&store, bits), slots_of(&store, map));
    drop(store);
    let reader: Arc<Mutex<Option<Arc<Store>>>> = Arc::default();
    let (shared, was_read) = (reader.clone(), Arc::new(AtomicBool::new(false)));
    let read = was_read.clone();
    let hooked = Hooked::over(device.clone(), move |call| {
        let Call::Read { offset, len } = call else { return Ok(()) };
        let Some(store) = shared.lock().clone() else { return Ok(()) };
        // The round reads one page at a time by now, and has given the bitmap page up.
        if meets(&map_at, offset, len) && !store.state.lock().cache.loading.contains(&bits) {
            *shared.lock() = None;
            drop(store.pin(&[bits]).expect("it can be read again"));
            read.store(true, Relaxed);
            return Err(unreadable());
        }
        if meets(&map_at, offset, len) || meets(&bits_at, offset, len) { Err(unreadable()) } else { Ok(()) }
    });
    let store = Arc::new(open(hooked, &log));
    *reader.lock() = Some(store.clone());
    // The second circle drops what the first one carried past.
    for _ in 0..2 {
        store.sweep_all(&mut store.write_back.lock()).unwrap();
    }
    assert!(was_read.load(Relaxed));
    let newest = fold(&log.records(), log.end());
    compare(&open(copy(&*device), &log), &newest);
}

/// Cause: only damage was passed over where free space is looked for. Effect: a bitmap page that
/// could not be read failed all writes, since its group seemed to have the most space.
#[test]
fn pages_are_written_although_a_bitmap_page_cannot_be_read() {
    let log = TestLog::new();
    let (device, store, pages, moved) = prepared(&log);
    let fails = Arc::new(AtomicBool::new(true));
    let bad = failing(&device, slots_of(&store, MetaId::Bitmap(0)), &fails);
    drop(store);
    let mut opened = Opened { store: open(bad, &log), device, log, pages, moved };
    let all = opened.pages.clone();
    opened.work(&all, 6);
    opened.assert_newest(&all);
    fails.store(false, Relaxed);
    opened.work(&all, 6);
    compare(&opened.store, &fold(&opened.log.records(), opened.log.end()));
}

/// What a crash leaves while a page is being written: its slot is torn. With the page's slots, all
/// pages, and those that moved.
fn torn(log: &Arc<TestLog>, id: MetaId) -> (Arc<MemoryDevice>, Range<u64>, Vec<PageId>, Vec<PageId>) {
    let (device, store, pages, moved) = prepared(log);
    let slots = slots_of(&store, id);
    drop(store);
    let image: Arc<Mutex<Option<Arc<MemoryDevice>>>> = Arc::default();
    let (inner, taken, at) = (device.clone(), image.clone(), slots.clone());
    let hooked = Hooked::over(device, move |call| {
        if let Call::Write { offset, data, .. } = call
            && meets(&at, offset, data.len())
            && taken.lock().is_none()
        {
            let torn = copy(&*inner);
            let from = offset.max(at.start);
            torn.write(from, &vec![0xA5; 512], Durability::Later).unwrap();
            *taken.lock() = Some(torn);
        }
        Ok(())
    });
    let store = open(hooked, log);
    sweep(&store);
    let device = image.lock().take().expect("the page was written");
    (device, slots, pages, moved)
}

/// Cause: what a crash may have torn was to be read before anything else was written. Effect: one
/// such page that could not be read stopped checkpoints once the map log was full.
#[test]
fn checkpoints_go_on_past_a_page_that_may_be_torn_and_cannot_be_read() {
    let id = MetaId::Map(1);
    let log = TestLog::new();
    let (device, slots, pages, moved) = torn(&log, id);
    let fails = Arc::new(AtomicBool::new(true));
    let store = open(failing(&device, slots, &fails), &log);
    let mut opened = Opened { store, device, log, pages, moved };
    let is_of = opened.is_of(id);
    let others: Vec<PageId> = opened.pages.iter().copied().filter(|page| !is_of(page)).collect();
    opened.work(&others, 6);
    opened.assert_newest(&others);
    fails.store(false, Relaxed);
    // It is still known that the slot may be torn.
    opened.work(&others, 20);
    compare(&opened.store, &fold(&opened.log.records(), opened.log.end()));
}

/// Cause: a page that a crash had torn was named no more once a read of it seemed damaged. Effect:
/// one read that was spoilt on its way made it damaged for good.
#[test]
fn a_read_that_is_spoilt_once_does_not_damage_a_page_that_a_crash_tore() {
    let id = MetaId::Map(1);
    let log = TestLog::new();
    let (device, slots, ..) = torn(&log, id);
    let (spoils, kept) = (Arc::new(AtomicBool::new(false)), Mutex::new(None));
    let (now, inner) = (spoils.clone(), device.clone());
    let hooked = Hooked::over(device.clone(), move |call| {
        if let Some(bytes) = kept.lock().take() {
            let bytes: Vec<u8> = bytes;
            inner.write(slots.start, &bytes, Durability::Later).unwrap();
        }
        if let Call::Read { offset, len } = call
            && meets(&slots, offset, len)
            && now.swap(false, Relaxed)
        {
            let mut bytes = vec![0; (slots.end - slots.start) as usize];
            inner.read(slots.start, &mut bytes).unwrap();
            inner.write(slots.start, &vec![0xA5; bytes.len()], Durability::Later).unwrap();
            *kept.lock() = Some(bytes);
        }
        Ok(())
    });
    let store = open(hooked, &log);
    spoils.store(true, Relaxed);
    // The second circle writes what the first one carried past.
    for _ in 0..2 {
        store.sweep_all(&mut store.write_back.lock()).unwrap();
    }
    assert!(!spoils.load(Relaxed), "a read was spoilt");
    let newest = fold(&log.records(), log.end());
    compare(&store, &newest);
    compare(&open(copy(&*device), &log), &newest);
}

/// Cause: a torn totals page was read again before it was written, and if that failed it was among
/// the pages that the totals page names. Effect: a panic.
#[test]
fn totals_that_a_crash_tore_are_written_again_without_reading_them() {
    let id = MetaId::Totals;
    let log = TestLog::new();
    let (device, slots, ..) = torn(&log, id);
    let fails = Arc::new(AtomicBool::new(false));
    let store = open(failing(&device, slots, &fails), &log);
    fails.store(true, Relaxed);
    sweep(&store);
    fails.store(false, Relaxed);
    let newest = fold(&log.records(), log.end());
    compare(&store, &newest);
    compare(&open(copy(&*device), &log), &newest);
}
