//! The totals page: sums over all groups, so that opening need not recount them; where the map log
//! begins; and which metadata pages are being written.
//!
//! ```text
//! 0        40       76      80
//! | totals | anchor | count | count x metadata page (2 x number, + 1 for a map page) | zeros
//! ```
//! Before metadata pages are written, a durable totals page names them: only they may have a slot
//! that a crash tore.

use super::map_block::{ANCHOR_BYTES, Anchor};
use super::meta_page::MetaId;
use std::collections::BTreeSet;

const ANCHOR_AT: usize = 40;
const COUNT_AT: usize = ANCHOR_AT + ANCHOR_BYTES;
const IDS_AT: usize = COUNT_AT + 4;

/// Five numbers of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Pages allocated; page 0 is not counted.
    pub pages: u64,
    /// Places in use, those of delta pages included.
    pub places: u64,
    /// Groups without space on the device for their places now.
    pub unbacked_groups: u64,
    /// Places of delta pages.
    pub delta_pages: u64,
    /// Places left by pages whose map page could not be read: each may be in use without a name.
    pub unnamed: u64,
}

impl Totals {
    pub(crate) fn read(body: &[u8]) -> Totals {
        let at = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        Totals { pages: at(0), places: at(8), unbacked_groups: at(16), delta_pages: at(24), unnamed: at(32) }
    }
    pub(crate) fn write(self, body: &mut [u8]) {
        let all = [self.pages, self.places, self.unbacked_groups, self.delta_pages, self.unnamed];
        for (number, out) in all.iter().zip(body[..ANCHOR_AT].chunks_exact_mut(8)) {
            out.copy_from_slice(&number.to_le_bytes());
        }
    }
}

/// Most pages that a totals page with a body of `body_bytes` names.
pub(crate) fn names_max(body_bytes: usize) -> usize {
    (body_bytes - IDS_AT) / 8
}

/// Writes the anchor, and the pages to be written, which are map and bitmap pages.
pub(crate) fn announce(body: &mut [u8], anchor: Anchor, ids: &[MetaId]) {
    assert!(ids.len() <= names_max(body.len()));
    body[ANCHOR_AT..].fill(0);
    anchor.write(&mut body[ANCHOR_AT..COUNT_AT]);
    body[COUNT_AT..IDS_AT].copy_from_slice(&(ids.len() as u32).to_le_bytes());
    for (id, out) in ids.iter().zip(body[IDS_AT..].chunks_mut(8)) {
        let number = match *id {
            MetaId::Map(map) => 2 * map + 1,
            MetaId::Bitmap(group) => 2 * group,
            MetaId::Totals => unreachable!("the totals page is written alone"),
        };
        out.copy_from_slice(&number.to_le_bytes());
    }
}

/// The anchor.
pub(crate) fn anchor(body: &[u8]) -> Anchor {
    Anchor::read(&body[ANCHOR_AT..COUNT_AT])
}

/// The pages that were being written.
pub(crate) fn announced(body: &[u8]) -> BTreeSet<MetaId> {
    let count = u32::from_le_bytes(body[COUNT_AT..IDS_AT].try_into().expect("four bytes"));
    let named = body[IDS_AT..].chunks_exact(8).take(count as usize);
    let id = |bytes: &[u8]| match u64::from_le_bytes(bytes.try_into().expect("eight bytes")) {
        number if number % 2 == 1 => MetaId::Map(number / 2),
        number => MetaId::Bitmap(number / 2),
    };
    named.map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::map_block::Spot;
    use firndb_base::Lsn;

    #[test]
    fn totals_have_golden_bytes() {
        let mut body = [0; 40];
        let totals = Totals { pages: 1, places: 2, unbacked_groups: 3, delta_pages: 4, unnamed: 5 };
        totals.write(&mut body);
        let golden = [1, 2, 3, 4, 5].map(u64::to_le_bytes).concat();
        assert_eq!(body[..], golden);
        assert_eq!(Totals::read(&body), totals);
    }

    #[test]
    fn anchor_and_announced_pages_have_golden_bytes() {
        let mut body = [0xEE; 448];
        let first = Spot { block: 1, sequence: 2, before: 4 };
        let found = Anchor { first, covered: Lsn(3) };
        let ids = [MetaId::Bitmap(5), MetaId::Map(5)];
        announce(&mut body, found, &ids);
        assert_eq!(body[..40], [0xEE; 40]);
        assert_eq!(body[40..64], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body[64..80], [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(body[80..96], [10, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0]);
        assert!(body[96..].iter().all(|byte| *byte == 0));
        assert_eq!((anchor(&body), announced(&body)), (found, ids.into()));
        body[76..80].fill(0xFF);
        assert_eq!(announced(&body).len(), 3, "no more than there can be");
    }
}
