//! The store over several devices: made, opened, one of them replaced and filled.
//!
//! Every change is one write of the superblock, in this order with what the array does:
//! * *a device fails*: the superblock strikes it, then what it lacks is acknowledged;
//! * *replace*: the superblock has the new device down as being filled → it gets its label, and
//!   every write from then on → groups are filled, and how many is noted now and then, once they
//!   are durable → the superblock has it down as whole → it is read.
//!
//! So a crash at any point finds a device that is read only if it has everything.

use crate::engine::Engine;
use crate::engine::devices::{Candidate, Devices};
use crate::engine::store_array_field::StoreMember;
use crate::engine::store_keeper::StoreKeeper;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::Options;
use crate::options::callbacks::StoreEventKind;
use crate::ranks;
use firndb_array::{Array, ArrayOptions, MemberState, MemberToOpen};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{DatabaseId, Progress};
use firndb_device::{Counting, Device};
use firndb_tier::PageTier;
use firndb_tier::store::{self, Layout, Scrubbed};

/// Groups that are filled between two notes of how many there are.
const GROUPS_A_NOTE: u64 = 16;

/// The array under the store, and what the engine keeps of it.
#[derive(Debug)]
pub(crate) struct StoreArray {
    pub array: Arc<Array>,
    pub keeper: Arc<StoreKeeper>,
    /// The members' devices, in their order.
    pub members: Mutex<Vec<Arc<Counting>>>,
    /// One change at a time.
    changing: Mutex<()>,
    /// Of the member that is being filled: the next group.
    next_group: Mutex<u64>,
}

impl StoreArray {
    /// Makes an array of new devices, if there are several.
    pub fn create(
        devices: &Devices,
        database: DatabaseId,
        layout: Layout,
        options: &Options,
    ) -> Result<Option<StoreArray>, Error> {
        let members = counted(devices);
        if members.len() < 2 {
            return Ok(None);
        }
        let keeper = Arc::new(StoreKeeper::new(options.store_listener.clone()));
        let (code, shape) = (options.code_over(members.len())?, store::shape(options.page_size, layout)?);
        let array = Array::create(plain(&members), code, shape, with(database, &keeper, options))?;
        Ok(Some(StoreArray::of(array, keeper, members, 0)))
    }

    /// Opens the array that the superblock names, if it names one.
    pub fn open(
        devices: &Devices,
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
        let found = plain(&members).into_iter().zip(known).map(|(device, member)| MemberToOpen {
            device,
            incarnation: member.incarnation,
            state: member.state,
        });
        let keeper = Arc::new(StoreKeeper::new(options.store_listener.clone()));
        let array = Array::open(found.collect(), with(superblock.database, &keeper, options))?;
        for (member, now) in array.status().into_iter().enumerate() {
            if now.state == MemberState::Struck && known[member].state != MemberState::Struck {
                let message = format!("device {member} of the store ({}) cannot be used", known[member].path);
                keeper.report(StoreEventKind::Lost, member, message);
            }
        }
        let rebuilt = known.iter().find(|member| member.state == MemberState::Rebuilding);
        Ok(Some(StoreArray::of(array, keeper, members, rebuilt.map_or(0, |member| member.rebuilt))))
    }

    fn of(array: Array, keeper: Arc<StoreKeeper>, members: Vec<Arc<Counting>>, next: u64) -> StoreArray {
        StoreArray {
            array: Arc::new(array),
            keeper,
            members: Mutex::new(members),
            changing: ranks::STORE_CHANGING.mutex(()),
            next_group: ranks::STORE_FILLING.mutex(next),
        }
    }
}

fn counted(devices: &Devices) -> Vec<Arc<Counting>> {
    let all = std::iter::once(&devices.store).chain(&devices.store_others);
    all.map(|device| Arc::new(Counting::new(device.clone()))).collect()
}

fn plain(members: &[Arc<Counting>]) -> Vec<Arc<dyn Device>> {
    members.iter().map(|member| member.clone() as Arc<dyn Device>).collect()
}

fn with(database: DatabaseId, keeper: &Arc<StoreKeeper>, options: &Options) -> ArrayOptions {
    ArrayOptions { database, judge: store::judge, keeper: keeper.clone(), threads: options.background }
}

impl Engine {
    fn store_array(&self) -> Result<&StoreArray, Error> {
        self.devices.store_array.as_ref().ok_or_else(|| {
            Error::bad_argument(
                "the store of this database is one device: only one of several can be replaced",
            )
        })
    }

    /// Puts a device into the place of one of the store's, which background work fills from then
    /// on.
    pub fn replace_store_member(&self, member: usize, candidate: Candidate) -> Result<(), Error> {
        self.check_writable()?;
        let it = self.store_array()?;
        let _changing = it.changing.lock();
        let status = it.array.status();
        let Some(now) = status.get(member) else {
            return Err(Error::not_found(format!("the store has no device {member}, but {}", status.len())));
        };
        let filling = it.array.rebuilding();
        if filling.iter().any(|other| *other != member) {
            return Err(Error::bad_argument(format!(
                "device {} of the store is being filled: wait until it is",
                filling[0]
            )));
        }
        if now.state == MemberState::Active && it.array.may_lose() == 0 {
            return Err(Error::bad_argument(format!(
                "device {member} of the store is needed: no other has what is on it"
            )));
        }
        let Candidate { device, path } = candidate;
        let counting = Arc::new(Counting::new(device));
        let mut next = it.next_group.lock();
        let incarnation = self.amend(|superblock| {
            let array = superblock.extensions.store_array.as_mut().expect("there is an array");
            let newest = array.members.iter().map(|member| member.incarnation).max().unwrap_or(0);
            let incarnation = newest + 1;
            array.members[member] =
                StoreMember { incarnation, state: MemberState::Rebuilding, rebuilt: 0, path: path.clone() };
            if member == 0 {
                superblock.store_path = path;
            }
            Ok(incarnation)
        })?;
        it.array.give_up(member);
        *next = 0;
        if let Err(error) = it.array.replace(member, counting.clone(), incarnation) {
            // Not to be taken for one that is being filled by the next opening.
            let struck = self.amend(|superblock| {
                let array = superblock.extensions.store_array.as_mut().expect("there is an array");
                array.members[member].state = MemberState::Struck;
                Ok(())
            });
            struck?;
            return Err(error.into());
        }
        let name = counting.info().name.clone();
        it.members.lock()[member] = counting;
        let message = format!("device {member} of the store is {name} from now on, and is being filled");
        it.keeper.report(StoreEventKind::Replaced, member, message);
        Ok(())
    }

    /// Fills one more group of a new device of the store. A background step.
    pub fn fill_store_member(&self) -> Result<Progress, Error> {
        let Some(it) = &self.devices.store_array else { return Ok(Progress::Idle) };
        let mut next = it.next_group.lock();
        let Some(member) = it.array.rebuilding().first().copied() else { return Ok(Progress::Idle) };
        if *next == 0 {
            it.array.rebuild_before_groups()?;
        }
        if *next < it.array.groups() {
            self.store.rebuild_group(&it.array, member, *next)?;
            *next += 1;
            if next.is_multiple_of(GROUPS_A_NOTE) {
                it.array.sync_rebuilt(member)?;
                self.note_filling(member, MemberState::Rebuilding, *next)?;
            }
            return Ok(Progress::Worked);
        }
        it.array.sync_rebuilt(member)?;
        if !self.note_filling(member, MemberState::Active, 0)? {
            return Ok(Progress::Worked);
        }
        it.array.finish_rebuilding(member);
        let may_lose = it.array.may_lose();
        let message = format!("device {member} of the store has been filled; {may_lose} may be lost now");
        it.keeper.report(StoreEventKind::Filled, member, message);
        Ok(Progress::Worked)
    }

    /// Returns whether it is being filled still: it may have been struck meanwhile.
    fn note_filling(&self, member: usize, state: MemberState, rebuilt: u64) -> Result<bool, Error> {
        self.amend(|superblock| {
            let array = superblock.extensions.store_array.as_mut().expect("there is an array");
            let noted = &mut array.members[member];
            let is_filled = noted.state == MemberState::Rebuilding;
            if is_filled {
                (noted.state, noted.rebuilt) = (state, rebuilt);
            }
            Ok(is_filled)
        })
    }

    /// Reads every fragment and copy on the store's devices, and mends what is wrong.
    pub fn scrub(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Scrubbed, Error> {
        self.check_writable()?;
        let it = self.store_array()?;
        let pages = self.store.statistics().pages_allocated;
        Ok(self.store.scrub(&it.array, &mut |done| progress(done.min(pages), pages))?)
    }

    /// Groups that a device being filled has, and groups in all.
    pub fn filled(&self) -> Option<(usize, u64, u64)> {
        let it = self.devices.store_array.as_ref()?;
        let member = it.array.rebuilding().first().copied()?;
        Some((member, *it.next_group.lock(), it.array.groups()))
    }
}
