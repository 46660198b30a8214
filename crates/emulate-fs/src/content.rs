//! One file's bytes, place and durability.
//!
//! The backing file holds the newest bytes; [`Undo`] holds the bytes that a power cut may restore.
//! The length has a separate durable value: a power cut leaves the durable length, the newest, or
//! one in between.
//!
//! Invariants: `durable_size` is the length at the begin of the last sync that ended; durable bytes
//! that are cut off or overwritten stay in `undo` until a later sync ends.

use crate::dirty::DirtyRanges;
use crate::space::{Extents, NoSpace, Space};
use crate::undo::{BLOCK, Sequence, Undo};
use firndb_base::rng::Rng;
use firndb_base::sync::Mutex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// One file. Its lock protects everything about it but its name.
#[derive(Debug)]
pub struct Content {
    /// The backing file, while the file is open.
    pub handle: Option<File>,
    /// Number of open handles.
    pub opens: u64,
    /// The newest length.
    pub size: u64,
    /// Its place on the device.
    pub extents: Extents,
    /// Dirty: written, but not yet sent to the device.
    pub dirty: DirtyRanges,
    durable_size: u64,
    undo: Undo,
    sequence: Sequence,
    /// The last change of length or place.
    metadata: Sequence,
    /// The begin of the last sync that ended.
    synced: Sequence,
}

/// A sync in flight: what it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncTicket {
    range: Range<u64>,
    sequence: Sequence,
    size: u64,
}

impl Content {
    /// A file that existed at the mount, or a new one: its contents are durable.
    #[must_use]
    pub fn new(size: u64, extents: Extents) -> Content {
        Content {
            handle: None,
            opens: 0,
            size,
            extents,
            dirty: DirtyRanges::default(),
            durable_size: size,
            undo: Undo::default(),
            sequence: Sequence(0),
            metadata: Sequence(0),
            synced: Sequence(0),
        }
    }

    fn file(&self) -> io::Result<&File> {
        self.handle.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Reads up to the file's end.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let length = (length as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut bytes = vec![0; length];
        let read = read_full(self.file()?, &mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Allocates extents for a range. If it allocated any, that is a change which a sync must make
    /// durable.
    ///
    /// # Errors
    /// [`NoSpace`]; nothing has changed then.
    pub fn cover(&mut self, range: Range<u64>, space: &Mutex<Space>) -> Result<(), NoSpace> {
        let before = self.extents.occupied();
        self.extents.cover(range, &mut space.lock())?;
        if self.extents.occupied() != before {
            self.metadata = self.step();
        }
        Ok(())
    }

    /// Whether a range has all its extents.
    #[must_use]
    pub fn covered(&self, range: Range<u64>) -> bool {
        let length: u64 =
            self.extents.addresses(range.clone()).iter().map(|piece| piece.end - piece.start).sum();
        length == range.end - range.start
    }

    /// Writes, and keeps the earlier bytes, which a power cut may restore. The range must have its
    /// extents.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = offset..offset + bytes.len() as u64;
        let at = self.keep(&range)?;
        self.file()?.write_all_at(bytes, offset)?;
        if range.end > self.size {
            self.size = range.end;
            self.metadata = at;
        }
        Ok(())
    }

    /// Sets the length. Bytes that are added read as zeros.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn set_size(&mut self, size: u64) -> io::Result<()> {
        let at = self.keep(&(size..self.size.max(size)))?;
        self.file()?.set_len(size)?;
        self.size = size;
        self.dirty.truncate(size);
        self.metadata = at;
        Ok(())
    }

    /// Makes a range read as zeros; the length stays.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn zero(&mut self, range: Range<u64>) -> io::Result<()> {
        let range = range.start.min(self.size)..range.end.min(self.size);
        self.metadata = self.keep(&range)?;
        let zeros = vec![0; BLOCK as usize];
        let mut at = range.start;
        while at < range.end {
            let piece = (range.end - at).min(BLOCK);
            self.file()?.write_all_at(&zeros[..piece as usize], at)?;
            at += piece;
        }
        Ok(())
    }

    fn step(&mut self) -> Sequence {
        self.sequence.0 += 1;
        self.sequence
    }

    /// Keeps the blocks of a range as they are before a change; returns the change's number.
    fn keep(&mut self, range: &Range<u64>) -> io::Result<Sequence> {
        let at = self.step();
        for block in self.undo.wanted(range) {
            let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
            read_full(self.file()?, &mut bytes, block * BLOCK)?;
            self.undo.keep(block, at, bytes);
        }
        Ok(at)
    }

    /// Bytes of memory that hold earlier contents.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.undo.kept()
    }
    /// Whether length or place have changed since the begin of the last sync that ended.
    #[must_use]
    pub fn metadata_waits(&self) -> bool {
        self.metadata > self.synced
    }
    /// Whether a sync would have nothing to do.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.undo.is_empty() && !self.metadata_waits() && self.dirty.bytes() == 0
    }

    /// Begins a sync of `range`.
    pub fn begin_sync(&mut self, range: Range<u64>) -> SyncTicket {
        let sequence = self.step();
        self.undo.begin_sync(sequence);
        SyncTicket { range, sequence, size: self.size }
    }

    /// Ends a sync.
    pub fn end_sync(&mut self, ticket: SyncTicket) {
        self.undo.durable(ticket.range, ticket.sequence);
        if ticket.sequence > self.synced {
            self.synced = ticket.sequence;
            self.durable_size = ticket.size;
        }
    }

    /// Makes length and place durable as they are, as the journal does after its interval.
    pub fn settle_metadata(&mut self) {
        let cut_off = self.size.next_multiple_of(BLOCK)..u64::MAX;
        let ticket = self.begin_sync(cut_off);
        self.end_sync(ticket);
    }

    /// Makes everything durable as it is.
    pub fn settle(&mut self) {
        let ticket = self.begin_sync(0..u64::MAX);
        self.end_sync(ticket);
    }

    /// Cuts the power: leaves in `file` what the medium would hold.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn cut(&mut self, file: &File, sector: usize, rng: &mut Rng) -> io::Result<()> {
        let (newest, durable) = (self.size, self.durable_size);
        let size = match rng.below(3) {
            0 => durable,
            1 if newest > durable => {
                (durable + rng.below(newest - durable)).next_multiple_of(sector as u64).min(newest)
            }
            1 => durable,
            _ => newest,
        };
        // If the truncation is undone, all bytes that it cut off come back, including the sector
        // that contains the new end.
        let cut_to = if size > newest { newest - newest % sector as u64 } else { u64::MAX };
        file.set_len(newest.max(durable))?;
        for (offset, bytes) in self.undo.survivors(sector, cut_to, rng) {
            file.write_all_at(&bytes, offset)?;
        }
        file.set_len(size)?;
        self.size = size;
        Ok(())
    }

    /// Whether a power cut could change the file.
    #[must_use]
    pub fn cut_changes(&self) -> bool {
        !self.undo.is_empty() || self.size != self.durable_size
    }
}

/// Reads until the buffer is full or the file ends; returns the number of bytes read.
fn read_full(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn content(bytes: &[u8]) -> Content {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(bytes, 0).expect("written");
        let mut content = Content::new(bytes.len() as u64, Extents::default());
        content.handle = Some(file);
        content
    }

    fn cut(mut content: Content, seed: u64) -> Vec<u8> {
        let file = content.handle.take().expect("open");
        content.cut(&file, 512, &mut Rng::new(seed)).expect("cut");
        let mut bytes = vec![0; content.size as usize];
        assert_eq!(read_full(&file, &mut bytes, 0).expect("read"), bytes.len());
        assert_eq!(file.metadata().expect("there").len(), content.size);
        bytes
    }

    #[test]
    fn synced_bytes_survive_every_cut() {
        for seed in 0..50 {
            let mut content = content(&[1; 10_000]);
            content.write(100, &[2; 5000]).expect("written");
            let ticket = content.begin_sync(0..u64::MAX);
            content.end_sync(ticket);
            assert!(content.is_durable());
            let expected = content.read(0, 20_000).expect("read");
            assert_eq!(cut(content, seed), expected);
        }
    }

    #[test]
    fn a_cut_leaves_old_or_new_sectors_and_nothing_else() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut content = content(&[1; 8192]);
            content.write(0, &[2; 8192]).expect("written");
            let ticket = content.begin_sync(0..u64::MAX);
            content.write(0, &[3; 512]).expect("written");
            content.end_sync(ticket);
            content.write(4096, &[4; 512]).expect("written");
            let bytes = cut(content, seed);
            let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
            assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            assert!([2, 3].contains(&sectors[0]) && [2, 4].contains(&sectors[8]), "{sectors:?}");
            assert!((1..16).filter(|at| *at != 8).all(|at| sectors[at] == 2), "{sectors:?}");
            seen.insert((sectors[0], sectors[8]));
        }
        assert_eq!(seen.len(), 4, "every combination occurs");
    }

    #[test]
    fn lengths_are_durable_newest_or_between() {
        let mut lengths = BTreeSet::new();
        for seed in 0..200 {
            let mut content = content(&[1; 1000]);
            content.write(1000, &[2; 3000]).expect("written");
            let bytes = cut(content, seed);
            assert!((1000..=4000).contains(&bytes.len()));
            assert!(bytes[..1000].iter().all(|byte| *byte == 1));
            assert!(bytes[1000..].iter().all(|byte| [0, 2].contains(byte)), "new bytes or zeros");
            lengths.insert(bytes.len());
        }
        assert!(lengths.contains(&1000) && lengths.contains(&4000) && lengths.len() > 3, "{lengths:?}");
    }

    #[test]
    fn a_truncation_that_is_undone_brings_everything_back() {
        let old: Vec<u8> = (0..10_000u32).map(|at| (at % 251) as u8).collect();
        let mut lengths = BTreeSet::new();
        for seed in 0..50 {
            let mut content = content(&old);
            content.set_size(5000).expect("truncated");
            let bytes = cut(content, seed);
            assert_eq!(bytes, old[..bytes.len()], "seed {seed}");
            lengths.insert(bytes.len());
        }
        assert_eq!(lengths, BTreeSet::from([5000, 10_000]));
    }

    #[test]
    fn settled_lengths_survive() {
        let mut content = content(&[1; 10_000]);
        content.set_size(100).expect("truncated");
        content.settle_metadata();
        assert_eq!(cut(content, 3).len(), 100);
    }
}
