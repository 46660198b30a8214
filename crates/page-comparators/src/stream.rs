//! A recorded stream of events, in a file.
//!
//! ```text
//! head   "FIRNPGST" | format u16 = 1 | page size u32 | pages u64 | frames u64
//!        | note: length u16, UTF-8
//!        | CRC-32C of all of the head u32
//! block  length of the events u32 (1 to 1 MiB) | CRC-32C of the events u32 | events
//! end    length 0 u32 | number of events u64
//! ```
//!
//! Numbers are little-endian. A stream without its end was cut off, and is refused.

use crate::event::{Context, Event};
use firndb_base::checksum::crc32c;
use firndb_base::codec::{Reader, Writer};
use std::io::{Read, Write};

const MAGIC: &[u8; 8] = b"FIRNPGST";
const FORMAT: u16 = 1;
/// Bytes of events at which a block is written.
const BLOCK: usize = 64 << 10;
/// Most bytes of a block: a longer one is damage.
const BLOCK_MAX: usize = 1 << 20;
/// Most bytes of the note.
const NOTE_MAX: usize = 4096;
/// Page numbers are below: methods keep tables by number.
const PAGES_MAX: u64 = 1 << 32;

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of a page.
    pub page_size: u32,
    /// Pages below this number may have had an image before the first event.
    pub pages: u64,
    /// Pages that the buffer had space for.
    pub frames: u64,
    /// Workload, seed and options, for people.
    pub note: String,
}

/// Why a stream cannot be read or written.
#[derive(Debug)]
pub enum StreamError {
    /// The file.
    Io(std::io::Error),
    /// What is in it.
    Damaged(String),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Io(error) => write!(f, "{error}"),
            StreamError::Damaged(what) => write!(f, "not a whole recorded stream: {what}; record it again"),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<std::io::Error> for StreamError {
    fn from(error: std::io::Error) -> StreamError {
        StreamError::Io(error)
    }
}

fn damaged(what: impl Into<String>) -> StreamError {
    StreamError::Damaged(what.into())
}

/// Writes a stream.
pub struct StreamWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    context: Context,
    events: u64,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the head.
    ///
    /// Panics if the note is longer than 4096 bytes.
    pub fn new(mut out: W, head: &Head) -> Result<StreamWriter<W>, StreamError> {
        let note = &head.note;
        assert!(note.len() <= NOTE_MAX, "a note of {} bytes", note.len());
        let mut bytes = MAGIC.to_vec();
        bytes.put_u16(FORMAT);
        bytes.put_u32(head.page_size);
        bytes.put_u64(head.pages);
        bytes.put_u64(head.frames);
        bytes.put_u16(note.len() as u16);
        bytes.extend_from_slice(note.as_bytes());
        let sum = crc32c(&bytes);
        bytes.put_u32(sum);
        out.write_all(&bytes)?;
        Ok(StreamWriter { out, block: Vec::new(), context: Context::default(), events: 0 })
    }

    /// Appends an event.
    pub fn push(&mut self, event: &Event) -> Result<(), StreamError> {
        self.context.put(&mut self.block, event);
        self.events += 1;
        if self.block.len() >= BLOCK { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> Result<(), StreamError> {
        if !self.block.is_empty() {
            self.out.write_all(&(self.block.len() as u32).to_le_bytes())?;
            self.out.write_all(&crc32c(&self.block).to_le_bytes())?;
            self.out.write_all(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    /// Writes the end; returns what it was written to.
    pub fn finish(mut self) -> Result<W, StreamError> {
        self.write_block()?;
        self.out.write_all(&0u32.to_le_bytes())?;
        self.out.write_all(&self.events.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a stream, one event at a time.
pub struct StreamReader<R: Read> {
    input: R,
    head: Head,
    block: Vec<u8>,
    at: usize,
    context: Context,
    events: u64,
    ended: bool,
}

fn array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], StreamError> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(|_| damaged("it was cut off"))?;
    Ok(bytes)
}

impl<R: Read> StreamReader<R> {
    /// Reads the head.
    pub fn new(mut input: R) -> Result<StreamReader<R>, StreamError> {
        const FIXED: usize = 8 + 2 + 4 + 8 + 8 + 2;
        let mut bytes = array::<FIXED>(&mut input)?.to_vec();
        let mut fields = Reader::new(&bytes);
        let short = |_| damaged("its head is short");
        let magic = fields.array::<8>().map_err(short)?;
        let format = fields.u16().map_err(short)?;
        let page_size = fields.u32().map_err(short)?;
        let (pages, frames) = (fields.u64().map_err(short)?, fields.u64().map_err(short)?);
        let note_len = usize::from(fields.u16().map_err(short)?);
        if &magic != MAGIC || format != FORMAT || note_len > NOTE_MAX {
            return Err(damaged(format!("its head is not that of format {FORMAT}")));
        }
        let mut note = vec![0; note_len];
        input.read_exact(&mut note).map_err(|_| damaged("it was cut off"))?;
        bytes.extend_from_slice(&note);
        if crc32c(&bytes) != u32::from_le_bytes(array(&mut input)?) {
            return Err(damaged("the checksum of its head is wrong"));
        }
        if page_size < 512 || !page_size.is_power_of_two() || pages > PAGES_MAX {
            return Err(damaged(format!("{pages} pages of {page_size} bytes")));
        }
        let note = String::from_utf8(note).map_err(|_| damaged("its note is not UTF-8"))?;
        let head = Head { page_size, pages, frames, note };
        let context = Context::default();
        Ok(StreamReader { input, head, block: Vec::new(), at: 0, context, events: 0, ended: false })
    }

    /// What was recorded.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next event; `None` at the end.
    pub fn next_event(&mut self) -> Result<Option<Event>, StreamError> {
        if self.at == self.block.len() && !self.read_block()? {
            return Ok(None);
        }
        let mut bytes = Reader::new(&self.block[self.at..]);
        let event = self.context.take(&mut bytes).ok().flatten();
        let event = event.filter(|event| event.page().is_none_or(|page| page < PAGES_MAX));
        self.at = self.block.len() - bytes.rest().len();
        self.events += 1;
        event.map(Some).ok_or_else(|| damaged(format!("event {} cannot be read", self.events)))
    }

    /// Reads the next block; returns false at the end.
    fn read_block(&mut self) -> Result<bool, StreamError> {
        if self.ended {
            return Ok(false);
        }
        let len = u32::from_le_bytes(array(&mut self.input)?) as usize;
        if len == 0 {
            let events = u64::from_le_bytes(array(&mut self.input)?);
            if events != self.events {
                return Err(damaged(format!("it has {} events of {events}", self.events)));
            }
            self.ended = true;
            return Ok(false);
        }
        if len > BLOCK_MAX {
            return Err(damaged(format!("a block of {len} bytes")));
        }
        let sum = u32::from_le_bytes(array(&mut self.input)?);
        self.block.resize(len, 0);
        self.input.read_exact(&mut self.block).map_err(|_| damaged("it was cut off"))?;
        if crc32c(&self.block) != sum {
            return Err(damaged(format!("the checksum of the block after event {} is wrong", self.events)));
        }
        self.at = 0;
        Ok(true)
    }
}
