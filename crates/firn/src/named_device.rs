//! Devices that users name by a path, to be added to an open database.

use crate::database::Database;
use crate::engine::devices::Candidate;
use crate::engine::directory::files::{directory_of, open_or_make};
use crate::error::Error;
use firndb_device::sync_directory;
use std::path::{Path, PathBuf};

/// A file or raw device of a path that a user gave.
pub(crate) struct NamedDevice<'a> {
    /// The database's directory.
    pub dir: &'a Path,
    /// Relative to that, or absolute.
    name: String,
    /// Both together.
    pub whole: PathBuf,
}

impl Database {
    /// What a path means, which counts from the database's directory.
    ///
    /// Errors: `BadArgument` if it is no UTF-8, or the database has no directory.
    pub(crate) fn named(&self, path: &Path) -> Result<NamedDevice<'_>, Error> {
        let dir = self.directory().ok_or_else(|| {
            Error::bad_argument("this database lies on devices, not in a directory: give a device")
        })?;
        let name = path.to_str().ok_or_else(|| {
            let path = path.display();
            Error::bad_argument(format!("{path} is no text in UTF-8; give the file another name"))
        })?;
        Ok(NamedDevice { dir, name: name.to_owned(), whole: dir.join(name) })
    }
}

impl NamedDevice<'_> {
    /// Opens it; creates the file if it is not there, durably.
    ///
    /// Errors: `BadArgument` if it holds something that is no device's; `InUse`, `Unusable`.
    pub(crate) fn open_or_make(self) -> Result<Candidate, Error> {
        let device = open_or_make(&self.whole)?;
        sync_directory(directory_of(&self.whole))?;
        Ok(Candidate { device, path: self.name })
    }
}
