//! Standard output and result files.

use crate::Failure;
use std::io::Write;
use std::path::Path;

/// Writes a line to standard output. If nobody reads it any more (`firn stat DIR | head -1`), it is dropped: the
/// command's work goes on to its end.
pub fn line(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// As `println!`, without its panic when the reader is gone.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// Writes results to a file.
pub fn write_json(path: &Path, results: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(results).map_err(|error| Failure::new(error.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
