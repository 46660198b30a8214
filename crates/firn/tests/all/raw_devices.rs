//! A database on raw devices: created on empty ones only, in place of what an interrupted creation
//! left, and with the space of dropped tables given back. On loop devices, so it needs root: run it
//! with `--ignored`.

use firndb::device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{Database, ErrorKind, Options};
use firndb_base::sync::Arc;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program exists");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Loop devices over sparse files, removed in the end.
struct Loops {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Loops {
    fn new(mebibytes: &[u64]) -> Loops {
        let mut made = Loops { dir: tempfile::tempdir().unwrap(), paths: Vec::new() };
        for (at, mib) in mebibytes.iter().enumerate() {
            let image = made.image(at);
            std::fs::File::create(&image).unwrap().set_len(mib * MIB).unwrap();
            made.paths.push(PathBuf::from(run("losetup", &["-f", "--show", image.to_str().unwrap()])));
        }
        made
    }

    fn image(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("image.{at}"))
    }

    fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Log, flash cache, and the store over all others.
    fn options(&self) -> Options {
        let options = Options::new().buffer_bytes(4 << 20).store_paths(&self.paths[2..]);
        let options = options.log(|log| log.paths(vec![self.paths[0].clone()]).bytes(16 * MIB));
        options.cache(|cache| cache.path(&self.paths[1]).bytes(8 * MIB))
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = Command::new("losetup").arg("-d").arg(path).status();
        }
    }
}

fn fill(db: &Database, bytes: usize) {
    let table = db.create_table("rows").unwrap();
    for first in (0..20_000u32).step_by(500) {
        db.transact(|tx| {
            (first..first + 500).try_for_each(|n| tx.insert(&table, &n.to_be_bytes(), &vec![n as u8; bytes]))
        })
        .unwrap();
    }
}

fn verify(db: &Database, bytes: usize) {
    let table = db.open_table("rows").unwrap();
    let mut tx = db.snapshot();
    for n in 0..20_000u32 {
        assert_eq!(tx.get(&table, &n.to_be_bytes()).unwrap().as_deref(), Some(&vec![n as u8; bytes][..]));
    }
    let report = db.check(&mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
}

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let device = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    device.write_all_at(bytes, offset).unwrap();
    device.sync_all().unwrap();
}

/// Cause: anything that was there before a creation was taken for a file of a lost database.
/// Effect: no database could be created on raw devices by their paths.
#[test]
#[ignore = "needs root and loop devices"]
fn log_cache_and_store_are_on_raw_devices() {
    for stores in [1, 3] {
        let devices = Loops::new(&vec![64; 2 + stores]);
        let options = || devices.options().store_survives(usize::from(stores > 1));
        // Something is on one of them: nothing is touched, and nothing created.
        write_at(&devices.paths[2], 4096, b"precious");
        let refused = options().open(devices.db()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument, "{refused}");
        assert!(refused.to_string().contains("is not empty"), "{refused}");
        assert_eq!(beginnings(&devices)[0], [0; 4096], "the others were not touched");
        write_at(&devices.paths[2], 4096, &[0; 8]);

        let db = options().open(devices.db()).unwrap();
        fill(&db, 200);
        db.close().unwrap();
        let again = options().open(devices.dir.path().join("other")).unwrap_err();
        assert!(again.to_string().contains("is not empty"), "{again}");
        let db = options().open(devices.db()).unwrap();
        verify(&db, 200);
        db.close().unwrap();
    }
}

/// What is on them all, in their beginning.
fn beginnings(devices: &Loops) -> Vec<[u8; 4096]> {
    let begins = |path: &PathBuf| {
        let mut begins = [0; 4096];
        std::io::Read::read_exact(&mut std::fs::File::open(path).unwrap(), &mut begins).unwrap();
        begins
    };
    devices.paths.iter().map(begins).collect()
}

#[test]
#[ignore = "needs root and loop devices"]
fn the_error_says_how_to_erase_a_device() {
    let devices = Loops::new(&[64, 64, 64]);
    for place in [0, 4096, 32 * MIB, 64 * MIB - 4096] {
        write_at(&devices.paths[1], place, b"precious");
        let refused = devices.options().open(devices.db()).unwrap_err().to_string();
        let command: Vec<&str> = refused.split('`').nth(1).expect("a command").split(' ').collect();
        run(command[0], &command[1..]);
        devices.options().open(devices.db()).unwrap().close().unwrap();
        std::fs::remove_dir_all(devices.db()).unwrap();
        devices.paths.iter().for_each(|path| drop(run("blkdiscard", &["-z", path.to_str().unwrap()])));
    }
}

/// Cause: lengths were compared when files would grow, after the claims. Effect: a device that was
/// too short for its log or cache was found when all were claimed, and the next attempt, on other
/// devices, found them in use.
#[test]
#[ignore = "needs root and loop devices"]
fn a_device_that_is_too_short_is_refused_before_any_is_written() {
    for (sizes, short, needed) in [
        (&[15, 64, 64][..], 0, 16 * MIB),
        (&[64, 7, 64], 1, 8 * MIB),
        (&[64, 64, 1], 2, MIB + 1),
        (&[64, 64, 64, 1, 64], 3, MIB + 1),
    ] {
        let devices = Loops::new(sizes);
        let blank = beginnings(&devices);
        let refused = devices.options().open(devices.db()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
        let refused = refused.to_string();
        assert!(refused.contains(devices.paths[short].to_str().unwrap()), "{refused}");
        let numbers = refused.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.filter(|number| *number >= MIB).collect();
        assert_eq!(numbers[0], sizes[short] * MIB, "{refused}");
        assert!(numbers[1] == needed || needed % MIB == 1 && numbers[1] >= needed, "{refused}");
        assert!(beginnings(&devices) == blank);
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn two_names_of_one_device_are_refused() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let devices = Loops::new(&[64, 64, 64]);
    let [link, node] = ["link", "node"].map(|name| devices.dir.path().join(name));
    symlink(&devices.paths[0], &link).unwrap();
    let number = std::fs::metadata(&devices.paths[0]).unwrap().rdev();
    let (major, minor) = ((number >> 8 & 0xfff).to_string(), (number & 0xff).to_string());
    run("mknod", &[node.to_str().unwrap(), "b", &major, &minor]);
    for second in [&devices.paths[0], &link, &node] {
        let refused = devices.options().store_path(second).open(devices.db()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument, "{refused}");
        assert!(refused.to_string().contains("the same file or device"), "{refused}");
        assert!(!devices.db().exists());
    }
    // A link that leads to another device later.
    std::fs::remove_file(&link).unwrap();
    symlink(&devices.paths[2], &link).unwrap();
    devices.options().store_path(&link).open(devices.db()).unwrap().close().unwrap();
    std::fs::remove_file(&link).unwrap();
    symlink(&node, &link).unwrap();
    let refused = devices.options().open(devices.db()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArgument, "{refused}");
}

/// Cause: a creation that was begun anew with other devices left those of before claimed. Effect:
/// no database could be created on them until they were erased.
#[test]
#[ignore = "needs root and loop devices"]
fn a_creation_releases_what_an_interrupted_one_had_claimed() {
    let devices = Loops::new(&[64, 64, 64]);
    let blank = beginnings(&devices);
    // Interrupted between two claims: a directory is missing.
    let paths = vec![devices.paths[0].clone(), devices.dir.path().join("no directory/log")];
    let refused = devices.options().log(|log| log.paths(paths)).open(devices.db()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused}");
    assert!(beginnings(&devices)[0] != blank[0], "it was claimed");
    let elsewhere = devices.options().open(devices.dir.path().join("other")).unwrap_err();
    assert!(elsewhere.to_string().contains("has claimed it"), "{elsewhere}");
    // A creation that another device stops leaves the mark as it is.
    write_at(&devices.paths[2], 4096, b"precious");
    devices.options().log(|log| log.paths(vec!["log".into()])).open(devices.db()).unwrap_err();
    write_at(&devices.paths[2], 4096, &[0; 8]);
    let other_log = devices.options().log(|log| log.paths(vec!["log".into()]));
    other_log.open(devices.db()).unwrap().close().unwrap();
    assert!(beginnings(&devices)[0] == blank[0], "it was released");
}

/// What a crash leaves of a creation on raw devices, at whatever write, is taken by the next one.
#[test]
#[ignore = "needs root and loop devices"]
fn an_interrupted_creation_is_begun_anew_on_the_same_devices() {
    let devices = Loops::new(&[64, 64, 64]);
    let mut interrupted = 0;
    for write in (0..).step_by(3) {
        // Two in a row: of the first there may be what the second had not claimed yet.
        let mut fired = 0;
        for write in [write, write / 2] {
            let plan = FaultPlan::new(1);
            plan.add(FaultRule {
                calls: Calls::Writes,
                device: None,
                when: When::From(write),
                fault: Fault::Fail(DeviceErrorKind::Failed),
            });
            let faults = plan.clone();
            let failing = devices
                .options()
                .wrap_devices(move |_, device| Ok(Arc::new(Faulty::new(device, &faults)) as Arc<dyn Device>));
            interrupted += u64::from(failing.open(devices.db()).is_err());
            fired += plan.fired();
        }
        let db =
            devices.options().open(devices.db()).unwrap_or_else(|error| panic!("write {write}: {error}"));
        if fired == 0 {
            break;
        }
        assert!(db.table_names().is_empty());
        db.close().unwrap();
        std::fs::remove_dir_all(devices.db()).unwrap();
        devices.paths.iter().for_each(|path| drop(run("blkdiscard", &[path.to_str().unwrap()])));
    }
    assert!(interrupted > 5, "{interrupted} creations were interrupted");
}

/// The image behind a thinly provisioned store has the blocks of a dropped table no more.
#[test]
#[ignore = "needs root and loop devices"]
fn a_raw_store_gives_back_what_was_dropped() {
    use std::os::unix::fs::MetadataExt;
    let devices = Loops::new(&[64, 64, 128]);
    let blocks = || std::fs::metadata(devices.image(2)).unwrap().blocks() * 512;
    let log = devices.paths[0].clone();
    let options = Options::new().store_path(&devices.paths[2]).log(|it| it.paths(vec![log]).bytes(16 * MIB));
    let db = options.open(devices.db()).unwrap();
    // Several groups of pages.
    fill(&db, 2000);
    db.checkpoint().unwrap();
    let filled = blocks();
    db.drop_table("rows").unwrap();
    let begun = Instant::now();
    while blocks() > filled / 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} of {filled} bytes are still taken", blocks());
        std::thread::sleep(Duration::from_millis(20));
    }
    db.close().unwrap();
}
