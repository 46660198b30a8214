//! A delta page with bytes laid over it: for the fuzzer of delta pages.

use crate::granules::{Base, Changes};
use crate::store::{delta_slot, delta_slots};
use firndb_base::codec::Reader;
use firndb_base::{Lsn, PageId};

/// Bytes of the page.
const PAGE_BYTES: usize = 512;

/// Lays pieces over a delta page of three slots, each piece an offset (u16) and a blob, makes the
/// slots' checksums right, and reads them. Returns whether all could be read.
#[must_use]
pub fn read_over(script: &[u8]) -> bool {
    let mut page = [0; PAGE_BYTES];
    let changes = Changes::of(0..8, PAGE_BYTES) | Changes::of(100..104, PAGE_BYTES);
    let base = Base { version: Lsn(290), checksum: 7 };
    delta_slots(&mut page, [1, 2, 3].map(PageId), (Lsn(300), base, changes));
    let reader = &mut Reader::new(script);
    while let (Ok(at), Ok(piece)) = (reader.u16(), reader.blob()) {
        let at = usize::from(at).min(PAGE_BYTES);
        let len = piece.len().min(PAGE_BYTES - at);
        page[at..at + len].copy_from_slice(&piece[..len]);
    }
    (0..3).all(|number| delta_slot(&mut page, number))
}
