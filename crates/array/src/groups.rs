//! Codes of groups: each group has its own, which changes only while the group is empty.
//!
//! A group's code stands in its slots ([`crate::slot`]), and is in memory from its first use on.
//! That first use compares all copies of the slots, and makes them alike before any of them counts.
//! A read keeps the layout that it began with: beside a change it gets bytes that are not the page,
//! as it would from a place that was written anew. All other calls look up the code while they hold
//! a range of the group; a change holds the whole group.
//!
//! Why a crash during a change loses nothing: the group is empty, so either code will do, but it
//! must be the same one from then on. The newest whole slot of any member counts.

use crate::array::Array;
use crate::code::Code;
use crate::filling::LEFT_OUT;
use crate::lanes::{Work, Write};
use crate::map::Layout;
use crate::slot::Slot;
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability, Fill};
use std::ops::Range;

/// Bytes of zeros that are written together.
const ZEROS_BYTES: u64 = 1 << 20;
/// New groups whose slots are in memory together.
const BEGUN_TOGETHER: usize = 256;

/// What the slots of a group say.
struct Decided {
    slot: Slot,
    /// The number of its layout.
    code: u8,
    /// Why not all members have it.
    unlike: Option<DeviceError>,
}

/// What a member has in the slots of a group.
struct Copy {
    member: usize,
    device: Arc<dyn Device>,
    bytes: Result<AlignedBuf, DeviceError>,
}

impl Array {
    /// Codes that groups may have, the base code first: each survives as many lost members as the
    /// base code, and its fragments fit into what members reserve for a group.
    #[must_use]
    pub fn codes(&self) -> &[Code] {
        &self.map.codes
    }

    /// Which of [`Array::codes`] a group has. May read devices at the first call for a group after
    /// opening.
    ///
    /// Errors: there is no such group; no copy of what says it is whole, or can be read.
    pub fn code_of_group(&self, group: u64) -> Result<u8, DeviceError> {
        self.check_group(group)?;
        Ok(self.layout_to_read(group)?.index)
    }

    /// Gives a group, none of whose places is in use or being written, another code: a number in
    /// [`Array::codes`]. Durable on return. What its places held is lost.
    ///
    /// Errors: a device failed or is full; then the group has one of the two codes, which
    /// [`Array::code_of_group`] says.
    pub fn set_code_of_group(&self, group: u64, code: u8) -> Result<(), DeviceError> {
        let new = self.map.layouts.get(usize::from(code));
        let new = *new.expect("the code is one that groups may have");
        self.check_group(group)?;
        self.record_missing()?;
        let start = self.map.shape.group_start(group);
        let _taken = self.ranges.take_one(start..start + self.map.shape.group_bytes);
        // It may have been cut off meanwhile; nothing is while the range is taken.
        self.check_group(group)?;
        let old = *self.layout_to_write(group)?;
        if old.index == code {
            return Ok(());
        }
        if old.row_bytes < new.row_bytes {
            self.reserve_rows(group, old.row_bytes..new.row_bytes)?;
        }
        self.write_slots(group, new.code)?;
        if new.row_bytes < old.row_bytes {
            // The space stays taken if it fails, and the group is as it should be.
            let _ = self.discard_rows(group..group + 1, new.row_bytes..old.row_bytes);
        }
        Ok(())
    }

    fn check_group(&self, group: u64) -> Result<(), DeviceError> {
        if group < self.groups() {
            return Ok(());
        }
        let message = format!("{}: there is no group {group}", self.info().name);
        Err(DeviceError::new(DeviceErrorKind::OutOfRange, message))
    }

    /// The layout of a group, for what reads.
    pub(crate) fn layout_to_read(&self, group: u64) -> Result<&Layout, DeviceError> {
        let code = match self.group_codes.known(group) {
            Some(code) => code,
            None => self.decide(group)?.0,
        };
        Ok(&self.map.layouts[usize::from(code)])
    }

    /// The layout of a group, of which the caller has a range, for what writes: all members have
    /// it, so that what is written will be found again, whichever of them are lost.
    pub(crate) fn layout_to_write(&self, group: u64) -> Result<&Layout, DeviceError> {
        let code = match self.group_codes.known(group) {
            Some(code) => code,
            None => match self.decide(group)? {
                (_, Some(error)) => return Err(error),
                (code, None) => code,
            },
        };
        Ok(&self.map.layouts[usize::from(code)])
    }

    /// The code of a group that was not known, and why not all members have it. Threads that waited
    /// for the lock take what the first one found.
    #[cold]
    fn decide(&self, group: u64) -> Result<(u8, Option<DeviceError>), DeviceError> {
        let _one_at_a_time = self.group_codes.lock_slots();
        match self.group_codes.known(group) {
            Some(code) => Ok((code, None)),
            None => self.compare_slots(group).map(|found| (found.code, found.unlike)),
        }
    }

    fn lock_and_compare(&self, group: u64) -> Result<Decided, DeviceError> {
        let _one_at_a_time = self.group_codes.lock_slots();
        self.compare_slots(group)
    }

    /// Makes all copies of a group's slots say what is known from before, or else what the newest
    /// whole slot does. The caller has the lock on slots.
    fn compare_slots(&self, group: u64) -> Result<Decided, DeviceError> {
        let copies = self.copies_of_slots(group);
        let newest = self.newest_slot(group, &copies);
        let is_read = copies.iter().any(|copy| self.members[copy.member].is_read());
        let known = self.group_codes.known(group);
        let code_of = |code: u8| self.map.codes[usize::from(code)];
        let (slot, code) = match (newest, known.filter(|_| is_read)) {
            // What is known was on all members: they lost it, or have a stale or misplaced write.
            // Pages are where it says, so it is written anew, newer than what they have.
            (Some((slot, code)), Some(known)) if code != known => (slot.next(code_of(known)), known),
            (Some(found), _) => found,
            (None, Some(known)) => (Slot::of_new_group(code_of(known)), known),
            (None, None) => return Err(self.no_slot(group, &copies)),
        };
        let right = slot.both(self.database, group, self.map.slot_bytes);
        let second = self.map.slot_bytes as usize;
        let mut unlike = None;
        for Copy { member, device, bytes } in copies {
            let (part, what) = match bytes {
                Ok(bytes) if bytes[..] == right[..] => continue,
                // What is right is not written: a torn write would leave less than there was.
                Ok(bytes) if bytes[..second] == right[..second] => (second..right.len(), "was wrong"),
                Ok(bytes) if bytes[second..] == right[second..] => (0..second, "was wrong"),
                Ok(_) => (0..right.len(), "was wrong"),
                Err(_) => (0..right.len(), "could not be read"),
            };
            let at = self.map.slots(group) + part.start as u64;
            let written = device.write(at, &crate::writes::copied(&right[part]), Durability::Durable);
            if let Err(error) = &written
                && error.kind == DeviceErrorKind::OutOfRange
            {
                // The group has been cut off.
                return Err(error.clone());
            }
            let failed = written.as_ref().err().cloned();
            let reported = known.is_some() && self.members[member].is_read();
            let is_alike = self.mended(member, &device, written, || {
                reported.then(|| format!("the code of group {group} at offset {at} {what}"))
            });
            unlike = unlike.or(failed.filter(|_| !is_alike));
        }
        match unlike {
            None => self.group_codes.set(group..group + 1, code),
            // The members say it too: the next call compares them again.
            Some(_) if newest.is_some_and(|(_, found)| found == code) => self.group_codes.forget(group),
            // It may be known in memory only.
            Some(_) => {}
        }
        Ok(Decided { slot, code, unlike })
    }

    /// The newest whole slot of a group, and the number of its layout.
    fn newest_slot(&self, group: u64, copies: &[Copy]) -> Option<(Slot, u8)> {
        let read = copies.iter().filter(|copy| self.members[copy.member].is_read());
        let bytes = read.filter_map(|copy| copy.bytes.as_ref().ok());
        let pairs = bytes.flat_map(|bytes| bytes.chunks(self.map.slot_bytes as usize).zip(0..));
        let slots = pairs.filter_map(|(slot, which)| Slot::decode(slot, self.database, group, which));
        let known = |slot: Slot| {
            let code = self.map.codes.iter().position(|code| *code == slot.code)?;
            Some((slot, code as u8))
        };
        slots.filter_map(known).max_by_key(|(slot, _)| slot.sequence)
    }

    fn copies_of_slots(&self, group: u64) -> Vec<Copy> {
        let holders = self.map.holders(self.map.shape.group_start(group));
        let copy = |member: usize| {
            let device = self.members[member].device();
            let mut bytes = AlignedBuf::zeroed(2 * self.map.slot_bytes as usize);
            let read = device.read(self.map.slots(group), &mut bytes);
            Copy { member, device, bytes: read.map(|()| bytes) }
        };
        holders.filter(|member| self.members[*member].is_written()).map(copy).collect()
    }

    /// Why no slot of a group can be had.
    fn no_slot(&self, group: u64, copies: &[Copy]) -> DeviceError {
        let mut read = copies.iter().filter(|copy| self.members[copy.member].is_read()).peekable();
        if read.peek().is_none() {
            return self.too_few();
        }
        read.find_map(|copy| copy.bytes.as_ref().err().cloned()).unwrap_or_else(|| {
            let message = format!(
                "{}: what says how pages of group {group} are fragmented is damaged on all members that have it: its pages must come from a backup",
                self.info().name
            );
            DeviceError::new(DeviceErrorKind::Failed, message)
        })
    }

    /// Has the slots of a group, of which the caller has the whole range, say a code.
    fn write_slots(&self, group: u64, code: Code) -> Result<(), DeviceError> {
        let _one_at_a_time = self.group_codes.lock_slots();
        let found = self.compare_slots(group)?;
        if let Some(error) = found.unlike {
            return Err(error);
        }
        let slot = found.slot.next(code);
        if slot.sequence == found.slot.first().sequence {
            let message = format!("{}: group {group} cannot get another code any more", self.info().name);
            return Err(DeviceError::new(DeviceErrorKind::Failed, message));
        }
        let bytes = slot.both(self.database, group, self.map.slot_bytes);
        let second = self.map.slot_bytes as usize;
        // Which of them count if one cannot be written, the next call finds out.
        self.group_codes.forget(group);
        for part in [0..second, second..bytes.len()] {
            let offset = self.map.slots(group) + part.start as u64;
            self.write_to_holders(group..group + 1, |_| {
                let data = crate::writes::copied(&bytes[part.clone()]);
                Write { offset, data, durability: Durability::Durable, io: 0 }
            })?;
        }
        let index = self.map.codes.iter().position(|known| *known == code).expect("groups may have it");
        self.group_codes.set(group..group + 1, index as u8);
        Ok(())
    }

    /// Writes something to the members that hold the metadata of groups.
    fn write_to_holders(&self, groups: Range<u64>, write: impl Fn(u64) -> Write) -> Result<(), DeviceError> {
        let mut writes: Vec<Vec<Write>> = Vec::new();
        writes.resize_with(self.members.len(), Vec::new);
        for group in groups {
            for member in self.map.holders(self.map.shape.group_start(group)) {
                writes[member].push(write(group));
            }
        }
        let mut own = |member: usize| Some(std::mem::take(&mut writes[member])).filter(|own| !own.is_empty());
        self.each(|member| own(member).map(Work::Write))
    }

    /// Has a part of the rows of a group, in bytes on each member, take space.
    ///
    /// Errors: those of the members; then it takes none.
    fn reserve_rows(&self, group: u64, part: Range<u64>) -> Result<(), DeviceError> {
        let start = self.map.rows(group);
        let write = |at: u64| {
            let data = AlignedBuf::zeroed((part.end - at).min(ZEROS_BYTES) as usize);
            let write = Write { offset: start + at, data, durability: Durability::Later, io: 0 };
            Some(Work::Write(Vec::from([write])))
        };
        let mut parts = part.clone().step_by(ZEROS_BYTES as usize);
        let reserved = parts.try_for_each(|at| self.each(|_| write(at)));
        reserved.and_then(|()| self.each(|_| Some(Work::Sync))).inspect_err(|_| {
            let _ = self.discard_rows(group..group + 1, part.clone());
        })
    }

    /// Gives back the space of a part of the rows of groups. A member that cannot is not struck.
    fn discard_rows(&self, groups: Range<u64>, part: Range<u64>) -> Result<(), DeviceError> {
        let range = |group: u64| (self.map.rows(group) + part.start, part.end - part.start);
        self.advise(|_| Some(Work::Discard(groups.clone().map(range).collect())))
    }

    /// The file above counts as many groups, as opening has found.
    pub(crate) fn set_groups(&self, groups: u64) {
        self.group_codes.set_begun(groups);
    }

    /// The members are long enough for as many groups: those that the file above did not count
    /// have the base code. Members may have had those before `kept` already. Durable with the next
    /// sync. The caller has the lock on the length.
    pub(crate) fn begin_groups(&self, groups: u64, kept: u64, fill: Fill) -> Result<(), DeviceError> {
        let new = self.group_codes.begun()..groups;
        if new.is_empty() {
            return Ok(());
        }
        // Slots of groups that were cut off may be there still: a scrub beside this would take them
        // for the new ones', or mend new ones back.
        let _one_at_a_time = self.group_codes.lock_slots();
        // So may what a scrub has found in them before.
        self.group_codes.end(new.start);
        let base = *self.map.base();
        if fill != Fill::Sparse && base.row_bytes < self.map.row_bytes {
            let _ = self.discard_rows(new.clone(), base.row_bytes..self.map.row_bytes);
        }
        for first in new.clone().step_by(BEGUN_TOGETHER) {
            let some = first..groups.min(first + BEGUN_TOGETHER as u64);
            let slot = |group: u64| match group < kept {
                true => self.slot_after_former(group, fill),
                false => Ok(Slot::of_new_group(base.code)),
            };
            let slots = some.clone().map(slot).collect::<Result<Vec<Slot>, DeviceError>>()?;
            self.write_to_holders(some, |group| {
                let slot = slots[(group - first) as usize];
                let data = slot.both(self.database, group, self.map.slot_bytes);
                Write { offset: self.map.slots(group), data, durability: Durability::Later, io: 0 }
            })?;
        }
        self.group_codes.begin(new, base.index);
        Ok(())
    }

    /// What the slots of a new group say that members may have had before, as after a crash, or on
    /// raw devices: newer than what is there, which a member that loses their write still has. If
    /// the former group had given back space for a narrower code, members take that of the base
    /// code again.
    fn slot_after_former(&self, group: u64, fill: Fill) -> Result<Slot, DeviceError> {
        let base = self.map.base();
        let Some((former, code)) = self.newest_slot(group, &self.copies_of_slots(group)) else {
            return Ok(Slot::of_new_group(base.code));
        };
        let row_bytes = self.map.layouts[usize::from(code)].row_bytes;
        if fill != Fill::Sparse && row_bytes < base.row_bytes {
            self.reserve_rows(group, row_bytes..base.row_bytes)?;
        }
        Ok(former.next(base.code))
    }

    /// The file above counts no more than as many groups.
    pub(crate) fn end_groups(&self, groups: u64) {
        self.group_codes.end(groups);
    }

    /// Compares the copies of a group's slots, and mends those that differ.
    pub(crate) fn scrub_slots(&self, group: u64) -> Result<(), DeviceError> {
        match self.lock_and_compare(group) {
            Err(error) if error.kind != DeviceErrorKind::OutOfRange => Err(error),
            _ => Ok(()),
        }
    }

    /// Fills a member with slots of the groups that the members got last: the file above may not
    /// count them yet, and have its account of them filled before it does. The next comparison
    /// makes up for what fails.
    pub(crate) fn fill_newest_slots(&self, member: usize) {
        for group in self.group_codes.newest() {
            let _ = self.fill_slots(member, group);
        }
    }

    /// Fills a member with the slots of a group. Slots that the others cannot give become none on
    /// it. Returns how many these are.
    ///
    /// Errors: the member cannot be written: it is struck, unless it is full. Or another one does
    /// not answer.
    pub(crate) fn fill_slots(&self, member: usize, group: u64) -> Result<u64, DeviceError> {
        if self.check_group(group).is_err() {
            return Ok(0);
        }
        let device = self.members[member].device();
        let found = self.given(|| self.lock_and_compare(group).ok())?;
        let left_out = match &found {
            Some(Decided { unlike: Some(error), .. }) => return Err(error.clone()),
            Some(Decided { code, .. }) => {
                let layout = &self.map.layouts[usize::from(*code)];
                let surplus = self.map.row_bytes - layout.row_bytes;
                if surplus > 0 {
                    // It was made as long as the others, and took space for all of it.
                    let _ = device.discard(self.map.rows(group) + layout.row_bytes, surplus);
                }
                0
            }
            None => {
                let mut holders = self.map.holders(self.map.shape.group_start(group));
                if holders.any(|holder| holder == member) {
                    let _one_at_a_time = self.group_codes.lock_slots();
                    // If it is known now, slots of a new group were written, on this member too.
                    if self.group_codes.known(group).is_none() {
                        let mut bytes = AlignedBuf::zeroed(2 * self.map.slot_bytes as usize);
                        bytes.fill(LEFT_OUT);
                        let written = device.write(self.map.slots(group), &bytes, Durability::Later);
                        self.struck_if_failed(member, &device, written)?;
                    }
                }
                1
            }
        };
        match self.members[member].is_written() {
            true => Ok(left_out),
            false => Err(self.too_few()),
        }
    }
}
