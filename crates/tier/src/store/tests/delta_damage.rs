//! Damage of delta pages is detected and costs the pages whose slots it meets.

use super::delta_model::read_found;
use super::harness::*;
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{Found, PageTier, PageWrite, Written};
use crate::store::entry::SlotAt;
use crate::store::{DeltaPolicy, Journal, Policy, Store};
use crate::{Base, Changes};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{
    AlignedBuf, Calls, Device, DeviceErrorKind, Durability, FaultPlan, Faulty, MemoryDevice,
};

pub(super) const AT_ONCE: Policy = Policy {
    deltas: DeltaPolicy { enabled: true, pages_percent: 50, read_cost_percent: 0, ..DeltaPolicy::OFF },
    ..POLICY
};
pub(super) const WAITING: Policy = Policy {
    deltas: DeltaPolicy { enabled: true, buffer_bytes: 1 << 20, pages_percent: 50, read_cost_percent: 0 },
    ..POLICY
};

pub(super) struct Rig {
    pub device: Arc<MemoryDevice>,
    pub log: Arc<TestLog>,
    pub store: Store,
    pub pages: Vec<PageId>,
}

pub(super) fn rig(policy: Policy, count: usize) -> Rig {
    rig_on(MemoryDevice::new("store"), policy, count)
}

pub(super) fn rig_on(device: MemoryDevice, policy: Policy, count: usize) -> Rig {
    let device = Arc::new(device);
    rig_over(device.clone(), device, policy, count)
}

/// Over `whole`, of which `device` is a part.
pub(super) fn rig_over(
    whole: Arc<dyn Device>,
    device: Arc<MemoryDevice>,
    policy: Policy,
    count: usize,
) -> Rig {
    let log = TestLog::new();
    let store = Store::create_with(whole, DATABASE, options(), LAYOUT, policy).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, count).unwrap();
    write(&store, &log, &pages);
    Rig { device, log, store, pages }
}

impl Rig {
    /// Changes the eight bytes at `at` of pages, as one batch; returns what they are then.
    pub fn change(&self, pages: &[PageId], at: usize) -> Vec<(Lsn, Vec<u8>)> {
        let mut changed = Vec::new();
        let mut data = AlignedBuf::zeroed(pages.len() * PAGE_SIZE);
        let mut known: Vec<Found> = Vec::new();
        for (page, out) in pages.iter().zip(data.chunks_mut(PAGE_SIZE)) {
            let (found, mut image) = read_found(&self.store, *page).unwrap();
            let version = self.log.tick();
            image[at..at + 8].copy_from_slice(&version.0.to_le_bytes());
            out.copy_from_slice(&image);
            known.push(Found { changes: found.changes | Changes::of(at..at + 8, PAGE_SIZE), ..found });
            changed.push((version, image));
        }
        self.log.flush(self.log.end()).unwrap();
        let offered = pages.iter().zip(&changed).zip(data.chunks(PAGE_SIZE)).zip(known);
        let mut writes: Vec<PageWrite<'_>> = offered
            .map(|(((page, (version, _)), data), found)| {
                let write = PageWrite::back(*page, *version, *version, data);
                let write = write.changed_since(found.base, found.changes);
                PageWrite { delta_read: found.delta_read, ..write }
            })
            .collect();
        self.store.write_batch(&mut writes);
        writes.iter().for_each(|write| assert!(write.is_taken(), "{:?}", write.outcome));
        changed
    }
    pub fn slot(&self, page: PageId) -> Option<SlotAt> {
        self.store.entry_of(page).unwrap().slot()
    }
    fn offset(&self, page: PageId) -> u64 {
        self.store.geometry.place_offset(self.slot(page).expect("it has a delta").place)
    }
    pub fn read(&self, page: PageId) -> Result<(Lsn, Vec<u8>), TierError> {
        read_found(&self.store, page).map(|(found, image)| (found.version, image))
    }
}

#[test]
fn pages_with_small_changes_share_a_delta_page() {
    let rig = rig(AT_ONCE, 20);
    let before = rig.store.statistics().pages_written;
    let changed = rig.change(&rig.pages[..6], 40);
    let place = rig.slot(rig.pages[0]).expect("a delta").place;
    for (page, changed) in rig.pages.iter().zip(&changed) {
        assert_eq!(rig.slot(*page).map(|at| at.place), Some(place), "one delta page has all");
        assert_eq!(rig.read(*page).as_ref(), Ok(changed));
    }
    assert_eq!(rig.store.statistics().pages_written, before, "no page was written whole");
    let again = rig.change(&rig.pages[..6], 800);
    assert_ne!(rig.slot(rig.pages[0]).expect("a delta").place, place);
    let (found, image) = read_found(&rig.store, rig.pages[0]).unwrap();
    assert_eq!((found.version, image), again[0]);
    assert_eq!(found.changes, Changes::of(40..48, PAGE_SIZE) | Changes::of(800..808, PAGE_SIZE));
    // The first delta page is empty, and goes with the next record.
    assert_eq!(rig.store.state.lock().deltas.live.empty(9), [place]);
    rig.change(&rig.pages[6..7], 0);
    assert_eq!(rig.store.state.lock().deltas.live.empty(9), []);
    assert_eq!(rig.store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn a_page_whose_deltas_add_up_to_a_page_is_written_whole() {
    let rig = rig(AT_ONCE, 4);
    let whole: Vec<bool> = (0..64)
        .map(|at| {
            rig.change(&rig.pages[..1], 8 * at);
            rig.slot(rig.pages[0]).is_none()
        })
        .collect();
    let count = whole.iter().filter(|whole| **whole).count();
    assert!((4..16).contains(&count) && !whole[0], "{count} of 64 versions were written whole");
}

#[test]
fn a_damaged_slot_is_named_and_its_neighbours_are_read() {
    let rig = rig(AT_ONCE, 12);
    let changed = rig.change(&rig.pages[..6], 40);
    let mut block = vec![0; PAGE_SIZE];
    let offset = rig.offset(rig.pages[0]);
    rig.device.read(offset, &mut block).unwrap();
    let slot = crate::store::delta::page::slot(&block, 2).unwrap();
    let at = slot.as_ptr() as usize - block.as_ptr() as usize + 9;
    block[at] ^= 1;
    rig.device.write(offset, &block, Durability::Later).unwrap();
    for (number, (page, changed)) in rig.pages.iter().zip(&changed).enumerate() {
        match rig.read(*page) {
            Ok(read) => assert!(number != 2 && read == *changed),
            Err(error) => {
                assert_eq!((number, error.kind), (2, TierErrorKind::Damaged));
                assert!(error.message.contains("page 3") && error.message.contains("slot 2"), "{error}");
            }
        }
    }
    let report = rig.store.check(true, &mut |_| {}).unwrap();
    assert_eq!((report.faults, report.delta_pages), (1, 1), "{report:?}");
}

#[test]
fn stale_swapped_and_lost_delta_pages_are_damage_and_never_older_data() {
    let rig = rig(AT_ONCE, 12);
    rig.change(&rig.pages[..3], 40);
    let mut stale = vec![0; PAGE_SIZE];
    rig.device.read(rig.offset(rig.pages[0]), &mut stale).unwrap();
    rig.change(&rig.pages[..3], 40);
    rig.change(&rig.pages[3..6], 40);
    let (a, b) = (rig.offset(rig.pages[0]), rig.offset(rig.pages[3]));
    let (mut page_a, mut page_b) = (vec![0; PAGE_SIZE], vec![0; PAGE_SIZE]);
    rig.device.read(a, &mut page_a).unwrap();
    rig.device.read(b, &mut page_b).unwrap();
    for (first, second) in [(&stale, &page_b), (&page_b, &page_a), (&vec![0; PAGE_SIZE], &page_a)] {
        rig.device.write(a, first, Durability::Later).unwrap();
        rig.device.write(b, second, Durability::Later).unwrap();
        for page in &rig.pages[..6] {
            let is_right = **second == page_b && page.0 > 3;
            match rig.read(*page) {
                Ok(_) => assert!(is_right, "{page}"),
                Err(error) => assert!(!is_right && error.kind == TierErrorKind::Damaged, "{error}"),
            }
        }
    }
    rig.device.write(a, &page_a, Durability::Later).unwrap();
    rig.device.write(b, &page_b, Durability::Later).unwrap();
    // The image under a delta.
    let image = rig.store.geometry.place_offset(rig.store.entry_of(rig.pages[1]).unwrap().place().unwrap());
    let mut bytes = vec![0; PAGE_SIZE];
    rig.device.read(image, &mut bytes).unwrap();
    bytes[41] ^= 1;
    rig.device.write(image, &bytes, Durability::Later).unwrap();
    assert_eq!(rig.read(rig.pages[1]).unwrap_err().kind, TierErrorKind::Damaged, "under the changes, too");
    assert!(rig.read(rig.pages[0]).is_ok());
}

#[test]
fn what_waits_holds_the_log_until_its_record_is_durable() {
    let rig = rig(WAITING, 12);
    rig.store.sync().unwrap();
    rig.log.flush(rig.log.end()).unwrap();
    assert_eq!(rig.store.oldest_needed_lsn(), None);
    let first = rig.change(&rig.pages[..1], 0)[0].0;
    let second = rig.change(&rig.pages[1..2], 0)[0].0;
    rig.change(&rig.pages[..1], 16);
    assert_eq!(rig.store.oldest_needed_lsn(), Some(first), "from the first change that no tier holds");
    // A whole image of the later version replaces what waits; a crash before its record is durable
    // brings the state before both back.
    rig.store.write_whole(&rig.pages[..1]).unwrap();
    assert_eq!(rig.slot(rig.pages[0]), None);
    assert_eq!(rig.store.oldest_needed_lsn(), Some(first));
    rig.log.flush(rig.log.end()).unwrap();
    assert_eq!(rig.store.oldest_needed_lsn(), Some(second));
    publish(&rig.store, &rig.log, &[], &rig.pages[1..2]).unwrap();
    assert_eq!(rig.store.oldest_needed_lsn(), Some(second), "the free may be undone by a crash");
    rig.log.flush(rig.log.end()).unwrap();
    assert!(rig.store.oldest_needed_lsn() > Some(second));
    let third = rig.change(&rig.pages[2..3], 0)[0].0;
    rig.store.settle_deltas(third).unwrap();
    assert_eq!(rig.slot(rig.pages[2]), None, "not older than asked");
    rig.store.settle_deltas(Lsn(third.0 + 1)).unwrap();
    assert!(rig.slot(rig.pages[2]).is_some());
}

#[test]
fn a_write_that_counts_from_another_image_is_written_whole() {
    let rig = rig(WAITING, 4);
    let page = rig.pages[0];
    let (found, image) = read_found(&rig.store, page).unwrap();
    let base = found.base.expect("it was written");
    let offer = |base: Base, version: Lsn| {
        let mut data = AlignedBuf::zeroed(PAGE_SIZE);
        data.copy_from_slice(&image);
        let write = PageWrite::back(page, version, version, &data).changed_since(Some(base), Changes::NONE);
        let mut writes = [write];
        rig.store.write_batch(&mut writes);
        writes[0].outcome.clone().unwrap()
    };
    let version = rig.log.tick();
    rig.log.flush(rig.log.end()).unwrap();
    let other = Base { checksum: base.checksum ^ 1, ..base };
    let Written::Taken { base: Some(now), .. } = offer(other, version) else { panic!("it is newer") };
    assert_eq!(now.version, version, "a new base");
    let later = rig.log.tick();
    rig.log.flush(rig.log.end()).unwrap();
    assert_eq!(offer(now, later), Written::Taken { base: Some(now), changes: Changes::NONE });
    assert_eq!(offer(now, version), Written::Declined, "an older version never replaces what waits");
    assert_eq!(rig.store.version_of(page), Ok(Some(later)));
    let stale = rig.store.state.lock().deltas.buffer.get(page).map(|held| held.delta.version);
    assert_eq!(stale, Some(later));
}

#[test]
fn slots_that_live_are_gathered_and_empty_delta_pages_become_free() {
    let rig = rig(Policy { deltas: DeltaPolicy { pages_percent: 7, ..AT_ONCE.deltas }, ..AT_ONCE }, 60);
    let mut changed = Vec::new();
    // Ten delta pages; then all but one slot of each die.
    for pages in rig.pages.chunks(6) {
        changed.push(rig.change(pages, 40).remove(0));
    }
    for pages in rig.pages.chunks(6) {
        rig.store.write_whole(&pages[1..]).unwrap();
    }
    let before = rig.store.state.lock().totals().delta_pages;
    for _ in 0..40 {
        rig.store.learn_step(true).unwrap();
    }
    let counted = |counter: &firndb_base::sync::atomic::AtomicU64| {
        counter.load(firndb_base::sync::atomic::Ordering::Relaxed)
    };
    let after = rig.store.state.lock().totals().delta_pages;
    assert!(before >= 9 && after <= 4, "{before} delta pages, then {after}");
    assert!(counted(&rig.store.counters.deltas_gathered) > 0);
    for (pages, changed) in rig.pages.chunks(6).zip(&changed) {
        assert_eq!(rig.read(pages[0]).as_ref(), Ok(changed));
    }
    // After a restart the counts are learned from the delta pages.
    rig.store.sync().unwrap();
    let records = rig.log.records();
    let reopened =
        recover_under(AT_ONCE, rig.device.clone(), &records, Lsn::ZERO, Lsn::FIRST, rig.log.end()).unwrap();
    reopened.attach_journal(rig.log.clone());
    while reopened.learn_step(true).unwrap() == Progress::Worked {}
    for pages in rig.pages.chunks(6) {
        reopened.write_whole(&pages[..1]).unwrap();
    }
    reopened.free_empty_delta_pages().unwrap();
    assert_eq!(reopened.state.lock().totals().delta_pages, 0);
    assert_eq!(reopened.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}

/// A delta page that cannot be read has as many live slots as before: entries name them.
#[test]
fn a_delta_page_that_cannot_be_read_is_not_taken_for_empty() {
    let rig = rig(AT_ONCE, 12);
    let changed = rig.change(&rig.pages[..6], 40);
    rig.store.sync().unwrap();
    let plan = FaultPlan::new(1);
    let device = Arc::new(Faulty::new(rig.device.clone(), &plan));
    let records = rig.log.records();
    let store = recover_under(AT_ONCE, device, &records, Lsn::ZERO, Lsn::FIRST, rig.log.end()).unwrap();
    store.attach_journal(rig.log.clone());
    while store.state.lock().space.next_to_learn().is_some() {
        store.learn_step(true).unwrap();
    }
    plan.fail_nth(0, Calls::Reads, DeviceErrorKind::Failed);
    store.clean_deltas().unwrap();
    assert_eq!(plan.fired(), 1, "the delta page could not be read");
    store.free_empty_delta_pages().unwrap();
    assert_eq!(store.state.lock().totals().delta_pages, 1);
    store.clean_deltas().unwrap();
    for (page, changed) in rig.pages.iter().zip(&changed) {
        let (found, image) = read_found(&store, *page).unwrap();
        assert_eq!((found.version, image), *changed);
    }
}

/// Cause: gathering slots passed on the error of a damaged image under one. Effect: compaction
/// failed before it emptied anything, and the background rested all work on free space.
#[test]
fn a_damaged_image_under_a_slot_keeps_no_other_from_being_written_whole() {
    let rig = rig(AT_ONCE, 12);
    let changed = [rig.change(&rig.pages[..6], 40), rig.change(&rig.pages[6..], 40)].concat();
    rig.store.sync().unwrap();
    let image = rig.store.entry_of(rig.pages[0]).unwrap().place().unwrap();
    rig.device.write(rig.store.geometry.place_offset(image), &[7; PAGE_SIZE], Durability::Later).unwrap();
    let off = Policy { deltas: DeltaPolicy { pages_percent: 1, ..DeltaPolicy::OFF }, ..POLICY };
    for is_compacted in [false, true] {
        let (device, records) = (copy(&*rig.device), rig.log.records());
        let end = rig.log.end();
        let store = recover_under(off, device, &records, Lsn::ZERO, Lsn::FIRST, end).unwrap();
        store.attach_journal(TestLog::with(records));
        store.learn_all().unwrap();
        if is_compacted {
            let mut sparse = store.sparse_deltas();
            while store.compact_deltas_step(&mut sparse).unwrap() == Progress::Worked {}
        } else {
            let steps = (0..100).take_while(|_| store.clean_deltas().unwrap() == Progress::Worked).count();
            assert!(steps < 100, "it does not try again and again");
        }
        for (page, changed) in rig.pages.iter().zip(&changed).skip(1) {
            assert_eq!(store.entry_of(*page).unwrap().slot(), None);
            assert_eq!(
                read_found(&store, *page).map(|(found, image)| (found.version, image)).as_ref(),
                Ok(changed)
            );
        }
        assert!(store.entry_of(rig.pages[0]).unwrap().slot().is_some());
        assert_eq!(
            read_found(&store, rig.pages[0]).err().map(|error| error.kind),
            Some(TierErrorKind::Damaged)
        );
    }
}
