//! Databases on emulated devices, in virtual time.

use firndb::Devices;
use firndb::device::{Device, MemoryDevice};
use firndb_base::sim::{self, SimOptions};
use firndb_emulate::{Emulated, profiles};
use std::sync::Arc;
use std::time::Duration;

/// Log and superblock on one device, the store on another.
pub type Profiles = [&'static str; 2];

/// The devices of a database, in memory.
pub struct Bed {
    memory: [Arc<MemoryDevice>; 3],
    profiles: Profiles,
}

impl Bed {
    pub fn new(profiles: Profiles) -> Bed {
        let memory = ["superblock", "log", "store"].map(|name| Arc::new(MemoryDevice::new(name)));
        Bed { memory, profiles }
    }

    /// What a power cut leaves at this moment.
    pub fn cut(&self) -> Bed {
        let memory = std::array::from_fn(|at| Arc::new(self.memory[at].duplicate()));
        Bed { memory, ..*self }
    }

    /// Emulated; if not `timed`, they take no time.
    pub fn devices(&self, timed: bool) -> Devices {
        let [log, store] = self.profiles;
        let [superblock, log, store]: [Arc<dyn Device>; 3] = std::array::from_fn(|at| {
            let profile = profiles::get([log, log, store][at]).expect("it ships");
            let device =
                Emulated::new(self.memory[at].clone(), &profile, at as u64).expect("a sound profile");
            device.run_free(!timed);
            Arc::new(device) as Arc<dyn Device>
        });
        Devices { superblock, logs: vec![log], store, store_others: Vec::new(), cache: None }
    }
}

/// Runs `body` on four cores, for as long as it takes.
pub fn run(seed: u64, body: impl FnOnce() + Send + 'static) {
    let options = SimOptions {
        time_limit: Duration::from_secs(100_000),
        step_limit: u64::MAX,
        history: 0,
        ..SimOptions::measuring(seed, 4)
    };
    sim::run(options, body).unwrap_or_else(|failure| panic!("{failure}"));
}
