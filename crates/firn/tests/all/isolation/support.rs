//! Options of transactions, and rows, of the tests of waits and locks.

use firndb::{Database, Error, ErrorKind, Isolation, Table, Transaction, TransactionOptions};
use std::time::Duration;

pub const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

pub const LIMIT: Duration = Duration::from_secs(60);

/// A transaction that does not wait at all: a lock that is not free is a timeout.
pub fn impatient(db: &Database, isolation: Isolation) -> Transaction {
    db.begin_with(TransactionOptions { isolation, lock_deadline: Some(Duration::ZERO), ..Default::default() })
}

pub fn serializable(db: &Database) -> Transaction {
    impatient(db, Isolation::Serializable)
}

pub fn is_timeout<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert_eq!(answer.expect_err("it is locked").kind(), ErrorKind::Timeout);
}

pub fn key(number: u32) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

/// A table with the even numbers below `end`, in many leaves.
pub fn even_numbers(db: &Database, end: u32) -> Table {
    let table = db.create_table("even").expect("created");
    db.transact(|tx| (0..end).step_by(2).try_for_each(|number| tx.insert(&table, &key(number), &[b'.'; 40])))
        .expect("committed");
    table
}
