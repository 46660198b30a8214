//! Batches of pages as the store writes them, to one member and to an array of four, without an
//! engine: as many at once as are asked for, where the engine's cleaners have only a few.

use super::devices::{CORES, Layout, Member, PAGE};
use crate::bench::cells::{Cellular, end_of};
use crate::bench::simulation::simulate;
use firndb::DatabaseId;
use firndb_array::{Array, ArrayOptions, Keeper};
use firndb_base::clock;
use firndb_base::sync::{Arc, thread};
use firndb_console::Failure;
use firndb_device::{AlignedBuf, Device, DeviceError, Durability, Fill, MemoryDevice};
use firndb_profile::{DeviceProfile, VariantName};
use firndb_tier::store;
use serde::{Deserialize, Serialize};

/// Batches that are under way at once, each in a group of its own.
pub const AT_ONCE: u64 = 32;
/// Pages of a batch: a run, as the store finds it where there is space.
const BATCH_PAGES: u64 = 64;
pub const BYTES: u64 = BATCH_PAGES * PAGE as u64;

#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub layout: Layout,
    /// Batches one after the other.
    pub batches: u64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("batches, {}, {}", self.layout.name(), self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub pages_per_second: f64,
}

/// No member fails.
#[derive(Debug)]
struct NoneFails;

impl Keeper for NoneFails {
    fn strike(&self, _: usize, error: &DeviceError) -> Result<(), DeviceError> {
        Err(error.clone())
    }
    fn repaired(&self, _: usize, _: &str) {}
}

pub fn run(cell: &Cell, seed: u64) -> Result<Found, Failure> {
    let cell = cell.clone();
    let run = move || {
        let member = |at: usize| {
            Member::new(Arc::new(MemoryDevice::new(&format!("{at}"))), &cell.profile, seed + at as u64)
        };
        let members = (0..cell.layout.members).map(member).collect::<Result<Vec<Member>, Failure>>()?;
        write(&cell, &members).map_err(|error| Failure::new(error.to_string()))
    };
    Ok(simulate(seed, CORES, run)?.0)
}

fn write(cell: &Cell, members: &[Member]) -> Result<Found, DeviceError> {
    let shape = store::shape(PAGE, store::Layout::default()).expect("it is the usual one");
    let mut devices: Vec<Arc<dyn Device>> =
        members.iter().map(|member| member.timed.clone() as Arc<dyn Device>).collect();
    members.iter().for_each(|member| member.timed.run_free(true));
    let device: Arc<dyn Device> = match devices.len() {
        1 => devices.remove(0),
        _ => {
            let options = ArrayOptions {
                database: DatabaseId([1; 16]),
                judge: |_, _, _, _| None,
                length: |_, _| None,
                keeper: Arc::new(NoneFails),
                threads: true,
                hides_late_reads: true,
            };
            Arc::new(Array::create(devices, cell.layout.code, cell.layout.code, shape, options)?)
        }
    };
    let group = |number: u64| shape.groups_start + number * shape.group_bytes;
    device.grow(group(AT_ONCE), Fill::Sparse)?;
    members.iter().for_each(|member| member.timed.run_free(false));
    let began = clock::now();
    let outcome = thread::scope(|scope| {
        let (device, group) = (&device, &group);
        let client = |number: u64| {
            move || -> Result<(), DeviceError> {
                let mut data = AlignedBuf::zeroed(BYTES as usize);
                data.fill(number as u8);
                (0..cell.batches).try_for_each(|batch| {
                    let at = group(number) + shape.places_start + batch * data.len() as u64;
                    device.write(at, &data, Durability::Durable)
                })
            }
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|number| scope.spawn(client(number))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    });
    let seconds = began.elapsed().as_secs_f64();
    outcome?;
    let pages = AT_ONCE * cell.batches * BATCH_PAGES;
    Ok(Found { pages_per_second: pages as f64 / seconds })
}
