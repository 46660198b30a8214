//! The log's devices, which may change while it is open.
//!
//! Each device has a place in the lists of `Flight` and `Front` for as long as the log is open, and nobody takes over the
//! place of one that has left. What is a member is for the caller to make durable; the order is
//! * *joining*: the id is durable as taken → the device is formatted → it is durable as a member → it is used;
//! * *leaving*: it is given no more requests → all log on it has been truncated → it is durable as no member → it is
//!   forgotten, and its header says so, lest it be taken for what it was.
//!
//! Blocks carry their member's id, and ids are never given twice: what a former member holds is never log again, whatever
//! name its device comes back under.

use crate::block::{self, Owner};
use crate::flight::Slot;
use crate::hiding::Hiding;
use crate::job::Bytes;
use crate::layout::{Geometry, MemberHeader};
use crate::log::{DEVICES_MAX, Log, format};
use crate::loss::Loss;
use crate::member::{Member, read_member_header};
use crate::policy::LogPolicy;
use crate::space::DeviceSpace;
use crate::{LogError, LogErrorKind, LogIdentity, LostMember, MemberId, worker};
use firn_base::sync::Arc;
use firn_base::{DatabaseId, Lsn};
use firn_device::{AbsentDevice, AlignedBuf, Device, DeviceError, DeviceErrorKind};

/// What a log device is good for at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It takes requests.
    InUse,
    /// It takes none, since it is to leave; what it holds is read if need be.
    Leaving,
    /// A write to it failed. It takes no requests; what it holds may still be needed.
    Failed,
    /// It is no member any more.
    Gone,
}

/// A log device as the open log sees it.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub member: MemberId,
    /// Its name.
    pub device: String,
    /// What it is good for.
    pub state: MemberState,
    /// Bytes of log that it holds at most.
    pub capacity_bytes: u64,
    /// Bytes that it can take before log is truncated.
    pub room_bytes: u64,
    /// Bytes of log ever written to it, in all lives of the database.
    pub written_bytes: u64,
}

impl MemberStatus {
    /// Of the member at `place` of the identity's list, on a device that nobody writes to; log is needed from `from` on.
    pub fn read(
        device: Arc<dyn Device>,
        identity: &LogIdentity,
        place: usize,
        from: Lsn,
    ) -> Result<MemberStatus, LogError> {
        let name = device.info().name.clone();
        let (main, area) = Member::read(device, identity, place)?;
        // What follows the last block of the newest section is not looked for: it counts as full.
        let spaces: Vec<DeviceSpace> =
            std::iter::once(&main).chain(&area).map(|stream| stream.filled(from)).collect();
        Ok(MemberStatus {
            member: identity.members[place],
            device: name,
            state: MemberState::InUse,
            capacity_bytes: spaces[0].capacity_bytes(),
            room_bytes: spaces[0].room_bytes(),
            written_bytes: spaces.iter().map(DeviceSpace::written_bytes).sum(),
        })
    }
}

/// A device that was formatted to join the log.
pub struct NewMember {
    device: Arc<dyn Device>,
    owner: Owner,
    space: DeviceSpace,
    area: Option<DeviceSpace>,
}

/// A request none of whose writes succeeded.
pub(crate) struct Orphan {
    pub number: u64,
    pub bytes: Arc<Bytes>,
}

fn bad(message: String) -> LogError {
    LogError::new(LogErrorKind::BadArgument, message)
}

impl Log {
    /// Its members with their devices: those that hold log, or may.
    #[must_use]
    pub fn members(&self) -> Vec<(MemberId, Arc<dyn Device>)> {
        let flight = self.pipeline.flight.lock();
        let members = flight.slots.iter().filter(|slot| slot.state != MemberState::Gone);
        members.map(|slot| (MemberId(slot.owner.member), Arc::clone(&slot.device))).collect()
    }

    /// What is known of each member.
    #[must_use]
    pub fn member_statuses(&self) -> Vec<MemberStatus> {
        let flight = self.pipeline.flight.lock();
        let front = self.pipeline.front.lock();
        let members = flight.slots.iter().enumerate().filter(|(_, slot)| slot.state != MemberState::Gone);
        members
            .map(|(place, slot)| {
                let (space, area) = front.streams(place);
                MemberStatus {
                    member: MemberId(slot.owner.member),
                    device: slot.device.info().name.clone(),
                    state: slot.state,
                    capacity_bytes: space.capacity_bytes(),
                    room_bytes: space.room_bytes(),
                    written_bytes: space.written_bytes() + area.map_or(0, DeviceSpace::written_bytes),
                }
            })
            .collect()
    }

    /// On how many devices each request is wanted, and on how many one goes now.
    #[must_use]
    pub fn copies(&self) -> (usize, usize) {
        let flight = self.pipeline.flight.lock();
        (flight.copies, flight.width())
    }

    /// Has `handler` called, once for each device that fails from now on, by the thread whose write failed and with no
    /// lock of the log held. Until it returns, nothing is acknowledged that has fewer copies for it. If it fails, or
    /// there is none, the log fails. May be called once.
    pub fn on_device_lost(
        &self,
        handler: impl Fn(&LostMember) -> Result<Loss, LogError> + Send + Sync + 'static,
    ) {
        let set = self.pipeline.handler.set(Box::new(handler)).is_ok();
        assert!(set, "a log has one such handler");
    }

    /// Has `listener` told when the log has failed, by the thread that found out and with no lock of the log held. The
    /// write may have been one that nobody waits for, and those who wait for something else would not hear of it. May be
    /// called once.
    pub fn on_failed(&self, listener: impl Fn(&LogError) + Send + Sync + 'static) {
        let set = self.pipeline.on_failed.set(Box::new(listener)).is_ok();
        assert!(set, "a log has one such listener");
    }

    /// Formats `device`, grown to its size, as member `member`: an id that no device has had. It is no member before
    /// the caller says so durably, and takes no requests before [`Log::use_member`].
    pub fn prepare_member(&self, device: Arc<dyn Device>, member: MemberId) -> Result<NewMember, LogError> {
        let unit = self.pipeline.front.lock().unit();
        let info = device.info();
        if info.logical_block as u64 > unit {
            return Err(bad(format!(
                "{} has blocks of {} bytes, but the log was made for blocks of up to {unit}: use a device with smaller \
                 ones",
                info.name, info.logical_block
            )));
        }
        let (wanted, hides) =
            (self.pipeline.options.section_bytes, self.pipeline.options.hiding != Hiding::Off);
        let (geometry, area) = Geometry::choose(&info.name, device.len(), unit, wanted, hides)?;
        let owner = Owner::main(self.tag(), member.0);
        let header = MemberHeader {
            database: self.database,
            epoch: self.epoch(),
            member,
            members: self.members().len() as u32 + 1,
            place: self.members().len() as u32,
            geometry,
            area,
            retired: false,
        };
        format(&*device, owner, &header)?;
        let (space, area) = (DeviceSpace::empty(geometry), area.map(DeviceSpace::empty));
        Ok(NewMember { device, owner, space, area })
    }

    fn tag(&self) -> u32 {
        block::database_tag(self.database)
    }

    /// Gives requests to a new member. Answers the LSN from which on they may go there: from there on the log has the
    /// copies that [`Log::copies`] tells now.
    pub fn use_member(&self, new: NewMember) -> Result<Lsn, LogError> {
        let place = {
            let mut flight = self.pipeline.flight.lock();
            let place = flight.slots.len();
            if self.pipeline.options.policy != LogPolicy::Array {
                return Err(bad("only a log whose policy is Array can change its devices".to_owned()));
            }
            if place == DEVICES_MAX {
                return Err(bad(format!(
                    "a log has had {DEVICES_MAX} devices since the database was opened: open it again to add more"
                )));
            }
            let buffer = AlignedBuf::zeroed(self.buffer_bytes);
            flight.slots.push(Slot::new(new.device, new.owner, buffer));
            flight.hider.add_device();
            let mut front = self.pipeline.front.lock();
            front.add_device(new.space, new.area);
            (place, front.requested())
        };
        if self.pipeline.options.workers {
            let worker = worker::start_one(&self.pipeline, place.0).map_err(|error| {
                LogError::new(LogErrorKind::Failed, format!("a log thread could not be started: {error}"))
            })?;
            self.workers.lock().push(worker);
        }
        // Somebody may have waited for a device.
        self.pipeline.look_again();
        Ok(place.1)
    }

    /// Gives no more requests to a member that is to leave. Refused if too few devices or too little room would be left.
    /// The caller has made durable that there are fewer copies from now on, if so.
    pub fn stop_using(&self, member: MemberId) -> Result<(), LogError> {
        let mut flight = self.pipeline.flight.lock();
        let place = place_of(&flight.slots, member)?;
        match flight.slots[place].state {
            MemberState::Leaving | MemberState::Failed | MemberState::Gone => return Ok(()),
            MemberState::InUse => {}
        }
        if self.pipeline.options.policy != LogPolicy::Array {
            return Err(bad("only a log whose policy is Array can change its devices".to_owned()));
        }
        let needed = self.pipeline.options.copies_required.max(1);
        if flight.usable() <= needed {
            return Err(bad(format!(
                "member {} cannot leave the log: {needed} {} needed; add another first",
                member.0,
                if needed == 1 { "device is" } else { "devices are" }
            )));
        }
        let mut front = self.pipeline.front.lock();
        if !front.can_spare(place) {
            return Err(LogError::new(
                LogErrorKind::Full,
                format!(
                    "member {} cannot leave the log: the other devices have too little room now",
                    member.0
                ),
            ));
        }
        flight.slots[place].state = MemberState::Leaving;
        front.set_in_use(place, false);
        Ok(())
    }

    /// Gives requests again to a member that was to leave and has not.
    pub fn use_again(&self, member: MemberId) {
        let mut flight = self.pipeline.flight.lock();
        if let Ok(place) = place_of(&flight.slots, member)
            && flight.slots[place].state == MemberState::Leaving
        {
            flight.slots[place].state = MemberState::InUse;
            self.pipeline.front.lock().set_in_use(place, true);
        }
    }

    /// Whether a member holds no log at or after `lsn`, and none is being written to it.
    #[must_use]
    pub fn is_drained(&self, member: MemberId, lsn: Lsn) -> bool {
        let flight = self.pipeline.flight.lock();
        let Ok(place) = place_of(&flight.slots, member) else { return true };
        let slot = &flight.slots[place];
        let idle = slot.buffer.is_some() || slot.state == MemberState::Failed;
        slot.state != MemberState::InUse && idle && self.pipeline.front.lock().is_drained(place, lsn)
    }

    /// Forgets a member that takes no requests and, durably, is none any more; lets go of its device. Its header is made
    /// to say so, as far as the device allows.
    pub fn forget_member(&self, member: MemberId) {
        let device = {
            let mut flight = self.pipeline.flight.lock();
            let Ok(place) = place_of(&flight.slots, member) else { return };
            assert!(flight.slots[place].state != MemberState::InUse, "a member stops being used first");
            flight.slots[place].leave()
        };
        // It is no member, whether or not this can be written.
        let _ = retire(&*device);
    }
}

impl Slot {
    /// Leaves the log; answers the device.
    pub fn leave(&mut self) -> Arc<dyn Device> {
        self.state = MemberState::Gone;
        let name = self.device.info().name.clone();
        let why = DeviceError::new(DeviceErrorKind::Failed, format!("{name} has left the log"));
        std::mem::replace(&mut self.device, Arc::new(AbsentDevice::new(&name, why)))
    }
}

fn place_of(slots: &[Slot], member: MemberId) -> Result<usize, LogError> {
    let found = slots.iter().position(|s| s.owner.member == member.0 && s.state != MemberState::Gone);
    found.ok_or_else(|| bad(format!("the log has no member {}", member.0)))
}

/// Marks the header of a former member.
fn retire(device: &dyn Device) -> Result<(), LogError> {
    let header = MemberHeader { retired: true, ..read_member_header(device)? };
    device.write(0, &header.encode(), firn_device::Durability::Durable)?;
    Ok(())
}

/// What a device says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceContents {
    /// Its first bytes are zero, or it has none.
    Nothing,
    /// A log device of this database, with this id; whether it has left the log.
    Member {
        /// Whose.
        database: DatabaseId,
        /// Its id.
        member: MemberId,
        /// Its header says that it is a member no more.
        retired: bool,
    },
    /// Anything else.
    Other,
}

impl DeviceContents {
    /// Looks at the first bytes of `device`.
    pub fn of(device: &dyn Device) -> Result<DeviceContents, LogError> {
        if let Ok(header) = read_member_header(device) {
            let MemberHeader { database, member, retired, .. } = header;
            return Ok(DeviceContents::Member { database, member, retired });
        }
        let mut first = AlignedBuf::zeroed(64 << 10);
        let len = (first.len() as u64).min(device.len()) as usize;
        device.read(0, &mut first[..len])?;
        let empty = first[..len].iter().all(|&byte| byte == 0);
        Ok(if empty { DeviceContents::Nothing } else { DeviceContents::Other })
    }
}
