//! The log's devices as users see and change them.

use crate::database::Database;
use crate::engine::devices::Candidate;
use crate::engine::directory;
use crate::engine::directory::files::open_existing;
use crate::engine::directory::names::refuse_own_files;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::callbacks::LogEvent;
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::Device;
use firndb_log::{DeviceContents, MemberId, MemberState, MemberStatus};
use std::path::Path;

/// Whether a log device can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogMemberState {
    /// Log is written to it.
    InUse,
    /// It is being removed.
    Leaving,
    /// It failed; log on it may still be needed.
    Failed,
    /// It cannot be read (only of a database that is not open).
    Missing,
}

impl LogMemberState {
    /// The state in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogMemberState::InUse => "in use",
            LogMemberState::Leaving => "leaving",
            LogMemberState::Failed => "failed",
            LogMemberState::Missing => "missing",
        }
    }
}

/// A device of the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogMember {
    /// Its id, which [`Database::remove_log_device`] takes. No id is used twice.
    pub id: u32,
    /// Where it is: relative to the database's directory, or absolute.
    pub path: String,
    /// Whether it can be used.
    pub state: LogMemberState,
    /// Capacity in bytes of log.
    pub capacity_bytes: u64,
    /// Bytes that it can take until log is truncated.
    pub room_bytes: u64,
    /// Bytes of log ever written to it, padding included, in all epochs of the database: a measure
    /// of its wear.
    pub written_bytes: u64,
    /// Why it is missing.
    pub trouble: Option<String>,
}

/// The log's devices and copies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogArrayStatus {
    /// Number of devices that each commit should be on.
    pub copies: usize,
    /// Number of devices that new commits are on: fewer if there are fewer devices.
    pub copies_now: usize,
    /// Log is needed from this LSN on.
    pub needed_from: Lsn,
    /// From this LSN on all log has the copies it should have; `None` if not even new log has.
    pub redundant_from: Option<Lsn>,
    /// Devices that could be lost now without losing anything.
    pub may_lose: usize,
    /// The devices.
    pub members: Vec<LogMember>,
}

impl LogArrayStatus {
    fn of(superblock: &Superblock, now: Option<usize>, members: Vec<LogMember>) -> LogArrayStatus {
        let (redundancy, from) = (superblock.redundancy(), superblock.redo_start);
        let copies = superblock.copies();
        LogArrayStatus {
            copies: usize::from(copies),
            copies_now: now.unwrap_or_else(|| usize::from(redundancy.at(Lsn::MAX))),
            needed_from: from,
            redundant_from: redundancy.full_from(copies).map(|full| full.max(from)),
            may_lose: usize::from(redundancy.least_from(from)) - 1,
            members,
        }
    }

    /// Whether anything has fewer copies than it should have.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.redundant_from.is_none_or(|from| from > self.needed_from)
    }
}

impl Database {
    /// The log's devices and copies.
    #[must_use]
    pub fn log_array(&self) -> LogArrayStatus {
        let engine = self.engine();
        let statuses = engine.log.member_statuses();
        let superblock = engine.superblock.lock();
        let member = |status: MemberStatus| {
            let listed = superblock.members.iter().find(|member| member.id == status.member)?;
            let state = match status.state {
                MemberState::InUse => LogMemberState::InUse,
                MemberState::Leaving => LogMemberState::Leaving,
                MemberState::Failed | MemberState::Gone => LogMemberState::Failed,
            };
            Some(of_status(&status, &listed.path, state))
        };
        let members = statuses.into_iter().filter_map(member).collect();
        LogArrayStatus::of(&superblock, Some(engine.log.copies().1), members)
    }

    /// What happened to the log's devices since the database was opened, oldest first; of more than
    /// 64 events the last.
    #[must_use]
    pub fn log_events(&self) -> Vec<LogEvent> {
        self.engine().array.events()
    }

    /// Adds a device to the log while it is in use: a file that is created, or an empty file or raw
    /// device; a former log device of this database may be given, too. A relative path counts from
    /// the database's directory. Returns its id. It gets the size of the smallest device of the
    /// log.
    ///
    /// After a crash in between it is either a device of the log or not; if it is not, add it
    /// again.
    ///
    /// Errors: `BadArgument` if it holds something else, `InUse`, `Unusable`, `Full`, `Failed`.
    pub fn add_log_device(&self, path: impl AsRef<Path>) -> Result<u32, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        let named = self.named(path.as_ref())?;
        refuse_own_files(named.dir, &named.whole, &engine.superblock.lock())?;
        self.add(named.open_or_make()?)
    }

    /// As [`Database::add_log_device`], for a database that was opened on devices.
    pub fn add_log_device_on(&self, device: Arc<dyn Device>) -> Result<u32, Error> {
        self.add(Candidate::of(device))
    }

    fn add(&self, candidate: Candidate) -> Result<u32, Error> {
        let engine = self.engine();
        let device = &candidate.device;
        let name = device.info().name.clone();
        let (database, members) = {
            let superblock = engine.superblock.lock();
            (superblock.database, superblock.log_identity().members)
        };
        match DeviceContents::of(&**device)? {
            DeviceContents::Nothing => {}
            DeviceContents::Member { database: of, member, .. }
                if of == database && !members.contains(&member) => {}
            DeviceContents::Member { .. } | DeviceContents::Other => {
                return Err(Error::bad_argument(format!(
                    "{name} holds something: give an empty device, or remove what is there first"
                )));
            }
        }
        Ok(engine.add_log_device(candidate)?.0)
    }

    /// Removes a device from the log while it is in use: it gets no more log, and leaves the log
    /// once a checkpoint has made what is on it needless. Its file stays where it is.
    ///
    /// After a crash in between it is still a device of the log; remove it again.
    ///
    /// Errors: `NotFound`; `BadArgument` if it is the last one (or
    /// [`crate::LogSettings::copies_required`] are needed); `Full` if the others have too little
    /// capacity, or if the archive or a backup needs log that is on it for longer than 30 s; it
    /// then stays in use.
    pub fn remove_log_device(&self, id: u32) -> Result<(), Error> {
        self.engine().remove_log_device(MemberId(id))
    }

    /// Adds the device at `path` and removes device `id`; returns the new one's id. See
    /// [`Database::add_log_device`] and [`Database::remove_log_device`]; if the removal fails, both
    /// are in use.
    pub fn replace_log_device(&self, id: u32, path: impl AsRef<Path>) -> Result<u32, Error> {
        let engine = self.engine();
        if engine.log.member_statuses().iter().all(|status| status.member.0 != id) {
            return Err(Error::not_found(format!("the log has no device {id}")));
        }
        let new = self.add_log_device(path)?;
        self.remove_log_device(id)
            .map_err(|error| error.within(&format!("device {new} was added, but device {id} not removed")))?;
        Ok(new)
    }
}

fn of_status(status: &MemberStatus, path: &str, state: LogMemberState) -> LogMember {
    LogMember {
        id: status.member.0,
        path: path.to_owned(),
        state,
        capacity_bytes: status.capacity_bytes,
        room_bytes: status.room_bytes,
        written_bytes: status.written_bytes,
        trouble: None,
    }
}

/// The log's devices of the database in `dir`, which no process may have open; nothing is changed
/// or recovered.
///
/// Errors: `NotFound`, `InUse`, `Damaged`, `Unusable`.
pub fn log_status(dir: impl AsRef<Path>) -> Result<LogArrayStatus, Error> {
    let dir = dir.as_ref();
    let (_held, superblock) = directory::look_at_superblock(dir)?;
    let identity = superblock.log_identity();
    let member = |(place, member): (usize, &crate::engine::superblock::Member)| {
        let found = open_existing(&dir.join(&member.path))
            .and_then(|device| Ok(MemberStatus::read(device, &identity, place, superblock.log_start())?));
        match found {
            Ok(status) => of_status(&status, &member.path, LogMemberState::InUse),
            Err(error) => LogMember {
                id: member.id.0,
                path: member.path.clone(),
                state: LogMemberState::Missing,
                capacity_bytes: 0,
                room_bytes: 0,
                written_bytes: 0,
                trouble: Some(error.to_string()),
            },
        }
    };
    let members = superblock.members.iter().enumerate().map(member).collect();
    Ok(LogArrayStatus::of(&superblock, None, members))
}
