//! The thesis' procedure on the emulation of a profile.

use crate::bench::simulation::simulate;
use crate::tpcc::machine::profile;
use firndb_base::sync::Arc;
use firndb_characterize::{Cell, Effort, Op, Pattern, Plan, Purpose, Stop, Target, measure};
use firndb_console::Failure;
use firndb_device::{Device, DeviceError, DeviceInfo, Durability, Fill};
use firndb_emulate::Emulated;
use firndb_profile::DeviceProfile;
use std::time::Duration;

/// The four workloads, as the thesis' tables list them.
pub const KINDS: [(&str, Op, Pattern); 4] = [
    ("sequential read", Op::Read, Pattern::Sequential),
    ("sequential write", Op::WriteDurable, Pattern::Sequential),
    ("random read", Op::Read, Pattern::Random),
    ("random write", Op::WriteDurable, Pattern::Random),
];
/// The size at which the thesis' tables compare devices.
pub const PAGE: usize = 4096;
/// "A 20 GB file", in whole requests of the largest size.
const FILE_BYTES: u64 = (20_000_000_000 >> 20) << 20;

/// The sizes of requests: 1 KB to 1 MB.
pub fn sizes() -> impl Iterator<Item = usize> {
    (10..=20).map(|shift| 1 << shift)
}

/// What was measured of one device.
pub struct Measured {
    /// As the command line names it.
    pub name: String,
    pub profile: DeviceProfile,
    /// By kind, then by size.
    pub rows: Vec<Row>,
}

/// One kind of request of one size.
#[derive(Clone, Copy)]
pub struct Row {
    /// A place in [`KINDS`].
    pub kind: usize,
    pub bytes: usize,
    /// Requests that were timed.
    pub requests: u64,
    /// 10^6 bytes a second.
    pub mb_s: f64,
    /// Mean milliseconds of a request.
    pub mean_ms: f64,
}

impl Measured {
    /// The row of this kind and size. A profile whose blocks are larger than the request has none.
    pub fn row(&self, kind: usize, bytes: usize) -> Option<&Row> {
        self.rows.iter().find(|row| (row.kind, row.bytes) == (kind, bytes))
    }
}

/// Measures the profile of this name, or in this file.
pub fn measured(name: &str, seconds: f64, seed: u64) -> Result<Measured, Failure> {
    let profile = profile(name)?;
    let of_simulation = profile.clone();
    let (rows, _) = simulate(seed, 1, move || rows(&of_simulation, seconds, seed))?;
    if !rows.iter().any(|row| row.bytes == PAGE) {
        return Err(Failure::bad_argument(format!(
            "{name} has blocks of {} bytes; the thesis compares devices at {PAGE}",
            profile.logical_block
        )));
    }
    Ok(Measured { name: name.to_owned(), profile, rows })
}

/// Runs inside the simulation.
fn rows(profile: &DeviceProfile, seconds: f64, seed: u64) -> Result<Vec<Row>, Failure> {
    let block = profile.logical_block as usize;
    let info = DeviceInfo { name: "blank".to_owned(), logical_block: block, direct: true };
    let blank = Blank { info, len: FILE_BYTES.min(profile.capacity_bytes / (1 << 20) * (1 << 20)) };
    let device = Emulated::new(Arc::new(blank), profile, seed);
    let device = device.map_err(|error| Failure::bad_argument(error.to_string()))?;
    let budget = Duration::from_secs_f64(seconds);
    let cells = KINDS.iter().flat_map(|&(_, op, pattern)| {
        sizes().map(move |bytes| Cell::new(Purpose::BySize, op, pattern, bytes, budget))
    });
    let plan = Plan {
        effort: Effort::Full,
        cells: cells.collect(),
        rounds: 1,
        deadline: Duration::MAX,
        prepare: Duration::ZERO,
        seed,
    };
    let never: Stop = Arc::new(|| false);
    let measured = measure(&Target::given(Arc::new(device)), &plan, &mut |_| {}, &never);
    let measured = measured.map_err(|error| Failure::new(error.to_string()))?;
    let rows = KINDS.iter().enumerate().flat_map(|(kind, &(_, op, pattern))| {
        measured.of(Purpose::BySize, op, pattern).into_iter().map(move |one| Row {
            kind,
            bytes: one.cell.bytes,
            requests: one.tally.requests,
            mb_s: one.mb_per_second(),
            mean_ms: one.tally.latency.mean_us() / 1000.0,
        })
    });
    Ok(rows.collect())
}

/// A device that keeps no bytes: its emulation's times are the question.
#[derive(Debug)]
struct Blank {
    info: DeviceInfo,
    len: u64,
}

impl Device for Blank {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn write(&self, _: u64, _: &[u8], _: Durability) -> Result<(), DeviceError> {
        Ok(())
    }
    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn grow(&self, _: u64, _: Fill) -> Result<(), DeviceError> {
        Ok(())
    }
    fn shrink(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}
