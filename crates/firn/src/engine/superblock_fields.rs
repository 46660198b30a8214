//! The superblock's optional fields.
//!
//! They follow the fixed ones as pairs of a tag and a blob, ascending by tag. An unknown tag is
//! refused: its meaning might matter.

use crate::engine::store_array_field::StoreArrayField;
use crate::engine::superblock::Superblock;
use crate::options::kept::KeptSettings;
use firndb_base::Lsn;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_log::Redundancy;
use firndb_tier::page_cache::is_kind_name;

/// Tags.
const LOG_START: u64 = 1;
const ARCHIVE: u64 = 2;
const CACHE: u64 = 3;
const LOG_ARRAY: u64 = 4;
const CACHE_FROM: u64 = 5;
const ARCHIVE_NEEDED: u64 = 6;
const ARCHIVE_GAP: u64 = 7;
const SETTINGS: u64 = 8;
const STORE_ARRAY: u64 = 9;
const SHADOWS_FROM: u64 = 10;
const ARCHIVED: u64 = 11;

/// Optional fields of a superblock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// The log is retained from this LSN on, before the redo start: the archive had not come
    /// further.
    pub log_start: Option<Lsn>,
    /// The archive's directory: relative to the database's, or absolute.
    pub archive: Option<String>,
    /// The flash cache.
    pub cache: Option<CacheMember>,
    /// Redo from this LSN on, upon the store alone, restores what only the flash cache holds: the
    /// log is retained for it.
    pub cache_from: Option<Lsn>,
    /// The log's devices: present if they ever changed, or if there are to be copies.
    pub log_array: Option<LogArrayField>,
    /// From this LSN on the archive may have acknowledged log that the log's devices lack: recovery
    /// must have it. The archive holds all log before, except for gaps.
    pub archive_needed: Option<Lsn>,
    /// From this LSN on log was given up that the archive had not taken, as far as is known; the
    /// archive has not noted it yet.
    pub archive_gap: Option<Lsn>,
    /// Settings that hold at every opening until they are named anew.
    pub settings: KeptSettings,
    /// The store's devices, if there are several.
    pub store_array: Option<StoreArrayField>,
    /// The oldest record of a shadow that is held, or the newest of one that is not if that is
    /// older, in log that is retained before the redo start: recovery looks for both from here on.
    pub shadows_from: Option<Lsn>,
    /// The archive had all log before this LSN, except for gaps, when a checkpoint last moved the
    /// start of the log, or later: one with less is not the archive that this database has.
    pub archived: Option<Lsn>,
}

/// What the superblock says of the log's devices, beside their list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogArrayField {
    /// The id of the next device: higher than any before.
    pub next_member: u32,
    /// Number of devices that all log should be on.
    pub copies: u8,
    /// Number of devices that it is on.
    pub redundancy: Redundancy,
}

impl LogArrayField {
    fn encode(&self) -> Vec<u8> {
        let mut field = Vec::new();
        field.put_varint(u64::from(self.next_member));
        field.put_u8(self.copies);
        for &(lsn, copies) in self.redundancy.steps() {
            field.put_varint(lsn.0);
            field.put_u8(copies);
        }
        field
    }

    fn decode(field: &[u8]) -> Result<LogArrayField, Malformed> {
        let reader = &mut Reader::new(field);
        let next_member = reader.varint_max(u32::MAX as usize)? as u32;
        let copies = reader.u8()?;
        let mut steps = Vec::new();
        while !reader.is_empty() {
            steps.push((Lsn(reader.varint()?), reader.u8()?));
        }
        let redundancy = Redundancy::from_steps(steps).filter(|_| copies > 0);
        let redundancy = redundancy.ok_or(Malformed { what: "copies of the log that make no sense" })?;
        Ok(LogArrayField { next_member, copies, redundancy })
    }
}

/// The flash cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheMember {
    /// Drawn when the cache was made.
    pub id: [u8; 16],
    /// Relative to the database's directory, or absolute.
    pub path: String,
    /// Name of its kind ([`firndb_tier::CacheKind::name`]).
    pub kind: String,
    /// Nothing in it is the only copy, except perhaps beside the log.
    pub write_through: bool,
    /// What was durable in it at the last checkpoint: a cache with less is an older copy.
    pub durable: u64,
}

impl CacheMember {
    fn encode(&self) -> Vec<u8> {
        let mut field = self.id.to_vec();
        field.put_blob(self.kind.as_bytes());
        field.put_u8(u8::from(self.write_through));
        field.put_varint(self.durable);
        field.put(self.path.as_bytes());
        field
    }

    fn decode(field: &[u8]) -> Result<CacheMember, Malformed> {
        let reader = &mut Reader::new(field);
        let id = reader.array()?;
        let kind = text(reader.blob()?)?;
        if !is_kind_name(&kind) {
            return Err(Malformed { what: "a flash cache of a kind without a proper name" });
        }
        let write_through = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed { what: "a flash cache of an unknown mode; use a newer program" }),
        };
        let durable = reader.varint()?;
        Ok(CacheMember { id, path: text(reader.rest())?, kind, write_through, durable })
    }
}

pub(crate) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed { what: "a text that is not UTF-8" })?;
    Ok(text.to_owned())
}

impl Extensions {
    pub fn encode(&self, body: &mut Vec<u8>) {
        let lsn = |lsn: Lsn| {
            let mut field = Vec::new();
            field.put_varint(lsn.0);
            field
        };
        // Ascending by tag.
        let fields = [
            (LOG_START, self.log_start.map(lsn)),
            (ARCHIVE, self.archive.clone().map(String::into_bytes)),
            (CACHE, self.cache.as_ref().map(CacheMember::encode)),
            (LOG_ARRAY, self.log_array.as_ref().map(LogArrayField::encode)),
            (CACHE_FROM, self.cache_from.map(lsn)),
            (ARCHIVE_NEEDED, self.archive_needed.map(lsn)),
            (ARCHIVE_GAP, self.archive_gap.map(lsn)),
            (SETTINGS, self.settings.encode()),
            (STORE_ARRAY, self.store_array.as_ref().map(StoreArrayField::encode)),
            (SHADOWS_FROM, self.shadows_from.map(lsn)),
            (ARCHIVED, self.archived.map(lsn)),
        ];
        for (tag, field) in fields {
            if let Some(field) = field {
                body.put_varint(tag);
                body.put_blob(&field);
            }
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
                ARCHIVE => found.archive = Some(text(field)?),
                CACHE => found.cache = Some(CacheMember::decode(field)?),
                CACHE_FROM => found.cache_from = Some(Lsn(Reader::new(field).varint()?)),
                LOG_ARRAY => found.log_array = Some(LogArrayField::decode(field)?),
                ARCHIVE_NEEDED => found.archive_needed = Some(Lsn(Reader::new(field).varint()?)),
                SETTINGS => found.settings = KeptSettings::decode(field)?,
                STORE_ARRAY => found.store_array = Some(StoreArrayField::decode(field)?),
                SHADOWS_FROM => found.shadows_from = Some(Lsn(Reader::new(field).varint()?)),
                ARCHIVED => found.archived = Some(Lsn(Reader::new(field).varint()?)),
                ARCHIVE_GAP => found.archive_gap = Some(Lsn(Reader::new(field).varint()?)),
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

impl Superblock {
    /// Number of devices that all log should be on.
    pub fn copies(&self) -> u8 {
        self.extensions.log_array.as_ref().map_or(1, |array| array.copies)
    }

    /// Number of devices that it is on.
    pub fn redundancy(&self) -> Redundancy {
        self.extensions.log_array.as_ref().map(|array| array.redundancy.clone()).unwrap_or_default()
    }

    /// The field about the log's devices, created if it is absent.
    pub fn array_mut(&mut self) -> &mut LogArrayField {
        let next_member = self.members.iter().map(|member| member.id.0 + 1).max().unwrap_or(1);
        self.extensions.log_array.get_or_insert_with(|| LogArrayField {
            next_member,
            copies: 1,
            redundancy: Redundancy::default(),
        })
    }

    /// Sets that all log should have `copies` copies, and that log from `start` on gets `now`.
    pub fn want_copies(&mut self, copies: u8, start: Lsn, now: u8) {
        if copies > 1 || self.extensions.log_array.is_some() {
            let array = self.array_mut();
            array.copies = copies;
            array.redundancy.set_from(start, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_shadow_that_the_archive_lacks_has_golden_bytes() {
        let shadows = Extensions { shadows_from: Some(Lsn(300)), ..Extensions::default() };
        let mut bytes = Vec::new();
        shadows.encode(&mut bytes);
        assert_eq!(bytes, b"\x0a\x02\xac\x02");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes)), Ok(shadows));
    }

    #[test]
    fn how_far_the_archive_is_has_golden_bytes() {
        let archived = Extensions { archived: Some(Lsn(300)), ..Extensions::default() };
        let mut bytes = Vec::new();
        archived.encode(&mut bytes);
        assert_eq!(bytes, b"\x0b\x02\xac\x02");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes)), Ok(archived));
    }

    #[test]
    fn they_round_trip_and_have_golden_bytes() {
        let cache = CacheMember {
            id: *b"0123456789abcdef",
            path: "cache".into(),
            kind: "face".into(),
            write_through: true,
            durable: 300,
        };
        let all = Extensions { cache: Some(cache), ..Extensions::default() };
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        assert_eq!(bytes, b"\x03\x1d0123456789abcdef\x04face\x01\xac\x02cache");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes)), Ok(all));
        for nameless in [
            b"\x03\x190123456789abcdef\x00\x01\xac\x02cache".as_slice(),
            b"\x03\x1d0123456789abcdef\x04Face\x01\xac\x02cache",
            b"\x03\x2a0123456789abcdef\x11facefacefacefacef\x01\xac\x02cache",
        ] {
            assert!(Extensions::decode(&mut Reader::new(nameless)).is_err());
        }
        let mut redundancy = Redundancy::since(Lsn(5), 2);
        redundancy.set_from(Lsn(300), 1);
        let array = LogArrayField { next_member: 7, copies: 2, redundancy };
        let all = Extensions { log_array: Some(array), ..Extensions::default() };
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        assert_eq!(bytes, b"\x04\x07\x07\x02\x05\x02\xac\x02\x01");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes)), Ok(all));
        for senseless in [b"\x04\x02\x07\x00".as_slice(), b"\x04\x06\x07\x02\x05\x02\x05\x01"] {
            assert!(Extensions::decode(&mut Reader::new(senseless)).is_err());
        }
        let archive = Some("arch".into());
        let all = Extensions { log_start: Some(Lsn(300)), archive, ..Extensions::default() };
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x02\xac\x02\x02\x04arch");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes)), Ok(all.clone()));
        let archived = all;
        let all = Extensions { cache_from: Some(Lsn(300)), ..Extensions::default() };
        let mut from = Vec::new();
        all.encode(&mut from);
        assert_eq!(from, b"\x05\x02\xac\x02");
        assert_eq!(Extensions::decode(&mut Reader::new(&from)), Ok(all));
        let needed = Extensions { archive_needed: Some(Lsn(300)), ..archived };
        let mut longer = Vec::new();
        needed.encode(&mut longer);
        assert_eq!(longer, b"\x01\x02\xac\x02\x02\x04arch\x06\x02\xac\x02");
        assert_eq!(Extensions::decode(&mut Reader::new(&longer)), Ok(needed));
        let gap = Extensions { archive_gap: Some(Lsn(300)), ..Extensions::default() };
        let mut bytes_of_gap = Vec::new();
        gap.encode(&mut bytes_of_gap);
        assert_eq!(bytes_of_gap, b"\x07\x02\xac\x02");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes_of_gap)), Ok(gap));
        let settings = KeptSettings { cache_rebuildable: Some(true), ..KeptSettings::default() };
        let kept = Extensions { settings, ..Extensions::default() };
        let mut bytes_of_settings = Vec::new();
        kept.encode(&mut bytes_of_settings);
        assert_eq!(bytes_of_settings, b"\x08\x02\x01\x01");
        assert_eq!(Extensions::decode(&mut Reader::new(&bytes_of_settings)), Ok(kept));
        assert_eq!(Extensions::decode(&mut Reader::new(&[])), Ok(Extensions::default()));
        assert!(Extensions::decode(&mut Reader::new(b"\x0c\x00")).is_err(), "unknown");
        assert!(Extensions::decode(&mut Reader::new(b"\x02\x01a\x01\x01\x05")).is_err(), "out of order");
        for cut in 1..bytes.len() {
            let cut = Extensions::decode(&mut Reader::new(&bytes[..cut]));
            let first = Extensions { log_start: Some(Lsn(300)), ..Extensions::default() };
            assert!(cut.is_err() || cut == Ok(first));
        }
    }
}
