//! A database that one process has open is refused to every other, until the first one ends, in
//! whatever way.

use firndb::{ErrorKind, Options};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Set in the environment of a child: the database that it is to open.
const CHILD: &str = "FIRN_TEST_CHILD_OPENS";

fn options() -> Options {
    Options::new().buffer_bytes(2 << 20).log(|log| log.devices(2).bytes(2 << 20))
}

/// Not a test by itself: what a child process does. Opens the database, says how that went, and
/// holds it until its input ends.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    match options().open(path) {
        Ok(db) => {
            db.transact(|tx| tx.put(&db.open_table("t")?, b"from", b"the child").map(drop))
                .expect("committed");
            println!("\nanswer: open");
            std::io::stdout().flush().expect("written");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Err(error) => println!("\nanswer: {} {error}", error.kind().code()),
    }
}

struct Process {
    child: Child,
    answer: String,
    /// Kept open, so that the child can go on writing.
    _output: BufReader<ChildStdout>,
}

/// Runs this test's own program as a child that opens the database; returns when it has said how
/// that went.
fn process(path: &Path) -> Process {
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "two_processes_are_refused::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let answer = loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).expect("readable") > 0, "the child ended without an answer");
        if let Some(answer) = line.trim_end().strip_prefix("answer: ") {
            break answer.to_owned();
        }
    };
    Process { child, answer, _output: output }
}

#[test]
fn a_second_process_is_told_who_is_in_the_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let db = options().open(&path).expect("created");
    let mut second = process(&path);
    assert!(second.answer.starts_with("in-use "), "{}", second.answer);
    assert!(second.answer.contains("db/superblock"), "{}", second.answer);
    second.child.wait().expect("ended");
    // The first one is none the worse for it.
    let table = db.create_table("mine").expect("a table");
    db.transact(|tx| tx.insert(&table, b"k", b"v")).expect("committed");
    drop(table);
    db.close().expect("closed");
    let mut third = process(&path);
    assert_eq!(third.answer, "open");
    drop(third.child.stdin.take());
    third.child.wait().expect("ended");
    assert_eq!(options().open(&path).expect("opens").table_names(), ["mine", "t"]);
}

#[test]
fn a_process_that_is_killed_leaves_no_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut first = process(&path);
    assert_eq!(first.answer, "open");
    for _ in 0..3 {
        let error = options().open(&path).expect_err("the child has it");
        assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    }
    first.child.kill().expect("killed");
    first.child.wait().expect("ended");
    let db = options().open(&path).expect("opens once the other is gone");
    let table = db.table("t").expect("there");
    assert_eq!(db.snapshot().get(&table, b"from").expect("read").as_deref(), Some(&b"the child"[..]));
}

#[test]
fn two_processes_that_create_at_once() {
    for _ in 0..4 {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("db");
        let children: Vec<_> = (0..3)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || process(&path))
            })
            .collect();
        let mut processes: Vec<Process> =
            children.into_iter().map(|child| child.join().expect("ran")).collect();
        let open = processes.iter().filter(|process| process.answer == "open").count();
        let answers: Vec<&str> = processes.iter().map(|process| &process.answer[..]).collect();
        assert_eq!(open, 1, "one gets it: {answers:?}");
        for answer in answers.iter().filter(|answer| **answer != "open") {
            // The loser of the race meets the winner's lock, or a file that has just appeared.
            assert!(answer.starts_with("in-use ") || answer.starts_with("unusable "), "{answer}");
        }
        for process in &mut processes {
            drop(process.child.stdin.take());
            process.child.wait().expect("ended");
        }
        assert_eq!(options().open(&path).expect("opens").table_names(), ["t"]);
    }
}

/// A log or store that two databases name is refused to the second, too.
#[test]
fn a_file_of_a_database_that_is_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    options().open(&path).expect("created").close().expect("closed");
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).expect("made");
    std::fs::copy(path.join("superblock"), copy.join("superblock")).expect("copied");
    for name in ["log.0", "log.1", "store"] {
        std::os::unix::fs::symlink(path.join(name), copy.join(name)).expect("linked");
    }
    let db = options().open(&path).expect("opens");
    let error = options().open(&copy).expect_err("the log is in use");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    db.close().expect("closed");
}
