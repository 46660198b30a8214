//! The nine tables and two secondary indexes, as a [`Schema`].

use super::{keys, rows};
use crate::engine::{EngineError, Outcome, Transaction};
use crate::schema::{IndexId, IndexSpec, Part, Schema, TableId, TableSpec};

/// WAREHOUSE.
pub const WAREHOUSE: TableId = TableId(0);
/// DISTRICT.
pub const DISTRICT: TableId = TableId(1);
/// CUSTOMER.
pub const CUSTOMER: TableId = TableId(2);
/// HISTORY.
pub const HISTORY: TableId = TableId(3);
/// NEW-ORDER.
pub const NEW_ORDER: TableId = TableId(4);
/// ORDER.
pub const ORDER: TableId = TableId(5);
/// ORDER-LINE.
pub const ORDER_LINE: TableId = TableId(6);
/// ITEM.
pub const ITEM: TableId = TableId(7);
/// STOCK.
pub const STOCK: TableId = TableId(8);
/// What the population was loaded with.
pub const POPULATION: TableId = TableId(9);

/// Of CUSTOMER: by district, C_LAST and C_FIRST (the order that clause 2.5.2.2 requires).
pub const CUSTOMER_BY_NAME: IndexId = IndexId(0);
/// Of ORDER: by district, O_C_ID and O_ID (the last order of a customer, clause 2.6.2.2).
pub const ORDER_BY_CUSTOMER: IndexId = IndexId(0);

/// The schema of TPC-C.
#[must_use]
pub fn schema() -> Schema {
    let customer_by_name = IndexSpec {
        name: "by_name".into(),
        unique: false,
        parts: vec![
            Part::Key(0..keys::DISTRICT_LEN),
            Part::Value(rows::customer::LAST.range()),
            Part::Value(rows::customer::FIRST.range()),
        ],
    };
    let order_by_customer = IndexSpec {
        name: "by_customer".into(),
        unique: true,
        parts: vec![
            Part::Key(0..keys::DISTRICT_LEN),
            Part::Value(rows::order::CUSTOMER.range()),
            Part::Key(keys::DISTRICT_LEN..keys::ORDER_LEN),
        ],
    };
    let table =
        |name: &str, key_len, row_len, indexes| TableSpec { name: name.into(), key_len, row_len, indexes };
    Schema {
        tables: vec![
            table("warehouse", keys::WAREHOUSE_LEN, rows::warehouse::LEN, vec![]),
            table("district", keys::DISTRICT_LEN, rows::district::LEN, vec![]),
            table("customer", keys::CUSTOMER_LEN, rows::customer::LEN, vec![customer_by_name]),
            table("history", keys::HISTORY_LEN, rows::history::LEN, vec![]),
            table("new_order", keys::ORDER_LEN, rows::new_order::LEN, vec![]),
            table("orders", keys::ORDER_LEN, rows::order::LEN, vec![order_by_customer]),
            table("order_line", keys::ORDER_LINE_LEN, rows::order_line::LEN, vec![]),
            table("item", keys::ITEM_LEN, rows::item::LEN, vec![]),
            table("stock", keys::STOCK_LEN, rows::stock::LEN, vec![]),
            table("population", keys::POPULATION.len(), rows::population::LEN, vec![]),
        ],
    }
}

/// Row lengths by table, for checking an engine's rows without a search in the schema.
const ROW_LENS: [usize; 10] = [
    rows::warehouse::LEN,
    rows::district::LEN,
    rows::customer::LEN,
    rows::history::LEN,
    rows::new_order::LEN,
    rows::order::LEN,
    rows::order_line::LEN,
    rows::item::LEN,
    rows::stock::LEN,
    rows::population::LEN,
];

/// Whether `row` is as long as a row of `table` must be; if it is not, the row must not be used.
#[must_use]
pub fn is_whole(table: TableId, row: &[u8]) -> bool {
    row.len() == ROW_LENS[table.0]
}

fn checked(table: TableId, key: &[u8], found: bool, row: &[u8]) -> Outcome<()> {
    if found && is_whole(table, row) {
        return Ok(());
    }
    let name = &schema().tables[table.0].name;
    Err(EngineError::Fatal(match found {
        false => format!("{name} has no row {key:02x?}, which the population must have"),
        true => format!("row {key:02x?} of {name} has {} bytes, not {}", row.len(), ROW_LENS[table.0]),
    }))
}

/// Reads a row that must be there.
pub fn need<T: Transaction>(txn: &mut T, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<()> {
    let found = txn.get(table, key, row)?;
    checked(table, key, found, row)
}

/// Reads rows that must be there, and shows each of them once, in any order.
pub fn need_many<T: Transaction>(
    txn: &mut T,
    table: TableId,
    keys: &[&[u8]],
    mut show: impl FnMut(&[u8]),
) -> Outcome<()> {
    let mut outcome = Ok(());
    txn.get_many(table, keys, &mut |number, row| match checked(
        table,
        keys[number],
        row.is_some(),
        row.unwrap_or_default(),
    ) {
        Ok(()) => show(row.unwrap_or_default()),
        error => outcome = error,
    })?;
    outcome
}

/// Changes a row that must be there; `row` is what it becomes. `change` may be called again, with
/// the row as it is.
pub fn change<T: Transaction>(
    txn: &mut T,
    table: TableId,
    key: &[u8],
    row: &mut Vec<u8>,
    mut change: impl FnMut(&mut [u8]),
) -> Outcome<()> {
    let found = txn.update_with(table, key, row, &mut |row| {
        if is_whole(table, row) {
            change(row);
        }
    })?;
    checked(table, key, found, row)
}

/// Rows of one table that were read together, by the numbers of their keys. Keeps its memory
/// between calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    /// Of each key, whether there is a row.
    found: Vec<bool>,
    len: usize,
}

impl Rows {
    /// Reads the rows at `keys`.
    pub(super) fn read<T: Transaction>(
        &mut self,
        txn: &mut T,
        table: TableId,
        keys: &[&[u8]],
    ) -> Outcome<()> {
        self.begin(table, keys.len());
        let mut damaged = Ok(());
        txn.get_many(table, keys, &mut |number, row| {
            self.found[number] = row.is_some();
            let Some(row) = row else { return };
            match checked(table, keys[number], true, row) {
                Ok(()) => self.bytes[number * self.len..][..self.len].copy_from_slice(row),
                error => damaged = error,
            }
        })?;
        damaged
    }

    /// Changes the rows at `keys`, all of which must be there, in the order of the keys: what each
    /// becomes is kept. `change` may be called again, with the row as it is.
    pub(super) fn change<T: Transaction>(
        &mut self,
        txn: &mut T,
        table: TableId,
        keys: &[&[u8]],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> Outcome<()> {
        self.begin(table, keys.len());
        let mut damaged = Ok(());
        txn.update_many_with(table, keys, &mut |number, row| {
            self.found[number] = row.is_some();
            let Some(row) = row else { return };
            match checked(table, keys[number], true, row) {
                Ok(()) => {
                    change(number, row);
                    self.bytes[number * self.len..][..self.len].copy_from_slice(row);
                }
                error => damaged = error,
            }
        })?;
        damaged?;
        match self.found.iter().position(|found| !found) {
            Some(missing) => checked(table, keys[missing], false, &[]),
            None => Ok(()),
        }
    }

    /// Forgets all rows, for `count` keys of a table.
    fn begin(&mut self, table: TableId, count: usize) {
        self.len = ROW_LENS[table.0];
        self.found.clear();
        self.found.resize(count, false);
        self.bytes.resize(count * self.len, 0);
    }

    /// The row of the key with this number.
    pub(super) fn get(&self, number: usize) -> Option<&[u8]> {
        self.found[number].then(|| &self.bytes[number * self.len..][..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_sound_and_lists_every_table_at_its_id() {
        let schema = schema();
        schema.assert_sound();
        assert_eq!(schema.table(ORDER_LINE).name, "order_line");
        assert_eq!(schema.table(POPULATION).name, "population");
        for (table, len) in schema.tables.iter().zip(ROW_LENS) {
            assert_eq!(table.row_len, len, "{}", table.name);
        }
    }
}
