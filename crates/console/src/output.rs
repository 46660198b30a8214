//! Standard output and result files: the one place that notices when what a command says cannot be
//! written.
//!
//! A reader that goes away (`firn stat DIR | head -1`) is no failure: what it would have read is
//! dropped, and the command's work goes on to its end. Anything else that standard output says (a
//! full disk, say) makes the command fail, once, when it ends ([`finish`]): its work is done then,
//! and what it says of it is not whole.

use crate::failure::Failure;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::Mutex;

/// Why standard output could not be written, and whether its reader is gone.
#[derive(Debug)]
struct Trouble {
    failed: Option<String>,
    reader_gone: bool,
}

static TROUBLE: Mutex<Trouble> = Mutex::new(Trouble { failed: None, reader_gone: false });

fn trouble() -> std::sync::MutexGuard<'static, Trouble> {
    TROUBLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn note(error: &io::Error) {
    let mut trouble = trouble();
    match error.kind() {
        ErrorKind::BrokenPipe => trouble.reader_gone = true,
        // The caller tries again.
        ErrorKind::Interrupted => {}
        _ => drop(trouble.failed.get_or_insert_with(|| error.to_string())),
    }
}

/// Standard output; what goes wrong is remembered for [`finish`].
pub struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().lock().write(bytes).inspect_err(note)
    }
    fn flush(&mut self) -> io::Result<()> {
        io::stdout().lock().flush().inspect_err(note)
    }
}

/// Writes a line to standard output.
pub fn line(text: std::fmt::Arguments<'_>) {
    // Remembered.
    let _ = writeln!(Out, "{text}");
}

/// As `println!`, without its panic.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Whether something was not written, because that failed or the reader has gone away.
pub fn is_troubled() -> bool {
    let trouble = trouble();
    trouble.reader_gone || trouble.failed.is_some()
}

/// Writes out what is buffered; fails if anything written since the command began is lost.
pub fn finish() -> Result<(), Failure> {
    // Remembered.
    let _ = Out.flush();
    match &trouble().failed {
        None => Ok(()),
        Some(error) => Err(Failure::new(format!(
            "what the command says cannot be written to standard output, and is not whole: {error}"
        ))),
    }
}

/// Writes results to a file.
pub fn write_json(path: &Path, results: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(results).map_err(|error| Failure::new(error.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: the results cannot be written there: {error}", path.display()))
}

/// The file that results are to go to, found writable before the command begins its work. If the
/// command ends without results, one that was made for them is removed again.
pub struct ResultFile<'a> {
    path: &'a Path,
    is_new: bool,
    /// Kept open: should it be a pipe, its reader is to see no end before there are results.
    _file: std::fs::File,
}

impl<'a> ResultFile<'a> {
    /// Opens the file, or makes it; what is in it stays until there are results.
    pub fn prepare(path: &'a Path) -> Result<ResultFile<'a>, Failure> {
        let is_new = std::fs::symlink_metadata(path).is_err();
        let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(ResultFile { path, is_new, _file: file })
    }
}

impl Drop for ResultFile<'_> {
    fn drop(&mut self) {
        let is_empty = std::fs::metadata(self.path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
        if self.is_new && is_empty {
            // Of no account: an empty file stays.
            let _ = std::fs::remove_file(self.path);
        }
    }
}
