//! Where files lie on the emulated device: extents of [`EXTENT`] bytes in a flat address space.
//!
//! Addresses decide what a request costs: neighbours are sequential, far places are a seek on a
//! disk. Extents are allocated from where the last allocation ended, so that a file written alone
//! lies in one run and files written side by side are interleaved, as on a new file system. A file
//! occupies whole extents.
//!
//! Invariant: an extent is free or belongs to one file; extent 0 belongs to the metadata journal.

use std::ops::Range;

/// Bytes of an extent: the allocation unit.
pub const EXTENT: u64 = 1 << 20;

/// The number of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtentId(u32);

/// No extent is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

/// The extents of a device.
#[derive(Debug)]
pub struct Space {
    used: Vec<bool>,
    free: usize,
    next: usize,
}

impl Space {
    /// A device of `bytes`, rounded down to extents, of which the first is the journal's.
    ///
    /// # Errors
    /// `None` if there is not even one extent for files, or more than 2^32 - 1.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Space> {
        let extents = usize::try_from(bytes / EXTENT).ok()?;
        if extents < 2 || extents > u32::MAX as usize {
            return None;
        }
        let mut used = vec![false; extents];
        used[0] = true;
        Some(Space { used, free: extents - 1, next: 1 })
    }

    /// Allocates the first free extent from where the last was allocated.
    ///
    /// # Errors
    /// [`NoSpace`] if none is free.
    pub fn take(&mut self) -> Result<ExtentId, NoSpace> {
        if self.free == 0 {
            return Err(NoSpace);
        }
        let extents = self.used.len();
        let found = (0..extents).map(|step| (self.next + step) % extents).find(|at| !self.used[*at]);
        let at = found.ok_or(NoSpace)?;
        self.used[at] = true;
        self.free -= 1;
        self.next = at + 1;
        Ok(ExtentId(at as u32))
    }

    /// Frees an extent.
    pub fn give_back(&mut self, extent: ExtentId) {
        let at = extent.0 as usize;
        assert!(at != 0 && self.used[at], "only what was taken can be given back");
        self.used[at] = false;
        self.free += 1;
    }

    /// Extents that files may use.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.used.len() as u64 - 1
    }
    /// Free extents.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.free as u64
    }
}

/// The extents of one file, by place in the file; holes have none.
#[derive(Debug, Default)]
pub struct Extents(Vec<Option<ExtentId>>);

impl Extents {
    /// Allocates extents for every byte of `range`: all that are missing, or none.
    ///
    /// # Errors
    /// [`NoSpace`]; nothing has changed then.
    pub fn cover(&mut self, range: Range<u64>, space: &mut Space) -> Result<(), NoSpace> {
        if range.is_empty() {
            return Ok(());
        }
        let last = usize::try_from((range.end - 1) / EXTENT).map_err(|_| NoSpace)?;
        let first = (range.start / EXTENT) as usize;
        let missing = (first..=last).filter(|at| !matches!(self.0.get(*at), Some(Some(_)))).count();
        if missing as u64 > space.free() {
            return Err(NoSpace);
        }
        if self.0.len() <= last {
            self.0.resize(last + 1, None);
        }
        for slot in &mut self.0[first..=last] {
            if slot.is_none() {
                *slot = Some(space.take()?);
            }
        }
        Ok(())
    }

    /// Frees the extents that lie wholly within `range`.
    pub fn release(&mut self, range: Range<u64>, space: &mut Space) {
        let first = usize::try_from(range.start.div_ceil(EXTENT)).unwrap_or(usize::MAX);
        let end = usize::try_from(range.end / EXTENT).unwrap_or(usize::MAX).min(self.0.len());
        if first < end {
            for slot in &mut self.0[first..end] {
                if let Some(extent) = slot.take() {
                    space.give_back(extent);
                }
            }
        }
        while self.0.last() == Some(&None) {
            self.0.pop();
        }
    }

    /// Bytes that the file occupies.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.0.iter().flatten().count() as u64 * EXTENT
    }

    /// The device's addresses of a range of the file, in order of the file, neighbours joined,
    /// holes left out.
    #[must_use]
    pub fn addresses(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let piece_end = (at - at % EXTENT + EXTENT).min(range.end);
            if let Some(Some(extent)) = self.0.get((at / EXTENT) as usize) {
                let from = u64::from(extent.0) * EXTENT + at % EXTENT;
                let to = from + (piece_end - at);
                match found.last_mut() {
                    Some(last) if last.end == from => last.end = to,
                    _ => found.push(from..to),
                }
            }
            at = piece_end;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_alone_lies_in_one_run() {
        let mut space = Space::new(8 * EXTENT).expect("space");
        let mut file = Extents::default();
        for part in 0..4 {
            file.cover(part * EXTENT..(part + 1) * EXTENT, &mut space).expect("space");
        }
        assert_eq!(file.addresses(100..4 * EXTENT), vec![EXTENT + 100..5 * EXTENT]);
        assert_eq!(file.occupied(), 4 * EXTENT);
    }

    #[test]
    fn files_written_side_by_side_are_interleaved() {
        let mut space = Space::new(8 * EXTENT).expect("space");
        let (mut a, mut b) = (Extents::default(), Extents::default());
        for part in 0..2 {
            a.cover(part * EXTENT..(part + 1) * EXTENT, &mut space).expect("space");
            b.cover(part * EXTENT..(part + 1) * EXTENT, &mut space).expect("space");
        }
        assert_eq!(a.addresses(0..2 * EXTENT), vec![EXTENT..2 * EXTENT, 3 * EXTENT..4 * EXTENT]);
        assert_eq!(
            b.addresses(EXTENT - 1..EXTENT + 1),
            vec![3 * EXTENT - 1..3 * EXTENT, 4 * EXTENT..4 * EXTENT + 1]
        );
    }

    #[test]
    fn holes_have_no_addresses_and_a_full_device_changes_nothing() {
        let mut space = Space::new(4 * EXTENT).expect("space");
        let mut file = Extents::default();
        file.cover(5 * EXTENT..5 * EXTENT + 1, &mut space).expect("space");
        assert_eq!(file.addresses(0..6 * EXTENT), vec![EXTENT..2 * EXTENT]);
        assert_eq!(file.cover(0..6 * EXTENT, &mut space), Err(NoSpace));
        assert_eq!((space.free(), space.total()), (2, 3));
        file.cover(0..2 * EXTENT, &mut space).expect("space");
        assert_eq!(space.take(), Err(NoSpace));
        file.release(1..u64::MAX, &mut space);
        assert_eq!((space.free(), file.occupied()), (2, EXTENT));
        file.release(0..u64::MAX, &mut space);
        assert_eq!((space.free(), file.occupied()), (3, 0));
        assert!(Space::new(EXTENT).is_none());
    }
}
