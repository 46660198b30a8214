//! One event between a buffer and the tier below it, and its bytes in a stream.

use crate::changed::granules;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_tier::Changes;

/// What the buffer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It read a page that has an image.
    Read {
        /// The page.
        page: u64,
    },
    /// It gave down a page newer than the tier's version.
    Write {
        /// The page.
        page: u64,
        /// LSN of the page's last change.
        version: u64,
        /// What differs from the version that the tier was given before; `None` if it had none, or
        /// if that is not known.
        changes: Option<Changes>,
    },
    /// It dropped a page that the tier has in this version.
    Clean {
        /// The page.
        page: u64,
    },
    /// The pages given down since the last such event were one call.
    BatchEnd,
    /// A page came into being.
    Allocate {
        /// The page.
        page: u64,
    },
    /// A page is no more.
    Free {
        /// The page.
        page: u64,
    },
    /// All that was given down must now be on the device, without help of the log.
    Checkpoint,
    /// Transactions committed since the last such event.
    Commits {
        /// How many.
        count: u64,
    },
    /// From here on it is measured.
    Measure,
}

impl Event {
    /// The page that it is about, if it is about one.
    #[must_use]
    pub fn page(&self) -> Option<u64> {
        match *self {
            Event::Read { page }
            | Event::Write { page, .. }
            | Event::Clean { page }
            | Event::Allocate { page }
            | Event::Free { page } => Some(page),
            Event::BatchEnd | Event::Checkpoint | Event::Commits { .. } | Event::Measure => None,
        }
    }
}

/// Tags, one byte each. The changes of a write follow as the number of runs, then gap and length of
/// each, in bytes.
mod tag {
    pub const READ: u8 = 1;
    pub const WRITE_WHOLE: u8 = 2;
    pub const WRITE: u8 = 3;
    pub const CLEAN: u8 = 4;
    pub const BATCH_END: u8 = 5;
    pub const ALLOCATE: u8 = 6;
    pub const FREE: u8 = 7;
    pub const CHECKPOINT: u8 = 8;
    pub const COMMITS: u8 = 9;
    pub const MEASURE: u8 = 10;
}

/// What the next event is coded relative to: pages and versions as differences from the last ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    page: u64,
    version: u64,
}

/// A difference of two numbers as one that is small if they are near.
fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    (difference << 1 ^ difference >> 63) as u64
}

fn unzigzag(from: u64, coded: u64) -> u64 {
    from.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
}

impl Context {
    fn put_page(&mut self, out: &mut Vec<u8>, tag: u8, page: u64) {
        out.put_u8(tag);
        out.put_varint(zigzag(self.page, page));
        self.page = page;
    }

    /// Appends the event.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, event: &Event) {
        match *event {
            Event::Read { page } => self.put_page(out, tag::READ, page),
            Event::Clean { page } => self.put_page(out, tag::CLEAN, page),
            Event::Allocate { page } => self.put_page(out, tag::ALLOCATE, page),
            Event::Free { page } => self.put_page(out, tag::FREE, page),
            Event::Write { page, version, changes } => {
                let tag = if changes.is_some() { tag::WRITE } else { tag::WRITE_WHOLE };
                self.put_page(out, tag, page);
                out.put_varint(zigzag(self.version, version));
                self.version = version;
                if let Some(changes) = changes {
                    out.put_u8(changes.runs().count() as u8);
                    let mut end = 0;
                    for run in changes.runs() {
                        out.put_u8((run.start - end) as u8);
                        out.put_u8(run.len() as u8);
                        end = run.end;
                    }
                }
            }
            Event::BatchEnd => out.put_u8(tag::BATCH_END),
            Event::Checkpoint => out.put_u8(tag::CHECKPOINT),
            Event::Measure => out.put_u8(tag::MEASURE),
            Event::Commits { count } => {
                out.put_u8(tag::COMMITS);
                out.put_varint(count);
            }
        }
    }

    fn page(&mut self, bytes: &mut Reader<'_>) -> Result<u64, Malformed> {
        self.page = unzigzag(self.page, bytes.varint()?);
        Ok(self.page)
    }

    /// Reads the next event; `None` if its tag or its runs cannot be.
    pub(crate) fn take(&mut self, bytes: &mut Reader<'_>) -> Result<Option<Event>, Malformed> {
        let tag = bytes.u8()?;
        Ok(Some(match tag {
            tag::READ => Event::Read { page: self.page(bytes)? },
            tag::CLEAN => Event::Clean { page: self.page(bytes)? },
            tag::ALLOCATE => Event::Allocate { page: self.page(bytes)? },
            tag::FREE => Event::Free { page: self.page(bytes)? },
            tag::WRITE | tag::WRITE_WHOLE => {
                let page = self.page(bytes)?;
                self.version = unzigzag(self.version, bytes.varint()?);
                let changes = match tag {
                    tag::WRITE => match take_runs(bytes)? {
                        Some(changes) => Some(changes),
                        None => return Ok(None),
                    },
                    _ => None,
                };
                Event::Write { page, version: self.version, changes }
            }
            tag::BATCH_END => Event::BatchEnd,
            tag::CHECKPOINT => Event::Checkpoint,
            tag::MEASURE => Event::Measure,
            tag::COMMITS => Event::Commits { count: bytes.varint()? },
            _ => return Ok(None),
        }))
    }
}

fn take_runs(bytes: &mut Reader<'_>) -> Result<Option<Changes>, Malformed> {
    let (mut set, mut end) = (Changes::NONE, 0);
    for _ in 0..bytes.u8()? {
        let start = end + usize::from(bytes.u8()?);
        end = start + usize::from(bytes.u8()?);
        if end > Changes::GRANULES {
            return Ok(None);
        }
        set |= granules(start..end);
    }
    Ok(Some(set))
}
