//! The two kinds of tables.

use crate::schema::Schema;

/// What kind of rows a table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Bytes to bytes.
    Raw,
    /// Typed columns.
    Typed(Schema),
}
