//! JSON on the command line.

use firndb_console::{Failure, say};
use serde_json::Value;

/// Prints JSON for scripts.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    say!("{text}");
    Ok(())
}
