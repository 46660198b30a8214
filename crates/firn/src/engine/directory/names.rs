//! The names of a database's files, and what must not lie there before it is created.

use crate::engine::directory::files::{exists, is_raw_device, nearest_directory, whole_path};
use crate::engine::store_array::StoreArray;
use crate::engine::superblock::Superblock;
use crate::engine::{assembly, cache};
use crate::error::Error;
use crate::options::Options;
use firndb_device::available_bytes;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
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

/// Refuses a path that one of the database's files has.
pub(crate) fn refuse_own_files(dir: &Path, path: &Path, superblock: &Superblock) -> Result<(), Error> {
    let logs = superblock.members.iter().map(|member| dir.join(&member.path));
    let cache = superblock.extensions.cache.iter().map(|cache| dir.join(&cache.path));
    let array = superblock.extensions.store_array.iter().flat_map(|array| &array.members);
    let stores = array.map(|member| &member.path).chain([&superblock.store_path]);
    let stores = stores.map(|path| dir.join(path));
    let mut own = logs.chain(cache).chain(stores).chain([dir.join(SUPERBLOCK)]);
    if own.any(|own| whole_path(&own) == whole_path(path)) {
        let message = format!("{} is a file of the database already", path.display());
        return Err(Error::bad_argument(message));
    }
    Ok(())
}

/// Refuses options that give two of the database's files one name: the second would take the first
/// for what an interrupted creation left.
pub(super) fn refuse_one_name_twice(dir: &Path, options: &Options) -> Result<(), Error> {
    let mut paths = vec![whole_path(&dir.join(SUPERBLOCK))];
    for path in own_files(dir, options) {
        let path = whole_path(&path);
        if paths.contains(&path) {
            return Err(Error::bad_argument(format!(
                "{} is named for two files of the database; give each its own",
                path.display()
            )));
        }
        paths.push(path);
    }
    Ok(())
}

/// Refuses to create a database over files of the same names, except for those that `marked` names:
/// they may belong to a database that lost its superblock. Of raw devices, which are there always,
/// the contents are looked at when they are claimed.
pub(super) fn refuse_others(dir: &Path, marked: &[String], options: &Options) -> Result<(), Error> {
    let marked: Vec<PathBuf> = marked.iter().map(|file| whole_path(&dir.join(file))).collect();
    for path in own_files(dir, options) {
        if exists(&path)? && !is_raw_device(&path)? && !marked.contains(&whole_path(&path)) {
            return Err(Error::damaged(format!(
                "{} exists but {} does not, or is empty: this may be a database that lost its superblock; restore it, or remove the files to begin anew",
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
