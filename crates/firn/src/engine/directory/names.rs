//! The names of a database's files, and what must not lie there before it is created.

use crate::engine::directory::files::{
    exists, is_raw_device, nearest_directory, refuse_absent_device, whole_path,
};
use crate::engine::store_array::StoreArray;
use crate::engine::superblock::Superblock;
use crate::engine::{assembly, cache};
use crate::error::Error;
use crate::options::Options;
use firndb_array::MemberState;
use firndb_device::available_bytes;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) const SUPERBLOCK: &str = "superblock";

/// The files of a database created with these options, except for the superblock.
pub(super) fn own_files(dir: &Path, options: &Options) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        assembly::members(options).iter().map(|member| dir.join(&member.path)).collect();
    paths.extend(assembly::store_paths(options).iter().map(|path| dir.join(path)));
    paths.extend(cache::path(None, options).map(|path| dir.join(path)));
    paths
}

/// The same files with the bytes that their creation needs of each; `block` is the largest of the
/// blocks of the store's devices.
pub(super) fn bytes_needed(
    dir: &Path,
    options: &Options,
    block: usize,
) -> Result<Vec<(PathBuf, u64)>, Error> {
    let logs = assembly::members(options).into_iter().map(|member| (member.path, member.bytes));
    let stores = assembly::store_paths(options);
    let least = StoreArray::bytes_least(stores.len(), block as u64, options)?;
    let stores = stores.into_iter().map(|path| (path, least));
    let cache = cache::path(None, options).map(|path| (path, options.cache.bytes.unwrap_or(0)));
    Ok(logs.chain(stores).chain(cache).map(|(path, bytes)| (dir.join(path), bytes)).collect())
}

/// The files of an existing database.
fn files_of(dir: &Path, superblock: &Superblock) -> Vec<PathBuf> {
    let logs = superblock.members.iter().map(|member| &member.path);
    let stores: Vec<&String> = match &superblock.extensions.store_array {
        None => vec![&superblock.store_path],
        Some(array) => array.members.iter().map(|member| &member.path).collect(),
    };
    let cache = superblock.extensions.cache.iter().map(|cache| &cache.path);
    let others = logs.chain(stores).chain(cache).map(|path| dir.join(path));
    std::iter::once(dir.join(SUPERBLOCK)).chain(others).collect()
}

/// Refuses a path that leads to one of the database's files.
pub(crate) fn refuse_own_files(dir: &Path, path: &Path, superblock: &Superblock) -> Result<(), Error> {
    let place = Place::of(path);
    if files_of(dir, superblock).iter().any(|own| Place::of(own) == place) {
        let message = format!("{} is a file of the database already", path.display());
        return Err(Error::bad_argument(message));
    }
    Ok(())
}

/// Refuses options that name one file or device for two of the database's: the second would take
/// the first for what an interrupted creation left.
pub(super) fn refuse_one_place_twice(dir: &Path, options: &Options) -> Result<(), Error> {
    refuse_twice(std::iter::once(dir.join(SUPERBLOCK)).chain(own_files(dir, options)))
}

/// Refuses an existing database of which two files became one, by a link or a renamed device. What
/// is not opened, a struck device of the store or a cache that is given up, may have lost its name
/// to another.
pub(super) fn refuse_files_that_are_one(
    dir: &Path,
    superblock: &Superblock,
    options: &Options,
) -> Result<(), Error> {
    let mut opened = superblock.clone();
    if let Some(array) = &mut opened.extensions.store_array {
        array.members.retain(|member| member.state != MemberState::Struck);
    }
    let mut new_cache = None;
    match (&superblock.extensions.cache, options.cache.give_up) {
        (_, true) => opened.extensions.cache = None,
        (None, false) => new_cache = cache::path(None, options),
        (Some(_), false) => {}
    }
    refuse_twice(files_of(dir, &opened).into_iter().chain(new_cache.map(|path| dir.join(path))))
}

fn refuse_twice(paths: impl Iterator<Item = PathBuf>) -> Result<(), Error> {
    let mut found: Vec<(Place, PathBuf)> = Vec::new();
    for path in paths {
        let place = Place::of(&path);
        if let Some((_, first)) = found.iter().find(|(other, _)| *other == place) {
            return Err(Error::bad_argument(format!(
                "{} and {} are the same file or device, named for two files of the database; give each its own",
                first.display(),
                path.display()
            )));
        }
        found.push((place, path));
    }
    Ok(())
}

/// What a path leads to, by whatever links and device nodes.
#[derive(PartialEq, Eq)]
enum Place {
    /// Number of the device.
    RawDevice(u64),
    /// Number of the file system's device, and of the file on it.
    File(u64, u64),
    /// Nothing that exists, or can be looked at.
    Absent(PathBuf),
}

impl Place {
    fn of(path: &Path) -> Place {
        match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => Place::RawDevice(found.rdev()),
            Ok(found) => Place::File(found.dev(), found.ino()),
            Err(_) => Place::Absent(whole_path(path)),
        }
    }
}

/// Refuses to create a database over files of the same names, except for those that `marked` names:
/// they may belong to a database that lost its superblock. Of raw devices, which have to be there,
/// the contents are looked at when they are claimed.
pub(super) fn refuse_others(dir: &Path, marked: &[String], options: &Options) -> Result<(), Error> {
    refuse_without_superblock(dir, marked, own_files(dir, options))
}

/// As [`refuse_others`], of these files.
pub(super) fn refuse_without_superblock(
    dir: &Path,
    marked: &[String],
    files: Vec<PathBuf>,
) -> Result<(), Error> {
    let marked: Vec<PathBuf> = marked.iter().map(|file| whole_path(&dir.join(file))).collect();
    for path in files {
        refuse_absent_device(&path)?;
        if exists(&path)? && !is_raw_device(&path)? && !marked.contains(&whole_path(&path)) {
            return Err(Error::damaged(format!(
                "{} exists but {} does not, or is empty: a database that lost its superblock cannot be opened; put that \
                 file back, restore a backup into another directory, or remove the files to begin anew",
                path.display(),
                dir.join(SUPERBLOCK).display()
            )));
        }
    }
    Ok(())
}

/// Refuses a directory for a restored database that holds anything but its superblock's file and
/// settings (`firn.toml` and profiles, which may be there first).
pub(super) fn refuse_strangers(dir: &Path) -> Result<(), Error> {
    let unusable = |error: std::io::Error| {
        Error::unusable(format!("{} cannot be listed: {error}", dir.display())).caused_by(error)
    };
    if !exists(dir)? {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir).map_err(unusable)? {
        let name = entry.map_err(unusable)?.file_name();
        let is_setting = Path::new(&name).extension().is_some_and(|extension| extension == "toml");
        if name != SUPERBLOCK && !is_setting {
            return Err(Error::exists(format!(
                "{} is not empty, it holds {}: name a directory that is empty, or not there yet",
                dir.display(),
                Path::new(&name).display()
            )));
        }
    }
    Ok(())
}

/// Refuses to create files that are larger than the free space of their file systems, before
/// trying: some file systems report that only when they are full. A raw device has its own space.
pub(super) fn refuse_too_large(dir: &Path, options: &Options) -> Result<(), Error> {
    let mut wanted: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    for (path, bytes) in bytes_needed(dir, options, 512)? {
        if is_raw_device(&path)? {
            continue;
        }
        // The directory may not exist yet.
        let Some((at, found)) = nearest_directory(&path) else { continue };
        let sum = &mut wanted.entry(found.dev()).or_insert((at.to_path_buf(), 0)).1;
        *sum = sum.saturating_add(bytes);
    }
    for (at, bytes) in wanted.into_values() {
        if let Some(free) = available_bytes(&at).filter(|free| *free < bytes) {
            return Err(Error::full(format!(
                "the database's files need {bytes} bytes in {}, whose file system has {free} bytes free: make them smaller \
                     (log_bytes, cache_bytes), put them elsewhere, or free space",
                at.display()
            )));
        }
    }
    Ok(())
}
