//! The devices of one database.

use crate::{Error, Options};
use firn_base::sync::Arc;
use firn_device::{Counting, Device};

/// The devices of a database, as they are or wrapped by something that counts, fails, crashes or delays.
#[derive(Clone, Debug)]
pub struct Devices {
    /// Where everything else is found.
    pub superblock: Arc<dyn Device>,
    /// The log, in the order of its members.
    pub logs: Vec<Arc<dyn Device>>,
    /// The page store.
    pub store: Arc<dyn Device>,
    /// The flash cache over the store, if there is one.
    pub cache: Option<Arc<dyn Device>>,
}

impl Devices {
    /// With what the options want around each.
    pub(crate) fn wrapped(self, options: &Options) -> Result<Devices, Error> {
        let Some(wrap) = &options.wrap_device else { return Ok(self) };
        let log = |(index, log)| wrap(&format!("log.{index}"), log);
        Ok(Devices {
            superblock: wrap("superblock", self.superblock)?,
            logs: self.logs.into_iter().enumerate().map(log).collect::<Result<_, _>>()?,
            store: wrap("store", self.store)?,
            cache: self.cache.map(|cache| wrap("cache", cache)).transpose()?,
        })
    }
}

/// The devices, each with its counters.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub superblock: Arc<Counting>,
    pub logs: Vec<Arc<Counting>>,
    pub store: Arc<Counting>,
    pub cache: Option<Arc<Counting>>,
}

impl Counted {
    pub fn new(devices: Devices) -> Counted {
        Counted {
            superblock: Arc::new(Counting::new(devices.superblock)),
            logs: devices.logs.into_iter().map(|log| Arc::new(Counting::new(log))).collect(),
            store: Arc::new(Counting::new(devices.store)),
            cache: devices.cache.map(|cache| Arc::new(Counting::new(cache))),
        }
    }
    pub fn superblock(&self) -> Arc<dyn Device> {
        self.superblock.clone()
    }
    pub fn logs(&self) -> Vec<Arc<dyn Device>> {
        self.logs.iter().map(|log| log.clone() as Arc<dyn Device>).collect()
    }
    pub fn store(&self) -> Arc<dyn Device> {
        self.store.clone()
    }
    pub fn cache(&self) -> Option<Arc<dyn Device>> {
        self.cache.clone().map(|cache| cache as Arc<dyn Device>)
    }
}
