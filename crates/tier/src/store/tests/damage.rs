//! Damage is detected, reported with its place, and confined to its page.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::Store;
use crate::store::bitmap::{self, Which};
use crate::store::geometry::{Geometry, Slot};
use crate::store::header::Header;
use crate::store::meta_page::MetaId;
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{Calls, Device, DeviceErrorKind, Durability, Fault, FaultPlan, Faulty, MemoryDevice};

fn store_with_pages(count: usize) -> (Arc<MemoryDevice>, Arc<TestLog>, Store, Vec<PageId>) {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, count).unwrap();
    write(&store, &log, &pages).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    (device, log, store, pages)
}

fn flip(device: &MemoryDevice, offset: u64) {
    let mut block = [0; 512];
    device.read(offset, &mut block).unwrap();
    block[100] ^= 4;
    device.write(offset, &block, Durability::Later).unwrap();
}

fn offset_of(store: &Store, page: PageId) -> u64 {
    store.geometry.place_offset(store.entry_of(page).unwrap().place().unwrap())
}

#[test]
fn a_damaged_page_is_named_and_the_others_are_read() {
    let (device, _, store, pages) = store_with_pages(30);
    flip(&device, offset_of(&store, pages[7]));
    let error = read(&store, pages[7]).unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Damaged);
    assert!(error.message.contains("page 8") && error.message.contains("place"), "{error}");
    assert!(read(&store, pages[8]).is_ok());
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!((report.faults, report.images_read), (1, 29));
    assert_eq!(report.damage, [error.message]);
}

#[test]
fn swapped_pages_and_lost_writes_are_seen() {
    let (device, log, store, pages) = store_with_pages(30);
    let (a, b) = (offset_of(&store, pages[1]), offset_of(&store, pages[2]));
    let (mut image_a, mut image_b) = ([0; 512], [0; 512]);
    device.read(a, &mut image_a).unwrap();
    device.read(b, &mut image_b).unwrap();
    device.write(a, &image_b, Durability::Later).unwrap();
    device.write(b, &image_a, Durability::Later).unwrap();
    for page in &pages[1..3] {
        assert_eq!(read(&store, *page).unwrap_err().kind, TierErrorKind::Damaged);
    }
    drop(store);
    let plan = FaultPlan::new(1);
    let faulty = Arc::new(Faulty::new(device, &plan));
    let store = recover(faulty, &log.records(), Lsn::FIRST, log.end()).unwrap();
    store.attach_journal(log.clone());
    plan.nth(0, Calls::Writes, Fault::Lost);
    assert_eq!(write(&store, &log, &pages[5..6])[0].1, Ok(Took::Taken));
    assert_eq!(read(&store, pages[5]).unwrap_err().kind, TierErrorKind::Damaged);
}

/// The store's crash tests tear slots of every page; here each page that a round writes has either
/// of its slots torn, and both.
#[test]
fn a_torn_metadata_slot_costs_nothing_and_two_are_reported() {
    let (device, log, store, pages) = store_with_pages(30);
    sweep(&store);
    log.flush(log.end()).unwrap();
    write(&store, &log, &pages);
    store.sync().unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
    // As a crash leaves it within the round: the totals page names the round's pages.
    let round = copy(&*device);
    store.sweep_round(&mut store.write_back.lock()).unwrap();
    for slot in [Slot::A, Slot::B] {
        let (at, mut block) = (store.geometry.meta_offset(MetaId::Totals, slot), [0; 1024]);
        device.read(at, &mut block).unwrap();
        round.write(at, &block, Durability::Later).unwrap();
    }
    let map = store.geometry.map_of_page(pages[0]);
    let (records, wanted) = (log.records(), fold(&log.records(), log.end()));
    for id in [map, MetaId::Bitmap(0), MetaId::Totals] {
        let offsets = [Slot::A, Slot::B].map(|slot| store.geometry.meta_offset(id, slot));
        let mut kept = [[0; 1024]; 2];
        offsets.iter().zip(&mut kept).for_each(|(at, kept)| round.read(*at, kept).unwrap());
        let sequence = |slot: &[u8; 1024]| u64::from_le_bytes(slot[48..56].try_into().unwrap());
        let older = usize::from(sequence(&kept[0]) > sequence(&kept[1]));
        flip(&round, offsets[older]);
        let recovered = recover(round.clone(), &records, log.end(), log.end()).unwrap();
        compare(&recovered, &wanted);
        // The next round mends it, before it names other pages.
        recovered.attach_journal(TestLog::with(records.clone()));
        recovered.sweep_round(&mut recovered.write_back.lock()).unwrap();
        assert_eq!(recovered.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
        drop(recovered);
        flip(&round, offsets[0]);
        flip(&round, offsets[1]);
        let outcome = recover(round.clone(), &records, log.end(), log.end());
        let faults = outcome.map(|store| store.check(true, &mut |_| {}).unwrap().faults);
        assert!(faults.is_err() || faults.is_ok_and(|faults| faults > 0), "{id:?} is damaged in both slots");
        offsets.iter().zip(&kept).for_each(|(at, kept)| round.write(*at, kept, Durability::Later).unwrap());
    }
}

/// Cause: recounted totals were stored as containing a record at the end of the log, where there is
/// none. Effect: if the next crash came before any log of the new epoch was durable, the store was
/// refused as newer than its log. Mend: they contain the log before its end.
#[test]
fn recounted_totals_are_not_newer_than_the_log() {
    let (device, log, store, pages) = store_with_pages(30);
    sweep(&store);
    write(&store, &log, &pages[..1]);
    let redo_from = store.oldest_needed_lsn().unwrap();
    log.flush(log.end()).unwrap();
    let (records, end) = (log.records(), log.end());
    flip(&device, store.geometry.meta_offset(MetaId::Totals, Slot::A));
    let recovered = recover(device.clone(), &records, redo_from, end).unwrap();
    // The new epoch begins further on; the next crash leaves nothing of it.
    log.tick();
    log.flush(log.end()).unwrap();
    recovered.attach_journal(log);
    recovered.sync().unwrap();
    let again = recover(device, &records, redo_from, end).unwrap();
    compare(&again, &fold(&records, end));
}

/// Cause: of two slots the valid one was used, whichever it was. Effect: when the newer one had
/// rotted, pages were found at their old places, with right checksums. Fix: a bad slot that redo
/// does not explain is damage.
#[test]
fn the_older_slot_is_not_believed_where_no_crash_can_have_torn_the_newer() {
    let (device, log, store, pages) = store_with_pages(30);
    sweep(&store);
    write(&store, &log, &pages);
    sweep(&store);
    log.flush(log.end()).unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
    let map = store.geometry.map_of_page(pages[0]);
    let offsets = |id| [Slot::A, Slot::B].map(|slot| store.geometry.meta_offset(id, slot));
    let intact = fold(&log.records(), log.end());
    for offset in offsets(map) {
        let device = Arc::new(device.duplicate());
        flip(&device, offset);
        let reopened = recover(device, &[], log.end(), log.end()).unwrap();
        reopened.attach_journal(log.clone());
        let error = read(&reopened, pages[0]).unwrap_err();
        assert_eq!(error.kind, TierErrorKind::Damaged);
        assert!(error.message.contains("map page 0"), "{error}");
        assert!(reopened.check(true, &mut |_| {}).unwrap().faults > 0);
    }
    for offset in offsets(MetaId::Bitmap(0)) {
        let device = Arc::new(device.duplicate());
        flip(&device, offset);
        let reopened = recover(device, &[], log.end(), log.end()).unwrap();
        reopened.attach_journal(log.clone());
        pages.iter().for_each(|page| drop(read(&reopened, *page).unwrap()));
        assert!(reopened.check(true, &mut |_| {}).unwrap().faults > 0);
    }
    for offset in offsets(MetaId::Totals) {
        let device = Arc::new(device.duplicate());
        flip(&device, offset);
        let reopened = recover(device, &[], log.end(), log.end()).unwrap();
        compare(&reopened, &intact);
        assert_eq!(reopened.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new(), "added up anew");
    }
}

/// The header was once in one slot at a time: the other counted fewer groups, and was refused for
/// that.
#[test]
fn a_header_slot_that_is_damaged_costs_nothing() {
    let (device, log, store, _) = store_with_pages(300);
    store.sync().unwrap();
    assert!(store.growth.lock().groups > 1, "or the header never changed");
    drop(store);
    let intact = fold(&log.records(), log.end());
    for slot in [Slot::A, Slot::B] {
        let device = Arc::new(device.duplicate());
        flip(&device, Geometry::header_offset(slot));
        let store = recover(device, &[], log.end(), log.end()).unwrap();
        compare(&store, &intact);
    }
}

/// If a crash leaves a header between its two writes, and the newer slot then rots, the older one
/// counts groups that were not in use. If it nevertheless counted too few, growth would overwrite
/// groups.
#[test]
fn a_header_that_counts_too_few_groups_is_not_believed() {
    let (device, log, store, _) = store_with_pages(300);
    store.sync().unwrap();
    let older = Header { groups: 1, ..*store.growth.lock() };
    drop(store);
    let newer = older.store_both(&*device).unwrap();
    flip(&device, Geometry::header_offset(newer.slot));
    let error = recover(device, &[], log.end(), log.end()).err().expect("it is refused");
    assert_eq!(error.kind, TierErrorKind::Damaged);
    assert!(error.message.contains("header"), "{error}");
}

#[test]
fn metadata_that_knows_more_than_the_log_shows_that_the_log_lost_its_end() {
    let (device, log, store, pages) = store_with_pages(30);
    let before = log.end();
    write(&store, &log, &pages);
    store.sync().unwrap();
    drop(store);
    let error = recover(device, &log.records(), Lsn::FIRST, before).err().expect("the end is missing");
    assert_eq!(error.kind, TierErrorKind::Damaged);
    assert!(error.message.contains("the log ends at"), "{error}");
}

#[test]
fn a_check_sees_what_became_of_metadata_that_is_in_memory() {
    let (device, _, store, pages) = store_with_pages(30);
    sweep(&store);
    assert_eq!(store.check(true, &mut |_| {}).unwrap().faults, 0);
    for id in [store.geometry.map_of_page(pages[0]), MetaId::Bitmap(0), MetaId::Totals] {
        for slot in [Slot::A, Slot::B] {
            let offset = store.geometry.meta_offset(id, slot);
            flip(&device, offset);
            let blank = contents(&device, offset).iter().filter(|&&byte| byte != 0).count() == 1;
            let report = store.check(true, &mut |_| {}).unwrap();
            assert!(report.faults > 0 || blank, "{id:?} {slot:?}");
            flip(&device, offset);
        }
    }
    assert_eq!(store.check(true, &mut |_| {}).unwrap().faults, 0);
}

fn contents(device: &MemoryDevice, offset: u64) -> [u8; 512] {
    let mut block = [0; 512];
    device.read(offset, &mut block).unwrap();
    block
}

#[test]
fn a_damaged_bitmap_page_is_reported_and_reading_goes_on() {
    let (device, log, store, pages) = store_with_pages(120);
    sweep(&store);
    for slot in [Slot::A, Slot::B] {
        flip(&device, store.geometry.meta_offset(MetaId::Bitmap(1), slot));
    }
    drop(store);
    let store = recover(device, &[], log.end(), log.end()).unwrap();
    store.attach_journal(log.clone());
    pages.iter().for_each(|page| drop(read(&store, *page).unwrap()));
    let report = store.check(true, &mut |_| {}).unwrap();
    assert!(report.damage.iter().any(|sentence| sentence.contains("the bitmap page of group 1 is damaged")));
    assert_eq!(allocate(&store, &log, 20).unwrap().len(), 20, "other groups give places and numbers");
}

#[test]
fn after_a_failed_sync_nothing_is_written_but_reading_goes_on() {
    let plan = FaultPlan::new(1);
    let device: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(MemoryDevice::new("store")), &plan));
    let log = TestLog::new();
    let store = create(device, &log);
    let pages = allocate(&store, &log, 10).unwrap();
    let written = write(&store, &log, &pages);
    plan.fail_nth(0, Calls::Syncs, DeviceErrorKind::Failed);
    assert_eq!(store.sync().unwrap_err().kind, TierErrorKind::Failed);
    let needed = store.oldest_needed_lsn();
    assert!(needed.is_some_and(|lsn| lsn <= written[0].0), "the log is needed as before: {needed:?}");
    let error = store.sync().unwrap_err();
    assert!(error.message.contains("opened again"), "{error}");
    assert_eq!(write(&store, &log, &pages[..1])[0].1.as_ref().unwrap_err().kind, TierErrorKind::Failed);
    assert_eq!(allocate(&store, &log, 1).unwrap_err().kind, TierErrorKind::Failed);
    assert_eq!(read(&store, pages[0]).unwrap(), (written[0].0, image(pages[0], written[0].0)));
    log.flush(log.end()).unwrap();
    let store = recover(store.device.clone(), &log.records(), needed.unwrap(), log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
}

#[test]
fn a_check_sees_what_is_planted() {
    let (_, _, store, pages) = store_with_pages(30);
    sweep(&store);
    let map = store.geometry.map_of_page(pages[0]);
    let pins = store.pin(&[map, MetaId::Bitmap(0)]).unwrap();
    {
        let mut state = store.state.lock();
        let other = store.geometry.slot_of_page(pages[1]);
        let slot = store.geometry.slot_of_page(pages[0]);
        let body = &mut state.cache.get(map).unwrap().body;
        let entry = crate::store::entry::Entry::read(body, other).unwrap();
        entry.write(body, slot);
    }
    drop(pins);
    let report = store.check(true, &mut |_| {}).unwrap();
    assert!(
        report.damage.iter().any(|sentence| sentence.contains("which another page names too")),
        "{report:?}"
    );
    assert!(
        report.damage.iter().any(|sentence| sentence.contains("in use but named by no page")),
        "{report:?}"
    );
    assert!(
        report.damage.iter().any(|sentence| sentence.contains("is damaged: it is not version")),
        "{report:?}"
    );
}

/// Alters a metadata page in memory, where it stays, as damage with a right checksum would.
fn alter(store: &Store, id: MetaId, alter: impl FnOnce(&mut [u8])) {
    store.pin(&[id]).unwrap().keep();
    alter(&mut store.state.lock().cache.get(id).unwrap().body);
}

/// A bitmap that lacked a page's place ended the process when the page was written next, or freed;
/// and the record was in the log by then, so that no opening could repeat it. Found by the fuzzer
/// `store`.
#[test]
fn metadata_that_contradicts_itself_is_refused_before_it_is_logged() {
    let (device, log, store, pages) = store_with_pages(12);
    store.sync().unwrap();
    let place = store.entry_of(pages[3]).unwrap().place().unwrap();
    let (bits, index) = (store.geometry.bitmap_of_place(place), store.geometry.index_of_place(place));
    let geometry = store.geometry;
    let set = |value: bool| {
        alter(&store, bits, |body| assert!(bitmap::set(&geometry, body, Which::Places, index, value)));
    };
    set(false);
    let records = log.records().len();
    let error = publish(&store, &log, &[], &pages[3..4]).unwrap_err();
    assert_eq!((error.kind, log.records().len()), (TierErrorKind::Damaged, records));
    assert!(error.message.contains("page 4") && error.message.contains("backup"), "{error}");
    let error = write(&store, &log, &pages[3..4]).remove(0).1.unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Damaged, "{error}");
    set(true);
    // The totals, and a page's own bit.
    let mut totals = Vec::new();
    alter(&store, MetaId::Totals, |body| {
        totals.extend_from_slice(body);
        body.fill(0);
    });
    assert_eq!(publish(&store, &log, &[], &pages[3..4]).unwrap_err().kind, TierErrorKind::Damaged);
    alter(&store, MetaId::Totals, |body| body.copy_from_slice(&totals));
    let own = (geometry.bitmap_of_page(pages[5]), geometry.index_of_page(pages[5]));
    alter(&store, own.0, |body| assert!(bitmap::set(&geometry, body, Which::Pages, own.1, false)));
    assert_eq!(publish(&store, &log, &[], &pages[5..6]).unwrap_err().kind, TierErrorKind::Damaged);
    alter(&store, own.0, |body| assert!(bitmap::set(&geometry, body, Which::Pages, own.1, true)));
    // Records in the log can be redone, and writes that fit continue.
    assert!(write(&store, &log, &pages[2..5]).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
    publish(&store, &log, &[], &pages[3..4]).unwrap();
    log.flush(log.end()).unwrap();
    drop(store);
    let store = recover(device, &log.records(), Lsn::FIRST, log.end()).unwrap();
    assert_eq!(read(&store, pages[3]).unwrap_err().kind, TierErrorKind::NotAllocated);
    for page in [pages[2], pages[4]] {
        assert!(read(&store, page).is_ok());
    }
}

#[test]
fn of_two_pages_in_one_place_one_can_leave_it() {
    let (_, log, store, pages) = store_with_pages(12);
    sweep(&store);
    let entry = store.entry_of(pages[6]).unwrap();
    let (map, slot) = (store.geometry.map_of_page(pages[7]), store.geometry.slot_of_page(pages[7]));
    alter(&store, map, |body| entry.write(body, slot));
    let outcomes = write(&store, &log, &pages[5..9]);
    let (taken, refused): (Vec<_>, Vec<_>) =
        outcomes.iter().map(|(_, outcome)| outcome).partition(|outcome| **outcome == Ok(Took::Taken));
    assert_eq!((taken.len(), refused.len()), (3, 1), "{outcomes:?}");
    assert_eq!(refused[0].as_ref().unwrap_err().kind, TierErrorKind::Damaged);
}

/// The free places of a group were counted as all places less the used and the held ones, and the
/// count fell below zero. Found by the fuzzer `store`.
#[test]
fn a_bitmap_that_counts_more_than_there_is_gives_no_places() {
    let (_, log, store, pages) = store_with_pages(12);
    // 80 places, of which those of freed pages are held; the second of two words has 16 bits of
    // them.
    publish(&store, &log, &[], &pages[..2]).unwrap();
    alter(&store, MetaId::Bitmap(0), |body| body[8..8 + 4 * 8].fill(0xff));
    store.state.lock().space.unlearn(0);
    store.learn(0).unwrap();
    assert_eq!(store.state.lock().space.most_places(0), 0);
    // Another group has the places that are needed.
    let more = allocate(&store, &log, 3).unwrap();
    assert!(more.iter().all(|page| store.geometry.group_of_page(*page) > 0), "{more:?}");
    assert!(write(&store, &log, &more).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
}

/// Cause: metadata pages that were loaded after recovery were not compared with the log's end.
/// Effect: where the totals were of an older copy than the map, the map was believed, although it
/// named images of changes that the log had lost.
#[test]
fn a_metadata_page_with_changes_that_the_log_lacks_is_damage_after_recovery_too() {
    let (device, log, store, pages) = store_with_pages(30);
    sweep(&store);
    log.flush(log.end()).unwrap();
    let (end, records) = (log.end(), log.records());
    let totals = [Slot::A, Slot::B].map(|slot| {
        let (at, mut block) = (store.geometry.meta_offset(MetaId::Totals, slot), [0; 1024]);
        device.read(at, &mut block).unwrap();
        (at, block)
    });
    write(&store, &log, &pages[..1]);
    sweep(&store);
    for (at, block) in totals {
        device.write(at, &block, Durability::Later).unwrap();
    }
    for (log, lacks) in [(log, false), (TestLog::with(records), true)] {
        let end = if lacks { end } else { log.end() };
        let reopened = recover(copy(&*device), &log.records(), end, end).unwrap();
        log.flush(end).unwrap();
        reopened.attach_journal(log);
        match read(&reopened, pages[0]) {
            Ok(_) => assert!(!lacks),
            Err(error) => {
                assert!(lacks && error.kind == TierErrorKind::Damaged, "{error}");
                assert!(
                    error.message.contains("map page 0") && error.message.contains("log ends"),
                    "{error}"
                );
            }
        }
    }
}
