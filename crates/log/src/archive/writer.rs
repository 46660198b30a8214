//! Writing an archive.
//!
//! Why a crash at any point is harmless: a segment's file is created and its space reserved before
//! its header is written; the header is durable before the first chunk; each chunk is durable
//! before it is acknowledged. Bytes that a crash leaves behind the last intact chunk were never
//! acknowledged, and the next writer begins a new segment.

use crate::archive::files::{ArchiveFiles, named};
use crate::archive::format::{
    CHUNK_BYTES_MAX, CHUNK_HEADER, CHUNK_MAX, ChunkHeader, ChunkKind, EpochMark, Piece, SEGMENT_BYTES_MIN,
    SegmentHeader, UNIT,
};
use crate::archive::images::{Image, List};
use crate::archive::source::newest;
use crate::block::database_tag;
use crate::error::{LogError, LogErrorKind};
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Lsn};
use firndb_device::{AlignedBuf, Device, Durability};

/// Appends to an archive. A directory has one writer at a time.
pub struct ArchiveWriter {
    files: ArchiveFiles,
    database: DatabaseId,
    segment_bytes: u64,
    current: Option<Current>,
    next_sequence: u64,
    /// All log before this LSN is archived; `None` while there is none.
    end: Option<Lsn>,
    /// A record's first LSN, or the end of the last one, at or before `end`.
    resume: Lsn,
    /// Where the archive ended before log was given up; set until a segment records it.
    gap_from: Option<Lsn>,
    /// First LSN behind the last intact chunk of log that was found at opening.
    reach: Option<Lsn>,
    /// The epoch of the last chunk.
    mark: Option<EpochMark>,
    time_us: u64,
    buf: AlignedBuf,
}

/// The segment being filled.
struct Current {
    device: Arc<dyn Device>,
    sequence: u64,
    at: u64,
    /// Bytes reserved for it.
    bytes: u64,
}

impl Current {
    /// Bytes left for a chunk, its header included: a unit is for the seal.
    fn free(&self) -> usize {
        (self.bytes - self.at).saturating_sub(UNIT as u64) as usize
    }
}

impl ArchiveWriter {
    /// Continues the archive in `files`, or begins one. Reads the newest segment to find its end.
    ///
    /// Errors: `BadArgument` if it is another database's, or `segment_bytes` is too small;
    /// `Failed`.
    pub fn open(
        files: ArchiveFiles,
        database: DatabaseId,
        segment_bytes: u64,
    ) -> Result<ArchiveWriter, LogError> {
        if segment_bytes < SEGMENT_BYTES_MIN {
            return Err(LogErrorKind::BadArgument.error(format!(
                "an archive's segments have at least {SEGMENT_BYTES_MIN} bytes, not {segment_bytes}"
            )));
        }
        let listed = files.list()?;
        let mut writer = ArchiveWriter {
            database,
            segment_bytes: segment_bytes.next_multiple_of(UNIT as u64),
            current: None,
            next_sequence: listed.last().map_or(1, |last| last + 1),
            end: None,
            resume: Lsn::ZERO,
            gap_from: None,
            reach: None,
            mark: None,
            time_us: 0,
            buf: AlignedBuf::zeroed(CHUNK_BYTES_MAX),
            files,
        };
        if let Some(found) = newest(&writer.files, database)? {
            (writer.end, writer.resume) = (Some(found.end), found.resume);
            (writer.mark, writer.time_us, writer.reach) =
                (Some(found.mark), found.time_us, Some(found.reach));
        }
        writer.rewind();
        Ok(writer)
    }

    /// Goes back to the LSN from which the log can be followed, by at most a record and a chunk, in
    /// a new segment: after a failed [`ArchiveWriter::append`], and at opening. The log between is
    /// written twice.
    pub fn rewind(&mut self) {
        self.current = None;
        self.end = self.end.map(|_| self.resume);
    }

    /// All log before this LSN is archived; `None` while there is none.
    #[must_use]
    pub fn end(&self) -> Option<Lsn> {
        self.end
    }

    /// LSN from which to follow the log: a record's first LSN, at or before the archive's end. The
    /// log must be kept from there on.
    #[must_use]
    pub fn resume(&self) -> Option<Lsn> {
        self.end.map(|_| self.resume)
    }

    /// Where the archive ended when it was opened, whatever is damaged before that; `None` if it
    /// was empty.
    #[must_use]
    pub fn reach(&self) -> Option<Lsn> {
        self.reach
    }

    /// The epoch of the last chunk.
    #[must_use]
    pub fn mark(&self) -> Option<EpochMark> {
        self.mark
    }

    /// Segments begun so far, in the archive's whole history.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.next_sequence - 1
    }

    /// Gives up the log between the archive's end and `lsn`, at which a group begins: the next
    /// piece begins there, in a new segment whose header records the gap.
    pub fn skip_to(&mut self, lsn: Lsn) {
        assert!(self.end.is_none_or(|end| end <= lsn), "an archive goes forward");
        self.current = None;
        if self.gap_from.is_none() {
            self.gap_from = self.end;
        }
        (self.end, self.resume) = (Some(lsn), lsn);
    }

    /// Appends a piece of the stream, durably. `now_us` is the current time, which may go
    /// backwards: the times written never do.
    ///
    /// Errors: `Full` if the volume is; `BadArgument` if the segments are gone from the directory;
    /// `Failed`. To try again, call [`ArchiveWriter::rewind`], and follow the log from
    /// [`ArchiveWriter::end`] on.
    pub fn append(&mut self, piece: Piece, bytes: &[u8], now_us: u64) -> Result<(), LogError> {
        let Piece { mark, first, resume } = piece;
        self.go_to(piece);
        if self.end.is_none() {
            self.resume = first;
        }
        self.time_us = self.time_us.max(now_us);
        let mut rest = bytes;
        let mut lsn = first;
        while !rest.is_empty() {
            let free = self.ensure_segment(lsn, UNIT)? - CHUNK_HEADER;
            let (now, later) = rest.split_at(rest.len().min(free).min(CHUNK_MAX));
            let end = lsn.advance(now.len() as u64);
            // The position of the last record in a first part is unknown.
            let resume = if later.is_empty() { resume } else { self.resume };
            self.buf[CHUNK_HEADER..CHUNK_HEADER + now.len()].copy_from_slice(now);
            self.write_chunk(mark, lsn, resume, (ChunkKind::Log, now.len()))?;
            (self.end, self.mark, self.resume) = (Some(end), Some(mark), resume);
            (lsn, rest) = (end, later);
        }
        Ok(())
    }

    /// Appends images, durably, that records of `piece` name and no log holds: before the piece
    /// itself, so that the archive has the images of all records that it has. Returns how many of
    /// them, the first ones: the others are left for another call.
    ///
    /// Errors: as [`ArchiveWriter::append`], and so is the way to try again.
    pub fn append_images(
        &mut self,
        piece: Piece,
        images: &[Image],
        bytes: &[u8],
        now_us: u64,
    ) -> Result<usize, LogError> {
        let Some(image_bytes) = bytes.len().checked_div(images.len()) else { return Ok(0) };
        self.go_to(piece);
        self.time_us = self.time_us.max(now_us);
        let padded = |count| (CHUNK_HEADER + List::bytes_with(count, image_bytes)).next_multiple_of(UNIT);
        let free = self.ensure_segment(piece.first, padded(1))?;
        let fits =
            |count: &usize| padded(*count) <= free && List::bytes_with(*count, image_bytes) <= CHUNK_MAX;
        let count = (1..=images.len()).take_while(fits).last().unwrap_or(1);
        let len = List::bytes_with(count, image_bytes);
        let out = &mut self.buf[CHUNK_HEADER..CHUNK_HEADER + len];
        List { images: images[..count].to_vec(), image_bytes }.encode(out);
        out[List::head_bytes(count)..].copy_from_slice(&bytes[..count * image_bytes]);
        self.write_chunk(piece.mark, piece.first, piece.first, (ChunkKind::Images, len))?;
        Ok(count)
    }

    /// Goes to a piece's first byte: the archive's end, or the beginning of an epoch.
    fn go_to(&mut self, piece: Piece) {
        let Piece { mark, first, .. } = piece;
        let begins = first == mark.start && self.mark.is_none_or(|last| last.epoch < mark.epoch);
        if begins && self.end.is_some_and(|end| end > mark.previous_end && end <= first) {
            // The archive's log beyond `previous_end` was being appended when a crash cut it off,
            // and is no log.
            self.current = None;
            (self.end, self.resume) = (Some(mark.previous_end), mark.previous_end);
        }
        let follows = |end| first == end || (first == mark.start && mark.previous_end == end);
        assert!(self.end.is_none_or(follows), "{first:?} does not follow {:?}", self.end);
    }

    /// Bytes left in the current segment, at least `needed`; begins a new one if there are not.
    fn ensure_segment(&mut self, lsn: Lsn, needed: usize) -> Result<usize, LogError> {
        let unit = UNIT as u64;
        match &self.current {
            Some(current) if current.free() >= needed => return Ok(current.free()),
            Some(_) => self.seal()?,
            None => {}
        }
        if self.mark.is_some() && !self.files.holds_any() {
            return Err(LogErrorKind::BadArgument.error(format!(
                "{} has no segment any more: is its volume mounted?",
                self.files.directory().display()
            )));
        }
        // A segment may be too small for one large image.
        let bytes = self.segment_bytes.max(needed as u64 + 2 * unit);
        let sequence = self.next_sequence;
        // The number is used up even if the creation fails: the file may exist.
        self.next_sequence += 1;
        let device = self.files.create(sequence, bytes)?;
        let header = SegmentHeader {
            database: self.database,
            sequence,
            first: lsn,
            previous: self.gap_from.unwrap_or(lsn),
            bytes,
            created_us: self.time_us,
        };
        header.encode(&mut self.buf);
        device.write(0, &self.buf[..UNIT], Durability::Durable).map_err(named)?;
        let current = self.current.insert(Current { device, sequence, at: unit, bytes });
        Ok(current.free())
    }

    /// Writes a chunk whose bytes are in the buffer, behind its header's space.
    fn write_chunk(
        &mut self,
        mark: EpochMark,
        first: Lsn,
        resume: Lsn,
        (kind, len): (ChunkKind, usize),
    ) -> Result<(), LogError> {
        let current = self.current.as_mut().expect("ensure_segment() begins one");
        let mut chunk = ChunkHeader {
            tag: database_tag(self.database),
            sequence: current.sequence,
            mark,
            first,
            len,
            resume_back: 0,
            time_us: self.time_us,
            kind,
        };
        chunk.resume_back = chunk.end().since(resume).min(u64::from(u32::MAX)) as u32;
        chunk.encode(&mut self.buf);
        let written = current.device.write(current.at, &self.buf[..chunk.padded()], Durability::Durable);
        match written {
            Ok(()) => {
                current.at += chunk.padded() as u64;
                if kind == ChunkKind::Log {
                    self.gap_from = None;
                }
                Ok(())
            }
            Err(error) => {
                // Whether the chunk was written is unknown: nothing more is written to this
                // segment.
                self.current = None;
                Err(named(error))
            }
        }
    }

    /// Ends the current segment, so that its end can be distinguished from damage, and releases its
    /// unused space. The next piece begins a new one.
    pub fn seal(&mut self) -> Result<(), LogError> {
        let (Some(mark), Some(end)) = (self.mark, self.end) else { return Ok(()) };
        if self.current.is_none() {
            return Ok(());
        }
        self.write_chunk(mark, end, self.resume, (ChunkKind::Seal, 0))?;
        let current = self.current.take().expect("checked above");
        // This saves only space: a segment that stays long can be read as well.
        let _ = current.device.shrink(current.at);
        Ok(())
    }
}

impl std::fmt::Debug for ArchiveWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveWriter")
            .field("files", &self.files)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
