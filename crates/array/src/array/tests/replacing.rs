//! Members that are replaced and filled, beside everything that may go wrong meanwhile.

use super::*;
use firndb_device::{Counting, Fault, FaultRule, When};

fn failed() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, "it failed")
}

pub(super) fn give_up(rig: &Rig, member: usize) {
    assert_eq!(rig.array.give_up(member, || Ok::<(), DeviceError>(())), Ok(true));
}

pub(super) fn state(rig: &Rig, member: usize) -> MemberState {
    rig.array.status()[member].state
}

/// Cause: a failure named the member, not its device. Effect: a write to the old device, which
/// failed late, struck the new one.
#[test]
fn a_late_failure_of_the_old_device_is_not_the_new_ones() {
    let rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
    let old = rig.array.members[0].device();
    give_up(&rig, 0);
    rig.array.replace(0, Arc::new(MemoryDevice::new("new")), 2).unwrap();
    rig.array.strike(0, &old, &failed()).unwrap();
    assert_eq!(state(&rig, 0), MemberState::Rebuilding);
    assert!(rig.keeper.struck.lock().is_empty());
    let new = rig.array.members[0].device();
    rig.array.strike(0, &new, &failed()).unwrap();
    assert_eq!((state(&rig, 0), &rig.keeper.struck.lock()[..]), (MemberState::Struck, &[0][..]));
}

/// Cause: a member found missing stayed to be recorded while another device got its place. Effect:
/// the first write struck that one where states are durable, and filling it never ended.
#[test]
fn a_missing_member_that_is_replaced_is_not_recorded_as_missing() {
    let mut rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
    rig.bases[0] = Arc::new(MemoryDevice::new("blank"));
    rig.reopen(&[1; 2]).unwrap();
    give_up(&rig, 0);
    rig.write_some(1);
    assert!(rig.keeper.struck.lock().is_empty());
}

/// Cause: `shrink` took no range. Effect: a scrub beside it took what was cut off meanwhile for
/// unreadable, and a member that refused to be written there was struck.
#[test]
fn nothing_is_cut_off_while_it_is_mended() {
    let rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
    let (unit, cut) = (SMALL.group_start(2)..SMALL.group_start(2) + 512, SMALL.group_start(1));
    std::thread::scope(|scope| {
        let taken = rig.array.ranges.take_one(unit.clone());
        let shrinking = scope.spawn(|| rig.array.shrink(cut));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rig.array.len(), SMALL.group_start(GROUPS));
        rig.array.make_taken_alike(&unit).unwrap();
        drop(taken);
        shrinking.join().unwrap().unwrap();
    });
    assert_eq!(rig.array.make_alike(&unit).unwrap_err().kind, DeviceErrorKind::OutOfRange);
    rig.array.scrub_group(2).unwrap();
    assert!(rig.keeper.struck.lock().is_empty());
}

/// Cause: a member was filled with what some of the others gave, and what was mended meanwhile was
/// not written to it. Effect: rot was copied to it, and nobody knew.
#[test]
fn rot_is_noticed_while_a_member_is_filled_and_mended_on_it_too() {
    let mut rig = Rig::new(Code::new(1, 3).unwrap(), 3, false);
    rig.write_some(40);
    let (&offset, &seed) = rig.pages.iter().next().unwrap();
    let [Area::Places { group, places }] = &SMALL.areas(offset..offset + PAGE as u64)[..] else { panic!() };
    let rotten = rig.array.map.base().cells.cell(places.start, 0);
    let at = rig.array.map.row(rig.array.map.base(), *group, rotten.row);
    let mut bytes = AlignedBuf::zeroed(PAGE);
    rig.bases[rotten.member].read(at, &mut bytes).unwrap();
    bytes[100] ^= 1;
    rig.bases[rotten.member].write(at, &bytes, Durability::Durable).unwrap();
    let filled = (rotten.member + 1) % 3;
    give_up(&rig, filled);
    let new = Arc::new(MemoryDevice::new("new"));
    rig.array.replace(filled, new.clone(), 2).unwrap();
    let used: Vec<u64> = rig.pages.keys().copied().collect();
    let is_used = |place: u64| used.contains(&SMALL.place_offset(*group, place));
    assert_eq!(rig.array.rebuild_group(filled, *group, &mut { is_used }), Ok(1));
    let (wanted, mut page) = (page_of(seed), AlignedBuf::zeroed(PAGE));
    assert!(rig.array.read_otherwise(offset, &mut page, &mut |page| page == &wanted[..]));
    let number =
        (0..3).find(|number| rig.array.map.base().cells.cell(places.start, *number).member == filled);
    let own = rig.array.map.base().cells.cell(places.start, number.unwrap());
    new.read(rig.array.map.row(rig.array.map.base(), *group, own.row), &mut bytes).unwrap();
    assert_eq!(bytes[..PAGE], wanted[..]);
}

/// Cause: a unit of metadata that no other member could give ended the filling. Effect: the store
/// refused work, after each opening anew. And zeros would be taken for one that was never written.
#[test]
fn metadata_that_the_others_cannot_give_is_no_unit_on_the_new_member() {
    let mut rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
    let at = SMALL.group_start(1);
    rig.array.write(at, &unit(7), Durability::Durable).unwrap();
    give_up(&rig, 0);
    let new = Arc::new(MemoryDevice::new("new"));
    rig.array.replace(0, new.clone(), 2).unwrap();
    // It answers when it is asked who it is, and does not give the unit, with others or alone.
    // The first read is of slots.
    for nth in [1, 2, 4] {
        rig.faults[1].fail_nth(nth, Calls::Reads, DeviceErrorKind::Failed);
    }
    assert_eq!(rig.array.rebuild_group(0, 1, &mut |_| false), Ok(1));
    rig.array.sync_rebuilt(0).unwrap();
    rig.array.finish_rebuilding(0);
    rig.faults[1].fail_from(0, Calls::Reads, DeviceErrorKind::Failed);
    let mut found = AlignedBuf::zeroed(512);
    assert_eq!(rig.array.read(at, &mut found).unwrap_err().kind, DeviceErrorKind::Failed);
    assert!(rig.keeper.struck.lock().is_empty(), "its reads fail, and it has the unit perhaps");
    rig.bases[0] = new;
    rig.reopen(&[2, 1]).unwrap();
    rig.array.read(at, &mut found).unwrap();
    assert_eq!(found[..], unit(7)[..]);
}

/// Memory of which a range cannot be read.
#[derive(Debug)]
struct Unreadable(Arc<MemoryDevice>, std::ops::Range<u64>);

impl Device for Unreadable {
    forward!(0: info, len, write, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        match offset < self.1.end && self.1.start < offset + buf.len() as u64 {
            true => Err(failed()),
            false => self.0.read(offset, buf),
        }
    }
}

#[test]
fn pages_that_the_others_cannot_give_are_counted_when_a_member_is_filled() {
    for (places, shared) in [(0..1, 1), (3..6, 3), (0..SMALL.places, SMALL.places)] {
        let rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
        let rows = rig.array.map.row(rig.array.map.base(), 0, places.start)
            ..rig.array.map.row(rig.array.map.base(), 0, places.end);
        rig.array.members[1].set_device(Arc::new(Unreadable(rig.bases[1].clone(), rows)));
        give_up(&rig, 0);
        rig.array.replace(0, Arc::new(MemoryDevice::new("fresh")), 2).unwrap();
        assert_eq!(rig.array.rebuild_group(0, 0, &mut |_| true), Ok(shared), "{places:?}");
        assert_eq!(rig.array.rebuild_group(0, 0, &mut |place| !places.contains(&place)), Ok(0));
    }
}

/// Cause: what a device that failed altogether could not give was left out as if it were damaged.
/// Effect: the filling ended, and the next failed write struck the device with the only copy.
#[test]
fn nothing_is_left_out_while_another_member_does_not_answer() {
    for shape in [(1, 2, 3), (2, 3, 3)] {
        let mut rig = Rig::new(Code::new(shape.0, shape.1).unwrap(), shape.2, false);
        rig.write_some(20);
        give_up(&rig, 0);
        rig.array.replace(0, Arc::new(MemoryDevice::new("new")), 2).unwrap();
        rig.faults[1].fail_from(0, Calls::Reads, DeviceErrorKind::Failed);
        for group in 0..GROUPS {
            let failed = rig.array.rebuild_group(0, group, &mut |_| true).unwrap_err();
            assert_eq!((failed.kind, state(&rig, 0)), (DeviceErrorKind::Failed, MemberState::Rebuilding));
        }
        rig.faults[1].heal();
        for group in 0..GROUPS {
            assert_eq!(rig.array.rebuild_group(0, group, &mut |_| true), Ok(0));
        }
        rig.array.sync_rebuilt(0).unwrap();
        rig.array.finish_rebuilding(0);
        rig.faults[1].fail_from(0, Calls::Any, DeviceErrorKind::Failed);
        rig.check_all();
    }
}

/// Cause: a copy that could not be mended failed the read. Effect: metadata could not be read,
/// though a whole copy was there; and a member that was full was struck.
#[test]
fn a_copy_that_cannot_be_mended_fails_no_read() {
    for kind in [DeviceErrorKind::Failed, DeviceErrorKind::NoSpace] {
        let mut rig = Rig::new(Code::new(2, 3).unwrap(), 3, false);
        let at = SMALL.group_start(1);
        rig.array.write(at, &unit(7), Durability::Durable).unwrap();
        let holders: Vec<usize> = rig.array.map.holders(at).collect();
        let spare = (0..3).find(|member| !holders.contains(member)).unwrap();
        give_up(&rig, spare);
        rig.bases[holders[0]].write(rig.array.map.meta(at), &unit(6), Durability::Durable).unwrap();
        rig.reopen(&[1; 3]).unwrap();
        rig.faults[holders[0]].fail_from(0, Calls::Writes, kind);
        let mut found = AlignedBuf::zeroed(512);
        for _ in 0..2 {
            rig.array.read(at, &mut found).unwrap();
            assert_eq!(found[..], unit(7)[..], "and not the other copy, the second time");
        }
        assert!(rig.keeper.struck.lock().is_empty(), "it is needed");
        assert!(rig.array.unmended() > 0);
    }
}

/// Nothing is done with a struck device any more, so it can be opened anew.
#[test]
fn a_struck_device_is_dropped() {
    let mut rig = Rig::new(Code::new(1, 2).unwrap(), 2, true);
    rig.write_some(10);
    rig.check_all();
    assert!(!rig.array.release_struck(0, Arc::new(MemoryDevice::new("none"))), "it is in use");
    rig.fail(0);
    rig.write_some(3);
    assert_eq!(state(&rig, 0), MemberState::Struck);
    let device = Arc::downgrade(&rig.array.members[0].device());
    assert!(rig.array.release_struck(0, Arc::new(MemoryDevice::new("none"))));
    assert_eq!(device.strong_count(), 0);
    rig.check_all();
}

/// A crash while all grew.
#[test]
fn a_member_that_is_filled_is_made_as_long_as_the_others_or_is_missing() {
    let mut rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
    give_up(&rig, 0);
    let new = Arc::new(MemoryDevice::new("new"));
    rig.array.replace(0, new.clone(), 2).unwrap();
    rig.bases[0] = new.clone();
    rig.reopen(&[2, 1]).unwrap();
    assert_eq!(state(&rig, 0), MemberState::Rebuilding);
    let len = new.len();
    new.shrink(len - 512).unwrap();
    rig.reopen(&[2, 1]).unwrap();
    assert_eq!((state(&rig, 0), new.len()), (MemberState::Rebuilding, len));
    let full = Arc::new(MemoryDevice::with("full", 512, len - 512));
    let mut bytes = vec![0; len as usize - 512];
    new.read(0, &mut bytes).unwrap();
    full.grow(len - 512, Fill::Reserved).and_then(|()| full.write(0, &bytes, Durability::Durable)).unwrap();
    rig.bases[0] = full;
    rig.reopen(&[2, 1]).unwrap();
    assert_eq!(state(&rig, 0), MemberState::Struck);
    rig.write_some(1);
    assert_eq!(*rig.keeper.struck.lock(), [0]);
}

/// Cause: copies of metadata were taken for alike before they were written. Effect: after a write
/// that failed on one of them and struck nobody, what was read depended on the member.
#[test]
fn copies_that_a_failed_write_left_unlike_are_compared() {
    let rig = Rig::new(Code::new(1, 2).unwrap(), 2, false);
    let at = SMALL.group_start(1);
    let holders: Vec<usize> = rig.array.map.holders(at).collect();
    rig.array.write(at, &unit(1), Durability::Durable).unwrap();
    let fault = Fault::Fail(DeviceErrorKind::NoSpace);
    rig.faults[holders[1]].add(FaultRule { calls: Calls::Writes, device: None, when: When::Nth(0), fault });
    let full = rig.array.write(at, &unit(2), Durability::Durable).unwrap_err();
    assert_eq!(full.kind, DeviceErrorKind::NoSpace);
    let mut found = AlignedBuf::zeroed(512);
    rig.array.read(at, &mut found).unwrap();
    let first = found.to_vec();
    rig.fail(holders[0]);
    rig.array.read(at, &mut found).unwrap();
    assert_eq!(found[..], first[..]);
}

/// Cause: a member that has every other place was filled place by place, each read, written and
/// read again. Effect: a hundredth of the rate at which the new device could be written.
#[test]
fn a_member_is_filled_by_few_transfers_with_used_places_only() {
    for (needed, written) in [(1, 2), (3, 4), (2, 4), (2, 3)] {
        let code = Code::new(needed, written).unwrap();
        let mut rig = Rig::new(code, 4, false);
        rig.write_some(30);
        let used: Vec<u64> = rig.pages.keys().copied().collect();
        give_up(&rig, 1);
        let new = Arc::new(Counting::new(Arc::new(MemoryDevice::new("new"))));
        rig.array.replace(1, new.clone(), 2).unwrap();
        let before = new.snapshot();
        let mut own = 0;
        for group in 0..GROUPS {
            let is_used = |place: u64| used.contains(&SMALL.place_offset(group, place));
            assert_eq!(rig.array.rebuild_group(1, group, &mut { is_used }), Ok(0));
            let used = (0..SMALL.places).filter(|place| is_used(*place));
            let cells = used.flat_map(|place| (0..written).map(move |number| (place, number)));
            let cells =
                cells.filter(|(place, number)| rig.array.map.base().cells.cell(*place, *number).member == 1);
            own += cells.count() as u64;
        }
        let wrote = new.snapshot().since(&before);
        // Metadata was never written, and slots were when the device was put there.
        assert_eq!(wrote.writes.bytes, own * rig.array.map.base().fragment, "{code}");
        assert_eq!(wrote.batches, GROUPS, "{code}");
        rig.array.finish_rebuilding(1);
        give_up(&rig, 0);
        rig.check_all();
    }
}

/// What is said of members before an array is opened is what opening it finds.
#[test]
fn those_that_opening_leaves_out_are_known_before() {
    let made = |code: Code| {
        let bases: Vec<_> = (0..3).map(|at| Arc::new(MemoryDevice::new(&format!("m{at}")))).collect();
        let devices = bases.iter().map(|base| base.clone() as Arc<dyn Device>).collect();
        let array = Array::create(devices, code, code, SMALL, options(&Arc::default(), false)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        bases
    };
    let code = Code::new(1, 2).unwrap();
    let (bases, other) = (made(code), made(Code::new(2, 3).unwrap()));
    let length: fn(DatabaseId, &dyn Device) -> Option<u64> = |_, _| Some(SMALL.group_start(GROUPS));
    let cut = |bytes: u64| {
        let device = bases[1].duplicate();
        device.shrink(bytes).unwrap();
        device
    };
    let len = bases[1].len();
    for (why, second) in [
        ("", bases[1].duplicate()),
        ("is no member of an array", MemoryDevice::new("m1")),
        ("is member 2 of 3, not 1 of 3", bases[2].duplicate()),
        ("is cut otherwise than the others", other[1].duplicate()),
        ("has been cut off", cut(len - 512)),
        ("has been cut off", cut(140_000)),
        ("is no member of an array", cut(0)),
    ] {
        let second: Arc<dyn Device> = Arc::new(second);
        let found = || {
            let devices = [bases[0].clone(), second.clone(), bases[2].clone()];
            let active = MemberState::Active;
            devices.map(|device| MemberToOpen { device, incarnation: 1, state: active }).into()
        };
        let with = || ArrayOptions { length, ..options(&Arc::default(), false) };
        let left_out = Array::left_out(found(), with());
        let array = Array::open(found(), with()).unwrap();
        let is_struck = |member: MemberStatus| member.state == MemberState::Struck;
        let opened: Vec<bool> = array.status().into_iter().map(is_struck).collect();
        assert_eq!(left_out.iter().map(Option::is_some).collect::<Vec<_>>(), opened, "{why}");
        assert_eq!(opened, [false, !why.is_empty(), false], "{why}");
        assert!(left_out[1].as_deref().unwrap_or_default().contains(why), "{left_out:?}");
    }
}
