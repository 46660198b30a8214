//! Groups of different codes, and changes of them beside everything that may go wrong.

use super::replacing::give_up;
use super::*;
use crate::slot::Slot;

/// Bytes of a slot.
pub(super) const SLOT: usize = 4096;

/// Base code, widest code, members.
pub(super) type Kind = ((usize, usize), (usize, usize), usize);

pub(super) const KINDS: [Kind; 7] = [
    ((1, 2), (1, 2), 3),
    ((1, 2), (1, 2), 4),
    ((1, 2), (1, 4), 4),
    ((2, 3), (1, 2), 4),
    ((2, 4), (1, 3), 5),
    ((3, 4), (1, 4), 4),
    ((1, 1), (1, 3), 3),
];

pub(super) fn code_of((needed, written): (usize, usize)) -> Code {
    Code::new(needed, written).unwrap()
}

pub(super) fn rig_of((base, widest, members): Kind) -> Rig {
    Rig::wide(code_of(base), code_of(widest), members, false)
}

impl Rig {
    /// No place of a group is in use any more.
    fn empty(&mut self, group: u64) {
        let own = SMALL.group_start(group)..SMALL.group_start(group + 1);
        self.pages.retain(|offset, _| !own.contains(offset));
    }

    pub(super) fn write_page(&mut self, group: u64, place: u64) {
        let (offset, seed) = (SMALL.place_offset(group, place), self.rng.next_u64());
        self.array.write(offset, &page_of(seed), Durability::Durable).unwrap();
        self.pages.insert(offset, seed);
    }

    fn fill_one(&self, member: usize, group: u64) {
        let is_used = |place: u64| self.pages.contains_key(&SMALL.place_offset(group, place));
        assert_eq!(self.array.rebuild_group(member, group, &mut { is_used }), Ok(0));
    }

    fn codes(&self) -> Vec<u8> {
        (0..GROUPS).map(|group| self.array.code_of_group(group).unwrap()).collect()
    }

    fn replace(&mut self, member: usize, incarnation: u64) {
        give_up(self, member);
        let base = Arc::new(MemoryDevice::new("new"));
        let (device, faults) = faulty(&base);
        self.array.replace(member, device, incarnation).unwrap();
        (self.bases[member], self.faults[member]) = (base, faults);
    }
}

/// A plain map beside the array, whose groups change their codes whenever they are emptied, while
/// members are lost, replaced and filled, and it is opened anew.
#[test]
fn groups_of_all_codes_do_what_a_map_does() {
    for (seed, kind) in KINDS.into_iter().enumerate() {
        let mut rig = rig_of(kind);
        let members = kind.2;
        rig.rng = Rng::new(seed as u64);
        let spare = rig.array.code().spare();
        let mut incarnations = vec![1; members];
        let (mut codes, mut filling) = (vec![0; GROUPS as usize], None::<(usize, u64)>);
        let mut seen = std::collections::BTreeSet::new();
        for step in 0..400 {
            match rig.rng.below(if step % 7 == 0 { 10 } else { 8 }) {
                0..=4 => rig.write_some(2),
                5 | 6 => {
                    let group = rig.rng.below(GROUPS);
                    let code = rig.rng.below(rig.array.codes().len() as u64) as u8;
                    rig.empty(group);
                    rig.array.set_code_of_group(group, code).unwrap();
                    codes[group as usize] = code;
                    seen.insert(code);
                }
                7 => match filling {
                    Some((member, group)) if group < GROUPS => {
                        rig.fill_one(member, group);
                        filling = Some((member, group + 1));
                    }
                    Some((member, _)) => {
                        rig.array.sync_rebuilt(member).unwrap();
                        rig.array.finish_rebuilding(member);
                        filling = None;
                    }
                    None if spare > 0 => {
                        let member = rig.rng.below(members as u64) as usize;
                        incarnations[member] += 1;
                        rig.replace(member, incarnations[member]);
                        rig.array.rebuild_before_groups(member).unwrap();
                        filling = Some((member, 0));
                    }
                    None => {}
                },
                8 => rig.reopen(&incarnations).unwrap(),
                _ => (0..GROUPS).for_each(|group| rig.array.scrub_group(group).unwrap()),
            }
            assert_eq!(rig.codes(), codes, "{kind:?}, step {step}");
            if step % 5 == 0 {
                rig.check_all();
            }
        }
        assert_eq!(seen.len(), rig.array.codes().len(), "{kind:?}");
        assert!(rig.keeper.repaired.lock().is_empty() && rig.keeper.struck.lock().is_empty());
        // Whichever members are lost then.
        let may_lose = rig.array.may_lose();
        for lost in 0..members {
            let failed: Vec<usize> = (0..may_lose).map(|at| (lost + at) % members).collect();
            failed.iter().for_each(|member| rig.fail(*member));
            if filling.is_none_or(|(member, _)| !failed.contains(&member)) {
                rig.check_all();
            }
            failed.iter().for_each(|member| rig.faults[*member].heal());
        }
    }
}

/// One call reads and writes adjacent and other places of groups that have different codes.
#[test]
fn one_call_may_concern_groups_of_different_codes() {
    let mut rig = rig_of(((1, 2), (1, 4), 4));
    for group in 0..GROUPS {
        rig.array.set_code_of_group(group, 2 + group as u8).unwrap();
    }
    let offsets: Vec<u64> =
        (0..GROUPS).flat_map(|group| [0, 7, 19].map(|place| SMALL.place_offset(group, place))).collect();
    let pages: Vec<AlignedBuf> = offsets.iter().map(|offset| page_of(*offset)).collect();
    let write = |(offset, page): (&u64, _)| Io {
        offset: *offset,
        op: IoOp::Write(page, Durability::Durable),
        outcome: Ok(()),
    };
    let mut batch: Vec<Io<'_>> = offsets.iter().zip(pages.iter().map(|page| &page[..])).map(write).collect();
    rig.array.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()));
    let mut found: Vec<AlignedBuf> = offsets.iter().map(|_| AlignedBuf::zeroed(PAGE)).collect();
    let read = |(offset, page): (&u64, _)| Io { offset: *offset, op: IoOp::Read(page), outcome: Ok(()) };
    let mut batch: Vec<Io<'_>> =
        offsets.iter().zip(found.iter_mut().map(|page| &mut page[..])).map(read).collect();
    rig.array.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()));
    assert!(found.iter().zip(&pages).all(|(found, page)| found[..] == page[..]));
    // From the last place of a group to the first of the next, with what lies between.
    let last = SMALL.place_offset(0, SMALL.places - 1);
    let mut run = AlignedBuf::zeroed((SMALL.place_offset(1, 1) - last) as usize);
    rig.array.read(last, &mut run).unwrap();
    assert!(run[..PAGE] == page_of(last)[..]);
    assert!(run[run.len() - PAGE..] == page_of(SMALL.place_offset(1, 0))[..]);
    rig.pages.extend(offsets.iter().map(|offset| (*offset, *offset)));
    rig.fail(3);
    rig.check_all();
}

/// Where the slots of a group are on a member, and what is there.
pub(super) fn slots(rig: &Rig, member: usize, group: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(2 * SLOT);
    rig.bases[member].read(rig.array.map.slots(group), &mut bytes).unwrap();
    bytes
}

pub(super) fn set_slots(rig: &Rig, member: usize, group: u64, bytes: &[u8]) {
    rig.bases[member].write(rig.array.map.slots(group), bytes, Durability::Durable).unwrap();
}

#[test]
fn each_byte_of_slots_may_be_wrong_on_all_members_and_none_is_guessed() {
    for kind in [KINDS[1], KINDS[4], KINDS[6]] {
        let mut rig = rig_of(kind);
        let incarnations = vec![1; kind.2];
        rig.array.set_code_of_group(1, 1).unwrap();
        rig.write_page(1, 3);
        let holders: Vec<usize> = rig.array.map.holders(SMALL.group_start(1)).collect();
        let right = slots(&rig, holders[0], 1);
        for at in (0..512).chain(SLOT..SLOT + 512).chain([512, SLOT - 1, 2 * SLOT - 1]) {
            let mut wrong = AlignedBuf::zeroed(2 * SLOT);
            wrong.copy_from_slice(&right);
            wrong[at] ^= 0x11;
            holders.iter().for_each(|holder| set_slots(&rig, *holder, 1, &wrong));
            rig.reopen(&incarnations).unwrap();
            assert_eq!(rig.codes(), [0, 1, 0], "{kind:?}, byte {at}");
            assert!(holders.iter().all(|holder| slots(&rig, *holder, 1)[..] == right[..]));
        }
        rig.check_all();
        // Known in memory: it is rot, and reported.
        set_slots(&rig, holders[0], 1, &AlignedBuf::zeroed(2 * SLOT));
        rig.array.scrub_group(1).unwrap();
        // A sequence that no copy has counts from one again.
        let made = Slot::decode(&slots(&rig, holders[0], 1)[..512], ID, 1, 0).unwrap();
        assert_eq!((made.code, made.sequence), (rig.array.codes()[1], if holders.len() > 1 { 3 } else { 1 }));
        assert_eq!(rig.keeper.repaired.lock().len(), 1);
        // Both slots of all members, wrong or blank.
        for blank in [false, true] {
            let mut wrong = AlignedBuf::zeroed(2 * SLOT);
            if !blank {
                wrong.copy_from_slice(&slots(&rig, holders[0], 1));
                (wrong[20], wrong[SLOT + 20]) = (1, 1);
            }
            holders.iter().for_each(|holder| set_slots(&rig, *holder, 1, &wrong));
            rig.reopen(&incarnations).unwrap();
            let mut page = page_of(9);
            let offset = SMALL.place_offset(1, 3);
            let errors = [
                rig.array.code_of_group(1).map(|_| ()),
                rig.array.set_code_of_group(1, 0),
                rig.array.read(offset, &mut page),
                rig.array.write(offset, &page, Durability::Durable),
                rig.array.discard(offset, PAGE as u64),
                rig.array.scrub_group(1),
            ];
            for error in errors {
                let error = error.unwrap_err();
                assert!(error.message.contains("group 1 are fragmented is damaged"), "{error}");
            }
            assert!(!rig.array.read_otherwise(offset, &mut page, &mut |_| true));
            rig.write_page(0, 2);
            assert_eq!(rig.array.code_of_group(2), Ok(0));
            assert!(rig.keeper.struck.lock().is_empty());
        }
    }
}

/// What a member says that missed a change counts neither while it is struck nor while the device
/// in its place is filled, however new it looks.
#[test]
fn a_stale_member_says_nothing_of_codes() {
    let mut rig = rig_of(KINDS[0]);
    rig.fail(0);
    rig.array.set_code_of_group(0, 1).unwrap();
    assert_eq!(*rig.keeper.struck.lock(), [0]);
    rig.write_page(0, 5);
    rig.faults[0].heal();
    // Newer than what counts.
    let newer = Slot { sequence: 99, code: rig.array.code() }.both(ID, 0, SLOT as u64);
    set_slots(&rig, 0, 0, &newer);
    rig.reopen(&[1; 3]).unwrap();
    assert_eq!(rig.array.code_of_group(0), Ok(1));
    // Another device that was a member once.
    let former = Arc::new(rig.bases[0].duplicate());
    let (device, faults) = faulty(&former);
    rig.array.replace(0, device, 2).unwrap();
    (rig.bases[0], rig.faults[0]) = (former, faults);
    rig.reopen(&[2, 1, 1]).unwrap();
    assert_eq!(rig.array.status()[0].state, MemberState::Rebuilding);
    assert_eq!(rig.array.code_of_group(0), Ok(1));
    (0..GROUPS).for_each(|group| rig.fill_one(0, group));
    rig.array.sync_rebuilt(0).unwrap();
    rig.array.finish_rebuilding(0);
    give_up(&rig, 1);
    rig.check_all();
    rig.reopen(&[2, 1, 1]).unwrap();
    assert_eq!(rig.array.code_of_group(0), Ok(1));
    rig.check_all();
}

/// Slots that the others cannot give are none on the new member, though it had some once.
#[test]
fn slots_that_the_others_cannot_give_are_none_on_the_new_member() {
    let mut rig = rig_of(KINDS[0]);
    rig.array.set_code_of_group(0, 1).unwrap();
    rig.reopen(&[1; 3]).unwrap();
    give_up(&rig, 0);
    set_slots(&rig, 1, 0, &AlignedBuf::zeroed(2 * SLOT));
    let former = Arc::new(rig.bases[0].duplicate());
    rig.array.replace(0, former.clone(), 2).unwrap();
    assert_eq!(rig.array.rebuild_group(0, 0, &mut |place| place < 3), Ok(4), "and all places in use");
    rig.array.sync_rebuilt(0).unwrap();
    rig.array.finish_rebuilding(0);
    rig.bases[0] = former;
    rig.reopen(&[2, 1, 1]).unwrap();
    let error = rig.array.code_of_group(0).unwrap_err();
    assert!(error.message.contains("is damaged on all members"), "{error}");
    assert_eq!(rig.array.code_of_group(1), Ok(0));
}

/// Groups are new where the file above grows, whatever devices had there.
#[test]
fn new_groups_have_the_base_code() {
    let mut rig = rig_of(KINDS[0]);
    rig.array.set_code_of_group(2, 1).unwrap();
    let last = [0, 1, 2].map(|member| slots(&rig, member, 2));
    rig.array.shrink(SMALL.group_start(2)).unwrap();
    assert_eq!(rig.array.code_of_group(2).unwrap_err().kind, DeviceErrorKind::OutOfRange);
    assert_eq!(rig.array.set_code_of_group(u64::MAX, 1).unwrap_err().kind, DeviceErrorKind::OutOfRange);
    let len = rig.array.map.member_len(SMALL.group_start(3)).unwrap();
    for (base, last) in rig.bases.iter().zip(last) {
        // As a raw device, which keeps its length and content.
        base.grow(len, Fill::Reserved).unwrap();
        base.write(rig.array.map.slots(2), &last, Durability::Durable).unwrap();
    }
    rig.array.grow(SMALL.group_start(3), Fill::Reserved).unwrap();
    assert_eq!(rig.array.code_of_group(2), Ok(0));
    rig.reopen(&[1; 3]).unwrap();
    assert_eq!(rig.codes(), [0; 3]);
}

/// A member that is full keeps the group what it is, and gives back what it had for more.
#[test]
fn a_wider_code_takes_space_or_leaves_the_group_as_it_was() {
    let mut rig = rig_of(((2, 3), (1, 2), 4));
    rig.write_some(10);
    rig.empty(1);
    let wide = rig.array.codes().iter().position(|code| *code == code_of((1, 2))).unwrap() as u8;
    let discards = |rig: &Rig| rig.faults.iter().map(|plan| plan.calls_of(Calls::Discards)).sum::<u64>();
    assert_eq!(discards(&rig), 12, "a new group reserves what the base code takes");
    rig.faults[2].fail_nth(0, Calls::Writes, DeviceErrorKind::NoSpace);
    assert_eq!(rig.array.set_code_of_group(1, wide).unwrap_err().kind, DeviceErrorKind::NoSpace);
    assert_eq!((rig.array.code_of_group(1), discards(&rig)), (Ok(0), 16));
    assert!(rig.keeper.struck.lock().is_empty());
    rig.array.set_code_of_group(1, wide).unwrap();
    (0..SMALL.places).for_each(|place| rig.write_page(1, place));
    rig.check_all();
    rig.empty(1);
    rig.array.set_code_of_group(1, 0).unwrap();
    assert_eq!((rig.array.code_of_group(1), discards(&rig)), (Ok(0), 20));
    rig.check_all();
}

/// A reader with an old entry of the map reads beside changes: it gets bytes or an error.
#[test]
fn reads_beside_changes_get_bytes() {
    let rig = rig_of(((1, 2), (1, 4), 4));
    let done = firndb_base::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (array, done) = (&rig.array, &done);
            scope.spawn(move || {
                let mut in_flight = InFlight::default();
                let mut rounds = 0;
                while !done.load(firndb_base::sync::atomic::Ordering::Relaxed) || rounds < 50 {
                    let first = (thread + rounds) % 10;
                    let (len, offset) = (10 * PAGE, SMALL.place_offset(1, first));
                    let read = OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag: rounds };
                    array.begin_read(&mut in_flight, read);
                    let read = array.next_read(&mut in_flight, None).expect("it is under way");
                    assert_eq!((read.read.tag, read.outcome), (rounds, Ok(())));
                    let mut page = AlignedBuf::zeroed(PAGE);
                    array.read(offset, &mut page).unwrap();
                    array.read_otherwise(offset, &mut page, &mut |_| false);
                    rounds += 1;
                }
            });
        }
        for round in 0..200 {
            rig.array.set_code_of_group(1, round % rig.array.codes().len() as u8).unwrap();
        }
        done.store(true, firndb_base::sync::atomic::Ordering::Relaxed);
    });
    assert!(rig.keeper.struck.lock().is_empty() && rig.keeper.repaired.lock().is_empty());
}

/// Members of which one has slots that another changed, as a power cut or lost writes leave them.
#[test]
fn the_newest_slot_counts_and_nothing_is_written_before_all_have_it() {
    let mut rig = rig_of(KINDS[1]);
    rig.array.set_code_of_group(0, 1).unwrap();
    let (old, base) = (slots(&rig, 0, 0), rig.array.code());
    rig.array.set_code_of_group(0, 2).unwrap();
    let new = slots(&rig, 0, 0);
    for holder in 0..2 {
        set_slots(&rig, holder, 0, &old);
        rig.reopen(&[1; 4]).unwrap();
        assert_eq!((rig.array.code_of_group(0), &slots(&rig, holder, 0)[..]), (Ok(2), &new[..]));
    }
    give_up(&rig, 3);
    set_slots(&rig, 0, 0, &Slot { sequence: 7, code: base }.both(ID, 0, SLOT as u64));
    rig.reopen(&[1; 4]).unwrap();
    rig.faults[1].fail_from(0, Calls::Writes, DeviceErrorKind::Failed);
    assert_eq!(rig.array.code_of_group(0), Ok(0), "what can be read is, though another is needed");
    // A place of which the base code has nothing on that member.
    let cells = rig.array.map.base().cells;
    let place = (0..SMALL.places).find(|place| (0..2).all(|copy| cells.cell(*place, copy).member >= 2));
    let (offset, page) = (SMALL.place_offset(0, place.unwrap()), page_of(1));
    assert!(rig.array.write(offset, &page, Durability::Durable).is_err());
    assert!(rig.array.set_code_of_group(0, 1).is_err());
    assert!(rig.keeper.struck.lock().is_empty(), "it is needed");
    rig.faults[1].heal();
    rig.write_page(0, place.unwrap());
    assert_eq!(slots(&rig, 0, 0)[..], slots(&rig, 1, 0)[..]);
    rig.check_all();
}

#[test]
fn a_change_waits_for_whatever_has_a_part_of_the_group() {
    let rig = rig_of(KINDS[0]);
    let place = SMALL.place_offset(1, 7);
    std::thread::scope(|scope| {
        let taken = rig.array.ranges.take_one(place..place + PAGE as u64);
        let change = scope.spawn(|| rig.array.set_code_of_group(1, 1));
        while !rig.array.ranges.has_waiting() && !change.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(rig.array.code_of_group(1), Ok(0));
        drop(taken);
        change.join().unwrap().unwrap();
    });
    assert_eq!(rig.array.code_of_group(1), Ok(1));
}
