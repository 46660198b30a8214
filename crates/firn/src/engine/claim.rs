//! To which database a file belongs, while a creation makes it.
//!
//! A creation draws the new database's id first, and notes it with the names of the files in the
//! superblock's mark (`creation_mark.rs`). Each file it makes begins with a *claim*, which bears
//! that id, before anything else is written to it; the headers of log and store replace it, last,
//! and a flash cache's first. So whatever a crash leaves of a creation, a file of it is empty, or
//! all zeros, or bears the id; any other file belongs to something else, whatever the mark says.
//!
//! ```text
//!  0  8B   FIRNMINE
//!  8  u32  CRC32C of the id
//! 12  16B  the id of the database that is being created
//! ```

use crate::error::Error;
use firndb_array::Label;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, crc32c};
use firndb_device::{
    AlignedBuf, Device, DeviceError, Durability, Fill, erase_contents, find_contents, find_contents_anywhere,
};
use firndb_log::DeviceContents;

const MAGIC: &[u8; 8] = b"FIRNMINE";

fn block_of(device: &dyn Device) -> AlignedBuf {
    AlignedBuf::zeroed(device.info().logical_block.max(4096))
}

/// Claims an empty device for the database that is being created.
pub(crate) fn claim(device: &dyn Device, database: DatabaseId) -> Result<(), DeviceError> {
    let mut block = block_of(device);
    block[..8].copy_from_slice(MAGIC);
    block[8..12].copy_from_slice(&crc32c(&database.0).to_le_bytes());
    block[12..28].copy_from_slice(&database.0);
    device.grow(block.len() as u64, Fill::Written)?;
    device.write(0, &block, Durability::Durable)
}

/// Takes devices for a new database that are empty, or hold what interrupted creations that drew
/// `former` left: these all bear the first of these ids then, which is returned, and hold nothing
/// else. The new mark has that id besides its own, until the devices bear that. Empty ones stay so:
/// the mark that is there now may not name them.
///
/// Errors: as [`refuse_contents`]; then no device was changed.
pub(crate) fn take_over<'d>(
    devices: impl Iterator<Item = &'d Arc<dyn Device>> + Clone,
    former: &[DatabaseId],
) -> Result<Option<DatabaseId>, Error> {
    for device in devices.clone() {
        refuse_contents(&**device, former)?;
    }
    let Some(first) = former.first() else { return Ok(None) };
    for device in devices {
        if find_contents(&**device)?.is_none() {
            continue;
        }
        // The claim is first, so that it says whose the rest is until that is erased.
        claim(&**device, *first)?;
        erase_contents(&**device, block_of(&**device).len() as u64)?;
    }
    Ok(Some(*first))
}

/// Removes the claim, if there is one of this database: the device is blank then. What is
/// behind it stays: it is not the creation's, which found the device empty, or left it so.
pub(crate) fn release(device: &dyn Device, database: DatabaseId) -> Result<(), DeviceError> {
    match claimed_by(device)? == Some(database) {
        true => device.write(0, &block_of(device), Durability::Durable),
        false => Ok(()),
    }
}

fn claimed_by(device: &dyn Device) -> Result<Option<DatabaseId>, DeviceError> {
    let mut block = block_of(device);
    if device.len() < block.len() as u64 {
        return Ok(None);
    }
    device.read(0, &mut block)?;
    let id = DatabaseId(block[12..28].try_into().expect("sixteen bytes"));
    let whole = block[..8] == *MAGIC && block[8..12] == crc32c(&id.0).to_le_bytes();
    Ok(whole.then_some(id))
}

/// Whether the device bears the id of `database`.
fn bears(device: &dyn Device, database: DatabaseId) -> Result<bool, Error> {
    let claimed = claimed_by(device)? == Some(database);
    let member = || -> Result<bool, Error> {
        let contents = DeviceContents::of(device)?;
        Ok(matches!(contents, DeviceContents::Member { database: of, .. } if of == database))
    };
    Ok(claimed
        || firndb_tier::store::owner(device) == Some(database)
        || Label::read(device)?.is_some_and(|label| label.database == database)
        || firndb_tier::cache::owner(device) == Some(database)
        || member()?)
}

fn bears_any(device: &dyn Device, ids: &[DatabaseId]) -> Result<bool, Error> {
    for id in ids {
        if bears(device, *id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether `device` provably belongs to a creation that drew one of `ids`: it bears that, or
/// nothing was written to it.
pub(crate) fn is_of(device: &dyn Device, ids: &[DatabaseId]) -> Result<bool, Error> {
    Ok(bears_any(device, ids)? || find_contents_anywhere(device)?.is_none())
}

/// Refuses a device that is to become part of a new database and holds anything except what an
/// interrupted creation that drew one of `ids` left.
pub(crate) fn refuse_contents(device: &dyn Device, ids: &[DatabaseId]) -> Result<(), Error> {
    let Some(offset) = find_contents(device)? else { return Ok(()) };
    if bears_any(device, ids)? {
        return Ok(());
    }
    let what = match claimed_by(device)? {
        Some(id) => {
            format!("a creation of database {id} has claimed it, and can be begun anew in its directory")
        }
        None => format!("there is something at offset {offset}"),
    };
    let name = &device.info().name;
    Err(Error::bad_argument(format!(
        "{name} is not empty: {what}. A database is created on empty devices only: give another, or erase it; a raw \
             device by `blkdiscard --zeroout {name}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_device::MemoryDevice;

    const ID: DatabaseId = DatabaseId([7; 16]);

    #[test]
    fn only_what_bears_the_id_or_nothing_at_all_is_a_creations_own() {
        let device = MemoryDevice::new("m");
        let other = DatabaseId([8; 16]);
        assert_eq!(is_of(&device, &[]), Ok(true), "empty");
        device.grow(1 << 20, Fill::Written).expect("there is memory");
        assert_eq!((is_of(&device, &[]), is_of(&device, &[ID])), (Ok(true), Ok(true)), "zeros");
        claim(&device, ID).expect("claimed");
        assert_eq!((is_of(&device, &[other, ID]), is_of(&device, &[])), (Ok(true), Ok(false)));
        assert_eq!(is_of(&device, &[other]), Ok(false), "another's");
        assert!(refuse_contents(&device, &[ID]).is_ok() && refuse_contents(&device, &[other]).is_err());
        release(&device, other).expect("not touched");
        assert_eq!(claimed_by(&device), Ok(Some(ID)));
        release(&device, ID).expect("released");
        assert_eq!(is_of(&device, &[]), Ok(true), "zeros again");
        device.write(512 << 10, &[1; 512], Durability::Durable).expect("within");
        assert_eq!(is_of(&device, &[ID]), Ok(false), "another's");
    }

    /// Cause: a device was claimed for an interrupted creation whose mark does not name it. Effect:
    /// after a crash before the new mark, a creation without the device left it claimed for good.
    #[test]
    fn taking_over_claims_no_empty_device() {
        let devices: [Arc<dyn Device>; 2] =
            [Arc::new(MemoryDevice::new("empty")), Arc::new(MemoryDevice::new("claimed"))];
        claim(&*devices[1], ID).expect("claimed");
        let former = [DatabaseId([8; 16]), ID];
        assert_eq!(take_over(devices.iter(), &former), Ok(Some(former[0])));
        assert_eq!(devices.each_ref().map(|device| claimed_by(&**device)), [Ok(None), Ok(Some(former[0]))]);
    }

    #[test]
    fn a_device_that_is_refused_is_named_with_what_is_there_and_how_to_erase_it() {
        let device = MemoryDevice::new("/dev/x");
        claim(&device, ID).expect("claimed");
        let refused = || refuse_contents(&device, &[]).expect_err("refused").to_string();
        assert!(refused().contains(&format!("a creation of database {ID} has claimed it")), "{}", refused());
        device.write(0, &[1; 512], Durability::Durable).expect("within");
        assert!(refused().contains("something at offset 0"), "{}", refused());
        assert!(refused().contains("`blkdiscard --zeroout /dev/x`"), "{}", refused());
    }

    #[test]
    fn a_claim_has_golden_bytes_and_a_rotten_one_is_none() {
        let device = MemoryDevice::new("m");
        claim(&device, ID).expect("claimed");
        let mut block = [0; 512];
        device.read(0, &mut block).expect("within");
        assert_eq!(block[..12], *b"FIRNMINE\x32\xa1\xf5\x55");
        assert_eq!(block[12..28], [7; 16]);
        assert!(block[28..].iter().all(|&byte| byte == 0));
        block[13] ^= 1;
        device.write(0, &block, Durability::Durable).expect("within");
        assert_eq!(claimed_by(&device), Ok(None));
    }
}
