//! The simulated machine: its devices, their faults, and its power switch.

use crate::medium::{Medium, Survival};
use crate::scenario::{Scenario, device_names};
use firn::Devices;
use firn::device::{Device, FaultPlan, FaultRule, Faulty};
use firn_base::rng::Rng;
use firn_base::sync::Arc;

/// The devices of one database, from one switching on to the next switching off.
#[derive(Clone, Debug)]
pub struct Machine {
    media: Vec<Arc<Medium>>,
    logs: usize,
    faults: FaultPlan,
}

impl Machine {
    /// A machine whose devices hold `contents`, in the order of [`device_names`].
    #[must_use]
    pub fn switched_on(scenario: &Scenario, contents: Vec<Vec<u8>>, rng: &mut Rng) -> Machine {
        let names = device_names(scenario.log_devices, scenario.cache.is_some());
        let store = scenario.log_devices + 1;
        let media = names.iter().zip(contents).enumerate().map(|(device, (name, bytes))| {
            let limit = if device == store { scenario.store_limit } else { 64 << 20 };
            Medium::holding(name, bytes, limit, scenario.timing(device, rng))
        });
        Machine { media: media.collect(), logs: scenario.log_devices, faults: FaultPlan::new(rng.next_u64()) }
    }

    /// Empty devices.
    #[must_use]
    pub fn blank(scenario: &Scenario) -> Vec<Vec<u8>> {
        vec![Vec::new(); device_names(scenario.log_devices, scenario.cache.is_some()).len()]
    }

    /// The devices as a database takes them, with the faults in between.
    #[must_use]
    pub fn devices(&self) -> Devices {
        let mut devices = self
            .media
            .iter()
            .map(|medium| Arc::new(Faulty::new(medium.clone(), &self.faults)) as Arc<dyn Device>);
        let superblock = devices.next().expect("a superblock");
        let logs = devices.by_ref().take(self.logs).collect();
        let store = devices.next().expect("a store");
        Devices { superblock, logs, store, cache: devices.next() }
    }

    /// Lets something go wrong from now on.
    pub fn trouble(&self, rule: FaultRule) {
        self.faults.add(rule);
    }

    /// Nothing new goes wrong.
    pub fn heal(&self) {
        self.faults.heal();
    }

    /// Calls that went wrong so far.
    #[must_use]
    pub fn faults_met(&self) -> u64 {
        self.faults.fired()
    }

    /// Flips bits of the device of this number; a sentence about where.
    pub fn rot(&self, device: usize, bits: u32, rng: &mut Rng) -> String {
        let places = self.media[device].rot(bits, rng);
        format!("bits of {} flip in bytes {places:?}", self.media[device].info().name)
    }

    /// The power fails: what is left on the devices.
    pub fn cut(&self, survival: Survival, rng: &mut Rng) -> Vec<Vec<u8>> {
        self.media.iter().map(|medium| medium.cut(survival, rng)).collect()
    }
}
