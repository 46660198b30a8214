//! The store's devices as users see and change them, where there are several.

use crate::database::Database;
use crate::engine::claim;
use crate::engine::devices::Candidate;
use crate::engine::directory;
use crate::engine::directory::files::{absent, open_existing};
use crate::engine::directory::names::refuse_own_files;
use crate::engine::store_array::StoreArray;
use crate::engine::store_array_field::{StoreArrayField, StoreMember};
use crate::error::Error;
use crate::layout::Layout;
use crate::options::callbacks::StoreEvent;
use firndb_array::MemberState;
use firndb_base::sync::Arc;
use firndb_device::Device;
use std::path::Path;

/// Whether a device of the store can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreMemberState {
    /// It has all that it should have.
    InUse,
    /// It took another one's place and is being filled.
    Filling,
    /// It failed, or missed writes: it is not used any more, and should be replaced.
    Lost,
    /// It cannot be opened, or what is there is not the device that it was (only of a database that
    /// is not open).
    Missing,
}

impl StoreMemberState {
    /// The state in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreMemberState::InUse => "in use",
            StoreMemberState::Filling => "being filled",
            StoreMemberState::Lost => "lost",
            StoreMemberState::Missing => "missing",
        }
    }

    fn of(state: MemberState) -> StoreMemberState {
        match state {
            MemberState::Active => StoreMemberState::InUse,
            MemberState::Rebuilding => StoreMemberState::Filling,
            MemberState::Struck => StoreMemberState::Lost,
        }
    }
}

/// A device of a store that has several.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreDevice {
    /// Its place among them, from 0, which [`Database::replace_store_device`] takes.
    pub member: usize,
    /// Where it is: relative to the database's directory, or absolute.
    pub path: String,
    /// Whether it can be used.
    pub state: StoreMemberState,
    /// Its length in bytes; 0 if it cannot be opened.
    pub bytes: u64,
    /// Reads that failed since the database was opened; others made up for them.
    pub failed_reads: u64,
    /// What was wrong on it, or could not be read, and was written anew, since then.
    pub repairs: u64,
    /// While it is being filled: parts of the store that it has, and parts in all (0: not known).
    pub filled: Option<(u64, u64)>,
    /// Why it is missing.
    pub trouble: Option<String>,
}

/// A store over several devices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreArrayStatus {
    /// Fragments that give a page back.
    pub needed: usize,
    /// Fragments that each page becomes, on as many devices.
    pub written: usize,
    /// Devices that could be lost now without losing anything.
    pub may_lose: usize,
    /// The devices.
    pub devices: Vec<StoreDevice>,
    /// Parts of the store (groups of pages) by their layout, as far as they were looked at since
    /// the database was opened.
    pub groups: Vec<(Layout, u64)>,
}

impl StoreArrayStatus {
    fn of(field: &StoreArrayField, devices: Vec<StoreDevice>) -> StoreArrayStatus {
        let gone = devices.iter().filter(|device| device.state != StoreMemberState::InUse).count();
        StoreArrayStatus {
            needed: field.code.needed(),
            written: field.code.written(),
            may_lose: field.code.spare().saturating_sub(gone),
            devices,
            groups: Vec::new(),
        }
    }

    /// Whether fewer devices may be lost than when all are in use.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.may_lose < self.written - self.needed
    }
}

/// What [`Database::scrub`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Pages of which all fragments were read.
    pub pages: u64,
    /// Fragments and copies that were wrong, or could not be read, and were written anew.
    pub repairs: u64,
    /// Faults that the other devices could not make up for.
    pub faults: u64,
    /// A message for each of the first thousand of these.
    pub damage: Vec<String>,
    /// Devices that are lost or not yet filled: what should be on them was not read.
    pub devices_left_out: Vec<usize>,
}

impl Database {
    /// The store's devices, if it has several.
    #[must_use]
    pub fn store_array(&self) -> Option<StoreArrayStatus> {
        let engine = self.engine();
        let it = engine.devices.store_array.as_ref()?;
        let field = engine.superblock.lock().extensions.store_array.clone()?;
        let filling = engine.filled();
        let counted = it.members.lock().clone();
        let devices = field.members.iter().zip(it.array.status()).zip(&counted).enumerate();
        let devices = devices.map(|(member, ((known, now), device))| StoreDevice {
            member,
            path: known.path.clone(),
            state: StoreMemberState::of(now.state),
            bytes: device.len(),
            failed_reads: now.failed_reads,
            repairs: now.repairs,
            filled: filling.filter(|(filled, ..)| *filled == member).map(|(_, done, all)| (done, all)),
            trouble: None,
        });
        let groups = self.layouts().into_iter().zip(engine.store.groups_by_code()).collect();
        Some(StoreArrayStatus { groups, ..StoreArrayStatus::of(&field, devices.collect()) })
    }

    /// What happened to the store's devices since the database was opened, oldest first; of more
    /// than 1000 events the last.
    #[must_use]
    pub fn store_events(&self) -> Vec<StoreEvent> {
        self.engine().devices.store_array.as_ref().map(|it| it.keeper.events()).unwrap_or_default()
    }

    /// Puts the device at `path` (a file that is created, or an empty file or raw device) into the
    /// place of one of the store's, while the database is in use. Background work fills it from the
    /// others, what is in use only, and goes on with that after a crash; until it is done, one
    /// device less may be lost. A relative path counts from the database's directory.
    ///
    /// Errors: `NotFound`; `BadArgument` if the store is one device, if it cannot do without that
    /// one now, or if the new one holds something; `InUse`, `Unusable`, `Full`, `Failed`.
    pub fn replace_store_device(&self, member: usize, path: impl AsRef<Path>) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.check_store_member(member)?;
        let named = self.named(path.as_ref())?;
        let mut others = engine.superblock.lock().clone();
        if let Some(it) = &engine.devices.store_array
            && let Some(array) = &mut others.extensions.store_array
            && it.array.status().get(member).is_some_and(|now| now.state == MemberState::Struck)
        {
            // A new drive may have the name of the one that was lost.
            array.members.remove(member);
            others.store_path.clone_from(&array.members[0].path);
        }
        refuse_own_files(named.dir, &named.whole, &others)?;
        engine.release_struck_store_member(member);
        self.replace(member, named.open_or_make()?)
    }

    /// As [`Database::replace_store_device`], for a database that was opened on devices.
    pub fn replace_store_device_on(&self, member: usize, device: Arc<dyn Device>) -> Result<(), Error> {
        self.replace(member, Candidate::of(device))
    }

    fn replace(&self, member: usize, candidate: Candidate) -> Result<(), Error> {
        let database = self.engine().superblock.lock().database;
        // What bears this database's id is a former device of it, or one that was being filled.
        claim::refuse_contents(&*candidate.device, &[database])?;
        self.engine().replace_store_member(member, candidate)
    }

    /// Fills one more part of a new device of the store, where background work does not: returns
    /// whether there was something to do.
    pub fn fill_store_device(&self) -> Result<bool, Error> {
        Ok(self.engine().fill_store_member()? == firndb_base::Progress::Worked)
    }

    /// Reads every fragment of every page, and every copy of metadata, on all devices of the store,
    /// beside running transactions, and writes anew what is wrong or cannot be read. Reading alone
    /// finds such damage too, but only of what is read. Calls `progress` with pages done and about
    /// how many there are.
    ///
    /// Errors: `BadArgument` if the store is one device.
    pub fn scrub(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<ScrubReport, Error> {
        let engine = self.engine();
        let repairs = || -> u64 {
            let it = engine.devices.store_array.as_ref();
            it.map_or(0, |it| it.array.status().iter().map(|member| member.repairs).sum())
        };
        let before = repairs();
        let found = engine.scrub(progress)?;
        let repairs = repairs() - before;
        let devices = self.store_array().map_or_else(Vec::new, |status| status.devices);
        let left_out = devices.iter().filter(|device| device.state != StoreMemberState::InUse);
        Ok(ScrubReport {
            pages: found.pages,
            repairs,
            faults: found.faults,
            damage: found.damage,
            devices_left_out: left_out.map(|device| device.member).collect(),
        })
    }
}

/// The store's devices of the database in `dir`, which no process may have open; nothing is changed
/// or recovered. `None` if it is one device.
///
/// Errors: `NotFound`, `InUse`, `Damaged`, `Unusable`.
pub fn store_status(dir: impl AsRef<Path>) -> Result<Option<StoreArrayStatus>, Error> {
    let dir = dir.as_ref();
    let (_held, superblock) = directory::look_at_superblock(dir)?;
    let Some(field) = &superblock.extensions.store_array else { return Ok(None) };
    let open = |known: &StoreMember| {
        let path = dir.join(&known.path);
        open_existing(&path).unwrap_or_else(|error| absent(&path, &error))
    };
    let opened: Vec<_> = field.members.iter().map(open).collect();
    let left_out = StoreArray::left_out(opened.clone(), &field.members, superblock.database);
    let members = field.members.iter().zip(opened).zip(left_out).enumerate();
    let devices = members.map(|(member, ((known, device), trouble))| StoreDevice {
        member,
        path: known.path.clone(),
        state: match (&trouble, known.state) {
            (Some(_), MemberState::Active | MemberState::Rebuilding) => StoreMemberState::Missing,
            (_, state) => StoreMemberState::of(state),
        },
        bytes: device.len(),
        failed_reads: 0,
        repairs: 0,
        filled: (known.state == MemberState::Rebuilding).then_some((known.rebuilt, 0)),
        trouble,
    });
    Ok(Some(StoreArrayStatus::of(field, devices.collect())))
}
