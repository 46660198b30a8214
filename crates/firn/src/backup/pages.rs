//! The pages of a backup: batches of images, each with its page's number, version and checksum.
//!
//! A batch is a header of one unit and its images, padded to units. Batches are numbered from 0, so
//! that a missing or misplaced one is noticed; how many there are is in the manifest.

use crate::error::Error;
use firndb_base::codec::{Reader, Writer};
use firndb_base::sync::Arc;
use firndb_base::{Crc32c, Lsn, PageId, crc32c};
use firndb_device::{AlignedBuf, Device, Durability, FileDevice, FileOptions, Fill};
use std::path::{Path, PathBuf};

const UNIT: usize = 4096;
const MAGIC: &[u8; 8] = b"FIRNPAGE";
/// Pages of one batch.
pub(crate) const BATCH_PAGES: usize = 64;
/// Bytes of an entry of the header: page, version, checksum.
const ENTRY: usize = 20;
const HEADER: usize = 24;
const _: () = assert!(HEADER + BATCH_PAGES * ENTRY <= UNIT);
/// The file grows in steps of this many bytes.
const GROW_BYTES: u64 = 16 << 20;

/// One page of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageEntry {
    pub page: PageId,
    pub version: Lsn,
}

fn checksum(entry: PageEntry, image: &[u8]) -> u32 {
    let head = Crc32c::new().with(&entry.page.0.to_le_bytes()).with(&entry.version.0.to_le_bytes());
    head.with(image).value()
}

fn batch_bytes(pages: usize, page_size: usize) -> usize {
    UNIT + (pages * page_size).next_multiple_of(UNIT)
}

/// Writes the pages' file.
pub(crate) struct PagesWriter {
    device: Arc<dyn Device>,
    page_size: usize,
    at: u64,
    pub pages: u64,
    pub batches: u64,
    buf: AlignedBuf,
}

impl PagesWriter {
    pub fn new(device: Arc<dyn Device>, page_size: usize) -> PagesWriter {
        let buf = AlignedBuf::zeroed(batch_bytes(BATCH_PAGES, page_size));
        PagesWriter { device, page_size, at: 0, pages: 0, batches: 0, buf }
    }

    /// Appends a batch; durable after [`PagesWriter::finish`].
    pub fn append(&mut self, pages: &[(PageEntry, &[u8])]) -> Result<(), Error> {
        assert!(!pages.is_empty() && pages.len() <= BATCH_PAGES);
        let len = batch_bytes(pages.len(), self.page_size);
        let mut head = Vec::with_capacity(UNIT);
        head.put(MAGIC);
        head.put_u32(0);
        head.put_u32(pages.len() as u32);
        head.put_u64(self.batches);
        for (entry, image) in pages {
            assert_eq!(image.len(), self.page_size);
            head.put_u64(entry.page.0);
            head.put_u64(entry.version.0);
            head.put_u32(checksum(*entry, image));
        }
        let crc = crc32c(&head[12..]);
        head[8..12].copy_from_slice(&crc.to_le_bytes());
        self.buf[..len].fill(0);
        self.buf[..head.len()].copy_from_slice(&head);
        for ((_, image), out) in pages.iter().zip(self.buf[UNIT..].chunks_mut(self.page_size)) {
            out.copy_from_slice(image);
        }
        let end = self.at + len as u64;
        if end > self.device.len() {
            self.device.grow(end.next_multiple_of(GROW_BYTES), Fill::Reserved)?;
        }
        self.device.write(self.at, &self.buf[..len], Durability::Later)?;
        self.at = end;
        self.pages += pages.len() as u64;
        self.batches += 1;
        Ok(())
    }

    /// Cuts the file to its length and makes it durable.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.device.shrink(self.at)?;
        Ok(self.device.sync()?)
    }
}

/// Reads the pages' file, batch by batch, and checks every byte.
pub(crate) struct PagesReader {
    path: PathBuf,
    device: FileDevice,
    page_size: usize,
    at: u64,
    batches: u64,
    entries: Vec<PageEntry>,
    buf: AlignedBuf,
}

impl PagesReader {
    pub fn open(path: &Path, page_size: usize) -> Result<PagesReader, Error> {
        let options = FileOptions { read_only: true, lock: false, direct: false, io_uring: false };
        Ok(PagesReader {
            path: path.to_path_buf(),
            device: FileDevice::open(path, &options)?,
            page_size,
            at: 0,
            batches: 0,
            entries: Vec::with_capacity(BATCH_PAGES),
            buf: AlignedBuf::zeroed(batch_bytes(BATCH_PAGES, page_size)),
        })
    }

    fn damaged(&self, what: &str) -> Error {
        Error::damaged(format!("{}: batch {}: {what}; use another backup", self.path.display(), self.batches))
    }

    /// Reads the next batch.
    pub fn next(&mut self) -> Result<(), Error> {
        if self.at + UNIT as u64 > self.device.len() {
            return Err(self.damaged("the file is cut short"));
        }
        self.device.read(self.at, &mut self.buf[..UNIT])?;
        let count = self.decode_head().ok_or_else(|| self.damaged("its header is damaged"))?;
        let len = batch_bytes(count, self.page_size);
        if self.at + len as u64 > self.device.len() {
            return Err(self.damaged("the file is cut short"));
        }
        let sums: Vec<u32> = self.buf[HEADER..HEADER + count * ENTRY]
            .chunks(ENTRY)
            .map(|entry| u32::from_le_bytes(entry[16..].try_into().expect("four bytes")))
            .collect();
        self.device.read(self.at + UNIT as u64, &mut self.buf[UNIT..len])?;
        for (index, sum) in sums.into_iter().enumerate() {
            let (entry, image) = self.page(index);
            if checksum(entry, image) != sum {
                return Err(self.damaged(&format!("page {} is damaged", entry.page)));
            }
        }
        self.at += len as u64;
        self.batches += 1;
        Ok(())
    }

    /// Checks the header and takes its entries; returns their number.
    fn decode_head(&mut self) -> Option<usize> {
        let mut reader = Reader::new(&self.buf[..UNIT]);
        if reader.array::<8>().ok()? != *MAGIC {
            return None;
        }
        let crc = reader.u32().ok()?;
        let count = reader.u32().ok()? as usize;
        if !(1..=BATCH_PAGES).contains(&count)
            || crc != crc32c(&self.buf[12..HEADER + count * ENTRY])
            || reader.u64().ok()? != self.batches
        {
            return None;
        }
        self.entries.clear();
        for _ in 0..count {
            let (page, version) = (PageId(reader.u64().ok()?), Lsn(reader.u64().ok()?));
            reader.u32().ok()?;
            self.entries.push(PageEntry { page, version });
        }
        Some(count)
    }

    /// Pages of the batch read last.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// A page of the batch read last.
    pub fn page(&self, index: usize) -> (PageEntry, &[u8]) {
        let at = UNIT + index * self.page_size;
        (self.entries[index], &self.buf[at..at + self.page_size])
    }
}
