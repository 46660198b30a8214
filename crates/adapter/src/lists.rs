//! Transactions over growing lists in two tables, whose history
//! [`firndb_workloads::history::judge`] judges.

use firndb::{Direction, Error, KeyRange, Table, Transaction};
use firndb_workloads::history::{Element, Event};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The list in a row.
#[must_use]
pub fn decode(row: &[u8]) -> Vec<Element> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    assert!(row.len().is_multiple_of(8), "a list that no transaction wrote");
    row.chunks(8).map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect()
}

fn encode(list: &[Element]) -> Vec<u8> {
    list.iter().flat_map(|(txn, part)| [txn.to_be_bytes(), part.to_be_bytes()].concat()).collect()
}

/// The tables of the lists with even and with odd keys.
#[derive(Clone, Debug)]
pub struct ListTables(pub [Table; 2]);

impl ListTables {
    fn of(&self, key: u32) -> &Table {
        &self.0[key as usize % 2]
    }

    /// All lists, as the transaction sees them.
    pub fn read_all(&self, tx: &mut Transaction, keys: u32) -> Result<BTreeMap<u32, Vec<Element>>, Error> {
        (0..keys)
            .map(|key| {
                let found = tx.get(self.of(key), &key.to_be_bytes())?;
                Ok((key, decode(&found.unwrap_or_default())))
            })
            .collect()
    }
}

/// A transaction, and what it has done.
pub struct ListTransaction<'a> {
    /// The transaction.
    pub tx: Transaction,
    /// What it has done so far.
    pub events: Vec<Event>,
    tables: &'a ListTables,
    id: u32,
    appended: u32,
}

impl<'a> ListTransaction<'a> {
    /// Transaction `id` of the history.
    #[must_use]
    pub fn new(tables: &'a ListTables, tx: Transaction, id: u32) -> ListTransaction<'a> {
        ListTransaction { tx, events: Vec::new(), tables, id, appended: 0 }
    }

    /// Reads a list, for update if `lock`.
    pub fn read(&mut self, key: u32, lock: bool) -> Result<Vec<Element>, Error> {
        let (table, bytes) = (self.tables.of(key), key.to_be_bytes());
        let found = if lock { self.tx.get_for_update(table, &bytes)? } else { self.tx.get(table, &bytes)? };
        let list = decode(&found.unwrap_or_default());
        self.events.push(Event::Read(key, list.clone(), false));
        Ok(list)
    }

    /// Reads a list, for update if `lock` (under read committed only that keeps others from writing
    /// in between), and writes it with one more element; runs `between` between the two. Every
    /// other list that is there and to be locked is read and written by one statement, after
    /// `between`.
    pub fn append(&mut self, key: u32, lock: bool, mut between: impl FnMut()) -> Result<(), Error> {
        if lock && (self.id + self.appended).is_multiple_of(2) {
            between();
            if self.append_in_place(key)? {
                return Ok(());
            }
        }
        let mut list = self.read(key, lock)?;
        between();
        let element = (self.id, self.appended);
        list.push(element);
        self.tx.put(self.tables.of(key), &key.to_be_bytes(), &encode(&list))?;
        self.appended += 1;
        self.events.push(Event::Append(key, element));
        Ok(())
    }

    /// Appends to a list by one statement; false, and nothing is done, if there is no row.
    fn append_in_place(&mut self, key: u32) -> Result<bool, Error> {
        let element = (self.id, self.appended);
        let (mut row, mut read) = (Vec::new(), Vec::new());
        let is_there = self.tx.update_with(self.tables.of(key), &key.to_be_bytes(), &mut row, |row| {
            read = decode(row);
            row.extend(encode(&[element]));
        })?;
        if is_there {
            self.appended += 1;
            self.events.extend([Event::Read(key, read, false), Event::Append(key, element)]);
        }
        Ok(is_there)
    }

    /// As [`ListTransaction::append`], and goes back to a savepoint before it.
    pub fn append_and_undo(&mut self, key: u32, lock: bool, between: impl FnMut()) -> Result<(), Error> {
        let savepoint = self.tx.savepoint();
        let before = self.events.len();
        self.append(key, lock, between)?;
        self.tx.rollback_to(&savepoint)?;
        let undone = self.events[before..].iter().filter_map(|event| match event {
            Event::Append(key, element) => Some(Event::Undo(*key, *element)),
            _ => None,
        });
        let undone: Vec<Event> = undone.collect();
        self.events.extend(undone);
        Ok(())
    }

    /// Reads all lists between two keys, both included, of the `which`-th table; those that are not
    /// there are empty. Returns rows outside the range, which must not be.
    pub fn scan(
        &mut self,
        (low, high): (u32, u32),
        which: u32,
        direction: Direction,
    ) -> Result<BTreeMap<u32, Vec<Element>>, Error> {
        let (from, to) = (low.to_be_bytes(), high.to_be_bytes());
        let range = KeyRange::new(Bound::Included(&from), Bound::Included(&to));
        let mut cursor = self.tx.scan(self.tables.of(which), range, direction);
        let mut found = BTreeMap::new();
        while let Some((key, value)) = cursor.next(&mut self.tx)? {
            found.insert(u32::from_be_bytes(key.try_into().expect("four bytes")), decode(value));
        }
        for key in (low..=high).filter(|key| key % 2 == which) {
            self.events.push(Event::Read(key, found.remove(&key).unwrap_or_default(), true));
        }
        Ok(found)
    }
}
