//! Files that are cut, blank, foreign, swapped, missing or of another kind are refused with an
//! error that names them; a refused opening changes nothing, so that putting the right file back is
//! all it takes.

use crate::bad_input::files::{FILES, read_all, template};
use crate::support::examine::examine_open;
use crate::support::sample::{change, quiet};
use firndb::ErrorKind;
use firndb_base::crc32c;
use firndb_base::rng::Rng;
use firndb_testkit::cases::case;
use std::fs;
use std::os::unix::fs::symlink;

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
    // Also for options that would not create one, and with options under which other files would be
    // made.
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
    template.refused("a store of version 3", ErrorKind::Unusable, &["store", "version 3", "newer"], |dir| {
        let mut bytes = template.files["store"].clone();
        for slot in [0, 64 << 10] {
            let slot = &mut bytes[slot..slot + 4096];
            if slot[..8] == *b"FIRNSTOR" {
                slot[8..12].copy_from_slice(&3u32.to_le_bytes());
                let mut rest = slot[..64].to_vec();
                rest.extend_from_slice(&slot[68..]);
                let checksum = crc32c(&rest);
                slot[64..68].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        fs::write(dir.join("store"), bytes).expect("written");
    });
}
