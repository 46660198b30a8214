//! Formatting a device for the log.

use crate::block::{self, Owner};
use crate::error::LogError;
use crate::hedge::hiding::Hiding;
use crate::ids::MemberId;
use crate::layout::{Geometry, MemberHeader, SectionHeader};
use crate::options::LogOptions;
use crate::write::space::DeviceSpace;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Epoch};
use firndb_device::{AlignedBuf, Device, Durability};

/// A device with its streams, before the log uses it: one that was formatted to join, or one of a
/// log that is opened.
pub struct NewMember {
    pub(crate) device: Arc<dyn Device>,
    /// Owner of its main stream.
    pub(crate) owner: Owner,
    pub(crate) space: DeviceSpace,
    /// The area for reissued outliers.
    pub(crate) area: Option<DeviceSpace>,
}

impl NewMember {
    /// Formats `device`, grown to its size, as the member at index `place` of a log of `members`
    /// members with blocks of `unit` bytes.
    pub(crate) fn format(
        device: Arc<dyn Device>,
        (database, epoch): (DatabaseId, Epoch),
        member: MemberId,
        (place, members): (usize, usize),
        unit: u64,
        options: &LogOptions,
    ) -> Result<NewMember, LogError> {
        let hides = members > 1 && options.hiding != Hiding::Off;
        let (geometry, area) =
            Geometry::choose(&device.info().name, device.len(), unit, options.section_bytes, hides)?;
        let owner = Owner::main(block::database_tag(database), member.0);
        let (place, members) = (place as u32, members as u32);
        let header = MemberHeader { database, epoch, member, members, place, geometry, area, retired: false };
        write_headers(&*device, owner, &header)?;
        let (space, area) = (DeviceSpace::empty(geometry), area.map(DeviceSpace::empty));
        Ok(NewMember { device, owner, space, area })
    }
}

/// Writes the header of every section as unused, then the member header: a device whose formatting
/// was interrupted is no member.
fn write_headers(device: &dyn Device, owner: Owner, header: &MemberHeader) -> Result<(), LogError> {
    let rings = [(owner, Some(header.geometry)), (owner.area(), header.area)];
    for (owner, geometry) in rings.into_iter().filter_map(|(owner, ring)| ring.map(|ring| (owner, ring))) {
        let mut unit = AlignedBuf::zeroed(geometry.unit as usize);
        SectionHeader::unused(header.epoch).encode(owner, &mut unit[..block::BLOCK]);
        block::seal(&mut unit[..block::BLOCK]);
        for sequence in 1..=geometry.sections {
            device.write(geometry.offset(geometry.linear(sequence)), &unit, Durability::Later)?;
        }
    }
    device.sync()?;
    device.write(0, &header.encode(), Durability::Later)?;
    device.sync()?;
    Ok(())
}
