//! Reading the stream back from archives.
//!
//! Several directories may be read as one: a base backup includes the log of its own time. Memory:
//! the segments' headers, and one chunk.
//!
//! Two histories of one database are never joined. Both may be present if a copy of the database
//! was opened and wrote an archive, too. Once a piece is delivered, the next is
//! * log of the same epoch, begun at the same LSN; or
//! * a higher epoch's first log, which states that the log before it ended where the reader stands,
//!   or before: the log that the reader has beyond that was being archived when a crash cut it off,
//!   and is no log.

use crate::archive::files::ArchiveFiles;
use crate::archive::format::{ChunkHeader, EpochMark, SegmentHeader};
use crate::archive::segment::{Opened, SegmentReader};
use crate::error::{LogError, LogErrorKind};
use firndb_base::{DatabaseId, Lsn};
use std::path::Path;

/// A segment that may be read.
struct Segment {
    /// Index of the directory.
    files: usize,
    header: SegmentHeader,
}

/// The stream that one or several archives of a database hold, from an LSN on.
pub struct ArchiveLog {
    files: Vec<ArchiveFiles>,
    /// By first LSN, then in the order in which they were begun.
    segments: Vec<Segment>,
    current: Option<(usize, SegmentReader)>,
    pos: Lsn,
    /// Offset of the current piece in the current chunk.
    skip: usize,
    /// The epoch of the last piece delivered: the history that is followed.
    mark: Option<EpochMark>,
}

/// The next part of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A piece of the stream: see [`ArchiveLog::bytes`].
    Piece {
        /// LSN of its first byte.
        first: Lsn,
        /// Its epoch.
        mark: EpochMark,
        /// When it was archived: microseconds since 1970, never less than in a piece before it.
        time_us: u64,
    },
    /// No log follows.
    End,
    /// Log is missing: the archive continues only at this LSN.
    Gap(Lsn),
}

impl ArchiveLog {
    /// Opens the archives in `directories` at `from`. They must all be of one database (of
    /// `database`, if that is given).
    ///
    /// Errors: `BadArgument` if a segment is another database's; `Failed`.
    pub fn open(
        directories: &[&Path],
        database: Option<DatabaseId>,
        from: Lsn,
    ) -> Result<ArchiveLog, LogError> {
        let files: Vec<ArchiveFiles> = directories.iter().map(|path| ArchiveFiles::new(path)).collect();
        let mut segments: Vec<Segment> = Vec::new();
        let mut expected = database;
        for (index, directory) in files.iter().enumerate() {
            for sequence in directory.list()? {
                // A segment without a header cannot be read: its log, if any, is a gap.
                let Opened::Segment(reader) = SegmentReader::open(directory, sequence)? else { continue };
                let header = reader.header;
                let expected = *expected.get_or_insert(header.database);
                if header.database != expected {
                    return Err(other_database(&directory.path(sequence), &header, expected));
                }
                segments.push(Segment { files: index, header });
            }
        }
        segments.sort_by_key(|segment| (segment.header.first, segment.files, segment.header.sequence));
        Ok(ArchiveLog { files, segments, current: None, pos: from, skip: 0, mark: None })
    }

    /// As [`ArchiveLog::open`] of one directory, but reads only the newest segments, back to the
    /// one that holds `from`.
    pub(crate) fn open_newest(
        files: &ArchiveFiles,
        database: DatabaseId,
        from: Lsn,
    ) -> Result<ArchiveLog, LogError> {
        let mut segments = Vec::new();
        for sequence in files.list()?.into_iter().rev() {
            let Opened::Segment(mut reader) = SegmentReader::open(files, sequence)? else { continue };
            let header = reader.header;
            if header.database != database {
                return Err(other_database(&files.path(sequence), &header, database));
            }
            segments.push(Segment { files: 0, header });
            if header.first <= from && reader.advance()? {
                break;
            }
        }
        segments.sort_by_key(|segment| (segment.header.first, segment.header.sequence));
        let files = vec![files.clone()];
        Ok(ArchiveLog { files, segments, current: None, pos: from, skip: 0, mark: None })
    }

    /// Follows the history in which the epoch at the position is `mark`: log of another history is
    /// not delivered.
    #[must_use]
    pub fn of_epoch(mut self, mark: EpochMark) -> ArchiveLog {
        self.mark = Some(mark);
        self
    }

    /// Continues at `lsn`, at or after the position, with any epoch that is found there.
    pub(crate) fn skip_to(&mut self, lsn: Lsn) {
        assert!(lsn >= self.pos, "an archive is read forward");
        (self.pos, self.mark) = (lsn, None);
    }

    /// LSN of the next byte.
    #[must_use]
    pub fn pos(&self) -> Lsn {
        self.pos
    }

    /// First LSN of the first segment.
    #[must_use]
    pub fn first(&self) -> Option<Lsn> {
        self.segments.first().map(|segment| segment.header.first)
    }

    /// The bytes of the piece that [`ArchiveLog::next_piece`] returned last.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, reader)| &reader.payload()[self.skip..])
    }

    /// Moves to the next piece.
    pub fn next_piece(&mut self) -> Result<Next, LogError> {
        let mut exhausted = None;
        if let Some((index, mut reader)) = self.current.take() {
            if let Some(chunk) = self.seek(&mut reader)? {
                return Ok(self.enter_chunk(index, reader, chunk));
            }
            exhausted = Some(index);
        }
        if let Some((index, reader, chunk)) = self.find(exhausted)? {
            return Ok(self.enter_chunk(index, reader, chunk));
        }
        self.beyond()
    }

    fn enter_chunk(&mut self, index: usize, reader: SegmentReader, chunk: ChunkHeader) -> Next {
        let first = self.pos.max(chunk.first);
        self.skip = first.since(chunk.first) as usize;
        self.pos = chunk.end();
        self.mark = Some(chunk.mark);
        self.current = Some((index, reader));
        Next::Piece { first, mark: chunk.mark, time_us: chunk.time_us }
    }

    /// Finds a segment with the byte at `pos`, or with the epoch that begins there. An exhausted
    /// segment is before all that can follow in its directory.
    fn find(
        &self,
        exhausted: Option<usize>,
    ) -> Result<Option<(usize, SegmentReader, ChunkHeader)>, LogError> {
        let before = self.segments.partition_point(|segment| segment.header.first <= self.pos);
        // The nearest first: the byte is there unless it was written twice.
        let covering = (0..before).rev().filter(|&index| match exhausted.map(|e| &self.segments[e]) {
            Some(old) => {
                let segment = &self.segments[index];
                segment.files != old.files || segment.header.sequence > old.header.sequence
            }
            None => true,
        });
        // A new epoch may begin in any segment that starts with it.
        let next = self.segments.get(before).map(|segment| segment.header.first);
        let jumping = (before..self.segments.len())
            .take_while(|&index| Some(self.segments[index].header.first) == next);
        for index in covering.chain(jumping) {
            let segment = &self.segments[index];
            let files = &self.files[segment.files];
            let Opened::Segment(mut reader) = SegmentReader::open(files, segment.header.sequence)? else {
                continue;
            };
            if let Some(chunk) = self.seek(&mut reader)? {
                return Ok(Some((index, *reader, chunk)));
            }
        }
        Ok(None)
    }

    /// Reads on to the chunk with the byte at the position, or to the chunk that begins the next
    /// epoch after a log that ended there.
    fn seek(&self, reader: &mut SegmentReader) -> Result<Option<ChunkHeader>, LogError> {
        if reader.chunk().is_none_or(|chunk| chunk.end() < self.pos) {
            // No chunk that ends before the position holds the byte, or begins an epoch behind it.
            reader.skip_before(self.pos)?;
        }
        while reader.advance()? {
            let chunk = reader.chunk().expect("just read");
            if follows(&chunk, self.pos, self.mark) {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// No segment holds the byte at `pos`: finds the log behind it, if there is any.
    fn beyond(&self) -> Result<Next, LogError> {
        let mut least: Option<Lsn> = None;
        for segment in &self.segments {
            let opened = SegmentReader::open(&self.files[segment.files], segment.header.sequence)?;
            let Opened::Segment(mut reader) = opened else { continue };
            while reader.advance()? {
                let chunk = reader.chunk().expect("just read");
                if chunk.first > self.pos {
                    least = Some(least.map_or(chunk.first, |least| least.min(chunk.first)));
                    break;
                }
            }
            if least.is_some() {
                break;
            }
        }
        Ok(least.map_or(Next::End, Next::Gap))
    }
}

/// Whether `chunk` continues the log that ended at `pos`, in the history of the epoch `mark`.
fn follows(chunk: &ChunkHeader, pos: Lsn, mark: Option<EpochMark>) -> bool {
    let same = mark.is_none_or(|mark| (mark.epoch, mark.start) == (chunk.mark.epoch, chunk.mark.start));
    let later =
        mark.is_none_or(|mark| chunk.mark.epoch > mark.epoch && chunk.mark.previous_end >= mark.start);
    let begins = chunk.first == chunk.mark.start && chunk.first >= pos && chunk.mark.previous_end <= pos;
    // Without a known epoch, no log is known to be cut off.
    let begins = begins && (mark.is_some() || chunk.mark.previous_end == pos);
    (begins && later) || (same && chunk.first <= pos && pos < chunk.end())
}

fn other_database(path: &Path, header: &SegmentHeader, expected: DatabaseId) -> LogError {
    LogErrorKind::BadArgument.error(format!(
        "{} is of database {}, not of {expected}: name the archive that belongs to this one",
        path.display(),
        header.database
    ))
}

impl std::fmt::Debug for ArchiveLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveLog")
            .field("files", &self.files)
            .field("pos", &self.pos)
            .finish_non_exhaustive()
    }
}
