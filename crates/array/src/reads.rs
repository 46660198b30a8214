//! Reads of places and of copies: what gives the bytes back, from the members that are expected
//! first.
//!
//! A thread has reads under way on several members. It waits for the oldest, and looks at the
//! others now and then, so that a slow member holds up only what needs it. A read that fails, or
//! that is late on its member ([`LateReads`](firndb_device::LateReads)), has another fragment read
//! for it; as many as the code needs count, in whatever order they come. What is late is left under
//! way: a fragment's memory belongs to its read, so that none that comes late lands on anybody, and
//! whatever reads with the same `Reads` next takes it and drops it.

use crate::array::Array;
use crate::service::Transfer;
use crate::shape::Area;
use crate::wants::{Part, Row, Want, What};
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, Composed, Device, DeviceError, InFlight, Lateness, OwnedRead, ReadDone};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most bytes of one read of a member, so that buffers stay small.
const READ_MAX: usize = 1 << 20;
/// How long a thread waits for the oldest read before it looks at the other members: at first, and
/// at most. Longer by an eighth each time, so that it learns to about that when one has come.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// Reads that one thread has under way on an array.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Of a member there may be several, if its device was replaced while reads were under way.
    on: Vec<OnDevice>,
    /// On members, by number.
    requests: BTreeMap<u64, Request>,
    /// Of the array, by number.
    gathers: BTreeMap<u64, Gather>,
    /// The number of the next of either.
    next: u64,
    /// When to look for late ones.
    look_at: Option<Moment>,
}

/// What is under way on a member's device.
#[derive(Debug)]
struct OnDevice {
    member: usize,
    /// The device of what is under way: a member's may change.
    device: Option<Arc<dyn Device>>,
    in_flight: InFlight,
    requests: usize,
}

/// A read of a member: adjacent rows, or a copy.
#[derive(Debug)]
struct Request {
    /// Its number in `on`.
    on: usize,
    member: usize,
    began: Moment,
    /// By which its member's late reads know it, where they are hidden.
    late: Option<u64>,
    /// Others were begun for it, or there are none.
    is_twice: bool,
    rows: Vec<Part>,
}

/// A read of the array that is not complete.
#[derive(Debug)]
struct Gather {
    read: OwnedRead,
    wants: Vec<Want>,
    /// Wants that are not met.
    left: usize,
    failed: Option<DeviceError>,
}

/// How metadata is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metadata {
    /// As it is given to callers: from copies that are known to be alike.
    Checked,
    /// Any copy, as it is.
    AnyCopy,
}

impl Composed for Reads {
    fn count(&self) -> usize {
        self.gathers.len()
    }
}

impl Reads {
    /// Begins reads of the array; what is complete at once is so in `in_flight`.
    pub(crate) fn begin(
        &mut self,
        array: &Array,
        in_flight: &mut InFlight,
        reads: &mut dyn Iterator<Item = OwnedRead>,
    ) {
        self.begin_all(array, in_flight, reads, Metadata::Checked);
    }

    /// Begins to read one of the copies of metadata, whichever comes first.
    pub(crate) fn begin_copy(&mut self, array: &Array, in_flight: &mut InFlight, read: OwnedRead) {
        self.begin_all(array, in_flight, &mut std::iter::once(read), Metadata::AnyCopy);
    }

    fn begin_all(
        &mut self,
        array: &Array,
        in_flight: &mut InFlight,
        reads: &mut dyn Iterator<Item = OwnedRead>,
        metadata: Metadata,
    ) {
        let mut rows = Vec::new();
        for read in reads {
            let number = self.number();
            let avoided = self.members_waited_for(read.offset);
            let mut gather = Gather { read, wants: Vec::new(), left: 0, failed: None };
            let outcome = self.begin_one(array, number, &mut gather, (avoided, metadata), &mut rows);
            match outcome {
                Ok(()) if gather.left > 0 => _ = self.gathers.insert(number, gather),
                outcome => {
                    rows.retain(|row: &Row| row.part.gather != number);
                    in_flight.complete(gather.read, outcome);
                }
            }
        }
        self.issue(array, rows);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Members, a bit each, that reads of the same pages which are under way still wait for: one
    /// that is begun again because it is late is not to wait for the same member.
    fn members_waited_for(&self, offset: u64) -> u32 {
        let is_same = |part: &Part| self.gathers.get(&part.gather).is_some_and(|it| it.read.offset == offset);
        if !self.gathers.values().any(|gather| gather.read.offset == offset) {
            return 0;
        }
        let waited_for = self.requests.values().filter(|request| request.rows.iter().any(is_same));
        waited_for.fold(0, |members, request| members | 1 << request.member)
    }

    fn begin_one(
        &self,
        array: &Array,
        number: u64,
        gather: &mut Gather,
        (avoided, metadata): (u32, Metadata),
        rows: &mut Vec<Row>,
    ) -> Result<(), DeviceError> {
        let (offset, len) = (gather.read.offset, gather.read.len);
        array.check(offset, len)?;
        let mut want = |gather: &mut Gather, at: u64, len: usize, what: What| {
            let at = (at - offset) as usize;
            let mut want = Want { at, len, what, asked: 0, under_way: 0, got: Vec::new(), is_over: false };
            let needed = array.needed(what);
            array.choose(&mut want, needed, (number, gather.wants.len()), avoided, rows)?;
            gather.wants.push(want);
            gather.left += 1;
            Ok(())
        };
        for area in array.map.shape.areas(offset..offset + len as u64) {
            match area {
                Area::Meta(range) if metadata == Metadata::AnyCopy => {
                    let what = What::Copy { offset: range.start };
                    want(gather, range.start, (range.end - range.start) as usize, what)?;
                }
                Area::Meta(range) => {
                    let at = (range.start - offset) as usize;
                    let bytes = (range.end - range.start) as usize;
                    array.read_meta(range.start, &mut gather.read.buf[at..at + bytes])?;
                }
                Area::Places { group, places } => {
                    let layout = array.layout_to_read(group)?.index;
                    for place in places {
                        let (shape, what) = (&array.map.shape, What::Place { group, place, layout });
                        want(gather, shape.place_offset(group, place), shape.page_bytes as usize, what)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads rows, adjacent ones of a member together.
    fn issue(&mut self, array: &Array, mut rows: Vec<Row>) {
        rows.sort_unstable_by_key(|row| (row.member, row.offset));
        let now = clock::now();
        let mut rows = rows.into_iter().peekable();
        while let Some(member) = rows.peek().map(|row| row.member) {
            let on = self.on_device(member, array.members[member].device());
            let mut reads = Vec::new();
            while let Some(first) = rows.next_if(|row| row.member == member) {
                let (offset, mut len, mut parts) = (first.offset, first.part.len, vec![first.part]);
                let is_next = |row: &Row, len: usize| {
                    row.member == member
                        && row.offset == offset + len as u64
                        && len + row.part.len <= READ_MAX
                };
                while let Some(row) = rows.next_if(|row| is_next(row, len)) {
                    len += row.part.len;
                    parts.push(row.part);
                }
                let number = self.number();
                reads.push(OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag: number });
                let late_reads =
                    parts.iter().any(|part| part.hides).then(|| &array.members[member].late_reads);
                let late = late_reads.map(|late| late.begin(len, parts.len() as u32, now));
                self.requests
                    .insert(number, Request { on, member, began: now, late, is_twice: false, rows: parts });
            }
            let on = &mut self.on[on];
            on.requests += reads.len();
            let device = on.device.as_ref().expect("it has one while reads are under way");
            device.begin_reads(&mut on.in_flight, &mut reads.into_iter());
        }
    }

    /// Where reads of a member's device are kept: what is left behind on the one before is not on
    /// it.
    fn on_device(&mut self, member: usize, device: Arc<dyn Device>) -> usize {
        let is_its = |on: &OnDevice| {
            on.member == member && on.device.as_ref().is_none_or(|before| Arc::ptr_eq(before, &device))
        };
        let at = self.on.iter().position(is_its).unwrap_or_else(|| {
            self.on.push(OnDevice { member, device: None, in_flight: InFlight::default(), requests: 0 });
            self.on.len() - 1
        });
        self.on[at].device = Some(device);
        at
    }

    /// Waits for the next read of the array to complete, until `until` at most.
    pub(crate) fn next(
        &mut self,
        array: &Array,
        in_flight: &mut InFlight,
        until: Option<Moment>,
    ) -> Option<ReadDone> {
        let mut look = LOOK.0;
        loop {
            if let Some(done) = in_flight.take_done() {
                return Some(done);
            }
            let Some(expected) = self.expected() else {
                self.look_at = None;
                return None;
            };
            self.take_come(array, in_flight, Some(expected));
            if let Some(done) = in_flight.take_done() {
                return Some(done);
            }
            if self.look_at.is_none() && array.hides_late_reads {
                self.look_at = self.first_late_at(array);
            }
            let next_look = if self.is_alone(expected) { None } else { clock::now().after(look) };
            let end = [until, next_look, self.look_at].into_iter().flatten().min();
            if let Some(done) = self.wait(expected, end) {
                look = LOOK.0;
                self.came(array, in_flight, done);
                continue;
            }
            let now = clock::now();
            if self.look_at.is_some_and(|look_at| look_at <= now) {
                self.begin_late(array, now);
            } else if until.is_some_and(|until| until <= now) {
                return None;
            } else {
                look = (look + look / 8).min(LOOK.1);
            }
        }
    }

    /// Takes what has come of all devices but one, without a wait.
    fn take_come(&mut self, array: &Array, in_flight: &mut InFlight, but: Option<usize>) {
        for on in (0..self.on.len()).filter(|on| Some(*on) != but) {
            while self.on[on].requests > 0 {
                let Some(done) = self.wait(on, Some(clock::now())) else { break };
                self.came(array, in_flight, done);
            }
        }
    }

    /// Takes what was left behind and has come since.
    pub(crate) fn drop_come(&mut self, array: &Array) {
        assert!(self.gathers.is_empty(), "nothing waits for it");
        self.take_come(array, &mut InFlight::default(), None);
    }

    /// Whether reads of members are left behind.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.requests.is_empty()
    }

    fn is_wanted(&self, request: &Request) -> bool {
        request.rows.iter().any(|part| self.gathers.contains_key(&part.gather))
    }

    /// On which device the next read is expected: the oldest that is not known to be late.
    fn expected(&self) -> Option<usize> {
        let wanted = || self.requests.values().filter(|request| self.is_wanted(request));
        let first = wanted().find(|request| !request.is_twice).or_else(|| wanted().next());
        first.map(|request| request.on)
    }

    /// Whether all that is waited for is on this device.
    fn is_alone(&self, on: usize) -> bool {
        self.requests.values().all(|request| request.on == on || !self.is_wanted(request))
    }

    /// When to look for late reads: when the oldest of any device may be late.
    fn first_late_at(&self, array: &Array) -> Option<Moment> {
        let mut seen = 0_u64;
        let oldest = self.requests.values().filter(|request| {
            let is_first = !request.is_twice && seen >> (request.on & 63) & 1 == 0;
            seen |= u64::from(is_first) << (request.on & 63);
            is_first
        });
        oldest.filter_map(|request| array.members[request.member].late_reads.late_at(request.late?)).min()
    }

    /// Has other fragments read for those that are late, where there are any.
    #[cold]
    fn begin_late(&mut self, array: &Array, now: Moment) {
        let (mut rows, mut next) = (Vec::new(), None::<Moment>);
        for request in self.requests.values_mut().filter(|request| !request.is_twice) {
            let Some(late) = request.late else { continue };
            let has_others = |part: &Part| {
                let want = self.gathers.get(&part.gather).map(|gather| &gather.wants[part.want]);
                want.is_some_and(|want| !want.is_over && array.others(want).next().is_some())
            };
            if !request.rows.iter().any(has_others) {
                request.is_twice = true;
                continue;
            }
            match array.members[request.member].late_reads.judge(late, now) {
                Lateness::LookAt(moment) => next = Some(next.map_or(moment, |next| next.min(moment))),
                Lateness::Unknown => {}
                Lateness::Late => {
                    request.is_twice = true;
                    for part in &mut request.rows {
                        let want = self.gathers.get_mut(&part.gather).map(|it| &mut it.wants[part.want]);
                        let Some(want) = want.filter(|want| !want.is_over) else { continue };
                        let at = (part.gather, part.want);
                        if array.choose(want, 1, at, 1 << request.member, &mut rows).is_ok() {
                            part.instead = rows.last().map(|row| row.part.fragment);
                        }
                    }
                }
            }
        }
        self.look_at = next;
        self.issue(array, rows);
    }

    fn wait(&mut self, on: usize, until: Option<Moment>) -> Option<ReadDone> {
        let on = &mut self.on[on];
        let device = on.device.clone().expect("it has one while reads are under way");
        device.next_read(&mut on.in_flight, until)
    }

    /// A read of a member is complete.
    fn came(&mut self, array: &Array, in_flight: &mut InFlight, done: ReadDone) {
        let request = self.requests.remove(&done.read.tag).expect("it was under way");
        let on = &mut self.on[request.on];
        on.requests -= 1;
        if on.requests == 0 {
            // It may have been struck, and is then to be closed.
            on.device = None;
        }
        let member = &array.members[request.member];
        let now = clock::now();
        match &done.outcome {
            Ok(()) => member.service.ended(Transfer::Read, (request.began, now), (1, done.read.len)),
            Err(_) => _ = member.failed_reads.fetch_add(1, Ordering::Relaxed),
        }
        if let Some(late) = request.late {
            member.late_reads.complete(late, done.outcome.is_ok() && self.is_in_vain(&request), now);
        }
        let (mut others, mut from) = (Vec::new(), 0);
        for part in request.rows {
            let bytes = &done.read.buf[from..from + part.len];
            from += part.len;
            let Some(gather) = self.gathers.get_mut(&part.gather) else { continue };
            let want = &mut gather.wants[part.want];
            want.under_way -= 1;
            if want.is_over {
                continue;
            }
            let needed = array.needed(want.what);
            match &done.outcome {
                Ok(()) if want.got.len() + 1 < needed => {
                    want.got.push((part.fragment, bytes.into()));
                    continue;
                }
                Ok(()) => array.put(want, (part.fragment, bytes), &mut gather.read.buf),
                Err(error) => {
                    let another = array.choose(want, 1, (part.gather, part.want), 0, &mut others);
                    if another.is_ok() || want.got.len() + want.under_way >= needed {
                        continue;
                    }
                    gather.failed = Some(error.clone());
                }
            }
            want.is_over = true;
            gather.left -= 1;
            if gather.left == 0 {
                let gather = self.gathers.remove(&part.gather).expect("it was there");
                in_flight.complete(gather.read, gather.failed.map_or(Ok(()), Err));
            }
        }
        self.issue(array, others);
    }

    /// Whether something was begun for a late request, and has not come before it.
    fn is_in_vain(&self, request: &Request) -> bool {
        request.rows.iter().any(|part| {
            let want = self.gathers.get(&part.gather).map(|gather| &gather.wants[part.want]);
            part.instead.zip(want).is_some_and(|(instead, want)| {
                !want.is_over && want.got.iter().all(|(fragment, _)| *fragment != instead)
            })
        })
    }
}
