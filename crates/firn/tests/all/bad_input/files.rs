//! A database in a directory, whose files the tests spoil.

use crate::support::examine::examine_open;
use crate::support::sample::{Model, change, create_tables, quiet};
use firndb::{Error, ErrorKind};
use firndb_base::rng::Rng;
use firndb_testkit::cases::case;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub const FILES: [&str; 4] = ["superblock", "log.0", "log.1", "store"];

/// A database in a directory, its bytes, and what it must hold.
pub struct Template {
    pub dir: tempfile::TempDir,
    pub files: BTreeMap<String, Vec<u8>>,
    pub model: Model,
}

pub fn template(seed: u64) -> Template {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let db = quiet().open(&path).expect("created");
    let mut model = create_tables(&db);
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        change(&db, &mut model, &mut rng);
    }
    db.checkpoint().expect("a checkpoint");
    for _ in 0..10 {
        change(&db, &mut model, &mut rng);
    }
    db.close().expect("closed");
    let files = read_all(&path);
    assert_eq!(
        files.keys().map(String::as_str).collect::<Vec<_>>(),
        ["log.0", "log.1", "store", "superblock"]
    );
    Template { dir, files, model }
}

pub fn read_all(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("readable");
        if entry.file_type().expect("known").is_file() {
            let name = entry.file_name().into_string().expect("text");
            files.insert(name, fs::read(entry.path()).expect("readable"));
        }
    }
    files
}

impl Template {
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Puts every file back.
    pub fn restore(&self) {
        let _ = fs::remove_dir_all(self.path());
        fs::create_dir(self.path()).expect("made");
        for (name, bytes) in &self.files {
            fs::write(self.path().join(name), bytes).expect("written");
        }
    }

    /// Does something to the files; opening must be refused with an error of `kind` that contains
    /// all `words`, and change nothing; with the files put back the database is whole.
    pub fn refused(&self, what: &str, kind: ErrorKind, words: &[&str], spoil: impl FnOnce(&Path)) -> Error {
        case(what, || {
            self.restore();
            spoil(&self.path());
            let before = read_all(&self.path());
            let error = quiet().open(self.path()).expect_err("it must be refused");
            assert_eq!(error.kind(), kind, "{error}");
            for word in words {
                assert!(error.to_string().contains(word), "{word:?} is missing in {:?}", error.to_string());
            }
            assert!(read_all(&self.path()) == before, "a refused opening changed a file");
            error
        })
    }

    pub fn whole(&self, path: &Path) {
        let db = quiet().open(path).expect("opens");
        let verdict = examine_open(&db, &[&self.model]);
        assert!(verdict.is_whole(), "{verdict:?}");
        db.close().expect("closes");
    }
}
