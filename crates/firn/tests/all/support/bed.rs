//! The devices under a database of the tests, and the wrappers around them.

use firndb::Devices;
use firndb::device::{
    CrashPlan, Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, FaultPlan, Faulty, Fill, Io,
    MemoryDevice,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Devices in memory: what is left when everything above them is gone.
#[derive(Debug)]
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
            cache: Some(wrap(&self.cache)),
        }
    }

    /// As they are.
    pub fn plain(&self) -> Devices {
        self.map(&|device| device.clone())
    }

    /// Failing as `plan` says, until `off` is set: then nothing reaches the plan or the devices any
    /// more.
    pub fn faulty(&self, plan: &FaultPlan, off: &Arc<AtomicBool>) -> Devices {
        self.map(&|device| {
            let faulty = Arc::new(Faulty::new(device.clone(), plan));
            Arc::new(Switch { inner: faulty, off: off.clone() })
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
        Devices { superblock, logs, store, cache: Some(cache) }
    }
}

/// Passes calls on until it is switched off.
#[derive(Debug)]
struct Switch {
    inner: Arc<dyn Device>,
    off: Arc<AtomicBool>,
}

impl Switch {
    fn on(&self) -> Result<&dyn Device, DeviceError> {
        if self.off.load(Ordering::SeqCst) {
            let name = &self.inner.info().name;
            return Err(DeviceError::new(DeviceErrorKind::Failed, format!("{name}: the power is off")));
        }
        Ok(&*self.inner)
    }
}

impl Device for Switch {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.on()?.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.on()?.write(offset, data, durability)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.on()?.sync()
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        match self.on() {
            Ok(inner) => inner.submit(batch),
            Err(error) => batch.iter_mut().for_each(|io| io.outcome = Err(error.clone())),
        }
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.on()?.grow(len, fill)
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.on()?.shrink(len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.on()?.discard(offset, len)
    }
}
