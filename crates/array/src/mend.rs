//! Fragments that are wrong or missing. The store, which knows a page's checksum, says which choice
//! of fragments gives the page; the array makes the others anew.

use crate::array::Array;
use crate::code::MEMBERS_MAX;
use crate::members::{MemberState, is_enough, readable};
use crate::meta::each_unit;
use crate::shape::Area;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability};

/// Places that are rebuilt together; what would write to them waits meanwhile.
const REBUILT_TOGETHER: u64 = 64;

/// The fragments of a place: each that could be read.
type Fragments = Vec<Option<AlignedBuf>>;

impl Array {
    /// Reads all fragments of one page until some of them give what is `right`, and then writes
    /// those anew that are wrong or cannot be read. `false` if no fragments do.
    pub(crate) fn mend(&self, offset: u64, buf: &mut [u8], right: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let range = offset..offset + buf.len() as u64;
        let [Area::Places { group, places }] = &self.map.shape.areas(range.clone())[..] else { return false };
        if places.end - places.start != 1 || self.check(offset, buf.len()).is_err() {
            return false;
        }
        let (group, place) = (*group, places.start);
        // What is right now stays so until the fragments are written.
        let _taken = self.ranges.take_one(range);
        let fragments = self.all_fragments(group, place);
        if !self.find_right(&fragments, buf, right) {
            return false;
        }
        let wanted = self.encode(place..place + 1, buf);
        for (number, fragment) in fragments.iter().enumerate() {
            let cell = self.map.cells.cell(place, number);
            let member = &self.members[cell.member];
            let (_, Some(wanted)) = &wanted[cell.member] else { unreachable!("it has a fragment") };
            let what = match fragment {
                _ if !member.is_read() => continue,
                Some(found) if found[..] == wanted[..] => continue,
                Some(_) => "was wrong",
                None => "could not be read",
            };
            let at = self.map.row(group, cell.row);
            match member.device().write(at, wanted, Durability::Durable) {
                Ok(()) => self.repaired(cell.member, &format!("a fragment at offset {at} {what}")),
                // The page is right all the same; what cannot be struck fails again by itself.
                Err(error) => _ = self.strike(cell.member, &error),
            }
        }
        true
    }

    fn all_fragments(&self, group: u64, place: u64) -> Fragments {
        let read = |number| {
            let cell = self.map.cells.cell(place, number);
            let member = &self.members[cell.member];
            let mut bytes = AlignedBuf::zeroed(self.map.fragment as usize);
            let read =
                member.is_read().then(|| member.device().read(self.map.row(group, cell.row), &mut bytes));
            if let Some(Err(_)) = read {
                member.failed_reads.fetch_add(1, Ordering::Relaxed);
            }
            matches!(read, Some(Ok(()))).then_some(bytes)
        };
        (0..self.map.code.written()).map(read).collect()
    }

    /// Decodes one choice of fragments after another until the page is right.
    fn find_right(
        &self,
        fragments: &Fragments,
        page: &mut [u8],
        right: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let needed = self.map.code.needed();
        let there: Vec<usize> = (0..fragments.len()).filter(|number| fragments[*number].is_some()).collect();
        if there.len() < needed {
            return false;
        }
        // Positions in `there`, ascending: the first choice, then each next one in order.
        let mut choice: Vec<usize> = (0..needed).collect();
        loop {
            let mut present: [(usize, &[u8]); MEMBERS_MAX] = [(0, &[]); MEMBERS_MAX];
            for (to, at) in present.iter_mut().zip(&choice) {
                *to = (there[*at], fragments[there[*at]].as_ref().expect("it is there"));
            }
            self.coder.decode(&present[..needed], page);
            if right(page) {
                return true;
            }
            let Some(last) = (0..needed).rev().find(|at| choice[*at] + needed - at < there.len()) else {
                return false;
            };
            choice[last] += 1;
            for at in last + 1..needed {
                choice[at] = choice[at - 1] + 1;
            }
        }
    }

    /// Puts a device into the place of a member: written from now on, and read once
    /// [`Array::finish_rebuilding`] was called. The keeper has it down as rebuilding, durably, with
    /// this incarnation.
    ///
    /// Errors: those of the device; then the member is struck.
    pub fn replace(
        &self,
        member: usize,
        device: Arc<dyn Device>,
        incarnation: u64,
    ) -> Result<(), DeviceError> {
        let it = &self.members[member];
        assert!(!it.is_read(), "a member that is read is not replaced");
        if device.info().logical_block > self.info().logical_block {
            let message = format!(
                "{} has blocks of {} bytes, the array's have at most {}",
                device.info().name,
                device.info().logical_block,
                self.info().logical_block
            );
            return Err(DeviceError::new(DeviceErrorKind::Unusable, message));
        }
        self.map.label(self.database, member, incarnation).write(&*device)?;
        let length = self.length.lock();
        let len = self.map.member_len(self.len()).expect("the array has that length");
        device.grow(len, firndb_device::Fill::Reserved)?;
        it.set_device(device);
        it.unrecorded.store(false, Ordering::Release);
        it.set_state(MemberState::Rebuilding);
        drop(length);
        self.let_writes_end();
        Ok(())
    }

    /// Waits until all writes that are under way have ended: later ones go to every member that is
    /// written now.
    fn let_writes_end(&self) {
        drop(self.ranges.take_one(0..u64::MAX));
    }

    /// Members that are being filled.
    #[must_use]
    pub fn rebuilding(&self) -> Vec<usize> {
        let rebuilding = |member: &usize| self.members[*member].state() == MemberState::Rebuilding;
        (0..self.members.len()).filter(rebuilding).collect()
    }

    /// Groups that the array has.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.len().saturating_sub(self.map.shape.groups_start) / self.map.shape.group_bytes
    }

    /// Compares the copies of metadata before group 0 on all members that are written, and mends
    /// those that differ.
    pub fn scrub_before_groups(&self) -> Result<(), DeviceError> {
        self.rebuild_meta(0..self.map.shape.groups_start)
    }

    /// Makes what a member that is being filled should have of a group: its metadata, and fragments
    /// of the places that are `used`, which is asked while nothing is written to them. Returns how
    /// many of these the other members could not give.
    pub fn rebuild_group(
        &self,
        member: usize,
        group: u64,
        used: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, DeviceError> {
        let shape = &self.map.shape;
        self.scrub_group(group)?;
        let (mut first, mut left_out) = (0, 0);
        while first < shape.places {
            let end = (first + REBUILT_TOGETHER).min(shape.places);
            let _taken =
                self.ranges.take_one(shape.place_offset(group, first)..shape.place_offset(group, end));
            let places: Vec<u64> = (first..end).filter(|place| used(*place)).collect();
            left_out += self.rebuild_places(member, group, &places)?;
            first = end;
        }
        Ok(left_out)
    }

    /// Compares the copies of a group's metadata on all members that are written, and mends those
    /// that differ.
    pub fn scrub_group(&self, group: u64) -> Result<(), DeviceError> {
        let shape = &self.map.shape;
        self.rebuild_meta(shape.group_start(group)..shape.group_start(group) + shape.places_start)
    }

    /// Copies are made alike on all members that are written.
    fn rebuild_meta(&self, range: std::ops::Range<u64>) -> Result<(), DeviceError> {
        let mut units = Vec::new();
        each_unit(&self.map, range, |unit| units.push(unit));
        units
            .into_iter()
            .filter(|unit| unit.start < self.len())
            .try_for_each(|unit| self.make_alike(&unit).map(drop))
    }

    fn rebuild_places(&self, member: usize, group: u64, places: &[u64]) -> Result<u64, DeviceError> {
        let page_bytes = self.map.shape.page_bytes as usize;
        let own = |place: u64| {
            (0..self.map.code.written()).any(|number| self.map.cells.cell(place, number).member == member)
        };
        let places: Vec<u64> = places.iter().copied().filter(|place| own(*place)).collect();
        let device = self.members[member].device();
        let fill = |run: &[u64]| {
            let mut pages = AlignedBuf::zeroed(run.len() * page_bytes);
            self.read(self.map.shape.place_offset(group, run[0]), &mut pages)?;
            let rows = self.encode(run[0]..run[0] + run.len() as u64, &pages).swap_remove(member);
            if let (row, Some(bytes)) = rows {
                let written = device.write(self.map.row(group, row), &bytes, Durability::Later);
                self.struck_if_failed(member, written)?;
            }
            Ok(())
        };
        let mut left_out = 0;
        for run in places.chunk_by(|a, b| a + 1 == *b) {
            if fill(run).is_err() {
                for place in run.chunks(1) {
                    match fill(place) {
                        Err(error) if !self.members[member].is_written() => return Err(error),
                        Err(_) => left_out += 1,
                        Ok(()) => {}
                    }
                }
            }
        }
        Ok(left_out)
    }

    fn struck_if_failed(&self, member: usize, outcome: Result<(), DeviceError>) -> Result<(), DeviceError> {
        outcome.or_else(|error| {
            self.strike(member, &error)?;
            Err(error)
        })
    }

    /// Makes what was rebuilt durable: to be called before the keeper writes down how far it came,
    /// or that it is done.
    pub fn sync_rebuilt(&self, member: usize) -> Result<(), DeviceError> {
        self.struck_if_failed(member, self.members[member].device().sync())
    }

    /// The member holds all that it should, which the keeper has made durable.
    pub fn finish_rebuilding(&self, member: usize) {
        let _one_at_a_time = self.striking.lock();
        let it = &self.members[member];
        if it.state() == MemberState::Rebuilding {
            it.set_state(MemberState::Active);
        }
    }

    /// A member is not used any more once `record` has made that durable, if the others are enough;
    /// returns whether they are. No other is struck meanwhile.
    ///
    /// Errors: those of `record`; then the member stays what it was.
    pub fn give_up<E>(&self, member: usize, record: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let _one_at_a_time = self.striking.lock();
        if !is_enough(&self.map, readable(&self.members) & !(1 << member)) {
            return Ok(false);
        }
        record()?;
        self.members[member].set_state(MemberState::Struck);
        Ok(true)
    }
}
