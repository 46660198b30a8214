//! The devices under a database of the tests, and the wrappers around them.

use firndb::Devices;
use firndb::device::{CrashPlan, Device, DeviceError, DeviceErrorKind, FaultPlan, Faulty, MemoryDevice};
use firndb_testkit::hooked::Hooked;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Devices in memory: what is left when everything above them is gone.
#[derive(Clone, Debug)]
pub struct Bed {
    pub superblock: Arc<MemoryDevice>,
    pub logs: Vec<Arc<MemoryDevice>>,
    pub store: Arc<MemoryDevice>,
    /// Used by databases whose options ask for a flash cache.
    pub cache: Arc<MemoryDevice>,
}

impl Bed {
    /// Empty devices, with `logs` for the log.
    pub fn new(logs: usize) -> Bed {
        Bed::with_store_of(logs, u64::MAX)
    }

    /// The same, with a store that is full at `limit` bytes.
    pub fn with_store_of(logs: usize, limit: u64) -> Bed {
        Bed {
            superblock: Arc::new(MemoryDevice::new("superblock")),
            logs: (0..logs).map(|i| Arc::new(MemoryDevice::new(&format!("log.{i}")))).collect(),
            store: Arc::new(MemoryDevice::with("store", 512, limit)),
            cache: Arc::new(MemoryDevice::new("cache")),
        }
    }

    /// From what a crash left, in the order of [`Bed::crashing`].
    pub fn of_image(mut image: Vec<Arc<MemoryDevice>>) -> Bed {
        let cache = image.pop().expect("a cache");
        let store = image.pop().expect("a store");
        let superblock = image.remove(0);
        Bed { superblock, logs: image, store, cache }
    }

    /// Devices of their own with the same contents: what a crash of the process leaves.
    pub fn duplicate(&self) -> Bed {
        Bed {
            superblock: Arc::new(self.superblock.duplicate()),
            logs: self.logs.iter().map(|log| Arc::new(log.duplicate())).collect(),
            store: Arc::new(self.store.duplicate()),
            cache: Arc::new(self.cache.duplicate()),
        }
    }

    fn map(&self, wrap: &dyn Fn(&Arc<MemoryDevice>) -> Arc<dyn Device>) -> Devices {
        Devices {
            superblock: wrap(&self.superblock),
            logs: self.logs.iter().map(wrap).collect(),
            store: wrap(&self.store),
            store_others: Vec::new(),
            cache: Some(wrap(&self.cache)),
        }
    }

    /// As they are, without the cache's.
    pub fn devices(&self) -> Devices {
        Devices { cache: None, ..self.plain() }
    }

    /// Superblock, log devices, store.
    pub fn all(&self) -> Vec<Arc<MemoryDevice>> {
        [&self.superblock].into_iter().chain(&self.logs).chain([&self.store]).cloned().collect()
    }

    /// As they are.
    pub fn plain(&self) -> Devices {
        self.map(&|device| device.clone())
    }

    /// Failing as `plan` says, without the cache's.
    pub fn failing(&self, plan: &FaultPlan) -> Devices {
        let devices = self.map(&|device| Arc::new(Faulty::new(device.clone(), plan)));
        Devices { cache: None, ..devices }
    }

    /// Failing as `plan` says, until `off` is set: then nothing reaches the plan or the devices any
    /// more.
    pub fn faulty(&self, plan: &FaultPlan, off: &Arc<AtomicBool>) -> Devices {
        self.map(&|device| {
            let (name, off) = (device.info().name.clone(), off.clone());
            Hooked::over(Arc::new(Faulty::new(device.clone(), plan)), move |_| {
                let off = off.load(Ordering::SeqCst);
                let error = || DeviceError::new(DeviceErrorKind::Failed, format!("{name}: the power is off"));
                if off { Err(error()) } else { Ok(()) }
            })
        })
    }

    /// Recorded by `plan`, in the order superblock, logs, store, cache.
    pub fn crashing(&self, plan: &CrashPlan) -> Devices {
        let superblock = plan.device_holding(&self.superblock);
        let mut logs: Vec<Arc<dyn Device>> = Vec::new();
        for log in &self.logs {
            logs.push(plan.device_holding(log));
        }
        let store = plan.device_holding(&self.store);
        let cache: Arc<dyn Device> = plan.device_holding(&self.cache);
        Devices { superblock, logs, store, store_others: Vec::new(), cache: Some(cache) }
    }
}
