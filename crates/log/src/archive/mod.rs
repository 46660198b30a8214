//! The archive: all log the database ever had, kept in segment files of a directory, for restoring to any LSN.
//!
//! Source: the FlashLogging paper, section 3.7. Bytes: `docs/format/archive.md`; what users see: `docs/archive.md`.
//!
//! * [`ArchiveWriter`] appends pieces of the stream as *chunks*, each durable when the call returns, in
//!   sequence only, and begins a new segment when one is full or failed.
//! * [`LogTail`](crate::LogTail) is where the pieces come from: the log buffer, or the log's devices if the
//!   archive is behind. What is archived before the devices have it is durable with that ([`crate::Log::archived`]).
//! * [`ArchiveLog`] reads the stream back from one or several directories, [`ArchiveRecords`] its records.
//! * [`survey`] lists and verifies.
//!
//! Invariants:
//! * A chunk holds the stream's own bytes, framing included: what was archived can be compared with the log.
//! * Log that the log's devices lack is archived only while the database knows durably that this may be so; its recovery
//!   then reads the archive as well ([`Archived`]). So an archive never holds log that the database has not.
//! * What an archive has of an epoch beyond where the next one says that it ended was cut off by a crash, and is no log.
//! * Nothing is overwritten. After a failed write the segment is left as it is and the log goes on, from the last
//!   acknowledged byte, in a new one: of two chunks with one LSN in one epoch either may be read.
//! * A chunk says where its epoch began and where the log before that ended, so a reader tells the jump
//!   between two epochs from missing log.
//! * Missing log is an error that names its LSN, never the end of the archive, unless nothing lies behind it.

mod files;
mod format;
mod records;
mod segment;
mod source;
mod stream;
mod survey;
mod writer;

pub use files::{ArchiveFiles, WrapDevice};
pub use format::{CHUNK_MAX, EpochMark, SEGMENT_BYTES_MIN};
pub use records::ArchiveRecords;
pub(crate) use source::ArchiveReader;
pub use source::Archived;
pub use stream::{ArchiveLog, Next};
pub use survey::{SegmentInfo, Survey, survey};
pub use writer::ArchiveWriter;
