//! A backup in the middle of a TPC-C run.

use crate::args::TpccArgs;
use firndb_adapter::OnFirn;
use firndb_base::clock;
use firndb_base::sync::thread;
use firndb_console::report::backup_sentence;
use firndb_console::{Failure, say};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the wait for the middle of the run looks whether it is over already.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `work`; if a backup was asked for, takes it beside it, begun when a quarter of the time is
/// over.
pub fn beside<T>(
    engine: &impl OnFirn,
    args: &TpccArgs,
    stop: &AtomicBool,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(to) = &args.backup_to else { return work() };
    let ended = AtomicBool::new(false);
    let wait = match args.transactions {
        Some(_) => Duration::ZERO,
        None => Duration::from_millis(args.warmup * 1000 + args.seconds * 250),
    };
    let (outcome, taken) = thread::scope(|scope| {
        let database = engine.database();
        let ended = &ended;
        let backup = scope.spawn(move || {
            let begun = clock::now();
            while begun.elapsed() < wait && !ended.load(Ordering::SeqCst) {
                clock::sleep(LOOK);
            }
            database.backup(to, &mut |_| match stop.load(Ordering::SeqCst) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        });
        let outcome = work();
        ended.store(true, Ordering::SeqCst);
        (outcome, backup.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let outcome = outcome?;
    say!("{}", backup_sentence(&taken?, to));
    Ok(outcome)
}

/// A path as it is from anywhere: the database takes relative ones from its own directory.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
