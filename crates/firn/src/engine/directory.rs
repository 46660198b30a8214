//! A database directory: which files there are, and opening them. `files` opens each, `names` has
//! what they are called, `creation` makes them.
//!
//! ```text
//! DIR/superblock   where everything else is found; locked while the database is open
//! DIR/log.0 …      the log, pre-written, recycled
//! DIR/store        the page store
//! DIR/cache        the flash cache, if one was asked for
//! ```

pub(crate) mod creation;
pub(crate) mod files;
pub(crate) mod names;

use crate::engine::archiver::OpenArchive;
use crate::engine::creation_mark::Interrupted;
use crate::engine::devices::Devices;
use crate::engine::directory::creation::{build, recreate};
use crate::engine::directory::files::{
    Access, absent, exists, file, has_loose_end, make_directory, open_to_read, refuse_no_directory,
    released_file,
};
use crate::engine::directory::names::{
    SUPERBLOCK, own_files, refuse_files_that_are_one, refuse_one_place_twice, refuse_others,
    refuse_too_large, refuse_without_superblock,
};
use crate::engine::separate_directories::{no_database, refuse_mixed_archive, refuse_mixed_database};
use crate::engine::store_array_field::StoreMember;
use crate::engine::superblock::copies::Found;
use crate::engine::superblock::{Member, Superblock};
use crate::engine::{Engine, cache, recovery};
use crate::error::Error;
use crate::options::Options;
use firndb_array::MemberState;
use firndb_base::sync::Arc;
use firndb_device::{Device, sync_directory};
use std::path::Path;

/// Opens the database in `dir`, or creates it there.
pub(crate) fn open(dir: &Path, options: &Options, archives: &dyn OpenArchive) -> Result<Arc<Engine>, Error> {
    refuse_no_directory(dir)?;
    let mut options = options.with_profiles(Some(dir))?;
    options.archive.base = Some(dir.to_path_buf());
    let options = &options;
    let path = dir.join(SUPERBLOCK);
    refuse_mixed_archive(Some(dir), options)?;
    if exists(&path)? {
        let superblock = file(&path, false)?;
        match Superblock::read(&superblock)? {
            Found::Database(found) => {
                let options = options.for_existing(&found);
                options.check()?;
                return open_found(dir, found, superblock, &options, archives);
            }
            Found::Nothing if has_loose_end(&path, &*superblock)? => {
                return Err(Error::damaged(format!(
                    "{} is no superblock, or is cut short: it is left alone; restore it from a copy, or name another directory",
                    path.display()
                )));
            }
            // The process that creates the file may lose the lock to one that opens it.
            Found::Nothing => {
                return recreate(dir, &Interrupted::default(), superblock, options, archives);
            }
            Found::Creating(interrupted) => {
                return recreate(dir, &interrupted, superblock, options, archives);
            }
            Found::Restoring(_) => return Err(unfinished_restore(dir)),
        }
    }
    options.check_new()?;
    refuse_one_place_twice(dir, options)?;
    refuse_others(dir, &[], options)?;
    if !options.create {
        return Err(no_database(dir));
    }
    refuse_mixed_database(dir)?;
    refuse_too_large(dir, options)?;
    make_directory(dir)?;
    refuse_one_place_twice(dir, options)?;
    let superblock = file(&path, true)?;
    build(dir, (superblock, &Interrupted::default()), options, archives)
}

/// Opens the database in `dir` without changing anything: every file is opened for reading, under a
/// lock shared with other readers.
pub(crate) fn open_read_only(
    dir: &Path,
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    refuse_no_directory(dir)?;
    let mut options = options.with_profiles(Some(dir))?;
    options.archive.base = Some(dir.to_path_buf());
    let (superblock, found) = look_at_superblock(dir)?;
    let options = options.for_existing(&found);
    options.check()?;
    open_found(dir, found, superblock, &options, archives)
}

fn open_found(
    dir: &Path,
    found: Superblock,
    superblock: Arc<dyn Device>,
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    refuse_files_that_are_one(dir, &found, options)?;
    let missing = |what: &str| format!("{what} of the database in {} cannot be opened", dir.display());
    let access = if options.overlay.is_some() { Access::Reading } else { Access::Writing };
    let mut logs: Vec<Arc<dyn Device>> = Vec::new();
    // Copies of the log may cover this many missing members.
    let mut spare = found.redundancy().least_from(found.redo_start) - 1;
    for member in &found.members {
        let path = dir.join(&member.path);
        match log_file(&path, member, access) {
            Ok(log) => logs.push(log),
            Err(error) if spare == 0 => return Err(error.within(&missing("a log device"))),
            Err(error) => {
                spare -= 1;
                logs.push(absent(&path, &error));
            }
        }
    }
    let (store, store_others) = match &found.extensions.store_array {
        None => {
            let store = released_file(&dir.join(&found.store_path), access)
                .map_err(|error| error.within(&missing("the page store")))?;
            (store, Vec::new())
        }
        Some(array) => {
            let mut members = array.members.iter().map(|member| store_member(dir, member, access));
            (members.next().expect("it has members"), members.collect())
        }
    };
    let cache = match (&found.extensions.cache, cache::path(Some(&found), options)) {
        (_, None) => None,
        _ if options.cache.give_up => None,
        (Some(known), Some(path)) => match released_file(&dir.join(path), access) {
            Ok(device) => Some(device),
            Err(_) if known.write_through => None,
            Err(error) => {
                let what = "the flash cache, which holds pages that nothing else has,";
                return Err(error.within(&missing(what)));
            }
        },
        (None, Some(path)) => {
            options.check_cache(options.cache.bytes.unwrap_or(0), found.page_size, 512)?;
            let path = dir.join(path);
            // A cache that was given up may still be there.
            let device = if exists(&path)? { released_file(&path, access)? } else { file(&path, true)? };
            sync_directory(path.parent().unwrap_or(dir))?;
            Some(device)
        }
    };
    let devices =
        Devices { superblock, logs, store, store_others, cache }.wrapped(&found.members, options)?;
    recovery::open(found, devices, options, archives)
}

/// A device of a store over several: one that cannot be opened is left to the others.
fn store_member(dir: &Path, member: &StoreMember, access: Access) -> Arc<dyn Device> {
    let path = dir.join(&member.path);
    let opened = match member.state {
        MemberState::Struck => Err(Error::unusable(format!("{} has missed writes", path.display()))),
        MemberState::Active | MemberState::Rebuilding => released_file(&path, access),
    };
    opened.unwrap_or_else(|error| absent(&path, &error))
}

fn log_file(path: &Path, member: &Member, access: Access) -> Result<Arc<dyn Device>, Error> {
    let log = released_file(path, access)?;
    if log.len() < member.bytes {
        return Err(Error::damaged(format!(
            "{} is cut short: it has {} bytes instead of {}",
            log.info().name,
            log.len(),
            member.bytes
        )));
    }
    Ok(log)
}

/// Reads the superblock of the database in `dir`. While its device is held, other processes can
/// read the database and none can write it.
pub(crate) fn look_at_superblock(dir: &Path) -> Result<(Arc<dyn Device>, Superblock), Error> {
    let path = dir.join(SUPERBLOCK);
    refuse_no_directory(dir)?;
    if !exists(&path)? {
        refuse_without_superblock(dir, &[], own_files(dir, &Options::new().cache(|cache| cache.bytes(0))))?;
        return Err(no_database(dir));
    }
    let device = open_to_read(&path)?;
    match Superblock::read(&device)? {
        Found::Database(superblock) => Ok((device, superblock)),
        Found::Nothing => Err(Error::damaged(format!(
            "{}: it is empty: the creation of a database here was interrupted, or a database lost its superblock; \
             open it to find out which",
            path.display()
        ))),
        Found::Creating(_) => Err(Error::not_found(format!(
            "{}: the creation of a database here was interrupted; nothing was stored in it",
            dir.display()
        ))),
        Found::Restoring(_) => Err(unfinished_restore(dir)),
    }
}

/// The error for opening a directory in which a restore was interrupted.
pub(crate) fn unfinished_restore(dir: &Path) -> Error {
    Error::unusable(format!(
        "{}: restoring a database here was interrupted, and it is not whole: restore it again, into the same directory",
        dir.display()
    ))
}
