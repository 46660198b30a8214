//! The archive: all log that the database ever had, in segment files of a directory, for restoring
//! to any LSN.
//!
//! Source: the FlashLogging paper, section 3.7. Format: `docs/format/archive.md`; for users:
//! `docs/guide/archive-and-backup.md`.
//!
//! * [`ArchiveWriter`] appends pieces of the stream as *chunks*, each durable when the call
//!   returns, in sequence only, and begins a new segment when one is full or a write to it failed.
//! * [`LogTail`](crate::LogTail) is the source of the pieces: the log buffer, or the log's devices
//!   if the archive is behind. Log that is archived before the devices have it becomes durable by
//!   that ([`crate::Log::archived`]).
//! * [`ArchiveLog`] reads the stream back from one or several directories, [`ArchiveRecords`] its
//!   records.
//! * [`Images`] finds the images of pages whose content is not in the log: chunks of their own,
//!   written before the log that names them.
//! * [`survey`] lists and verifies.
//!
//! Invariants:
//! * A chunk holds the stream's own bytes, framing included: archived bytes can be compared with
//!   the log.
//! * Log that the log's devices lack is archived only while it is durable in the database that this
//!   may be so; its recovery then reads the archive as well ([`Archived`]). So an archive never
//!   holds log that the database does not have.
//! * Log that an archive has of an epoch beyond the end that the next epoch states was cut off by a
//!   crash, and is no log.
//! * Nothing is overwritten. After a failed write the segment stays as it is and archiving
//!   continues, from the last acknowledged byte, in a new one: of two chunks with one LSN in one
//!   epoch either may be read.
//! * A chunk states where its epoch began and where the log before that ended, so a reader
//!   distinguishes the jump between two epochs from missing log.
//! * Missing log is an error that names its LSN, never the end of the archive, unless no log
//!   follows it.

mod archived_early;
pub(crate) mod files;
pub(crate) mod format;
mod images;
mod records;
mod segment;
pub(crate) mod signal;
pub(crate) mod source;
mod stream;
mod survey;
mod writer;

pub use files::{ArchiveFiles, WrapDevice};
pub use format::{CHUNK_MAX, EpochMark, Piece, SEGMENT_BYTES_MIN};
pub use images::{Image, Images};
pub use records::ArchiveRecords;
pub use source::Archived;
pub use stream::{ArchiveLog, Next};
pub use survey::{NamedImages, SegmentInfo, Survey, survey};
pub use writer::ArchiveWriter;
