//! Creates the files of a database, and removes those of a creation that was interrupted.

use crate::engine::archiver::OpenArchive;
use crate::engine::creation_mark::{self, Interrupted, Making};
use crate::engine::devices::Devices;
use crate::engine::directory::files::{
    Access, exists, file, has_loose_end, is_raw_device, make_directory, refuse_no_directory, released_file,
    whole_path,
};
use crate::engine::directory::names::{
    SUPERBLOCK, bytes_needed, own_files, refuse_one_place_twice, refuse_others, refuse_strangers,
    refuse_too_large,
};
use crate::engine::separate_directories::{refuse_mixed, refuse_mixed_archive};
use crate::engine::superblock::copies::{Found, SECOND_COPY};
use crate::engine::superblock::{Member, Superblock};
use crate::engine::{Engine, assembly, cache, claim, log_width};
use crate::error::Error;
use crate::options::Options;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, rng};
use firndb_device::{Device, Fill, remove_file, sync_directory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Removes what an interrupted creation left, and creates anew. The superblock's mark proves that
/// nothing was ever stored.
pub(super) fn recreate(
    dir: &Path,
    interrupted: &Interrupted,
    superblock: Arc<dyn Device>,
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    options.check_new()?;
    // Other options than then name other files.
    refuse_others(dir, &interrupted.files, options)?;
    if !options.create {
        let dir = dir.display();
        let message =
            format!("{dir}: the creation of a database here was interrupted; nothing was stored in it");
        return Err(Error::not_found(message));
    }
    refuse_one_place_twice(dir, options)?;
    remove_files(dir, interrupted, options)?;
    refuse_too_large(dir, options)?;
    build(dir, (superblock, interrupted), options, archives)
}

/// Creates a database whose superblock is to be on this device. Raw devices may hold what the
/// creations left that `former` is of.
pub(super) fn build(
    dir: &Path,
    (superblock, former): (Arc<dyn Device>, &Interrupted),
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    let laid_out = lay_out(dir, (superblock, former), Making::Creating, options)?;
    let LaidOut { database, devices, members, store_paths, options } = laid_out;
    let engine = assembly::create(database, devices, members, &store_paths, &options, archives)?;
    Ok(engine)
}

/// The files of a database that is being created; the mark says so.
pub(crate) struct LaidOut {
    /// The new database's id, which the files bear.
    pub database: DatabaseId,
    pub devices: Devices,
    pub members: Vec<Member>,
    pub store_paths: Vec<String>,
    /// With the measured and timed settings.
    pub options: Options,
}

/// Raw devices of a new database, by their paths.
type RawDevices = BTreeMap<PathBuf, Arc<dyn Device>>;

/// Opens the raw devices of a new database.
///
/// Errors: `Full`: one is shorter than what is to be on it.
fn raw_devices(dir: &Path, options: &Options) -> Result<RawDevices, Error> {
    let mut raw = RawDevices::new();
    for path in own_files(dir, options) {
        if is_raw_device(&path)? {
            let device = released_file(&path, Access::Writing)?;
            raw.insert(path, device);
        }
    }
    let block = raw.values().map(|device| device.info().logical_block).max().unwrap_or(512);
    for (path, bytes) in bytes_needed(dir, options, block)? {
        if let Some(device) = raw.get(&path) {
            // It has a length of its own, and only compares.
            device.grow(bytes, Fill::Reserved)?;
        }
    }
    Ok(raw)
}

/// Releases the raw devices that an interrupted creation has claimed and `raw`, those of the new
/// one, are not. One that bears more than a claim is left alone: the mark proves nothing.
fn release_others(dir: &Path, interrupted: &Interrupted, raw: &RawDevices) -> Result<(), Error> {
    for path in interrupted.files.iter().map(|file| dir.join(file)) {
        if raw.contains_key(&path) || !is_raw_device(&path)? {
            continue;
        }
        // One that cannot be opened is not needed.
        let Ok(device) = file(&path, false) else { continue };
        for id in &interrupted.ids {
            claim::release(&*device, *id)?;
        }
    }
    Ok(())
}

/// Marks the superblock's device, and creates and claims the other files.
fn lay_out(
    dir: &Path,
    (superblock, former): (Arc<dyn Device>, &Interrupted),
    making: Making,
    options: &Options,
) -> Result<LaidOut, Error> {
    let store_paths = assembly::store_paths(options);
    // The mark names the largest set of files that there may be.
    let cache_path = cache::path(None, options);
    let names = |options: &Options| {
        assembly::file_names(&assembly::members(options), &store_paths, cache_path.clone())
    };
    let database = DatabaseId(rng::entropy());
    let raw = raw_devices(dir, options)?;
    let before = claim::take_over(raw.values(), &former.ids)?;
    release_others(dir, former, &raw)?;
    let ids: Vec<DatabaseId> = [database].into_iter().chain(before).collect();
    let made = |options: &Options| Interrupted { ids: ids.clone(), files: names(options) };
    creation_mark::mark(&superblock, making, &made(options))?;
    let mut options = options.clone().with_measured_profile(dir)?;
    if options.log.probe_devices {
        let width = log_width::probe(&superblock, SECOND_COPY)?.max(options.log.copies.unwrap_or(1));
        options = options.with_timed_width(width);
    }
    refuse_others(dir, &[], &options)?;
    // The measurement may have given the log more files.
    creation_mark::mark(&superblock, making, &made(&options))?;
    let members: Vec<Member> = assembly::members(&options);
    let mut logs = Vec::new();
    let make = |path: &str| -> Result<Arc<dyn Device>, Error> {
        let path = dir.join(path);
        let device = raw.get(&path).map_or_else(|| file(&path, true), |device| Ok(device.clone()))?;
        claim::claim(&*device, database)?;
        Ok(device)
    };
    for member in &members {
        logs.push(make(&member.path)?);
    }
    let store = make(&store_paths[0])?;
    let store_others = store_paths[1..].iter().map(|path| make(path)).collect::<Result<_, _>>()?;
    let cache = cache_path.as_deref().map(make).transpose()?;
    sync_directory(dir)?;
    let devices = Devices { superblock, logs, store, store_others, cache }.wrapped(&members, &options)?;
    let options = options.noted_as_created(dir)?;
    Ok(LaidOut { database, devices, members, store_paths, options })
}

/// Creates the files of a database that is to be restored in `dir`, where there is nothing, or what
/// an interrupted restore left. Until its superblock is written, opening it is refused.
pub(crate) fn lay_out_new(dir: &Path, options: &Options) -> Result<LaidOut, Error> {
    options.check_new()?;
    refuse_no_directory(dir)?;
    refuse_mixed(dir, "the new database")?;
    refuse_mixed_archive(Some(dir), options)?;
    let path = dir.join(SUPERBLOCK);
    refuse_one_place_twice(dir, options)?;
    let mut former = Interrupted::default();
    let superblock = if exists(&path)? {
        let superblock = file(&path, false)?;
        match Superblock::read(&superblock)? {
            Found::Nothing => refuse_others(dir, &[], options)?,
            Found::Creating(interrupted) | Found::Restoring(interrupted) => {
                refuse_others(dir, &interrupted.files, options)?;
                remove_files(dir, &interrupted, options)?;
                former = interrupted;
            }
            Found::Database(_) => {
                return Err(Error::exists(format!(
                    "{} holds a database: name a directory without one",
                    dir.display()
                )));
            }
        }
        refuse_strangers(dir)?;
        superblock
    } else {
        refuse_others(dir, &[], options)?;
        refuse_strangers(dir)?;
        refuse_too_large(dir, options)?;
        make_directory(dir)?;
        refuse_one_place_twice(dir, options)?;
        file(&path, true)?
    };
    lay_out(dir, (superblock, &former), Making::Restoring, options)
}

/// Removes what an interrupted creation left: of the files that its mark names, those that bear its
/// id, or that nothing was written to, after their locks were taken. The mark alone proves nothing:
/// between it and its files another database may have created files of these names, and the
/// directory may belong to another program. So a name that leads out of the directory counts only
/// if the options name the file as well. Raw devices stay as they are, for [`lay_out`].
///
/// Errors: `InUse`, `Unusable`: a file is not the creation's own. None is removed then.
fn remove_files(dir: &Path, interrupted: &Interrupted, options: &Options) -> Result<(), Error> {
    let within = dir.canonicalize().map_err(|error| {
        Error::unusable(format!("{}: cannot be looked at: {error}", dir.display())).caused_by(error)
    })?;
    let wanted: Vec<PathBuf> = own_files(dir, options).iter().map(|path| whole_path(path)).collect();
    let refuse = |path: &Path, why: &str| {
        let (dir, path) = (dir.display(), path.display());
        Err(Error::unusable(format!(
            "{path} is named by the interrupted creation of a database in {dir}, but {why}, and it is left alone: \
                 move it away, or remove {dir}, and begin anew"
        )))
    };
    let mut own: Vec<(PathBuf, Arc<dyn Device>)> = Vec::new();
    for file in &interrupted.files {
        let path = dir.join(file);
        if !exists(&path)? || is_raw_device(&path)? {
            continue;
        }
        let whole = whole_path(&path);
        if !whole.starts_with(&within) && !wanted.contains(&whole) {
            return refuse(&path, "lies elsewhere");
        }
        let device = released_file(&path, Access::Writing)?;
        if has_loose_end(&path, &*device)? || !claim::is_of(&*device, &interrupted.ids)? {
            return refuse(&path, "holds something else");
        }
        own.push((path, device));
    }
    for (path, _locked) in &own {
        remove_file(path)?;
    }
    Ok(())
}
