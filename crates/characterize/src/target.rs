//! What is measured, and how its owner's data are protected.
//!
//! Invariants: in a directory, and beside a regular file, measurements use files made here, which
//! are unlinked before anything is written to them; a regular file or block device itself is
//! written to only with [`Consent`], which takes two statements; a block device that is mounted, or
//! held by swap, RAID, LVM or another program, is always refused (the kernel rejects an exclusive
//! open).

use crate::cell::Ground;
use crate::drive::Stop;
use crate::error::Error;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_device::{
    AlignedBuf, Device, Durability, FileDevice, FileOptions, Fill, Io, IoOp, available_bytes, remove_file,
};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Consent to destroy the contents of a file or block device: both fields must be set.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// The first statement.
    pub destroy_contents: bool,
    /// The second statement, which names the same path.
    pub i_am_sure: Option<PathBuf>,
}

impl Consent {
    fn is_given_for(&self, path: &Path) -> bool {
        self.destroy_contents && self.i_am_sure.as_deref() == Some(path)
    }
}

/// How a target is opened.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Bytes to work in; 1 GiB, or half of the free space if that is less, by default.
    pub area: Option<u64>,
    /// Longest time for writing the area beforehand.
    pub prepare: Duration,
    /// Consent for a file or device that is itself to be written to.
    pub consent: Consent,
    /// Whether to make the named file, which must not exist, and to keep it.
    pub keep: bool,
}

/// The kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Files made for the measurement.
    Files,
    /// A file of the user's, written to itself.
    WholeFile,
    /// A block device, written to itself.
    BlockDevice,
    /// Any other device, supplied by the caller.
    Given,
}

/// A device to measure, written beforehand.
#[derive(Debug)]
pub struct Target {
    device: Arc<dyn Device>,
    /// The directory in which more files can be made.
    directory: Option<PathBuf>,
    kind: TargetKind,
    area: u64,
    notes: Vec<String>,
}

/// The default area.
const AREA: u64 = 1 << 30;
/// The least area that can be measured.
const AREA_LEAST: u64 = 16 << 20;
/// Bytes of one write during preparation.
const CHUNK: usize = 1 << 20;
const CHUNKS: usize = 8;

impl Target {
    /// Opens `path`, checks that nothing is destroyed without consent, and writes the area. It
    /// calls `progress` with the bytes written and the bytes wanted.
    pub fn open(
        path: &Path,
        options: &TargetOptions,
        progress: &mut dyn FnMut(u64, u64),
        stop: &Stop,
    ) -> Result<Target, Error> {
        let mut target = Target::find(path, options)?;
        if !target.device.info().direct {
            target.notes.push(
                "direct I/O is not to be had here: the figures are those of memory and the kernel, not of a device"
                    .to_owned(),
            );
        }
        target.prepare(options, progress, stop)?;
        Ok(target)
    }

    /// A device supplied by the caller, all of which may be overwritten; it is not written
    /// beforehand.
    #[must_use]
    pub fn given(device: Arc<dyn Device>) -> Target {
        let area = device.len();
        Target { device, directory: None, kind: TargetKind::Given, area, notes: Vec::new() }
    }

    /// What is measured.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }
    /// Bytes from its start that are measured.
    #[must_use]
    pub fn area(&self) -> u64 {
        self.area
    }
    /// The kind of a target.
    #[must_use]
    pub fn kind(&self) -> TargetKind {
        self.kind
    }
    /// What the figures' reader should know, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn find(path: &Path, options: &TargetOptions) -> Result<Target, Error> {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && options.keep => {
                let device = FileDevice::create(path, &FileOptions::default())?;
                let directory = directory_of(path);
                return Ok(Target::new(device, Some(directory), TargetKind::Files));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::bad_argument(format!(
                    "{}: there is no such file or directory; name a directory on the file system to measure, or a block device",
                    path.display()
                )));
            }
            Err(error) => return Err(Error::Unusable(format!("{}: {error}", path.display()))),
        };
        if metadata.is_dir() {
            return Target::in_directory(path);
        }
        if metadata.is_file() && options.consent.is_given_for(path) {
            let device = FileDevice::open(path, &FileOptions::default())?;
            return Ok(Target::new(device, Some(directory_of(path)), TargetKind::WholeFile));
        }
        if metadata.is_file() {
            let mut target = Target::in_directory(&directory_of(path))?;
            target.notes.push(format!("{} was left as it is: files beside it were measured", path.display()));
            return Ok(target);
        }
        if metadata.file_type().is_block_device() {
            let device = FileDevice::open(path, &FileOptions::default())?;
            if !options.consent.is_given_for(path) {
                refuse_contents(path, &device)?;
            }
            return Ok(Target::new(device, None, TargetKind::BlockDevice));
        }
        Err(Error::bad_argument(format!(
            "{}: is neither a directory nor a regular file nor a block device",
            path.display()
        )))
    }

    fn new(device: FileDevice, directory: Option<PathBuf>, kind: TargetKind) -> Target {
        Target { device: Arc::new(device), directory, kind, area: 0, notes: Vec::new() }
    }

    fn in_directory(directory: &Path) -> Result<Target, Error> {
        let device = own_file(directory)?;
        Ok(Target::new(device, Some(directory.to_owned()), TargetKind::Files))
    }

    /// A new file of `bytes` on this ground, gone when it is dropped; `None` where no files can be
    /// made, or where the file system does not reserve.
    pub fn fresh(&self, ground: Ground, bytes: u64) -> Result<Option<Arc<dyn Device>>, Error> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let fill = match ground {
            Ground::Written => Fill::Written,
            Ground::Reserved => Fill::Reserved,
            Ground::Hole => Fill::Sparse,
        };
        let file = own_file(directory)?;
        file.grow(bytes, fill)?;
        Ok(Some(Arc::new(file)))
    }

    /// Makes the area and writes it, so that no request falls on unwritten blocks or into a hole.
    fn prepare(
        &mut self,
        options: &TargetOptions,
        progress: &mut dyn FnMut(u64, u64),
        stop: &Stop,
    ) -> Result<(), Error> {
        let wanted = self.wanted_area(options)?;
        if self.kind == TargetKind::Files {
            self.device.grow(wanted, Fill::Reserved)?;
        }
        let begun = clock::now();
        let mut rng = Rng::new(clock::unix_time_us());
        let mut chunks: Vec<AlignedBuf> = (0..CHUNKS).map(|_| AlignedBuf::zeroed(CHUNK)).collect();
        let mut written = 0;
        while written + CHUNK as u64 <= wanted {
            if stop() {
                return Err(Error::Interrupted);
            }
            if written >= AREA_LEAST && begun.elapsed() >= options.prepare {
                break;
            }
            let missing = ((wanted - written) / CHUNK as u64) as usize;
            let mut ios = Vec::new();
            for (index, chunk) in chunks.iter_mut().take(missing).enumerate() {
                chunk
                    .chunks_exact_mut(8)
                    .for_each(|part| part.copy_from_slice(&rng.next_u64().to_le_bytes()));
                let offset = written + (index * CHUNK) as u64;
                ios.push(Io { offset, op: IoOp::Write(chunk, Durability::Later), outcome: Ok(()) });
            }
            self.device.submit(&mut ios);
            written += (ios.len() * CHUNK) as u64;
            ios.into_iter().try_for_each(|io| io.outcome)?;
            progress(written, wanted);
        }
        self.device.sync()?;
        if written + (CHUNK as u64) <= wanted {
            self.notes.push(format!(
                "the area is {} MiB: as much as could be written in {} s",
                written >> 20,
                options.prepare.as_secs()
            ));
        }
        self.area = written;
        Ok(())
    }

    fn wanted_area(&self, options: &TargetOptions) -> Result<u64, Error> {
        let name = &self.device.info().name;
        let (available, share) = match (&self.directory, self.kind) {
            (Some(directory), TargetKind::Files) => (free_bytes(directory, options.area)?, 2),
            _ => (self.device.len(), 1),
        };
        let wanted = match options.area {
            Some(area) if area > available => {
                return Err(Error::Full(format!(
                    "{name}: {area} bytes are wanted and {available} are there"
                )));
            }
            Some(area) => area,
            None => AREA.min(available / share),
        };
        let wanted = wanted / CHUNK as u64 * CHUNK as u64;
        if wanted < AREA_LEAST {
            return Err(Error::Full(format!(
                "{name}: {wanted} bytes are too little to measure in; {AREA_LEAST} are needed (and at most half of the free \
                 space, {available} bytes, is taken unless an area is named)"
            )));
        }
        Ok(wanted)
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// An unlinked file in `directory`.
fn own_file(directory: &Path) -> Result<FileDevice, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("firn-characterize.{}.{number}", std::process::id()));
    let device = FileDevice::create(&path, &FileOptions::default())?;
    remove_file(&path)?;
    Ok(device)
}

/// Bytes that may be written in the directory. Where that is not known: `wanted`.
fn free_bytes(directory: &Path, wanted: Option<u64>) -> Result<u64, Error> {
    available_bytes(directory).or(wanted).ok_or_else(|| {
        let directory = directory.display();
        Error::Unusable(format!(
            "{directory}: its file system does not tell how much space is free: name an area"
        ))
    })
}

/// Places read between a device's first and last MiB.
const SAMPLES: u64 = 256;

/// Refuses a block device on which anything but zeros is found.
fn refuse_contents(path: &Path, device: &FileDevice) -> Result<(), Error> {
    let len = device.len();
    let edge = (CHUNK as u64).min(len);
    let mut places = vec![(0, edge), (len - edge, edge)];
    let between = (len / SAMPLES) / CHUNK as u64 * CHUNK as u64;
    places.extend((1..SAMPLES).map(|index| (index * between, edge.min(64 << 10))));
    let mut buf = AlignedBuf::zeroed(CHUNK);
    for (offset, bytes) in places {
        let part = &mut buf[..bytes as usize];
        if bytes == 0 || offset + bytes > len {
            continue;
        }
        device.read(offset, part)?;
        if part.iter().any(|&byte| byte != 0) {
            return Err(Error::Refused(format!(
                "{}: holds data (at byte {offset} and maybe elsewhere), which measuring would destroy; to do that, say \
                 --destroy-contents and --i-am-sure {}",
                path.display(),
                path.display()
            )));
        }
    }
    Ok(())
}
