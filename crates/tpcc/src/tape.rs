//! Recording what a database asks of its files, one trace a file.

use firndb::Options;
use firndb::device::{DeviceError, DeviceErrorKind, Recording};
use firndb_base::clock;
use firndb_console::{Failure, say, size};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Each file's trace and recording, by the file's name.
type ByName = BTreeMap<String, (PathBuf, Arc<Recording>)>;

/// The recordings of one database, each a file of the directory.
pub struct Tapes {
    dir: PathBuf,
    recordings: Arc<Mutex<ByName>>,
}

impl Tapes {
    /// Makes the directory, if there is none.
    pub fn in_directory(dir: &Path) -> Result<Tapes, Failure> {
        std::fs::create_dir_all(dir).map_err(|error| {
            Failure::new(format!("{}: cannot make the directory: {error}", dir.display()))
        })?;
        Ok(Tapes { dir: dir.to_owned(), recordings: Arc::default() })
    }

    /// The options, with a recording around each file; older traces of the same names are replaced.
    pub fn record(&self, options: Options) -> Options {
        let (dir, recordings, began) = (self.dir.clone(), self.recordings.clone(), clock::now());
        options.wrap_devices(move |name, device| {
            let path = dir.join(format!("{name}.trace"));
            let unusable = |error: std::io::Error| {
                DeviceError::new(DeviceErrorKind::Unusable, format!("{}: {error}", path.display()))
            };
            let file = File::create(&path).map_err(unusable)?;
            let recording = Arc::new(Recording::new(device, Box::new(file), began).map_err(unusable)?);
            let mut all = recordings.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(name.to_owned(), (path.clone(), recording.clone()));
            Ok(recording)
        })
    }

    /// Writes everything out and says where it is. The database is closed.
    pub fn finish(&self) -> Result<(), Failure> {
        for (path, recording) in self.recordings.lock().unwrap_or_else(PoisonError::into_inner).values() {
            let operations = recording.finish().map_err(firndb::Error::from)?;
            let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
            say!("recorded {operations} operations in {} ({})", path.display(), size::show(bytes));
        }
        Ok(())
    }
}
