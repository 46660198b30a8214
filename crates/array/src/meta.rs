//! Metadata: copies on one member more than may be lost.
//!
//! A write goes to all copies and returns when all have it. A crash in between leaves them unlike.
//! Any of them will do, since the write had not returned, but it must be the same one from then on.
//! So the first read of a unit after opening compares all copies, and makes them alike before it
//! returns one. Later reads take one copy, and look at the others
//! if it is not whole.

use crate::array::Array;
use crate::map::Map;
use crate::wants::What;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_device::{AlignedBuf, Device, DeviceError, Durability};
use std::ops::Range;

impl Array {
    /// The units of a range of metadata are written on all members.
    pub(crate) fn set_alike(&self, range: Range<u64>) {
        let mut alike = self.alike.lock();
        each_unit(&self.map, range, |unit| {
            let (word, bit) = self.alike_bit(&unit);
            if alike.len() <= word {
                alike.resize(word + 1, 0);
            }
            alike[word] |= bit;
        });
    }

    /// The copies of a unit are not to be relied upon before they have been compared.
    pub(crate) fn set_doubted(&self, unit: &Range<u64>) {
        let (word, bit) = self.alike_bit(unit);
        self.alike.lock().get_mut(word).into_iter().for_each(|found| *found &= !bit);
    }

    pub(crate) fn is_alike(&self, unit: &Range<u64>) -> bool {
        let (word, bit) = self.alike_bit(unit);
        self.alike.lock().get(word).is_some_and(|found| found & bit != 0)
    }

    /// Which word of `alike`, and which bit of it, are a unit's.
    fn alike_bit(&self, unit: &Range<u64>) -> (usize, u64) {
        let number = self.map.shape.unit_number(unit.start);
        ((number / 64) as usize, 1 << (number % 64))
    }

    /// Reads metadata, which lies between groups or in one.
    pub(crate) fn read_meta(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset..offset + buf.len() as u64;
        let (mut doubted, mut units) = (Vec::new(), 0);
        each_unit(&self.map, range.clone(), |unit| {
            units += 1;
            if !self.is_alike(&unit) {
                doubted.push(unit);
            }
        });
        // Used as they are, since some copies may not be so yet, on a device that is full.
        let made: Result<Vec<_>, DeviceError> =
            doubted.drain(..).map(|unit| self.make_alike(&unit).map(|bytes| (unit, bytes))).collect();
        let made = made?;
        if made.len() < units {
            self.read_a_copy(offset, buf)?;
        }
        let put = |buf: &mut [u8], unit: &Range<u64>, bytes: &[u8]| {
            let (start, end) = (unit.start.max(offset), unit.end.min(range.end));
            buf[(start - offset) as usize..(end - offset) as usize]
                .copy_from_slice(&bytes[(start - unit.start) as usize..(end - unit.start) as usize]);
        };
        made.iter().for_each(|(unit, bytes)| put(buf, unit, bytes));
        each_unit(&self.map, range.clone(), |unit| {
            let start = unit.start.max(offset);
            let bytes = &buf[(start - offset) as usize..(unit.end.min(range.end) - offset) as usize];
            let whole = start == unit.start && bytes.len() as u64 >= self.map.shape.meta_bytes;
            // Zeros are of a unit that was never written, or made to hold nothing.
            if whole && self.number_of(unit.start, bytes).is_none() && bytes.iter().any(|byte| *byte != 0) {
                doubted.push(unit);
            }
        });
        for unit in doubted {
            let bytes = self.make_alike(&unit)?;
            put(buf, &unit, &bytes);
        }
        Ok(())
    }

    /// Reads one of the copies, the first that can be read, or comes.
    fn read_a_copy(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.hides(What::Copy { offset }) {
            return self.read_one(offset, buf, |own, in_flight, read| own.begin_copy(self, in_flight, read));
        }
        let mut failed = None;
        for member in self.map.holders(offset).filter(|member| self.members[*member].is_read()) {
            match self.members[member].device().read(self.map.meta(offset), buf) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.members[member].failed_reads.fetch_add(1, Ordering::Relaxed);
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| self.too_few()))
    }

    /// Makes all copies of a unit the newest whole one of them; returns it.
    pub(crate) fn make_alike(&self, unit: &Range<u64>) -> Result<AlignedBuf, DeviceError> {
        let _taken = self.ranges.take_one(unit.clone());
        self.make_taken_alike(unit)
    }

    /// As [`Array::make_alike`], of a unit whose range the caller has taken.
    pub(crate) fn make_taken_alike(&self, unit: &Range<u64>) -> Result<AlignedBuf, DeviceError> {
        // Nothing is cut off while the range is taken.
        self.check(unit.start, 1)?;
        let len = (unit.end.min(self.len()) - unit.start) as usize;
        let mut copies = Vec::new();
        for member in self.map.holders(unit.start).filter(|member| self.members[*member].is_written()) {
            let mut bytes = AlignedBuf::zeroed(len);
            let device = self.members[member].device();
            let read = device.read(self.map.meta(unit.start), &mut bytes);
            copies.push((member, device, read.map(|()| bytes)));
        }
        // Of none that is whole, zeros: a unit is so until it is written first.
        let mut best: Option<((Option<u64>, bool), usize)> = None;
        for (at, (member, _, copy)) in copies.iter().enumerate() {
            let Ok(bytes) = copy else { continue };
            let is_blank = bytes[..len].iter().all(|byte| *byte == 0);
            let number = (self.number_of(unit.start, &bytes[..len]), is_blank);
            if self.members[*member].is_read() && best.is_none_or(|(best, _)| best < number) {
                best = Some((number, at));
            }
        }
        let unread = |(member, _, copy): &(usize, _, Result<_, DeviceError>)| {
            let error = copy.as_ref().err().filter(|_| self.members[*member].is_read());
            error.cloned()
        };
        let best = match best {
            Some(((None, false), _)) if copies.iter().any(|copy| unread(copy).is_some()) => None,
            best => best,
        };
        // None that is whole could be read, and one that could not be may be.
        let Some((_, best)) = best else {
            return Err(copies.iter().find_map(unread).unwrap_or_else(|| self.too_few()));
        };
        let (_, _, Ok(right)) = copies.swap_remove(best) else { unreachable!("it could be read") };
        let mended_before = self.is_alike(unit);
        let mut alike = true;
        for (member, device, copy) in copies {
            let what = match copy {
                Ok(bytes) if bytes[..] == right[..] => continue,
                Ok(_) => "differed from another copy",
                Err(_) => "could not be read",
            };
            let written = device.write(self.map.meta(unit.start), &right, Durability::Durable);
            let reported = mended_before && self.members[member].is_read();
            alike &= self.mended(member, &device, written, || {
                reported.then(|| format!("metadata at offset {} {what}", unit.start))
            });
        }
        if alike {
            self.set_alike(unit.clone());
        }
        Ok(right)
    }

    /// The outcome of writing anew what was wrong on a member's device: reported, or the member is
    /// struck. What was right is so in any case. Returns false if what is wrong is there still, on
    /// a device that cannot be done without, or is full.
    pub(crate) fn mended(
        &self,
        member: usize,
        device: &Arc<dyn Device>,
        written: Result<(), DeviceError>,
        what: impl FnOnce() -> Option<String>,
    ) -> bool {
        match written {
            Ok(()) => {
                what().into_iter().for_each(|what| self.repaired(member, &what));
                true
            }
            Err(error) => {
                let struck = self.strike(member, device, &error).is_ok();
                self.unmended.fetch_add(u64::from(!struck), Ordering::Relaxed);
                struck
            }
        }
    }

    pub(crate) fn repaired(&self, member: usize, what: &str) {
        let it = &self.members[member];
        it.repairs.fetch_add(1, Ordering::Relaxed);
        self.keeper.repaired(member, &format!("{}: {what}", it.device().info().name));
    }
}

/// Calls `visit` with each unit that a range of metadata touches.
pub(crate) fn each_unit(map: &Map, range: Range<u64>, mut visit: impl FnMut(Range<u64>)) {
    let mut at = range.start;
    while at < range.end {
        let unit = map.shape.unit_of(at);
        at = unit.end;
        visit(unit);
    }
}
