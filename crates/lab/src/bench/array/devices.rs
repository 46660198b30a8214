//! What the engine is measured on: its store over an array of emulated devices, all of one profile.
//!
//! Superblock and log are on devices that take no time: only the store's limit. A database is
//! loaded once for each layout, without time, and every run begins with a copy of it.

use crate::bench::simulation::{emulated, simulate};
use firndb::{Database, Devices, Hiding, Options};
use firndb_array::Code;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Counting, Device, DeviceCounts, MemoryDevice};
use firndb_emulate::Emulated;
use firndb_profile::DeviceProfile;

/// Cores of the simulated machine.
pub const CORES: usize = 4;
/// Log of the databases: more than any run fills between two checkpoints.
const LOG_BYTES: u64 = 2 << 30;
/// For the page map of any of them: what is read are pages.
const MAP_BYTES: usize = 32 << 20;
const BLOCK: usize = 512;
pub const PAGE: usize = 4096;

/// Members, and how pages are fragmented over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    pub code: Code,
    pub members: usize,
    /// The code of the table that is loaded, if it is not the store's.
    pub loaded: Option<Code>,
}

impl Layout {
    /// Panics if there is no such code.
    pub fn new(needed: usize, written: usize, members: usize) -> Layout {
        Layout::of(Code::new(needed, written).expect("it is a code"), members)
    }

    /// One code for all tables.
    pub fn of(code: Code, members: usize) -> Layout {
        Layout { code, members, loaded: None }
    }

    /// A store whose tables may have any code that survives as many lost members.
    pub fn each(code: Code, loaded: Code, members: usize) -> Layout {
        Layout { code, members, loaded: Some(loaded) }
    }

    /// For people.
    pub fn name(self) -> String {
        match self.members {
            1 => "one member".to_owned(),
            members => format!("{} over {members}", self.code),
        }
    }

    /// Bytes of the fragments that a page becomes.
    pub fn bytes_of_page(self) -> f64 {
        (self.code.written() * self.code.fragment_bytes(PAGE, BLOCK)) as f64
    }

    /// Bytes of the fragments that give a page back.
    pub fn bytes_of_read(self) -> f64 {
        (self.code.needed() * self.code.fragment_bytes(PAGE, BLOCK)) as f64
    }

    /// Options of a database with a store of this layout.
    pub fn options(self, buffer_bytes: u64) -> Options {
        let options = Options::new().buffer_bytes(buffer_bytes as usize);
        let options = options.tuning(|tuning| tuning.map_bytes(MAP_BYTES));
        let options = options.log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off));
        match self.members {
            1 => options,
            members => {
                let options = options.store_code(self.code.needed(), self.code.written());
                if self.loaded.is_some() { options.store_widest(1, members) } else { options }
            }
        }
    }
}

/// A database's devices at rest, and what it holds.
pub struct Loaded<T> {
    superblock: MemoryDevice,
    log: MemoryDevice,
    stores: Vec<MemoryDevice>,
    pub what: T,
}

/// Creates a database and has `fill` load it; no device takes time.
pub fn load<T: Send + 'static>(
    layout: Layout,
    options: Options,
    seed: u64,
    fill: impl FnOnce(&Database) -> Result<T, Failure> + Send + 'static,
) -> Result<Loaded<T>, Failure> {
    let (loaded, _) = simulate(seed, CORES, move || {
        let memory = |name: &str| Arc::new(MemoryDevice::new(name));
        let (superblock, log) = (memory("superblock"), memory("log"));
        let stores: Vec<_> = (0..layout.members).map(|member| memory(&format!("store.{member}"))).collect();
        let plain = stores.iter().map(|store| store.clone() as Arc<dyn Device>).collect();
        let db = options.create_on(devices(superblock.clone(), log.clone(), plain))?;
        let what = fill(&db)?;
        db.close()?;
        let stores = stores.iter().map(|store| store.duplicate()).collect();
        Ok(Loaded { superblock: superblock.duplicate(), log: log.duplicate(), stores, what })
    })?;
    Ok(loaded)
}

fn devices(
    superblock: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    mut stores: Vec<Arc<dyn Device>>,
) -> Devices {
    let store = stores.remove(0);
    Devices { superblock, logs: vec![log], store, store_others: stores, cache: None }
}

/// A device of the store: it takes its time, and is counted.
pub struct Member {
    pub timed: Arc<Emulated>,
    pub counted: Arc<Counting>,
}

impl Member {
    pub fn new(memory: Arc<MemoryDevice>, profile: &DeviceProfile, seed: u64) -> Result<Member, Failure> {
        let timed = emulated(memory, profile, seed)?;
        Ok(Member { counted: Arc::new(Counting::new(timed.clone())), timed })
    }
}

/// The devices of one run; to be made inside its simulation. They take no time yet.
pub struct Machine {
    superblock: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    pub members: Vec<Member>,
}

/// Bytes of all members together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Moved {
    pub fn of<'a>(all: impl IntoIterator<Item = &'a DeviceCounts>) -> Moved {
        all.into_iter().fold(Moved::default(), |sum, counts| Moved {
            read_bytes: sum.read_bytes + counts.reads.bytes,
            written_bytes: sum.written_bytes + counts.writes.bytes,
        })
    }
}

impl Machine {
    pub fn new<T>(loaded: &Loaded<T>, profile: &DeviceProfile, seed: u64) -> Result<Machine, Failure> {
        let [superblock, log] = [&loaded.superblock, &loaded.log].map(|device| Arc::new(device.duplicate()));
        let member = |(at, memory): (usize, &MemoryDevice)| {
            Member::new(Arc::new(memory.duplicate()), profile, seed + at as u64)
        };
        let members = loaded.stores.iter().enumerate().map(member).collect::<Result<_, Failure>>()?;
        let machine = Machine { superblock, log, members };
        machine.run_free(true);
        Ok(machine)
    }

    pub fn open(&self, options: Options) -> Result<Database, Failure> {
        let stores = self.members.iter().map(|member| member.counted.clone() as Arc<dyn Device>);
        Ok(options.open_on(devices(self.superblock.clone(), self.log.clone(), stores.collect()))?)
    }

    pub fn run_free(&self, free: bool) {
        self.members.iter().for_each(|member| member.timed.run_free(free));
    }

    /// What the members were asked for until now.
    pub fn moved(&self) -> Moved {
        let counts: Vec<DeviceCounts> = self.members.iter().map(|member| member.counted.snapshot()).collect();
        Moved::of(&counts)
    }
}
