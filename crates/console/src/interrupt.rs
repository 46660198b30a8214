//! Ctrl-C and SIGTERM. A command that only looks, or that a crash at any point cannot harm, ends at
//! once; one that can stop in order is asked to by the first, and a second one ends the process.
//! The exit status is 130 in all cases.

use crate::failure::{Failure, INTERRUPTED};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static STOP: AtomicBool = AtomicBool::new(false);

/// What the handler does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handler {
    /// There is none yet.
    None,
    /// Ends the process and says what that leaves.
    EndsAtOnce(&'static str),
    /// Sets the flag.
    SetsFlag,
}

static HANDLER: Mutex<Handler> = Mutex::new(Handler::None);

fn handler() -> MutexGuard<'static, Handler> {
    HANDLER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on Ctrl-C ends the process at once and says that it left what `leaves` says.
pub fn at_once(leaves: &'static str) -> Result<(), Failure> {
    become_handler(Handler::EndsAtOnce(leaves))
}

/// From here on Ctrl-C sets the flag that this returns: the command ends in order.
pub fn install() -> Result<&'static AtomicBool, Failure> {
    become_handler(Handler::SetsFlag)?;
    Ok(&STOP)
}

/// The only place that takes over the signals.
fn become_handler(new: Handler) -> Result<(), Failure> {
    let mut now = handler();
    if *now == Handler::None {
        // The handler needs a thread. Without one the signal ends the process, as a crash does.
        let Ok(thread) = std::thread::Builder::new().spawn(|| ()) else { return Ok(()) };
        let _ = thread.join();
        ctrlc::set_handler(handle)
            .map_err(|error| Failure::new(format!("cannot take over Ctrl-C: {error}")))?;
    }
    *now = new;
    Ok(())
}

fn handle() {
    if let Handler::EndsAtOnce(leaves) = *handler() {
        eprintln!("\nfirn: ended by Ctrl-C: {leaves}");
        end();
    }
    if STOP.swap(true, Ordering::SeqCst) {
        end();
    }
    eprintln!("\nfirn: stopping; press Ctrl-C again to end at once");
}

/// Ends the process as Ctrl-C does. What it was doing must bear a crash.
pub fn end() -> ! {
    std::process::exit(i32::from(INTERRUPTED))
}
