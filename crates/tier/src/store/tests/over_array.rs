//! The store over several devices: what it holds survives as many of them as it may lose, at any
//! crash.

use super::crash::{Medium, run_over};
use super::delta_damage::{AT_ONCE, rig_over};
use super::harness::*;
use super::model::Model;
use crate::error::TierErrorKind;
use crate::store::geometry::Slot;
use crate::store::meta_page::MetaId;
use crate::store::{Journal, judge, length, shape};
use firndb_array::testing::Notes;
use firndb_array::{Array, ArrayOptions, Code, MemberState, MemberToOpen};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_device::{
    AbsentDevice, AlignedBuf, Calls, CrashPlan, Device, DeviceError, DeviceErrorKind, Durability, FaultPlan,
    Faulty, Fill, MemoryDevice,
};

fn options(keeper: &Arc<Notes>) -> ArrayOptions {
    let hides_late_reads = true;
    ArrayOptions {
        database: DATABASE,
        judge,
        length,
        keeper: keeper.clone(),
        threads: false,
        hides_late_reads,
    }
}

pub(super) fn array(code: Code, devices: Vec<Arc<dyn Device>>) -> (Arc<Array>, Arc<Notes>) {
    let keeper = Arc::new(Notes::default());
    let shape = shape(PAGE_SIZE, LAYOUT).unwrap();
    (Arc::new(Array::create(devices, code, code, shape, options(&keeper)).unwrap()), keeper)
}

pub(super) fn open(devices: Vec<Arc<dyn Device>>) -> Result<Array, DeviceError> {
    let found =
        devices.into_iter().map(|device| MemberToOpen { device, incarnation: 1, state: MemberState::Active });
    Array::open(found.collect(), options(&Arc::default()))
}

fn give_up(array: &Array, member: usize) -> bool {
    array.give_up(member, || Ok::<(), DeviceError>(())).unwrap()
}

/// Codes of four members, and of three.
const CODES: [(usize, usize, usize); 5] = [(1, 2, 3), (2, 3, 3), (3, 4, 4), (2, 4, 4), (1, 1, 2)];

fn members(of: usize) -> Vec<Arc<MemoryDevice>> {
    (0..of).map(|member| Arc::new(MemoryDevice::new(&format!("member {member}")))).collect()
}

fn lost_device(member: usize) -> Arc<dyn Device> {
    let why = DeviceError::new(DeviceErrorKind::Unusable, format!("member {member} was unplugged"));
    Arc::new(AbsentDevice::new(&format!("member {member}"), why))
}

/// An array of which members are lost with the power, or later.
struct Members {
    code: Code,
    of: usize,
    lost: Vec<usize>,
    opened: usize,
}

impl Medium for Members {
    fn make(&self, plan: &CrashPlan) -> Arc<dyn Device> {
        let devices = (0..self.of).map(|member| plan.device(&format!("member {member}")) as Arc<dyn Device>);
        array(self.code, devices.collect()).0
    }

    fn open(&mut self, left: &[Arc<MemoryDevice>], again: bool, rng: &mut Rng) -> Arc<dyn Device> {
        if !again {
            self.lost.clear();
        }
        let most = self.code.spare() as u64;
        let lost = rng.below(most + 1).max(self.lost.len() as u64);
        while (self.lost.len() as u64) < lost {
            let member = rng.below(self.of as u64) as usize;
            if !self.lost.contains(&member) {
                self.lost.push(member);
            }
        }
        self.opened += 1;
        let mut devices: Vec<Arc<dyn Device>> = left.iter().map(|it| it.clone() as Arc<dyn Device>).collect();
        self.lost.iter().for_each(|member| devices[*member] = lost_device(*member));
        Arc::new(open(devices).unwrap())
    }
}

#[test]
fn a_power_cut_and_lost_members_leave_the_pages_of_the_durable_log() {
    for (seed, (needed, written, of)) in CODES.into_iter().enumerate() {
        let code = Code::new(needed, written).unwrap();
        let mut members = Members { code, of, lost: Vec::new(), opened: 0 };
        run_over(&mut members, seed as u64, 100, 12);
        assert!(members.opened > 100, "{} images", members.opened);
    }
}

#[test]
fn the_store_does_what_a_map_does_over_members_that_come_and_go() {
    for (seed, (needed, written, of)) in CODES.into_iter().enumerate() {
        let code = Code::new(needed, written).unwrap();
        let bases = members(of);
        let (array, keeper) = array(code, bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect());
        let mut model = Model::new(seed as u64, array.clone(), 300);
        let mut rng = Rng::new(seed as u64);
        let mut incarnation = 1;
        for step in 0..600 {
            model.step();
            if step % 97 == 96 {
                model.crash();
            }
            if step % 150 == 149 && code.spare() > 0 {
                // One is lost, and another device takes its place while work goes on.
                let member = rng.below(of as u64) as usize;
                assert!(give_up(&array, member), "it is spare");
                (0..20).for_each(|_| model.step());
                incarnation += 1;
                let fresh: Arc<dyn Device> = Arc::new(MemoryDevice::new("fresh"));
                array.replace(member, fresh, incarnation).unwrap();
                array.scrub_before_groups().unwrap();
                for group in 0..array.groups() {
                    model.store.rebuild_group(&array, member, group).unwrap();
                    model.step();
                }
                array.sync_rebuilt(member).unwrap();
                array.finish_rebuilding(member);
            }
            if step % 61 == 60 {
                compare(&model.store, &model.pages);
            }
        }
        assert!(keeper.struck.lock().is_empty() && keeper.repaired.lock().is_empty());
        // All that is left must do without the first members, which were rebuilt or not.
        (0..code.spare()).for_each(|member| assert!(give_up(&array, member)));
        assert!(!give_up(&array, code.spare()), "the others are not enough");
        compare(&model.store, &model.pages);
        let report = model.store.check(true, &mut |_| {}).unwrap();
        assert_eq!(report.damage, Vec::<String>::new());
    }
}

#[test]
fn rot_is_mended_by_reading_and_more_of_it_is_damage() {
    let code = Code::new(2, 4).unwrap();
    let bases = members(4);
    let (array, keeper) = array(code, bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect());
    let log = TestLog::new();
    let store = create(array.clone(), &log);
    let pages = allocate(&store, &log, 40).unwrap();
    let versions: Vec<_> = write(&store, &log, &pages).into_iter().map(|(version, _)| version).collect();
    // Everything of two members but their labels.
    let rot = |member: usize| {
        let base = &bases[member];
        let start = 128 << 10;
        let junk = vec![0x5a; (base.len() - start) as usize];
        base.write(start, &junk, Durability::Durable).unwrap();
    };
    rot(1);
    rot(3);
    for way in crate::testing::small_store::WAYS {
        for ((page, version), read) in pages.iter().zip(&versions).zip(way(&store, &pages)) {
            assert_eq!(read.unwrap().1, image(*page, *version));
        }
    }
    let repaired = keeper.repaired.lock().len();
    assert!(repaired >= 60, "two of four fragments of most of 40 pages: {repaired}");
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    rot(0);
    rot(1);
    rot(2);
    let failed = read(&store, pages[3]).unwrap_err();
    assert_eq!(failed.kind, TierErrorKind::Damaged, "{failed}");
}

/// Cause: the fragments that gave one slot of a delta page were taken for right as a whole. Effect:
/// a scrub wrote the rot in another slot over the only good copy of that.
#[test]
fn a_slot_that_is_right_does_not_make_its_delta_page_so() {
    for rotten in 0..2 {
        let bases = members(2);
        let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
        let (array, keeper) = array(Code::new(1, 2).unwrap(), devices);
        let rig = rig_over(array.clone(), bases[rotten].clone(), AT_ONCE, 20);
        let changed = rig.change(&rig.pages[..6], 40);
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        let mut at = 0;
        while bytes[..8] != *b"FIRNDLTA" {
            at += PAGE_SIZE as u64;
            rig.device.read(at, &mut bytes).unwrap();
        }
        // In the last slot.
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[last] ^= 1;
        rig.device.write(at, &bytes, Durability::Durable).unwrap();
        let found = rig.store.scrub(&array, &mut |_| {}).unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        assert_eq!(keeper.repaired.lock().len(), 1);
        assert!(give_up(&array, 1 - rotten), "the one that was rotten is left");
        for (page, changed) in rig.pages.iter().zip(&changed) {
            assert_eq!(rig.read(*page).as_ref(), Ok(changed));
        }
    }
}

/// Cause: a scrub began with group 0. Effect: a rotten copy of header, totals or the first blocks
/// of the map log stayed, unless it was the one that is read.
#[test]
fn a_scrub_mends_metadata_before_the_first_group() {
    let bases = members(3);
    let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
    let (array, keeper) = array(Code::new(1, 2).unwrap(), devices);
    let store = create(array.clone(), &TestLog::new());
    let (labels, totals) = (128 << 10, 128 << 10);
    bases[1].write(labels + totals, &[0x5a; 1024], Durability::Durable).unwrap();
    let found = store.scrub(&array, &mut |_| {}).unwrap();
    assert_eq!((found.faults, keeper.repaired.lock().len()), (0, 1));
    assert!(keeper.repaired.lock()[0].contains("metadata at offset 131072"));
    store.scrub(&array, &mut |_| {}).unwrap();
    assert_eq!(keeper.repaired.lock().len(), 1, "it is right now");
}

#[test]
fn a_full_member_is_an_error_of_reserving_and_not_of_writing() {
    let code = Code::new(1, 2).unwrap();
    let small: Arc<dyn Device> = Arc::new(MemoryDevice::with("small", 512, 600_000));
    let large: Arc<dyn Device> = Arc::new(MemoryDevice::new("large"));
    let (array, _) = array(code, vec![large, small]);
    let log = TestLog::new();
    let store = create(array.clone(), &log);
    let mut all = Vec::new();
    let full = loop {
        match allocate(&store, &log, 20) {
            Ok(pages) => all.extend(pages),
            Err(error) => break error,
        }
        assert!(all.len() < 10_000);
    };
    assert_eq!(full.kind, TierErrorKind::Full);
    assert!(write(&store, &log, &all).iter().all(|(_, outcome)| outcome.is_ok()));
    assert!(array.grow(array.len() + 1, Fill::Reserved).is_err());
}

/// Cause: a slot that one choice of fragments gave was taken for that of a later choice. Effect: an
/// old delta page, whole as it was, went over rot and over the good copy.
#[test]
fn an_old_delta_page_beside_rot_is_not_taken_for_the_new_one() {
    for (rotten, stale) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let bases = members(3);
        let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
        let (array, _) = array(Code::new(1, 3).unwrap(), devices);
        let rig = rig_over(array.clone(), bases[rotten].clone(), AT_ONCE, 20);
        // Until a place is used again.
        let mut seen = std::collections::BTreeMap::new();
        let (changed, old, new) = loop {
            let changed = rig.change(&rig.pages[..6], 40);
            let at = rig.store.geometry.place_offset(rig.slot(rig.pages[0]).unwrap().place);
            let mut new = AlignedBuf::zeroed(PAGE_SIZE);
            array.read(at, &mut new).unwrap();
            if let Some(old) = seen.insert(at, new.to_vec()) {
                break (changed, old, new);
            }
        };
        let replace = |base: &MemoryDevice, with: &[u8]| {
            let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
            let mut at = 0;
            while bytes[..] != new[..] {
                at += PAGE_SIZE as u64;
                base.read(at, &mut bytes).unwrap();
            }
            bytes.copy_from_slice(with);
            base.write(at, &bytes, Durability::Durable).unwrap();
        };
        let mut rot = new.to_vec();
        *rot.iter_mut().rfind(|byte| **byte != 0).unwrap() ^= 1;
        replace(&bases[rotten], &rot);
        replace(&bases[stale], &old);
        assert_eq!(rig.store.scrub(&array, &mut |_| {}).unwrap().damage, Vec::<String>::new());
        for (page, changed) in rig.pages.iter().zip(&changed) {
            assert_eq!(rig.read(*page).as_ref(), Ok(changed), "{rotten} is rotten, {stale} old");
        }
    }
}

/// Cause: copies of metadata were compared once, and then the first whole one was taken. Effect: if
/// a write of a map page had been lost, its pages were damaged until the next opening; of a bitmap
/// page, places in use were written over.
#[test]
fn a_lost_write_of_one_copy_of_metadata_is_made_up_for() {
    for (id, member) in [(MetaId::Map(0), 0), (MetaId::Bitmap(0), 0), (MetaId::Bitmap(0), 1)] {
        let bases = members(2);
        let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
        let (array, _) = array(Code::new(1, 2).unwrap(), devices);
        let log = TestLog::new();
        let store = create(array, &log);
        let pages = allocate(&store, &log, 2000).unwrap();
        write(&store, &log, &pages);
        sweep(&store);
        let len = store.geometry.meta_bytes;
        // Behind both labels, and both slots that say the group's code.
        let before_group = (128 << 10) + (8 << 10);
        let slots = [Slot::A, Slot::B].map(|slot| before_group + store.geometry.meta_offset(id, slot));
        let read_slots = || {
            slots.map(|at| {
                let mut bytes = AlignedBuf::zeroed(len);
                bases[member].read(at, &mut bytes).unwrap();
                bytes
            })
        };
        let before = read_slots();
        let (first, others): (Vec<_>, Vec<_>) =
            pages.iter().partition(|page| store.geometry.map_of_page(**page) == MetaId::Map(0));
        write(&store, &log, &first);
        sweep(&store);
        assert!(read_slots().iter().zip(&before).any(|(now, before)| now[..] != before[..]));
        let _ = store.pin(&[id]);
        let newest = store.state.lock().cache.get(id).unwrap().body.to_vec();
        for (at, before) in slots.iter().zip(&before) {
            bases[member].write(*at, before, Durability::Durable).unwrap();
        }
        // Others are read until it is evicted.
        others.iter().for_each(|page| _ = read(&store, *page).unwrap());
        assert!(!store.state.lock().cache.contains(id), "{id:?}");
        let _pins = store.pin(&[id]);
        assert!(
            store.state.lock().cache.get(id).unwrap().body[..] == newest[..],
            "{id:?} of member {member}"
        );
        read(&store, first[0]).unwrap();
    }
}

/// Cause: a rotten fragment counted as mended, whatever became of its writing anew. Effect: a scrub
/// found nothing, and one device less could be lost than the array promises.
#[test]
fn a_fragment_that_cannot_be_written_anew_is_a_fault_of_the_scrub() {
    let plan = FaultPlan::new(1);
    let bases = members(2);
    let full: Arc<dyn Device> = Arc::new(Faulty::new(bases[1].clone(), &plan));
    let (array, _) = array(Code::new(1, 2).unwrap(), vec![bases[0].clone(), full]);
    let log = TestLog::new();
    let store = create(array.clone(), &log);
    let pages = allocate(&store, &log, 40).unwrap();
    write(&store, &log, &pages);
    assert_eq!(store.scrub(&array, &mut |_| {}).unwrap().faults, 0);
    let (_, image) = read(&store, pages[7]).unwrap();
    let (mut bytes, mut at) = (AlignedBuf::zeroed(PAGE_SIZE), 0);
    while bytes[..] != image[..] {
        at += PAGE_SIZE as u64;
        bases[1].read(at, &mut bytes).unwrap();
    }
    bases[1].write(at, &[0xa5; PAGE_SIZE], Durability::Durable).unwrap();
    plan.fail_from(0, Calls::Writes, DeviceErrorKind::NoSpace);
    let found = store.scrub(&array, &mut |_| {}).unwrap();
    assert_eq!((found.faults, array.unmended()), (1, 1), "{:?}", found.damage);
    plan.heal();
    assert_eq!(store.scrub(&array, &mut |_| {}).unwrap().faults, 0);
    assert_eq!(array.unmended(), 1, "it is mended now");
}

/// Cause: an error of the new member was taken for one of the others, unless it struck it. Effect:
/// a full device was declared whole, and pages were damaged beside their good copies.
#[test]
fn a_new_member_without_space_ends_the_filling_and_fails_no_read() {
    let plan = FaultPlan::new(1);
    let bases = members(2);
    let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
    let (array, _) = array(Code::new(1, 2).unwrap(), devices);
    let log = TestLog::new();
    let store = create(array.clone(), &log);
    let pages = allocate(&store, &log, 40).unwrap();
    write(&store, &log, &pages);
    assert!(give_up(&array, 1));
    let fresh: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(MemoryDevice::new("fresh")), &plan));
    array.replace(1, fresh, 2).unwrap();
    assert_eq!(array.rebuild_before_groups(1), Ok(0));
    plan.fail_from(0, Calls::Writes, DeviceErrorKind::NoSpace);
    let full = store.rebuild_group(&array, 1, 0).unwrap_err();
    assert_eq!(full.kind, TierErrorKind::Full);
    // What cannot be made anew is known all the same.
    array.finish_rebuilding(1);
    for way in crate::testing::small_store::WAYS {
        assert!(way(&store, &pages).iter().all(Result::is_ok));
    }
}

/// Cause: what says that a page is lost has another checksum than pages. Effect: rot in one copy of
/// it made the loss damage, for reads and scrubs.
#[test]
fn a_notice_of_a_lost_page_is_mended_as_pages_are() {
    let bases = members(2);
    let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
    let (array, keeper) = array(Code::new(1, 2).unwrap(), devices);
    let log = TestLog::new();
    let store = create(array.clone(), &log);
    let pages = allocate(&store, &log, 4).unwrap();
    write(&store, &log, &pages);
    let version = log.tick();
    log.flush(log.end()).unwrap();
    assert!(store.write_notice(pages[0], version, "it was lost").unwrap());
    let mut bytes = AlignedBuf::zeroed(512);
    let mut at = 0;
    while !bytes.starts_with(b"FIRN LOST PAGE: ") {
        at += 512;
        bases[0].read(at, &mut bytes).unwrap();
    }
    bytes[20] ^= 1;
    bases[0].write(at, &bytes, Durability::Durable).unwrap();
    let found = store.scrub(&array, &mut |_| {}).unwrap();
    assert_eq!((found.damage, keeper.repaired.lock().len()), (Vec::new(), 1));
    for _ in 0..8 {
        assert!(store.has_lost(pages[0]));
    }
}
