//! What the superblock says of a store over several devices.

use crate::engine::superblock::Superblock;
use crate::engine::superblock_fields::text;
use firndb_array::{Code, MEMBERS_MAX, MemberState};
use firndb_base::codec::{Malformed, Reader, Writer};

/// The store's devices, if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreArrayField {
    /// How pages are fragmented.
    pub code: Code,
    /// In their order in the array.
    pub members: Vec<StoreMember>,
}

/// A device of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreMember {
    /// Which device this is, of all that ever had its place.
    pub incarnation: u64,
    /// What it is good for.
    pub state: MemberState,
    /// Of a device that is being filled: groups that it has.
    pub rebuilt: u64,
    /// Relative to the database's directory, or absolute.
    pub path: String,
}

impl StoreArrayField {
    /// Of a new array.
    pub fn new(code: Code, paths: &[String]) -> StoreArrayField {
        let member = |path: &String| StoreMember {
            incarnation: 1,
            state: MemberState::Active,
            rebuilt: 0,
            path: path.clone(),
        };
        StoreArrayField { code, members: paths.iter().map(member).collect() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut field = vec![self.code.needed() as u8, self.code.written() as u8];
        for member in &self.members {
            field.put_varint(member.incarnation);
            field.put_u8(member.state.byte());
            field.put_varint(member.rebuilt);
            field.put_blob(member.path.as_bytes());
        }
        field
    }

    pub fn decode(field: &[u8]) -> Result<StoreArrayField, Malformed> {
        let reader = &mut Reader::new(field);
        let code = Code::new(usize::from(reader.u8()?), usize::from(reader.u8()?));
        let mut members = Vec::new();
        while !reader.is_empty() {
            let incarnation = reader.varint()?;
            let unknown = Malformed { what: "a device of the store in an unknown state" };
            let state = MemberState::of_byte(reader.u8()?).ok_or(unknown)?;
            let rebuilt = reader.varint()?;
            members.push(StoreMember { incarnation, state, rebuilt, path: text(reader.blob()?)? });
        }
        let fits =
            |code: &Code| code.written() <= members.len() && (2..=MEMBERS_MAX).contains(&members.len());
        match code.filter(fits) {
            Some(code) => Ok(StoreArrayField { code, members }),
            None => Err(Malformed { what: "devices of the store that make no sense" }),
        }
    }
}

impl Superblock {
    /// The store's devices; to be called only where there are several.
    pub fn store_members_mut(&mut self) -> &mut Vec<StoreMember> {
        &mut self.extensions.store_array.as_mut().expect("the store has several devices").members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_round_trips_and_has_golden_bytes() {
        let mut field = StoreArrayField::new(Code::new(1, 2).unwrap(), &["store.0".into(), "/b".into()]);
        (field.members[1].state, field.members[1].rebuilt) = (MemberState::Rebuilding, 300);
        field.members[1].incarnation = 7;
        let bytes = field.encode();
        assert_eq!(bytes, b"\x01\x02\x01\0\0\x07store.0\x07\x01\xac\x02\x02/b");
        assert_eq!(StoreArrayField::decode(&bytes), Ok(field));
        for senseless in
            [b"\x02\x01\x01\0\0\x01a\x01\0\0\x01b".as_slice(), b"\x01\x01\x01\0\0\x01a", b"\x01\x02\x01\x03"]
        {
            assert!(StoreArrayField::decode(senseless).is_err());
        }
        for cut in 1..bytes.len() {
            let _ = StoreArrayField::decode(&bytes[..cut]);
        }
    }
}
