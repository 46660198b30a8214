//! The simulated machine: its devices, their faults, and its power switch.

use crate::medium::{Medium, Survival, Uniform};
use crate::scenario::{Scenario, device_names};
use crate::shelf::{ARCHIVE, Power, Shelf};
use firndb::device::{Device, FaultPlan, FaultRule, Faulty, MemoryDevice};
use firndb::{Devices, Options};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use std::ops::Range;
use std::time::Duration;

/// The devices of one database, from one switching on to the next switching off.
#[derive(Clone, Debug)]
pub struct Machine {
    /// In the order of [`device_names`], then the spares of the log, then the store's other
    /// devices.
    media: Vec<Arc<Medium>>,
    logs: usize,
    spares: usize,
    store_others: usize,
    faults: FaultPlan,
    /// Of the archive's own, which excuse nothing.
    archive_faults: FaultPlan,
    archive: Option<Power>,
}

impl Machine {
    /// A machine whose devices hold `contents`, in the order of its media.
    #[must_use]
    pub fn switched_on(scenario: &Scenario, contents: Vec<Vec<u8>>, rng: &mut Rng) -> Machine {
        let spares = scenario.array.spares;
        let mut names = device_names(scenario.log_devices, scenario.cache.is_some());
        names.extend((0..spares).map(|spare| format!("spare.{spare}")));
        let store_others = scenario.store.others();
        names.extend((1..=store_others).map(|member| format!("store.{member}")));
        let store = scenario.log_devices + 1;
        let media = names.iter().zip(contents).enumerate().map(|(device, (name, bytes))| {
            let limit = if device == store { scenario.store_limit } else { 64 << 20 };
            Medium::holding(name, bytes, limit, scenario.timing(device, rng))
        });
        let media: Vec<Arc<Medium>> = media.collect();
        if let Some(many) = scenario.store.refuses_one_in {
            for medium in media.iter().filter(|medium| medium.info().name.starts_with("store")) {
                // Of its own numbers, which differ by what the device holds.
                medium.refuse_one_in(many, Rng::new(scenario.seed ^ medium.len()));
            }
        }
        let faults = FaultPlan::new(rng.next_u64());
        let archive = scenario.array.archive.map(|archive| {
            let (least, most) = (Duration::from_micros(5), archive.slowest);
            let timing = Uniform { least, most, rng: Rng::new(rng.next_u64()) };
            Power::on(Box::new(timing), archive.limit)
        });
        let archive_faults = FaultPlan::new(1);
        let logs = scenario.log_devices;
        Machine { media, logs, spares, store_others, faults, archive_faults, archive }
    }

    /// A machine with empty devices.
    #[must_use]
    pub fn blank(scenario: &Scenario) -> Vec<Vec<u8>> {
        let names = device_names(scenario.log_devices, scenario.cache.is_some());
        vec![Vec::new(); names.len() + scenario.array.spares + scenario.store.others()]
    }

    fn faulty(&self, place: usize) -> Arc<dyn Device> {
        Arc::new(Faulty::new(self.media[place].clone(), &self.faults))
    }

    /// The devices as a new database takes them, with the faults in between.
    #[must_use]
    pub fn devices_of_a_new_database(&self) -> Devices {
        let logs = (1..=self.logs).map(|place| self.faulty(place)).collect();
        let store = self.logs + 1;
        let has_cache = store + 1 + self.spares + self.store_others < self.media.len();
        let cache = has_cache.then(|| self.faulty(store + 1));
        let store_others = (1..=self.store_others).map(|member| self.store(member)).collect();
        Devices { superblock: self.faulty(0), logs, store: self.faulty(store), store_others, cache }
    }

    /// The same with the spares, of which some may have become devices of the log.
    #[must_use]
    pub fn devices(&self) -> Devices {
        let mut devices = self.devices_of_a_new_database();
        devices.logs.extend((0..self.spares).map(|spare| self.spare(spare)));
        if self.spares > 0 {
            // More of them than the log can have members: each is asked which one it is.
            devices.logs.push(Arc::new(MemoryDevice::new("none")));
        }
        devices
    }

    /// A spare of the log.
    #[must_use]
    pub fn spare(&self, spare: usize) -> Arc<dyn Device> {
        self.faulty(self.media.len() - self.store_others - self.spares + spare)
    }

    /// The number of one of the store's devices.
    #[must_use]
    pub fn place_of_store(&self, member: usize) -> usize {
        match member {
            0 => self.logs + 1,
            _ => self.media.len() - self.store_others + member - 1,
        }
    }

    /// One of the store's devices.
    #[must_use]
    pub fn store(&self, member: usize) -> Arc<dyn Device> {
        self.faulty(self.place_of_store(member))
    }

    /// Adds the archive to the options, if there is one.
    #[must_use]
    pub fn with_archive(&self, options: Options, shelf: &Shelf) -> Options {
        let Some(power) = self.archive.clone() else { return options };
        let faults = self.archive_faults.clone();
        options.archive(|archive| archive.directory(shelf.place(ARCHIVE))).wrap_archive(Arc::new(
            move |file| Arc::new(Faulty::new(power.around(file), &faults)) as Arc<dyn Device>,
        ))
    }

    /// Lets something go wrong from now on.
    pub fn trouble(&self, rule: FaultRule) {
        self.faults.add(rule);
    }

    /// As that, with the archive.
    pub fn trouble_archive(&self, rule: FaultRule) {
        self.archive_faults.add(rule);
    }

    /// Clears all fault rules.
    pub fn heal(&self) {
        self.faults.heal();
        self.archive_faults.heal();
    }

    /// Calls that went wrong so far, the archive's apart.
    #[must_use]
    pub fn faults_met(&self) -> u64 {
        self.faults.fired()
    }

    /// Bytes of the write to the device of this number that ended last.
    #[must_use]
    pub fn newest(&self, device: usize) -> Range<u64> {
        self.media[device].newest()
    }

    /// Flips bits of the device of this number, but not in `spared`; a sentence about where.
    pub fn rot(&self, device: usize, bits: u32, spared: &Range<u64>, rng: &mut Rng) -> String {
        let places = self.media[device].rot(bits, spared, rng);
        format!("bits of {} flip in bytes {places:?}", self.media[device].info().name)
    }

    /// The power fails: what is left on the devices.
    pub fn cut(&self, survival: Survival, rng: &mut Rng) -> Vec<Vec<u8>> {
        if let Some(archive) = &self.archive {
            archive.cut(rng);
        }
        self.media.iter().map(|medium| medium.cut(survival, rng)).collect()
    }
}
