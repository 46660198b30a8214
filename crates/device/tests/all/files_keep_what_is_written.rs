//! A `FileDevice` keeps what was written, over reopening, on file systems with and without direct
//! I/O, from any memory; and its length changes only when asked.

use firndb_device::{AlignedBuf, Device, DeviceErrorKind, Durability, FileDevice, FileOptions, Fill};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Directories on the file systems at hand: the temporary one (usually a disk) and, if present,
/// tmpfs.
fn directories() -> Vec<tempfile::TempDir> {
    let mut found = vec![tempfile::tempdir().expect("the temporary directory is writable")];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(directory) => found.push(directory),
        Err(error) => eprintln!("skipped tmpfs: /dev/shm is not usable here: {error}"),
    }
    found
}

fn pattern(len: usize, salt: u8) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(len);
    bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i / 7) as u8 ^ salt);
    bytes
}

fn read_all(device: &dyn Device) -> Vec<u8> {
    let mut bytes = AlignedBuf::zeroed(device.len() as usize);
    device.read(0, &mut bytes).expect("the whole device can be read");
    bytes.to_vec()
}

#[test]
fn over_reopening_with_every_fill_and_durability() {
    for directory in directories() {
        for (fill, durability) in [
            (Fill::Written, Durability::Durable),
            (Fill::Reserved, Durability::Later),
            (Fill::Sparse, Durability::Durable),
        ] {
            let path = directory.path().join(format!("{fill:?}"));
            let device = FileDevice::create(&path, &FileOptions::default()).expect("created");
            assert_eq!(device.len(), 0);
            assert!(device.is_empty());
            device.grow(3 << 20, fill).expect("grown");
            assert_eq!(device.len(), 3 << 20);
            assert!(read_all(&device).iter().all(|&b| b == 0), "{fill:?} space reads as zeros");
            let data = pattern(64 << 10, 3);
            device.write(1 << 20, &data, durability).expect("written");
            device.sync().expect("synced");
            drop(device);

            let device = FileDevice::open(&path, &FileOptions::default()).expect("reopened");
            let mut expected = vec![0; 3 << 20];
            expected[1 << 20..(1 << 20) + data.len()].copy_from_slice(&data);
            assert!(read_all(&device) == expected, "{fill:?} {durability:?}");
        }
    }
}

#[test]
fn created_files_are_private_and_never_replace_another() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("data");
    drop(FileDevice::create(&path, &FileOptions::default()).expect("created"));
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let error = FileDevice::create(&path, &FileOptions::default()).expect_err("it exists");
    assert_eq!(error.kind, DeviceErrorKind::Unusable);
    assert!(error.message.contains("open it instead"), "{error}");
    assert!(path.exists(), "the refused creation took nothing away");
}

#[test]
fn from_memory_and_at_sizes_that_direct_io_does_not_take() {
    for directory in directories() {
        for direct in [true, false] {
            let path = directory.path().join(format!("direct-{direct}"));
            let options = FileOptions { direct, ..FileOptions::default() };
            let device = FileDevice::create(&path, &options).expect("created");
            let block = device.info().logical_block;
            assert!(block.is_power_of_two() && (512..=65536).contains(&block));
            assert!(direct || !device.info().direct);
            // Larger than what is copied at a time, and at an odd address.
            let len = (2 << 20) + block;
            device.grow(len as u64, Fill::Sparse).expect("grown");
            let data = pattern(len + 1, 9);
            device.write(0, &data[1..], Durability::Durable).expect("written from odd memory");
            let mut back = AlignedBuf::zeroed(len + 1);
            device.read(0, &mut back[1..]).expect("read into odd memory");
            assert!(back[1..] == data[1..]);
            // One block, the smallest transfer.
            device.write(block as u64, &data[..block], Durability::Later).expect("one block written");
            assert!(read_all(&device)[block..2 * block] == data[..block]);
            device.read(0, &mut []).expect("nothing read");
        }
    }
}

#[test]
fn written_space_is_allocated_and_discarded_space_is_given_back() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("space");
    let allocated = |path: &Path| std::fs::metadata(path).expect("it is there").blocks() * 512;
    let device = FileDevice::create(&path, &FileOptions::default()).expect("created");
    device.grow(2 << 20, Fill::Sparse).expect("grown");
    assert!(allocated(&path) < 1 << 20, "sparse space takes no disk space");
    device.grow(4 << 20, Fill::Written).expect("grown");
    let with_written = allocated(&path);
    assert!(with_written >= 2 << 20, "written space takes disk space: {with_written}");
    device.discard(3 << 20, 1 << 20).expect("discarded");
    assert_eq!(device.len(), 4 << 20, "discarding keeps the length");
    eprintln!("given back: {} bytes", with_written - allocated(&path));
    device.discard(0, 0).expect("nothing discarded");
    let beyond = device.discard(4 << 20, 4096).expect_err("beyond the end");
    assert_eq!(beyond.kind, DeviceErrorKind::OutOfRange);
}

#[test]
fn lengths_change_only_when_asked_and_in_whole_blocks() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("length");
    let device = FileDevice::create(&path, &FileOptions::default()).expect("created");
    device.grow(4097, Fill::Reserved).expect("grown");
    let block = device.info().logical_block as u64;
    let len = 4097_u64.next_multiple_of(block);
    assert_eq!(device.len(), len, "rounded up");
    let data = AlignedBuf::zeroed(8192);
    for (offset, bytes) in [(len, 4096), (len - 4096 + (4096 % block), 8192), (1 << 40, 4096)] {
        let offset = offset - offset % block;
        let error = device.write(offset, &data[..bytes], Durability::Later).expect_err("beyond the end");
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange, "{error}");
    }
    device.grow(1, Fill::Written).expect("already longer");
    assert_eq!(device.len(), len);
    let error = device.grow(u64::MAX, Fill::Sparse).expect_err("no device is that long");
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);

    // What was cut off must not come back.
    device.write(0, &pattern(4096, 1), Durability::Later).expect("written");
    device.shrink(0).expect("shrunk");
    assert_eq!(device.len(), 0);
    device.grow(4096, Fill::Sparse).expect("grown");
    assert!(read_all(&device).iter().all(|&b| b == 0));
}

#[test]
fn a_last_part_of_a_block_is_ignored_and_overwritten_by_growth() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("tail");
    std::fs::write(&path, vec![0xee; 8192 + 100]).expect("written");
    let device = FileDevice::open(&path, &FileOptions::default()).expect("opened");
    assert_eq!(device.len(), 8192);
    device.grow(16384, Fill::Sparse).expect("grown");
    let bytes = read_all(&device);
    assert!(bytes[..8192].iter().all(|&b| b == 0xee) && bytes[8192..].iter().all(|&b| b == 0));
}

#[test]
fn a_full_or_refusing_file_system_leaves_the_old_length() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("full");
    let device = FileDevice::create(&path, &FileOptions::default()).expect("created");
    device.grow(1 << 20, Fill::Reserved).expect("grown");
    // More than any file system this runs on has free; the file system itself says so.
    for fill in [Fill::Reserved, Fill::Written] {
        let error = device.grow(1 << 58, fill).expect_err("no space");
        assert_eq!(error.kind, DeviceErrorKind::NoSpace, "{error}");
        assert!(error.message.contains("full"), "{error}");
        assert_eq!(device.len(), 1 << 20);
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 1 << 20);
    }
    device.write(0, &pattern(4096, 2), Durability::Durable).expect("what was there stays usable");
}

#[test]
fn a_file_cut_by_a_stranger_is_an_error_and_no_panic() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("cut");
    let device = FileDevice::create(&path, &FileOptions::default()).expect("created");
    device.grow(1 << 20, Fill::Reserved).expect("grown");
    let stranger = std::fs::OpenOptions::new().write(true).open(&path).expect("a stranger opens it");
    stranger.set_len(4096).expect("and cuts it");
    let error = device.read(8192, &mut AlignedBuf::zeroed(4096)).expect_err("nothing there");
    assert_eq!(error.kind, DeviceErrorKind::Failed, "{error}");
    assert!(error.message.contains("shorter"), "{error}");
}

#[test]
fn removed_files_are_gone_and_may_be_removed_again() {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let path = directory.path().join("gone");
    drop(FileDevice::create(&path, &FileOptions::default()).expect("created"));
    firndb_device::remove_file(&path).expect("removed");
    firndb_device::remove_file(&path).expect("nothing to remove");
    assert!(!path.exists());
    let missing = firndb_device::sync_directory(&directory.path().join("none")).expect_err("not there");
    assert_eq!(missing.kind, DeviceErrorKind::Unusable);
}
