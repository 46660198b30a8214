//! Running `firn` as its users do.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command.
pub fn firn() -> Command {
    Command::new(env!("CARGO_BIN_EXE_firn"))
}

/// Runs it with these arguments; `{db}` stands for a database's directory.
pub fn run(db: &Path, arguments: &str) -> Ran {
    let arguments: Vec<String> =
        arguments.split_whitespace().map(|word| word.replace("{db}", &db.to_string_lossy())).collect();
    let output = firn().args(&arguments).output().expect("firn is there");
    Ran::of(output, arguments.join(" "))
}

/// What a run left.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    command: String,
}

impl Ran {
    pub fn of(output: Output, command: String) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
            command,
        }
    }
    /// It ended with this status; a message there is a sentence that begins with the command's
    /// name.
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        let Ran { out, err, command, .. } = &self;
        assert_eq!(self.code, Some(code), "firn {command}\n{out}\n{err}");
        assert!(!err.contains("panicked"), "firn {command}\n{err}");
        if code == 1 {
            assert!(err.contains("firn: "), "firn {command} fails without a word: {err}");
        }
        self
    }
    #[track_caller]
    pub fn says(self, text: &str) -> Ran {
        assert!(
            self.out.contains(text),
            "firn {}: {text:?} is not in\n{}\n{}",
            self.command,
            self.out,
            self.err
        );
        self
    }
    #[track_caller]
    pub fn warns(self, text: &str) -> Ran {
        assert!(self.err.contains(text), "firn {}: {text:?} is not in\n{}", self.command, self.err);
        self
    }
}

/// Ctrl-C.
pub fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

/// A directory with a small loaded database, closed.
pub fn loaded() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = dir.path().join("db");
    run(&db, "tpcc --dir {db} --scale tiny --warehouses 2 --buffer 8M --load-only").ended(0);
    (dir, db)
}
