//! A description of the measured device in words, from the system; not needed to measure.

use crate::plan::Effort;
use crate::target::{Target, TargetKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The part of a profile beside the figures.
#[derive(Clone, Debug)]
pub struct Head {
    /// The profile's name: lower-case letters, digits, dots and hyphens.
    pub name: String,
    /// The title for readers.
    pub title: String,
    /// Machine and date.
    pub source: String,
    /// Conditions.
    pub notes: Vec<String>,
    /// Capacity of the device, or of the area if the device does not report it.
    pub capacity_bytes: u64,
    /// Smallest transfer.
    pub logical_block: u32,
}

impl Head {
    /// Describes a target that was opened at `path` and measured at `date`.
    #[must_use]
    pub fn of(path: &Path, target: &Target, effort: Effort, name: &str, date: &str) -> Head {
        let device = block_device_of(path);
        let model = device.as_deref().and_then(model).unwrap_or_else(|| "unknown device".to_owned());
        let capacity = device.as_deref().and_then(capacity).unwrap_or(0).max(target.area());
        let system = rustix::system::uname();
        let word = |bytes: &std::ffi::CStr| bytes.to_string_lossy().into_owned();
        let file_system = match target.kind() {
            TargetKind::BlockDevice => "raw".to_owned(),
            _ => file_system(path).unwrap_or_else(|| "unknown file system".to_owned()),
        };
        let info = target.device().info();
        let effort = match effort {
            Effort::Quick => "quick",
            Effort::Full => "full",
        };
        let mut notes = vec![format!(
            "{file_system}, {}, area of {} MiB, written beforehand with noise",
            if info.direct { "direct I/O" } else { "through the page cache" },
            target.area() >> 20
        )];
        notes.extend(target.notes().iter().cloned());
        Head {
            name: name.to_owned(),
            title: format!("{model}, {:.1} GB, {file_system}", capacity as f64 / 1e9),
            source: format!(
                "firn characterize ({effort}) on {}, {} {}, {date}",
                word(system.nodename()),
                word(system.sysname()),
                word(system.release())
            ),
            notes,
            capacity_bytes: capacity / info.logical_block as u64 * info.logical_block as u64,
            logical_block: info.logical_block as u32,
        }
    }
}

/// The block device's directory in sysfs: of `path` itself, or of the file system that it is on.
fn block_device_of(path: &Path) -> Option<PathBuf> {
    let directory = || std::fs::metadata(path.parent()?.canonicalize().ok()?).ok();
    let metadata = std::fs::metadata(path).ok().or_else(directory)?;
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The vendor's name of the device, or its kernel name; a partition is described by its disk.
fn model(device: &Path) -> Option<String> {
    let disk = if device.join("partition").exists() { device.parent()? } else { device };
    let stated =
        ["device/model", "device/name"].iter().find_map(|file| std::fs::read_to_string(disk.join(file)).ok());
    let stated = stated.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    stated.or_else(|| Some(disk.file_name()?.to_string_lossy().into_owned()))
}

fn capacity(device: &Path) -> Option<u64> {
    let sectors: u64 = std::fs::read_to_string(device.join("size")).ok()?.trim().parse().ok()?;
    sectors.checked_mul(512)
}

/// The kind of the file system with the longest mount point above `path`.
fn file_system(path: &Path) -> Option<String> {
    let whole = path.canonicalize().ok().or_else(|| path.parent()?.canonicalize().ok())?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(point, _)| whole.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}
