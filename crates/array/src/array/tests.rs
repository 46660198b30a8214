mod changes;
mod filling;
mod groups;
mod late;
mod replacing;
mod slots;

use super::*;
use crate::open::MemberToOpen;
use crate::shape::tests::SMALL;
use crate::testing::Notes;
use firndb_base::rng::Rng;
use firndb_device::{Calls, FaultPlan, Faulty, MemoryDevice, forward};
use std::collections::BTreeMap;
use std::time::Duration;

const ID: DatabaseId = DatabaseId([3; 16]);
const GROUPS: u64 = 3;
const PAGE: usize = SMALL.page_bytes as usize;

/// A unit is whole if its last byte is 0x77; the number is its first byte.
fn judge(_: DatabaseId, _: &Shape, _: u64, bytes: &[u8]) -> Option<u64> {
    (bytes[511] == 0x77).then(|| u64::from(bytes[0]))
}

fn unit(number: u8) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(512);
    (bytes[0], bytes[511]) = (number, 0x77);
    bytes
}

fn options(keeper: &Arc<Notes>, threads: bool) -> ArrayOptions {
    ArrayOptions {
        database: ID,
        judge,
        length: |_, _| None,
        keeper: keeper.clone(),
        threads,
        hides_late_reads: true,
    }
}

/// An array over memory whose devices can be made to fail, and what should be in it.
struct Rig {
    bases: Vec<Arc<MemoryDevice>>,
    faults: Vec<FaultPlan>,
    keeper: Arc<Notes>,
    array: Array,
    pages: BTreeMap<u64, u64>,
    rng: Rng,
}

fn faulty(base: &Arc<MemoryDevice>) -> (Arc<dyn Device>, FaultPlan) {
    let plan = FaultPlan::new(1);
    (Arc::new(Faulty::new(base.clone(), &plan)), plan)
}

fn page_of(seed: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(PAGE);
    let mut rng = Rng::new(seed);
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
    bytes
}

/// A device whose writes wait, for a while, until as many are under way as are wanted.
#[derive(Debug)]
struct Gate {
    inner: MemoryDevice,
    wanted: usize,
    under_way: firndb_base::sync::Mutex<usize>,
    arrived: firndb_base::sync::Condvar,
}

impl Device for Gate {
    forward!(inner: info, len, read, sync, grow, shrink, discard);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if data.len() == PAGE {
            let mut under_way = self.under_way.lock();
            *under_way += 1;
            self.arrived.notify_all();
            while *under_way < self.wanted {
                if !self.arrived.wait_for(&mut under_way, Duration::from_secs(5)) {
                    break;
                }
            }
        }
        self.inner.write(offset, data, durability)
    }
}

/// A thread a member did the writes of all calls one after the other, and four drives wrote a third
/// of what one did.
#[test]
fn writes_of_several_calls_are_under_way_on_a_member_at_once() {
    const CALLS: usize = 4;
    let gates: Vec<Arc<Gate>> = (0..2)
        .map(|at| {
            Arc::new(Gate {
                inner: MemoryDevice::new(&format!("m{at}")),
                wanted: CALLS,
                under_way: firndb_base::sync::Mutex::new(0),
                arrived: firndb_base::sync::Condvar::new(),
            })
        })
        .collect();
    let devices = gates.iter().map(|gate| gate.clone() as Arc<dyn Device>).collect();
    let code = Code::new(1, 2).unwrap();
    let array = Array::create(devices, code, code, SMALL, options(&Arc::default(), true)).unwrap();
    array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for call in 0..CALLS as u64 {
            let array = &array;
            scope.spawn(move || {
                array.write(SMALL.place_offset(0, call), &page_of(call), Durability::Durable).unwrap();
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(5), "writes waited for each other");
    for call in 0..CALLS as u64 {
        let mut page = AlignedBuf::zeroed(PAGE);
        array.read(SMALL.place_offset(0, call), &mut page).unwrap();
        assert!(page[..] == page_of(call)[..]);
    }
}

impl Rig {
    fn new(code: Code, members: usize, threads: bool) -> Rig {
        Rig::wide(code, code, members, threads)
    }

    fn wide(code: Code, widest: Code, members: usize, threads: bool) -> Rig {
        let bases: Vec<_> = (0..members).map(|at| Arc::new(MemoryDevice::new(&format!("m{at}")))).collect();
        let (devices, faults) = bases.iter().map(faulty).unzip();
        let keeper = Arc::new(Notes::default());
        let array = Array::create(devices, code, widest, SMALL, options(&keeper, threads)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        assert_eq!((array.len(), array.groups()), (SMALL.group_start(GROUPS), GROUPS));
        Rig { bases, faults, keeper, array, pages: BTreeMap::new(), rng: Rng::new(5) }
    }

    /// Opens it again, as the states are.
    fn reopen(&mut self, incarnations: &[u64]) -> Result<(), DeviceError> {
        let states: Vec<_> = self.array.status().into_iter().map(|member| member.state).collect();
        let (devices, faults): (Vec<_>, Vec<_>) = self.bases.iter().map(faulty).unzip();
        let found = devices.into_iter().zip(incarnations).zip(states);
        let found = found.map(|((device, &incarnation), state)| MemberToOpen { device, incarnation, state });
        self.array = Array::open(found.collect(), options(&self.keeper, false))?;
        self.faults = faults;
        Ok(())
    }

    fn write_some(&mut self, runs: usize) {
        for _ in 0..runs {
            let group = self.rng.below(GROUPS);
            let first = self.rng.below(SMALL.places);
            let count = 1 + self.rng.below((SMALL.places - first).min(7));
            let offset = SMALL.place_offset(group, first);
            let mut run = AlignedBuf::zeroed(count as usize * PAGE);
            for (at, page) in run.chunks_mut(PAGE).enumerate() {
                let seed = self.rng.next_u64();
                page.copy_from_slice(&page_of(seed));
                self.pages.insert(offset + (at * PAGE) as u64, seed);
            }
            self.array.write(offset, &run, Durability::Durable).unwrap();
        }
    }

    fn check_all(&self) {
        for (offset, seed) in &self.pages {
            let mut page = AlignedBuf::zeroed(PAGE);
            self.array.read(*offset, &mut page).unwrap();
            assert!(page[..] == page_of(*seed)[..], "the page at {offset}");
        }
        // And side by side, in runs.
        let mut in_flight = InFlight::default();
        let group = SMALL.place_offset(1, 0);
        for tag in 0..4 {
            let (len, offset) = (5 * PAGE, group + tag * 5 * PAGE as u64);
            self.array
                .begin_read(&mut in_flight, OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag });
        }
        assert_eq!(in_flight.count(), 4);
        let mut came = 0;
        while let Some(done) = self.array.next_read(&mut in_flight, None) {
            done.outcome.unwrap();
            came += 1;
            for (at, page) in done.read.buf.chunks(PAGE).enumerate() {
                if let Some(seed) = self.pages.get(&(done.read.offset + (at * PAGE) as u64)) {
                    assert!(page == &page_of(*seed)[..]);
                }
            }
        }
        assert_eq!((came, in_flight.count()), (4, 0));
    }

    fn fail(&self, member: usize) {
        self.faults[member].fail_from(0, Calls::Any, DeviceErrorKind::Failed);
    }
}

fn codes() -> Vec<(Code, usize)> {
    let of = |needed, written, members| (Code::new(needed, written).unwrap(), members);
    vec![
        of(1, 1, 1),
        of(1, 1, 3),
        of(1, 2, 2),
        of(1, 2, 4),
        of(2, 3, 3),
        of(2, 4, 4),
        of(3, 4, 5),
        of(4, 4, 4),
    ]
}

#[test]
fn pages_survive_as_many_lost_members_as_the_code_says_and_come_back() {
    for (code, members) in codes() {
        let mut rig = Rig::new(code, members, false);
        rig.write_some(40);
        rig.check_all();
        for lost in 0..code.spare() {
            rig.fail(lost);
            rig.check_all();
            rig.write_some(10);
            rig.check_all();
            assert_eq!(rig.keeper.struck.lock().len(), lost + 1, "{code}");
            assert_eq!(rig.array.may_lose(), code.spare() - lost - 1);
        }
        let mut incarnations = vec![1; members];
        rig.reopen(&incarnations).unwrap();
        for (lost, incarnation) in incarnations.iter_mut().enumerate().take(code.spare()) {
            *incarnation = 2;
            let base = Arc::new(MemoryDevice::new("new"));
            rig.bases[lost] = base.clone();
            rig.array.replace(lost, base, 2).unwrap();
            rig.write_some(5);
            rig.array.scrub_before_groups().unwrap();
            for group in 0..GROUPS {
                let used: Vec<u64> = rig.pages.keys().copied().collect();
                let is_used = |place: u64| used.contains(&SMALL.place_offset(group, place));
                rig.array.rebuild_group(lost, group, &mut { is_used }).unwrap();
                rig.write_some(5);
            }
            rig.array.sync_rebuilt(lost).unwrap();
            rig.array.finish_rebuilding(lost);
        }
        assert_eq!(rig.array.may_lose(), code.spare());
        for lost in (0..code.spare()).map(|lost| members - 1 - lost) {
            rig.fail(lost);
        }
        rig.check_all();
        rig.reopen(&incarnations).unwrap();
        rig.check_all();
    }
}

#[test]
fn one_member_too_many_is_an_error_that_strikes_nobody() {
    for (code, members) in codes() {
        let mut rig = Rig::new(code, members, false);
        rig.write_some(5);
        for lost in 0..=code.spare() {
            rig.fail(lost);
        }
        let page = AlignedBuf::zeroed(SMALL.places as usize * PAGE);
        let failed = rig.array.write(SMALL.place_offset(0, 0), &page, Durability::Durable).unwrap_err();
        assert_eq!(failed.kind, DeviceErrorKind::Failed, "{code}");
        // What befalls so many at once may pass, and costs no redundancy if it does.
        assert_eq!(*rig.keeper.struck.lock(), [], "{code}");
        assert_eq!(rig.array.may_lose(), code.spare());
    }
}

/// A member is being replaced, and another one fails before that is durable: one of them is needed.
#[test]
fn a_member_that_fails_while_another_is_given_up_is_not_struck() {
    for code in [Code::new(1, 2).unwrap(), Code::new(2, 3).unwrap()] {
        let rig = Rig::new(code, code.written(), false);
        rig.fail(1);
        let page = AlignedBuf::zeroed(SMALL.places as usize * PAGE);
        std::thread::scope(|scope| {
            let mut writer = None;
            let give_up = rig.array.give_up(0, || {
                let write = || rig.array.write(SMALL.place_offset(0, 0), &page, Durability::Durable);
                writer = Some(scope.spawn(write));
                std::thread::sleep(Duration::from_millis(20));
                Ok::<(), DeviceError>(())
            });
            assert_eq!(give_up, Ok(true));
            writer.unwrap().join().unwrap().unwrap_err();
        });
        assert_eq!(*rig.keeper.struck.lock(), []);
        let states: Vec<MemberState> = rig.array.status().into_iter().map(|member| member.state).collect();
        assert_eq!(states[..2], [MemberState::Struck, MemberState::Active], "{code}");
        assert_eq!(rig.array.give_up(1, || Ok::<(), DeviceError>(())), Ok(false), "it is needed");
    }
}

#[test]
fn members_are_found_missing_swapped_and_former() {
    let code = Code::new(2, 3).unwrap();
    let mut rig = Rig::new(code, 3, false);
    rig.write_some(20);
    // Nothing is written, so nothing is struck for good.
    rig.bases.swap(0, 1);
    let message = rig.reopen(&[1; 3]).unwrap_err().message;
    assert!(
        message.contains("m1 is member 1 of 3, not 0 of 3") && message.contains("can lose 1 of"),
        "{message}"
    );
    rig.bases.swap(0, 1);
    rig.reopen(&[1; 3]).unwrap();
    rig.check_all();
    rig.reopen(&[1, 2, 1]).unwrap();
    assert_eq!(rig.array.status()[1].state, MemberState::Struck);
    rig.check_all();
    assert!(rig.keeper.struck.lock().is_empty());
    rig.write_some(1);
    assert_eq!(*rig.keeper.struck.lock(), [1], "before the first write");
    let message = rig.reopen(&[2, 1, 1]).unwrap_err().message;
    assert!(
        message.contains("m0 is a former member") && message.contains("m1 has missed writes"),
        "{message}"
    );
}

#[test]
fn rot_is_mended_and_named_in_as_many_fragments_as_may_be_lost() {
    for (code, members) in codes() {
        let mut rig = Rig::new(code, members, false);
        rig.write_some(30);
        let pages = rig.pages.clone();
        for (offset, seed) in pages {
            let areas = SMALL.areas(offset..offset + PAGE as u64);
            let [Area::Places { group, places }] = &areas[..] else { panic!() };
            let rotten = 1 + rig.rng.below(code.spare() as u64 + 1);
            let mut damage: Vec<usize> = (0..code.written()).collect();
            while damage.len() as u64 > rotten {
                damage.swap_remove(rig.rng.below(damage.len() as u64) as usize);
            }
            for fragment in &damage {
                let cell = rig.array.map.base().cells.cell(places.start, *fragment);
                let at = rig.array.map.row(rig.array.map.base(), *group, cell.row);
                let base = &rig.bases[cell.member];
                let mut bytes = AlignedBuf::zeroed(rig.array.map.base().fragment as usize);
                base.read(at, &mut bytes).unwrap();
                bytes[17] ^= 0x55;
                base.write(at, &bytes, Durability::Durable).unwrap();
            }
            rig.keeper.repaired.lock().clear();
            let (wanted, mut page) = (page_of(seed), AlignedBuf::zeroed(PAGE));
            // One that only looks names each fragment once, and leaves it wrong.
            for _ in 0..if damage.len() <= code.spare() { 2 } else { 0 } {
                rig.keeper.only_looks.store(true, Ordering::Relaxed);
                assert!(rig.array.read_otherwise(offset, &mut page, &mut |page| page == &wanted[..]));
                assert_eq!(rig.keeper.repaired.lock().len(), damage.len());
                rig.keeper.only_looks.store(false, Ordering::Relaxed);
            }
            rig.keeper.repaired.lock().clear();
            let mended = rig.array.read_otherwise(offset, &mut page, &mut |page| page == &wanted[..]);
            if damage.len() <= code.spare() {
                assert!(mended && page[..] == wanted[..], "{code}: {damage:?}");
                assert_eq!(rig.keeper.repaired.lock().len(), damage.len());
                rig.keeper.repaired.lock().clear();
                assert!(rig.array.read_otherwise(offset, &mut page, &mut |page| page == &wanted[..]));
                assert_eq!(*rig.keeper.repaired.lock(), Vec::<String>::new());
            } else {
                // A fragment beyond the page's end is of no use to it.
                let is_padded = rig.array.map.base().fragment as usize * code.needed() > PAGE;
                assert!(!mended || is_padded, "{code}: {damage:?}");
                rig.array.write(offset, &wanted, Durability::Durable).unwrap();
            }
        }
        rig.check_all();
    }
}

#[test]
fn copies_of_metadata_are_made_alike_before_anybody_relies_on_one() {
    let code = Code::new(2, 4).unwrap();
    let mut rig = Rig::new(code, 5, false);
    let at = SMALL.group_start(1) + 512;
    rig.array.write(at, &unit(1), Durability::Durable).unwrap();
    let holders: Vec<usize> = rig.array.map.holders(at).collect();
    assert_eq!(holders, [1, 2, 3]);
    // A crash left the next write on one member, torn on another.
    let on_member = rig.array.map.meta(at);
    rig.bases[2].write(on_member, &unit(2), Durability::Durable).unwrap();
    let mut torn = unit(3);
    torn[511] = 0;
    rig.bases[1].write(on_member, &torn, Durability::Durable).unwrap();
    rig.reopen(&[1; 5]).unwrap();
    let mut found = AlignedBuf::zeroed(512);
    rig.array.read(at, &mut found).unwrap();
    assert_eq!(found[..], unit(2)[..]);
    assert!(rig.keeper.repaired.lock().is_empty(), "a crash is no damage");
    for lost in [1, 2] {
        rig.fail(lost);
        rig.array.read(at, &mut found).unwrap();
        assert_eq!(found[..], unit(2)[..]);
    }
    // Rot is.
    rig.reopen(&[1; 5]).unwrap();
    rig.array.read(at, &mut found).unwrap();
    rig.bases[1].write(on_member, &torn, Durability::Durable).unwrap();
    rig.array.read(at, &mut found).unwrap();
    assert_eq!(found[..], unit(2)[..]);
    assert_eq!(rig.keeper.repaired.lock().len(), 1);
    rig.bases[1].read(on_member, &mut found).unwrap();
    assert_eq!(found[..], unit(2)[..]);
}

#[test]
fn threads_write_side_by_side_and_a_full_member_is_not_lost() {
    let code = Code::new(3, 4).unwrap();
    let rig = Rig::new(code, 4, true);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let array = &rig.array;
            scope.spawn(move || {
                for round in 0..50 {
                    let seed = thread * 1000 + round;
                    let offset = SMALL.place_offset(thread, round % SMALL.places);
                    let mut page = page_of(seed);
                    array.write(offset, &page, Durability::Later).unwrap();
                    array.sync().unwrap();
                    page.fill(0);
                    array.read(offset, &mut page).unwrap();
                    assert!(page[..] == page_of(seed)[..]);
                }
            });
        }
    });
    rig.faults[2].fail_from(0, Calls::Writes, DeviceErrorKind::NoSpace);
    let outcome = rig.array.write(SMALL.place_offset(0, 0), &AlignedBuf::zeroed(4 * PAGE), Durability::Later);
    assert_eq!(outcome.unwrap_err().kind, DeviceErrorKind::NoSpace);
    assert_eq!(*rig.keeper.struck.lock(), []);
}

#[test]
fn each_byte_is_written_once_and_nothing_is_read_for_it() {
    let code = Code::new(3, 4).unwrap();
    let bases: Vec<_> = (0..4).map(|_| Arc::new(MemoryDevice::new("m"))).collect();
    let counted: Vec<_> =
        bases.iter().map(|base| Arc::new(firndb_device::Counting::new(base.clone()))).collect();
    let devices = counted.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let array = Array::create(devices, code, code, SMALL, options(&Arc::default(), false)).unwrap();
    array.grow(SMALL.group_start(1), Fill::Reserved).unwrap();
    let before: Vec<_> = counted.iter().map(|device| device.snapshot()).collect();
    array.write(SMALL.place_offset(0, 0), &AlignedBuf::zeroed(16 * PAGE), Durability::Durable).unwrap();
    for (device, before) in counted.iter().zip(before) {
        let counts = device.snapshot().since(&before);
        assert_eq!((counts.reads.ops, counts.writes.ops, counts.writes.bytes), (0, 1, 16 * 512));
    }
}
