//! A database directory: which files there are, and opening them.
//!
//! ```text
//! DIR/superblock   where everything else is found; locked while the database is open
//! DIR/log.0 …      the log, pre-written, recycled
//! DIR/store        the page store
//! DIR/cache        the flash cache, if one was asked for
//! ```

use crate::assembly;
use crate::cache;
use crate::devices::Devices;
use crate::engine::Engine;
use crate::log_width;
use crate::recovery;
use crate::superblock::{Found, Making, Member, SECOND_COPY, Superblock};
use crate::{Error, ErrorKind, Options};
use firn_base::clock;
use firn_base::sync::Arc;
use firn_device::{
    AbsentDevice, Device, DeviceError, DeviceErrorKind, FileDevice, FileOptions, remove_file, sync_directory,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SUPERBLOCK: &str = "superblock";
const STORE: &str = "store";

/// Opens the database in `dir`, or creates it there.
pub(crate) fn open(dir: &Path, options: &Options) -> Result<Arc<Engine>, Error> {
    let mut options = options.with_profiles(Some(dir))?;
    options.archive.base = Some(dir.to_path_buf());
    let options = &options;
    let path = dir.join(SUPERBLOCK);
    if exists(&path)? {
        let superblock = file(&path, false)?;
        match Superblock::read(&superblock)? {
            Found::Database(found) => {
                let options = options.for_existing(&found);
                options.check()?;
                refuse_one_name_twice(dir, &options)?;
                return open_found(dir, found, superblock, &options);
            }
            // A process that creates the file may lose it to one that opens it, before it has the lock.
            Found::Nothing => {
                options.check()?;
                refuse_others(dir, options)?;
                return recreate(dir, &[], superblock, options);
            }
            Found::Creating(files) => return recreate(dir, &files, superblock, options),
            Found::Restoring(_) => return Err(unfinished_restore(dir)),
        }
    }
    options.check()?;
    refuse_one_name_twice(dir, options)?;
    refuse_others(dir, options)?;
    if !options.create {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: there is no Firn database here", dir.display()),
        ));
    }
    make_directory(dir)?;
    refuse_one_name_twice(dir, options)?;
    let superblock = file(&path, true)?;
    build(dir, superblock, options)
}

fn open_found(
    dir: &Path,
    found: Superblock,
    superblock: Arc<dyn Device>,
    options: &Options,
) -> Result<Arc<Engine>, Error> {
    let missing = |what: &str| format!("{what} of the database in {} cannot be opened", dir.display());
    let mut logs: Vec<Arc<dyn Device>> = Vec::new();
    // Copies may make up for so many.
    let mut spare = found.redundancy().least_from(found.redo_start) - 1;
    for member in &found.members {
        let path = dir.join(&member.path);
        match log_file(&path, member) {
            Ok(log) => logs.push(log),
            Err(error) if spare == 0 => return Err(error.within(&missing("a log device"))),
            Err(error) => {
                spare -= 1;
                let why = DeviceError::new(DeviceErrorKind::Failed, error.to_string());
                logs.push(Arc::new(AbsentDevice::new(&path.display().to_string(), why)));
            }
        }
    }
    let store = released_file(&dir.join(&found.store_path))
        .map_err(|error| error.within(&missing("the page store")))?;
    let cache = match (&found.extensions.cache, cache::path(Some(&found), options)) {
        (_, None) => None,
        _ if options.without_cache => None,
        (Some(known), Some(path)) => match released_file(&dir.join(path)) {
            Ok(device) => Some(device),
            Err(_) if known.write_through => None,
            Err(error) => {
                let what = "the flash cache, which holds pages that nothing else has,";
                return Err(error.within(&missing(what)));
            }
        },
        (None, Some(path)) => {
            let path = dir.join(path);
            // One that was given up may still be there.
            let device = if exists(&path)? { released_file(&path)? } else { file(&path, true)? };
            sync_directory(path.parent().unwrap_or(dir))?;
            Some(device)
        }
    };
    let devices = Devices { superblock, logs, store, cache }.wrapped(&found.members, options)?;
    recovery::open(found, devices, options)
}

fn log_file(path: &Path, member: &Member) -> Result<Arc<dyn Device>, Error> {
    let log = released_file(path)?;
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

/// The superblock of the database in `dir`; nobody else opens that while its device is held.
pub(crate) fn hold_superblock(dir: &Path) -> Result<(Arc<dyn Device>, Superblock), Error> {
    let path = dir.join(SUPERBLOCK);
    if !exists(&path)? {
        let message = format!("{}: there is no Firn database here", dir.display());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    let device = file(&path, false)?;
    match Superblock::read(&device)? {
        Found::Database(superblock) => Ok((device, superblock)),
        Found::Nothing => Err(Error::damaged(format!(
            "{}: it is empty: the creation of a database here was interrupted, or a database lost its superblock; \
             open it to be told which",
            path.display()
        ))),
        Found::Creating(_) => Err(Error::new(
            ErrorKind::NotFound,
            format!("{}: the creation of a database here was interrupted", dir.display()),
        )),
        Found::Restoring(_) => Err(unfinished_restore(dir)),
    }
}

/// A file or raw device that is there.
pub(crate) fn open_existing(path: &Path) -> Result<Arc<dyn Device>, Error> {
    released_file(path)
}

/// A file or raw device, made as a file if it is not there.
pub(crate) fn open_or_make(path: &Path) -> Result<Arc<dyn Device>, Error> {
    file(path, !exists(path)?)
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

/// Removes what an interrupted creation left, and creates anew. The superblock vouches that nothing was
/// ever stored, and that the creation made `files` if they exist.
fn recreate(
    dir: &Path,
    files: &[String],
    superblock: Arc<dyn Device>,
    options: &Options,
) -> Result<Arc<Engine>, Error> {
    if !options.create {
        let dir = dir.display();
        let message =
            format!("{dir}: the creation of a database here was interrupted; nothing was stored in it");
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    options.check()?;
    refuse_one_name_twice(dir, options)?;
    remove_files(dir, files)?;
    // Under other options than then, other files.
    refuse_others(dir, options)?;
    build(dir, superblock, options)
}

fn build(dir: &Path, superblock: Arc<dyn Device>, options: &Options) -> Result<Arc<Engine>, Error> {
    let laid_out = lay_out(dir, superblock, Making::Creating, options)?;
    let LaidOut { devices, members, store_path, options } = laid_out;
    let engine = assembly::create(devices, members, store_path, &options)?;
    Ok(engine)
}

/// The files of a database that is being created, of which the mark says so.
pub(crate) struct LaidOut {
    pub devices: Devices,
    pub members: Vec<Member>,
    pub store_path: String,
    /// With what was found out.
    pub options: Options,
}

/// Marks the superblock's device and makes the other files.
fn lay_out(
    dir: &Path,
    superblock: Arc<dyn Device>,
    making: Making,
    options: &Options,
) -> Result<LaidOut, Error> {
    let store_path = options.store_path.clone().unwrap_or_else(|| PathBuf::from(STORE));
    let store_path = store_path.to_string_lossy().into_owned();
    // The mark names the most files there may be.
    let cache_path = cache::path(None, options);
    let names = |options: &Options| {
        assembly::file_names(&assembly::members(options), &store_path, cache_path.clone())
    };
    Superblock::mark_making(&superblock, making, &names(options))?;
    let mut options = options.clone().with_measured_profile(dir)?;
    if options.probe_log_devices {
        let width = log_width::probe(&superblock, SECOND_COPY)?.max(options.log_copies.unwrap_or(1));
        options = options.with_timed_width(width);
    }
    refuse_others(dir, &options)?;
    // Measured, the log may have got more files than was thought.
    Superblock::mark_making(&superblock, making, &names(&options))?;
    let members: Vec<Member> = assembly::members(&options);
    let mut logs = Vec::new();
    for member in &members {
        logs.push(file(&dir.join(&member.path), true)?);
    }
    let store = file(&dir.join(&store_path), true)?;
    let cache = cache_path.as_ref().map(|path| file(&dir.join(path), true)).transpose()?;
    sync_directory(dir)?;
    let devices = Devices { superblock, logs, store, cache }.wrapped(&members, &options)?;
    let options = options.noted_as_created(dir)?;
    Ok(LaidOut { devices, members, store_path, options })
}

/// Makes the files of a database that is to be restored in `dir`, where there is none. Until its superblock is written,
/// opening it is refused.
pub(crate) fn lay_out_new(dir: &Path, options: &Options) -> Result<LaidOut, Error> {
    options.check()?;
    let path = dir.join(SUPERBLOCK);
    refuse_one_name_twice(dir, options)?;
    let superblock = if exists(&path)? {
        let superblock = file(&path, false)?;
        match Superblock::read(&superblock)? {
            Found::Nothing => {}
            Found::Creating(files) | Found::Restoring(files) => remove_files(dir, &files)?,
            Found::Database(_) => {
                return Err(Error::new(
                    ErrorKind::Exists,
                    format!("{} holds a database: name a directory without one", dir.display()),
                ));
            }
        }
        refuse_others(dir, options)?;
        superblock
    } else {
        refuse_others(dir, options)?;
        make_directory(dir)?;
        refuse_one_name_twice(dir, options)?;
        file(&path, true)?
    };
    lay_out(dir, superblock, Making::Restoring, options)
}

/// Why a directory in which restoring was interrupted is not opened.
pub(crate) fn unfinished_restore(dir: &Path) -> Error {
    Error::new(
        ErrorKind::Unusable,
        format!(
            "{}: restoring a database here was interrupted, and it is not whole: restore it again, into the same directory",
            dir.display()
        ),
    )
}

/// Removes what an interrupted creation left.
fn remove_files(dir: &Path, files: &[String]) -> Result<(), Error> {
    for path in files.iter().map(|file| dir.join(file)) {
        if exists(&path)? {
            remove_file(&path)?;
        }
    }
    Ok(())
}

/// The files that a database made with these options has, but for the superblock.
fn own_files(dir: &Path, options: &Options) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        assembly::members(options).iter().map(|member| dir.join(&member.path)).collect();
    paths.push(dir.join(options.store_path.clone().unwrap_or_else(|| PathBuf::from(STORE))));
    paths.extend(cache::path(None, options).map(|path| dir.join(path)));
    paths
}

/// Refuses options that give two of the database's files one name: the second would take the first for
/// what an interrupted creation left.
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

/// `path` without detours, as far as its directory exists.
fn whole_path(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.components().collect(),
    }
}

/// Refuses to create a database over files of the same names: they may be a database that lost its
/// superblock.
fn refuse_others(dir: &Path, options: &Options) -> Result<(), Error> {
    for path in own_files(dir, options) {
        if exists(&path)? {
            return Err(Error::damaged(format!(
                "{} exists but {} does not, or is empty: this may be a database that lost its superblock; restore it, or remove the files to begin anew",
                path.display(),
                dir.join(SUPERBLOCK).display()
            )));
        }
    }
    Ok(())
}

fn file(path: &Path, create: bool) -> Result<Arc<dyn Device>, Error> {
    let options = FileOptions::default();
    let device = if create { FileDevice::create(path, &options) } else { FileDevice::open(path, &options) };
    Ok(Arc::new(device?))
}

/// How long the lock of a file may outlive the process that held it.
const LINGERING_MAX: Duration = Duration::from_secs(3);
const LINGERING_LOOK: Duration = Duration::from_millis(2);

/// Opens a file of a database whose superblock is locked here already, so that no living process can have
/// it. A process that was killed may leave requests in the kernel (io_uring), which keep their files open,
/// and so locked, until they are done: some milliseconds after it is gone. To wait for the lock is to wait
/// for its last write; going on without it would let that write land after recovery has read the place.
fn released_file(path: &Path) -> Result<Arc<dyn Device>, Error> {
    let begun = clock::now();
    loop {
        match file(path, false) {
            Err(error) if error.kind() == ErrorKind::InUse && begun.elapsed() < LINGERING_MAX => {
                clock::sleep(LINGERING_LOOK);
            }
            other => return other,
        }
    }
}

fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(|error| Error::new(ErrorKind::Unusable, format!("{}: {error}", path.display())))
}

pub(crate) fn make_directory(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let unusable = |error: std::io::Error| {
        Error::new(ErrorKind::Unusable, format!("{}: cannot make the directory: {error}", dir.display()))
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
