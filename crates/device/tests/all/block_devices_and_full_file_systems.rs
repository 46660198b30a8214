//! A block device is used directly, in its own blocks, by one user, and does not grow; a file
//! system that really fills up leaves what was there. On loop devices, so both need root: run them
//! with `--ignored`.

use firndb_device::{
    AlignedBuf, Device, DeviceErrorKind, Durability, FileDevice, FileOptions, Fill, Io, IoOp,
};
use std::path::{Path, PathBuf};
use std::process::Command;

const BYTES: u64 = 16 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program exists");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// A loop device with 4096-byte blocks, removed in the end.
struct Loop {
    path: PathBuf,
    directory: tempfile::TempDir,
    mounted: Option<PathBuf>,
}

impl Loop {
    fn new() -> Loop {
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let file = directory.path().join("image");
        std::fs::File::create(&file).and_then(|file| file.set_len(BYTES)).expect("created");
        let path = run("losetup", &["-f", "--show", "-b", "4096", &file.display().to_string()]);
        Loop { path: PathBuf::from(path), directory, mounted: None }
    }

    fn mount(&mut self) -> PathBuf {
        let point = self.directory.path().join("mounted");
        std::fs::create_dir(&point).expect("created");
        run("mkfs.ext4", &["-q", &self.path.display().to_string()]);
        run("mount", &[&self.path.display().to_string(), &point.display().to_string()]);
        self.mounted = Some(point.clone());
        point
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(point) = &self.mounted {
            let _ = Command::new("umount").arg(point).status();
        }
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

fn open(path: &Path) -> Result<FileDevice, firndb_device::DeviceError> {
    FileDevice::open(path, &FileOptions::default())
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_block_device_is_direct_exclusive_and_of_fixed_length() {
    let mut disk = Loop::new();
    let device = open(&disk.path).expect("opened");
    assert_eq!((device.len(), device.info().logical_block, device.info().direct), (BYTES, 4096, true));
    let mut data = AlignedBuf::zeroed(8 * 4096);
    data.fill(0x5a);
    let mut batch: Vec<Io<'_>> = data
        .chunks(4096)
        .enumerate()
        .map(|(i, part)| Io {
            offset: i as u64 * 8192,
            op: IoOp::Write(part, Durability::Durable),
            outcome: Ok(()),
        })
        .collect();
    device.submit(&mut batch);
    assert!(batch.iter().all(|io| io.outcome.is_ok()), "{batch:?}");
    device.discard(0, 4096).expect("discards may do nothing");
    device.shrink(4096).expect("so may cuts");
    assert_eq!(device.len(), BYTES);
    let error = device.grow(BYTES + 1, Fill::Written).expect_err("cannot grow");
    assert_eq!(error.kind, DeviceErrorKind::NoSpace, "{error}");
    assert_eq!(open(&disk.path).expect_err("in use").kind, DeviceErrorKind::Locked);
    drop(device);

    let device = open(&disk.path).expect("opened again");
    let mut back = AlignedBuf::zeroed(4096);
    device.read(8192, &mut back).expect("read");
    assert!(back[..] == data[..4096]);
    drop(device);

    disk.mount();
    assert_eq!(open(&disk.path).expect_err("mounted").kind, DeviceErrorKind::Locked);
}

/// Cause: discards of block devices did nothing. Effect: a thinly provisioned volume kept what a
/// database had freed.
#[test]
#[ignore = "needs root and loop devices"]
fn a_block_device_gives_back_what_is_discarded() {
    use std::os::unix::fs::MetadataExt;
    let disk = Loop::new();
    let image = disk.directory.path().join("image");
    let blocks = || std::fs::metadata(&image).expect("it is there").blocks();
    let device = open(&disk.path).expect("opened");
    let mut data = AlignedBuf::zeroed(8 << 20);
    data.fill(0x5a);
    device.write(0, &data, Durability::Durable).expect("written");
    let before = blocks();
    assert!(before * 512 >= 8 << 20);
    device.discard(2 << 20, 4 << 20).expect("discarded");
    device.sync().expect("synced");
    let after = blocks();
    assert!((before - after) * 512 >= (4 << 20) * 9 / 10, "{before} blocks became {after}");
    let mut back = AlignedBuf::zeroed(8 << 20);
    device.read(0, &mut back).expect("read");
    assert!(back[..2 << 20] == data[..2 << 20] && back[6 << 20..] == data[6 << 20..]);
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_file_system_that_fills_up_leaves_what_was_there() {
    let mut disk = Loop::new();
    let path = disk.mount().join("data");
    let device = FileDevice::create(&path, &FileOptions::default()).expect("created");
    assert_eq!((device.info().logical_block, device.info().direct), (4096, true));
    device.grow(4 << 20, Fill::Written).expect("grown");
    let mut data = AlignedBuf::zeroed(4096);
    data.fill(9);
    device.write(0, &data, Durability::Durable).expect("written");
    for fill in [Fill::Written, Fill::Reserved] {
        let error = device.grow(BYTES, fill).expect_err("full");
        assert_eq!(error.kind, DeviceErrorKind::NoSpace, "{error}");
        assert_eq!(device.len(), 4 << 20);
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 4 << 20);
    }
    // Sparse space is not reserved: the write fails, and the device stays usable.
    device.grow(BYTES, Fill::Sparse).expect("costs nothing");
    let big = AlignedBuf::zeroed(12 << 20);
    let error = device.write(4 << 20, &big, Durability::Durable).expect_err("full");
    assert_eq!(error.kind, DeviceErrorKind::NoSpace, "{error}");
    device.shrink(4 << 20).expect("given back");
    device.write(4096, &data, Durability::Durable).expect("what is allocated can be written");
    let mut back = AlignedBuf::zeroed(8192);
    device.read(0, &mut back).expect("read");
    assert!(back.iter().all(|&byte| byte == 9));
    drop(device);
}
