//! Ctrl-C ends what takes long with status 130, and leaves nothing that looks whole and is not.

use crate::support::{Ran, firn, interrupt, loaded, run};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Runs a command and presses Ctrl-C when `now` says so.
#[track_caller]
fn pressed(db: &Path, arguments: &str, mut now: impl FnMut(&Child) -> bool) -> Ran {
    let words = arguments.split(' ').map(|word| word.replace("{db}", &db.to_string_lossy()));
    let mut command = firn();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ended = false;
    while !ended && !now(&child) {
        std::thread::yield_now();
        ended = child.try_wait().unwrap().is_some();
    }
    if !ended {
        interrupt(&child);
    }
    Ran::of(child.wait_with_output().unwrap(), arguments.to_owned())
}

/// The first of some runs that Ctrl-C has ended; on a busy machine one may be done before.
#[track_caller]
fn interrupted(run: impl FnMut(usize) -> Ran) -> Ran {
    let ran = (0..20).map(run).find(|ran| ran.code != Some(0)).expect("none was interrupted");
    ran.ended(130)
}

/// Whether the process has taken over SIGINT.
fn handles_ctrl_c(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    u64::from_str_radix(caught, 16).is_ok_and(|signals| signals & 0b10 != 0)
}

/// A moment after the superblock is written: the opening has begun another epoch.
fn opened(db: &Path) -> impl FnMut(&Child) -> bool + use<> {
    let superblock = db.join("superblock");
    let before = std::fs::read(&superblock).unwrap();
    move |_| std::fs::read(&superblock).is_ok_and(|now| now != before)
}

/// Creates a database of 40,000 rows: commands read them for long enough to be interrupted.
fn large(dir: &Path, options: firndb::Options) -> PathBuf {
    let db = dir.join("db");
    let opened = options.open(&db).unwrap();
    let rows = (0..40_000u64).map(|row| Ok((row.to_be_bytes().to_vec(), vec![7; 400])));
    drop(opened.load_table("rows", firndb::TableSpec::raw(), rows).unwrap());
    opened.close().unwrap();
    db
}

/// Each waits for the lock of a log device, which an opening does for three seconds.
#[test]
fn what_is_interrupted_while_the_database_is_opened_ends_with_130_and_a_sentence() {
    let (_dir, db) = loaded();
    let log = std::fs::File::open(db.join("log.0")).unwrap();
    rustix::fs::flock(&log, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for (arguments, sentence) in [
        ("check {db}", "nothing was changed"),
        ("dump {db}", "nothing was changed"),
        ("analyze {db}", "the next opening recovers"),
        ("array scrub {db}", "what was mended stays"),
    ] {
        pressed(&db, arguments, handles_ctrl_c).ended(130).warns("ended by Ctrl-C").warns(sentence);
    }
    drop(log);
    run(&db, "check {db}").ended(0).says("no damage found");
}

#[test]
fn analyze_compact_and_backup_end_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let db = large(dir.path(), firndb::Options::new());
    interrupted(|_| pressed(&db, "analyze {db}", opened(&db)));
    interrupted(|_| pressed(&db, "compact {db}", opened(&db)));
    let backup = |at: usize| dir.path().join(format!("backup.{at}"));
    let mut at = 0;
    let ran = interrupted(|attempt| {
        at = attempt;
        let is_begun = |_: &Child| backup(at).join("backup.firn").exists();
        pressed(&db, &format!("backup {{db}} {}", backup(at).display()), is_begun)
    });
    ran.warns("incomplete");
    let backup = backup(at);
    run(&backup, "backup --verify {db}").ended(1).warns("is not complete");
    run(&db, "check {db}").ended(0).says("40000 rows").says("no damage found");
}

#[test]
fn a_restore_that_is_interrupted_is_begun_anew_by_the_same_command() {
    let (dir, db) = loaded();
    let (backup, new) = (dir.path().join("backup"), dir.path().join("new"));
    run(&db, &format!("backup {{db}} {}", backup.display())).ended(0);
    let command = format!("restore --from {} {}", backup.display(), new.display());
    let ran = interrupted(|_| {
        let _ = std::fs::remove_dir_all(&new);
        pressed(&db, &command, |_| new.join("store").exists())
    });
    ran.warns("into the same directory");
    run(&new, "check {db}").ended(1).warns("restore it again, into the same directory");
    run(&db, &command).ended(0).says("restored database");
    run(&new, "check {db}").ended(0).says("no damage found");
}

#[test]
fn a_device_that_was_not_filled_to_the_end_is_by_the_same_command() {
    let dir = tempfile::tempdir().unwrap();
    let paths = (0..3).map(|member| format!("store.{member}"));
    let db = large(dir.path(), firndb::Options::new().store_paths(paths).store_survives(1));
    let mut command = String::new();
    interrupted(|attempt| {
        command = format!("array replace {{db}} 1 store.new{attempt}");
        let new = db.join(format!("store.new{attempt}"));
        let is_begun = |_: &Child| std::fs::metadata(&new).is_ok_and(|file| file.len() > 1 << 20);
        pressed(&db, &command, is_begun)
    });
    run(&db, &command).ended(0).says("has been filled");
    run(&db, "array scrub {db}").ended(0).says("0 faults left");
}

/// The part of a file would look like a file.
#[test]
fn a_page_file_is_exported_whole_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    firndb::Options::new().buffer_bytes(8 << 20).open(&db).unwrap().close().unwrap();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    std::fs::write(&from, vec![7; 8 << 20]).unwrap();
    run(&db, &format!("pagefile import {{db}} pages {}", from.display())).ended(0);
    let command = format!("pagefile export {{db}} pages {}", to.display());
    let ran = interrupted(|_| {
        let _ = std::fs::remove_file(&to);
        pressed(&db, &command, |_| to.exists())
    });
    ran.warns("stopped");
    assert!(!to.exists());
    run(&db, &command).ended(0);
    assert_eq!(std::fs::metadata(&to).unwrap().len(), 8 << 20);
}
