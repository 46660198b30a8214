//! Changes of a store's devices, where there are several: one is replaced and filled, all are
//! scrubbed.
//!
//! Every change is one write of the superblock, in this order with what the array does:
//! * *a device fails*: the superblock strikes it, then what it lacks is acknowledged;
//! * *replace*: the superblock has the new device down as being filled → it gets its label, and
//!   every write from then on → groups are filled, and how many is noted now and then, once they
//!   are durable → the superblock has it down as whole, while the store gets no more groups → it is
//!   read.
//!
//! So a crash at any point finds a device that is read only if it has everything.

use crate::engine::Engine;
use crate::engine::devices::Candidate;
use crate::engine::store_array::{Filling, StoreArray};
use crate::engine::store_array_field::StoreMember;
use crate::engine::store_keeper::strike;
use crate::error::Error;
use crate::options::callbacks::StoreEventKind;
use firndb_array::{Label, MemberState};
use firndb_base::Progress;
use firndb_base::sync::Arc;
use firndb_device::{AbsentDevice, Counting, Device, DeviceError, DeviceErrorKind};
use firndb_tier::PageTier;
use firndb_tier::store::Scrubbed;

/// Groups that are filled between two notes of how many there are.
const GROUPS_A_NOTE: u64 = 16;

impl Engine {
    fn store_array(&self) -> Result<&StoreArray, Error> {
        self.devices.store_array.as_ref().ok_or_else(|| {
            Error::bad_argument(
                "the store of this database is one device: only of several one can be replaced, or mended from others",
            )
        })
    }

    /// Fails if the store has no device of this number.
    pub fn check_store_member(&self, member: usize) -> Result<(), Error> {
        match self.store_array()?.array.status().len() {
            devices if member < devices => Ok(()),
            devices => Err(Error::not_found(format!("the store has no device {member}, but {devices}"))),
        }
    }

    /// Puts a device into the place of one of the store's, which background work fills from then
    /// on.
    pub fn replace_store_member(&self, member: usize, candidate: Candidate) -> Result<(), Error> {
        self.check_writable()?;
        self.check_store_member(member)?;
        let it = self.store_array()?;
        let _changing = it.changing.lock();
        let filling = it.array.rebuilding();
        if filling.iter().any(|other| *other != member) {
            return Err(Error::bad_argument(format!(
                "device {} of the store is being filled: wait until it is",
                filling[0]
            )));
        }
        let Candidate { device, path } = candidate;
        self.refuse_own_member(&*device)?;
        // Before the old one is given up: a device that is too small costs nothing.
        it.array.prepare(&*device)?;
        let counting = Arc::new(Counting::new(device));
        let mut filling = it.filling.lock();
        let mut incarnation = 0;
        let is_spare = it.array.give_up(member, || {
            self.amend(|superblock| {
                let members = superblock.store_members_mut();
                incarnation = members.iter().map(|member| member.incarnation).max().unwrap_or(0) + 1;
                let state = MemberState::Rebuilding;
                members[member] = StoreMember { incarnation, state, rebuilt: 0, path: path.clone() };
                if member == 0 {
                    superblock.store_path = path;
                }
                Ok(())
            })
        })?;
        if !is_spare {
            return Err(Error::bad_argument(format!(
                "device {member} of the store is needed: no other has what is on it"
            )));
        }
        *filling = Filling { next_group: 0, left_out: 0 };
        if let Err(error) = it.array.replace(member, counting.clone(), incarnation) {
            // Not to be taken for one that is being filled by the next opening.
            self.amend(|superblock| {
                strike(superblock, member);
                Ok(())
            })?;
            return Err(error.into());
        }
        let name = counting.info().name.clone();
        it.members.lock()[member] = counting;
        let message = format!("device {member} of the store is {name} from now on, and is being filled");
        it.keeper.report(StoreEventKind::Replaced, member, message);
        Ok(())
    }

    /// Fails if a device is one of the store's that are in use.
    fn refuse_own_member(&self, device: &dyn Device) -> Result<(), Error> {
        let Some(label) = Label::read(device)? else { return Ok(()) };
        let superblock = self.superblock.lock();
        let Some(field) = &superblock.extensions.store_array else { return Ok(()) };
        let is_own = label.database == superblock.database
            && field.members.get(label.member).is_some_and(|member| {
                member.incarnation == label.incarnation && member.state != MemberState::Struck
            });
        match is_own {
            true => Err(Error::bad_argument(format!(
                "{} is device {} of the store, which is in use",
                device.info().name,
                label.member
            ))),
            false => Ok(()),
        }
    }

    /// Fills one more group of a new device of the store. A background step.
    pub fn fill_store_member(&self) -> Result<Progress, Error> {
        let Some(it) = &self.devices.store_array else { return Ok(Progress::Idle) };
        let mut filling = it.filling.lock();
        let Some(member) = it.array.rebuilding().first().copied() else { return Ok(Progress::Idle) };
        match self.fill_some(it, member, &mut filling) {
            // It failed and is struck, which was reported; the database goes on without it.
            Err(_) if !it.array.rebuilding().contains(&member) => Ok(Progress::Worked),
            outcome => outcome.map(|()| Progress::Worked),
        }
    }

    fn fill_some(&self, it: &StoreArray, member: usize, filling: &mut Filling) -> Result<(), Error> {
        if filling.next_group == 0 {
            filling.left_out += self.store.rebuild_before_groups(&it.array, member)?;
        }
        if filling.next_group < self.store.groups() {
            filling.left_out += self.store.rebuild_group(&it.array, member, filling.next_group)?;
            filling.next_group += 1;
            if filling.next_group.is_multiple_of(GROUPS_A_NOTE) {
                it.array.sync_rebuilt(member)?;
                self.note_filling(it, member, MemberState::Rebuilding, filling.next_group)?;
            }
            return Ok(());
        }
        let finished = self.store.when_all_filled(filling.next_group, || {
            it.array.sync_rebuilt(member)?;
            let is_filled = self.note_filling(it, member, MemberState::Active, 0)?;
            if is_filled {
                it.array.finish_rebuilding(member);
            }
            Ok::<bool, Error>(is_filled)
        })?;
        if !finished.transpose()?.unwrap_or(false) {
            return Ok(());
        }
        let may_lose = it.array.may_lose();
        let but = match filling.left_out {
            0 => String::new(),
            parts => format!(
                ", but the others could not give {parts} pages or blocks of metadata, or do not agree on them: \
                 scrub it"
            ),
        };
        let message =
            format!("device {member} of the store has been filled{but}; {may_lose} may be lost now");
        it.keeper.report(StoreEventKind::Filled, member, message);
        Ok(())
    }

    /// Returns whether it is being filled still: it may have been struck meanwhile, and is filled
    /// no more then.
    fn note_filling(
        &self,
        it: &StoreArray,
        member: usize,
        state: MemberState,
        rebuilt: u64,
    ) -> Result<bool, Error> {
        let is_filled = self.amend(|superblock| {
            let noted = &mut superblock.store_members_mut()[member];
            let is_filled = noted.state == MemberState::Rebuilding;
            if is_filled {
                (noted.state, noted.rebuilt) = (state, rebuilt);
            }
            Ok(is_filled)
        })?;
        if !is_filled {
            it.array.end_rebuilding(member);
        }
        Ok(is_filled)
    }

    /// Closes a device of the store that is not used any more, so that it can be opened anew, in
    /// its own place.
    pub fn release_struck_store_member(&self, member: usize) {
        let Some(it) = &self.devices.store_array else { return };
        let _changing = it.changing.lock();
        let Some(name) = it.members.lock().get(member).map(|device| device.info().name.clone()) else {
            return;
        };
        let why = DeviceError::new(DeviceErrorKind::Unusable, format!("{name} is not used any more"));
        let stand_in = Arc::new(Counting::new(Arc::new(AbsentDevice::new(&name, why))));
        if it.array.release_struck(member, stand_in.clone()) {
            it.members.lock()[member] = stand_in;
        }
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
        Some((member, it.filling.lock().next_group, self.store.groups()))
    }
}
