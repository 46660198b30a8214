//! When `transact` runs its work again, and when not.

use crate::histories_support::{create, quiet};
use firndb::{Database, Error, ErrorKind, Table, Transaction};

/// An error of the caller's own, beside those of the database.
#[derive(Debug, PartialEq)]
enum Refused {
    Own(u32),
    Database(ErrorKind),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Database(error.kind())
    }
}

/// Writes a row that another transaction has changed since the snapshot of `tx`: a conflict. With
/// the error, a statement after which a rollback to a savepoint has something to undo.
fn conflict(db: &Database, table: &Table, tx: &mut Transaction) -> Error {
    tx.get(table, b"x").expect("readable");
    db.transact(|other| other.put(table, b"x", b"theirs").map(drop)).expect("free");
    tx.put(table, b"y", b"mine").expect("free");
    let error = tx.put(table, b"x", b"mine").expect_err("it has changed");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    error
}

/// Cause: a transaction that had met a conflict was run again whatever error its work returned.
/// Effect: work that had undone the conflict, and then refused for a reason of its own, was
/// repeated a hundred times.
#[test]
fn an_error_of_its_own_after_a_conflict_that_was_undone_ends_a_transaction() {
    let db = create(quiet());
    let table = db.create_table("t").expect("created");
    let mut runs = 0;
    let outcome = db.transact(|tx| {
        runs += 1;
        let savepoint = tx.savepoint();
        conflict(&db, &table, tx);
        tx.rollback_to(&savepoint)?;
        Err::<(), _>(Refused::Own(runs))
    });
    assert_eq!(outcome, Err(Refused::Own(1)));
    assert_eq!(db.snapshot().get(&table, b"y"), Ok(None), "it was rolled back");

    // A failure of another kind came last.
    let mut runs = 0;
    let outcome = db.transact(|tx| {
        runs += 1;
        conflict(&db, &table, tx);
        tx.insert(&table, b"y", b"again").map_err(Refused::from)
    });
    assert_eq!((outcome, runs), (Err(Refused::Database(ErrorKind::Duplicate)), 1));
}

#[test]
fn a_conflict_that_was_not_undone_runs_a_transaction_again() {
    let db = create(quiet());
    let table = db.create_table("t").expect("created");
    for own in [false, true] {
        let mut runs = 0;
        let outcome = db.transact(|tx| {
            runs += 1;
            if runs < 3 {
                let error = conflict(&db, &table, tx);
                // A statement that succeeds settles nothing.
                tx.get(&table, b"y")?;
                return Err(if own { Refused::Own(runs) } else { error.into() });
            }
            Ok(runs)
        });
        assert_eq!(outcome, Ok(3));
    }
    assert_eq!(db.snapshot().get(&table, b"y"), Ok(None), "no run left anything");
}
