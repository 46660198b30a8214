//! Options and devices with which no database can be made or opened are refused with a sentence.

use crate::support::bed::Bed;
use crate::support::sample::quiet;
use firndb::device::{Device, Durability, Fill, MemoryDevice};
use firndb::{Database, ErrorKind, Options};
use firndb_base::sync::Arc;
use firndb_testkit::cases::case;
use std::time::Duration;

#[test]
fn options_outside_their_range() {
    let cases: Vec<(&str, Options, &str)> = vec![
        ("no pages", quiet().page_size(0), "page_size"),
        ("crooked pages", quiet().page_size(1000), "page_size"),
        ("tiny pages", quiet().page_size(512), "page_size"),
        ("huge pages", quiet().page_size(128 << 10), "page_size"),
        ("endless pages", quiet().page_size(usize::MAX), "page_size"),
        ("no buffer", quiet().buffer_bytes(0), "buffer_bytes"),
        ("a buffer of 63 pages", quiet().buffer_bytes(63 << 10), "buffer_bytes"),
        ("no log device", quiet().log(|log| log.devices(0)), "log.devices"),
        ("65 log devices", quiet().log(|log| log.devices(65)), "log.devices"),
        ("endless log devices", quiet().log(|log| log.devices(usize::MAX)), "log.devices"),
        ("no path", quiet().log(|log| log.paths(Vec::new())), "log.devices"),
        ("no log", quiet().log(|log| log.bytes(0)), "log.bytes"),
        ("a small log", quiet().log(|log| log.bytes((512 << 10) - 1)), "log.bytes"),
        (
            "checkpoints all the time",
            quiet().tuning(|tuning| tuning.checkpoint_log_bytes(1)),
            "tuning.checkpoint_log_bytes",
        ),
        (
            "checkpoints never",
            quiet().tuning(|tuning| tuning.checkpoint_log_bytes(u64::MAX)),
            "tuning.checkpoint_log_bytes",
        ),
    ];
    for (what, options, word) in cases {
        case(what, || {
            let dir = tempfile::tempdir().expect("a directory");
            let error = options.open(dir.path().join("db")).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            assert!(error.to_string().contains(word), "{error}");
            assert!(!dir.path().join("db").exists(), "nothing was made");
        });
    }
}

#[test]
fn more_than_the_machine_has() {
    let cases = [
        ("an endless buffer", quiet().buffer_bytes(usize::MAX), ErrorKind::BadArgument),
        ("a buffer of an exabyte", quiet().buffer_bytes(1 << 60), ErrorKind::BadArgument),
        ("a buffer of 64 TiB", quiet().buffer_bytes(64 << 40), ErrorKind::BadArgument),
        ("an endless log", quiet().log(|log| log.bytes(u64::MAX)), ErrorKind::Full),
        ("a log of an exabyte", quiet().log(|log| log.bytes(1 << 60)), ErrorKind::Full),
    ];
    for (what, options, kind) in cases {
        case(what, || {
            let dir = tempfile::tempdir().expect("a directory");
            let error = options.open(dir.path().join("db")).expect_err("refused");
            assert_eq!(error.kind(), kind, "{error}");
            // What the attempt left is no obstacle.
            let db = quiet().open(dir.path().join("db")).expect("created");
            db.create_table("t").expect("a table");
            db.close().expect("closed");
        });
    }
}

/// It aborted the process.
#[test]
fn more_than_memory_can_name_on_a_device_in_memory() {
    for bytes in [u64::MAX, u64::MAX / 2, 1 << 60] {
        case(bytes, || {
            let disks = Bed::new(1);
            let error = quiet().log(|log| log.bytes(bytes)).create_on(disks.devices()).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            assert!(error.to_string().contains("bytes of memory"), "{error}");
            let db =
                quiet().create_on(disks.duplicate().devices()).expect("what the attempt left is no obstacle");
            db.close().expect("closed");
        });
    }
}

/// Devices that were handed in are looked at where others put something, before they are written
/// to.
#[test]
fn devices_that_hold_something_are_left_alone() {
    for at in [512u64, 64 << 10, (8 << 20) - 512] {
        for which in ["superblock", "log", "store"] {
            case(format!("{which}, something at {at}"), || {
                let disks = Bed::new(1);
                let device: Arc<MemoryDevice> = match which {
                    "superblock" => disks.superblock.clone(),
                    "log" => disks.logs[0].clone(),
                    _ => disks.store.clone(),
                };
                device.grow(8 << 20, Fill::Sparse).expect("grown");
                device.write(at, &[7; 512], Durability::Durable).expect("written");
                let error = quiet().create_on(disks.devices()).expect_err("refused");
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                assert!(error.to_string().contains(&format!("offset {at}")), "{error}");
                let mut found = [0; 512];
                device.read(at, &mut found).expect("read");
                assert_eq!(found, [7; 512]);
            });
        }
    }
    // Such a device is none to be added, nor a cache.
    let disks = Bed::new(1);
    let db = quiet().create_on(disks.devices()).expect("created");
    let other = || {
        let device = Arc::new(MemoryDevice::new("other"));
        device.grow(8 << 20, Fill::Sparse).expect("grown");
        device.write(64 << 10, &[7; 512], Durability::Durable).expect("written");
        device
    };
    let error = db.add_log_device_on(other()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    let error = db.attach_cache_on(other(), &firndb::CacheSpec::new(1 << 20)).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
}

/// Pages of 64 KiB over a log of 512 KiB were once taken, and no root could be split.
#[test]
fn a_log_that_is_too_small_for_the_pages_is_refused_and_the_least_one_will_do() {
    for page_size in [1024, 4096, 16 << 10, 32 << 10, 64 << 10] {
        for devices in [1, 2] {
            case(format!("pages of {page_size}, {devices} log devices"), || {
                let options = |bytes: u64| {
                    quiet()
                        .page_size(page_size)
                        .buffer_bytes(80 * page_size)
                        .log(|log| log.devices(devices).bytes(bytes))
                };
                // The least that is taken, to a block.
                let taken = |bytes: u64| match options(bytes).create_on(Bed::new(devices).devices()) {
                    Ok(_) => true,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                        assert!(error.to_string().contains("log.bytes"), "{error}");
                        false
                    }
                };
                let (mut refused, mut least) = (0, 4u64 << 20);
                while refused + 4096 < least {
                    let middle = (refused + least) / 2 / 4096 * 4096;
                    if taken(middle) { least = middle } else { refused = middle }
                }
                let disks = Bed::new(devices);
                let db = options(least).create_on(disks.devices()).expect("created");
                let table = db.create_table("t").expect("a table");
                // Roots split, of the table and, by one large transaction, of the undo tree.
                let (key, value) =
                    (vec![b'k'; db.max_key_len() - 4], vec![7; db.max_inline_len() - db.max_key_len()]);
                let key = |i: u32| [&key[..], &i.to_be_bytes()].concat();
                for i in 0..40 {
                    db.transact(|tx| tx.put(&table, &key(i), &value)).expect("committed");
                }
                let mut tx = db.begin();
                let mut changed = 0;
                for i in 0..40 {
                    match tx.put(&table, &key(i), &value[1..]) {
                        Ok(_) => changed += 1,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                            break;
                        }
                    }
                }
                assert!(changed > 1, "{changed} rows were changed");
                tx.rollback().expect("rolled back");
                db.checkpoint().expect("a checkpoint");
                let rows = |db: &Database| {
                    let table = db.table("t").expect("there");
                    let mut tx = db.snapshot();
                    (0..40).all(|i| tx.get(&table, &key(i)).expect("read").as_ref() == Some(&value))
                };
                assert!(rows(&db));
                assert!(db.check(&mut |_| {}).expect("checked").is_clean());
                drop(table);
                db.close().expect("closed");
                assert!(rows(&quiet().buffer_bytes(80 * page_size).open_on(disks.devices()).expect("opens")));
            });
        }
    }
}

#[test]
fn generous_options_are_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = quiet().tuning(|tuning| tuning.version_bytes(usize::MAX)).lock_deadline(Duration::MAX);
    let db = options.open(dir.path().join("db")).expect("created");
    let table = db.create_table("t").expect("a table");
    db.transact(|tx| tx.insert(&table, b"k", b"v")).expect("committed");
    drop(table);
    db.close().expect("closed");
    // What was fixed when it was created is not asked of later openings.
    let db = quiet()
        .page_size(4096)
        .log(|log| log.devices(7).bytes(8 << 20))
        .open(dir.path().join("db"))
        .expect("opens");
    let table = db.table("t").expect("there");
    assert_eq!(db.snapshot().get(&table, b"k").expect("read").as_deref(), Some(&b"v"[..]));
}

#[test]
fn devices_that_do_not_fit() {
    // Blocks larger than a page.
    let mut disks = Bed::new(1);
    disks.store = Arc::new(MemoryDevice::with("store", 4096, u64::MAX));
    let error = quiet().create_on(disks.devices()).expect_err("pages of 1024 on blocks of 4096");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    assert!(error.to_string().contains("4096"), "{error}");
    // Not empty.
    let disks = Bed::new(1);
    drop(quiet().create_on(disks.devices()).expect("created"));
    let error = quiet().create_on(disks.devices()).expect_err("there is a database already");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    quiet().open_on(disks.devices()).expect("and it was left alone");
    // None at all, or too many.
    let mut devices = disks.devices();
    devices.logs.clear();
    let error = quiet().open_on(devices).expect_err("no log");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let mut devices = Bed::new(1).devices();
    devices.logs.clear();
    let error = quiet().create_on(devices).expect_err("no log");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
}
