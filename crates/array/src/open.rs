//! Opening: which members can be used.

use crate::array::{Array, ArrayOptions, Length};
use crate::code::MEMBERS_MAX;
use crate::label::Label;
use crate::map::Map;
use crate::members::{Member, MemberState, copy_budget, is_enough, readable};
use firndb_base::DatabaseId;
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError, DeviceErrorKind, Fill};

/// A member that is to be opened.
#[derive(Debug)]
pub struct MemberToOpen {
    /// Its device, or one that stands for it and fails.
    pub device: Arc<dyn Device>,
    /// Its incarnation, as the keeper knows it.
    pub incarnation: u64,
    /// Its state, as the keeper knows it.
    pub state: MemberState,
}

impl Array {
    /// Opens the array that these devices are, in their order. A member that is missing, or is not
    /// the device that the keeper knows, counts as struck; that is made durable before the first
    /// write.
    ///
    /// Errors: more members are missing than may be lost; the message names them.
    pub fn open(found: Vec<MemberToOpen>, options: ArrayOptions) -> Result<Array, DeviceError> {
        assert!(!found.is_empty() && found.len() <= MEMBERS_MAX, "an array has 1 to {MEMBERS_MAX} members");
        let labels: Vec<Result<Label, String>> = found
            .iter()
            .enumerate()
            .map(|(at, member)| label_of(member, (at, found.len()), options.database))
            .collect();
        let first = labels
            .iter()
            .zip(&found)
            .find_map(|(label, member)| label.as_ref().ok().filter(|_| member.state == MemberState::Active));
        let Some(first) = first.cloned() else {
            let why: Vec<String> = labels.into_iter().filter_map(Result::err).collect();
            return Err(missing(&why, "no member of the store is left"));
        };
        let map = Map::new(first.shape, first.code, first.members, first.block, first.row_bytes);
        let (mut members, mut why) = (Vec::new(), Vec::new());
        let budget = copy_budget();
        for (member, label) in found.into_iter().zip(labels) {
            let device = member.device;
            let alike = |label: &Label| {
                (label.shape, label.code, label.block, label.row_bytes)
                    == (first.shape, first.code, first.block, first.row_bytes)
                    && label.block >= device.info().logical_block as u64
            };
            let refused = match label {
                Ok(label) if alike(&label) => None,
                Ok(_) => Some(format!("{} is cut otherwise than the others", device.info().name)),
                Err(why) => Some(why),
            };
            let state = if refused.is_some() { MemberState::Struck } else { member.state };
            if state == MemberState::Rebuilding {
                why.push(has_missed_writes(&*device));
            }
            why.extend(refused);
            members.push(Member::new(device, state, state != member.state, &budget));
        }
        enough(&map, &members, &why)?;
        let length = options.length;
        let array = Array::assemble(map, members, options)?;
        let len = array.leave_out_short(length, &mut why)?;
        array.set_groups(len.map_or(array.groups(), |len| array.map.shape.groups_of(len)));
        lengthen(&array.members);
        Ok(array)
    }

    /// Strikes the members that are shorter than the file above needs: all were as long before its
    /// header said so, so they have been cut off since. Made durable as that of a missing one.
    /// Returns how long that is, if the file says so.
    fn leave_out_short(&self, length: Length, why: &mut Vec<String>) -> Result<Option<u64>, DeviceError> {
        loop {
            let above = length(self.database, self);
            // Without a header the shortest member may hide it: there is one group at least.
            let len = self.map.member_len(above.unwrap_or_else(|| self.map.shape.group_start(1)));
            let Some(len) = len else { return Ok(above) };
            let is_short = |member: &&Member| member.is_read() && member.device().len() < len;
            let mut short = self.members.iter().filter(is_short).peekable();
            if short.peek().is_none() {
                return Ok(above);
            }
            for member in short {
                let device = member.device();
                let name = &device.info().name;
                why.push(format!(
                    "{name} is {} bytes long, and has been cut off: {len} are needed",
                    device.len()
                ));
                member.leave_out();
            }
            enough(&self.map, &self.members, why)?;
        }
    }
}

/// Fails if more members are gone than may be; `why` says of each why it is.
fn enough(map: &Map, members: &[Member], why: &[String]) -> Result<(), DeviceError> {
    if is_enough(map, readable(members)) {
        return Ok(());
    }
    Err(missing(why, &format!("the store can lose {} of its {} members", map.code.spare(), map.members)))
}

/// Makes a member that is being filled as long as those that are read: a crash while all grew may
/// have left it shorter. One that cannot be is missing.
fn lengthen(members: &[Member]) {
    let read = members.iter().filter(|member| member.is_read());
    let least = read.map(|member| member.device().len()).min().unwrap_or(0);
    for member in members {
        let device = member.device();
        if member.state() == MemberState::Rebuilding
            && device.len() < least
            && device.grow(least, Fill::Reserved).is_err()
        {
            member.leave_out();
        }
    }
}

fn has_missed_writes(device: &dyn Device) -> String {
    format!("{} has missed writes", device.info().name)
}

fn missing(why: &[String], what: &str) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::Unusable,
        format!("{what}, and these cannot be used: {}", why.join("; ")),
    )
}

impl MemberToOpen {
    /// Why an array of this database, of this number of members, leaves this one out, by its state
    /// and its label; `None` if it would be used as number `at`.
    #[must_use]
    pub fn left_out(&self, at: usize, members: usize, database: DatabaseId) -> Option<String> {
        label_of(self, (at, members), database).err()
    }
}

/// The label of a member, or why it is none.
fn label_of(
    member: &MemberToOpen,
    (at, members): (usize, usize),
    database: DatabaseId,
) -> Result<Label, String> {
    let name = &member.device.info().name;
    if member.state == MemberState::Struck {
        return Err(has_missed_writes(&*member.device));
    }
    match Label::read(&*member.device) {
        Err(error) => Err(error.message),
        Ok(None) => Err(format!("{name} is no member of an array")),
        Ok(Some(label)) if label.database != database => {
            Err(format!("{name} belongs to database {}, not to {database}", label.database))
        }
        Ok(Some(label)) if (label.member, label.members) != (at, members) => {
            Err(format!("{name} is member {} of {}, not {at} of {members}", label.member, label.members))
        }
        Ok(Some(label)) if label.incarnation != member.incarnation => {
            Err(format!("{name} is a former member: device {} has its place", member.incarnation))
        }
        Ok(Some(label)) => Ok(label),
    }
}
