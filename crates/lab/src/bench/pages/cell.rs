//! One measurement: a workload in one mode of recovery on one drive, and what it took.

use super::machine::{CORES, Loaded, Machine, Memory};
use super::work::{self, Watching, Work};
use crate::bench::cells::{Cellular, end_of};
use crate::bench::simulation::simulate;
use firndb::{IoCounts, PageRecovery, Statistics};
use firndb_base::clock;
use firndb_console::Failure;
use firndb_device::DeviceCounts;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The modes that the engine has. `log` is the paper's ARIES, `hybrid` its rule.
pub const MODES: [(&str, PageRecovery); 4] = [
    ("log", PageRecovery::Log),
    ("shadow", PageRecovery::Shadow),
    ("hybrid", PageRecovery::Hybrid),
    ("adaptive", PageRecovery::Adaptive),
];

/// Points of a curve over operations.
const CURVE_POINTS: u64 = 100;

#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub recovery: PageRecovery,
    pub memory: Memory,
    pub work: Work,
    /// Whether dirty pages are counted while it runs.
    pub curve: bool,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let Memory { buffer, private, version_bytes } = self.memory;
        let mode = format!("{:?}", self.recovery).to_lowercase();
        let undo = if version_bytes == 0 { ", no undo in memory" } else { "" };
        format!("{}, {mode}, {}, {buffer}+{private} pages{undo}", self.profile.name, self.work.name())
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Requests and bytes on one part of the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Io {
    pub writes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub syncs: u64,
    /// Writes that were durable by themselves.
    pub durable_writes: u64,
}

impl Io {
    fn of(counts: &DeviceCounts) -> Io {
        Io {
            writes: counts.writes.ops,
            write_bytes: counts.writes.bytes,
            reads: counts.reads.ops,
            read_bytes: counts.reads.bytes,
            syncs: counts.syncs,
            durable_writes: counts.durable_writes.ops,
        }
    }

    /// Each count, of this and of another.
    fn with(self, other: Io, of: fn(u64, u64) -> u64) -> Io {
        Io {
            writes: of(self.writes, other.writes),
            write_bytes: of(self.write_bytes, other.write_bytes),
            reads: of(self.reads, other.reads),
            read_bytes: of(self.read_bytes, other.read_bytes),
            syncs: of(self.syncs, other.syncs),
            durable_writes: of(self.durable_writes, other.durable_writes),
        }
    }

    pub fn plus(self, other: Io) -> Io {
        self.with(other, |one, other| one + other)
    }

    fn less(self, part: Io) -> Io {
        self.with(part, |all, part| all - part)
    }

    /// All requests that a drive sees.
    pub fn requests(self) -> u64 {
        self.writes + self.reads + self.syncs
    }

    /// Requests that wait for the medium: syncs and durable writes.
    pub fn flushes(self) -> u64 {
        self.syncs + self.durable_writes
    }
}

/// What one step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub seconds: f64,
    pub log: Io,
    /// Of the store and of the superblock.
    pub store: Io,
}

impl Step {
    pub fn all(self) -> Io {
        self.log.plus(self.store)
    }

    /// Without a part of it.
    fn less(self, part: Step) -> Step {
        Step {
            seconds: self.seconds - part.seconds,
            log: self.log.less(part.log),
            store: self.store.less(part.store),
        }
    }
}

/// A moment of the work: pages that are newer than their images on the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    pub operations: u64,
    pub dirty_frames: u64,
    pub private_pages: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// Until the last transaction had ended.
    pub work: Step,
    /// The last commit or rollback alone, within it.
    pub last_end: Step,
    /// A checkpoint after it: what was left to write.
    pub checkpoint: Step,
    pub frames: u64,
    pub images_logged: u64,
    pub images_early: u64,
    pub shadows: u64,
    pub shadow_writes: u64,
    pub spilled: u64,
    pub curve: Vec<Moment>,
}

impl Found {
    /// Bytes written, with what was left to the checkpoint.
    pub fn bytes_written(&self) -> f64 {
        (self.work.all().write_bytes + self.checkpoint.all().write_bytes) as f64
    }

    /// Requests, likewise.
    pub fn requests(&self) -> f64 {
        (self.work.all().requests() + self.checkpoint.all().requests()) as f64
    }

    /// What was done before the last commit or rollback.
    pub fn before_end(&self) -> Step {
        self.work.less(self.last_end)
    }

    /// Seconds, likewise.
    pub fn settled_seconds(&self) -> f64 {
        self.work.seconds + self.checkpoint.seconds
    }
}

/// I/O and time from its making on.
pub struct Meter {
    began: clock::Moment,
    io: IoCounts,
}

impl Meter {
    pub fn new(machine: &Machine) -> Meter {
        Meter { began: clock::now(), io: machine.db.statistics().io }
    }

    pub fn read(&self, machine: &Machine) -> Step {
        let io = machine.db.statistics().io.since(&self.io);
        Step {
            seconds: self.began.elapsed().as_secs_f64(),
            log: io.logs.iter().map(Io::of).fold(Io::default(), Io::plus),
            store: Io::of(&io.store).plus(Io::of(&io.superblock)),
        }
    }
}

/// Looks at the machine while the work is done.
struct Watch<'m> {
    machine: &'m Machine,
    operations: u64,
    curve: Option<Vec<Moment>>,
    /// Begun when the last transaction was about to end.
    last_end: Option<Meter>,
}

impl Watching for Watch<'_> {
    fn done(&mut self, operations: u64) {
        let each = (self.operations / CURVE_POINTS).max(1);
        if let Some(curve) = &mut self.curve
            && operations.is_multiple_of(each)
        {
            curve.push(moment(operations, &self.machine.db.statistics()));
        }
    }

    fn ending(&mut self, operations: u64) {
        if operations == self.operations {
            self.last_end = Some(Meter::new(self.machine));
        }
    }
}

fn moment(operations: u64, statistics: &Statistics) -> Moment {
    Moment {
        operations,
        dirty_frames: statistics.buffer.dirty,
        private_pages: statistics.txn.image_bytes as f64 / statistics.page_size as f64,
    }
}

/// Does the work, and leaves nothing dirty; then looks, in no time, whether the pages are right.
fn measure(machine: &Machine, cell: &Cell, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let operations = cell.work.operations(seed);
    let (curve, all) = (cell.curve.then(Vec::new), operations.len() as u64);
    let mut watch = Watch { machine, operations: all, curve, last_end: None };
    let meter = Meter::new(machine);
    work::perform(machine, cell.work, &operations, stop, &mut watch)?;
    let last_end = watch.last_end.as_ref().map(|meter| meter.read(machine)).unwrap_or_default();
    let work = meter.read(machine);
    let meter = Meter::new(machine);
    machine.db.checkpoint()?;
    let checkpoint = meter.read(machine);
    let statistics = machine.db.statistics();
    machine.run_free(true);
    work::check(machine, cell.work, &operations)?;
    let txn = statistics.txn;
    Ok(Found {
        work,
        last_end,
        checkpoint,
        frames: statistics.buffer.frames,
        images_logged: txn.images_logged,
        images_early: txn.images_early,
        shadows: txn.shadows,
        shadow_writes: txn.shadow_writes,
        spilled: txn.spilled,
        curve: watch.curve.unwrap_or_default(),
    })
}

/// Runs a cell in a simulation of its own.
pub fn run(
    cell: &Cell,
    loaded: &Arc<Loaded>,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<Found, Failure> {
    let (cell, loaded) = (cell.clone(), loaded.clone());
    let body = move || {
        let setting = (cell.memory, cell.recovery);
        let machine = Machine::open(&loaded, &cell.profile, setting, seed)?;
        let found = measure(&machine, &cell, seed, stop)?;
        machine.close()?;
        Ok(found)
    };
    Ok(simulate(seed, CORES, body)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(writes: u64) -> Io {
        let write_bytes = 4096 * writes;
        Io { writes, write_bytes, reads: 3, read_bytes: 100, syncs: 2, durable_writes: 1 }
    }

    #[test]
    fn counts_are_added_up_over_log_store_and_checkpoint() {
        let work = Step { seconds: 2.0, log: io(10), store: io(20) };
        let checkpoint = Step { seconds: 0.5, log: io(1), store: Io::default() };
        let last_end = Step { seconds: 0.25, log: io(4), store: io(0) };
        let found = Found { work, checkpoint, last_end, ..Found::default() };
        assert_eq!(found.bytes_written(), 31.0 * 4096.0);
        assert_eq!(found.requests(), (31 + 3 * 3 + 3 * 2) as f64);
        assert_eq!(found.settled_seconds(), 2.5);
        assert_eq!(work.all().flushes(), 2 * (2 + 1));
        let before = found.before_end();
        assert_eq!((before.seconds, before.log.writes, before.store.writes), (1.75, 6, 20));
        assert_eq!((before.log.reads, before.log.syncs), (0, 0));
    }
}
