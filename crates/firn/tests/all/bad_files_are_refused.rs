//! Files that are cut, blank, foreign, swapped, missing or of another kind are refused with an
//! error that names them; a refused opening changes nothing, so that putting the right file back is
//! all it takes.

use crate::bad_support::*;
use firndb::device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{Database, Error, ErrorKind, Options};
use firndb_base::crc32c;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const FILES: [&str; 4] = ["superblock", "log.0", "log.1", "store"];

/// A database in a directory, its bytes, and what it must hold.
struct Template {
    dir: tempfile::TempDir,
    files: BTreeMap<String, Vec<u8>>,
    model: Model,
}

fn template(seed: u64) -> Template {
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

fn read_all(dir: &Path) -> BTreeMap<String, Vec<u8>> {
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
    fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Puts every file back.
    fn restore(&self) {
        let _ = fs::remove_dir_all(self.path());
        fs::create_dir(self.path()).expect("made");
        for (name, bytes) in &self.files {
            fs::write(self.path().join(name), bytes).expect("written");
        }
    }

    /// Does something to the files; opening must be refused with an error of `kind` that contains
    /// all `words`, and change nothing; with the files put back the database is whole.
    fn refused(&self, what: &str, kind: ErrorKind, words: &[&str], spoil: impl FnOnce(&Path)) -> Error {
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

    fn whole(&self, path: &Path) {
        let db = quiet().open(path).expect("opens");
        let verdict = examine_open(&db, &[&self.model]);
        assert!(verdict.is_whole(), "{verdict:?}");
        db.close().expect("closes");
    }
}

#[test]
fn cut_short() {
    let template = template(1);
    for name in FILES {
        let len = template.files[name].len();
        for left in [0, 1, 511, 512, 4096, len / 2, len - 4096, len - 1] {
            let what = format!("{name} cut to {left} of {len} bytes");
            template.refused(&what, ErrorKind::Damaged, &[name], |dir| {
                fs::write(dir.join(name), &template.files[name][..left]).expect("written");
            });
        }
    }
    template.restore();
    template.whole(&template.path());
}

#[test]
fn blank_or_foreign() {
    let template = template(2);
    for name in FILES {
        let len = template.files[name].len();
        template.refused(&format!("{name} zeroed"), ErrorKind::Damaged, &[name], |dir| {
            fs::write(dir.join(name), vec![0; len]).expect("written");
        });
        template.refused(&format!("{name} is a text"), ErrorKind::Damaged, &[name], |dir| {
            let text = b"This is not a database. ".iter().copied().cycle().take(len).collect::<Vec<u8>>();
            fs::write(dir.join(name), text).expect("written");
        });
        template.refused(&format!("{name} is noise"), ErrorKind::Damaged, &[name], |dir| {
            let mut rng = Rng::new(len as u64);
            fs::write(dir.join(name), (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>())
                .expect("written");
        });
    }
}

#[test]
fn of_another_database() {
    let (template, other) = (template(3), template(4));
    // A superblock that is foreign does not know these logs.
    for (name, named) in [("superblock", "store"), ("log.0", "log.0"), ("log.1", "log.1"), ("store", "store")]
    {
        template.refused(
            &format!("{name} of another database"),
            ErrorKind::Damaged,
            &[named, "database"],
            |dir| {
                fs::write(dir.join(name), &other.files[name]).expect("written");
            },
        );
    }
    template.refused("log of another database", ErrorKind::Damaged, &["log.0", "database"], |dir| {
        for name in ["log.0", "log.1"] {
            fs::write(dir.join(name), &other.files[name]).expect("written");
        }
    });
}

#[test]
fn in_each_others_place() {
    let template = template(5);
    for (a, b) in [("log.0", "log.1"), ("log.0", "store"), ("superblock", "store"), ("superblock", "log.1")] {
        template.refused(&format!("{a} and {b} swapped"), ErrorKind::Damaged, &[], |dir| {
            fs::write(dir.join(a), &template.files[b]).expect("written");
            fs::write(dir.join(b), &template.files[a]).expect("written");
        });
    }
    template.refused("log.0 twice", ErrorKind::Damaged, &["log.1", "member"], |dir| {
        fs::write(dir.join("log.1"), &template.files["log.0"]).expect("written");
    });
}

#[test]
fn missing() {
    let template = template(6);
    for name in ["log.0", "log.1", "store"] {
        template.refused(
            &format!("{name} is missing"),
            ErrorKind::Unusable,
            &[name, "cannot be opened"],
            |dir| {
                fs::remove_file(dir.join(name)).expect("removed");
            },
        );
    }
    template.refused("the superblock is missing", ErrorKind::Damaged, &["superblock", "log.0"], |dir| {
        fs::remove_file(dir.join("superblock")).expect("removed");
    });
    // Also for options that would not create one, and with options that would make other files.
    let error = quiet().create(false).open(template.path()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let error = quiet().log(|log| log.devices(1)).open(template.path()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}

#[test]
fn of_another_kind() {
    let template = template(7);
    for name in FILES {
        template.refused(&format!("{name} is a directory"), ErrorKind::Unusable, &[name], |dir| {
            fs::remove_file(dir.join(name)).expect("removed");
            fs::create_dir(dir.join(name)).expect("made");
        });
        template.refused(&format!("{name} is /dev/null"), ErrorKind::Unusable, &[name], |dir| {
            fs::remove_file(dir.join(name)).expect("removed");
            symlink("/dev/null", dir.join(name)).expect("linked");
        });
        template.refused(&format!("{name} is a link to nothing"), kind_of_dangling(name), &[], |dir| {
            fs::remove_file(dir.join(name)).expect("removed");
            symlink("nowhere", dir.join(name)).expect("linked");
        });
    }
}

/// Without what the superblock's name leads to, the other files are a database that lost it.
fn kind_of_dangling(name: &str) -> ErrorKind {
    if name == "superblock" { ErrorKind::Damaged } else { ErrorKind::Unusable }
}

#[test]
fn a_file_where_the_directory_should_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    fs::write(&path, b"something else").expect("written");
    for path in [path.clone(), path.join("below")] {
        let error = quiet().open(&path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert!(error.to_string().contains("db"), "{error}");
    }
    assert_eq!(fs::read(&path).expect("there"), b"something else");
}

#[test]
fn a_directory_that_may_not_be_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locked");
    fs::create_dir(&path).expect("made");
    let mut permissions = fs::metadata(&path).expect("there").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).expect("set");
    if fs::write(path.join("probe"), b"").is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    for path in [path.clone(), path.join("below")] {
        let error = quiet().open(&path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let template = template(8);
    template.restore();
    for name in ["log.2", "notes.txt", "store.old"] {
        fs::write(template.path().join(name), name).expect("written");
    }
    template.whole(&template.path());
    for name in ["log.2", "notes.txt", "store.old"] {
        assert_eq!(fs::read(template.path().join(name)).expect("there"), name.as_bytes());
    }
    // A directory with other things in it is no obstacle to a new database, unless names collide.
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("notes.txt"), b"mine").expect("written");
    quiet().open(dir.path()).expect("created").close().expect("closed");
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("store"), b"mine").expect("written");
    let error = quiet().open(dir.path()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(fs::read(dir.path().join("store")).expect("there"), b"mine");
}

#[test]
fn a_moved_or_copied_database_opens() {
    let template = template(9);
    template.restore();
    let moved = template.dir.path().join("moved");
    fs::rename(template.path(), &moved).expect("moved");
    template.whole(&moved);
    // Longer files than needed, as copies to raw devices are.
    for name in ["log.0", "log.1", "store", "superblock"] {
        let mut bytes = fs::read(moved.join(name)).expect("readable");
        bytes.extend_from_slice(&[0xa5; 8192]);
        fs::write(moved.join(name), bytes).expect("written");
    }
    template.whole(&moved);
}

#[test]
fn an_older_superblock_over_newer_files() {
    let template = template(10);
    template.restore();
    let old = template.files["superblock"].clone();
    let mut model = template.model.clone();
    let mut rng = Rng::new(10);
    // As many openings as take the log around its ring.
    for _ in 0..6 {
        let db = quiet().open(template.path()).expect("opens");
        for _ in 0..60 {
            change(&db, &mut model, &mut rng);
        }
        db.close().expect("closed");
    }
    fs::write(template.path().join("superblock"), &old).expect("written");
    let error = quiet().open(template.path()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("log") || error.to_string().contains("superblock"), "{error}");
}

#[test]
fn older_copies_of_one_file() {
    let template = template(11);
    template.restore();
    let mut model = template.model.clone();
    let mut rng = Rng::new(11);
    let db = quiet().open(template.path()).expect("opens");
    for _ in 0..60 {
        change(&db, &mut model, &mut rng);
    }
    db.close().expect("closed");
    let newer = read_all(&template.path());
    for name in FILES {
        case(format!("an older {name}"), || {
            for (name, bytes) in &newer {
                fs::write(template.path().join(name), bytes).expect("written");
            }
            fs::write(template.path().join(name), &template.files[name]).expect("written");
            match quiet().open(template.path()) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error}"),
                Ok(db) => {
                    let verdict = examine_open(&db, &[&model]);
                    assert!(!verdict.is_whole() || name.starts_with("log"), "{verdict:?}");
                }
            }
        });
    }
}

#[test]
fn of_a_newer_format_version() {
    let template = template(12);
    template.refused(
        "a superblock of version 3",
        ErrorKind::Unusable,
        &["superblock", "version 3", "newer"],
        |dir| {
            let mut bytes = template.files["superblock"].clone();
            for copy in [0, 16 << 10] {
                let bytes = &mut bytes[copy..copy + (16 << 10)];
                bytes[12..16].copy_from_slice(&3u32.to_le_bytes());
                let len = 48 + u32::from_le_bytes(bytes[44..48].try_into().expect("four")) as usize;
                let checksum = crc32c(&bytes[12..len]);
                bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
            }
            fs::write(dir.join("superblock"), bytes).expect("written");
        },
    );
    template.refused("a store of version 2", ErrorKind::Unusable, &["store", "version 2", "newer"], |dir| {
        let mut bytes = template.files["store"].clone();
        for slot in [0, 64 << 10] {
            let slot = &mut bytes[slot..slot + 4096];
            if slot[..8] == *b"FIRNSTOR" {
                slot[8..12].copy_from_slice(&2u32.to_le_bytes());
                let mut rest = slot[..64].to_vec();
                rest.extend_from_slice(&slot[68..]);
                let checksum = crc32c(&rest);
                slot[64..68].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        fs::write(dir.join("store"), bytes).expect("written");
    });
}

/// A process that is stopped between making the superblock's file and marking it, or loses the
/// file's lock to another that opens it at that moment, leaves it empty: the process that opens it
/// next creates the database.
#[test]
fn a_creation_that_wrote_nothing_is_begun_anew() {
    for bytes in [0, 512, 4096, 32768] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("superblock"), vec![0; bytes]).expect("written");
        let error = quiet().create(false).open(dir.path()).expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{bytes} bytes: {error}");
        assert_eq!(read_all(dir.path()).len(), 1, "{bytes} bytes: nothing was made");
        quiet().open(dir.path()).expect("created").close().expect("closed");
        quiet().create(false).open(dir.path()).expect("opened").close().expect("closed");
    }
}

#[test]
fn an_interrupted_creation_is_begun_anew_and_removes_its_own_files_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let (precious, log) = (dir.path().join("precious"), dir.path().join("elsewhere"));
    // Creation fails half-way: the second log's directory does not exist.
    let options = || quiet().log(|it| it.paths(vec![log.clone(), dir.path().join("no directory/log")]));
    let error = options().open(&path).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
    assert!(log.exists() && path.join("superblock").exists());
    // Under other options: what they name was not made by that creation.
    fs::write(&precious, b"years of work").expect("written");
    let error = quiet().store_path(&precious).open(&path).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("precious"), "{error}");
    assert_eq!(fs::read(&precious).expect("there"), b"years of work");
    // The same creation goes on once it can.
    fs::create_dir(dir.path().join("no directory")).expect("made");
    let db = options().open(&path).expect("created");
    db.create_table("t").expect("a table");
    db.close().expect("closed");
    assert_eq!(Database::open(&path).expect("opens").table_names(), ["t"]);
}

/// Whatever a creation had written when it was interrupted, what it left is proven to be its own.
#[test]
fn a_creation_that_is_interrupted_at_any_write_is_begun_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, store) = (dir.path().join("db"), dir.path().join("elsewhere"));
    let options = || quiet().store_path(&store).cache(|cache| cache.bytes(256 << 10).group_pages(4));
    let mut interrupted = 0;
    for write in (0..).step_by(3) {
        let plan = FaultPlan::new(1);
        let failing = options().wrap_devices({
            let plan = plan.clone();
            move |_, device| Ok(Arc::new(Faulty::new(device, &plan)) as Arc<dyn Device>)
        });
        plan.add(FaultRule {
            calls: Calls::Writes,
            device: None,
            when: When::From(write),
            fault: Fault::Fail(DeviceErrorKind::Failed),
        });
        let created = failing.open(&path).map(drop);
        case(format!("interrupted at write {write}"), || {
            let db = options().open(&path).unwrap_or_else(|error| panic!("{error} after {created:?}"));
            assert_eq!(db.table_names(), [""; 0]);
            db.close().expect("closed");
        });
        if plan.fired() == 0 {
            break;
        }
        interrupted += u64::from(created.is_err());
        fs::remove_dir_all(&path).expect("removed");
        fs::remove_file(&store).expect("removed");
    }
    assert!(interrupted > 5, "{interrupted} creations were interrupted");
}

/// A mark of a creation that was interrupted before it made the files of these names.
fn mark(files: &[&str]) -> Vec<u8> {
    let mut names = vec![u8::try_from(files.len()).expect("few")];
    for file in files {
        names.push(u8::try_from(file.len()).expect("a short path"));
        names.extend(file.as_bytes());
    }
    let mut covered = 1u32.to_le_bytes().to_vec();
    covered.extend([[9; 16], [0; 16]].concat());
    covered.extend(u32::try_from(names.len()).expect("short").to_le_bytes());
    covered.extend(crc32c(&names).to_le_bytes());
    let mut bytes = b"FIRNMAKE".to_vec();
    bytes.extend(crc32c(&covered).to_le_bytes());
    bytes.extend(covered);
    bytes.extend(names);
    bytes.resize(32 << 10, 0);
    bytes
}

/// The mark's names were once removed as they stood there: a directory from another user removed
/// any file of the user that opened it.
#[test]
fn a_mark_alone_removes_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, precious) = (dir.path().join("db"), dir.path().join("precious"));
    let absolute = precious.to_str().expect("text").to_owned();
    fs::create_dir(dir.path().join("sub")).expect("made");
    for (what, name, contents) in [
        ("an absolute name", absolute.as_str(), &b"years of work"[..]),
        ("a name that leads out", "../precious", b"years of work"),
        ("a name that leads out by a link", "link/precious", b"years of work"),
        ("an empty file elsewhere", "../precious", b""),
        ("zeros elsewhere", "../precious", &[0; 8192]),
        ("a file in the directory", "log.0", b"years of work"),
        ("the superblock", "superblock", b""),
    ] {
        case(what, || {
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("made");
            symlink(dir.path(), path.join("link")).expect("linked");
            fs::write(path.join("superblock"), mark(&[name])).expect("written");
            if name != "superblock" {
                fs::write(path.join(name), contents).expect("written");
            }
            let before = fs::read(path.join(name)).expect("there");
            let error = quiet().open(&path).expect_err("refused");
            assert!(matches!(error.kind(), ErrorKind::Unusable | ErrorKind::InUse), "{error}");
            assert!(error.to_string().contains(name.rsplit('/').next().expect("a name")), "{error}");
            assert_eq!(fs::read(path.join(name)).expect("it is still there"), before);
        });
    }
    // Nor is a file of that name taken for an empty superblock because it has less than a block.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("made");
    fs::write(path.join("superblock"), b"years of work").expect("written");
    let error = quiet().open(&path).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(fs::read(path.join("superblock")).expect("there"), b"years of work");
    // What nothing was written to, in the directory itself, may be the creation's.
    for contents in [&b""[..], &[0; 8192]] {
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("superblock"), mark(&["log.0", "store"])).expect("written");
        fs::write(path.join("log.0"), contents).expect("written");
        quiet().open(&path).expect("created").close().expect("closed");
    }
}

/// A creation is interrupted before it makes its log's file; another database makes a file of that
/// name meanwhile. The first one, begun anew, once unlinked the other's log under it.
#[test]
fn a_file_that_another_database_made_meanwhile_is_left_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second, log) =
        (dir.path().join("first"), dir.path().join("second"), dir.path().join("ssd.log"));
    let options = || quiet().log(|settings| settings.paths(vec![log.clone()]));
    fs::create_dir(&first).expect("made");
    fs::write(first.join("superblock"), mark(&[log.to_str().expect("text"), "store"])).expect("written");
    let other = options().open(&second).expect("created");
    let table = other.create_table("t").expect("a table");
    let error = options().open(&first).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(error.to_string().contains("ssd.log"), "{error}");
    other.transact(|tx| tx.put(&table, b"k", b"v")).expect("committed");
    drop(table);
    other.close().expect("closed");
    let error = options().open(&first).expect_err("refused, though no process has it open");
    assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
    assert!(error.to_string().contains("ssd.log"), "{error}");
    let other = quiet().open(&second).expect("it opens");
    let table = other.table("t").expect("there");
    assert_eq!(other.snapshot().get(&table, b"k").expect("read").as_deref(), Some(&b"v"[..]));
}

#[test]
fn two_files_of_one_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = |second: &str| quiet().log(|log| log.paths(vec!["log.0".into(), second.into()]));
    let mistakes: [(&str, Options); 4] = [
        ("the store is the superblock", quiet().store_path("superblock")),
        ("the store is a log", quiet().store_path("./log.1")),
        ("a log is the superblock", logs("../db/superblock")),
        ("a log twice", logs("log.0")),
    ];
    for (what, options) in mistakes {
        case(what, || {
            let path = dir.path().join("db");
            fs::create_dir_all(&path).expect("made");
            for _ in 0..2 {
                let error = options.clone().open(&path).expect_err("refused");
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            }
            let db = quiet().open(&path).expect("nothing stands in the way of a good one");
            db.create_table("t").expect("a table");
            db.close().expect("closed");
            assert_eq!(quiet().open(&path).expect("opens").table_names(), ["t"]);
            fs::remove_dir_all(&path).expect("removed");
        });
    }
}
