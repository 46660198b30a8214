//! Reads that are late, and are begun again, by the array or by its reader.

use super::*;
use firndb_base::clock::{self, Moment};
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicU64, Ordering};

/// A device that begins reads and does not complete them.
#[derive(Debug)]
struct Frozen(MemoryDevice);

impl Device for Frozen {
    forward!(0: info, len, read, write, sync, grow, shrink, discard);
    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        let never = firndb_base::clock::now().after(Duration::from_secs(3600)).unwrap();
        in_flight.complete_at(never, read, Ok(()));
    }
}

/// Cause: a read that was late and was begun again chose members by their reads under way alone.
/// Effect: it could wait for the frozen member, too, and nothing began it a third time.
#[test]
fn a_read_begun_again_does_not_wait_for_the_same_member() {
    for (needed, written) in [(1, 2), (3, 4), (2, 4)] {
        let devices = (0..4).map(|at| -> Arc<dyn Device> {
            let memory = MemoryDevice::new(&format!("m{at}"));
            if at == 1 { Arc::new(Frozen(memory)) } else { Arc::new(memory) }
        });
        let code = Code::new(needed, written).unwrap();
        let options = ArrayOptions { hides_late_reads: false, ..options(&Arc::default(), false) };
        let array = Array::create(devices.collect(), code, code, SMALL, options).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        // Others are busy: by reads under way alone the frozen member would be taken again.
        let _busy: Vec<_> =
            [0, 2, 3].iter().flat_map(|at| (0..9).map(|_| array.members[*at].begin_read())).collect();
        for place in 0..SMALL.places {
            let offset = SMALL.place_offset(0, place);
            array.write(offset, &page_of(place), Durability::Durable).unwrap();
            let mut in_flight = InFlight::default();
            let mut next = |tag: u64, wait: Duration| {
                let buf = AlignedBuf::zeroed(PAGE);
                array.begin_read(&mut in_flight, OwnedRead { offset, len: PAGE, buf, tag });
                array.next_read(&mut in_flight, firndb_base::clock::now().after(wait))
            };
            let done = next(0, Duration::from_millis(1)).or_else(|| next(1, Duration::from_secs(5)));
            let done = done.expect("the second read is complete, if the first is not");
            assert!(done.read.buf[..] == page_of(place)[..], "{code}, place {place}");
        }
    }
}

/// A device on which a read takes a millisecond, all go on side by side, and some take longer.
#[derive(Debug)]
struct Timed {
    inner: MemoryDevice,
    /// Nothing is read until then.
    frozen_until: Mutex<Moment>,
    /// Each read takes 100 ms with a chance of one in `spikes`; no read does while `spikes` is 0.
    spikes: AtomicU64,
    reads: AtomicU64,
    rng: Mutex<Rng>,
}

impl Timed {
    fn end(&self) -> Moment {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut rng = self.rng.lock();
        let spikes = self.spikes.load(Ordering::Relaxed);
        let us = if spikes > 0 && rng.below(spikes) == 0 { 100_000 } else { 900 + rng.below(200) };
        clock::now().max(*self.frozen_until.lock()).after(Duration::from_micros(us)).unwrap()
    }
}

impl Device for Timed {
    forward!(inner: info, len, write, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        clock::sleep_until(self.end());
        self.inner.read(offset, buf)
    }
    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        let outcome = self.inner.read(read.offset, &mut read.buf[..read.len]);
        in_flight.complete_at(self.end(), read, outcome);
    }
}

/// An array of timed members whose first group is written, and of which it is known what a read
/// takes.
struct TimedRig {
    members: Vec<Arc<Timed>>,
    array: Array,
    rng: Rng,
}

impl TimedRig {
    fn new((needed, written): (usize, usize), of: usize) -> TimedRig {
        let timed = |at: usize| {
            let (inner, rng) = (MemoryDevice::new(&format!("m{at}")), Mutex::new(Rng::new(at as u64)));
            let (frozen_until, spikes) = (Mutex::new(Moment::ZERO), AtomicU64::new(0));
            Arc::new(Timed { inner, frozen_until, spikes, reads: AtomicU64::new(0), rng })
        };
        let members: Vec<_> = (0..of).map(timed).collect();
        let devices = members.iter().map(|member| member.clone() as Arc<dyn Device>).collect();
        let code = Code::new(needed, written).unwrap();
        let array = Array::create(devices, code, code, SMALL, options(&Arc::default(), false)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        for place in 0..SMALL.places {
            array.write(SMALL.place_offset(0, place), &page_of(place), Durability::Durable).unwrap();
        }
        for group in 0..GROUPS {
            array.write(SMALL.group_start(group), &unit(group as u8), Durability::Durable).unwrap();
        }
        let mut rig = TimedRig { members, array, rng: Rng::new(1) };
        (0..1200).for_each(|_| _ = rig.read());
        rig
    }

    /// Reads a page; returns how long that took.
    fn read(&mut self) -> Duration {
        let (place, began) = (self.rng.below(SMALL.places), clock::now());
        let mut page = AlignedBuf::zeroed(PAGE);
        self.array.read(SMALL.place_offset(0, place), &mut page).unwrap();
        assert!(page[..] == page_of(place)[..], "place {place}");
        began.elapsed()
    }

    /// Reads metadata of every group, of which no member has all; returns the longest time.
    fn read_metadata(&self) -> Duration {
        let read = |group: u64| {
            let (mut found, began) = (AlignedBuf::zeroed(512), clock::now());
            self.array.read(SMALL.group_start(group), &mut found).unwrap();
            assert_eq!(found[..], unit(group as u8)[..]);
            began.elapsed()
        };
        (0..GROUPS).map(read).max().unwrap()
    }

    fn freeze(&self, member: usize, time: Duration) {
        *self.members[member].frozen_until.lock() = clock::now().after(time).unwrap();
    }

    fn reads(&self) -> u64 {
        self.members.iter().map(|member| member.reads.load(Ordering::Relaxed)).sum()
    }
}

fn in_virtual_time(test: impl FnOnce() + Send + 'static) {
    sim::run(SimOptions::measuring(1, 2), test).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Codes with a spare fragment, and members.
const SPARE: [((usize, usize), usize); 4] = [((1, 2), 2), ((1, 2), 4), ((3, 4), 4), ((2, 4), 5)];

/// Cause: a single row was read by a call that waited for the member it had chosen. Effect: a
/// member that was frozen for five seconds held up a read for as long.
#[test]
fn a_single_read_does_not_wait_for_a_frozen_member() {
    for (code, of) in SPARE {
        in_virtual_time(move || {
            let mut rig = TimedRig::new(code, of);
            let five = Duration::from_secs(5);
            let (began, reads) = (clock::now(), rig.reads());
            rig.freeze(1, five);
            let mut count = 0;
            while began.elapsed() < five {
                let took = rig.read().max(rig.read_metadata());
                assert!(took < Duration::from_millis(6), "{code:?}: {took:?}");
                count += code.0 as u64 + GROUPS;
            }
            let extra = rig.reads() - reads - count;
            assert!(extra > 0 && extra * 20 < count, "{code:?}: {extra} more than {count}");
            // It is used again, and nothing counts as under way.
            clock::sleep(Duration::from_millis(2));
            let before = rig.members[1].reads.load(Ordering::Relaxed);
            (0..100).for_each(|_| _ = rig.read());
            assert!(rig.members[1].reads.load(Ordering::Relaxed) > before + 10, "{code:?}");
            clock::sleep(Duration::from_secs(1));
            rig.array.drop_reads_left_behind();
            assert!(rig.array.members.iter().all(|member| member.reads_under_way() == 0), "{code:?}");
        });
    }
}

#[test]
fn spikes_of_a_member_are_hidden_from_single_reads_by_few_more() {
    for (code, of) in SPARE {
        in_virtual_time(move || {
            let mut rig = TimedRig::new(code, of);
            rig.members[1].spikes.store(100, Ordering::Relaxed);
            let (before, mut spent) = (rig.reads(), Vec::new());
            (0..5000).for_each(|_| spent.push(rig.read()));
            spent.sort_unstable();
            let p999 = spent[spent.len() * 999 / 1000];
            assert!(p999 < Duration::from_micros(2 * 1100 + 300), "{code:?}: {p999:?}");
            let (wanted, all) = (5000 * code.0 as u64, rig.reads() - before);
            assert!(all > wanted && all * 100 <= wanted * 105, "{code:?}: {all} instead of {wanted}");
        });
    }
}

/// Several threads at once, each of which leaves something behind; and batches.
#[test]
fn many_threads_read_beside_a_frozen_member() {
    in_virtual_time(|| {
        let rig = TimedRig::new((3, 4), 4);
        rig.freeze(2, Duration::from_secs(5));
        firndb_base::sync::thread::scope(|scope| {
            for thread in 0..8 {
                let array = &rig.array;
                let read = move || {
                    for round in 0..50 {
                        let began = clock::now();
                        let first = (thread + round) % (SMALL.places - 4);
                        let mut run = AlignedBuf::zeroed(4 * PAGE);
                        array.read(SMALL.place_offset(0, first), &mut run).unwrap();
                        for (page, place) in run.chunks(PAGE).zip(first..) {
                            assert!(page == &page_of(place)[..], "place {place}");
                        }
                        assert!(began.elapsed() < Duration::from_millis(12), "{:?}", began.elapsed());
                    }
                };
                scope.spawn(read);
            }
        });
    });
}

/// What was left behind on a device that has been replaced keeps no later read from the new one.
#[test]
fn reads_left_behind_stay_with_the_device_they_were_begun_on() {
    in_virtual_time(|| {
        let mut rig = TimedRig::new((1, 2), 2);
        rig.freeze(1, Duration::from_secs(3600));
        while rig.array.members[1].reads_under_way() == 0 {
            rig.read();
        }
        let stuck = Arc::downgrade(&rig.members.remove(1));
        assert_eq!(rig.array.give_up(1, || Ok::<(), DeviceError>(())), Ok(true));
        let new = Arc::new(firndb_device::Counting::new(Arc::new(MemoryDevice::new("new"))));
        rig.array.replace(1, new.clone(), 2).unwrap();
        for group in 0..GROUPS {
            assert_eq!(rig.array.rebuild_group(1, group, &mut |_| group == 0), Ok(0));
        }
        rig.array.finish_rebuilding(1);
        rig.freeze(0, Duration::from_secs(3600));
        let before = new.snapshot();
        for _ in 0..20 {
            assert!(rig.read() < Duration::from_millis(6));
        }
        assert_eq!(new.snapshot().since(&before).reads.ops, 20);
        assert!(stuck.strong_count() > 0, "it is not closed while it is read");
        clock::sleep(Duration::from_secs(3601));
        rig.array.drop_reads_left_behind();
        assert_eq!(stuck.strong_count(), 0);
    });
}

/// Where no other member has a fragment more, the caller reads by itself, as without an array.
#[test]
fn pages_without_copies_are_read_directly() {
    for (of, lost) in [(1, None), (3, None), (2, Some(0))] {
        let devices =
            (0..of).map(|at| -> Arc<dyn Device> { Arc::new(Direct(MemoryDevice::new(&format!("m{at}")))) });
        let code = Code::new(1, if lost.is_some() { 2 } else { 1 }).unwrap();
        let array =
            Array::create(devices.collect(), code, code, SMALL, options(&Arc::default(), false)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        if let Some(lost) = lost {
            assert!(array.hides_late_reads());
            assert_eq!(array.give_up(lost, || Ok::<(), DeviceError>(())), Ok(true));
        }
        assert!(!array.hides_late_reads(), "its reader does, if it can");
        for place in 0..SMALL.places {
            let (offset, mut page) = (SMALL.place_offset(0, place), AlignedBuf::zeroed(PAGE));
            array.write(offset, &page_of(place), Durability::Durable).unwrap();
            array.read(offset, &mut page).unwrap();
            assert!(page[..] == page_of(place)[..]);
        }
    }
}

/// A device on which no read is begun.
#[derive(Debug)]
struct Direct(MemoryDevice);

impl Device for Direct {
    forward!(0: info, len, read, write, sync, grow, shrink, discard);
    fn begin_read(&self, _: &mut InFlight, read: OwnedRead) {
        panic!("{read:?}");
    }
}
