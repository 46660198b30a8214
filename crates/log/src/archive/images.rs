//! Images of pages whose content no log has, in an archive: chunks of their own, between those of
//! log. Each lies before the log with the record that names the image, so an archive with the
//! record has the image. See `docs/format/archive.md`.

use crate::archive::files::{ArchiveFiles, named};
use crate::archive::format::{CHUNK_HEADER, CHUNK_MAX, ChunkHeader, ChunkKind, UNIT};
use crate::archive::segment::{Opened, SegmentReader};
use crate::block::{database_tag, u32_at, u64_at};
use crate::error::{LogError, LogErrorKind};
use firndb_base::sync::Arc;
use firndb_base::{Crc32c, DatabaseId, Lsn, PageId, crc32c};
use firndb_device::{AlignedBuf, Device};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes before the list's entries, and of an entry.
const HEAD: usize = 16;
const ENTRY: usize = 24;
/// Bytes of one read while chunks are searched: the longest list, and its chunk's header.
const WINDOW: usize = 64 << 10;
/// Least bytes of an image: the smallest page.
const IMAGE_BYTES_MIN: usize = 512;
const _: () = assert!(CHUNK_HEADER + HEAD + CHUNK_MAX / (ENTRY + IMAGE_BYTES_MIN) * ENTRY + UNIT <= WINDOW);

/// An image, as the record names it that takes it into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// The page.
    pub page: PageId,
    /// The page's version.
    pub version: Lsn,
    /// CRC32C of page number and version, eight bytes each, and the image.
    pub checksum: u32,
}

impl Image {
    fn is_of(&self, bytes: &[u8]) -> bool {
        let head = Crc32c::new().with(&self.page.0.to_le_bytes()).with(&self.version.0.to_le_bytes());
        head.with(bytes).value() == self.checksum
    }
}

/// What a chunk of images begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub images: Vec<Image>,
    /// Bytes of each.
    pub image_bytes: usize,
}

impl List {
    pub fn head_bytes(count: usize) -> usize {
        HEAD + count * ENTRY
    }

    /// Bytes of a chunk's content with this many images.
    pub fn bytes_with(count: usize, image_bytes: usize) -> usize {
        List::head_bytes(count) + count * image_bytes
    }

    /// Writes the list; the images follow it.
    pub fn encode(&self, out: &mut [u8]) {
        let head = List::head_bytes(self.images.len());
        out[..head].fill(0);
        out[4..8].copy_from_slice(&(self.images.len() as u32).to_le_bytes());
        out[8..12].copy_from_slice(&(self.image_bytes as u32).to_le_bytes());
        for (image, out) in self.images.iter().zip(out[HEAD..].chunks_exact_mut(ENTRY)) {
            out[..8].copy_from_slice(&image.page.0.to_le_bytes());
            out[8..16].copy_from_slice(&image.version.0.to_le_bytes());
            out[16..20].copy_from_slice(&image.checksum.to_le_bytes());
        }
        let crc = crc32c(&out[4..head]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the list at the beginning of a chunk's content; `None` if it is not intact.
    pub fn decode(content: &[u8]) -> Option<List> {
        if content.len() < HEAD {
            return None;
        }
        let (count, image_bytes) = (u32_at(content, 4) as usize, u32_at(content, 8) as usize);
        let sound = (IMAGE_BYTES_MIN..=CHUNK_MAX).contains(&image_bytes)
            && (1..=CHUNK_MAX / (ENTRY + IMAGE_BYTES_MIN)).contains(&count);
        let head = content.get(..List::head_bytes(count)).filter(|_| sound)?;
        if crc32c(&head[4..]) != u32_at(head, 0) {
            return None;
        }
        let image = |entry: &[u8]| Image {
            page: PageId(u64_at(entry, 0)),
            version: Lsn(u64_at(entry, 8)),
            checksum: u32_at(entry, 16),
        };
        Some(List { images: head[HEAD..].chunks_exact(ENTRY).map(image).collect(), image_bytes })
    }
}

/// Where an image is.
#[derive(Clone, Copy, Debug)]
struct At {
    /// Index of the directory.
    files: usize,
    sequence: u64,
    offset: u64,
}

/// The images in one or several archives. Memory: some 60 bytes an image that is wanted.
pub struct Images {
    files: Vec<ArchiveFiles>,
    image_bytes: usize,
    found: BTreeMap<Image, At>,
    /// The segment read last.
    open: Option<(usize, u64, Arc<dyn Device>)>,
    buf: AlignedBuf,
}

impl Images {
    /// Finds, by the lists in the archives of `database` in `directories`, the images that are
    /// `wanted`, of `image_bytes` bytes each.
    ///
    /// Errors: `Failed`.
    pub fn find(
        directories: &[&Path],
        database: DatabaseId,
        image_bytes: usize,
        wanted: &dyn Fn(&Image) -> bool,
    ) -> Result<Images, LogError> {
        let mut images = Images {
            files: directories.iter().map(|path| ArchiveFiles::new(path)).collect(),
            image_bytes,
            found: BTreeMap::new(),
            open: None,
            buf: AlignedBuf::zeroed(WINDOW.max((image_bytes + 2 * UNIT).next_multiple_of(UNIT))),
        };
        for files in 0..images.files.len() {
            for sequence in images.files[files].list()? {
                let opened = SegmentReader::open(&images.files[files], sequence)?;
                if matches!(&opened, Opened::Segment(reader) if reader.header.database == database) {
                    images.find_in(files, sequence, database_tag(database), wanted)?;
                }
            }
        }
        Ok(images)
    }

    fn find_in(
        &mut self,
        files: usize,
        sequence: u64,
        tag: u32,
        wanted: &dyn Fn(&Image) -> bool,
    ) -> Result<(), LogError> {
        let device = self.files[files].open(sequence)?;
        let end = device.len() / UNIT as u64 * UNIT as u64;
        let (mut at, mut window) = (UNIT as u64, 0..0);
        // The last chunk of log: where to search if no chunk follows where it seems to end, and the
        // LSN at which that one must begin. Its payload is not read, so its length may be wrong.
        let mut before: Option<(u64, Lsn)> = None;
        loop {
            if at >= end {
                match before.take() {
                    Some((behind, _)) => at = behind,
                    None => return Ok(()),
                }
                continue;
            }
            if at < window.start || at + UNIT as u64 > window.end {
                window = at..(at + WINDOW as u64).min(end);
                device.read(at, &mut self.buf[..(window.end - at) as usize]).map_err(named)?;
            }
            let from = (at - window.start) as usize;
            let chunk = ChunkHeader::decode(tag, sequence, &self.buf[from..from + UNIT]);
            let follows = |chunk: &ChunkHeader| before.is_none_or(|(_, first)| chunk.first == first);
            let Some(chunk) = chunk.filter(follows) else {
                at = before.take().map_or(at + UNIT as u64, |(behind, _)| behind);
                continue;
            };
            let behind = at + UNIT as u64;
            match chunk.kind {
                ChunkKind::Seal if chunk.verify(&self.buf[from..]) => return Ok(()),
                ChunkKind::Seal => (before, at) = (None, behind),
                ChunkKind::Log => (before, at) = (Some((behind, chunk.end())), at + chunk.padded() as u64),
                // From the list's begin on, all of it.
                ChunkKind::Images if window.start < at && window.end < end => window = 0..0,
                ChunkKind::Images => {
                    let content = &self.buf[from + CHUNK_HEADER..(window.end - window.start) as usize];
                    let list = List::decode(content).filter(|list| list.image_bytes == self.image_bytes);
                    before = None;
                    let Some(List { images, .. }) = list else {
                        at = behind;
                        continue;
                    };
                    let first = at + (CHUNK_HEADER + List::head_bytes(images.len())) as u64;
                    for (index, image) in images.iter().enumerate().filter(|(_, image)| wanted(image)) {
                        let offset = first + (index * self.image_bytes) as u64;
                        self.found.insert(*image, At { files, sequence, offset });
                    }
                    // The list has a checksum of its own; the header's length may be wrong.
                    let bytes = CHUNK_HEADER + List::bytes_with(images.len(), self.image_bytes);
                    at += bytes.next_multiple_of(UNIT) as u64;
                }
            }
        }
    }

    /// Whether there is this image.
    #[must_use]
    pub fn has(&self, image: &Image) -> bool {
        self.found.contains_key(image)
    }

    /// Reads an image that is there.
    ///
    /// Errors: `Damaged`, with its page and its file; `Failed`.
    pub fn read(&mut self, image: &Image, out: &mut [u8]) -> Result<(), LogError> {
        assert_eq!(out.len(), self.image_bytes, "an image is read whole");
        let At { files, sequence, offset } = self.found[image];
        let device = match &self.open {
            Some((same, number, device)) if (*same, *number) == (files, sequence) => device.clone(),
            _ => self.files[files].open(sequence)?,
        };
        self.open = Some((files, sequence, device.clone()));
        let damaged = || {
            LogErrorKind::Damaged.error(format!(
                "{}: the image of page {} (version {}) at byte {offset} is damaged: restore to a commit before \
                 that version, or begin with a later backup",
                self.files[files].path(sequence).display(),
                image.page,
                image.version
            ))
        };
        let start = offset / UNIT as u64 * UNIT as u64;
        let skip = (offset - start) as usize;
        let len = (skip + out.len()).next_multiple_of(UNIT);
        if start + len as u64 > device.len() {
            return Err(damaged());
        }
        device.read(start, &mut self.buf[..len]).map_err(named)?;
        out.copy_from_slice(&self.buf[skip..skip + out.len()]);
        if image.is_of(out) { Ok(()) } else { Err(damaged()) }
    }
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Images").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{ArchiveWriter, EpochMark, Piece, SEGMENT_BYTES_MIN, survey};
    use firndb_base::Epoch;
    use firndb_base::rng::Rng;

    const DATABASE: DatabaseId = DatabaseId([7; 16]);

    fn image(page: u64, version: u64, bytes: &[u8]) -> Image {
        let whole = [&page.to_le_bytes(), &version.to_le_bytes(), bytes].concat();
        Image { page: PageId(page), version: Lsn(version), checksum: crc32c(&whole) }
    }

    #[test]
    fn the_list_has_golden_bytes_and_notices_every_flipped_bit() {
        let one = Image { page: PageId(0x0102), version: Lsn(0x0304), checksum: 0xAABB_CCDD };
        let list = List { images: vec![one, Image { page: PageId(9), ..one }], image_bytes: 512 };
        let mut bytes = vec![0xEE; List::bytes_with(2, 512)];
        list.encode(&mut bytes);
        let golden = [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 0xDD, 0xCC, 0xBB, 0xAA, 0, 0, 0, 0];
        assert_eq!(bytes[4..16], [2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..40], golden);
        assert_eq!(List::decode(&bytes), Some(list.clone()));
        for bit in 0..8 * List::head_bytes(2) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(List::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut rng = Rng::new(1);
        for _ in 0..10_000 {
            let random: Vec<u8> = (0..rng.below(100)).map(|_| rng.next_u64() as u8).collect();
            let _ = List::decode(&random);
        }
    }

    /// Images of several sizes beside log, in segments that one image fills, and in larger ones.
    #[test]
    fn images_are_found_again_whatever_their_size_and_log_is_read_past_them() {
        for (image_bytes, segment) in [(1024, SEGMENT_BYTES_MIN), (65536, SEGMENT_BYTES_MIN), (8192, 1 << 20)]
        {
            let dir = tempfile::tempdir().expect("a directory");
            let mut writer =
                ArchiveWriter::open(ArchiveFiles::new(dir.path()), DATABASE, segment).expect("opened");
            let mark = EpochMark { epoch: Epoch(1), start: Lsn(4096), previous_end: Lsn(4096) };
            let (mut lsn, mut written) = (4096, Vec::new());
            for round in 0..20u64 {
                let bytes: Vec<u8> = (0..image_bytes * 3).map(|at| (at as u64 * 7 + round) as u8).collect();
                let images: Vec<Image> = (0..3)
                    .zip(bytes.chunks(image_bytes))
                    .map(|(page, bytes)| image(100 * round + page, lsn + page, bytes))
                    .collect();
                let piece = Piece { mark, first: Lsn(lsn), resume: Lsn(lsn + 100) };
                let mut done = 0;
                while done < 3 {
                    let rest = &bytes[done * image_bytes..];
                    done += writer.append_images(piece, &images[done..], rest, 1).expect("appended");
                }
                writer.append(piece, &[round as u8; 100], 1).expect("appended");
                written.extend(images.into_iter().zip(bytes.chunks(image_bytes).map(<[u8]>::to_vec)));
                lsn += 100;
            }
            writer.seal().expect("sealed");
            let found = survey(dir.path(), None, &mut |_, _| {}).expect("surveyed");
            assert_eq!((found.damage, found.stretches), (Vec::new(), vec![(Lsn(4096), Lsn(lsn))]));
            assert_eq!(found.segments.iter().map(|segment| segment.images).sum::<u64>(), 60);
            let mut images = Images::find(&[dir.path()], DATABASE, image_bytes, &|_| true).expect("found");
            let mut out = vec![0; image_bytes];
            for (image, bytes) in &written {
                images.read(image, &mut out).expect("it is there");
                assert_eq!(out, *bytes);
            }
            assert!(!images.has(&Image { version: Lsn(1), ..written[0].0 }));
            // One byte of one image.
            let at = images.found[&written[4].0];
            let path = images.files[0].path(at.sequence);
            let mut file = std::fs::read(&path).expect("read");
            file[at.offset as usize + 5] ^= 1;
            std::fs::write(&path, file).expect("written");
            let mut images = Images::find(&[dir.path()], DATABASE, image_bytes, &|_| true).expect("found");
            let error = images.read(&written[4].0, &mut out).expect_err("it is damaged");
            assert_eq!(error.kind, LogErrorKind::Damaged);
            assert!(error.message.contains("page 101") && error.message.contains("log-00"), "{error}");
            let found = survey(dir.path(), None, &mut |_, _| {}).expect("surveyed");
            assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
            assert_eq!(found.stretches, [(Lsn(4096), Lsn(lsn))], "the log is whole");
        }
    }

    /// Cause: any damaged chunk was taken for log. Effect: the archiver went back to where it had
    /// images, to log that was not kept any more.
    #[test]
    fn a_writer_goes_on_behind_damaged_images() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = ArchiveFiles::new(dir.path());
        let mut writer = ArchiveWriter::open(files.clone(), DATABASE, SEGMENT_BYTES_MIN).expect("opened");
        let mark = EpochMark { epoch: Epoch(1), start: Lsn(4096), previous_end: Lsn(4096) };
        let bytes = vec![5; 1024];
        for lsn in [4096, 4196, 4296] {
            let piece = Piece { mark, first: Lsn(lsn), resume: Lsn(lsn + 100) };
            writer.append_images(piece, &[image(1, lsn, &bytes)], &bytes, 1).expect("appended");
            writer.append(piece, &[1; 100], 1).expect("appended");
        }
        drop(writer);
        let path = files.path(1);
        let mut file = std::fs::read(&path).expect("read");
        file[3 * UNIT + 200] ^= 1;
        std::fs::write(&path, file).expect("written");
        let writer = ArchiveWriter::open(files, DATABASE, SEGMENT_BYTES_MIN).expect("opened");
        assert_eq!(writer.end(), Some(Lsn(4396)));
    }

    /// Cause: the length in a chunk's header was taken as it stood, without its checksum. Effect:
    /// one flipped bit of it hid the images of the next chunks.
    #[test]
    fn a_wrong_length_hides_no_images() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = ArchiveFiles::new(dir.path());
        let mut writer = ArchiveWriter::open(files.clone(), DATABASE, 1 << 20).expect("opened");
        let mark = EpochMark { epoch: Epoch(1), start: Lsn(4096), previous_end: Lsn(4096) };
        let (bytes, mut written) = (vec![5; 1024], Vec::new());
        for lsn in (4096..5096).step_by(100) {
            let piece = Piece { mark, first: Lsn(lsn), resume: Lsn(lsn + 100) };
            written.push(image(1, lsn, &bytes));
            writer.append_images(piece, &written[written.len() - 1..], &bytes, 1).expect("appended");
            writer.append(piece, &[1; 100], 1).expect("appended");
        }
        writer.seal().expect("sealed");
        let path = files.path(1);
        let whole = std::fs::read(&path).expect("read");
        let tag = database_tag(DATABASE);
        let chunks = whole.chunks_exact(UNIT).map(|unit| ChunkHeader::decode(tag, 1, unit));
        let chunks: Vec<usize> =
            chunks.enumerate().filter_map(|(unit, chunk)| chunk.map(|_| unit * UNIT)).collect();
        assert_eq!(chunks.len(), 21, "images, log and the seal");
        for at in chunks {
            // Of its kind and its length.
            for bit in (8 * 6..8 * 7).chain(8 * 12..8 * 16) {
                let mut file = whole.clone();
                file[at + bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, file).expect("written");
                let images = Images::find(&[dir.path()], DATABASE, 1024, &|_| true).expect("found");
                let missing = written.iter().filter(|image| !images.has(image)).count();
                // Those of the chunk itself, which is none by its header.
                assert!(missing <= 1, "byte {at}, bit {bit}: {missing} are missing");
            }
        }
    }
}
