//! Recovery reads log that the archive has, too, from the faster source, by the profiles of both;
//! and damaged log of the devices from the archive. In virtual time: bytes and times are equal on
//! any machine.

use crate::archive::support::{rows_of, wait_for_archive};
use firndb::device::{Device, Durability, MemoryDevice};
use firndb::{Database, Devices, ErrorKind, Options, RecoveryReport};
use firndb_base::sim::{self, SimOptions};
use firndb_emulate::{Emulated, profiles};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a crash left: the devices, and the archive's directory.
struct Left {
    devices: Vec<MemoryDevice>,
    archive: tempfile::TempDir,
}

fn options() -> Options {
    Options::new()
        .buffer_bytes(32 << 20)
        .log(|log| log.bytes(256 << 20).devices(2))
        .archive(|archive| archive.completes(false))
}

fn devices(all: Vec<Arc<dyn Device>>) -> Devices {
    let mut all = all.into_iter();
    let mut next = || all.next().unwrap();
    let superblock = next();
    let logs = vec![next(), next()];
    Devices { superblock, logs, store: next(), store_others: Vec::new(), cache: None }
}

fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, to.path().join(file.file_name().unwrap())).unwrap();
    }
    to
}

impl Left {
    /// A database with some 20 MB of log since its last checkpoint, all of it archived.
    fn new() -> Left {
        let media: Vec<Arc<MemoryDevice>> = ["superblock", "log.0", "log.1", "store"]
            .map(|name| Arc::new(MemoryDevice::new(name)))
            .into_iter()
            .collect();
        let archive = tempfile::tempdir().unwrap();
        let given = media.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
        let db = options()
            .archive(|settings| settings.directory(archive.path()))
            .create_on(devices(given))
            .unwrap();
        let table = db.create_table("rows").unwrap();
        for first in (0..15_000u64).step_by(500) {
            let put = |tx: &mut firndb::Transaction| {
                (first..first + 500)
                    .try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &[row as u8; 1000]).map(drop))
            };
            db.transact(put).unwrap();
        }
        wait_for_archive(&db);
        Left {
            devices: media.iter().map(|device| device.duplicate()).collect(),
            archive: copied(archive.path()),
        }
    }

    fn duplicate(&self) -> Left {
        Left {
            devices: self.devices.iter().map(MemoryDevice::duplicate).collect(),
            archive: copied(self.archive.path()),
        }
    }

    /// Without that many blocks of log on each device, from the middle of what is written on.
    fn damaged(self, blocks: usize) -> Left {
        for device in &self.devices[1..3] {
            let mut bytes = firndb::device::AlignedBuf::zeroed(device.len() as usize);
            device.read(0, &mut bytes).unwrap();
            let is_log = |block: &[u8]| block[4..6] == [0x46, 0x4C] && block[6] == 1;
            let found: Vec<usize> =
                (0..bytes.len() / 512).filter(|&at| is_log(&bytes[at * 512..][..512])).collect();
            for at in &found[found.len() / 2..][..blocks] {
                bytes[at * 512..][..512].fill(0xEE);
            }
            device.write(0, &bytes, Durability::Durable).unwrap();
        }
        self
    }

    fn open(&self, options: Options) -> Result<Database, firndb::Error> {
        let given = self.devices.iter().map(|device| Arc::new(device.duplicate()) as Arc<dyn Device>);
        options.archive(|archive| archive.directory(self.archive.path())).open_on(devices(given.collect()))
    }
}

fn profile(name: &str, directory: &Path) -> PathBuf {
    let path = directory.join(format!("{name}.toml"));
    profiles::get(name).unwrap().save(&path).unwrap();
    path
}

/// Opens it with log and archive on devices of these kinds, in virtual time; returns what recovery
/// reports, and the bytes of the log's devices that it read before transactions ran.
fn opened(left: &Left, log: &'static str, archive: &'static str, named: bool) -> (RecoveryReport, u64) {
    let left = left.duplicate();
    let places = tempfile::tempdir().unwrap();
    let options = options().background_threads(false).wrap_archive_reads(Arc::new(move |file| {
        Arc::new(Emulated::new(file, &profiles::get(archive).unwrap(), 9).unwrap()) as Arc<dyn Device>
    }));
    let options = match named {
        true => options
            .log(|settings| settings.profile(profile(log, places.path())))
            .archive(|settings| settings.profile(profile(archive, places.path()))),
        false => options,
    };
    let simulation = SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(1, 4) };
    let run = sim::run(simulation, move || {
        let mut seed = 0;
        let given = left.devices.iter().map(|device| {
            seed += 1;
            let device = Arc::new(device.duplicate());
            match device.info().name.starts_with("log") {
                true => Arc::new(Emulated::new(device, &profiles::get(log).unwrap(), seed).unwrap()),
                false => device as Arc<dyn Device>,
            }
        });
        let given = devices(given.collect());
        let db = options.archive(|archive| archive.directory(left.archive.path())).open_on(given).unwrap();
        let read = db.io_counts().logs.iter().map(|log| log.reads.bytes).sum();
        let report = db.recovery_report();
        assert_eq!(rows_of(&db, "rows").len(), 15_000);
        (report, read)
    });
    match run {
        Ok(outcome) => outcome.value,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn recovery_reads_the_archive_if_that_is_faster_and_the_devices_if_they_are() {
    let left = Left::new();
    // Two USB sticks of 2008, and an archive on an NVMe drive; and the reverse.
    let (slow, read_slow) = opened(&left, "flash-a", "nvme", false);
    let (fast, read_fast) = opened(&left, "flash-a", "nvme", true);
    assert!(!slow.clean && slow.log_bytes > 15 << 20, "{slow:?}");
    assert_eq!(
        (slow.archive_first, slow.from_archive),
        (0, 0),
        "neither rate is known: the devices have it all"
    );
    assert!(fast.archive_first > fast.log_bytes * 9 / 10, "{fast:?}");
    assert_eq!((fast.log_bytes, fast.records, fast.from_archive), (slow.log_bytes, slow.records, 0));
    // The newest section of each stream is read in any case.
    assert!(read_fast * 2 < read_slow, "{read_fast} bytes of the devices beside {read_slow}");
    let time = |report: &RecoveryReport| report.scan.time + report.analysis.time;
    assert!(time(&fast) * 2 < time(&slow), "{:?} beside {:?}", time(&fast), time(&slow));

    let (devices, read) = opened(&left, "nvme", "flash-a", true);
    let (unknown, read_unknown) = opened(&left, "nvme", "flash-a", false);
    assert_eq!((devices.archive_first, devices.from_archive), (0, 0));
    assert_eq!((time(&devices), read), (time(&unknown), read_unknown), "the slow archive is not touched");
}

#[test]
fn what_is_damaged_on_the_devices_comes_from_the_archive_and_is_on_the_devices_afterwards() {
    let left = Left::new();
    let rows = rows_of(&left.duplicate().open(options()).unwrap(), "rows");
    let left = left.damaged(40);
    // Without the archive the same damage stops the opening.
    let given = left.devices.iter().map(|device| Arc::new(device.duplicate()) as Arc<dyn Device>);
    let error = options().archive(|archive| archive.forget()).open_on(devices(given.collect())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");

    let media: Vec<Arc<MemoryDevice>> =
        left.devices.iter().map(|device| Arc::new(device.duplicate())).collect();
    let given = media.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let db = options()
        .background_threads(false)
        .archive(|archive| archive.directory(left.archive.path()))
        .open_on(devices(given))
        .unwrap();
    let report = db.recovery_report();
    assert!((10_000..60_000).contains(&report.from_archive), "{report:?}");
    // A crash now, before any checkpoint: the devices have a copy, and the archive is not needed.
    let crashed = media.iter().map(|device| Arc::new(device.duplicate()) as Arc<dyn Device>).collect();
    assert_eq!(rows_of(&db, "rows"), rows);
    drop(db);
    let db = options().archive(|archive| archive.forget()).open_on(devices(crashed)).unwrap();
    assert_eq!(db.recovery_report().from_archive, 0);
    assert_eq!(rows_of(&db, "rows"), rows);
    assert!(db.check(&mut |_| {}).unwrap().is_clean());
}
