//! Slots of groups where devices keep what was cut off, lose writes, and tear whole sectors.

use super::groups::{KINDS, SLOT, code_of, rig_of, set_slots, slots};
use super::*;
use crate::slot::Slot;
use firndb_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use firndb_device::{Counting, Fault};

/// As a raw device, which keeps its length and content. Slots of new groups take a while.
#[derive(Debug)]
struct Raw(Arc<MemoryDevice>);

impl Device for Raw {
    forward!(0: info, len, read, sync, grow, discard);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if data.len() == 2 * SLOT && durability == Durability::Later {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.0.write(offset, data, durability)
    }
    fn shrink(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn opened(
    devices: impl Iterator<Item = Arc<dyn Device>>,
    length: fn(DatabaseId, &dyn Device) -> Option<u64>,
) -> Array {
    let found = devices.map(|device| MemberToOpen { device, incarnation: 1, state: MemberState::Active });
    Array::open(found.collect(), ArrayOptions { length, ..options(&Arc::default(), false) }).unwrap()
}

/// A scrub that compared the slots which a former group had left, while those of the new one were
/// written, took the former code for the new group's, or wrote it over the new one.
#[test]
fn a_scrub_beside_growth_does_not_revive_the_code_of_a_group_that_was_cut_off() {
    let bases: Vec<_> = (0..3).map(|at| Arc::new(MemoryDevice::new(&format!("m{at}")))).collect();
    let raw = || bases.iter().map(|base| Arc::new(Raw(base.clone())) as Arc<dyn Device>);
    let code = code_of((1, 2));
    let keeper = Arc::new(Notes::default());
    let array = Array::create(raw().collect(), code, code, SMALL, options(&keeper, false)).unwrap();
    array.grow(SMALL.group_start(2), Fill::Reserved).unwrap();
    let stop = AtomicBool::new(false);
    let (scrubs, mut cycles, mut unlike) = (AtomicUsize::new(0), 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                array.scrub_slots(1).unwrap();
                scrubs.fetch_add(1, Ordering::Relaxed);
            }
        });
        while cycles < 300 || scrubs.load(Ordering::Relaxed) < 300 {
            array.set_code_of_group(1, 1).unwrap();
            array.shrink(SMALL.group_start(1)).unwrap();
            array.grow(SMALL.group_start(2), Fill::Reserved).unwrap();
            array.sync().unwrap();
            let known = array.code_of_group(1).unwrap();
            let found = opened(raw(), |_, _| Some(SMALL.group_start(2))).code_of_group(1).unwrap();
            unlike += u64::from((known, found) != (0, 0));
            cycles += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((unlike, keeper.repaired.lock().len()), (0, 0), "of {cycles}");
}

/// Cause: the slots of a group that was cut off and grown again began with sequence 1. Effect: a
/// raw device that lost their write had the former ones, which were newer, and the next opening
/// took those.
#[test]
fn a_lost_write_of_new_slots_does_not_revive_the_code_of_a_group_that_was_cut_off() {
    for ((base, widest, members), lost) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let bases: Vec<_> = (0..members).map(|at| Arc::new(MemoryDevice::new(&format!("m{at}")))).collect();
        let raw = || bases.iter().map(|base| Arc::new(Raw(base.clone())) as Arc<dyn Device>);
        let plan = FaultPlan::new(1);
        let mut devices: Vec<_> = raw().collect();
        let options = options(&Arc::default(), false);
        let shape = Map::of_new(SMALL, code_of(base), code_of(widest), members, 512);
        let Some(holder) = shape.holders(SMALL.group_start(1)).nth(lost) else { continue };
        devices[holder] = Arc::new(Faulty::new(devices[holder].clone(), &plan));
        let array = Array::create(devices, code_of(base), code_of(widest), SMALL, options).unwrap();
        if array.may_lose() == 0 {
            continue;
        }
        array.grow(SMALL.group_start(2), Fill::Reserved).unwrap();
        for round in 0..3 {
            array.set_code_of_group(1, 1).unwrap();
            array.shrink(SMALL.group_start(1)).unwrap();
            plan.one_in(1, Calls::Writes, Fault::Lost);
            array.grow(SMALL.group_start(2), Fill::Reserved).unwrap();
            array.sync().unwrap();
            assert!(plan.fired() > round, "a write was lost");
            plan.heal();
            let found = opened(raw(), |_, _| Some(SMALL.group_start(2))).code_of_group(1);
            assert_eq!(found, Ok(0), "{base:?} {widest:?}, round {round}");
        }
    }
}

/// What a drive that reads and writes sectors of 4096 bytes for blocks of 512 may tear.
#[test]
fn a_sector_lost_on_all_members_costs_no_code() {
    for (kind, sector) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let mut rig = rig_of(kind);
        rig.array.set_code_of_group(1, 1).unwrap();
        rig.write_page(1, 3);
        let at = rig.array.map.slots(1) + 4096 * sector;
        for holder in rig.array.map.holders(SMALL.group_start(1)) {
            rig.bases[holder].write(at, &AlignedBuf::zeroed(4096), Durability::Durable).unwrap();
        }
        rig.reopen(&vec![1; kind.2]).unwrap();
        assert_eq!(rig.array.code_of_group(1), Ok(1), "{kind:?}, sector {sector}");
        rig.check_all();
    }
}

/// Every member lost the writes of a change, or has slots that say another code for other reasons:
/// pages were written as the code in memory says.
#[test]
fn slots_that_contradict_what_is_known_are_damage_and_mended() {
    for kind in [KINDS[0], KINDS[2], KINDS[6]] {
        let mut rig = rig_of(kind);
        let holders: Vec<usize> = rig.array.map.holders(SMALL.group_start(1)).collect();
        let [old, newer] =
            [1, 71].map(|sequence| Slot { sequence, code: rig.array.code() }.both(ID, 1, SLOT as u64));
        for (round, (wrong, next)) in [(&old, 3), (&newer, 73)].into_iter().enumerate() {
            rig.array.set_code_of_group(1, 1).unwrap();
            rig.write_page(1, 3);
            holders.iter().for_each(|holder| set_slots(&rig, *holder, 1, wrong));
            // What is known stays so while it cannot be written.
            if rig.array.may_lose() == 0 {
                rig.faults[holders[0]].fail_from(0, Calls::Writes, DeviceErrorKind::Failed);
                rig.array.scrub_group(1).unwrap();
                assert_eq!(
                    (rig.array.code_of_group(1), &slots(&rig, holders[0], 1)[..]),
                    (Ok(1), &wrong[..])
                );
                rig.faults[holders[0]].heal();
            }
            assert_eq!(rig.keeper.repaired.lock().len(), round * holders.len());
            rig.array.scrub_group(1).unwrap();
            assert_eq!(rig.array.code_of_group(1), Ok(1));
            assert_eq!(rig.keeper.repaired.lock().len(), (round + 1) * holders.len());
            let said = rig.keeper.repaired.lock().pop().unwrap();
            assert!(said.contains("the code of group 1 at offset") && said.contains("was wrong"), "{said}");
            rig.keeper.repaired.lock().push(said);
            let right = Slot { sequence: next, code: rig.array.codes()[1] }.both(ID, 1, SLOT as u64);
            assert!(holders.iter().all(|holder| slots(&rig, *holder, 1)[..] == right[..]), "{kind:?}");
            rig.reopen(&vec![1; kind.2]).unwrap();
            assert_eq!(rig.array.code_of_group(1), Ok(1), "{kind:?}");
            rig.check_all();
        }
        assert!(rig.keeper.struck.lock().is_empty());
    }
}

#[test]
fn threads_that_wait_for_a_code_do_not_read_it_anew() {
    let rig = rig_of(KINDS[0]);
    let counted: Vec<_> = rig.bases.iter().map(|base| Arc::new(Counting::new(base.clone()))).collect();
    let array = opened(counted.iter().map(|device| device.clone() as Arc<dyn Device>), |_, _| None);
    let reads = || counted.iter().map(|device| device.snapshot().reads.ops).sum::<u64>();
    let before = reads();
    std::thread::scope(|scope| {
        let lock = array.group_codes.lock_slots();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let array = &array;
                scope.spawn(move || match thread % 2 {
                    0 => array.code_of_group(1).unwrap(),
                    _ => array.layout_to_write(1).unwrap().index,
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(reads(), before, "they wait");
        drop(lock);
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 0));
    });
    assert_eq!(reads() - before, 2, "each copy once");
    array.scrub_group(1).unwrap();
    assert!(reads() - before >= 4, "a scrub reads in any case");
}

/// A crash between the header that counts a group less and the members being cut off: they do not
/// grow when the group comes back, and it had given back space for a narrower code.
#[test]
fn a_group_that_was_not_cut_off_takes_its_space_again() {
    let rig = rig_of(KINDS[0]);
    let narrow = rig.array.map.layouts[1];
    let base = rig.array.map.base().row_bytes;
    assert!(narrow.row_bytes < base);
    rig.array.set_code_of_group(2, 1).unwrap();
    // In the place of what was given back: it is written if it takes space again.
    let marks = page_of(1);
    let given_back = rig.array.map.rows(2) + narrow.row_bytes..rig.array.map.rows(2) + base;
    for base in &rig.bases {
        for at in given_back.clone().step_by(512) {
            base.write(at, &marks[..512], Durability::Durable).unwrap();
        }
    }
    let is_reserved = |bases: &[Arc<MemoryDevice>]| {
        bases.iter().all(|base| {
            let mut bytes = AlignedBuf::zeroed((given_back.end - given_back.start) as usize);
            base.read(given_back.start, &mut bytes).unwrap();
            bytes.iter().all(|byte| *byte == 0)
        })
    };
    for (fill, reserves) in [(Fill::Reserved, true), (Fill::Sparse, false)] {
        let left: Vec<_> = rig.bases.iter().map(|base| Arc::new(base.duplicate())).collect();
        let devices = left.iter().map(|device| device.clone() as Arc<dyn Device>);
        let array = opened(devices, |_, _| Some(SMALL.group_start(2)));
        assert!(!is_reserved(&left));
        array.grow(SMALL.group_start(3), fill).unwrap();
        assert_eq!((array.code_of_group(2), is_reserved(&left)), (Ok(0), reserves));
    }
    // A member that is full: the group does not come back, and does later.
    let (devices, faults): (Vec<_>, Vec<_>) = rig.bases.iter().map(faulty).unzip();
    let array = opened(devices.into_iter(), |_, _| Some(SMALL.group_start(2)));
    faults[1].fail_nth(0, Calls::Writes, DeviceErrorKind::NoSpace);
    let full = array.grow(SMALL.group_start(3), Fill::Reserved).unwrap_err();
    assert_eq!(full.kind, DeviceErrorKind::NoSpace);
    array.grow(SMALL.group_start(3), Fill::Reserved).unwrap();
    assert_eq!((array.code_of_group(2), is_reserved(&rig.bases)), (Ok(0), true));
}
