//! The store over several devices: made and opened. How they change is in `store_changes.rs`.

use crate::engine::layout_state::AutoLayouts;
use crate::engine::store_array_field::StoreMember;
use crate::engine::store_keeper::StoreKeeper;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::StoreEventKind;
use crate::ranks;
use firndb_array::{Array, ArrayOptions, MemberState, MemberToOpen};
use firndb_base::DatabaseId;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{Counting, Device, Overlay};
use firndb_tier::store::{self, Layout};

/// The array under the store, and what the engine keeps of it.
#[derive(Debug)]
pub(crate) struct StoreArray {
    pub array: Arc<Array>,
    pub keeper: Arc<StoreKeeper>,
    /// The members' devices, in their order.
    pub members: Mutex<Vec<Arc<Counting>>>,
    /// What the engine chooses by itself.
    pub layouts: AutoLayouts,
    /// One thread at a time says which trees have which codes.
    pub placing: Mutex<()>,
    /// One change at a time.
    pub changing: Mutex<()>,
    /// How far the member is that is being filled.
    pub filling: Mutex<Filling>,
}

/// How far a member is that is being filled.
#[derive(Debug)]
pub(crate) struct Filling {
    pub next_group: u64,
    /// Pages since the database was opened that the other members could not give.
    pub left_out: u64,
}

impl StoreArray {
    /// Makes an array of new devices, if there are several.
    pub fn create(
        devices: Vec<Arc<dyn Device>>,
        database: DatabaseId,
        layout: Layout,
        options: &Options,
    ) -> Result<Option<StoreArray>, Error> {
        let members = counted(devices);
        if members.len() < 2 {
            return Ok(None);
        }
        let keeper = Arc::new(StoreKeeper::new(options));
        let (code, shape) = (options.code_over(members.len())?, store::shape(options.page_size, layout)?);
        let widest = options.widest_over(code, members.len())?;
        let array = Array::create(plain(&members), code, widest, shape, with(database, &keeper, options))?;
        Ok(Some(StoreArray::of(array, keeper, members, 0)))
    }

    /// Bytes that each of the devices of a new store needs at least, if the largest of their blocks
    /// has `block` bytes.
    pub fn bytes_least(devices: usize, block: u64, options: &Options) -> Result<u64, Error> {
        let shape = store::shape(options.page_size, options.testing.store_layout)?;
        if devices < 2 {
            return Ok(shape.groups_start + shape.group_bytes);
        }
        let code = options.code_over(devices)?;
        let widest = options.widest_over(code, devices)?;
        Ok(Array::member_bytes_least(code, widest, shape, devices, block))
    }

    /// Opens the array that the superblock names, if it names one.
    pub fn open(
        devices: Vec<Arc<dyn Device>>,
        superblock: &Superblock,
        options: &Options,
    ) -> Result<Option<StoreArray>, Error> {
        let members = counted(devices);
        let known: &[StoreMember] =
            superblock.extensions.store_array.as_ref().map_or(&[], |array| &array.members);
        if members.len() != known.len().max(1) {
            return Err(Error::bad_argument(format!(
                "the database's store has {} devices, and {} were given",
                known.len().max(1),
                members.len()
            )));
        }
        if known.is_empty() {
            return Ok(None);
        }
        let keeper = Arc::new(StoreKeeper::new(options));
        let found = to_open(plain(&members), known);
        let array = Array::open(found, with(superblock.database, &keeper, options))?;
        for (member, now) in array.status().into_iter().enumerate() {
            if now.state == MemberState::Struck && known[member].state != MemberState::Struck {
                let message = format!("device {member} of the store ({}) cannot be used", known[member].path);
                keeper.report(StoreEventKind::Lost, member, message);
            }
        }
        let rebuilt = known.iter().find(|member| member.state == MemberState::Rebuilding);
        Ok(Some(StoreArray::of(array, keeper, members, rebuilt.map_or(0, |member| member.rebuilt))))
    }

    /// Why the array would leave out each of these devices, which the superblock knows as `known`;
    /// they are only read.
    pub fn left_out(
        devices: Vec<Arc<dyn Device>>,
        known: &[StoreMember],
        database: DatabaseId,
    ) -> Vec<Option<String>> {
        let options = Options::new().for_looking();
        let space = options.overlay.clone().expect("it is for looking");
        let over = |base: Arc<dyn Device>| -> Arc<dyn Device> {
            // What stands for a missing device says why, which an overlay would not.
            if base.is_empty() { base } else { Arc::new(Overlay::new(base, space.clone())) }
        };
        let found = to_open(devices.into_iter().map(over).collect(), known);
        Array::left_out(found, with(database, &Arc::new(StoreKeeper::new(&options)), &options))
    }

    fn of(array: Array, keeper: Arc<StoreKeeper>, members: Vec<Arc<Counting>>, next: u64) -> StoreArray {
        StoreArray {
            array: Arc::new(array),
            keeper,
            members: Mutex::new(members),
            layouts: AutoLayouts::default(),
            placing: ranks::PLACING.mutex(()),
            changing: ranks::STORE_CHANGING.mutex(()),
            filling: ranks::STORE_FILLING.mutex(Filling { next_group: next, left_out: 0 }),
        }
    }
}

fn counted(devices: Vec<Arc<dyn Device>>) -> Vec<Arc<Counting>> {
    devices.into_iter().map(|device| Arc::new(Counting::new(device))).collect()
}

fn to_open(devices: Vec<Arc<dyn Device>>, known: &[StoreMember]) -> Vec<MemberToOpen> {
    let member = |(device, known): (_, &StoreMember)| MemberToOpen {
        device,
        incarnation: known.incarnation,
        state: known.state,
    };
    devices.into_iter().zip(known).map(member).collect()
}

fn plain(members: &[Arc<Counting>]) -> Vec<Arc<dyn Device>> {
    members.iter().map(|member| member.clone() as Arc<dyn Device>).collect()
}

fn with(database: DatabaseId, keeper: &Arc<StoreKeeper>, options: &Options) -> ArrayOptions {
    let (judge, length) = (store::judge, store::length);
    let hides_late_reads = !options.testing.waits_for_late_reads;
    ArrayOptions {
        database,
        judge,
        length,
        keeper: keeper.clone(),
        threads: options.background,
        hides_late_reads,
    }
}
