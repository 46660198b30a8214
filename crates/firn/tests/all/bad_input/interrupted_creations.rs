//! Creations that were interrupted are begun anew, and remove no file but their own.

use crate::bad_input::files::read_all;
use crate::support::sample::quiet;
use firndb::device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{Database, ErrorKind, Options};
use firndb_base::crc32c;
use firndb_base::sync::Arc;
use firndb_testkit::cases::case;
use std::fs;
use std::os::unix::fs::symlink;

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
    let options =
        || quiet().log(|settings| settings.paths(vec![log.clone(), dir.path().join("no directory/log")]));
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
    let mistakes: [(&str, Options); 4] = [
        ("the store is the superblock", quiet().store_path("superblock")),
        ("the store is a log", quiet().store_path("./log.1")),
        (
            "a log is the superblock",
            quiet().log(|log| log.paths(vec!["log.0".into(), "../db/superblock".into()])),
        ),
        ("a log twice", quiet().log(|log| log.paths(vec!["log.0".into(), "log.0".into()]))),
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
