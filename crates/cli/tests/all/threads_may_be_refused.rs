//! The system may refuse threads (`ulimit -u`): what the calling thread can do itself it does, and
//! an opening that needs more ends with a sentence. Skipped without `prlimit` and `setpriv`.

use crate::support::{Ran, firn};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

/// Runs `firn` so that it and all others of its user have `threads` threads at most. The limit does
/// not hold for root: then another user runs it, who owns `home`. `None` without the programs.
fn run_on(threads: usize, home: &Path, arguments: &[&str]) -> Option<Ran> {
    let mut command = Command::new("prlimit");
    if std::fs::metadata("/proc/self").ok()?.uid() == 0 {
        let user = 60_000 + std::process::id() % 5000;
        give_to(home, user);
        command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--clear-groups", "prlimit"]);
    }
    command.arg(format!("--nproc={threads}")).arg(firn().get_program()).args(arguments);
    command.current_dir(home);
    let ran = Ran::of(command.output().ok()?, format!("{arguments:?} on {threads} threads"));
    // The programs say so if they are not there, or the user may not run the command.
    let is_run = !["setpriv: ", "prlimit: "].iter().any(|name| ran.err.starts_with(name));
    is_run.then_some(ran)
}

fn give_to(path: &Path, user: u32) {
    chown(path, Some(user), None).expect("root may");
    for entry in path.read_dir().into_iter().flatten() {
        give_to(&entry.expect("there").path(), user);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("new");
    for entry in from.read_dir().expect("there") {
        let entry = entry.expect("there");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// What a crash leaves of a database over several log devices and several devices of the store.
fn crashed(dir: &Path, image: &Path) {
    let options = firndb::Options::new().store_paths(["a", "b"]).store_survives(1);
    let options = options.log(|log| log.devices(3).bytes(24 << 20)).background_threads(false);
    let db = options.open(dir).expect("created");
    let table = db.create_table("rows").expect("a table");
    for row in 0..2000u64 {
        db.transact(|tx| tx.put(&table, &row.to_be_bytes(), &[7; 900])).expect("a commit");
    }
    copy(dir, image);
    db.close().expect("closed");
}

/// Cause: threads of recovery were started where a refusal panics. Effect: under a limit nothing
/// could be looked at, and openings ended by a panic.
#[test]
fn recovery_works_on_the_threads_that_there_are_and_an_opening_without_enough_says_so() {
    let home = tempfile::tempdir().expect("a directory");
    let home = home.path();
    crashed(&home.join("made"), &home.join("crashed"));
    for threads in [1, 2, 3, 5, 8, 12, 24] {
        let Some(checked) = run_on(threads, home, &["check", "crashed"]) else {
            eprintln!("skipped: threads cannot be limited here");
            return;
        };
        checked.ended(0).says("no damage").says("2000 rows");
        let _ = std::fs::remove_dir_all(home.join("copy"));
        copy(&home.join("crashed"), &home.join("copy"));
        let opened = run_on(threads, home, &["array", "scrub", "copy"]).expect("as before");
        // Work needs threads of its own.
        match opened.code {
            Some(1) => drop(opened.ended(1).warns("thread")),
            _ if threads == 1 => drop(opened.ended(1)),
            _ => drop(opened.ended(0).says("0 faults left")),
        }
        // A refused opening costs nothing.
        if threads < 3 {
            run_on(100, home, &["check", "copy"]).expect("as before").ended(0).says("2000 rows");
        }
    }
}
