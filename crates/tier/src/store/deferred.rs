//! Bits of bitmap pages that were changed without reading the pages: by recovery, and where a page
//! cannot be read.
//!
//! Redo sees every record since the oldest one that a bitmap page may lack, so the last record that
//! concerns a bit says what it is at the end of redo, whatever the page on the device holds. That
//! is kept here, a word and a mask for each segment of 64, until the page is loaded. So the time
//! that redo takes does not depend on how many groups the records concern.
//!
//! Protected by the store's `state`.

use super::bitmap::{self, Which};
use super::geometry::Geometry;
use super::meta_page::MetaId;
use firndb_base::Lsn;
use std::collections::BTreeMap;

/// Bytes of DRAM that a segment takes, the trees' share included.
const SEGMENT_BYTES: usize = 64;

/// Bits of one segment: those changed, and their values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bits {
    pub changed: u64,
    pub values: u64,
}

/// The bits of a group, by map and segment.
pub(crate) type Segments = BTreeMap<(Which, usize), Bits>;

/// What a group's bitmap page lacks.
#[derive(Debug, Default)]
struct Group {
    segments: Segments,
    backed: Option<bool>,
    /// The last record that concerns the page.
    lsn: Lsn,
}

/// One of a bitmap page's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Bit { which: Which, index: u64, value: bool },
    Backed(bool),
}

#[derive(Debug, Default)]
pub(crate) struct Deferred {
    groups: BTreeMap<u64, Group>,
    segments: usize,
}

impl Deferred {
    pub(crate) fn contains(&self, group: u64) -> bool {
        self.groups.contains_key(&group)
    }
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }
    pub(crate) fn bytes(&self) -> usize {
        (self.groups.len() + self.segments) * SEGMENT_BYTES
    }

    /// Notes a fact of the record at `lsn`.
    pub(crate) fn note(&mut self, group: u64, lsn: Lsn, fact: Fact) {
        let group = self.groups.entry(group).or_default();
        group.lsn = lsn;
        match fact {
            Fact::Backed(backed) => group.backed = Some(backed),
            Fact::Bit { which, index, value } => {
                let before = group.segments.len();
                let bits = group.segments.entry((which, (index / 64) as usize)).or_default();
                let bit = 1 << (index % 64);
                bits.changed |= bit;
                bits.values = if value { bits.values | bit } else { bits.values & !bit };
                self.segments += group.segments.len() - before;
            }
        }
    }

    /// What the bitmap page of a group lacks.
    pub(crate) fn of_group(&self, group: u64) -> (Option<bool>, Segments) {
        let group = self.groups.get(&group);
        group.map_or((None, Segments::new()), |group| (group.backed, group.segments.clone()))
    }
    /// Replaces it, by what the records up to `lsn` say.
    pub(crate) fn put(&mut self, group: u64, lsn: Lsn, backed: Option<bool>, segments: Segments) {
        self.segments += segments.len();
        let before = self.groups.insert(group, Group { segments, backed, lsn });
        self.segments -= before.map_or(0, |before| before.segments.len());
    }

    /// Completes the body of a bitmap page that was just loaded; returns the LSN of the last record
    /// that it contains now, if there was something to add.
    pub(crate) fn complete(&mut self, geometry: &Geometry, id: MetaId, body: &mut [u8]) -> Option<Lsn> {
        let MetaId::Bitmap(number) = id else { return None };
        let group = self.groups.remove(&number)?;
        self.segments -= group.segments.len();
        for ((which, segment), bits) in group.segments {
            bitmap::merge_word(geometry, body, which, segment, bits.changed, bits.values);
        }
        if let Some(backed) = group.backed {
            bitmap::set_backed(body, backed);
        }
        Some(group.lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::Layout;

    #[test]
    fn the_last_record_of_a_bit_counts() {
        let geometry = Geometry::new(512, Layout { meta_bytes: 512, maps_per_group: 4 }).unwrap();
        let mut body = bitmap::fresh(&geometry, 1);
        assert!(bitmap::set(&geometry, &mut body, Which::Places, 3, true));
        let mut deferred = Deferred::default();
        let bit = |which, index, value| Fact::Bit { which, index, value };
        for (lsn, fact) in [
            (10, bit(Which::Places, 3, true)),
            (11, bit(Which::Places, 70, true)),
            (12, bit(Which::Places, 3, false)),
            (13, bit(Which::Pages, 3, true)),
            (14, Fact::Backed(false)),
        ] {
            deferred.note(1, Lsn(lsn), fact);
        }
        assert_eq!(deferred.bytes(), 4 * SEGMENT_BYTES);
        assert_eq!(deferred.complete(&geometry, MetaId::Bitmap(2), &mut body), None);
        assert_eq!(deferred.complete(&geometry, MetaId::Bitmap(1), &mut body), Some(Lsn(14)));
        let get = |which, index| bitmap::get(&geometry, &body, which, index);
        assert!(!get(Which::Places, 3) && get(Which::Places, 70) && get(Which::Pages, 3));
        assert!(!bitmap::is_backed(&body));
        assert_eq!(deferred.bytes(), 0);
    }
}
