//! What an archive's directory holds, for a caller that has no database open.

use crate::backup::shadow_images::archived_as;
use crate::error::Error;
use firndb_log::archive::NamedImages;
use firndb_log::{LogError, LogErrorKind};
use firndb_tier::store::shadows_of;
use std::path::Path;

/// Converts a log error of the archive: the archive's full volume is not a full log.
pub(crate) fn archive_error(error: LogError) -> Error {
    match error.kind {
        LogErrorKind::Full => Error::full(error.message),
        _ => Error::from(error),
    }
}

/// Reads the archive in `directory`: its segments, where log is missing, and what is damaged; with
/// `verify`, every record, and the images of pages that records name. It may be in use. `progress`
/// is called with the number of segments read and their total.
///
/// Errors: `NotFound` if there is no such directory, or no archived log in it; `Failed`. Damage is
/// part of the result.
pub fn survey_archive(
    directory: impl AsRef<Path>,
    verify: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<firndb_log::archive::Survey, Error> {
    let directory = directory.as_ref();
    if !directory.is_dir() {
        return Err(Error::not_found(format!("{}: there is no such directory", directory.display())));
    }
    let named: NamedImages<'_> =
        &|lsn, record| Ok(shadows_of(lsn, record)?.iter().map(archived_as).collect());
    let found = firndb_log::archive::survey(directory, verify.then_some(named), progress);
    let found = found.map_err(archive_error)?;
    if found.database.is_none() && found.damage.is_empty() {
        let message = format!(
            "{} holds no archived log (log-….firn): it is no archive, or nothing has been archived yet",
            directory.display()
        );
        return Err(Error::not_found(message));
    }
    Ok(found)
}
