//! Reading one segment, chunk by chunk.
//!
//! A chunk that is not whole is skipped, unit by unit: if a whole one lies behind it, something that had been
//! acknowledged is damaged; else it is where a crash, or the writer, stopped.

use super::files::{ArchiveFiles, named};
use super::format::{CHUNK_BYTES_MAX, CHUNK_HEADER, ChunkHeader, SegmentHeader, UNIT};
use crate::block::database_tag;
use crate::{LogError, LogErrorKind};
use firn_base::sync::Arc;
use firn_device::{AlignedBuf, Device};

pub(crate) struct SegmentReader {
    device: Arc<dyn Device>,
    pub header: SegmentHeader,
    tag: u32,
    /// Where the next chunk may begin.
    at: u64,
    buf: AlignedBuf,
    chunk: Option<ChunkHeader>,
    /// The seal was met: nothing follows.
    pub sealed: bool,
    /// Offsets at which acknowledged chunks are damaged.
    pub damaged: Vec<u64>,
}

/// What a segment's file begins with.
pub(crate) enum Opened {
    Segment(Box<SegmentReader>),
    /// No header: its creation was interrupted, or it is damaged.
    Headless,
}

impl SegmentReader {
    pub fn open(files: &ArchiveFiles, sequence: u64) -> Result<Opened, LogError> {
        let device = files.open(sequence)?;
        let mut buf = AlignedBuf::zeroed(CHUNK_BYTES_MAX);
        if device.len() < UNIT as u64 {
            return Ok(Opened::Headless);
        }
        device.read(0, &mut buf[..UNIT]).map_err(named)?;
        if let Some(version) = SegmentHeader::other_version(&buf) {
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                format!(
                    "{} has format version {version}, which this program does not know: use a newer program",
                    device.info().name
                ),
            ));
        }
        // A file under another segment's name is not believed.
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
            chunk: None,
            sealed: false,
            damaged: Vec::new(),
        })))
    }

    /// The chunk read last.
    pub fn chunk(&self) -> Option<ChunkHeader> {
        self.chunk
    }

    /// Its bytes of stream.
    pub fn payload(&self) -> &[u8] {
        let len = self.chunk.map_or(0, |chunk| chunk.len);
        &self.buf[CHUNK_HEADER..CHUNK_HEADER + len]
    }

    /// Reads the next whole chunk; false if there is none.
    pub fn advance(&mut self) -> Result<bool, LogError> {
        let mut bad = None;
        self.chunk = None;
        while !self.sealed {
            if self.at + UNIT as u64 > self.device.len() {
                return Ok(false);
            }
            match self.chunk_here()? {
                Some(chunk) => {
                    self.damaged.extend(bad);
                    self.at += chunk.padded() as u64;
                    if !chunk.seal {
                        self.chunk = Some(chunk);
                        return Ok(true);
                    }
                    self.sealed = true;
                }
                None => {
                    bad.get_or_insert(self.at);
                    self.at += UNIT as u64;
                }
            }
        }
        Ok(false)
    }

    fn chunk_here(&mut self) -> Result<Option<ChunkHeader>, LogError> {
        self.device.read(self.at, &mut self.buf[..UNIT]).map_err(named)?;
        let Some(chunk) = ChunkHeader::decode(self.tag, self.header.sequence, &self.buf) else {
            return Ok(None);
        };
        if self.at + chunk.padded() as u64 > self.device.len() {
            return Ok(None);
        }
        if chunk.padded() > UNIT {
            let rest = &mut self.buf[UNIT..chunk.padded()];
            self.device.read(self.at + UNIT as u64, rest).map_err(named)?;
        }
        Ok(chunk.verify(&self.buf).then_some(chunk))
    }
}
