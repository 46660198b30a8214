//! Helpers shared by several tests of the log.
pub mod archive_bed;
pub mod bad_places;
pub mod emulation;

use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, DeviceError, Durability, Fill, MemoryDevice};
use firndb_log::testing::identity;
use firndb_log::{Appended, Kind, LogIdentity, LogScan, Record};
use firndb_log_comparators::LogPolicy;
use firndb_testkit::gate::Gate;
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The expected contents of the log: every record ever appended that may still be there.
#[derive(Default, Clone)]
pub struct Model {
    pub records: BTreeMap<Lsn, (Kind, Vec<u8>)>,
    /// First LSN after each group.
    pub ends: Vec<Lsn>,
}

impl Model {
    /// Records a group at its LSNs.
    pub fn add(&mut self, appended: Appended, group: &[(Kind, Vec<u8>)]) {
        let mut lsn = appended.first;
        for (kind, body) in group {
            assert!(self.records.insert(lsn, (*kind, body.clone())).is_none(), "{lsn:?} was given twice");
            lsn = lsn.advance(firndb_log::Log::framed_len(body.len()));
        }
        assert_eq!(lsn, appended.end);
        self.ends.push(appended.end);
    }

    /// Asserts that `scan` delivers exactly the records from `from` to its end, and ends with a
    /// whole group.
    pub fn check(&self, scan: &LogScan, from: Lsn) {
        self.check_until(scan, from, scan.end());
        let whole = scan.end() == from || scan.end() == Lsn::FIRST || self.ends.contains(&scan.end());
        assert!(whole || self.is_start_of_epoch(scan.end()), "{:?} is no group's end", scan.end());
    }

    /// Asserts that `scan` delivers exactly the records from `from` to `until`.
    pub fn check_until(&self, scan: &LogScan, from: Lsn, until: Lsn) {
        let mut records = scan.records(from);
        let mut expected = self.records.range(from..until.max(from));
        while let Some((lsn, record)) = records.next().unwrap().filter(|&(lsn, _)| lsn < until) {
            let (at, (kind, body)) = expected.next().unwrap_or_else(|| panic!("{lsn:?} is one too many"));
            assert_eq!((lsn, record.kind), (*at, *kind));
            assert!(record.body == body, "the body at {lsn:?} differs");
        }
        assert_eq!(expected.next().map(|(lsn, _)| *lsn), None, "records are missing");
    }

    /// A crash lost the log at or past `end`.
    pub fn cut(&mut self, end: Lsn) {
        self.records.split_off(&end);
        self.ends.retain(|&lsn| lsn <= end);
    }

    fn is_start_of_epoch(&self, lsn: Lsn) -> bool {
        // The log's own first record of an epoch, 18 bytes at a block's start.
        lsn.0 % 472 == 18
    }
}

/// A random group.
pub fn random_group(rng: &mut Rng, max_body: u64) -> Vec<(Kind, Vec<u8>)> {
    let count = if rng.one_in(3) { rng.between(2, 5) } else { 1 };
    (0..count)
        .map(|_| {
            let len = if rng.one_in(4) { rng.below(max_body + 1) } else { rng.below(60) };
            let seed = rng.next_u64();
            let body = (0..len).map(|i| (seed >> (i % 8 * 8)) as u8 ^ i as u8).collect();
            (Kind(0x20 + (seed % 16) as u8), body)
        })
        .collect()
}

pub fn as_records(group: &[(Kind, Vec<u8>)]) -> Vec<Record<'_>> {
    group.iter().map(|(kind, body)| Record { kind: *kind, body }).collect()
}

pub fn identity_with(members: u32, epochs: &[(Epoch, Lsn)]) -> LogIdentity {
    LogIdentity { epochs: epochs.to_vec(), ..identity(members) }
}

pub fn scan(
    devices: &[Arc<dyn Device>],
    epochs: &[(Epoch, Lsn)],
    from: Lsn,
) -> Result<LogScan, firndb_log::LogError> {
    LogScan::new(devices.to_vec(), identity_with(devices.len() as u32, epochs), from, &mut |_, _| {})
}

pub fn device_with(name: &str, block: usize, bytes: u64) -> Arc<MemoryDevice> {
    let device = MemoryDevice::with(name, block, u64::MAX);
    device.grow(bytes, Fill::Written).unwrap();
    Arc::new(device)
}

/// Offsets of the log blocks on a device in 512-byte steps, with LSN, fill and epoch.
pub fn log_blocks(bytes: &[u8]) -> Vec<(usize, Lsn, u16, u32)> {
    let blocks = bytes.chunks_exact(512).enumerate();
    blocks
        .filter(|(_, b)| b[4..6] == [0x46, 0x4c] && b[6] == 1)
        .map(|(i, b)| {
            let lsn = u64::from_le_bytes(b[24..32].try_into().unwrap());
            let fill = u16::from_le_bytes(b[22..24].try_into().unwrap());
            (i * 512, Lsn(lsn), fill, u32::from_le_bytes(b[16..20].try_into().unwrap()))
        })
        .collect()
}

/// Whether these bytes of a device begin with a section header.
pub fn is_section_header(bytes: &[u8]) -> bool {
    bytes[4..6] == [0x46, 0x4c] && bytes[6] == 2
}

/// A device that calls `before` with offset and data of every write, which it may delay or fail.
pub fn before_writes(
    inner: Arc<dyn Device>,
    before: impl Fn(u64, &[u8]) -> Result<(), DeviceError> + Send + Sync + 'static,
) -> Arc<dyn Device> {
    Hooked::over(inner, move |call| match call {
        Call::Write { offset, data, .. } => before(offset, data),
        _ => Ok(()),
    })
}

/// Stream of the first log block of a request; `None` for headers only.
pub fn stream_of(data: &[u8]) -> Option<u8> {
    data.chunks_exact(512).find(|b| b[4..6] == [0x46, 0x4c] && b[6] == 1).map(|b| b[20])
}

/// Log blocks of one stream on a device in the order of their places.
pub fn stream_blocks(bytes: &[u8], stream: u8) -> Vec<(usize, Lsn, u16, u32)> {
    log_blocks(bytes).into_iter().filter(|&(at, ..)| bytes[at + 20] == stream).collect()
}

/// A device whose writes of log, unlike those of section headers, take `usual` and block while its
/// gate is shut.
pub fn gated(inner: Arc<dyn Device>, usual: Duration, gate: &Gate) -> Arc<dyn Device> {
    let gate = gate.clone();
    before_writes(inner, move |_, data| {
        if stream_of(data).is_some() {
            std::thread::sleep(usual);
            gate.wait();
        }
        Ok(())
    })
}

/// A device of which some writes take long, before or after the bytes have reached the device
/// below.
#[derive(Debug)]
pub struct Jittery {
    inner: Arc<dyn Device>,
    rng: Mutex<Rng>,
    one_in: u64,
}

impl Jittery {
    pub fn new(inner: Arc<dyn Device>, seed: u64, one_in: u64) -> Jittery {
        Jittery { inner, rng: Mutex::new(Rng::new(seed)), one_in }
    }

    fn pause(&self) {
        let time = {
            let mut rng = self.rng.lock().unwrap();
            if rng.one_in(self.one_in) { rng.between(200, 2500) } else { 0 }
        };
        std::thread::sleep(Duration::from_micros(time));
    }
}

impl Device for Jittery {
    firndb_device::forward!(inner: info, len, read, sync, grow, shrink, discard);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if stream_of(data).is_none() {
            return self.inner.write(offset, data, durability);
        }
        self.pause();
        let outcome = self.inner.write(offset, data, durability);
        self.pause();
        outcome
    }
}

/// Any policy with which a log of `members` members, with blocks of `block` bytes, may be opened.
pub fn random_policy(rng: &mut Rng, members: u32, block: usize) -> LogPolicy {
    match rng.below(3) {
        0 => LogPolicy::Array,
        1 if members == 1 => LogPolicy::InPlace,
        _ => LogPolicy::Striped { unit_bytes: block as u32 * rng.between(1, 2) as u32 },
    }
}
