//! Opening the device to which queries spill.

use crate::engine::Engine;
use crate::engine::directory::files::open_spill;
use crate::engine::directory::names::refuse_own_files;
use crate::error::Error;
use firndb_spill::SpillSpace;
use std::path::Path;

impl Engine {
    /// Opens and empties it, if the options name one. `dir` is the database's directory.
    ///
    /// Errors: `BadArgument` if it is a file of the database, or holds other than rows of queries;
    /// `InUse` if another process has it; the device's.
    pub(crate) fn open_spill(&self, dir: Option<&Path>) -> Result<(), Error> {
        let options = &self.options;
        let device = match (&options.testing.spill, &options.spill_path) {
            (Some(device), _) => device.clone(),
            (None, Some(path)) => {
                let path = dir.map_or_else(|| path.clone(), |dir| dir.join(path));
                if let Some(dir) = dir {
                    refuse_own_files(dir, &path, &self.superblock.lock())?;
                }
                open_spill(&path)?
            }
            (None, None) => return Ok(()),
        };
        let device = match &options.testing.wrap_device {
            Some(wrap) => wrap("spill", device)?,
            None => device,
        };
        let space = SpillSpace::open(device, options.spill_bytes)?;
        assert!(self.queries.spill.set(space).is_ok(), "a database is opened once");
        Ok(())
    }
}
