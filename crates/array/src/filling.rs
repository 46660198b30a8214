//! Fragments for a member that is being filled, made of what the others have of many places.
//!
//! Every fragment of the places that a member can give is read, on all members side by side; rows
//! that lie between are read with them where that makes fewer reads. Of those that the code needs
//! all are made anew, and compared with those that were read: what the members do not agree on is
//! noticed without a second read. Only rows of the places are written, adjacent ones together.

use crate::array::Array;
use crate::code::MEMBERS_MAX;
use crate::writes::copied;
use firndb_base::clock;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, DeviceError, Durability, InFlight, Io, IoOp, OwnedRead};
use std::collections::BTreeMap;

/// Bytes that are read for nothing rather than by one more read.
const GAP_BYTES: u64 = 32 << 10;

/// Rows of a group that were read: of each member, by their first row.
struct Found {
    fragment: usize,
    members: Vec<BTreeMap<u64, AlignedBuf>>,
}

impl Found {
    fn row(&self, member: usize, row: u64) -> Option<&[u8]> {
        let (first, bytes) = self.members[member].range(..=row).next_back()?;
        let at = (row - first) as usize * self.fragment;
        bytes.get(at..at + self.fragment)
    }
}

impl Array {
    /// Fills a member with its fragments of these places, which have one on it each and ascend.
    /// Returns of how many the other members do not agree; `None`, and nothing is written, if some
    /// could not be read.
    ///
    /// Errors: the member cannot be written: it is struck, unless it is full.
    pub(crate) fn fill_together(
        &self,
        member: usize,
        group: u64,
        places: &[u64],
    ) -> Result<Option<u64>, DeviceError> {
        let Some(found) = self.read_fragments(group, places) else { return Ok(None) };
        let (written, fragment) = (self.map.code.written(), self.map.fragment as usize);
        let cell = |place: u64, number: usize| self.map.cells.cell(place, number);
        let rows = places.iter().filter_map(|place| {
            (0..written).map(|number| cell(*place, number)).find(|cell| cell.member == member)
        });
        let rows: Vec<u64> = rows.map(|cell| cell.row).collect();
        assert_eq!(rows.len(), places.len(), "each place has a fragment on the member");
        let mut page = AlignedBuf::zeroed(self.map.shape.page_bytes as usize);
        let mut made = AlignedBuf::zeroed(written * fragment);
        let (mut runs, mut disagreeing) = (Vec::new(), 0);
        for (at, place) in places.iter().enumerate() {
            let given = |number: usize| {
                let cell = cell(*place, number);
                found.row(cell.member, cell.row).filter(|_| cell.member != member)
            };
            if !self.make_all(&given, &mut page, &mut made) {
                return Ok(None);
            }
            let of = |number: usize| &made[number * fragment..][..fragment];
            let differs = |number: usize| given(number).is_some_and(|given| given != of(number));
            disagreeing += u64::from((0..written).any(differs));
            let own = (0..written).find(|number| cell(*place, *number).member == member);
            let own = of(own.expect("it has one"));
            match runs.last_mut() {
                Some((_, bytes)) if rows[at - 1] + 1 == rows[at] => Vec::extend_from_slice(bytes, own),
                _ => runs.push((rows[at], own.to_vec())),
            }
        }
        self.write_runs(member, group, &runs)?;
        Ok(Some(disagreeing))
    }

    /// Makes all fragments of a page, next to each other, of as many as the code needs of those
    /// that are given; `false` if too few are.
    fn make_all<'a>(
        &self,
        given: &impl Fn(usize) -> Option<&'a [u8]>,
        page: &mut [u8],
        made: &mut [u8],
    ) -> bool {
        let needed = self.map.code.needed();
        let mut present: [(usize, &[u8]); MEMBERS_MAX] = [(0, &[]); MEMBERS_MAX];
        let all = (0..self.map.code.written()).filter_map(|number| Some((number, given(number)?)));
        let count = present[..needed].iter_mut().zip(all).map(|(to, one)| *to = one).count();
        if count < needed {
            return false;
        }
        self.coder.decode(&present[..needed], page);
        let mut fragments: [&mut [u8]; MEMBERS_MAX] = Default::default();
        let pieces = made.chunks_mut(self.map.fragment as usize);
        fragments.iter_mut().zip(pieces).for_each(|(to, piece)| *to = piece);
        self.coder.encode(page, &mut fragments[..self.map.code.written()]);
        true
    }

    /// Reads what all members that are read have of these places; `None` if a read fails.
    fn read_fragments(&self, group: u64, places: &[u64]) -> Option<Found> {
        let (fragment, cells) = (self.map.fragment, self.map.cells);
        let mut rows: Vec<Vec<u64>> = vec![Vec::new(); self.members.len()];
        for place in places {
            for number in 0..self.map.code.written() {
                let cell = cells.cell(*place, number);
                rows[cell.member].push(cell.row);
            }
        }
        let mut under_way = Vec::new();
        for (member, rows) in self.members.iter().zip(&rows) {
            let device = member.device();
            let (mut in_flight, mut loads) = (InFlight::default(), Vec::new());
            if member.is_read() {
                let near = |a: &u64, b: &u64| (b - a - 1) * fragment <= GAP_BYTES;
                let mut reads = rows.chunk_by(near).map(|run| {
                    loads.push(member.begin_read());
                    let len = ((run[run.len() - 1] - run[0] + 1) * fragment) as usize;
                    let offset = self.map.row(group, run[0]);
                    OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag: run[0] }
                });
                device.begin_reads(&mut in_flight, &mut reads);
            }
            under_way.push((device, in_flight, loads));
        }
        let mut found = Found { fragment: fragment as usize, members: Vec::new() };
        // A device may hand its reads over only when it is asked for them: all are, before one is
        // waited for.
        let first: Vec<_> = under_way
            .iter_mut()
            .map(|(device, in_flight, _)| device.next_read(in_flight, Some(clock::now())))
            .collect();
        let mut failed = false;
        for ((member, (device, mut in_flight, _loads)), first) in
            self.members.iter().zip(under_way).zip(first)
        {
            let mut of_member = BTreeMap::new();
            let mut next = first;
            while let Some(done) = next.take().or_else(|| device.next_read(&mut in_flight, None)) {
                if done.outcome.is_err() {
                    member.failed_reads.fetch_add(1, Ordering::Relaxed);
                    failed = true;
                }
                of_member.insert(done.read.tag, done.read.buf);
            }
            found.members.push(of_member);
        }
        (!failed).then_some(found)
    }

    /// Writes runs of rows of a group, each from its first row on.
    fn write_runs(&self, member: usize, group: u64, runs: &[(u64, Vec<u8>)]) -> Result<(), DeviceError> {
        let data: Vec<(u64, AlignedBuf)> =
            runs.iter().map(|(first, bytes)| (self.map.row(group, *first), copied(bytes))).collect();
        let mut batch: Vec<Io<'_>> = data
            .iter()
            .map(|(offset, data)| Io {
                offset: *offset,
                op: IoOp::Write(data, Durability::Later),
                outcome: Ok(()),
            })
            .collect();
        let device = self.members[member].device();
        device.submit(&mut batch);
        let failed = batch.into_iter().find_map(|io| io.outcome.err());
        self.struck_if_failed(member, &device, failed.map_or(Ok(()), Err))
    }
}
