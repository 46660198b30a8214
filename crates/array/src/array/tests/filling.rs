//! A member that is filled, transfer by transfer.

use super::replacing::{give_up, state};
use super::*;
use crate::filling::REBUILT_TOGETHER;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_device::{Counting, Fault, FaultRule, When};

/// A rig with some pages whose member 1 is replaced by a device that can be made to fail.
fn replaced(code: (usize, usize), members: usize) -> (Rig, Arc<Counting>, FaultPlan) {
    let mut rig = Rig::new(Code::new(code.0, code.1).unwrap(), members, false);
    rig.write_some(60);
    for group in 0..GROUPS {
        rig.array.write(SMALL.group_start(group), &unit(7), Durability::Durable).unwrap();
    }
    give_up(&rig, 1);
    let (new, plan) = faulty(&Arc::new(MemoryDevice::new("new")));
    let new = Arc::new(Counting::new(new));
    rig.array.replace(1, new.clone(), 2).unwrap();
    (rig, new, plan)
}

fn fill(rig: &Rig) -> Result<u64, DeviceError> {
    let is_used = |group: u64, place: u64| rig.pages.contains_key(&SMALL.place_offset(group, place));
    let before = rig.array.rebuild_before_groups(1)?;
    (0..GROUPS).try_fold(before, |left_out, group| {
        Ok(left_out + rig.array.rebuild_group(1, group, &mut |place| is_used(group, place))?)
    })
}

/// Every write that filling makes, failing alone: filling ends with it, and the member that lacks
/// it is struck, or stays one that is not read.
#[test]
fn a_write_that_fails_ends_the_filling_and_is_not_passed_over() {
    for (code, members) in [((1, 2), 3), ((2, 3), 4)] {
        let (rig, new, _) = replaced(code, members);
        let before = new.snapshot();
        assert_eq!(fill(&rig), Ok(0));
        let writes = new.snapshot().since(&before).writes.ops;
        assert!(writes >= 5, "{writes}");
        for (kind, state_after) in [
            (DeviceErrorKind::Failed, MemberState::Struck),
            (DeviceErrorKind::NoSpace, MemberState::Rebuilding),
        ] {
            for nth in 0..writes {
                let (mut rig, _, plan) = replaced(code, members);
                let fault = Fault::Fail(kind);
                let when = When::Nth(nth);
                plan.add(FaultRule { calls: Calls::Writes, device: None, when, fault });
                assert_eq!(fill(&rig).unwrap_err().kind, kind, "{code:?}: write {nth}");
                assert_eq!(state(&rig, 1), state_after);
                if state_after == MemberState::Rebuilding {
                    // There is space now: what is missing is written, and nothing is missing then.
                    assert_eq!(fill(&rig), Ok(0));
                    rig.array.finish_rebuilding(1);
                    rig.fail(0);
                }
                rig.check_all();
                rig.write_some(1);
            }
        }
    }
}

/// Cause: one read that failed had every place of its range filled by itself. Effect: a bad sector
/// cost a thousand transfers instead of ten, of all members.
#[test]
fn only_places_that_could_not_be_read_are_filled_one_by_one() {
    for fails in [false, true] {
        let (rig, _, _) = replaced((1, 2), 4);
        let counted = |member: usize| {
            let counting = Arc::new(Counting::new(rig.array.members[member].device()));
            rig.array.members[member].set_device(counting.clone());
            counting
        };
        let others = [0, 2, 3].map(counted);
        let is_used = |place: u64| rig.pages.contains_key(&SMALL.place_offset(0, place));
        let on = |member: usize, place: u64| {
            (0..2).any(|number| rig.array.map.base().cells.cell(place, number).member == member)
        };
        let shared = |member: usize| {
            (0..SMALL.places).filter(|place| is_used(*place) && on(1, *place) && on(member, *place)).count()
        };
        assert!(shared(0) > 2 && shared(2) > 2, "{}, {}", shared(0), shared(2));
        if fails {
            rig.faults[2].fail_nth(0, Calls::Reads, DeviceErrorKind::Failed);
        }
        assert_eq!(rig.array.rebuild_group(1, 0, &mut { is_used }), Ok(0));
        let reads = others.map(|other| other.snapshot().reads.ops);
        let failed = if fails { shared(2) as u64 } else { 0 };
        // The slots and the metadata are read; each of the places is, and its copy compared.
        assert_eq!(reads, [3, 1 + 2 * failed, 0], "{fails}");
    }
}

/// A device that adds its calls to a list that several devices share: each beginning of reads, and
/// each write if it is the new one.
#[derive(Debug)]
struct Noting {
    inner: MemoryDevice,
    calls: Arc<firndb_base::sync::Mutex<Vec<&'static str>>>,
    is_new: bool,
}

impl Device for Noting {
    forward!(inner: info, len, read, sync, grow, shrink, discard);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if self.is_new {
            self.calls.lock().push("write");
        }
        self.inner.write(offset, data, durability)
    }
    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        self.calls.lock().push("read");
        reads.for_each(|read| self.begin_read(in_flight, read));
    }
}

/// The next places are read before these are written, and not while another thread waits for them.
#[test]
fn places_are_read_ahead_of_what_is_written() {
    const LARGE: Shape = Shape { places: 1024, group_bytes: 2048 + 1024 * 1024, ..SMALL };
    for waits in [false, true] {
        let calls = Arc::new(firndb_base::sync::Mutex::new(Vec::new()));
        let noting = |is_new: bool| -> Arc<dyn Device> {
            let inner = MemoryDevice::new(if is_new { "new" } else { "old" });
            Arc::new(Noting { inner, calls: calls.clone(), is_new })
        };
        let code = Code::new(1, 2).unwrap();
        let devices = vec![noting(false), noting(false)];
        let array = Array::create(devices, code, code, LARGE, options(&Arc::default(), false)).unwrap();
        array.grow(LARGE.group_start(1), Fill::Reserved).unwrap();
        for place in 0..LARGE.places {
            array.write(LARGE.place_offset(0, place), &page_of(place), Durability::Later).unwrap();
        }
        assert_eq!(array.give_up(1, || Ok::<(), DeviceError>(())), Ok(true));
        array.replace(1, noting(true), 2).unwrap();
        std::thread::scope(|scope| {
            let mut writer = None;
            calls.lock().clear();
            let mut used = |place: u64| {
                if waits && place == 0 {
                    let write = || {
                        array.write(LARGE.place_offset(0, REBUILT_TOGETHER), &page_of(9), Durability::Later)
                    };
                    let range = REBUILT_TOGETHER - 1..REBUILT_TOGETHER + 1;
                    let range = LARGE.place_offset(0, range.start)..LARGE.place_offset(0, range.end);
                    let array = &array;
                    writer = Some(scope.spawn(move || {
                        // It wants what is being filled, and the next place.
                        drop(array.ranges.take_one(range));
                        write().unwrap();
                    }));
                    while !array.ranges.has_waiting() {
                        std::thread::yield_now();
                    }
                }
                true
            };
            assert_eq!(array.rebuild_group(1, 0, &mut used), Ok(0));
            writer.into_iter().for_each(|writer| writer.join().unwrap());
        });
        let calls = calls.lock().clone();
        let ahead = calls.iter().take_while(|call| **call == "read").count();
        // One of each copy of metadata, one of the first places, and one of the next.
        assert_eq!(ahead, if waits { 3 } else { 4 }, "{calls:?}");
        array.finish_rebuilding(1);
        assert_eq!(array.give_up(0, || Ok::<(), DeviceError>(())), Ok(true));
        let mut page = AlignedBuf::zeroed(PAGE);
        for place in 0..LARGE.places {
            array.read(LARGE.place_offset(0, place), &mut page).unwrap();
            let wanted = page_of(if waits && place == REBUILT_TOGETHER { 9 } else { place });
            assert!(page[..] == wanted[..], "place {place}");
        }
    }
}

/// A device whose writes panic while it is wished for.
#[derive(Debug)]
struct Panics(MemoryDevice, Arc<AtomicBool>);

impl Device for Panics {
    forward!(0: info, len, read, sync, grow, shrink, discard);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        assert!(!self.1.load(Ordering::Relaxed), "on purpose");
        self.0.write(offset, data, durability)
    }
}

/// Cause: a lane's thread that panicked did not say that its job was over. Effect: the caller
/// waited for it forever, and the lane had a thread less.
#[test]
fn a_job_that_panics_has_failed() {
    for panicking in 0..3 {
        let on = Arc::new(AtomicBool::new(false));
        let devices = (0..3).map(|at| -> Arc<dyn Device> {
            let inner = MemoryDevice::new(&format!("m{at}"));
            if at == panicking { Arc::new(Panics(inner, on.clone())) } else { Arc::new(inner) }
        });
        let (keeper, code) = (Arc::new(Notes::default()), Code::new(2, 3).unwrap());
        let array = Array::create(devices.collect(), code, code, SMALL, options(&keeper, true)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        on.store(true, Ordering::Relaxed);
        for place in 0..SMALL.places {
            array.write(SMALL.place_offset(0, place), &page_of(place), Durability::Durable).unwrap();
        }
        assert_eq!(*keeper.struck.lock(), [panicking], "the write is on all others");
        let mut page = AlignedBuf::zeroed(PAGE);
        for place in 0..SMALL.places {
            array.read(SMALL.place_offset(0, place), &mut page).unwrap();
            assert!(page[..] == page_of(place)[..]);
        }
    }
}

/// The lane goes on, and each transfer of the job has its error.
#[test]
fn a_lane_outlives_jobs_that_panic() {
    let on = Arc::new(AtomicBool::new(true));
    let device: Arc<dyn Device> = Arc::new(Panics(MemoryDevice::new("m"), on));
    let lanes = crate::lanes::Lanes::start(2).unwrap();
    for _ in 0..40 {
        let job = |member: usize| {
            let write = |io: usize| crate::lanes::Write {
                offset: 0,
                data: AlignedBuf::zeroed(512),
                durability: Durability::Later,
                io,
            };
            let work = Work::Write(vec![write(3), write(3), write(5)]);
            Job { member, device: device.clone(), service: Arc::default(), work }
        };
        let mut failed: Vec<_> =
            lanes.run(vec![job(0), job(1)]).iter().map(|it| (it.member, it.io)).collect();
        failed.sort_unstable();
        assert_eq!(failed, [(0, 3), (0, 5), (1, 3), (1, 5)]);
    }
}
