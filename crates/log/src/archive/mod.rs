//! The archive: all log the database ever had, kept in segment files of a directory, for restoring to any LSN.
//!
//! Source: the FlashLogging paper, section 3.7. Bytes: `docs/format/archive.md`; what users see: `docs/archive.md`.
//!
//! * [`ArchiveWriter`] appends pieces of the stream as *chunks*, each durable when the call returns, in
//!   sequence only, and begins a new segment when one is full or failed.
//! * [`LogTail`](crate::LogTail) is where the pieces come from: the log buffer, or the log's devices if the
//!   archive is behind.
//! * [`ArchiveLog`] reads the stream back from one or several directories, [`ArchiveRecords`] its records.
//! * [`survey`] lists and verifies.
//!
//! Invariants:
//! * A chunk holds the stream's own bytes, framing included: what was archived can be compared with the log.
//! * Only durable log is archived, so an archive never holds log that the database has not.
//! * Nothing is overwritten. After a failed write the segment is left as it is and the log goes on, from the last
//!   acknowledged byte, in a new one: of two chunks with one LSN in one epoch either may be read.
//! * A chunk says where its epoch began and where the log before that ended, so a reader tells the jump
//!   between two epochs from missing log.
//! * Missing log is an error that names its LSN, never the end of the archive, unless nothing lies behind it.

mod files;
mod format;
mod records;
mod segment;
mod stream;
mod survey;
mod writer;

pub use files::{ArchiveFiles, WrapDevice};
pub use format::{CHUNK_MAX, EpochMark, SEGMENT_BYTES_MIN};
pub use records::ArchiveRecords;
pub use stream::{ArchiveLog, Next};
pub use survey::{SegmentInfo, Survey, survey};
pub use writer::ArchiveWriter;
