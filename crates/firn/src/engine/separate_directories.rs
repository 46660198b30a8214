//! Directories that must not mix: databases, backups and archives each have directories of their
//! own.
//!
//! An archive that appends its segments beside a database's files, or a backup within another,
//! works until one of them is moved, removed or restored, and takes the other with it. So a
//! directory that is to be one is refused if it is another already, or lies in one. Paths are
//! compared as the file system has them, symbolic links followed.

use crate::engine::directory::names::SUPERBLOCK;
use crate::error::Error;
use crate::options::Options;
use firndb_log::archive::ArchiveFiles;
use std::path::{Component, Path, PathBuf};

/// The file that says what a backup is; the last to be written.
pub(crate) const MANIFEST: &str = "backup.firn";

/// What a directory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Database,
    Backup,
    Archive,
}

impl Use {
    fn of(directory: &Path) -> Option<Use> {
        // Backups go first, since their log is in a directory below.
        if directory.join(MANIFEST).is_file() {
            return Some(Use::Backup);
        }
        if directory.join(SUPERBLOCK).is_file() {
            return Some(Use::Database);
        }
        ArchiveFiles::new(directory).holds_any().then_some(Use::Archive)
    }

    fn name(self) -> &'static str {
        match self {
            Use::Database => "a database",
            Use::Backup => "a backup",
            Use::Archive => "an archive",
        }
    }
}

/// The error of an opening where there is no database.
pub(crate) fn no_database(directory: &Path) -> Error {
    let but = match Use::of(directory) {
        Some(Use::Backup) => ", but a backup: restore it to make a database of it (firn restore)",
        Some(Use::Archive) => ", but an archive: name the database that it is of",
        Some(Use::Database) | None => "",
    };
    Error::not_found(format!("{}: there is no Firn database here{but}", directory.display()))
}

/// `path` as the file system has it: links followed as far as it exists.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut real = PathBuf::new();
    for part in whole.components() {
        match part {
            // The real parent of a directory that exists.
            Component::ParentDir => drop(real.pop()),
            part => real.push(part),
        }
        if let Ok(found) = real.canonicalize() {
            real = found;
        }
    }
    real
}

fn refuse(directory: &Path, what: &str, why: &str) -> Error {
    Error::unusable(format!(
        "{} cannot be the directory of {what}: {why}; name a directory of its own",
        directory.display()
    ))
}

/// Refuses a directory for `what` that lies in the directory of a database, a backup or an archive.
pub(crate) fn refuse_mixed(directory: &Path, what: &str) -> Result<(), Error> {
    for above in real_path(directory).ancestors().skip(1) {
        if let Some(found) = Use::of(above) {
            let why = format!("it lies in {}, which holds {}", above.display(), found.name());
            return Err(refuse(directory, what, &why));
        }
    }
    Ok(())
}

/// Refuses a directory for `what` that is the database's, lies in it or contains it.
fn refuse_around(directory: &Path, what: &str, database: &Path) -> Result<(), Error> {
    let (real, database) = (real_path(directory), real_path(database));
    let why = if real == database {
        "it is the database's"
    } else if real.starts_with(&database) {
        "it lies in the database's"
    } else if database.starts_with(&real) {
        "the database's lies in it"
    } else {
        return Ok(());
    };
    Err(refuse(directory, what, why))
}

/// Refuses a directory for a new database that would mix with anything.
pub(crate) fn refuse_mixed_database(directory: &Path) -> Result<(), Error> {
    const WHAT: &str = "a new database";
    refuse_mixed(directory, WHAT)?;
    match Use::of(directory) {
        None | Some(Use::Database) => Ok(()),
        Some(other) => Err(refuse(directory, WHAT, &format!("it holds {}", other.name()))),
    }
}

/// Refuses a directory for a backup of the database in `database` that would mix with anything.
/// Whether it is empty is checked when it is created.
pub(crate) fn refuse_mixed_backup(directory: &Path, database: Option<&Path>) -> Result<(), Error> {
    const WHAT: &str = "a backup";
    if let Some(database) = database {
        refuse_around(directory, WHAT, database)?;
    }
    refuse_mixed(directory, WHAT)
}

/// Refuses an archive's directory, named in the options of the database in `database`, that would
/// mix with anything. Whether it is another database's archive is checked when it is opened.
pub(crate) fn refuse_mixed_archive(database: Option<&Path>, options: &Options) -> Result<(), Error> {
    const WHAT: &str = "an archive";
    let Some(path) = &options.archive.directory else { return Ok(()) };
    let directory = options.archive.base.as_deref().map_or_else(|| path.clone(), |base| base.join(path));
    if let Some(database) = database {
        refuse_around(&directory, WHAT, database)?;
    }
    refuse_mixed(&directory, WHAT)?;
    match Use::of(&directory) {
        None | Some(Use::Archive) => Ok(()),
        Some(other) => Err(refuse(&directory, WHAT, &format!("it holds {}", other.name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_the_file_system_has_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join("a/b")).expect("made");
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).expect("made");
        for (given, real) in [
            ("a/b", "a/b"),
            ("link", "a/b"),
            ("link/c/d", "a/b/c/d"),
            ("link/..", "a"),
            ("link/../b/./new", "a/b/new"),
            ("none/../a", "a"),
        ] {
            assert_eq!(real_path(&root.join(given)), root.join(real), "{given}");
        }
    }
}
