//! Two databases never use one file; readers may share it; what is neither file nor block device is
//! refused.

use firndb_device::{AlignedBuf, Device, DeviceErrorKind, Durability, FileDevice, FileOptions, Fill};

fn reading() -> FileOptions {
    FileOptions { read_only: true, ..FileOptions::default() }
}

#[test]
fn a_second_opening_is_refused_until_the_first_ends() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("locked");
    let first = FileDevice::create(&path, &FileOptions::default()).expect("created");
    for options in [FileOptions::default(), reading()] {
        let error = FileDevice::open(&path, &options).expect_err("it is in use");
        assert_eq!(error.kind, DeviceErrorKind::Locked);
        assert!(error.message.contains("is in use; close the database"), "{error}");
    }
    let unlocked = FileOptions { lock: false, ..FileOptions::default() };
    FileDevice::open(&path, &unlocked).expect("an opener without the lock is not stopped by it");
    drop(first);
    FileDevice::open(&path, &FileOptions::default()).expect("free again");
}

#[test]
fn another_process_is_refused_too() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("locked");
    let _first = FileDevice::create(&path, &FileOptions::default()).expect("created");
    match std::process::Command::new("flock").arg("-n").arg(&path).arg("true").status() {
        Ok(status) => assert!(!status.success(), "flock(1) in another process must be refused"),
        Err(error) => eprintln!("skipped: no flock(1) here: {error}"),
    }
}

#[test]
fn readers_share_and_change_nothing() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("shared");
    let writer = FileDevice::create(&path, &FileOptions::default()).expect("created");
    writer.grow(8192, Fill::Written).expect("grown");
    drop(writer);
    let (one, two) = (FileDevice::open(&path, &reading()), FileDevice::open(&path, &reading()));
    let (one, two) = (one.expect("opened"), two.expect("opened beside"));
    let mut bytes = AlignedBuf::zeroed(4096);
    two.read(4096, &mut bytes).expect("read");
    one.sync().expect("nothing to sync");
    for refused in [
        one.write(0, &bytes, Durability::Later),
        one.grow(1 << 20, Fill::Sparse),
        one.shrink(0),
        one.discard(0, 4096),
    ] {
        let error = refused.expect_err("read-only");
        assert_eq!(error.kind, DeviceErrorKind::Unusable);
        assert!(error.message.contains("read-only"), "{error}");
    }
    let error = FileDevice::open(&path, &FileOptions::default()).expect_err("readers keep writers out");
    assert_eq!(error.kind, DeviceErrorKind::Locked);
    let error = FileDevice::create(&directory.path().join("new"), &reading()).expect_err("nonsense");
    assert_eq!(error.kind, DeviceErrorKind::Unusable);
}

#[test]
fn what_is_no_file_is_refused_with_advice() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let missing = directory.path().join("missing");
    for path in [directory.path(), missing.as_path(), std::path::Path::new("/dev/null")] {
        let error = FileDevice::open(path, &FileOptions::default()).expect_err("not a file");
        assert_eq!(error.kind, DeviceErrorKind::Unusable, "{error}");
        assert!(error.message.starts_with(&path.display().to_string()), "{error}");
        assert!(error.message.contains("; "), "no advice in {error}");
    }
}
