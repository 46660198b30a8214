//! The commands that inspect leave a database as it is, under any user and however it was left.

use crate::support::{Ran, loaded, run};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of every file below `dir`, and inode, mode, length, modification and change time of all
/// there is.
fn state(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, [i64; 7])> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let [mtime, mtime_ns, ctime, ctime_ns] =
            [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        let kept =
            [meta.ino() as i64, i64::from(meta.mode()), meta.len() as i64, mtime, mtime_ns, ctime, ctime_ns];
        found.insert(path, (bytes, kept));
    }
    found
}

/// The commands that look, and what each says.
const LOOKING: [(&str, &str); 10] = [
    ("stat {db}", "opened"),
    ("stat {db} --json", "\"page_size\": 4096"),
    ("check {db}", "no damage found"),
    ("dump {db}", "the catalog: tree"),
    ("dump {db} --log", "page "),
    ("dump {db} --page 1", "a tree node"),
    ("dump {db} --table rows", "key = value"),
    ("log status {db}", "in use"),
    ("cache status {db}", "flash cache"),
    ("archive status {db}", "archive: up to LSN"),
];

/// A database in `DIR/db` with a cache, and an archive beside it, as a crash leaves it.
fn crashed(dir: &Path) -> PathBuf {
    let live = dir.join("live");
    let options = firndb::Options::new().buffer_bytes(1 << 20).log(|log| log.bytes(4 << 20).devices(1));
    let options = options
        .cache(|cache| cache.bytes(4 << 20))
        .archive(|archive| archive.directory("../archive").delay(std::time::Duration::ZERO));
    let options = options.background_threads(false);
    let db = options.open(live.join("db")).unwrap();
    let table = db.create_table("rows").unwrap();
    db.transact(|tx| tx.put(&table, b"key", b"value").map(drop)).unwrap();
    while db.step().unwrap() == firndb::Progress::Worked {}
    db.transact(|tx| tx.put(&table, b"other", &[1; 900]).map(drop)).unwrap();
    let mut open = db.begin();
    open.put(&table, b"key", b"never committed").unwrap();
    db.transact(|tx| tx.put(&table, b"last", b"").map(drop)).unwrap();
    let copied =
        Command::new("cp").arg("-r").arg(live.join("db")).arg(live.join("archive")).arg(dir).status();
    assert!(copied.unwrap().success());
    drop(open);
    db.close().unwrap();
    std::fs::remove_dir_all(live).unwrap();
    dir.join("db")
}

#[test]
fn a_crashed_database_is_shown_and_left_as_it_crashed() {
    let dir = tempfile::tempdir().unwrap();
    let db = crashed(dir.path());
    let before = state(dir.path());
    for _ in 0..2 {
        for (command, sentence) in LOOKING {
            run(&db, command).ended(0).says(sentence);
            assert!(state(dir.path()) == before, "firn {command} changed something");
        }
        run(&db, "stat {db}").ended(0).says("had not been closed").says("the files are as they were");
        let archive = dir.path().join("archive");
        run(&archive, "archive list {db}").ended(0).says("log from LSN");
        run(&archive, "archive verify {db}").ended(0).says("records read");
        assert!(state(dir.path()) == before);
    }
    // It recovers as if it had never been inspected.
    let opened = firndb::Database::open(&db).unwrap();
    let table = opened.table("rows").unwrap();
    assert_eq!(opened.snapshot().get(&table, b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Cause: each opening drew where its epoch begins, read-only ones too. Effect: `stat` showed
/// another next LSN each time.
#[test]
fn a_closed_database_is_shown_alike_each_time() {
    let (_dir, db) = loaded();
    let next = || {
        let shown = run(&db, "stat {db}").ended(0).out;
        shown.lines().find(|line| line.contains("next LSN")).map(str::to_owned).unwrap()
    };
    assert_eq!(next(), next());
}

/// It was once called a directory without a database.
#[test]
fn a_database_without_its_superblock_is_named_as_one() {
    let (_dir, db) = loaded();
    std::fs::rename(db.join("superblock"), db.join("elsewhere")).unwrap();
    for command in ["check {db}", "stat {db}", "log status {db}", "analyze {db}"] {
        let ran = run(&db, command).ended(1).warns("lost its superblock");
        ran.warns("restore a backup into another directory");
    }
}

/// Another user, who may read and not write: neither the files nor the directories.
#[test]
fn no_permission_to_write_is_needed() {
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    let db = crashed(dir.path());
    let mut todo = vec![dir.path().to_path_buf()];
    while let Some(path) = todo.pop() {
        let mode = if path.is_dir() { 0o555 } else { 0o444 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        if path.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    // A copy of the command: where it was built, others may not read.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = place.path().join("firn");
    std::fs::copy(env!("CARGO_BIN_EXE_firn"), &command).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |arguments: &str| {
        let arguments: Vec<String> =
            arguments.split(' ').map(|word| word.replace("{db}", &db.to_string_lossy())).collect();
        let output = Command::new(&command).args(&arguments).uid(NOBODY).gid(NOBODY).output();
        output.map(|output| Ran::of(output, arguments.join(" ")))
    };
    let before = state(dir.path());
    match as_nobody("--version") {
        Ok(ran) => drop(ran.ended(0)),
        Err(error) => return eprintln!("skipped: cannot run as another user here: {error}"),
    }
    for (command, sentence) in LOOKING {
        as_nobody(command).unwrap().ended(0).says(sentence);
    }
    // A user without write permission cannot run it.
    let refused = as_nobody("tpcc --dir {db} --no-load").unwrap().ended(1);
    assert!(refused.err.contains("Permission denied"), "{}", refused.err);
    assert!(state(dir.path()) == before);
}

#[test]
fn a_database_that_is_looked_at_can_be_looked_at_by_others() {
    let (_dir, db) = loaded();
    let before = state(&db);
    let looking = firndb::Database::open_read_only(&db).unwrap();
    run(&db, "stat {db}").ended(0).says("warehouse");
    run(&db, "tpcc --dir {db} --no-load").ended(1).warns("is in use");
    looking.close().unwrap();
    assert!(state(&db) == before);
    let open = firndb::Database::open(&db).unwrap();
    for (command, _) in LOOKING {
        run(&db, command).ended(1).warns("is in use");
    }
    open.close().unwrap();
}

/// Changes every byte of the store past its first pages.
fn overwrite_pages(db: &Path) {
    use std::os::unix::fs::FileExt;
    let store = std::fs::OpenOptions::new().write(true).open(db.join("store")).unwrap();
    let len = store.metadata().unwrap().len();
    for at in (64 << 10..len - 4096).step_by(4096) {
        store.write_all_at(&[0x5a; 4096], at).unwrap();
    }
}

#[test]
fn a_store_with_overwritten_pages_is_shown_as_far_as_it_goes_with_status_1() {
    let (_dir, db) = loaded();
    overwrite_pages(&db);
    let before = state(&db);
    for command in ["dump {db}", "dump {db} --table order_line", "check {db}", "stat {db}"] {
        let ran = run(&db, command).ended(1);
        assert!(
            ran.err.contains("damage") || ran.err.contains("faults") || ran.err.contains("cannot be"),
            "{}",
            ran.err
        );
    }
    assert!(state(&db) == before, "looking at damage changes nothing");
}
