//! The order of this crate's locks, outermost first. A checkpoint may be taken under them.

use firndb_base::sync::Rank;

/// One change of a table's definition at a time.
pub(crate) static DEFINITION: Rank = Rank::new(50, "a table's definition_change");
/// Names are given out under it.
pub(crate) static WRITING: Rank = Rank::new(60, "the catalog's writing");
/// By their present names; read for a lookup.
pub(crate) static TABLES: Rank = Rank::new(70, "the catalog's tables");
/// Likewise.
pub(crate) static PAGE_FILES: Rank = Rank::new(75, "the catalog's page files");
pub(crate) static STATE: Rank = Rank::new(80, "a table's state");
