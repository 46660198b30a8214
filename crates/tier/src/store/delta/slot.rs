//! One page's changes since its base image, and the slot of a delta page that holds them.
//!
//! ```text
//! slot: | checksum u32 | page, version, version - base version varint | base checksum u32 |
//!       | runs varint | (gap, granules varint)... | the granules' bytes |
//! ```
//! A gap counts the granules between the end of the run before and the start of this one. The
//! checksum is a CRC32C of the place of the delta page (u64) and of all of the slot that follows,
//! so that a slot of another delta page, stale or misdirected, does not pass. Page, version and
//! base checksum must be those of the page's map entry: a slot never passes for that of another
//! page or version, nor for changes of another base image.
//!
//! A delta is complete: it has all that differs from the base image, whatever slots the page had
//! before. So one slot and the base image are the page.

use super::super::geometry::Place;
use crate::granules::{Base, Changes};
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Crc32c, Lsn, PageId};

/// Bytes of a slot's checksum.
const CHECKSUM_BYTES: usize = 4;

/// A version of a page, as changes of its base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub version: Lsn,
    pub base: Base,
    pub changes: Changes,
    /// The bytes of the granules of `changes`, in order.
    pub bytes: Box<[u8]>,
}

/// Bytes that a slot of these changes takes of a delta page: those of the granules, and at most 36
/// beside them and the runs. (Exactly: [`Delta::encode`].)
pub(crate) fn slot_bytes(changes: Changes, page_size: usize) -> usize {
    const HEAD_BYTES: usize = 24;
    HEAD_BYTES + 2 * changes.run_count() + changes.bytes(page_size)
}

impl Delta {
    /// The version `image` as `changes` of `base`.
    pub(crate) fn of(version: Lsn, base: Base, changes: Changes, image: &[u8]) -> Delta {
        let mut bytes = Vec::with_capacity(changes.bytes(image.len()));
        changes.byte_runs(image.len()).for_each(|run| bytes.put(&image[run]));
        Delta { version, base, changes, bytes: bytes.into() }
    }

    /// Makes the base image the version.
    pub(crate) fn apply(&self, image: &mut [u8]) {
        let len = image.len();
        assert_eq!(self.bytes.len(), self.changes.bytes(len), "the delta is of pages of this size");
        let mut rest = &*self.bytes;
        for run in self.changes.byte_runs(len) {
            let (bytes, after) = rest.split_at(run.len());
            image[run].copy_from_slice(bytes);
            rest = after;
        }
    }

    /// Bytes that the slot has at least.
    pub(crate) fn slot_bytes_min(&self) -> usize {
        const HEAD_BYTES: usize = CHECKSUM_BYTES + 3 + 4 + 1;
        HEAD_BYTES + 2 * self.changes.run_count() + self.bytes.len()
    }

    /// The slot, whose checksum [`seal`] sets.
    pub(crate) fn encode(&self, page: PageId) -> Vec<u8> {
        assert!(self.base.version <= self.version, "{page:?}: a delta is not older than its base");
        let mut out = Vec::with_capacity(self.bytes.len() + 40);
        out.put_u32(0);
        out.put_varint(page.0);
        out.put_varint(self.version.0);
        out.put_varint(self.version.0 - self.base.version.0);
        out.put_u32(self.base.checksum);
        out.put_varint(self.changes.run_count() as u64);
        let mut end = 0;
        for run in self.changes.runs() {
            out.put_varint((run.start - end) as u64);
            out.put_varint(run.len() as u64);
            end = run.end;
        }
        out.put(&self.bytes);
        out
    }

    /// The delta in a slot of the delta page at `place`, of pages of `page_size` bytes.
    pub(crate) fn decode(slot: &[u8], place: Place, page_size: usize) -> Result<(PageId, Delta), Malformed> {
        let reader = &mut Reader::new(slot);
        if reader.u32()? != checksum(reader.rest(), place) {
            return Err(Malformed { what: "a slot of a delta page whose checksum is wrong" });
        }
        let page = PageId(reader.varint()?);
        let version = reader.varint()?;
        let since = reader.varint()?;
        let base_version = version.checked_sub(since).ok_or(Malformed { what: "a base before all log" })?;
        let base = Base { version: Lsn(base_version), checksum: reader.u32()? };
        let mut changes = Changes::NONE;
        let mut end = 0;
        for number in 0..reader.varint_max(Changes::GRANULES)? {
            let start = end + reader.varint_max(Changes::GRANULES - end)?;
            let len = reader.varint_max(Changes::GRANULES - start)?;
            // Runs that touch would be one: each set of changes has one form.
            if len == 0 || (number > 0 && start == end) {
                return Err(Malformed { what: "a run of a slot that is empty, or no run of its own" });
            }
            end = start + len;
            changes.add_range(start..end, Changes::GRANULES);
        }
        let bytes = reader.bytes(changes.bytes(page_size))?;
        if !reader.is_empty() {
            return Err(Malformed { what: "bytes after the end of a slot" });
        }
        Ok((page, Delta { version: Lsn(version), base, changes, bytes: bytes.into() }))
    }
}

/// Sets the checksum of a slot that goes to the delta page at `place`.
pub(crate) fn seal(slot: &mut [u8], place: Place) {
    let (first, rest) = slot.split_at_mut(CHECKSUM_BYTES);
    first.copy_from_slice(&checksum(rest, place).to_le_bytes());
}

fn checksum(rest: &[u8], place: Place) -> u32 {
    Crc32c::new().with(&place.0.to_le_bytes()).with(rest).value()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    /// Changes of up to `runs` runs.
    pub(crate) fn some_changes(rng: &mut Rng, runs: u64) -> Changes {
        let mut changes = Changes::NONE;
        for _ in 0..rng.below(runs + 1) {
            let start = rng.below(Changes::GRANULES as u64) as usize;
            let len = 1 + rng.below(9) as usize;
            changes.add_range(start..(start + len).min(Changes::GRANULES), Changes::GRANULES);
        }
        changes
    }

    #[test]
    fn slots_have_golden_bytes() {
        let mut image = [0u8; 512];
        image[4..12].copy_from_slice(b"abcdefgh");
        image[508..].copy_from_slice(b"wxyz");
        let mut changes = Changes::NONE;
        changes.add_range(4..12, 512);
        changes.add_range(508..512, 512);
        let base = Base { version: Lsn(0x0F0), checksum: 0xAABB_CCDD };
        let delta = Delta::of(Lsn(0x100), base, changes, &image);
        let mut slot = delta.encode(PageId(300));
        seal(&mut slot, Place(7));
        let golden = b"\xAC\x02\x80\x02\x10\xDD\xCC\xBB\xAA\x02\x01\x02\x7C\x01abcdefghwxyz";
        assert_eq!(slot[4..], golden[..]);
        assert_eq!(slot[..4], checksum(golden, Place(7)).to_le_bytes());
        assert_eq!(checksum(golden, Place(7)), 0xFCFD_953A);
        assert_eq!(Delta::decode(&slot, Place(7), 512), Ok((PageId(300), delta)));
        assert!(Delta::decode(&slot, Place(8), 512).is_err(), "a slot of another delta page");
    }

    #[test]
    fn base_and_slot_are_the_page() {
        let mut rng = Rng::new(3);
        for round in 0..3000u64 {
            let page_size = 512 << rng.below(8);
            let base: Vec<u8> = (0..page_size).map(|_| rng.next_u64() as u8).collect();
            let changes = if round == 0 { Changes::ALL } else { some_changes(&mut rng, 12) };
            let mut image = base.clone();
            changes.byte_runs(page_size).for_each(|run| image[run].fill(round as u8));
            let version = Lsn(1000 + rng.below(1 << 40));
            let since = Base { version: Lsn(version.0 - rng.below(1000)), checksum: rng.next_u64() as u32 };
            let delta = Delta::of(version, since, changes, &image);
            let (page, place) = (PageId(rng.below(1 << 30)), Place(rng.below(1 << 40)));
            let mut slot = delta.encode(page);
            assert!(delta.slot_bytes_min() <= slot.len());
            seal(&mut slot, place);
            assert_eq!(Delta::decode(&slot, place, page_size), Ok((page, delta.clone())));
            let mut merged = base;
            delta.apply(&mut merged);
            assert!(merged == image);
            let bit = rng.below(8 * slot.len() as u64) as usize;
            slot[bit / 8] ^= 1 << (bit % 8);
            assert!(Delta::decode(&slot, place, page_size).is_err(), "bit {bit} was turned over");
        }
    }

    #[test]
    fn sealed_garbage_is_refused_or_has_the_size_of_its_changes() {
        let mut rng = Rng::new(5);
        for _ in 0..50_000 {
            let mut slot: Vec<u8> = (0..4 + rng.below(60)).map(|_| rng.below(12) as u8).collect();
            seal(&mut slot, Place(1));
            if let Ok((page, delta)) = Delta::decode(&slot, Place(1), 512) {
                assert_eq!(delta.bytes.len(), delta.changes.bytes(512));
                assert!(delta.encode(page).len() <= slot.len());
            }
        }
    }
}
