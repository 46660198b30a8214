//! The rows that are read: of equal length, by ascending numbers, a hundredth of them in each group
//! of a secondary index, scattered over the table.

use firndb::{Database, IndexPart, IndexSpec, KeyRange};
use firndb_console::Failure;
use serde::{Deserialize, Serialize};

const INDEX: &str = "by_group";
/// Bytes of a row: about nine are in a page of 4 KiB, so that 1 % of the rows is on 9 % of the
/// pages.
const ROW: usize = 400;
const GROUPS: u64 = 100;
/// Rows of a transaction that loads.
const BATCH: u64 = 500;

/// A loaded table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    pub rows: u64,
    /// Pages of the table, without its index.
    pub pages: u64,
    pub page_bytes: u64,
}

pub fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number mixed: neighbours have nothing in common (splitmix64).
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The group that the row of this number is in.
fn group_of(number: u64) -> u32 {
    (mixed(number.wrapping_add(0x9e37_79b9_7f4a_7c15)) % GROUPS) as u32
}

fn fill(number: u64, row: &mut [u8; ROW]) {
    for (at, bytes) in row.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&mixed(number ^ ((at as u64) << 48)).to_le_bytes());
    }
    row[..4].copy_from_slice(&group_of(number).to_be_bytes());
}

/// Creates the table and loads rows until it has this number of bytes; `loaded` is called with
/// their number so far, and ends it by returning false.
pub fn load(db: &Database, bytes: u64, mut loaded: impl FnMut(u64) -> bool) -> Result<Rows, Failure> {
    let allocated = || db.statistics().store.pages_allocated;
    let (before, page_bytes) = (allocated(), db.statistics().page_size as u64);
    let table = db.create_table(Rows::TABLE)?;
    let mut row = [0; ROW];
    let mut rows = 0;
    while (allocated() - before) * page_bytes < bytes {
        db.transact(|tx| {
            for number in rows..rows + BATCH {
                fill(number, &mut row);
                tx.insert(&table, &key(number), &row)?;
            }
            Ok::<(), firndb::Error>(())
        })?;
        rows += BATCH;
        if !loaded((allocated() - before) * page_bytes) {
            return Err(Failure::interrupted("stopped before all was loaded"));
        }
    }
    let pages = allocated() - before;
    db.create_index(&table, IndexSpec::ranges(INDEX, false, vec![IndexPart::Value(0..4)]))?;
    Ok(Rows { rows, pages, page_bytes })
}

impl Rows {
    /// The table's name.
    pub const TABLE: &'static str = "rows";

    pub fn table(db: &Database) -> Result<firndb::Table, firndb::Error> {
        db.table(Rows::TABLE)
    }

    pub fn index(db: &Database) -> Result<firndb::Index, firndb::Error> {
        db.table(Rows::TABLE)?.index(INDEX)
    }

    /// The keys of the index that are of one group.
    pub fn group(number: u64) -> KeyRange {
        KeyRange::prefix(&((number % GROUPS) as u32).to_be_bytes())
    }

    /// Pages that hold rows of the group, about: rows are of equal length, and pages are filled in
    /// order.
    pub fn pages_of_group(&self, number: u64) -> u64 {
        let group = (number % GROUPS) as u32;
        let page = |row: u64| (u128::from(row) * u128::from(self.pages) / u128::from(self.rows)) as u64;
        let (mut pages, mut last) = (0, None);
        for row in (0..self.rows).filter(|&row| group_of(row) == group) {
            if last.replace(page(row)) != Some(page(row)) {
                pages += 1;
            }
        }
        pages
    }

    /// Bytes of pages that this number of rows takes.
    pub fn bytes_of(&self, rows: u64) -> f64 {
        rows as f64 * (self.pages * self.page_bytes) as f64 / self.rows as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb::Options;

    #[test]
    fn a_group_is_a_hundredth_of_the_rows_and_all_over_the_table() {
        let rows = Rows { rows: 90_000, pages: 10_000, page_bytes: 4096 };
        for group in [0, 7, 99, 107] {
            let members = (0..rows.rows).filter(|&row| u64::from(group_of(row)) == group % GROUPS).count();
            assert!((800..1000).contains(&members), "{members}");
            let pages = rows.pages_of_group(group);
            assert!((members as u64 * 9 / 10..=members as u64).contains(&pages), "{pages} of {members}");
        }
        assert_eq!(rows.bytes_of(9), 4096.0);
    }

    #[test]
    fn a_table_has_the_bytes_asked_for_and_every_row_is_in_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().buffer_bytes(4 << 20).open(dir.path().join("db")).unwrap();
        let rows = load(&db, 1 << 20, |_| true).unwrap();
        assert!(rows.pages * 4096 >= 1 << 20 && rows.rows / rows.pages >= 7, "{rows:?}");
        let mut tx = db.snapshot();
        let mut cursor =
            tx.scan_index(&Rows::index(&db).unwrap(), Rows::group(3), firndb::Direction::Forward);
        let mut found = 0;
        while let Some(row) = cursor.next(&mut tx).unwrap() {
            let number = u64::from_be_bytes(row.primary_key.try_into().unwrap());
            assert_eq!((group_of(number), row.row.len()), (3, ROW));
            found += 1;
        }
        assert_eq!(found, (0..rows.rows).filter(|&row| group_of(row) == 3).count());
        let interrupted = load(&db, 2 << 20, |_| false);
        assert!(interrupted.is_err());
    }
}
