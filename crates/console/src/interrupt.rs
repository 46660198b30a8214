//! Ctrl-C: the first one asks the command to end in order, a second one ends the process.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C (and SIGTERM); returns the flag it sets.
pub fn install() -> Result<&'static AtomicBool, Failure> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nfirn: stopping; press Ctrl-C again to end at once");
    })
    .map_err(|error| Failure::new(format!("cannot take over Ctrl-C: {error}")))?;
    Ok(&STOP)
}
