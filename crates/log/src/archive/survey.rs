//! The contents of an archive, and whether they are complete.

use crate::archive::files::ArchiveFiles;
use crate::archive::format::SegmentHeader;
use crate::archive::images::Image;
use crate::archive::records::ArchiveRecords;
use crate::archive::segment::{Opened, SegmentReader};
use crate::archive::stream::ArchiveLog;
use crate::error::LogError;
use crate::record::Record;
use firndb_base::codec::Malformed;
use firndb_base::{DatabaseId, Lsn};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// The file.
    pub path: PathBuf,
    /// Its sequence number.
    pub sequence: u64,
    /// LSN of its first byte of log.
    pub first: Lsn,
    /// First LSN after its last byte; equal to `first` if it holds none.
    pub end: Lsn,
    /// Where the archive ended before: less than `first` if the log between was given up.
    pub previous: Lsn,
    /// Number of chunks of log.
    pub chunks: u64,
    /// Number of images of pages whose content is not in the log.
    pub images: u64,
    /// When its first and its last chunk were written: microseconds since 1970.
    pub times_us: (u64, u64),
    /// Whether it was sealed. The newest segment of a running database is not, nor is one that a
    /// crash ended.
    pub sealed: bool,
}

/// The contents of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The database of the archive; `None` if it is empty.
    pub database: Option<DatabaseId>,
    /// In the order in which they were begun.
    pub segments: Vec<SegmentInfo>,
    /// Runs of log without a gap, ascending: first LSN and end. Between two of them log is missing.
    pub stretches: Vec<(Lsn, Lsn)>,
    /// Records read, if the survey verified.
    pub records: u64,
    /// A sentence for each fault.
    pub damage: Vec<String>,
}

/// Returns the images that a record names and no log holds.
pub type NamedImages<'a> = &'a dyn Fn(Lsn, Record<'_>) -> Result<Vec<Image>, Malformed>;

/// Sentences about images that are missing, at most.
const MISSING_MAX: u64 = 16;

/// Reads every chunk of the archive in `directory`; with `verify`, its records too, and whether the
/// images that they name are there. Memory: some 40 bytes an image, if it verifies.
///
/// Errors: only if the survey could not continue; damage is part of its result.
pub fn survey(
    directory: &Path,
    verify: Option<NamedImages<'_>>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Survey, LogError> {
    let mut images_listed = BTreeSet::new();
    let files = ArchiveFiles::new(directory);
    let mut survey = Survey::default();
    let listed = files.list()?;
    for (done, &sequence) in listed.iter().enumerate() {
        let path = files.path(sequence);
        match SegmentReader::open(&files, sequence)? {
            Opened::Headless => {
                // A crash may have interrupted the beginning of the newest segment.
                if done + 1 < listed.len() && holds_anything(&files, sequence)? {
                    survey.damage.push(format!("{}: the segment's header is damaged", path.display()));
                }
            }
            Opened::Segment(mut reader) => {
                let owner = *survey.database.get_or_insert(reader.header.database);
                if owner != reader.header.database {
                    survey.damage.push(format!("{}: of another database", path.display()));
                    continue;
                }
                let info = read_segment(path, &mut reader, &mut survey.damage)?;
                survey.segments.push(info);
                if verify.is_some() {
                    images_listed.extend(reader.images);
                }
            }
        }
        progress(done + 1, listed.len());
    }
    // Images are written before the log that names them: those of the first segment may lie in one
    // that was deleted.
    let from = match &survey.segments[..] {
        [first, rest @ ..] if first.sequence > 1 => rest.first().map_or(Lsn::MAX, |second| second.first),
        _ => Lsn::ZERO,
    };
    let mut images = verify.map(|named| Images { named, listed: images_listed, from, missing: 0 });
    find_stretches(directory, &mut survey, images.as_mut())?;
    if let Some(more) = images.and_then(|images| images.missing.checked_sub(MISSING_MAX + 1)) {
        survey.damage.push(format!("and {} more images are not there", more + 1));
    }
    Ok(survey)
}

/// Whether a file without a header holds a byte that is not zero.
fn holds_anything(files: &ArchiveFiles, sequence: u64) -> Result<bool, LogError> {
    let device = files.open(sequence)?;
    let mut buf = firndb_device::AlignedBuf::zeroed(super::format::UNIT);
    let len = device.len().min(buf.len() as u64) as usize / device.info().logical_block
        * device.info().logical_block;
    device.read(0, &mut buf[..len]).map_err(super::files::named)?;
    Ok(buf[..len].iter().any(|&byte| byte != 0))
}

fn read_segment(
    path: PathBuf,
    reader: &mut SegmentReader,
    damage: &mut Vec<String>,
) -> Result<SegmentInfo, LogError> {
    let SegmentHeader { sequence, first, previous, .. } = reader.header;
    let mut info = SegmentInfo {
        path,
        sequence,
        first,
        end: first,
        previous,
        chunks: 0,
        images: 0,
        times_us: (0, 0),
        sealed: false,
    };
    while reader.advance()? {
        let chunk = reader.chunk().expect("just read");
        if info.chunks == 0 {
            info.times_us.0 = chunk.time_us;
        }
        info.times_us.1 = chunk.time_us;
        info.chunks += 1;
        info.end = chunk.end();
    }
    (info.sealed, info.images) = (reader.sealed, reader.images.len() as u64);
    for offset in &reader.damaged {
        damage.push(format!("{}: damaged at byte {offset}", info.path.display()));
    }
    Ok(info)
}

/// Follows the stream from the first segment on.
fn find_stretches(
    directory: &Path,
    survey: &mut Survey,
    mut images: Option<&mut Images<'_>>,
) -> Result<(), LogError> {
    let mut from =
        survey.segments.iter().filter(|segment| segment.chunks > 0).map(|segment| segment.first).min();
    while let Some(first) = from {
        let log = ArchiveLog::open(&[directory], survey.database, first)?;
        let (end, next) = match &mut images {
            Some(images) => walk_records(log, survey, images)?,
            None => walk(log)?,
        };
        if end > first {
            survey.stretches.push((first, end));
        }
        // A gap that the writer declared is in a segment's header; any other is damage.
        if let Some(next) = next
            && !survey.segments.iter().any(|segment| segment.first == next && segment.previous < next)
        {
            survey.damage.push(format!("the log from LSN {end} to LSN {next} is missing"));
        }
        from = next;
    }
    Ok(())
}

fn walk(mut log: ArchiveLog) -> Result<(Lsn, Option<Lsn>), LogError> {
    loop {
        match log.next_piece()? {
            super::Next::Piece { .. } => {}
            super::Next::End => return Ok((log.pos(), None)),
            super::Next::Gap(next) => return Ok((log.pos(), Some(next))),
        }
    }
}

/// The images that the archive lists, to be compared with those that its records name.
struct Images<'a> {
    named: NamedImages<'a>,
    listed: BTreeSet<Image>,
    /// Only records from here on are looked at.
    from: Lsn,
    missing: u64,
}

impl Images<'_> {
    fn look_for(&mut self, lsn: Lsn, record: Record<'_>, damage: &mut Vec<String>) {
        let named = match (self.named)(lsn, record) {
            Ok(named) => named,
            Err(error) => return damage.push(format!("the record at LSN {lsn}: {error}")),
        };
        for image in named.iter().filter(|image| !self.listed.contains(image)) {
            self.missing += 1;
            if self.missing <= MISSING_MAX {
                damage.push(format!(
                    "the image of page {} (version {}), which the record at LSN {lsn} names, is not there: begin \
                     restores that need it with a later backup",
                    image.page, image.version
                ));
            }
        }
    }
}

fn walk_records(
    log: ArchiveLog,
    survey: &mut Survey,
    images: &mut Images<'_>,
) -> Result<(Lsn, Option<Lsn>), LogError> {
    let mut records = ArchiveRecords::new(log, Lsn::MAX);
    loop {
        match records.next() {
            Ok(Some((lsn, record))) => {
                survey.records += 1;
                if lsn >= images.from {
                    images.look_for(lsn, record, &mut survey.damage);
                }
            }
            Ok(None) => return Ok((records.end(), records.gap())),
            Err(error) if error.kind == crate::LogErrorKind::Damaged => {
                survey.damage.push(error.message);
                return Ok((records.end(), None));
            }
            Err(error) => return Err(error),
        }
    }
}
