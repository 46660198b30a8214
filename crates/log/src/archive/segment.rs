//! Reading one segment, chunk by chunk.
//!
//! A chunk that is not intact is skipped, unit by unit. If an intact one follows it, acknowledged
//! log is damaged; else it is where a crash, or the writer, stopped. The file may be written
//! meanwhile, so a place that looks damaged is read once more.
//!
//! Memory: a window of [`WINDOW`] bytes, which is one read.

use crate::archive::files::{ArchiveFiles, named};
use crate::archive::format::{CHUNK_BYTES_MAX, CHUNK_HEADER, ChunkHeader, ChunkKind, SegmentHeader, UNIT};
use crate::archive::images::{Image, List};
use crate::block::database_tag;
use crate::error::{LogError, LogErrorKind};
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Device};
use std::ops::Range;

/// Bytes of one read: a chunk of the greatest length, or several shorter ones.
const WINDOW: usize = CHUNK_BYTES_MAX;

pub(crate) struct SegmentReader {
    device: Arc<dyn Device>,
    pub header: SegmentHeader,
    tag: u32,
    /// Offset at which the next chunk may begin.
    at: u64,
    buf: AlignedBuf,
    /// The bytes of the file that are in the buffer.
    window: Range<u64>,
    chunk: Option<ChunkHeader>,
    /// Offset in the buffer at which the chunk begins.
    chunk_at: usize,
    /// The seal was read: nothing follows.
    pub sealed: bool,
    /// Offsets at which acknowledged chunks are damaged.
    pub damaged: Vec<u64>,
    /// Images passed over, by their lists.
    pub images: Vec<Image>,
}

/// Result of opening a segment's file.
pub(crate) enum Opened {
    Segment(Box<SegmentReader>),
    /// No header: its creation was interrupted, or it is damaged.
    Headless,
}

impl SegmentReader {
    pub fn open(files: &ArchiveFiles, sequence: u64) -> Result<Opened, LogError> {
        let device = files.open(sequence)?;
        let mut buf = AlignedBuf::zeroed(WINDOW);
        if device.len() < UNIT as u64 {
            return Ok(Opened::Headless);
        }
        device.read(0, &mut buf[..UNIT]).map_err(named)?;
        if let Some(version) = SegmentHeader::other_version(&buf) {
            return Err(LogErrorKind::BadArgument.error(format!(
                "{} has format version {version}, which this program does not know: use a newer program",
                device.info().name
            )));
        }
        // A file under another segment's name is rejected.
        let Some(header) = SegmentHeader::decode(&buf).filter(|header| header.sequence == sequence) else {
            return Ok(Opened::Headless);
        };
        let tag = database_tag(header.database);
        Ok(Opened::Segment(Box::new(SegmentReader {
            device,
            header,
            tag,
            at: UNIT as u64,
            buf,
            window: 0..0,
            chunk: None,
            chunk_at: 0,
            sealed: false,
            damaged: Vec::new(),
            images: Vec::new(),
        })))
    }

    /// The last chunk of log read.
    pub fn chunk(&self) -> Option<ChunkHeader> {
        self.chunk
    }

    /// Its bytes of stream.
    pub fn payload(&self) -> &[u8] {
        let len = self.chunk.map_or(0, |chunk| chunk.len);
        let begin = self.chunk_at + CHUNK_HEADER;
        &self.buf[begin..begin + len]
    }

    /// Skips chunks that end at or before `lsn`, by their headers alone.
    pub fn skip_before(&mut self, lsn: Lsn) -> Result<(), LogError> {
        let begun = self.at;
        self.chunk = None;
        while !self.sealed && self.at + UNIT as u64 <= self.device.len() {
            if !self.window.contains(&self.at) {
                self.load(UNIT)?;
            }
            let from = (self.at - self.window.start) as usize;
            match ChunkHeader::decode(self.tag, self.header.sequence, &self.buf[from..from + UNIT]) {
                Some(chunk) if chunk.kind != ChunkKind::Seal && chunk.end() <= lsn => {
                    self.at += chunk.padded() as u64;
                }
                Some(_) => return Ok(()),
                None => {
                    // Damage, or the end: `advance` reads from the start again, and accepts intact
                    // chunks only.
                    self.at = begun;
                    return Ok(());
                }
            }
        }
        self.at = begun;
        Ok(())
    }

    /// Reads the next intact chunk of log. Returns false if there is none.
    pub fn advance(&mut self) -> Result<bool, LogError> {
        let mut bad = None;
        let mut reread = false;
        self.chunk = None;
        while !self.sealed {
            if self.at + UNIT as u64 > self.device.len() {
                return Ok(false);
            }
            match self.chunk_here()? {
                Some(_) if bad.is_some() && !reread => {
                    // It may have been written since it was read.
                    (self.at, self.window) = (bad.take().unwrap_or(self.at), 0..0);
                    reread = true;
                }
                Some(chunk) => {
                    self.damaged.extend(bad.take());
                    self.at += chunk.padded() as u64;
                    match chunk.kind {
                        ChunkKind::Log => {
                            self.chunk = Some(chunk);
                            return Ok(true);
                        }
                        ChunkKind::Seal => self.sealed = true,
                        ChunkKind::Images => {
                            let from = self.chunk_at + CHUNK_HEADER;
                            let list = List::decode(&self.buf[from..from + chunk.len]);
                            self.images.extend(list.into_iter().flat_map(|list| list.images));
                            reread = false;
                        }
                    }
                }
                None => {
                    bad.get_or_insert(self.at);
                    self.at += UNIT as u64;
                }
            }
        }
        Ok(false)
    }

    /// Reads up to `len` bytes from the position on.
    fn load(&mut self, len: usize) -> Result<(), LogError> {
        let left = (self.device.len() - self.at) / UNIT as u64 * UNIT as u64;
        let len = (len as u64).min(left);
        self.window = 0..0;
        self.device.read(self.at, &mut self.buf[..len as usize]).map_err(named)?;
        self.window = self.at..self.at + len;
        Ok(())
    }

    fn chunk_here(&mut self) -> Result<Option<ChunkHeader>, LogError> {
        if !self.window.contains(&self.at) {
            self.load(WINDOW)?;
        }
        let mut from = (self.at - self.window.start) as usize;
        let Some(chunk) = ChunkHeader::decode(self.tag, self.header.sequence, &self.buf[from..from + UNIT])
        else {
            return Ok(None);
        };
        let end = self.at + chunk.padded() as u64;
        if end > self.device.len() {
            return Ok(None);
        }
        if end > self.window.end {
            self.load(WINDOW)?;
            from = 0;
        }
        self.chunk_at = from;
        Ok(chunk.verify(&self.buf[from..from + chunk.padded()]).then_some(chunk))
    }
}
