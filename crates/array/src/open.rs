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

/// What states and labels tell of an array's members.
struct Judged {
    map: Map,
    members: Vec<Member>,
    refused: Refused,
}

/// Why each member is left out, as far as it is.
type Refused = Vec<Option<String>>;

impl Array {
    /// Opens the array that these devices are, in their order. A member that is missing, or is not
    /// the device that the keeper knows, counts as struck; that is made durable before the first
    /// write.
    ///
    /// Errors: more members are missing than may be lost; the message names them.
    pub fn open(found: Vec<MemberToOpen>, options: ArrayOptions) -> Result<Array, DeviceError> {
        let Judged { map, members, mut refused } = judge(found, options.database).map_err(|refused| {
            let why: Vec<String> = refused.into_iter().flatten().collect();
            missing(&why, "no member of the store is left")
        })?;
        enough(&map, &members, &refused)?;
        let length = options.length;
        let array = Array::assemble(map, members, options)?;
        let len = array.leave_out_short(length, &mut refused)?;
        array.set_groups(len.map_or(array.groups(), |len| array.map.shape.groups_of(len)));
        lengthen(&array.members);
        Ok(array)
    }

    /// Why [`Array::open`] would leave each of these members out; `None` of one that it would use.
    /// Once more are left out than may be lost, lengths are not compared. The comparison may mend
    /// copies of metadata: hand in overlays of devices that are to stay as they are.
    #[must_use]
    pub fn left_out(found: Vec<MemberToOpen>, options: ArrayOptions) -> Vec<Option<String>> {
        let Judged { map, members, mut refused } = match judge(found, options.database) {
            Ok(judged) => judged,
            Err(refused) => return refused,
        };
        let length = options.length;
        if enough(&map, &members, &refused).is_ok()
            && let Ok(array) = Array::assemble(map, members, options)
        {
            // Fails if too few are left, which `refused` says of each.
            let _ = array.leave_out_short(length, &mut refused);
        }
        refused
    }

    /// Strikes the members that are shorter than the file above needs: all were as long before its
    /// header said so, so they have been cut off since. Made durable as that of a missing one.
    /// Returns how long that is, if the file says so.
    fn leave_out_short(&self, length: Length, refused: &mut Refused) -> Result<Option<u64>, DeviceError> {
        // Without a header the shortest member may hide it: there is one group at least.
        self.leave_out_shorter(self.map.shape.group_start(1), refused)?;
        loop {
            let Some(above) = length(self.database, self) else { return Ok(None) };
            if !self.leave_out_shorter(above, refused)? {
                return Ok(Some(above));
            }
        }
    }

    /// Strikes the members that are too short for a file of `above` bytes; returns whether there
    /// are any.
    fn leave_out_shorter(&self, above: u64, refused: &mut Refused) -> Result<bool, DeviceError> {
        let Some(len) = self.map.member_len(above) else { return Ok(false) };
        let mut any = false;
        for (member, refused) in self.members.iter().zip(&mut *refused) {
            let device = member.device();
            if member.is_read() && device.len() < len {
                let (name, bytes) = (&device.info().name, device.len());
                *refused =
                    Some(format!("{name} is {bytes} bytes long, and has been cut off: {len} are needed"));
                member.leave_out();
                any = true;
            }
        }
        enough(&self.map, &self.members, refused)?;
        Ok(any)
    }
}

/// Judges members by states and labels; if none is left to compare the others with, returns why.
fn judge(found: Vec<MemberToOpen>, database: DatabaseId) -> Result<Judged, Refused> {
    assert!(!found.is_empty() && found.len() <= MEMBERS_MAX, "an array has 1 to {MEMBERS_MAX} members");
    let count = found.len();
    let labels: Vec<Result<Label, String>> =
        found.iter().enumerate().map(|(at, member)| label_of(member, (at, count), database)).collect();
    let is_active = |member: &MemberToOpen| member.state == MemberState::Active;
    let mut active = labels.iter().zip(&found).filter(|(_, member)| is_active(member));
    let Some(first) = active.find_map(|(label, _)| label.clone().ok()) else {
        return Err(labels.into_iter().map(Result::err).collect());
    };
    let map = Map::new(first.shape, first.code, first.members, first.block, first.row_bytes);
    let (mut members, mut refused) = (Vec::new(), Refused::new());
    let budget = copy_budget();
    for (MemberToOpen { device, state, .. }, label) in found.into_iter().zip(labels) {
        let alike = |label: &Label| {
            (label.shape, label.code, label.block, label.row_bytes)
                == (first.shape, first.code, first.block, first.row_bytes)
                && label.block >= device.info().logical_block as u64
        };
        let why = match label {
            Ok(label) if alike(&label) => None,
            Ok(_) => Some(format!("{} is cut otherwise than the others", device.info().name)),
            Err(why) => Some(why),
        };
        let now = if why.is_some() { MemberState::Struck } else { state };
        members.push(Member::new(device, now, now != state, &budget));
        refused.push(why);
    }
    Ok(Judged { map, members, refused })
}

/// Fails if more members are gone than may be, and says of each why it is.
fn enough(map: &Map, members: &[Member], refused: &Refused) -> Result<(), DeviceError> {
    if is_enough(map, readable(members)) {
        return Ok(());
    }
    let why = |(member, refused): (&Member, &Option<String>)| {
        let is_filled = member.state() == MemberState::Rebuilding;
        refused.clone().or_else(|| is_filled.then(|| has_missed_writes(&*member.device())))
    };
    let why: Vec<String> = members.iter().zip(refused).filter_map(why).collect();
    Err(missing(&why, &format!("the store can lose {} of its {} members", map.code.spare(), map.members)))
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
