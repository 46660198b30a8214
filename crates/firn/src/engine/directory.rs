//! A database directory: which files there are, and opening them.
//!
//! ```text
//! DIR/superblock   where everything else is found; locked while the database is open
//! DIR/log.0 …      the log, pre-written, recycled
//! DIR/store        the page store
//! DIR/cache        the flash cache, if one was asked for
//! ```

use crate::engine::archiver::OpenArchive;
use crate::engine::creation_mark::{self, Interrupted, Making};
use crate::engine::devices::Devices;
use crate::engine::separate_directories::{refuse_mixed, refuse_mixed_archive};
use crate::engine::superblock::{Found, Member, SECOND_COPY, Superblock};
use crate::engine::{Engine, assembly, cache, claim, log_width, recovery};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, clock, rng};
use firndb_device::{
    AbsentDevice, Device, DeviceError, DeviceErrorKind, FileDevice, FileOptions, available_bytes,
    remove_file, sync_directory,
};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const SUPERBLOCK: &str = "superblock";
const STORE: &str = "store";

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
                refuse_one_name_twice(dir, &options)?;
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
    options.check()?;
    refuse_one_name_twice(dir, options)?;
    refuse_others(dir, &[], options)?;
    if !options.create {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: there is no Firn database here", dir.display()),
        ));
    }
    refuse_too_large(dir, options)?;
    make_directory(dir)?;
    refuse_one_name_twice(dir, options)?;
    let superblock = file(&path, true)?;
    build(dir, superblock, options, archives)
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
                let why = DeviceError::new(DeviceErrorKind::Failed, error.to_string());
                logs.push(Arc::new(AbsentDevice::new(&path.display().to_string(), why)));
            }
        }
    }
    let store = released_file(&dir.join(&found.store_path), access)
        .map_err(|error| error.within(&missing("the page store")))?;
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
            let path = dir.join(path);
            // A cache that was given up may still be there.
            let device = if exists(&path)? { released_file(&path, access)? } else { file(&path, true)? };
            sync_directory(path.parent().unwrap_or(dir))?;
            Some(device)
        }
    };
    let devices = Devices { superblock, logs, store, cache }.wrapped(&found.members, options)?;
    recovery::open(found, devices, options, archives)
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
        let message = format!("{}: there is no Firn database here", dir.display());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    let device = open_to_read(&path)?;
    match Superblock::read(&device)? {
        Found::Database(superblock) => Ok((device, superblock)),
        Found::Nothing => Err(Error::damaged(format!(
            "{}: it is empty: the creation of a database here was interrupted, or a database lost its superblock; \
             open it to find out which",
            path.display()
        ))),
        Found::Creating(_) => Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: the creation of a database here was interrupted", dir.display()),
        )),
        Found::Restoring(_) => Err(unfinished_restore(dir)),
    }
}

/// Opens a file or raw device of a database whose superblock is held, for reading.
pub(crate) fn open_existing(path: &Path) -> Result<Arc<dyn Device>, Error> {
    released_file(path, Access::Reading)
}

/// Opens a file or raw device; creates the file if it is not there.
pub(crate) fn open_or_make(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let create = !exists(path)?;
    let device = file(path, create)?;
    if !create && has_loose_end(path, &*device)? {
        let message = format!("{} holds something: give an empty file or device", path.display());
        return Err(Error::new(ErrorKind::BadArgument, message));
    }
    Ok(device)
}

/// Whether a file has bytes behind its last whole block, which no device shows: no file of Firn's
/// has.
fn has_loose_end(path: &Path, device: &dyn Device) -> Result<bool, Error> {
    let found = std::fs::metadata(path).map_err(|error| {
        Error::new(ErrorKind::Unusable, format!("{}: {error}", path.display())).caused_by(error)
    })?;
    Ok(found.is_file() && found.len() != device.len())
}

/// The directory that a file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a path that one of the database's files has.
pub(crate) fn refuse_own_files(dir: &Path, path: &Path, superblock: &Superblock) -> Result<(), Error> {
    let logs = superblock.members.iter().map(|member| dir.join(&member.path));
    let cache = superblock.extensions.cache.iter().map(|cache| dir.join(&cache.path));
    let mut own = logs.chain(cache).chain([dir.join(SUPERBLOCK), dir.join(&superblock.store_path)]);
    if own.any(|own| whole_path(&own) == whole_path(path)) {
        let message = format!("{} is a file of the database already", path.display());
        return Err(Error::new(ErrorKind::BadArgument, message));
    }
    Ok(())
}

/// Removes what an interrupted creation left, and creates anew. The superblock's mark proves that
/// nothing was ever stored.
fn recreate(
    dir: &Path,
    interrupted: &Interrupted,
    superblock: Arc<dyn Device>,
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    options.check()?;
    // Other options than then name other files.
    refuse_others(dir, &interrupted.files, options)?;
    if !options.create {
        let dir = dir.display();
        let message =
            format!("{dir}: the creation of a database here was interrupted; nothing was stored in it");
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    refuse_one_name_twice(dir, options)?;
    remove_files(dir, interrupted, options)?;
    refuse_too_large(dir, options)?;
    build(dir, superblock, options, archives)
}

fn build(
    dir: &Path,
    superblock: Arc<dyn Device>,
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    let laid_out = lay_out(dir, superblock, Making::Creating, options)?;
    let LaidOut { database, devices, members, store_path, options } = laid_out;
    let engine = assembly::create(database, devices, members, store_path, &options, archives)?;
    Ok(engine)
}

/// The files of a database that is being created; the mark says so.
pub(crate) struct LaidOut {
    /// The new database's id, which the files bear.
    pub database: DatabaseId,
    pub devices: Devices,
    pub members: Vec<Member>,
    pub store_path: String,
    /// With the measured and timed settings.
    pub options: Options,
}

/// Marks the superblock's device, and creates and claims the other files.
fn lay_out(
    dir: &Path,
    superblock: Arc<dyn Device>,
    making: Making,
    options: &Options,
) -> Result<LaidOut, Error> {
    let store_path = options.store_path.clone().unwrap_or_else(|| PathBuf::from(STORE));
    let store_path = store_path.to_string_lossy().into_owned();
    // The mark names the largest set of files that there may be.
    let cache_path = cache::path(None, options);
    let names = |options: &Options| {
        assembly::file_names(&assembly::members(options), &store_path, cache_path.clone())
    };
    let database = DatabaseId(rng::entropy());
    let made = |options: &Options| Interrupted { ids: vec![database], files: names(options) };
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
        let device = file(&dir.join(path), true)?;
        claim::claim(&*device, database)?;
        Ok(device)
    };
    for member in &members {
        logs.push(make(&member.path)?);
    }
    let store = make(&store_path)?;
    let cache = cache_path.as_deref().map(make).transpose()?;
    sync_directory(dir)?;
    let devices = Devices { superblock, logs, store, cache }.wrapped(&members, &options)?;
    let options = options.noted_as_created(dir)?;
    Ok(LaidOut { database, devices, members, store_path, options })
}

/// Creates the files of a database that is to be restored in `dir`, where there is nothing, or what
/// an interrupted restore left. Until its superblock is written, opening it is refused.
pub(crate) fn lay_out_new(dir: &Path, options: &Options) -> Result<LaidOut, Error> {
    options.check()?;
    refuse_no_directory(dir)?;
    refuse_mixed(dir, "the new database")?;
    refuse_mixed_archive(Some(dir), options)?;
    let path = dir.join(SUPERBLOCK);
    refuse_one_name_twice(dir, options)?;
    let superblock = if exists(&path)? {
        let superblock = file(&path, false)?;
        match Superblock::read(&superblock)? {
            Found::Nothing => refuse_others(dir, &[], options)?,
            Found::Creating(interrupted) | Found::Restoring(interrupted) => {
                refuse_others(dir, &interrupted.files, options)?;
                remove_files(dir, &interrupted, options)?;
            }
            Found::Database(_) => {
                return Err(Error::new(
                    ErrorKind::Exists,
                    format!("{} holds a database: name a directory without one", dir.display()),
                ));
            }
        }
        refuse_strangers(dir)?;
        superblock
    } else {
        refuse_others(dir, &[], options)?;
        refuse_strangers(dir)?;
        refuse_too_large(dir, options)?;
        make_directory(dir)?;
        refuse_one_name_twice(dir, options)?;
        file(&path, true)?
    };
    lay_out(dir, superblock, Making::Restoring, options)
}

/// The error for opening a directory in which a restore was interrupted.
pub(crate) fn unfinished_restore(dir: &Path) -> Error {
    Error::new(
        ErrorKind::Unusable,
        format!(
            "{}: restoring a database here was interrupted, and it is not whole: restore it again, into the same directory",
            dir.display()
        ),
    )
}

/// Removes what an interrupted creation left: of the files that its mark names, those that bear its
/// id, or that nothing was written to, after their locks were taken. The mark alone proves nothing:
/// between it and its files another database may have created files of these names, and the
/// directory may belong to another program. So a name that leads out of the directory counts only
/// if the options name the file as well.
///
/// Errors: `InUse`, `Unusable`: a file is not the creation's own. None is removed then.
fn remove_files(dir: &Path, interrupted: &Interrupted, options: &Options) -> Result<(), Error> {
    let within = dir.canonicalize().map_err(|error| {
        Error::new(ErrorKind::Unusable, format!("{}: cannot be looked at: {error}", dir.display()))
            .caused_by(error)
    })?;
    let wanted: Vec<PathBuf> = own_files(dir, options).iter().map(|path| whole_path(path)).collect();
    let refuse = |path: &Path, why: &str| {
        let (dir, path) = (dir.display(), path.display());
        Err(Error::new(
            ErrorKind::Unusable,
            format!(
                "{path} is named by the interrupted creation of a database in {dir}, but {why}, and it is left alone: \
                 move it away, or remove {dir}, and begin anew"
            ),
        ))
    };
    let mut own: Vec<(PathBuf, Arc<dyn Device>)> = Vec::new();
    for file in &interrupted.files {
        let path = dir.join(file);
        if !exists(&path)? {
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

/// The files of a database created with these options, except for the superblock.
fn own_files(dir: &Path, options: &Options) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        assembly::members(options).iter().map(|member| dir.join(&member.path)).collect();
    paths.push(dir.join(options.store_path.clone().unwrap_or_else(|| PathBuf::from(STORE))));
    paths.extend(cache::path(None, options).map(|path| dir.join(path)));
    paths
}

/// Refuses options that give two of the database's files one name: the second would take the first
/// for what an interrupted creation left.
fn refuse_one_name_twice(dir: &Path, options: &Options) -> Result<(), Error> {
    let mut paths = vec![whole_path(&dir.join(SUPERBLOCK))];
    for path in own_files(dir, options) {
        let path = whole_path(&path);
        if paths.contains(&path) {
            return Err(Error::new(
                ErrorKind::BadArgument,
                format!("{} is named for two files of the database; give each its own", path.display()),
            ));
        }
        paths.push(path);
    }
    Ok(())
}

/// Refuses to create files that are larger than the free space of their file systems, before
/// trying: some file systems report that only when they are full.
fn refuse_too_large(dir: &Path, options: &Options) -> Result<(), Error> {
    let logs = assembly::members(options).into_iter().map(|member| (dir.join(&member.path), member.bytes));
    let cache = cache::path(None, options).map(|path| (dir.join(path), options.cache.bytes.unwrap_or(0)));
    let mut wanted: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    for (path, bytes) in logs.chain(cache) {
        // The directory may not exist yet.
        let Some((at, found)) = path.ancestors().skip(1).find_map(|at| {
            let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
            Some((at.to_path_buf(), std::fs::metadata(at).ok()?))
        }) else {
            continue;
        };
        let sum = &mut wanted.entry(found.dev()).or_insert((at, 0)).1;
        *sum = sum.saturating_add(bytes);
    }
    for (at, bytes) in wanted.into_values() {
        if let Some(free) = available_bytes(&at).filter(|free| *free < bytes) {
            return Err(Error::new(
                ErrorKind::Full,
                format!(
                    "the database's files need {bytes} bytes in {}, whose file system has {free} bytes free: make them smaller \
                     (log_bytes, cache_bytes), put them elsewhere, or free space",
                    at.display()
                ),
            ));
        }
    }
    Ok(())
}

/// `path` without detours, as far as its directory exists.
fn whole_path(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.components().collect(),
    }
}

/// Refuses to create a database over files of the same names, except for those that `marked` names:
/// they may belong to a database that lost its superblock.
fn refuse_others(dir: &Path, marked: &[String], options: &Options) -> Result<(), Error> {
    let marked: Vec<PathBuf> = marked.iter().map(|file| whole_path(&dir.join(file))).collect();
    for path in own_files(dir, options) {
        if exists(&path)? && !marked.contains(&whole_path(&path)) {
            return Err(Error::damaged(format!(
                "{} exists but {} does not, or is empty: this may be a database that lost its superblock; restore it, or remove the files to begin anew",
                path.display(),
                dir.join(SUPERBLOCK).display()
            )));
        }
    }
    Ok(())
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// By this process alone.
    Writing,
    /// Beside other readers.
    Reading,
}

fn open_to_read(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    Ok(Arc::new(FileDevice::open(path, &options)?))
}

fn file(path: &Path, create: bool) -> Result<Arc<dyn Device>, Error> {
    let options = FileOptions::default();
    let device = if create { FileDevice::create(path, &options) } else { FileDevice::open(path, &options) };
    Ok(Arc::new(device?))
}

/// How long the lock of a file may outlive the process that held it.
const LINGERING_MAX: Duration = Duration::from_secs(3);
const LINGERING_LOOK: Duration = Duration::from_millis(2);

/// Opens a file of a database whose superblock is locked here already, so that no living process
/// can have it. A process that was killed may leave requests in the kernel (io_uring), which keep
/// their files open, and so locked, until they are done: some milliseconds after it is gone.
/// Waiting for the lock is waiting for its last write; without it that write could land after
/// recovery has read the block.
fn released_file(path: &Path, access: Access) -> Result<Arc<dyn Device>, Error> {
    let begun = clock::now();
    loop {
        let opened = match access {
            Access::Writing => file(path, false),
            Access::Reading => open_to_read(path),
        };
        match opened {
            Err(error) if error.kind() == ErrorKind::InUse && begun.elapsed() < LINGERING_MAX => {
                clock::sleep(LINGERING_LOOK);
            }
            other => return other,
        }
    }
}

/// Refuses a path that exists and is no directory, and a link to nothing: the kernel's later error
/// would be of little help.
pub(crate) fn refuse_no_directory(dir: &Path) -> Result<(), Error> {
    let message = match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => format!("{} is a file: name the directory that a database is in", dir.display()),
        Err(error) => match std::fs::read_link(dir) {
            Ok(target) => format!(
                "{} is a symbolic link to {}, which cannot be used ({error}): mend the link, or name another directory",
                dir.display(),
                target.display()
            ),
            Err(_) => return Ok(()),
        },
    };
    Err(Error::new(ErrorKind::Unusable, message))
}

fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(|error| {
        Error::new(ErrorKind::Unusable, format!("{}: {error}", path.display())).caused_by(error)
    })
}

pub(crate) fn make_directory(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let unusable = |error: std::io::Error| {
        Error::new(ErrorKind::Unusable, format!("{}: cannot make the directory: {error}", dir.display()))
            .caused_by(error)
    };
    if exists(dir)? {
        return if dir.is_dir() {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Unusable, format!("{} is not a directory", dir.display())))
        };
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_directory(parent)?;
    }
    Ok(())
}

/// Refuses a directory for a restored database that holds anything but its superblock's file and
/// settings (`firn.toml` and profiles, which may be there first).
fn refuse_strangers(dir: &Path) -> Result<(), Error> {
    let unusable = |error: std::io::Error| {
        Error::new(ErrorKind::Unusable, format!("{} cannot be listed: {error}", dir.display()))
            .caused_by(error)
    };
    if !exists(dir)? {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir).map_err(unusable)? {
        let name = entry.map_err(unusable)?.file_name();
        let is_setting = Path::new(&name).extension().is_some_and(|extension| extension == "toml");
        if name != SUPERBLOCK && !is_setting {
            return Err(Error::new(
                ErrorKind::Exists,
                format!(
                    "{} is not empty, it holds {}: name a directory that is empty, or not there yet",
                    dir.display(),
                    Path::new(&name).display()
                ),
            ));
        }
    }
    Ok(())
}
