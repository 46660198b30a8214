//! The store's log records: changes of the map.
//!
//! Each record names the old place of every page it moves or frees, so that bitmap pages and map
//! pages can be redone independently of each other, whichever of them had been written before the
//! crash.

use super::delta::page::SLOTS_MAX;
use super::delta::policy::RENT_MAX;
use super::entry::SlotAt;
use super::geometry::{PLACES_MAX, Place};
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{Lsn, PageId};
use firndb_log::{Kind, Record};

/// Most changes in one record: bounds the memory that redo needs for it.
pub(crate) const CHANGES_MAX: usize = 1 << 16;

/// Where a page's image was before it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Old {
    /// It was never written.
    None,
    At(Place),
    /// Its map page could not be read: the place stays in use.
    Unknown,
}

impl Old {
    pub(crate) fn of(place: Option<Place>) -> Old {
        place.map_or(Old::None, Old::At)
    }
    /// The place that becomes free.
    pub(crate) fn place(self) -> Option<Place> {
        if let Old::At(place) = self { Some(place) } else { None }
    }
}

/// The code of a place that is not known; one more than that of any other.
const UNKNOWN_PLACE: u64 = PLACES_MAX + 1;

/// One change of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A page becomes allocated; its version is the record's LSN.
    Allocate { page: PageId },
    /// A page becomes allocated in a version of another log.
    Adopt { page: PageId, version: Lsn },
    /// A page becomes free, and so does its place.
    Free { page: PageId, place: Option<Place> },
    /// A page has a new version at a new place.
    Move { page: PageId, version: Lsn, place: Place, checksum: u32, old: Old },
    /// A place becomes a delta page.
    DeltaPage { place: Place },
    /// A page has a new version: its image as before, with the changes in a slot of a delta page.
    /// (Place and checksum of the image are named so that redo need not read the map page.)
    Delta { page: PageId, version: Lsn, place: Place, checksum: u32, at: SlotAt, rent: u8 },
    /// A delta page of which no slot is in use becomes free.
    DeltaFreed { place: Place },
    /// A group without used places returns their space (`backed: false`) or gets it again.
    Backing { group: u64, backed: bool },
}

impl Change {
    /// The page of the map entry that it changes.
    pub(crate) fn page(&self) -> Option<PageId> {
        match *self {
            Change::Allocate { page }
            | Change::Adopt { page, .. }
            | Change::Free { page, .. }
            | Change::Move { page, .. }
            | Change::Delta { page, .. } => Some(page),
            Change::DeltaPage { .. } | Change::DeltaFreed { .. } | Change::Backing { .. } => None,
        }
    }
    /// The place that it puts to use.
    pub(crate) fn taken_place(&self) -> Option<Place> {
        match *self {
            Change::Move { place, .. } | Change::DeltaPage { place } => Some(place),
            _ => None,
        }
    }
    /// The place that it frees.
    pub(crate) fn freed_place(&self) -> Option<Place> {
        match *self {
            Change::Move { old, .. } => old.place(),
            Change::Free { place, .. } => place,
            Change::DeltaFreed { place } => Some(place),
            _ => None,
        }
    }
}

/// Encodes an optional place: 0 for none.
fn put_place(out: &mut Vec<u8>, place: Option<Place>) {
    out.put_varint(place.map_or(0, |place| place.0 + 1));
}
fn place(reader: &mut Reader<'_>) -> Result<Option<Place>, Malformed> {
    reader.varint()?.checked_sub(1).map(place_of).transpose()
}
fn old(reader: &mut Reader<'_>) -> Result<Old, Malformed> {
    match reader.varint()? {
        0 => Ok(Old::None),
        UNKNOWN_PLACE => Ok(Old::Unknown),
        code => place_of(code - 1).map(Old::At),
    }
}
fn place_of(number: u64) -> Result<Place, Malformed> {
    if number < PLACES_MAX { Ok(Place(number)) } else { Err(Malformed { what: "a place that no store has" }) }
}

/// Body of a `PAGES_PUBLISHED` record.
pub(crate) fn encode_publish(allocate: &[PageId], free: &[(PageId, Option<Place>)]) -> Vec<u8> {
    assert!(allocate.len() + free.len() <= CHANGES_MAX);
    let mut out = Vec::with_capacity(4 + 5 * allocate.len() + 10 * free.len());
    out.put_varint(allocate.len() as u64);
    for page in allocate {
        out.put_varint(page.0);
    }
    out.put_varint(free.len() as u64);
    for (page, place) in free {
        out.put_varint(page.0);
        put_place(&mut out, *place);
    }
    out
}

/// Body of a `PAGES_MOVED` record, and beginning of that of a `PAGES_SHADOWED` one. Every change
/// is a `Change::Move`.
pub(crate) fn encode_moves(moves: &[Change]) -> Vec<u8> {
    assert!(moves.len() <= CHANGES_MAX);
    let mut out = Vec::with_capacity(4 + 24 * moves.len());
    out.put_varint(moves.len() as u64);
    for change in moves {
        let Change::Move { page, version, place, checksum, old } = *change else {
            unreachable!("only moves are encoded here");
        };
        out.put_varint(page.0);
        out.put_varint(version.0);
        out.put_varint(place.0);
        out.put_u32(checksum);
        match old {
            Old::Unknown => out.put_varint(UNKNOWN_PLACE),
            Old::None | Old::At(_) => put_place(&mut out, old.place()),
        }
    }
    out
}

/// Ends the body of a `PAGES_SHADOWED` record: with the LSN from which shadows are held, or that
/// none are. Recovery holds none of earlier records.
pub(crate) fn put_held_from(body: &mut Vec<u8>, from: Option<Lsn>) {
    body.put_u64(from.map_or(NONE_HELD, |from| from.0));
}

/// What [`put_held_from`] has put at the end of a body that has been decoded.
pub(crate) fn held_from(record: Record<'_>) -> Result<Option<Lsn>, Malformed> {
    let end = record.body.last_chunk::<8>().ok_or(Malformed { what: "a record of shadows ends early" })?;
    let from = u64::from_le_bytes(*end);
    Ok((from != NONE_HELD).then_some(Lsn(from)))
}

const NONE_HELD: u64 = u64::MAX;

/// Body of a `GROUP_BACKING` record.
pub(crate) fn encode_backing(group: u64, backed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    out.put_varint(group);
    out.put_u8(u8::from(backed));
    out
}

/// Body of an `PAGES_ADOPTED` record.
pub(crate) fn encode_adopt(pages: &[(PageId, Lsn)]) -> Vec<u8> {
    assert!(pages.len() <= CHANGES_MAX);
    let mut out = Vec::with_capacity(4 + 12 * pages.len());
    out.put_varint(pages.len() as u64);
    for (page, version) in pages {
        out.put_varint(page.0);
        out.put_varint(version.0);
    }
    out
}

/// Body of a `PAGES_DELTA` record: the changes are `DeltaFreed`, then for each delta page a
/// `DeltaPage` and the `Delta`s in its slots.
pub(crate) fn encode_deltas(changes: &[Change]) -> Vec<u8> {
    assert!(changes.len() <= CHANGES_MAX);
    let mut out = Vec::with_capacity(16 + 14 * changes.len());
    let freed = changes.iter().take_while(|change| matches!(change, Change::DeltaFreed { .. })).count();
    let (freed, written) = changes.split_at(freed);
    out.put_varint(freed.len() as u64);
    for change in freed {
        let Change::DeltaFreed { place } = *change else { unreachable!("taken as such") };
        out.put_varint(place.0);
    }
    let pages = written.iter().filter(|change| matches!(change, Change::DeltaPage { .. })).count();
    out.put_varint(pages as u64);
    let same_page = |_: &Change, next: &Change| matches!(next, Change::Delta { .. });
    for written in written.chunk_by(same_page) {
        let [Change::DeltaPage { place }, slots @ ..] = written else {
            unreachable!("slots follow their delta page");
        };
        out.put_varint(place.0);
        out.put_varint(slots.len() as u64);
        for slot in slots {
            let Change::Delta { page, version, place: image, checksum, at, rent } = *slot else {
                unreachable!("grouped so")
            };
            assert_eq!(at.place, *place, "{page:?} is in a slot of the page before it");
            out.put_varint(page.0);
            out.put_varint(version.0);
            out.put_varint(image.0);
            out.put_u32(checksum);
            out.put_u8(at.slot);
            out.put_u8(rent);
        }
    }
    out
}

fn decode_deltas(reader: &mut Reader<'_>, changes: &mut Vec<Change>) -> Result<(), Malformed> {
    for _ in 0..reader.varint_max(CHANGES_MAX)? {
        changes.push(Change::DeltaFreed { place: place_of(reader.varint()?)? });
    }
    for _ in 0..reader.varint_max(CHANGES_MAX)? {
        let place = place_of(reader.varint()?)?;
        changes.push(Change::DeltaPage { place });
        for _ in 0..reader.varint_max(SLOTS_MAX)? {
            let (page, version) = (PageId(reader.varint()?), Lsn(reader.varint()?));
            let (image, checksum) = (place_of(reader.varint()?)?, reader.u32()?);
            let (at, rent) = (SlotAt { place, slot: reader.u8()? }, reader.u8()?);
            if rent > RENT_MAX {
                return Err(Malformed { what: "a rent of more than a page" });
            }
            changes.push(Change::Delta { page, version, place: image, checksum, at, rent });
        }
    }
    Ok(())
}

/// The changes of a record.
pub(crate) fn decode(record: Record<'_>) -> Result<Vec<Change>, Malformed> {
    let reader = &mut Reader::new(record.body);
    let mut changes = Vec::new();
    match record.kind {
        Kind::PAGES_PUBLISHED => {
            for _ in 0..reader.varint_max(CHANGES_MAX)? {
                changes.push(Change::Allocate { page: PageId(reader.varint()?) });
            }
            for _ in 0..reader.varint_max(CHANGES_MAX)? {
                changes.push(Change::Free { page: PageId(reader.varint()?), place: place(reader)? });
            }
        }
        Kind::PAGES_MOVED | Kind::PAGES_SHADOWED => {
            for _ in 0..reader.varint_max(CHANGES_MAX)? {
                changes.push(Change::Move {
                    page: PageId(reader.varint()?),
                    version: Lsn(reader.varint()?),
                    place: place_of(reader.varint()?)?,
                    checksum: reader.u32()?,
                    old: old(reader)?,
                });
            }
            if record.kind == Kind::PAGES_SHADOWED {
                reader.u64()?;
            }
        }
        Kind::PAGES_ADOPTED => {
            for _ in 0..reader.varint_max(CHANGES_MAX)? {
                let (page, version) = (PageId(reader.varint()?), Lsn(reader.varint()?));
                changes.push(Change::Adopt { page, version });
            }
        }
        Kind::PAGES_DELTA => decode_deltas(reader, &mut changes)?,
        Kind::GROUP_BACKING => {
            let group = reader.varint()?;
            let backed = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed { what: "a flag that is neither 0 nor 1" }),
            };
            changes.push(Change::Backing { group, backed });
        }
        _ => return Err(Malformed { what: "a record kind the store does not know" }),
    }
    if !reader.is_empty() {
        return Err(Malformed { what: "bytes after the end of a map record" });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn records_have_golden_bytes() {
        let publish =
            encode_publish(&[PageId(5), PageId(300)], &[(PageId(7), Some(Place(0))), (PageId(8), None)]);
        assert_eq!(publish, [2, 5, 0xAC, 2, 2, 7, 1, 8, 0]);
        assert_eq!(
            decode(Record { kind: Kind::PAGES_PUBLISHED, body: &publish }).unwrap(),
            [
                Change::Allocate { page: PageId(5) },
                Change::Allocate { page: PageId(300) },
                Change::Free { page: PageId(7), place: Some(Place(0)) },
                Change::Free { page: PageId(8), place: None },
            ]
        );
        let change = Change::Move {
            page: PageId(1),
            version: Lsn(4096),
            place: Place(9),
            checksum: 0x0102_0304,
            old: Old::At(Place(3)),
        };
        let moves = encode_moves(&[change]);
        assert_eq!(moves, [1, 1, 0x80, 0x20, 9, 4, 3, 2, 1, 4]);
        assert_eq!(decode(Record { kind: Kind::PAGES_MOVED, body: &moves }).unwrap(), [change]);
        let (page, version, place, checksum) = (PageId(1), Lsn(2), Place(9), 0x0102_0304);
        for (old, code) in [(Old::None, &[0][..]), (Old::Unknown, &[0x81, 0x80, 0x80, 0x80, 0x80, 0x20])] {
            let change = Change::Move { page, version, place, checksum, old };
            let moves = encode_moves(&[change]);
            assert_eq!(moves, [&[1, 1, 2, 9, 4, 3, 2, 1][..], code].concat());
            assert_eq!(decode(Record { kind: Kind::PAGES_MOVED, body: &moves }).unwrap(), [change]);
        }
        let adopt = encode_adopt(&[(PageId(5), Lsn(300))]);
        assert_eq!(adopt, [1, 5, 0xAC, 2]);
        assert_eq!(
            decode(Record { kind: Kind::PAGES_ADOPTED, body: &adopt }).unwrap(),
            [Change::Adopt { page: PageId(5), version: Lsn(300) }]
        );
        let at = |place: u64, slot: u8| SlotAt { place: Place(place), slot };
        let delta = |page: u64, at: SlotAt| {
            let (version, place, checksum) = (Lsn(300), Place(8), 0xAABB_CCDD);
            Change::Delta { page: PageId(page), version, place, checksum, at, rent: 7 }
        };
        let changes = [
            Change::DeltaFreed { place: Place(4) },
            Change::DeltaPage { place: Place(9) },
            delta(5, at(9, 0)),
            delta(6, at(9, 2)),
            Change::DeltaPage { place: Place(200) },
            delta(1, at(200, 1)),
        ];
        let deltas = encode_deltas(&changes);
        let image = [8, 0xDD, 0xCC, 0xBB, 0xAA];
        let golden = [
            &[1, 4, 2, 9, 2, 5, 0xAC, 2][..],
            &image,
            &[0, 7, 6, 0xAC, 2],
            &image,
            &[2, 7, 0xC8, 1, 1, 1, 0xAC, 2],
            &image,
            &[1, 7],
        ]
        .concat();
        assert_eq!(deltas, golden);
        assert_eq!(decode(Record { kind: Kind::PAGES_DELTA, body: &deltas }).unwrap(), changes);
        let backing = encode_backing(130, false);
        assert_eq!(backing, [0x82, 1, 0]);
        assert_eq!(
            decode(Record { kind: Kind::GROUP_BACKING, body: &backing }).unwrap(),
            [Change::Backing { group: 130, backed: false }]
        );
    }

    #[test]
    fn the_record_of_shadows_is_pinned() {
        let (page, version, place, checksum) = (PageId(1), Lsn(2), Place(9), 0x0102_0304);
        let change = Change::Move { page, version, place, checksum, old: Old::None };
        for (from, end) in [(Some(Lsn(7)), [7, 0, 0, 0, 0, 0, 0, 0]), (None, [0xff; 8])] {
            let mut body = encode_moves(&[change]);
            put_held_from(&mut body, from);
            assert_eq!(body, [&[1, 1, 2, 9, 4, 3, 2, 1, 0][..], &end].concat());
            let record = Record { kind: Kind(0x15), body: &body };
            assert_eq!((record.kind, decode(record).unwrap()), (Kind::PAGES_SHADOWED, vec![change]));
            assert_eq!(held_from(record), Ok(from));
        }
    }

    #[test]
    fn random_bytes_are_refused_or_decoded_but_never_panic() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let body: Vec<u8> = (0..rng.below(40)).map(|_| rng.next_u64() as u8).collect();
            for kind in 0x10..0x16 {
                let _ = decode(Record { kind: Kind(kind), body: &body });
            }
        }
    }
}
