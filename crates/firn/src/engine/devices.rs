//! The devices of one database.

use crate::engine::store_array::StoreArray;
use crate::engine::superblock::{Member, Superblock};
use crate::error::Error;
use crate::options::Options;
use firndb_base::DatabaseId;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{AbsentDevice, Counting, Device, DeviceError, DeviceErrorKind, Overlay};
use firndb_log::{DeviceContents, MemberId};
use firndb_tier::store::Layout;

/// The devices of a database, plain or wrapped by devices that count, fail, crash or delay.
#[derive(Clone, Debug)]
pub struct Devices {
    /// Where everything else is found.
    pub superblock: Arc<dyn Device>,
    /// The log, in the order of its members.
    pub logs: Vec<Arc<dyn Device>>,
    /// The page store, or the first of its devices.
    pub store: Arc<dyn Device>,
    /// The others, in their order, if the store is to be over several: at most 15.
    pub store_others: Vec<Arc<dyn Device>>,
    /// The flash cache over the store, if there is one.
    pub cache: Option<Arc<dyn Device>>,
}

impl Devices {
    /// Arranges the log's devices in the order of its members.
    pub(crate) fn arranged(self, superblock: &Superblock) -> Result<Devices, Error> {
        let members = &superblock.members;
        let mut spare = superblock.redundancy().least_from(superblock.redo_start) - 1;
        let as_many = self.logs.len() == members.len();
        if as_many && spare == 0 {
            return Ok(self);
        }
        let mut failed = None;
        let known: Vec<Option<MemberId>> = self
            .logs
            .iter()
            .map(|log| {
                member_of(&**log, superblock).unwrap_or_else(|error| {
                    failed = Some(error);
                    None
                })
            })
            .collect();
        if as_many && members.iter().all(|member| known.contains(&Some(member.id))) {
            // If their order is wrong, the log returns an error.
            return Ok(self);
        }
        let mut logs: Vec<Arc<dyn Device>> = Vec::new();
        for member in members {
            if let Some(place) = known.iter().position(|id| *id == Some(member.id)) {
                logs.push(self.logs[place].clone());
                continue;
            }
            let missing = format!(
                "the database has {} log devices, and {} were given: device {} ({}) is not among them",
                members.len(),
                self.logs.len(),
                member.id.0,
                member.path
            );
            if spare == 0 {
                // It may be the one whose header could not be read.
                return Err(match failed {
                    Some(error) => error.within(&missing),
                    None => Error::damaged(missing),
                });
            }
            spare -= 1;
            let why = DeviceError::new(DeviceErrorKind::Failed, missing);
            logs.push(Arc::new(AbsentDevice::new(&member.path, why)));
        }
        Ok(Devices { logs, ..self })
    }

    /// The store's devices, in their order.
    pub(crate) fn stores(&self) -> Vec<Arc<dyn Device>> {
        std::iter::once(&self.store).chain(&self.store_others).cloned().collect()
    }

    /// Wraps each device as the options say; the log's devices are `members`.
    pub(crate) fn wrapped(self, members: &[Member], options: &Options) -> Result<Devices, Error> {
        let Some(wrap) = &options.testing.wrap_device else { return Ok(self.overlaid(options)) };
        let log = |(log, member): (_, &Member)| wrap(&log_name(member.id), log);
        let wrapped = Devices {
            superblock: wrap("superblock", self.superblock)?,
            logs: self.logs.into_iter().zip(members).map(log).collect::<Result<_, _>>()?,
            store: wrap("store", self.store)?,
            store_others: (1..)
                .zip(self.store_others)
                .map(|(member, device)| wrap(&format!("store.{member}"), device))
                .collect::<Result<_, _>>()?,
            cache: self.cache.map(|cache| wrap("cache", cache)).transpose()?,
        };
        Ok(wrapped.overlaid(options))
    }

    /// Of a database opened read-only: puts an overlay over each device, outermost, so that nothing
    /// below is ever written.
    pub(crate) fn overlaid(self, options: &Options) -> Devices {
        let Some(space) = &options.overlay else { return self };
        let over = |base| Arc::new(Overlay::new(base, space.clone())) as Arc<dyn Device>;
        Devices {
            superblock: over(self.superblock),
            logs: self.logs.into_iter().map(over).collect(),
            store: over(self.store),
            store_others: self.store_others.into_iter().map(over).collect(),
            cache: self.cache.map(over),
        }
    }
}

/// A device to be added, and its name in messages and in the superblock.
pub(crate) struct Candidate {
    pub device: Arc<dyn Device>,
    pub path: String,
}

impl Candidate {
    /// A device that has no other name than its own.
    pub fn of(device: Arc<dyn Device>) -> Candidate {
        let path = device.info().name.clone();
        Candidate { device, path }
    }
}

/// The member that a device's header names.
fn member_of(device: &dyn Device, superblock: &Superblock) -> Result<Option<MemberId>, Error> {
    Ok(match DeviceContents::of(device)? {
        DeviceContents::Member { database, member, .. } if database == superblock.database => Some(member),
        _ => None,
    })
}

/// The name of a log device for [`Options::wrap_devices`].
pub(crate) fn log_name(id: MemberId) -> String {
    // The first is member 1, and was always called `log.0`.
    format!("log.{}", id.0.saturating_sub(1))
}

/// The log's devices, which may change.
#[derive(Debug, Default)]
pub(crate) struct LogDevices {
    /// In the order in which they became members.
    list: Mutex<Vec<(MemberId, Arc<Counting>)>>,
}

impl LogDevices {
    pub fn list(&self) -> Vec<(MemberId, Arc<Counting>)> {
        self.list.lock().clone()
    }

    pub fn push(&self, id: MemberId, device: Arc<Counting>) {
        self.list.lock().push((id, device));
    }

    pub fn remove(&self, id: MemberId) {
        self.list.lock().retain(|(member, _)| *member != id);
    }
}

/// The devices, each with its counters.
#[derive(Debug)]
pub(crate) struct Counted {
    pub superblock: Arc<Counting>,
    pub logs: LogDevices,
    pub store: Arc<Counting>,
    /// What is below it, if the store is over several devices.
    pub store_array: Option<StoreArray>,
    /// Changes when a cache is attached or detached.
    cache: Mutex<Option<Arc<Counting>>>,
}

impl Counted {
    /// Those of a new database, whose log's devices are `members`: makes an array of the store's,
    /// if there are several.
    pub fn create(
        devices: Devices,
        members: &[Member],
        database: DatabaseId,
        layout: Layout,
        options: &Options,
    ) -> Result<Counted, Error> {
        let array = StoreArray::create(devices.stores(), database, layout, options)?;
        Ok(Counted::new(devices, members, array))
    }

    /// Those of a database that is there.
    pub fn open(devices: Devices, superblock: &Superblock, options: &Options) -> Result<Counted, Error> {
        let array = StoreArray::open(devices.stores(), superblock, options)?;
        Ok(Counted::new(devices, &superblock.members, array))
    }

    fn new(devices: Devices, members: &[Member], store_array: Option<StoreArray>) -> Counted {
        assert_eq!(devices.logs.len(), members.len(), "there is a device for each member");
        let logs = devices.logs.into_iter().zip(members);
        let logs = logs.map(|(log, member)| (member.id, Arc::new(Counting::new(log)))).collect();
        Counted {
            superblock: Arc::new(Counting::new(devices.superblock)),
            logs: LogDevices { list: Mutex::new(logs) },
            store: Arc::new(Counting::new(match &store_array {
                Some(it) => it.array.clone(),
                None => devices.store,
            })),
            store_array,
            cache: Mutex::new(devices.cache.map(|cache| Arc::new(Counting::new(cache)))),
        }
    }

    /// Strikes in a superblock, which is about to be written, those of the store's devices that
    /// failed so far.
    pub fn settle_store(&self, superblock: &mut Superblock) {
        if let Some(it) = &self.store_array {
            it.keeper.settle(superblock);
        }
    }

    /// All devices at present.
    pub fn each(&self) -> Vec<Arc<Counting>> {
        let logs = self.logs.list().into_iter().map(|(_, log)| log);
        let members = self.store_array.as_ref().map(|it| it.members.lock().clone()).unwrap_or_default();
        [self.superblock.clone(), self.store.clone()]
            .into_iter()
            .chain(logs)
            .chain(members)
            .chain(self.cache_counted())
            .collect()
    }

    pub fn superblock(&self) -> Arc<dyn Device> {
        self.superblock.clone()
    }
    pub fn logs(&self) -> Vec<Arc<dyn Device>> {
        self.logs.list().into_iter().map(|(_, log)| log as Arc<dyn Device>).collect()
    }
    pub fn store(&self) -> Arc<dyn Device> {
        self.store.clone()
    }
    pub fn cache(&self) -> Option<Arc<dyn Device>> {
        self.cache_counted().map(|cache| cache as Arc<dyn Device>)
    }
    pub fn cache_counted(&self) -> Option<Arc<Counting>> {
        self.cache.lock().clone()
    }
    pub fn set_cache(&self, cache: Option<Arc<Counting>>) {
        *self.cache.lock() = cache;
    }
}
