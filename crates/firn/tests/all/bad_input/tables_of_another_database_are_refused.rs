//! A table of one database given to another is refused, and nothing is written.

use crate::support::small::{create, quiet};
use firndb::{ErrorKind, IndexPart, IndexSpec};

/// An index was once defined in one database's catalog for a table of another.
#[test]
fn indexes_are_not_made_for_tables_of_another_database() {
    let (one, other) = (create(quiet()), create(quiet()));
    let table = one.create_table("t").expect("created");
    let spec = || IndexSpec::ranges("i", false, vec![IndexPart::Value(0..1)]);
    let refused = other.create_index(&table, spec()).expect_err("not its table");
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    one.create_index(&table, spec()).expect("its own");
    let refused = other.drop_index(&table, "i").expect_err("not its table");
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    one.drop_index(&table, "i").expect("its own");
    let refused = other.transact(|tx| tx.put(&table, b"key", b"value")).expect_err("not its table");
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    assert!(other.table_names().is_empty());
}
