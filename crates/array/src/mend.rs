//! Fragments that are wrong or missing. The store, which knows a page's checksum, says which choice
//! of fragments gives the page; the array makes the others anew.

use crate::array::Array;
use crate::code::MEMBERS_MAX;
use crate::map::Layout;
use crate::members::{MemberState, is_enough, readable};
use crate::meta::each_unit;
use crate::shape::Area;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability};
use std::ops::Range;

/// The fragments of a place: each that could be read.
type Fragments = Vec<Option<AlignedBuf>>;

/// Most fragments left wrong that are remembered.
const LEFT_WRONG_MAX: usize = 1 << 20;

impl Array {
    /// Reads all fragments of one page until some of them give what is `right`, and then writes
    /// those anew that are wrong or cannot be read. `false` if no fragments do.
    pub(crate) fn mend(&self, offset: u64, buf: &mut [u8], right: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let range = offset..offset + buf.len() as u64;
        let areas = self.map.shape.areas(range.clone());
        let (group, places) = match &areas[..] {
            [Area::Places { group, places }] => (group, places),
            [Area::Meta(_)] if self.check(offset, buf.len()).is_ok() => {
                // One of the copies may be whole, and an old one.
                self.units(range).iter().for_each(|unit| self.set_doubted(unit));
                return self.read_meta(offset, buf).is_ok() && right(buf);
            }
            _ => return false,
        };
        if places.end - places.start != 1 {
            return false;
        }
        let (group, place) = (*group, places.start);
        // What is right now stays so until the fragments are written.
        let _taken = self.ranges.take_one(range);
        if self.check(offset, buf.len()).is_err() {
            return false;
        }
        let Ok(layout) = self.layout_to_read(group) else { return false };
        let fragments = self.all_fragments(layout, group, place);
        if !self.find_right(layout, &fragments, buf, right) {
            return false;
        }
        let wanted = self.encode(layout, place..place + 1, buf);
        let is_wrong = |number: usize| {
            let member = layout.cells.cell(place, number).member;
            let is_right = fragments[number].as_deref() == wanted[member].1.as_deref();
            self.members[member].is_read() && !is_right
        };
        if !(0..fragments.len()).any(is_wrong) {
            return true;
        }
        for (number, fragment) in fragments.iter().enumerate() {
            let cell = layout.cells.cell(place, number);
            let member = &self.members[cell.member];
            let (_, Some(wanted)) = &wanted[cell.member] else { unreachable!("it has a fragment") };
            let what = match fragment {
                _ if !member.is_written() => continue,
                Some(found) if found[..] == wanted[..] => continue,
                Some(_) => "was wrong",
                None => "could not be read",
            };
            let at = self.map.row(layout, group, cell.row);
            let device = member.device();
            // One that is being filled is not read yet, and may have got what is wrong now.
            let mut reported = member.is_read();
            let written = match self.keeper.mends() {
                true => device.write(at, wanted, Durability::Durable),
                false => {
                    reported &= self.is_new_fault(cell.member, at);
                    Ok(())
                }
            };
            self.mended(cell.member, &device, written, || {
                reported.then(|| format!("a fragment at offset {at} {what}"))
            });
        }
        true
    }

    /// Whether a fragment that is left wrong was not found before. The first million of them.
    fn is_new_fault(&self, member: usize, at: u64) -> bool {
        let mut left_wrong = self.left_wrong.lock();
        left_wrong.len() < LEFT_WRONG_MAX && left_wrong.insert((member, at))
    }

    fn all_fragments(&self, layout: &Layout, group: u64, place: u64) -> Fragments {
        let read = |number| {
            let cell = layout.cells.cell(place, number);
            let member = &self.members[cell.member];
            let mut bytes = AlignedBuf::zeroed(layout.fragment as usize);
            let at = self.map.row(layout, group, cell.row);
            let read = member.is_read().then(|| member.device().read(at, &mut bytes));
            if let Some(Err(_)) = read {
                member.failed_reads.fetch_add(1, Ordering::Relaxed);
            }
            matches!(read, Some(Ok(()))).then_some(bytes)
        };
        (0..layout.code.written()).map(read).collect()
    }

    /// Decodes one choice of fragments after another until the page is right.
    fn find_right(
        &self,
        layout: &Layout,
        fragments: &Fragments,
        page: &mut [u8],
        right: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let needed = layout.code.needed();
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
            self.coder(layout).decode(&present[..needed], page);
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
        self.prepare(&*device)?;
        let length = self.length.lock();
        self.prepare(&*device)?;
        // With a label it is taken for a member after a crash: it must be as long as one.
        self.map.label(self.database, member, incarnation).write(&*device)?;
        {
            let _one_at_a_time = self.striking.lock();
            it.set_device(device);
            it.set_state(MemberState::Rebuilding);
        }
        drop(length);
        self.fill_newest_slots(member);
        self.let_writes_end();
        match it.is_written() {
            true => Ok(()),
            // A write that failed at once, of which the keeper knows.
            false => Err(DeviceError::new(
                DeviceErrorKind::Failed,
                format!("{} failed as soon as it was written", it.device().info().name),
            )),
        }
    }

    /// Makes a device as long as the members, so that it can take the place of one. That may take
    /// long.
    ///
    /// Errors: it cannot be a member, or not be so long.
    pub fn prepare(&self, device: &dyn Device) -> Result<(), DeviceError> {
        if device.info().logical_block > self.info().logical_block {
            let message = format!(
                "{} has blocks of {} bytes, the array's have at most {}",
                device.info().name,
                device.info().logical_block,
                self.info().logical_block
            );
            return Err(DeviceError::new(DeviceErrorKind::Unusable, message));
        }
        let len = self.map.member_len(self.len()).expect("the array has that length");
        device.grow(len, firndb_device::Fill::Reserved)
    }

    /// Drops the device of a member that is struck: nothing is done with it any more, and it can be
    /// opened anew. Without effect on another member.
    pub fn release_struck(&self, member: usize, stand_in: Arc<dyn Device>) -> bool {
        let _one_at_a_time = self.striking.lock();
        let it = &self.members[member];
        let is_struck = it.state() == MemberState::Struck;
        if is_struck {
            it.set_device(stand_in);
            self.drop_reads_left_behind();
        }
        is_struck
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

    /// Compares the copies of a group's slots and metadata on all members that are written, and
    /// mends those that differ.
    pub fn scrub_group(&self, group: u64) -> Result<(), DeviceError> {
        let shape = &self.map.shape;
        let slots = self.scrub_slots(group);
        let metadata = shape.group_start(group)..shape.group_start(group) + shape.places_start;
        slots.and(self.rebuild_meta(metadata))
    }

    /// Copies are made alike on all members that are written.
    fn rebuild_meta(&self, range: Range<u64>) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for unit in self.units(range) {
            outcome = outcome.and(self.make_alike_if_there(&unit));
        }
        outcome
    }

    pub(crate) fn units(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut units = Vec::new();
        each_unit(&self.map, range, |unit| units.push(unit));
        units
    }

    /// As [`Array::make_alike`], unless the unit has been cut off.
    fn make_alike_if_there(&self, unit: &Range<u64>) -> Result<(), DeviceError> {
        match self.make_alike(unit) {
            Err(error) if error.kind != DeviceErrorKind::OutOfRange => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn struck_if_failed(
        &self,
        member: usize,
        device: &Arc<dyn Device>,
        outcome: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        outcome.or_else(|error| {
            self.strike(member, device, &error)?;
            Err(error)
        })
    }

    /// Makes what was rebuilt durable: to be called before the keeper writes down how far it came,
    /// or that it is done.
    ///
    /// Errors: the member is struck.
    pub fn sync_rebuilt(&self, member: usize) -> Result<(), DeviceError> {
        let device = self.members[member].device();
        self.struck_if_failed(member, &device, device.sync())
    }

    /// The member holds all that it should, which the keeper has made durable.
    pub fn finish_rebuilding(&self, member: usize) {
        let _one_at_a_time = self.striking.lock();
        let it = &self.members[member];
        if it.state() == MemberState::Rebuilding {
            it.set_state(MemberState::Active);
        }
    }

    /// A member is not filled any more: the keeper has it down as struck.
    pub fn end_rebuilding(&self, member: usize) {
        let _one_at_a_time = self.striking.lock();
        let it = &self.members[member];
        if it.state() == MemberState::Rebuilding {
            it.set_state(MemberState::Struck);
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
        let it = &self.members[member];
        it.set_state(MemberState::Struck);
        // What `record` wrote down is the next device's, which was not missing.
        it.unrecorded.store(false, Ordering::Release);
        Ok(true)
    }
}
