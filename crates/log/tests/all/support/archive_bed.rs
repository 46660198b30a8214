//! A log on two devices, and its archive.

use super::{Model, as_records, device_with, random_group};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::Device;
use firndb_log::archive::{ArchiveFiles, ArchiveWriter, Archived, SEGMENT_BYTES_MIN};
use firndb_log::testing::{identity, options};
use firndb_log::{
    ArchiveUse, Log, LogClass, LogIdentity, LogOptions, LogScan, LogSources, LogTail, Redundancy,
};
use std::path::Path;
use std::sync::Arc;

pub fn small() -> LogOptions {
    LogOptions { buffer_bytes: 16 << 10, request_bytes: 4 << 10, ..options() }
}

/// A log on two devices and its archive, over several epochs.
pub struct Bed {
    pub devices: Vec<Arc<dyn Device>>,
    pub identity: LogIdentity,
    pub options: LogOptions,
    pub log: Arc<Log>,
    pub model: Model,
    pub directory: tempfile::TempDir,
    pub writer: ArchiveWriter,
    pub tail: LogTail,
}

pub fn writer_in(directory: &Path) -> ArchiveWriter {
    ArchiveWriter::open(ArchiveFiles::new(directory), identity(1).database, SEGMENT_BYTES_MIN).unwrap()
}

impl Bed {
    pub fn new(copies: usize) -> Bed {
        Bed::with(LogOptions { copies, ..small() })
    }

    pub fn with(options: LogOptions) -> Bed {
        let copies = options.copies;
        let devices: Vec<Arc<dyn Device>> =
            (0..2).map(|i| device_with(&format!("log {i}"), 512, 8 << 20) as Arc<dyn Device>).collect();
        let mut identity = identity(2);
        identity.redundancy = Redundancy::since(Lsn::FIRST, copies as u8);
        let log = Log::create(devices.clone(), identity.clone(), Epoch(1), options.clone()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let writer = writer_in(directory.path());
        let tail = LogTail::new(log.clone(), identity.clone(), Lsn::FIRST);
        Bed { devices, identity, options, log, model: Model::default(), directory, writer, tail }
    }

    pub fn append(&mut self, rng: &mut Rng, groups: u64) {
        self.append_groups(rng, groups, 300);
    }

    /// As `append`, in longer groups, which are durable afterwards.
    pub fn append_durably(&mut self, rng: &mut Rng, groups: u64) {
        self.append_groups(rng, groups, 900);
        self.log.flush(self.log.end()).unwrap();
    }

    /// Another tail of the log.
    pub fn tail_from(&self, from: Lsn) -> LogTail {
        LogTail::new(self.log.clone(), self.identity.clone(), from)
    }

    /// Ends this epoch with a crash and begins the next one.
    pub fn crash(&mut self) {
        let scan = self.scan(false).unwrap();
        self.go_on(&scan);
    }

    fn append_groups(&mut self, rng: &mut Rng, groups: u64, body_max: u64) {
        for _ in 0..groups {
            let group = random_group(rng, body_max);
            let appended = self.log.append_group(LogClass::Normal, &as_records(&group)).unwrap();
            self.model.add(appended, &group);
        }
    }

    /// Archives all appended log. Returns the durable LSN after that.
    pub fn archive(&mut self, max: usize) -> Lsn {
        let mut bytes = Vec::new();
        while let Some(piece) = self.tail.next_appended(max, Lsn::MAX, &mut bytes).unwrap() {
            self.writer.append(piece, &bytes, 1).unwrap();
            self.log.archived(self.tail.boundary());
        }
        self.log.durable()
    }

    pub fn archived(&self) -> Archived {
        Archived::open(ArchiveFiles::new(self.directory.path()), self.identity.database).unwrap().unwrap()
    }

    pub fn scan(&self, with_archive: bool) -> Result<LogScan, firndb_log::LogError> {
        let archive = if with_archive { ArchiveUse::Needed(self.archived()) } else { ArchiveUse::None };
        self.scan_of(self.devices.clone(), archive)
    }

    pub fn scan_of(
        &self,
        devices: Vec<Arc<dyn Device>>,
        archive: ArchiveUse,
    ) -> Result<LogScan, firndb_log::LogError> {
        let sources = LogSources::new(devices, self.identity.clone(), Lsn::FIRST);
        LogScan::find(sources.with_archive(archive), &mut |_, _| {})
    }

    /// Continues in a new epoch after a crash, with or without the archive's log.
    pub fn go_on(&mut self, scan: &LogScan) {
        self.model.cut(scan.end());
        let epoch = Epoch(self.identity.epochs.len() as u32 + 1);
        let start = scan.next_epoch_start();
        self.identity.epochs.push((epoch, start));
        self.identity.redundancy.set_from(start, self.options.copies as u8);
        self.log = scan.open_log(epoch, start, self.options.clone()).unwrap();
        self.writer = writer_in(self.directory.path());
        let from = self.writer.resume().unwrap_or(Lsn::FIRST);
        self.tail = LogTail::new(self.log.clone(), self.identity.clone(), from);
    }

    pub fn check(&self, scan: &LogScan) {
        let mut records = scan.records(Lsn::FIRST);
        let mut expected = self.model.records.iter();
        while let Some((lsn, record)) = records.next().unwrap() {
            let (at, (kind, body)) = expected.next().unwrap_or_else(|| panic!("{lsn:?} is one too many"));
            assert_eq!((lsn, record.kind, record.body), (*at, *kind, &body[..]));
        }
        assert_eq!(expected.next().map(|(lsn, _)| *lsn), None, "records are missing");
    }
}

/// The devices without the blocks of log in `lost`.
pub fn without(devices: &[Arc<dyn Device>], lost: std::ops::Range<Lsn>) -> Vec<Arc<dyn Device>> {
    let copy = |device: &Arc<dyn Device>| {
        let mut bytes = firndb_device::AlignedBuf::zeroed(device.len() as usize);
        device.read(0, &mut bytes).unwrap();
        for block in bytes.chunks_exact_mut(512) {
            let lsn = Lsn(u64::from_le_bytes(block[24..32].try_into().unwrap()));
            if block[4..6] == [0x46, 0x4C] && block[6] == 1 && lost.contains(&lsn) {
                block.fill(0);
            }
        }
        let left = device_with("left", 512, device.len());
        left.write(0, &bytes, firndb_device::Durability::Durable).unwrap();
        left as Arc<dyn Device>
    };
    devices.iter().map(copy).collect()
}
