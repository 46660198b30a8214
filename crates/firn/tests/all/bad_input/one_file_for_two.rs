//! One file or device under two names, and devices that are not there, are refused by name.

use crate::bad_input::files::read_all;
use crate::support::sample::quiet;
use firndb::{Database, Error, ErrorKind, Options, StoreMemberState};
use firndb_testkit::cases::case;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

type Link = fn(&Path, &Path) -> io::Result<()>;
const LINKS: [(&str, Link); 2] =
    [("a symbolic link", |from, to| symlink(from, to)), ("a hard link", |from, to| fs::hard_link(from, to))];

/// Cause: names were compared, not what they lead to. Effect: the second name of a file was in use
/// by "another database", after a wait of seconds; of the store's devices one counted as lost.
#[test]
fn opening_refuses_two_files_that_have_become_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join("db").join(name);
    let options = || quiet().store_paths(["a", "b", "c"]).store_survives(1);
    options().open(at("")).expect("created").close().expect("closed");
    for (first, second) in [("log.0", "log.1"), ("a", "b"), ("log.0", "c")] {
        for (how, link) in LINKS {
            case(format!("{second} is {how} to {first}"), || {
                fs::rename(at(second), at("away")).expect("moved");
                link(&at(first), &at(second)).expect("linked");
                let before = read_all(&at(""));
                for error in
                    [options().open(at("")), Database::open_read_only(at(""))].map(Result::unwrap_err)
                {
                    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                    let error = error.to_string();
                    assert!(error.contains("the same file") && error.contains(first), "{error}");
                    assert!(error.contains(second), "{error}");
                }
                assert!(read_all(&at("")) == before, "nothing is changed");
                fs::rename(at("away"), at(second)).expect("moved back");
            });
        }
    }
    // A struck device is not opened, whatever its name leads to by now.
    fs::remove_file(at("b")).expect("removed");
    let db = options().open(at("")).expect("two are enough");
    db.create_table("t").expect("a table");
    db.close().expect("closed");
    symlink(at("c"), at("b")).expect("linked");
    let db = options().open(at("")).expect("opened");
    assert_eq!(db.store_array().expect("there are three").devices[1].state, StoreMemberState::Lost);
    // Nor is a file of the database taken for a new one under another name.
    for (name, link) in LINKS {
        link(&at("log.1"), &at(name)).expect("linked");
        let error = db.add_log_device(name).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    }
    db.close().expect("closed");
}

#[test]
fn creating_refuses_a_file_and_a_link_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    for (how, link) in LINKS {
        case(how, || {
            let [file, name] = ["file", how].map(|name| dir.path().join(name));
            fs::write(&file, "").expect("written");
            link(&file, &name).expect("linked");
            let error = quiet().store_path(&file).log(|log| log.paths(vec![name.clone()]));
            let error = error.open(dir.path().join("db")).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            assert!(error.to_string().contains("the same file"), "{error}");
            assert!(!dir.path().join("db").exists());
        });
    }
}

/// Cause: a path of a device that is not there named a new file. Effect: with a misspelt device the
/// store was a file in `/dev`, in the machine's memory.
#[test]
fn a_device_that_is_not_there_is_no_file() {
    const ABSENT: &str = "/dev/firn-no-such-device";
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let uses: [(&str, Options); 5] = [
        ("the log", quiet().log(|log| log.paths(vec!["log.0".into(), ABSENT.into()]))),
        ("the store", quiet().store_path(ABSENT)),
        ("a store by a detour", quiet().store_paths(["a", "/dev/../dev/firn-no-such-device"])),
        ("the cache", quiet().cache(|cache| cache.path(ABSENT).bytes(256 << 10).group_pages(4))),
        ("a directory of devices", quiet().store_path("/dev/firn-no-such-device/store")),
    ];
    let refuse = |outcome: Result<(), Error>| {
        assert!(fs::remove_file(ABSENT).is_err(), "no file was made");
        let error = outcome.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert!(error.to_string().contains("firn-no-such-device"), "{error}");
        assert!(error.to_string().contains("there is no such device"), "{error}");
    };
    for (what, options) in uses {
        case(what, || {
            refuse(options.open(&path).map(drop));
            assert!(!path.exists(), "nothing was made");
        });
    }
    refuse(quiet().open(ABSENT).map(drop));
    let db = quiet().open(&path).expect("created");
    refuse(db.add_log_device(ABSENT).map(drop));
    db.close().expect("closed");
    // A file system of its own is no place for devices.
    let device = |path: &str| fs::metadata(path).map(|found| found.dev()).ok();
    if device("/dev/shm").is_some_and(|shm| Some(shm) != device("/dev")) {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
        quiet().open(dir.path().join("db")).expect("created").close().expect("closed");
    }
}
