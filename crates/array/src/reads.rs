//! Reads of places: the fragments that give a page back, from the members that are expected first.
//!
//! A thread has reads under way on several members. It waits for the oldest, and looks at the
//! others now and then, so that a slow member holds up only what needs it. A read that fails is
//! replaced by one of another fragment; a fragment's memory belongs to its read, so that none that
//! comes late lands on anybody.

use crate::array::Array;
use crate::cells::Cell;
use crate::code::MEMBERS_MAX;
use crate::members::Load;
use crate::shape::Area;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, Composed, Device, DeviceError, InFlight, OwnedRead, ReadDone};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most bytes of one read of a member, so that buffers stay small.
const READ_MAX: u64 = 1 << 20;
/// How long a thread waits for the oldest read before it looks at the other members: at first, and
/// at most.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// Reads that one thread has under way on an array.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    members: Vec<OnMember>,
    /// On members, by number.
    requests: BTreeMap<u64, Request>,
    /// Of the array, by number.
    gathers: BTreeMap<u64, Gather>,
    /// The number of the next of either.
    next: u64,
}

#[derive(Debug, Default)]
struct OnMember {
    /// The device of what is under way: a member's may change.
    device: Option<Arc<dyn Device>>,
    in_flight: InFlight,
    requests: usize,
}

/// A read of a member: adjacent rows.
#[derive(Debug)]
struct Request {
    member: usize,
    rows: Vec<Part>,
}

/// A row of a request, and what it is for.
#[derive(Debug)]
struct Part {
    gather: u64,
    want: usize,
    fragment: usize,
    _load: Load,
}

/// A row that is to be read.
struct Row {
    member: usize,
    offset: u64,
    part: Part,
}

/// A read of the array that is not complete.
#[derive(Debug)]
struct Gather {
    read: OwnedRead,
    wants: Vec<Want>,
    /// Fragments under way.
    left: usize,
    failed: Option<DeviceError>,
}

/// A place of a gather.
#[derive(Debug)]
struct Want {
    /// Where it begins in the gather's buffer.
    at: usize,
    group: u64,
    place: u64,
    /// Fragments that were asked for, a bit each.
    asked: u32,
    /// Fragments that came, but for the last.
    got: Vec<(usize, Box<[u8]>)>,
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
        let mut rows = Vec::new();
        for read in reads {
            let number = self.number();
            let avoided = self.members_waited_for(read.offset);
            let (gather, outcome) = self.begin_one(array, number, read, avoided, &mut rows);
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
        read: OwnedRead,
        avoided: u32,
        rows: &mut Vec<Row>,
    ) -> (Gather, Result<(), DeviceError>) {
        let mut gather = Gather { read, wants: Vec::new(), left: 0, failed: None };
        let (offset, len) = (gather.read.offset, gather.read.len);
        let outcome = array.check(offset, len).and_then(|()| {
            for area in array.map.shape.areas(offset..offset + len as u64) {
                match area {
                    Area::Meta(range) => {
                        let at = (range.start - offset) as usize;
                        let bytes = (range.end - range.start) as usize;
                        array.read_meta(range.start, &mut gather.read.buf[at..at + bytes])?;
                    }
                    Area::Places { group, places } => {
                        for place in places {
                            let at = (array.map.shape.place_offset(group, place) - offset) as usize;
                            let mut want = Want { at, group, place, asked: 0, got: Vec::new() };
                            let needed = array.map.code.needed();
                            let at = (number, gather.wants.len());
                            array.choose(&mut want, needed, at, avoided, rows)?;
                            gather.wants.push(want);
                            gather.left += needed;
                        }
                    }
                }
            }
            Ok(())
        });
        (gather, outcome)
    }

    /// Reads rows, adjacent ones of a member together.
    fn issue(&mut self, array: &Array, mut rows: Vec<Row>) {
        rows.sort_unstable_by_key(|row| (row.member, row.offset));
        self.members.resize_with(array.members.len(), OnMember::default);
        let fragment = array.map.fragment;
        let most = (READ_MAX / fragment).max(1) as usize;
        let adjacent = |a: &Row, b: &Row| a.member == b.member && a.offset + fragment == b.offset;
        let runs = rows.chunk_by(adjacent).flat_map(|run| run.chunks(most));
        let runs: Vec<usize> = runs.map(<[Row]>::len).collect();
        let mut reads: Vec<Vec<OwnedRead>> = Vec::new();
        reads.resize_with(self.members.len(), Vec::new);
        let mut rows = rows.into_iter().peekable();
        for run in runs {
            let first = rows.peek().expect("a run has a row");
            let (member, offset, number) = (first.member, first.offset, self.number());
            let len = run * fragment as usize;
            reads[member].push(OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag: number });
            let rows = rows.by_ref().take(run).map(|row| row.part).collect();
            self.requests.insert(number, Request { member, rows });
        }
        for (member, reads) in reads.into_iter().enumerate().filter(|(_, reads)| !reads.is_empty()) {
            let on = &mut self.members[member];
            if on.requests == 0 {
                on.device = Some(array.members[member].device());
            }
            on.requests += reads.len();
            let device = on.device.as_ref().expect("it has one while reads are under way");
            device.begin_reads(&mut on.in_flight, &mut reads.into_iter());
        }
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
            let oldest = self.requests.first_key_value()?.1.member;
            for member in (0..self.members.len()).filter(|member| *member != oldest) {
                while self.members[member].requests > 0 {
                    let Some(done) = self.wait(member, Some(clock::now())) else { break };
                    self.came(array, in_flight, done);
                }
            }
            if let Some(done) = in_flight.take_done() {
                return Some(done);
            }
            let alone = self.requests.values().all(|request| request.member == oldest);
            let next_look = if alone { None } else { clock::now().after(look) };
            let end = [until, next_look].into_iter().flatten().min();
            match self.wait(oldest, end) {
                Some(done) => {
                    look = LOOK.0;
                    self.came(array, in_flight, done);
                }
                None if until.is_some_and(|until| until <= clock::now()) => return None,
                None => look = (look * 2).min(LOOK.1),
            }
        }
    }

    fn wait(&mut self, member: usize, until: Option<Moment>) -> Option<ReadDone> {
        let on = &mut self.members[member];
        let device = on.device.clone().expect("it has one while reads are under way");
        device.next_read(&mut on.in_flight, until)
    }

    /// A read of a member is complete.
    fn came(&mut self, array: &Array, in_flight: &mut InFlight, done: ReadDone) {
        let Request { member, rows } = self.requests.remove(&done.read.tag).expect("it was under way");
        let on = &mut self.members[member];
        on.requests -= 1;
        if on.requests == 0 {
            // It may have been struck, and is then to be closed.
            on.device = None;
        }
        if done.outcome.is_err() {
            array.members[member].failed_reads.fetch_add(1, Ordering::Relaxed);
        }
        let fragment = array.map.fragment as usize;
        let mut others = Vec::new();
        for (part, bytes) in rows.into_iter().zip(done.read.buf.chunks(fragment)) {
            let gather = self.gathers.get_mut(&part.gather).expect("it waits for all of its reads");
            let want = &mut gather.wants[part.want];
            gather.left -= 1;
            match &done.outcome {
                Ok(()) if want.got.len() + 1 < array.map.code.needed() => {
                    want.got.push((part.fragment, bytes.into()));
                }
                Ok(()) => {
                    let page = want.at..want.at + array.map.shape.page_bytes as usize;
                    array.decode(&want.got, (part.fragment, bytes), &mut gather.read.buf[page]);
                }
                Err(error) => match array.choose(want, 1, (part.gather, part.want), 0, &mut others) {
                    Ok(()) => gather.left += 1,
                    Err(_) => gather.failed = Some(error.clone()),
                },
            }
            if gather.left == 0 {
                let gather = self.gathers.remove(&part.gather).expect("it was there");
                in_flight.complete(gather.read, gather.failed.map_or(Ok(()), Err));
            }
        }
        self.issue(array, others);
    }
}

impl Array {
    /// Chooses `count` more fragments of a place, which is `want` of `gather`: of members that are
    /// not to be avoided, if they suffice, those with the fewest reads under way, data before
    /// parity.
    fn choose(
        &self,
        want: &mut Want,
        count: usize,
        (gather, at): (u64, usize),
        avoided: u32,
        rows: &mut Vec<Row>,
    ) -> Result<(), DeviceError> {
        let (code, cells) = (self.map.code, self.map.cells);
        let mut candidates = [(0, 0, 0, 0); MEMBERS_MAX];
        let mut found = 0;
        for fragment in (0..code.written()).filter(|fragment| want.asked & 1 << fragment == 0) {
            let cell = cells.cell(want.place, fragment);
            let member = &self.members[cell.member];
            if member.is_read() {
                let is_avoided = avoided >> cell.member & 1;
                candidates[found] = (is_avoided, member.reads_under_way(), fragment, cell.member);
                found += 1;
            }
        }
        if found < count {
            return Err(self.too_few());
        }
        candidates[..found].sort_unstable();
        for (_, _, fragment, member) in candidates[..count].iter().copied() {
            want.asked |= 1 << fragment;
            let offset = self.map.row(want.group, cells.cell(want.place, fragment).row);
            let _load = self.members[member].begin_read();
            rows.push(Row { member, offset, part: Part { gather, want: at, fragment, _load } });
        }
        Ok(())
    }

    /// Reads a page from the member with the fewest reads under way, without a buffer of its own;
    /// `false` if pages are not whole on a member, or that read failed.
    pub(crate) fn read_whole(&self, group: u64, place: u64, page: &mut [u8]) -> bool {
        if self.map.code.needed() > 1 {
            return false;
        }
        let copies = (0..self.map.code.written()).map(|copy| self.map.cells.cell(place, copy));
        let copies = copies.filter(|cell| self.members[cell.member].is_read());
        let load = |cell: &Cell| self.members[cell.member].reads_under_way();
        let Some(cell) = copies.min_by_key(load) else { return false };
        let member = &self.members[cell.member];
        let _load = member.begin_read();
        let outcome = member.device().read(self.map.row(group, cell.row), page);
        member.failed_reads.fetch_add(u64::from(outcome.is_err()), Ordering::Relaxed);
        outcome.is_ok()
    }

    /// Makes the page of as many fragments as the code needs, of which `last` came last.
    fn decode(&self, got: &[(usize, Box<[u8]>)], last: (usize, &[u8]), page: &mut [u8]) {
        let mut present: [(usize, &[u8]); MEMBERS_MAX] = [last; MEMBERS_MAX];
        for (to, (fragment, bytes)) in present.iter_mut().zip(got) {
            *to = (*fragment, bytes);
        }
        let present = &mut present[..=got.len()];
        present.sort_unstable_by_key(|(fragment, _)| *fragment);
        self.coder.decode(present, page);
    }
}
