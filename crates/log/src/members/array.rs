//! The log's devices, which may change while it is open.
//!
//! Each device has an index in the lists of `Flight` and `Front` for as long as the log is open,
//! and the index of one that has left is not used again. The caller makes the list of members
//! durable; the order is
//! * *joining*: the id is durable as taken → the device is formatted → it is durable as a member →
//!   it is used;
//! * *leaving*: it is given no more requests → all log on it has been truncated → it is durable as
//!   no member → it is forgotten, and its header is marked as retired, lest it be taken for a
//!   member.
//!
//! Blocks carry their member's id, and ids are never assigned twice: the blocks of a former member
//! are never log again, whatever name its device returns under.

use crate::error::{LogError, LogErrorKind};
use crate::ids::{LogIdentity, MemberId};
use crate::layout::MemberHeader;
use crate::log::{DEVICES_MAX, Log};
use crate::members::loss::LossHandler;
use crate::members::new_member::NewMember;
use crate::members::state::MemberState;
use crate::read::member::{Member, read_member_header};
use crate::write::in_flight::slot::Slot;
use crate::write::space::DeviceSpace;
use crate::write::worker;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Lsn};
use firndb_device::{AlignedBuf, Device, find_contents};

/// The state of one log device.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// The member's id.
    pub member: MemberId,
    /// The device's name.
    pub device: String,
    /// Whether it takes requests.
    pub state: MemberState,
    /// Most bytes of log that it can hold.
    pub capacity_bytes: u64,
    /// Bytes that it can take before log is truncated.
    pub room_bytes: u64,
    /// Bytes of log ever written to it, in all epochs of the database.
    pub written_bytes: u64,
}

impl MemberStatus {
    /// The status of the member at `place` of the identity's list, on a device to which no thread
    /// writes. Log is needed from `from` on.
    pub fn read(
        device: Arc<dyn Device>,
        identity: &LogIdentity,
        place: usize,
        from: Lsn,
    ) -> Result<MemberStatus, LogError> {
        let name = device.info().name.clone();
        let (main, area) = Member::read(device, identity, place)?;
        // The rest of the newest section, after its last block, is not searched: it counts as full.
        let spaces: Vec<DeviceSpace> =
            std::iter::once(&main).chain(&area).map(|stream| stream.filled(from)).collect();
        Ok(MemberStatus {
            member: identity.members[place],
            device: name,
            state: MemberState::InUse,
            capacity_bytes: spaces[0].capacity_bytes(),
            room_bytes: spaces[0].free_bytes(),
            written_bytes: spaces.iter().map(DeviceSpace::written_bytes).sum(),
        })
    }
}

impl Log {
    /// The log's members with their devices: all that hold log, or may.
    #[must_use]
    pub fn members(&self) -> Vec<(MemberId, Arc<dyn Device>)> {
        let flight = self.pipeline.flight.lock();
        let members = flight.slots().iter().filter(|slot| slot.state() != MemberState::Gone);
        members.map(|slot| (slot.member(), Arc::clone(slot.device()))).collect()
    }

    /// The status of each member.
    #[must_use]
    pub fn member_statuses(&self) -> Vec<MemberStatus> {
        let flight = self.pipeline.flight.lock();
        let front = self.pipeline.front.lock();
        let members = flight.slots().iter().enumerate().filter(|(_, slot)| slot.state() != MemberState::Gone);
        members
            .map(|(place, slot)| {
                let (space, area) = front.streams(place);
                MemberStatus {
                    member: slot.member(),
                    device: slot.device().info().name.clone(),
                    state: slot.state(),
                    capacity_bytes: space.capacity_bytes(),
                    room_bytes: space.free_bytes(),
                    written_bytes: space.written_bytes() + area.map_or(0, DeviceSpace::written_bytes),
                }
            })
            .collect()
    }

    /// Number of devices that each request should go to, and number that one goes to now.
    #[must_use]
    pub fn copies(&self) -> (usize, usize) {
        let flight = self.pipeline.flight.lock();
        (flight.copies(), flight.width())
    }

    /// An LSN, and the number of copies that log from there on gets with the devices now in use.
    /// Log that was handed to devices before keeps the copies that it has.
    #[must_use]
    pub fn copies_from_here(&self) -> (Lsn, usize) {
        let flight = self.pipeline.flight.lock();
        let front = self.pipeline.front.lock();
        (front.requested(), flight.width())
    }

    /// Sets the handler that is called once for each device that fails from now on. The thread
    /// whose write failed calls it, with no lock of the log held. Until it returns, no log is
    /// acknowledged that has fewer copies because of the failure. If it fails, or there is none,
    /// the log fails. May be called once, and not if the log was opened with
    /// [`crate::LogOptions::on_device_lost`].
    pub fn on_device_lost(&self, handler: LossHandler) {
        let set = self.pipeline.handler.set(handler).is_ok();
        assert!(set, "a log has one such handler");
    }

    /// Sets a listener that is called when the log has failed, by the thread that detected the
    /// failure and with no lock of the log held. The failed write may have been one that no thread
    /// waits for; threads that wait for something else learn of it only through the listener. May
    /// be called once.
    pub fn on_failed(&self, listener: impl Fn(&LogError) + Send + Sync + 'static) {
        let set = self.pipeline.on_failed.set(Box::new(listener)).is_ok();
        assert!(set, "a log has one such listener");
    }

    /// Formats `device`, grown to its size, as member `member`: an id that no device has had. It is
    /// no member before the caller has made it one durably, and takes no requests before
    /// [`Log::use_member`].
    pub fn prepare_member(&self, device: Arc<dyn Device>, member: MemberId) -> Result<NewMember, LogError> {
        let unit = self.pipeline.front.lock().unit();
        let info = device.info();
        if info.logical_block as u64 > unit {
            return Err(LogErrorKind::BadArgument.error(format!(
                "{} has blocks of {} bytes, but the log was made for blocks of up to {unit}: use a device with smaller \
                 ones",
                info.name, info.logical_block
            )));
        }
        let place = self.members().len();
        let log = (self.database, self.epoch());
        NewMember::format(device, log, member, (place, place + 1), unit, &self.pipeline.options)
    }

    /// Takes a new member into use. Returns the first LSN that may go to it: from there on the log
    /// has the copies that [`Log::copies`] returns now.
    pub fn use_member(&self, new: NewMember) -> Result<Lsn, LogError> {
        let place = {
            let mut flight = self.pipeline.flight.lock();
            let place = flight.slots().len();
            if !self.pipeline.options.takes_any_device() {
                return Err(LogErrorKind::BadArgument
                    .error("only a log with the layout of the array can change its devices".to_owned()));
            }
            if place == DEVICES_MAX {
                return Err(LogErrorKind::BadArgument.error(format!(
                    "a log has had {DEVICES_MAX} devices since the database was opened: open it again to add more"
                )));
            }
            let buffer = AlignedBuf::zeroed(self.buffer_bytes);
            flight.add_device(Slot::new(new.device, new.owner, buffer));
            let mut front = self.pipeline.front.lock();
            front.add_device(new.space, new.area);
            (place, front.requested())
        };
        if self.pipeline.options.workers {
            let worker = worker::start_one(&self.pipeline, place.0)?;
            self.workers.lock().push(worker);
        }
        // A thread may have waited for a device.
        self.pipeline.wake_after_device_change();
        Ok(place.1)
    }

    /// Takes a member that is to leave out of use. Refused if too few devices or too little free
    /// space would be left. The caller has made durable that there are fewer copies from now on, if
    /// so.
    pub fn stop_using(&self, member: MemberId) -> Result<(), LogError> {
        let mut flight = self.pipeline.flight.lock();
        let place = place_of(flight.slots(), member)?;
        match flight.slots()[place].state() {
            MemberState::Leaving | MemberState::Failed | MemberState::Gone => return Ok(()),
            MemberState::InUse => {}
        }
        if !self.pipeline.options.takes_any_device() {
            return Err(LogErrorKind::BadArgument
                .error("only a log with the layout of the array can change its devices".to_owned()));
        }
        let needed = self.pipeline.options.copies_required.max(1);
        if flight.usable() <= needed {
            return Err(LogErrorKind::BadArgument.error(format!(
                "member {} cannot leave the log: {needed} {} needed; add another first",
                member.0,
                if needed == 1 { "device is" } else { "devices are" }
            )));
        }
        let mut front = self.pipeline.front.lock();
        if !front.can_spare(place) {
            return Err(LogErrorKind::Full.error(format!(
                "member {} cannot leave the log: the other devices have too little free space now",
                member.0
            )));
        }
        flight.stop_using(place);
        front.set_in_use(place, false);
        Ok(())
    }

    /// Takes a member that was to leave, and has not left, into use again.
    pub fn use_again(&self, member: MemberId) {
        let mut flight = self.pipeline.flight.lock();
        if let Ok(place) = place_of(flight.slots(), member)
            && flight.use_again(place)
        {
            self.pipeline.front.lock().set_in_use(place, true);
        }
    }

    /// Whether a member holds no log at or after `lsn`, and none is being written to it.
    #[must_use]
    pub fn is_drained(&self, member: MemberId, lsn: Lsn) -> bool {
        let flight = self.pipeline.flight.lock();
        let Ok(place) = place_of(flight.slots(), member) else { return true };
        let slot = &flight.slots()[place];
        !slot.is_usable() && slot.is_quiet() && self.pipeline.front.lock().is_drained(place, lsn)
    }

    /// Whether a member's device can be read: its header can.
    #[must_use]
    pub fn is_readable(&self, member: MemberId) -> bool {
        let device = {
            let flight = self.pipeline.flight.lock();
            place_of(flight.slots(), member).ok().map(|place| Arc::clone(flight.slots()[place].device()))
        };
        device.is_some_and(|device| read_member_header(&*device).is_ok())
    }

    /// Forgets a member that takes no requests and, durably, is no member any more; drops the
    /// reference to its device. Its header is marked as retired, as far as the device allows.
    pub fn forget_member(&self, member: MemberId) {
        let device = {
            let mut flight = self.pipeline.flight.lock();
            let Ok(place) = place_of(flight.slots(), member) else { return };
            flight.forget(place)
        };
        // It is no member, whether or not this can be written.
        let _ = retire(&*device);
    }
}

fn place_of(slots: &[Slot], member: MemberId) -> Result<usize, LogError> {
    let found = slots.iter().position(|s| s.member() == member && s.state() != MemberState::Gone);
    found.ok_or_else(|| LogErrorKind::BadArgument.error(format!("the log has no member {}", member.0)))
}

/// Marks the header of a former member.
fn retire(device: &dyn Device) -> Result<(), LogError> {
    let header = MemberHeader { retired: true, ..read_member_header(device)? };
    device.write(0, &header.encode(), firndb_device::Durability::Durable)?;
    Ok(())
}

/// The contents of a device, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceContents {
    /// Nothing that can be detected ([`firndb_device::find_contents`]).
    Nothing,
    /// A log device, now or formerly a member.
    Member {
        /// The database that the log belongs to.
        database: DatabaseId,
        /// The member's id.
        member: MemberId,
        /// Whether its header marks it as a former member.
        retired: bool,
    },
    /// Anything else.
    Other,
}

impl DeviceContents {
    /// Reads the header of `device`; if there is none, checks the places where other formats have
    /// theirs.
    pub fn of(device: &dyn Device) -> Result<DeviceContents, LogError> {
        if let Ok(header) = read_member_header(device) {
            let MemberHeader { database, member, retired, .. } = header;
            return Ok(DeviceContents::Member { database, member, retired });
        }
        let empty = find_contents(device)?.is_none();
        Ok(if empty { DeviceContents::Nothing } else { DeviceContents::Other })
    }
}
