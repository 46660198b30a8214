//! A log on devices of which places can be made unreadable.

use super::{identity_with, log_blocks};
use firndb_base::{Epoch, Lsn};
use firndb_device::{Device, FaultPlan, Faulty, Fill, MemoryDevice};
use firndb_log::{Kind, Log, LogClass, LogError, LogIdentity, LogOptions, LogScan, Record, Redundancy};
use firndb_testkit::bytes::contents;
use std::sync::Arc;

pub const EPOCHS: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];

/// Devices of which places can be made unreadable, and what is beneath them.
pub struct Bed {
    pub media: Vec<Arc<MemoryDevice>>,
    pub faulty: Vec<Arc<Faulty>>,
}

impl Bed {
    pub fn new(count: usize, block: usize, bytes: u64) -> Bed {
        let media: Vec<Arc<MemoryDevice>> = (0..count)
            .map(|i| {
                let device = MemoryDevice::with(&format!("log {i}"), block, u64::MAX);
                device.grow(bytes, Fill::Written).unwrap();
                Arc::new(device)
            })
            .collect();
        let faulty = media.iter().map(|d| Arc::new(Faulty::new(d.clone(), &FaultPlan::new(0)))).collect();
        Bed { media, faulty }
    }

    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    /// The log blocks of a device: offset, LSN, fill, epoch.
    pub fn blocks(&self, device: usize) -> Vec<(usize, Lsn, u16, u32)> {
        log_blocks(&contents(&*self.media[device]))
    }

    /// Makes all blocks unreadable that hold `lsn`, and answers how many.
    pub fn lose(&self, lsn: Lsn) -> usize {
        let mut lost = 0;
        for (device, faulty) in self.faulty.iter().enumerate() {
            for (at, ..) in self.blocks(device).into_iter().filter(|b| b.1.0 <= lsn.0 && lsn.0 < b.1.0 + 472)
            {
                faulty.make_unreadable(at as u64, 512);
                lost += 1;
            }
        }
        lost
    }
}

pub fn create(bed: &Bed, options: LogOptions) -> Arc<Log> {
    let identity = with_copies(bed.media.len() as u32, &EPOCHS, options.copies);
    Log::create(bed.devices(), identity, Epoch(1), options).unwrap()
}

pub fn with_copies(members: u32, epochs: &[(Epoch, Lsn)], copies: usize) -> LogIdentity {
    let redundancy =
        if copies > 1 { Redundancy::since(Lsn::FIRST, copies as u8) } else { Redundancy::default() };
    LogIdentity { redundancy, ..identity_with(members, epochs) }
}

pub fn find(bed: &Bed, copies: usize) -> Result<LogScan, LogError> {
    let identity = with_copies(bed.media.len() as u32, &EPOCHS, copies);
    LogScan::new(bed.devices(), identity, Lsn::FIRST, &mut |_, _| {})
}

pub fn add(log: &Log, len: usize) -> Lsn {
    let end = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &vec![5; len] }).unwrap().end;
    log.flush(end).unwrap();
    end
}

pub fn add_many(log: &Log, count: usize, len: usize) {
    (0..count).for_each(|_| {
        add(log, len);
    });
}
