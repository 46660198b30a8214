//! An archive as a further source of a scan: after a crash it may have acknowledged log that the
//! devices lack.
//!
//! The scan asks it for log that the devices do not have, in ascending order, and it is opened only
//! then. It returns log of exactly the requested epoch, begun at the same LSN: never log of another
//! history of the database.

use crate::archive::files::ArchiveFiles;
use crate::archive::format::EpochMark;
use crate::archive::segment::{Opened, SegmentReader};
use crate::archive::stream::{ArchiveLog, Next};
use crate::error::{LogError, LogErrorKind};
use firndb_base::{DatabaseId, Epoch, Lsn};

/// The end of an archive, by its newest segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    /// All log before this LSN is in the archive, as far as this segment shows.
    pub end: Lsn,
    /// LSN from which the log can be followed.
    pub resume: Lsn,
    /// The epoch of the last chunk before damage.
    pub mark: EpochMark,
    pub time_us: u64,
    /// First LSN of the last intact chunk: all log before it was archived before the chunk was
    /// written.
    pub claim: Lsn,
    /// End of the last intact chunk.
    pub reach: Lsn,
    /// The epoch of the last intact chunk.
    pub last: EpochMark,
}

/// Reads the newest segment that holds log; `None` if none does.
pub(crate) fn newest(files: &ArchiveFiles, database: DatabaseId) -> Result<Option<Newest>, LogError> {
    for sequence in files.list()?.into_iter().rev() {
        let Opened::Segment(mut reader) = SegmentReader::open(files, sequence)? else { continue };
        if reader.header.database != database {
            return Err(LogErrorKind::BadArgument.error(format!(
                    "{} is the archive of database {}, not of {database}: give each database a directory of its own",
                    files.directory().display(),
                    reader.header.database,
                )));
        }
        let mut found: Option<Newest> = None;
        let mut is_log_missing = false;
        while reader.advance()? {
            let chunk = reader.chunk().expect("just read");
            let (claim, reach, last) = (chunk.first, chunk.end(), chunk.mark);
            let whole = Newest {
                end: chunk.end(),
                resume: chunk.resume(),
                mark: chunk.mark,
                time_us: chunk.time_us,
                claim,
                reach,
                last,
            };
            // What is damaged may be images: then the log goes on where it was.
            let first = reader.header.first;
            let end = found.map_or(first, |found| found.end);
            let begins = chunk.first == chunk.mark.start && chunk.mark.previous_end <= end;
            is_log_missing |= !reader.damaged.is_empty() && chunk.first > end && !begins;
            found = Some(match found {
                // The damaged chunk, and all behind it, are archived once more.
                Some(found) if is_log_missing => Newest { claim, reach, last, ..found },
                // The segment's first chunk is damaged: no log is known to be there from the
                // segment's first LSN on.
                None if is_log_missing => Newest { end: first, resume: first, ..whole },
                _ => whole,
            });
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// An archive that a scan may read; see [`crate::ArchiveUse::Needed`].
#[derive(Clone, Debug)]
pub struct Archived {
    files: ArchiveFiles,
    database: DatabaseId,
    newest: Newest,
}

impl Archived {
    /// The archive of `database` in `files`; `None` if it is empty.
    ///
    /// Errors: `BadArgument` if it is another database's; `Failed`.
    pub fn open(files: ArchiveFiles, database: DatabaseId) -> Result<Option<Archived>, LogError> {
        let newest = newest(&files, database)?;
        Ok(newest.map(|newest| Archived { files, database, newest }))
    }

    /// The archive's files.
    #[must_use]
    pub fn files(&self) -> &ArchiveFiles {
        &self.files
    }

    /// First LSN after the last byte that is archived.
    #[must_use]
    pub fn reach(&self) -> Lsn {
        self.newest.reach
    }

    /// The epoch of that byte.
    #[must_use]
    pub fn end_mark(&self) -> EpochMark {
        self.newest.last
    }

    /// All log before this LSN was archived durably before later log was archived.
    pub(crate) fn claim(&self) -> Lsn {
        self.newest.claim
    }

    /// A reader of the archive; nothing is opened yet.
    pub(crate) fn reader(&self) -> ArchiveReader {
        ArchiveReader::new(self.files.clone(), self.database, self.reach())
    }
}

/// Reads an archive forward, for a scan.
pub(crate) struct ArchiveReader {
    files: ArchiveFiles,
    database: DatabaseId,
    /// The reader returns no log from this LSN on.
    limit: Lsn,
    log: Option<ArchiveLog>,
    /// The current piece: its epoch, first LSN and end.
    piece: Option<(EpochMark, Lsn, Lsn)>,
    /// LSN at which the archive continues after missing log.
    gap: Option<Lsn>,
    ended: bool,
}

impl ArchiveReader {
    /// A reader of the log before `limit`; nothing is opened yet.
    pub fn new(files: ArchiveFiles, database: DatabaseId, limit: Lsn) -> ArchiveReader {
        ArchiveReader { files, database, limit, log: None, piece: None, gap: None, ended: false }
    }

    /// The later epoch with which the archive continues behind the log of `epoch` that
    /// [`ArchiveReader::copy`] found, if it does.
    pub fn later_epoch(&self, epoch: Epoch) -> Option<EpochMark> {
        self.piece.map(|(mark, ..)| mark).filter(|mark| mark.epoch > epoch)
    }

    /// Copies the log of `epoch`, which began at `start`, from `lsn` on, as much as there is.
    /// Returns the number of bytes.
    pub fn copy(&mut self, epoch: Epoch, start: Lsn, lsn: Lsn, out: &mut [u8]) -> Result<usize, LogError> {
        let mut done = 0;
        while done < out.len() {
            let at = lsn.advance(done as u64);
            let Some((log, first)) = self.reach(epoch, start, at)? else { break };
            let bytes = &log.bytes()[at.since(first) as usize..];
            let count = bytes.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
        }
        Ok(done)
    }

    /// Reads on to the piece with the byte at `at`; `None` if there is none.
    fn reach(&mut self, epoch: Epoch, start: Lsn, at: Lsn) -> Result<Option<(&ArchiveLog, Lsn)>, LogError> {
        if at >= self.limit {
            return Ok(None);
        }
        let log = match self.log.take() {
            Some(log) => log,
            None => ArchiveLog::open_newest(&self.files, self.database, at)?,
        };
        let log = self.log.insert(log);
        loop {
            if let Some((mark, first, end)) = self.piece {
                if (mark.epoch, mark.start) == (epoch, start) && first <= at && at < end {
                    return Ok(Some((log, first)));
                }
                // The piece is kept for later.
                if mark.epoch > epoch || first > at {
                    return Ok(None);
                }
            }
            match self.gap {
                Some(gap) if gap > at => return Ok(None),
                Some(gap) => {
                    log.skip_to(gap);
                    self.gap = None;
                }
                None if self.ended => return Ok(None),
                None => {}
            }
            self.piece = None;
            match log.next_piece()? {
                Next::Piece { first, mark, .. } => self.piece = Some((mark, first, log.pos())),
                Next::Gap(lsn) => self.gap = Some(lsn),
                Next::End => self.ended = true,
            }
        }
    }
}
