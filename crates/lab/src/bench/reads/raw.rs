//! What the drive itself does: transfers of its places without an engine, as many in flight as are
//! asked for at any time (`firndb_characterize`, as fio does with threads).

use firndb_base::sync::Arc;
use firndb_characterize::{Cell, Op, PAGE, Pattern, Purpose, Tally, round};
use firndb_console::Failure;
use firndb_device::Device;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sequential reads are of this number of bytes, with this number in flight: as printed figures of
/// drives are taken.
const LARGE: usize = 1 << 20;
const LARGE_DEPTH: usize = 4;

/// The first bytes of a device, which hold what is read.
#[derive(Clone)]
pub struct Raw {
    pub device: Arc<dyn Device>,
    pub bytes: u64,
    pub stop: &'static AtomicBool,
}

impl Raw {
    fn round(&self, cell: Cell, time: Duration, seed: u64) -> Result<Tally, Failure> {
        let stop = self.stop;
        let stop: firndb_characterize::Stop = Arc::new(move || stop.load(Ordering::Relaxed));
        round(&self.device, &cell, self.bytes, time, (seed, 0), &stop)
            .map_err(|error| Failure::new(error.to_string()))
    }

    /// Reads pages at random.
    pub fn random(&self, depth: usize, time: Duration, seed: u64) -> Result<Tally, Failure> {
        self.round(
            Cell::new(Purpose::ByDepth, Op::Read, Pattern::Random, PAGE, time).depth(depth),
            time,
            seed,
        )
    }

    /// Reads everything in order, at most for `time`.
    pub fn sequential(&self, time: Duration, seed: u64) -> Result<Tally, Failure> {
        let cell = Cell::new(Purpose::ByDepth, Op::Read, Pattern::Sequential, LARGE, time);
        self.round(cell.depth(LARGE_DEPTH), time, seed)
    }

    /// Writes in order, for `time`; what is written need not be durable when it returns.
    pub fn sequential_writes(&self, time: Duration, seed: u64) -> Result<Tally, Failure> {
        let cell = Cell::new(Purpose::ByDepth, Op::WriteLater, Pattern::Sequential, LARGE, time);
        self.round(cell.depth(LARGE_DEPTH), time, seed)
    }
}
