//! Changes of a group's code that a power cut or a failed call ends.

use super::groups::{KINDS, code_of, rig_of};
use super::*;
use firndb_device::{CrashPlan, Fault, FaultRule, Survival, When};

/// Which code the group has on an image, whichever members are lost; it must be one code.
fn code_on(left: &[Arc<MemoryDevice>], spare: usize, what: &str) -> u8 {
    let mut found = None;
    for lost in 0..left.len() {
        let devices = left.iter().enumerate().map(|(at, device)| {
            let is_lost = (0..spare).any(|next| (lost + next) % left.len() == at);
            let device: Arc<dyn Device> = match is_lost {
                true => Arc::new(MemoryDevice::new("lost")),
                false => Arc::new(device.duplicate()),
            };
            MemberToOpen { device, incarnation: 1, state: MemberState::Active }
        });
        let array = Array::open(devices.collect(), options(&Arc::default(), false)).unwrap();
        let code = array.code_of_group(1).unwrap();
        assert_eq!(*found.get_or_insert(code), code, "{what}: without {lost}");
    }
    found.expect("there are members")
}

fn open_on(devices: Vec<Arc<dyn Device>>) -> Array {
    let found =
        devices.into_iter().map(|device| MemberToOpen { device, incarnation: 1, state: MemberState::Active });
    Array::open(found.collect(), options(&Arc::default(), false)).unwrap()
}

/// A power cut at every write of a change, and another while the next opening compares the slots.
/// Once `code_of_group` has returned a code, every later opening returns the same one, whichever
/// members are lost.
#[test]
fn a_power_cut_during_a_change_leaves_one_of_the_two_codes() {
    let (mut between, mut rng) = ([0, 0], Rng::new(8));
    for (base, widest, members) in KINDS {
        let plan = CrashPlan::new();
        let devices = (0..members).map(|member| plan.device(&format!("m{member}")) as Arc<dyn Device>);
        let (code, widest) = (code_of(base), code_of(widest));
        let array =
            Array::create(devices.collect(), code, widest, SMALL, options(&Arc::default(), false)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        array.write(SMALL.place_offset(0, 5), &page_of(5), Durability::Durable).unwrap();
        array.sync().unwrap();
        let changes = [1, 0, array.codes().len() as u8 - 1];
        plan.settle();
        for (mark, to) in changes.into_iter().enumerate() {
            array.set_code_of_group(1, to).unwrap();
            plan.mark(mark as u64 + 1);
        }
        let mut replay = plan.replay();
        loop {
            for survival in Survival::ALL {
                let image = replay.image(survival, &mut rng);
                let done = replay.marks().len();
                let codes = [&[0], &changes[..]].concat();
                let may_be = &codes[done..(done + 2).min(codes.len())];
                let again = CrashPlan::new();
                let second = || image.iter().map(|left| again.device_holding(left) as Arc<dyn Device>);
                let opened = open_on(second().collect());
                let told = opened.code_of_group(1).unwrap();
                assert!(may_be.contains(&told), "{code}, {survival:?}: {told} is not of {may_be:?}");
                between[usize::from(told == may_be[0])] += 1;
                let mut page = AlignedBuf::zeroed(PAGE);
                opened.read(SMALL.place_offset(0, 5), &mut page).unwrap();
                assert!(page[..] == page_of(5)[..]);
                again.mark(1);
                let mut then = again.replay();
                loop {
                    let left = then.image(Survival::Sectors, &mut rng);
                    let found = open_on(left.iter().map(|it| Arc::new(it.duplicate()) as _).collect());
                    assert!(may_be.contains(&found.code_of_group(1).unwrap()));
                    if !then.marks().is_empty() {
                        assert_eq!(code_on(&left, code.spare(), &format!("{code}, {survival:?}")), told);
                    }
                    if then.step().is_none() {
                        break;
                    }
                }
            }
            if replay.step().is_none() {
                break;
            }
        }
    }
    assert!(between[0] > 100 && between[1] > 100, "{between:?}");
}

/// Every call of a change failing alone, on each member: the change has been made or not, which is
/// known and stays so.
#[test]
fn each_call_of_a_change_may_fail() {
    let kinds = [Calls::Reads, Calls::Writes, Calls::Syncs, Calls::Discards];
    let failed_kind = DeviceErrorKind::Failed;
    let faults =
        [Fault::Fail(failed_kind), Fault::Fail(DeviceErrorKind::NoSpace), Fault::FailLate(failed_kind)];
    let torn = Fault::Torn { blocks: 1, error: Some(failed_kind) };
    let (mut fired, mut failed) = (0, 0);
    for kind in KINDS {
        let incarnations = vec![1; kind.2];
        let members = 0..kind.2;
        for (member, calls) in members.flat_map(|member| kinds.map(|calls| (member, calls))) {
            let faults = faults.into_iter().chain((calls == Calls::Writes).then_some(torn));
            for (fault, (from, to)) in faults.flat_map(|fault| [(0, 1), (1, 0)].map(|way| (fault, way))) {
                for nth in 0.. {
                    let mut rig = rig_of(kind);
                    rig.array.set_code_of_group(1, from).unwrap();
                    rig.write_page(0, 4);
                    let rule = FaultRule { calls, device: None, when: When::Nth(nth), fault };
                    rig.faults[member].add(rule);
                    let outcome = rig.array.set_code_of_group(1, to);
                    let has_fired = rig.faults[member].fired() > 0;
                    rig.faults[member].heal();
                    let what = format!("{kind:?}, {member}: {calls:?} {nth}, {fault:?}, {from} to {to}");
                    let code = rig.array.code_of_group(1).unwrap();
                    match &outcome {
                        Ok(()) => assert_eq!(code, to, "{what}"),
                        Err(_) => assert!(code == from || code == to, "{what}"),
                    }
                    rig.write_page(1, 7);
                    rig.check_all();
                    rig.reopen(&incarnations).unwrap();
                    assert_eq!(rig.array.code_of_group(1), Ok(code), "{what}");
                    rig.check_all();
                    if rig.array.may_lose() > 0 {
                        rig.fail((member + 1) % kind.2);
                        rig.check_all();
                    }
                    fired += u64::from(has_fired);
                    failed += u64::from(outcome.is_err());
                    if !has_fired {
                        break;
                    }
                }
            }
        }
    }
    assert!(fired > 300 && failed > 50, "{fired}, {failed}");
}
