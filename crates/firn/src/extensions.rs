//! The superblock's optional fields: those that a database may do without.
//!
//! They follow the fixed ones as pairs of a tag and a blob, ascending by tag. An unknown tag is refused: what it says
//! might matter.

use firn_base::Lsn;
use firn_base::codec::{Malformed, Reader, Writer};

/// Tags.
const LOG_START: u64 = 1;
const ARCHIVE: u64 = 2;

/// Optional fields of a superblock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// The log is kept from here on, before the redo start: the archive had not come further.
    pub log_start: Option<Lsn>,
    /// The archive's directory: relative to the database's, or absolute.
    pub archive: Option<String>,
}

impl Extensions {
    pub fn encode(&self, body: &mut Vec<u8>) {
        if let Some(lsn) = self.log_start {
            let mut field = Vec::new();
            field.put_varint(lsn.0);
            body.put_varint(LOG_START);
            body.put_blob(&field);
        }
        if let Some(path) = &self.archive {
            body.put_varint(ARCHIVE);
            body.put_blob(path.as_bytes());
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Extensions, Malformed> {
        let mut found = Extensions::default();
        let mut last = 0;
        while !reader.is_empty() {
            let tag = reader.varint()?;
            let field = reader.blob()?;
            if tag <= last {
                return Err(Malformed { what: "optional fields out of order" });
            }
            last = tag;
            match tag {
                LOG_START => found.log_start = Some(Lsn(Reader::new(field).varint()?)),
                ARCHIVE => {
                    let path = std::str::from_utf8(field);
                    let path = path.map_err(|_| Malformed { what: "a path that is not UTF-8" })?;
                    found.archive = Some(path.to_owned());
                }
                _ => {
                    return Err(Malformed {
                        what: "a field that this program does not know; use a newer one",
                    });
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_round_trip_and_have_golden_bytes() {
        let all = Extensions { log_start: Some(Lsn(300)), archive: Some("arch".into()) };
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x02\xac\x02\x02\x04arch");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes)), Ok(all));
        assert_eq!(Extensions::decode(&mut Reader::new(&[])), Ok(Extensions::default()));
        assert!(Extensions::decode(&mut Reader::new(b"\x09\x00")).is_err(), "unknown");
        assert!(Extensions::decode(&mut Reader::new(b"\x02\x01a\x01\x01\x05")).is_err(), "out of order");
        for cut in 1..bytes.len() {
            let cut = Extensions::decode(&mut Reader::new(&bytes[..cut]));
            assert!(cut.is_err() || cut == Ok(Extensions { log_start: Some(Lsn(300)), archive: None }));
        }
    }
}
