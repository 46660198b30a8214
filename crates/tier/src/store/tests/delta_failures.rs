//! Deltas on devices that fail.

use super::delta_model::read_found;
use super::harness::*;
use super::map_damage::sweep_and_damage;
use crate::error::TierErrorKind;
use crate::page_tier::{PageTier, PageWrite};
use crate::store::bitmap::{self, Which};
use crate::store::geometry::Slot;
use crate::store::{DeltaPolicy, Journal, Policy, Store};
use crate::{Changes, TierError};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};

const AT_ONCE: Policy = Policy {
    deltas: DeltaPolicy { enabled: true, pages_percent: 50, read_cost_percent: 0, ..DeltaPolicy::OFF },
    ..POLICY
};
const WAITING: Policy = Policy {
    deltas: DeltaPolicy { enabled: true, buffer_bytes: 1 << 20, pages_percent: 50, read_cost_percent: 0 },
    ..POLICY
};

/// Changes the eight bytes at `at` of a page, and writes it; returns the version and its bytes.
pub(super) fn change(store: &Store, log: &TestLog, page: PageId, at: usize) -> (Lsn, Vec<u8>) {
    let (found, mut image) = read_found(store, page).unwrap();
    let version = log.tick();
    log.flush(log.end()).unwrap();
    image[at..at + 8].copy_from_slice(&version.0.to_le_bytes());
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    data.copy_from_slice(&image);
    let changes = found.changes | Changes::of(at..at + 8, PAGE_SIZE);
    let write = PageWrite::back(page, version, version, &data).changed_since(found.base, changes);
    let mut writes = [write];
    store.write_batch(&mut writes);
    assert!(writes[0].is_taken(), "{:?}", writes[0].outcome);
    (version, image)
}

fn read_whole(store: &Store, page: PageId) -> Result<(Lsn, Vec<u8>), TierError> {
    read_found(store, page).map(|(found, image)| (found.version, image))
}

/// Of a delta page that cannot be read whole it is not known whether entries name what cannot.
#[test]
fn a_delta_page_with_a_slot_that_is_damaged_stays() {
    let (device, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
    let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, AT_ONCE).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 12).unwrap();
    write(&store, &log, &pages);
    change(&store, &log, pages[0], 40);
    let place = store.entry_of(pages[0]).unwrap().slot().expect("a delta").place;
    store.sync().unwrap();
    let mut bytes = vec![0; PAGE_SIZE];
    device.read(store.geometry.place_offset(place), &mut bytes).unwrap();
    bytes[30] ^= 1;
    device.write(store.geometry.place_offset(place), &bytes, Durability::Later).unwrap();
    let (records, end) = (log.records(), log.end());
    let reopened = recover_under(AT_ONCE, device, &records, Lsn::ZERO, Lsn::FIRST, end).unwrap();
    reopened.attach_journal(log.clone());
    while reopened.learn_step(true).unwrap() == Progress::Worked {}
    reopened.free_empty_delta_pages().unwrap();
    assert_eq!(reopened.state.lock().totals().delta_pages, 1);
    assert_eq!(read_whole(&reopened, pages[0]).unwrap_err().kind, TierErrorKind::Damaged);
    let report = reopened.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.faults, 1, "{report:?}");
}

/// Cause: a flush did not ask whether a write had failed. Effect: the store wrote on.
#[test]
fn after_a_failed_write_no_delta_page_is_written() {
    let (inner, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
    let (fails, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (failing, seen) = (fails.clone(), writes.clone());
    let device: Arc<dyn Device> = Hooked::over(inner, move |call| match call {
        Call::Write { .. } => {
            seen.fetch_add(1, Relaxed);
            match failing.load(Relaxed) {
                true => Err(DeviceError::new(DeviceErrorKind::Failed, "the test says so")),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    });
    let store = Store::create_with(device, DATABASE, options(), LAYOUT, WAITING).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 3).unwrap();
    write(&store, &log, &pages);
    let changed = change(&store, &log, pages[0], 0);
    fails.store(true, Relaxed);
    assert!(store.sync().is_err());
    fails.store(false, Relaxed);
    let before = writes.load(Relaxed);
    assert!(store.sync().is_err());
    assert_eq!(writes.load(Relaxed), before, "it writes nothing more until it is opened again");
    assert_eq!(read_whole(&store, pages[0]), Ok(changed.clone()));
    assert!(store.oldest_needed_lsn().is_some_and(|needed| needed <= changed.0));
}

/// Cause: every record frees empty delta pages, and one of these lay in a group whose bitmap page
/// was damaged. Effect: no flush had a record, and no checkpoint ended.
#[test]
fn a_damaged_bitmap_page_of_an_empty_delta_page_holds_up_no_flush() {
    let (device, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
    let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, AT_ONCE).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 12).unwrap();
    write(&store, &log, &pages);
    change(&store, &log, pages[0], 40);
    let empty = store.entry_of(pages[0]).unwrap().slot().expect("a delta").place;
    store.write_whole(&pages[..1]).unwrap();
    sweep(&store);
    assert_eq!(store.state.lock().deltas.live.empty(9), [empty]);
    let bits = store.geometry.bitmap_of_place(empty);
    store.state.lock().cache.forget(std::iter::once(bits));
    for slot in [Slot::A, Slot::B] {
        let garbage = vec![7; LAYOUT.meta_bytes];
        device.write(store.geometry.meta_offset(bits, slot), &garbage, Durability::Later).unwrap();
    }
    let changed = change(&store, &log, pages[1], 40);
    store.settle_deltas(Lsn::MAX).unwrap();
    let at = store.entry_of(pages[1]).unwrap().slot().expect("it was flushed").place;
    assert_ne!(store.geometry.bitmap_of_place(at), bits);
    assert_eq!(read_whole(&store, pages[1]), Ok(changed));
    assert_eq!(store.state.lock().deltas.live.empty(9), [], "it is freed: its bits are kept apart");
    assert_eq!(store.state.lock().totals().delta_pages, 1);
}

/// Cause: freeing an empty delta page that its bitmap page contradicts failed, and each step began
/// with it. Effect: sixteen of them kept the slots of all others from being counted.
#[test]
fn an_empty_delta_page_that_cannot_be_freed_holds_up_no_other() {
    let (device, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
    let store = Store::create_with(device, DATABASE, options(), LAYOUT, AT_ONCE).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 3).unwrap();
    write(&store, &log, &pages);
    let places = [0, 1].map(|at| {
        change(&store, &log, pages[at], 40);
        store.entry_of(pages[at]).unwrap().slot().expect("a delta").place
    });
    {
        let bits = store.geometry.bitmap_of_place(places[0]);
        let _pins = store.pin(&[bits]).unwrap();
        let mut state = store.state.lock();
        let (geometry, index) = (store.geometry, store.geometry.index_of_place(places[0]));
        let body = &mut state.cache.get(bits).unwrap().body;
        assert!(bitmap::set(&geometry, body, Which::Deltas, index, false), "damaged");
    }
    store.write_whole(&pages[..2]).unwrap();
    assert_eq!(store.state.lock().deltas.live.empty_count(), 2);
    store.free_empty_delta_pages().unwrap();
    assert_eq!(store.state.lock().deltas.live.empty_count(), 0);
    assert_eq!(store.state.lock().totals().delta_pages, 1, "one is left to the next opening");
}

/// Cause: pages are written whole when no more delta pages may be in use, and for that their images
/// are read. Effect: one that could not be read failed each checkpoint, and held the log.
#[test]
fn a_damaged_image_holds_up_no_checkpoint_when_delta_pages_are_at_their_limit() {
    let (device, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
    let least = DeltaPolicy { pages_percent: 1, ..WAITING.deltas };
    let policy = Policy { deltas: least, ..POLICY };
    let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, policy).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 12).unwrap();
    write(&store, &log, &pages);
    change(&store, &log, pages[0], 40);
    let changed = change(&store, &log, pages[1], 40);
    assert_eq!(store.state.lock().deltas.buffer.len(), 2, "they wait");
    let image = store.geometry.place_offset(store.entry_of(pages[0]).unwrap().place().unwrap());
    device.write(image, &[7; PAGE_SIZE], Durability::Later).unwrap();
    store.sync().unwrap();
    store.settle_deltas(Lsn::MAX).unwrap();
    log.flush(log.end()).unwrap();
    store.sync().unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
    assert_eq!(read_whole(&store, pages[0]).unwrap_err().kind, TierErrorKind::Damaged);
    assert_eq!(read_whole(&store, pages[1]), Ok(changed));
    assert!(store.entry_of(pages[0]).unwrap().slot().is_some(), "a slot was all that could be written");
    assert!(store.entry_of(pages[1]).unwrap().slot().is_none(), "written whole");
}

/// Cause: a flush read the map page of each page, only to learn where its image is. Effect: one
/// that was damaged while a delta waited failed each checkpoint, and held the log.
#[test]
fn a_delta_that_waits_is_flushed_although_its_map_page_is_damaged() {
    // As a slot; and where it would be written whole, if its page could be read.
    for pages_percent in [50, 1] {
        let (device, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
        let policy = Policy { deltas: DeltaPolicy { pages_percent, ..WAITING.deltas }, ..POLICY };
        let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, policy).unwrap();
        store.attach_journal(log.clone());
        let pages = allocate(&store, &log, 12).unwrap();
        write(&store, &log, &pages);
        let changed: Vec<_> = pages[..3].iter().map(|page| change(&store, &log, *page, 40)).collect();
        sweep_and_damage(&store, &*device, 0);
        store.sync().unwrap();
        log.flush(log.end()).unwrap();
        store.sync().unwrap();
        assert_eq!(store.oldest_needed_lsn(), None);
        let (records, end) = (log.records(), log.end());
        let reopened = recover_under(policy, device, &records, Lsn::ZERO, end, end).unwrap();
        for store in [&store, &reopened] {
            for (page, changed) in pages.iter().zip(&changed) {
                assert_eq!(read_whole(store, *page).as_ref(), Ok(changed));
            }
            assert_eq!(read_whole(store, pages[3]).unwrap_err().kind, TierErrorKind::Damaged);
        }
    }
}

/// Cause: without a write buffer no limit was looked at. Effect: on a device without space each
/// page that left DRAM as a delta stayed in memory all the same.
#[test]
fn deltas_that_find_no_space_do_not_pile_up_without_a_write_buffer() {
    let (inner, log) = (Arc::new(MemoryDevice::new("store")), TestLog::new());
    let fails = Arc::new(AtomicBool::new(false));
    let is_full = fails.clone();
    let device = Hooked::over(inner, move |call| match call {
        Call::Write { .. } if is_full.load(Relaxed) => {
            Err(DeviceError::new(DeviceErrorKind::NoSpace, "the test says so"))
        }
        _ => Ok(()),
    });
    let store = Store::create_with(device, DATABASE, options(), LAYOUT, AT_ONCE).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 100).unwrap();
    write(&store, &log, &pages);
    fails.store(true, Relaxed);
    let mut taken = 0;
    for page in &pages {
        let (found, image) = read_found(&store, *page).unwrap();
        let version = log.tick();
        log.flush(log.end()).unwrap();
        let mut data = AlignedBuf::zeroed(PAGE_SIZE);
        data.copy_from_slice(&image);
        let write = PageWrite::back(*page, version, version, &data).changed_since(found.base, found.changes);
        let mut writes = [write];
        store.write_batch(&mut writes);
        taken += usize::from(writes[0].is_taken());
    }
    let bytes = store.state.lock().deltas.buffer.bytes();
    assert!(bytes < (AT_ONCE.batch_pages + 1) * PAGE_SIZE, "{bytes} bytes");
    assert!(taken > 0 && taken < pages.len(), "{taken} pages");
    fails.store(false, Relaxed);
    store.sync().unwrap();
    assert!(store.state.lock().deltas.buffer.is_empty());
}
