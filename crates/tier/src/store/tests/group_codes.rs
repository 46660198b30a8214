//! Groups with codes of their own.

use super::harness::*;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::geometry::{Geometry, Place};
use crate::store::{CodeWalk, GroupCodes, Store};
use crate::testing::small_store::{read_as_they_come, tree_of};
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{PageId, Progress};
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability, MemoryDevice};
use std::collections::BTreeMap;

/// How many codes groups may have.
pub(crate) const COUNT: usize = 3;

/// Codes of groups on a device that knows none: a group that gets one loses what its places held.
#[derive(Debug)]
pub(crate) struct Codes {
    device: Arc<dyn Device>,
    groups: Mutex<BTreeMap<u64, u8>>,
    is_full: AtomicBool,
}

/// Codes as an array has them: of a group beyond its end there is none.
#[derive(Debug)]
struct AsLongAs(Arc<dyn Device>);

impl GroupCodes for AsLongAs {
    fn count(&self) -> usize {
        1
    }

    fn of_group(&self, group: u64) -> Result<u8, DeviceError> {
        let geometry = Geometry::new(PAGE_SIZE, LAYOUT).unwrap();
        match geometry.group_offset(group + 1).is_some_and(|end| end <= self.0.len()) {
            true => Ok(0),
            false => Err(DeviceError::new(DeviceErrorKind::OutOfRange, "there is no such group")),
        }
    }

    fn set(&self, _: u64, _: u8) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Codes {
    pub(crate) fn over(device: Arc<dyn Device>) -> Arc<Codes> {
        let groups = Mutex::new(BTreeMap::new());
        Arc::new(Codes { device, groups, is_full: AtomicBool::new(false) })
    }

    /// From now on the device has no space for another code, or has some again.
    pub(crate) fn refuse(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}

impl GroupCodes for Codes {
    fn count(&self) -> usize {
        COUNT
    }

    fn of_group(&self, group: u64) -> Result<u8, DeviceError> {
        Ok(self.groups.lock().get(&group).copied().unwrap_or(0))
    }

    fn set(&self, group: u64, code: u8) -> Result<(), DeviceError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(DeviceError::new(DeviceErrorKind::NoSpace, "no space for another code"));
        }
        let geometry = Geometry::new(PAGE_SIZE, LAYOUT).unwrap();
        let places = geometry.places_per_group;
        let mut lost = AlignedBuf::zeroed(places as usize * PAGE_SIZE);
        lost.fill(0xCC);
        self.device.write(geometry.place_offset(Place(group * places)), &lost, Durability::Durable)?;
        self.groups.lock().insert(group, code);
        Ok(())
    }
}

fn rig() -> (Arc<Codes>, Arc<TestLog>, Store) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let (log, codes) = (TestLog::new(), Codes::over(device.clone()));
    let store = create(device, &log);
    store.attach_codes(codes.clone());
    (codes, log, store)
}

/// Pages by their tree and the code of the group that their image is in.
fn found(store: &Store, codes: &Codes, pages: &[PageId]) -> BTreeMap<(u32, u8), usize> {
    let mut found = BTreeMap::new();
    for page in pages {
        let _pins = store.pin(&[store.geometry.map_of_page(*page)]).unwrap();
        let entry = store.state.lock().known_entry(&store.geometry, *page).unwrap().unwrap();
        let group = store.geometry.group_of_place(entry.place().unwrap());
        *found.entry((tree_of(*page), codes.of_group(group).unwrap())).or_default() += 1;
    }
    found
}

/// Returns how many pages stayed where they were.
fn move_all(store: &Store) -> u64 {
    let mut walk = CodeWalk::default();
    while store.move_to_codes(&mut walk).unwrap() == Progress::Worked {}
    walk.left
}

fn write_all(store: &Store, log: &TestLog, pages: &[PageId]) {
    for (_, outcome) in pages.chunks(12).flat_map(|pages| write(store, log, pages)) {
        outcome.unwrap();
    }
}

#[test]
fn pages_go_to_groups_of_the_code_of_their_tree() {
    let (codes, log, store) = rig();
    store.set_codes_of_trees(BTreeMap::from([(1, 2), (2, 1)])).unwrap();
    let pages = allocate(&store, &log, 90).unwrap();
    write_all(&store, &log, &pages);
    assert_eq!(found(&store, &codes, &pages), BTreeMap::from([((0, 0), 30), ((1, 2), 30), ((2, 1), 30)]));
    compare(&store, &fold(&log.records(), log.end()));
    let refused = store.set_codes_of_trees(BTreeMap::from([(1, COUNT as u8)])).unwrap_err();
    assert!(refused.message.contains("no code 3"), "{refused}");
}

#[test]
fn pages_of_a_tree_move_to_its_code_and_back() {
    let (codes, log, store) = rig();
    let pages = allocate(&store, &log, 90).unwrap();
    write_all(&store, &log, &pages);
    assert_eq!(found(&store, &codes, &pages).keys().map(|(_, code)| *code).max(), Some(0));
    store.set_codes_of_trees(BTreeMap::from([(1, 1)])).unwrap();
    assert_eq!(move_all(&store), 0);
    assert_eq!(found(&store, &codes, &pages), BTreeMap::from([((0, 0), 30), ((1, 1), 30), ((2, 0), 30)]));
    let moved = store.statistics().images_moved;
    assert_eq!(moved, 30, "what lies right stays");
    store.set_codes_of_trees(BTreeMap::new()).unwrap();
    assert_eq!(move_all(&store), 0);
    assert_eq!(found(&store, &codes, &pages), BTreeMap::from([((0, 0), 30), ((1, 0), 30), ((2, 0), 30)]));
    compare(&store, &fold(&log.records(), log.end()));
}

#[test]
fn without_a_group_of_its_code_a_page_goes_to_another() {
    let (codes, log, store) = rig();
    let pages = allocate(&store, &log, 60).unwrap();
    codes.refuse(true);
    store.set_codes_of_trees(BTreeMap::from([(1, 1)])).unwrap();
    write_all(&store, &log, &pages);
    assert_eq!(found(&store, &codes, &pages), BTreeMap::from([((0, 0), 20), ((1, 0), 20), ((2, 0), 20)]));
    // A batch is moved in vain before it is known that no group can be had.
    assert!(move_all(&store) >= 20 - store.policy.batch_pages as u64, "they stay");
    assert!(store.statistics().images_moved <= store.policy.batch_pages as u64);
    codes.refuse(false);
    // Not each batch tries anew.
    (0..40).for_each(|_| write_all(&store, &log, &pages));
    assert_eq!(found(&store, &codes, &pages), BTreeMap::from([((0, 0), 20), ((1, 1), 20), ((2, 0), 20)]));
}

#[test]
fn the_background_keeps_groups_of_codes_in_use_and_gives_back_others() {
    let (codes, log, store) = rig();
    let pages = allocate(&store, &log, 60).unwrap();
    store.set_codes_of_trees(BTreeMap::from([(1, 1), (2, 2)])).unwrap();
    write_all(&store, &log, &pages);
    let groups = store.groups();
    for _ in 0..200 {
        store.vacate_step().unwrap();
        store.give_back_step().unwrap();
    }
    assert_eq!(found(&store, &codes, &pages), BTreeMap::from([((0, 0), 20), ((1, 1), 20), ((2, 2), 20)]));
    assert_eq!(store.groups(), groups);
    assert_eq!(store.groups_by_code(), [groups - 2, 1, 1]);
}

#[test]
fn compaction_ends_where_pages_of_a_code_are_few() {
    for (total, kept_of_all, kept_of_tree) in [(900, 3, 3), (900, 2, 3), (1200, 3, 30), (2400, 2, 60)] {
        let (_, log, store) = rig();
        store.set_codes_of_trees(BTreeMap::from([(1, 1)])).unwrap();
        let pages: Vec<PageId> = (0..total / 50).flat_map(|_| allocate(&store, &log, 50).unwrap()).collect();
        write_all(&store, &log, &pages);
        let is_freed = |page: &&PageId| match tree_of(**page) {
            1 => page.0 % kept_of_tree != 1,
            _ => !(page.0 / 3).is_multiple_of(kept_of_all),
        };
        let freed: Vec<PageId> = pages.iter().filter(is_freed).copied().collect();
        freed.chunks(40).for_each(|some| _ = publish(&store, &log, &[], some).unwrap());
        log.flush(log.end()).unwrap();
        store.sync().unwrap();
        let groups = store.groups();
        store.begin_compaction();
        let mut steps = 0;
        while store.compact_step().unwrap() == Progress::Worked {
            steps += 1;
            assert!(steps < 500, "compaction has an end");
        }
        assert!(store.groups() <= groups, "{} groups of {groups}", store.groups());
        assert!(store.statistics().images_moved <= total as u64);
        compare(&store, &fold(&log.records(), log.end()));
    }
}

/// Cause: space for a code was had from the file's end although the file had holes. Effect: as the
/// background made more of them, the file grew without end.
#[test]
fn a_group_for_a_code_is_had_from_a_hole_first() {
    let (_, log, store) = rig();
    store.set_codes_of_trees(BTreeMap::from([(1, 1), (2, 2)])).unwrap();
    let (mut pages, mut rng, mut most) = (Vec::new(), Rng::new(1), 0);
    for round in 0..12 {
        while pages.len() < 1500 {
            pages.extend(allocate(&store, &log, 50).unwrap());
            write_all(&store, &log, &pages[pages.len() - 50..]);
        }
        match round {
            0..4 => most = store.groups().max(most),
            _ => assert!(store.groups() <= most + 3, "round {round}: {} groups", store.groups()),
        }
        let freed: Vec<PageId> =
            (0..1000).map(|_| pages.swap_remove(rng.below(pages.len() as u64) as usize)).collect();
        freed.chunks(40).for_each(|some| _ = publish(&store, &log, &[], some).unwrap());
        log.flush(log.end()).unwrap();
        for _ in 0..300 {
            store.vacate_step().unwrap();
            store.give_back_step().unwrap();
        }
        store.sync().unwrap();
    }
}

#[test]
fn reads_and_writes_count_for_the_trees_of_pages_and_moves_do_not() {
    let (_, log, store) = rig();
    assert!(create(Arc::new(MemoryDevice::new("no codes")), &TestLog::new()).load_by_tree().is_none());
    store.count_trees(&[1, 2]);
    let pages = allocate(&store, &log, 90).unwrap();
    write_all(&store, &log, &pages);
    let of_tree = |tree: u32| store.load_by_tree().unwrap().trees.get(&tree).copied().unwrap_or_default();
    assert_eq!((of_tree(1).writes, of_tree(2).writes, of_tree(1).reads), (30, 30, 0));
    let first: Vec<PageId> = pages.iter().copied().filter(|page| tree_of(*page) == 2).take(5).collect();
    for page in &first {
        read(&store, *page).unwrap();
    }
    assert_eq!((of_tree(1).reads, of_tree(2).reads), (0, 5));
    assert_eq!(store.take_at_once().reads, 1);
    for _ in read_as_they_come(&store, &first) {}
    assert_eq!((of_tree(1).reads, of_tree(2).reads, store.take_at_once().reads), (0, 10, 5));
    assert_eq!(store.take_at_once().reads, 0);
    store.set_codes_of_trees(BTreeMap::from([(1, 1)])).unwrap();
    assert_eq!(move_all(&store), 0);
    assert_eq!(store.statistics().images_moved, 30);
    assert_eq!((of_tree(1).reads, of_tree(1).writes), (0, 30));
}

/// Cause: a thread chose a group to learn, another cut it off, and that the array had no code for
/// it was taken for damage. Effect: the first one noted what was free beyond the last group, and
/// panicked.
#[test]
fn a_group_that_was_cut_off_since_it_was_chosen_is_not_learned() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let store = create(device.clone(), &TestLog::new());
    store.attach_codes(Arc::new(AsLongAs(device)));
    let gone = store.state.lock().space.groups();
    store.learn(gone).unwrap();
    // Nor by a thread whose reads failed before, for another reason.
    store.state.lock().space.learn(&store.geometry, gone, (0, None));
    assert_eq!(store.state.lock().space.groups(), gone);
}
