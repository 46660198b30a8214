//! A member that is being filled: its copies of metadata, and fragments made of what the others
//! have of many places.
//!
//! Every fragment of the places that a member can give is read, on all members side by side; rows
//! that lie between are read with them where that makes fewer reads. Of those that the code needs
//! all are made anew, and compared with those that were read: what the members do not agree on is
//! noticed without a second read. Only rows of the places are written, adjacent ones together,
//! while the fragments of the next places are read. Places of which a fragment could not be read
//! go one by one. Of metadata, what all other members have alike is written together, and all else
//! goes one by one.
//!
//! Why a crash loses nothing: what is written here is in no other member's place, and counts only
//! when the keeper has written down that the member is filled so far, after a sync
//! ([`Array::sync_rebuilt`]). What the places hold stays so from before the first fragment is read
//! until the member's is written, since their range is taken for as long; other threads' writes go
//! to the member as well, before or after.

use crate::array::Array;
use crate::code::MEMBERS_MAX;
use crate::label::Label;
use crate::map::Layout;
use crate::members::Load;
use crate::writes::copied;
use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, Device, DeviceError, Durability, InFlight, Io, IoOp, OwnedRead};
use std::collections::BTreeMap;
use std::ops::Range;

/// Places that are rebuilt together; what would write to them, or to as many after them, waits
/// meanwhile.
pub(crate) const REBUILT_TOGETHER: u64 = 256;
/// Most bytes of metadata that are compared together.
const META_TOGETHER: u64 = 256 << 10;
/// Bytes that are read for nothing rather than by one more read.
const GAP_BYTES: u64 = 32 << 10;

/// What a unit of metadata consists of that could not be filled: it is no unit, and not zeros.
pub(crate) const LEFT_OUT: u8 = 0xA5;

/// Reads that are under way on members, side by side.
#[derive(Default)]
struct SideBySide {
    under_way: Vec<OnMember>,
    given: Given,
}

struct OnMember {
    member: usize,
    device: Arc<dyn Device>,
    in_flight: InFlight,
    _loads: Vec<Load>,
}

/// What members gave: bytes by the tag of their read, without those that failed.
type Given = BTreeMap<usize, BTreeMap<u64, AlignedBuf>>;

/// Bytes to be written to a member, adjacent ones together, by where they begin on it.
#[derive(Default)]
struct Runs(Vec<(u64, Vec<u8>)>);

impl Runs {
    /// Adds bytes that lie behind all others.
    fn add(&mut self, at: u64, bytes: &[u8]) {
        match self.0.last_mut() {
            Some((first, run)) if *first + run.len() as u64 == at => run.extend_from_slice(bytes),
            _ => self.0.push((at, bytes.to_vec())),
        }
    }
}

/// Places whose fragments are being read.
struct Reading {
    /// Of the file above.
    range: Range<u64>,
    /// As it is while the range is taken; `None` if it is not known.
    layout: Option<Layout>,
    /// Those that are used and have a fragment on the member.
    places: Vec<u64>,
    reads: SideBySide,
}

/// Rows of a group that were read: of each member, by their first row.
struct Found {
    fragment: usize,
    members: Given,
}

impl Found {
    fn row(&self, member: usize, row: u64) -> Option<&[u8]> {
        let (first, bytes) = self.members.get(&member)?.range(..=row).next_back()?;
        let at = (row - first) as usize * self.fragment;
        bytes.get(at..at + self.fragment)
    }
}

impl SideBySide {
    /// Begins to read from a member.
    fn begin(&mut self, array: &Array, member: usize, reads: Vec<OwnedRead>) {
        let it = &array.members[member];
        let (device, mut in_flight) = (it.device(), InFlight::default());
        let _loads = reads.iter().map(|_| it.begin_read()).collect();
        device.begin_reads(&mut in_flight, &mut reads.into_iter());
        self.under_way.push(OnMember { member, device, in_flight, _loads });
    }

    /// Takes what has come. Some devices begin only when they are asked for that.
    fn look(&mut self, array: &Array) {
        for on in &mut self.under_way {
            on.take(array, &mut self.given, Some(clock::now()));
        }
    }

    /// Waits for all of it.
    fn finish(mut self, array: &Array) -> Given {
        self.look(array);
        for on in &mut self.under_way {
            while on.in_flight.count() > 0 {
                on.take(array, &mut self.given, None);
            }
        }
        self.given
    }
}

impl OnMember {
    fn take(&mut self, array: &Array, given: &mut Given, until: Option<clock::Moment>) {
        let Some(done) = self.device.next_read(&mut self.in_flight, until) else { return };
        match done.outcome {
            Ok(()) => _ = given.entry(self.member).or_default().insert(done.read.tag, done.read.buf),
            Err(_) => _ = array.members[self.member].failed_reads.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Array {
    /// As [`Array::rebuild_group`], of the metadata before group 0.
    pub fn rebuild_before_groups(&self, member: usize) -> Result<u64, DeviceError> {
        self.units_together(0..self.map.shape.groups_start).iter().try_fold(0, |left_out, units| {
            let _taken = self.ranges.take_one(units[0].start..units[units.len() - 1].end);
            Ok(left_out + self.rebuild_units(member, units)?)
        })
    }

    /// Makes what a member that is being filled should have of a group: its metadata, and fragments
    /// of the places that are `used`, which is asked while nothing is written to them. Returns how
    /// many units and pages of these the other members could not give, or do not agree on.
    ///
    /// Errors: the member cannot be written: it is struck, unless it is full. Or another one does
    /// not answer.
    pub fn rebuild_group(
        &self,
        member: usize,
        group: u64,
        used: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, DeviceError> {
        let shape = &self.map.shape;
        let start = shape.group_start(group);
        let metadata = start..start + shape.places_start;
        let mut left_out = 0;
        let range = |first: u64| {
            let end = (first + REBUILT_TOGETHER).min(shape.places);
            shape.place_offset(group, first)..shape.place_offset(group, end)
        };
        let mut firsts = (0..shape.places).step_by(REBUILT_TOGETHER as usize).peekable();
        while let Some(first) = firsts.next() {
            let own = range(first);
            let with_metadata = (first == 0).then(|| metadata.clone());
            let mut taken =
                self.ranges.take(with_metadata.iter().cloned().chain(Some(own.clone())).collect());
            if with_metadata.is_some() {
                left_out += self.fill_slots(member, group)?;
            }
            let mut reading = Some(self.begin_reading(member, group, first, own, used));
            if let Some(metadata) = with_metadata {
                for units in self.units_together(metadata.clone()) {
                    left_out += self.rebuild_units(member, &units)?;
                }
                taken.give_back(&metadata);
            }
            while let Some(Reading { range: own, layout, places, reads }) = reading.take() {
                let members = reads.finish(self);
                // The next places are read while these are written, unless another thread waits for
                // them, or for all: it gets them first.
                if let Some(next) = firsts.next_if(|next| taken.try_take_one(range(*next))) {
                    reading = Some(self.begin_reading(member, group, next, range(next), used));
                }
                left_out += match layout {
                    Some(layout) => {
                        let found = Found { fragment: layout.fragment as usize, members };
                        self.fill_places(member, &layout, group, &places, &found)?
                    }
                    None => places.len() as u64,
                };
                taken.give_back(&own);
            }
        }
        Ok(left_out)
    }

    /// Begins to read what all members that are read have of the places of a range that are used
    /// and have a fragment on a member that is filled.
    fn begin_reading(
        &self,
        filled: usize,
        group: u64,
        first: u64,
        range: Range<u64>,
        used: &mut dyn FnMut(u64) -> bool,
    ) -> Reading {
        let end = first + (range.end - range.start) / self.map.shape.page_bytes;
        let Ok(layout) = self.layout_to_read(group).copied() else {
            // Without it none of the places can be read.
            let places = (first..end).filter(|place| used(*place)).collect();
            return Reading { range, layout: None, places, reads: SideBySide::default() };
        };
        let (fragment, cells) = (layout.fragment, layout.cells);
        let numbers = 0..layout.code.written();
        let has_own = |place: u64| numbers.clone().any(|number| cells.cell(place, number).member == filled);
        let places: Vec<u64> = (first..end).filter(|place| has_own(*place) && used(*place)).collect();
        let mut rows: Vec<Vec<u64>> = vec![Vec::new(); self.members.len()];
        for cell in places.iter().flat_map(|place| numbers.clone().map(|number| cells.cell(*place, number))) {
            rows[cell.member].push(cell.row);
        }
        let mut reads = SideBySide::default();
        for (member, rows) in rows.iter().enumerate().filter(|(member, _)| self.members[*member].is_read()) {
            let near = |a: &u64, b: &u64| (b - a - 1) * fragment <= GAP_BYTES;
            let read = |run: &[u64]| {
                let len = ((run[run.len() - 1] - run[0] + 1) * fragment) as usize;
                let offset = self.map.row(&layout, group, run[0]);
                OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag: run[0] }
            };
            reads.begin(self, member, rows.chunk_by(near).map(read).collect());
        }
        reads.look(self);
        Reading { range, layout: Some(layout), places, reads }
    }

    /// Fills a member with its fragments of these places, which have one on it each and ascend.
    /// Returns how many the others could not give, or do not agree on.
    ///
    /// Errors: the member cannot be written: it is struck, unless it is full. Or another one does
    /// not answer.
    fn fill_places(
        &self,
        member: usize,
        layout: &Layout,
        group: u64,
        places: &[u64],
        found: &Found,
    ) -> Result<u64, DeviceError> {
        let (written, fragment) = (layout.code.written(), layout.fragment as usize);
        let mut page = AlignedBuf::zeroed(self.map.shape.page_bytes as usize);
        let mut made = AlignedBuf::zeroed(written * fragment);
        let (mut runs, mut alone, mut left_out) = (Runs::default(), Vec::new(), 0);
        for place in places.iter().copied() {
            let cell = |number: usize| layout.cells.cell(place, number);
            let given = |number: usize| {
                let cell = cell(number);
                found.row(cell.member, cell.row).filter(|_| cell.member != member)
            };
            let failed =
                |number: usize| self.members[cell(number).member].is_read() && given(number).is_none();
            if (0..written).any(failed) || !self.make_all(layout, &given, &mut page, &mut made) {
                alone.push(place);
                continue;
            }
            let of = |number: usize| &made[number * fragment..][..fragment];
            let differs = |number: usize| given(number).is_some_and(|given| given != of(number));
            left_out += u64::from((0..written).any(differs));
            let own = (0..written).find(|number| cell(*number).member == member).expect("it has one");
            runs.add(self.map.row(layout, group, cell(own).row), of(own));
        }
        self.write_runs(member, &runs)?;
        for place in alone {
            let fill = || self.fill_alone(member, layout, group, place).transpose();
            left_out += u64::from(self.given(fill)?.transpose()?.unwrap_or(true));
        }
        Ok(left_out)
    }

    /// Fills a member with its fragment of one place, of whatever gives it. Returns whether the
    /// others' fragments do not agree; `None` if they cannot be read.
    fn fill_alone(
        &self,
        member: usize,
        layout: &Layout,
        group: u64,
        place: u64,
    ) -> Result<Option<bool>, DeviceError> {
        let device = self.members[member].device();
        let mut page = AlignedBuf::zeroed(self.map.shape.page_bytes as usize);
        if self.read(self.map.shape.place_offset(group, place), &mut page).is_err() {
            return Ok(None);
        }
        let mut rows = self.encode(layout, place..place + 1, &page);
        if let (row, Some(bytes)) = &rows[member] {
            let written = device.write(self.map.row(layout, group, *row), bytes, Durability::Later);
            self.struck_if_failed(member, &device, written)?;
        }
        rows[member].1 = None;
        Ok(Some(self.disagree(layout, group, &rows)))
    }

    /// Makes all fragments of a page, next to each other, of as many as the code needs of those
    /// that are given; `false` if too few are.
    fn make_all<'a>(
        &self,
        layout: &Layout,
        given: &impl Fn(usize) -> Option<&'a [u8]>,
        page: &mut [u8],
        made: &mut [u8],
    ) -> bool {
        let needed = layout.code.needed();
        let mut present: [(usize, &[u8]); MEMBERS_MAX] = [(0, &[]); MEMBERS_MAX];
        let all = (0..layout.code.written()).filter_map(|number| Some((number, given(number)?)));
        let count = present[..needed].iter_mut().zip(all).map(|(to, one)| *to = one).count();
        if count < needed {
            return false;
        }
        self.coder(layout).decode(&present[..needed], page);
        let mut fragments: [&mut [u8]; MEMBERS_MAX] = Default::default();
        let pieces = made.chunks_mut(layout.fragment as usize);
        fragments.iter_mut().zip(pieces).for_each(|(to, piece)| *to = piece);
        self.coder(layout).encode(page, &mut fragments[..layout.code.written()]);
        true
    }

    /// Whether a member that is read has another fragment of a place than these rows, which were
    /// made of what some of the members gave, or cannot read its own.
    fn disagree(&self, layout: &Layout, group: u64, rows: &[(u64, Option<AlignedBuf>)]) -> bool {
        self.members.iter().zip(rows).filter(|(member, _)| member.is_read()).any(|(member, (row, wanted))| {
            let Some(wanted) = wanted else { return false };
            let mut found = AlignedBuf::zeroed(wanted.len());
            let read = member.device().read(self.map.row(layout, group, *row), &mut found);
            read.is_err() || found[..] != wanted[..]
        })
    }

    /// The units of a range of metadata, in parts that are compared together.
    fn units_together(&self, range: Range<u64>) -> Vec<Vec<Range<u64>>> {
        let mut parts: Vec<Vec<Range<u64>>> = Vec::new();
        for unit in self.units(range) {
            match parts.last_mut() {
                Some(part) if unit.end - part[0].start <= META_TOGETHER => part.push(unit),
                _ => parts.push(vec![unit]),
            }
        }
        parts
    }

    /// Adjacent units of metadata, whose range the caller has taken, of a member that is being
    /// filled. One of which no copy can be read becomes one that is no unit on it, so that it is
    /// not taken for one that was never written. Returns how many.
    fn rebuild_units(&self, member: usize, units: &[Range<u64>]) -> Result<u64, DeviceError> {
        let mut left_out = 0;
        for unit in self.fill_units(member, units)? {
            left_out += u64::from(!self.fill_unit(member, unit)?);
        }
        match self.members[member].is_written() {
            true => Ok(left_out),
            false => Err(self.too_few()),
        }
    }

    /// Fills a member with those of adjacent units, whose range the caller has taken, of which all
    /// other members have the same copy; returns the rest.
    ///
    /// Errors: the member cannot be written: it is struck, unless it is full.
    fn fill_units<'a>(
        &self,
        member: usize,
        units: &'a [Range<u64>],
    ) -> Result<Vec<&'a Range<u64>>, DeviceError> {
        let whole = units[0].start..units[units.len() - 1].end;
        let (offset, len) = (self.map.meta(whole.start), (whole.end - whole.start) as usize);
        let holders: Vec<usize> = self.map.holders(whole.start).collect();
        let holders = || holders.iter().copied().filter(|holder| self.members[*holder].is_written());
        if self.check(whole.start, len).is_err() || !holders().any(|holder| self.members[holder].is_read()) {
            return Ok(units.iter().collect());
        }
        let mut reads = SideBySide::default();
        for holder in holders() {
            reads.begin(self, holder, vec![OwnedRead { offset, len, buf: AlignedBuf::zeroed(len), tag: 0 }]);
        }
        let given = reads.finish(self);
        let copy = |holder: usize| given.get(&holder).and_then(|reads| reads.get(&0));
        let others: Option<Vec<&AlignedBuf>> =
            holders().filter(|holder| *holder != member).map(copy).collect();
        let Some((right, others)) = others.as_ref().and_then(|others| others.split_first()) else {
            return Ok(units.iter().collect());
        };
        let is_held = holders().any(|holder| holder == member);
        let (mut alike, mut rest, mut runs) = (Vec::new(), Vec::new(), Runs::default());
        for unit in units {
            let part = (unit.start - whole.start) as usize..(unit.end - whole.start) as usize;
            let is_right = |copy: &AlignedBuf| copy[part.clone()] == right[part.clone()];
            if !others.iter().all(|copy| is_right(copy)) {
                rest.push(unit);
                continue;
            }
            alike.push(unit);
            if is_held && !copy(member).is_some_and(is_right) {
                runs.add(self.map.meta(unit.start), &right[part]);
            }
        }
        self.write_runs(member, &runs)?;
        alike.into_iter().for_each(|unit| self.set_alike(unit.clone()));
        Ok(rest)
    }

    /// Makes all copies of a unit alike, whose range the caller has taken; returns whether the
    /// others could give it.
    fn fill_unit(&self, member: usize, unit: &Range<u64>) -> Result<bool, DeviceError> {
        if self.check(unit.start, 1).is_err() {
            return Ok(true);
        }
        let made = self.given(|| self.make_taken_alike(unit).ok())?;
        if made.is_some() && self.is_alike(unit) {
            return Ok(true);
        }
        let is_given = made.is_some();
        let bytes = made.unwrap_or_else(|| {
            self.set_doubted(unit);
            let mut bytes = AlignedBuf::zeroed((unit.end.min(self.len()) - unit.start) as usize);
            bytes.fill(LEFT_OUT);
            bytes
        });
        // Perhaps it is this member that could not be written: then that ends the filling.
        if self.map.holders(unit.start).any(|holder| holder == member) {
            let device = self.members[member].device();
            let written = device.write(self.map.meta(unit.start), &bytes, Durability::Later);
            self.struck_if_failed(member, &device, written)?;
        }
        Ok(is_given)
    }

    /// What `read` gets from the other members; `None` if it cannot be read, though all of them
    /// answer: something is wrong in that place.
    ///
    /// Errors: one of them does not answer. What it has may be there still, and is the only copy
    /// perhaps: it is not left out, and the filling has to wait.
    pub(crate) fn given<T>(&self, mut read: impl FnMut() -> Option<T>) -> Result<Option<T>, DeviceError> {
        for _ in 0..2 {
            if let Some(got) = read() {
                return Ok(Some(got));
            }
            for member in self.members.iter().filter(|member| member.is_read()) {
                Label::read(&*member.device())?;
            }
        }
        Ok(None)
    }

    /// Writes to a member that is being filled.
    fn write_runs(&self, member: usize, Runs(runs): &Runs) -> Result<(), DeviceError> {
        if runs.is_empty() {
            return Ok(());
        }
        let aligned: Vec<AlignedBuf> = runs.iter().map(|(_, bytes)| copied(bytes)).collect();
        let write = |((offset, _), data): (&(u64, Vec<u8>), _)| Io {
            offset: *offset,
            op: IoOp::Write(data, Durability::Later),
            outcome: Ok(()),
        };
        let mut batch: Vec<Io<'_>> =
            runs.iter().zip(aligned.iter().map(|data| &data[..])).map(write).collect();
        let device = self.members[member].device();
        device.submit(&mut batch);
        let failed = batch.into_iter().find_map(|io| io.outcome.err());
        self.struck_if_failed(member, &device, failed.map_or(Ok(()), Err))
    }
}
