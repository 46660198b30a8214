//! How pages of a table are fragmented.

use firndb_array::Code;
use firndb_table::{Chosen, Fragmentation, Fragments};
use std::fmt;

/// How the pages of a table and of its indexes are fragmented over the devices of a store that has
/// several. Whole pages, which are those of page files and of large values, are as the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// As the store's: [`Options::store_survives`] or [`Options::store_code`].
    ///
    /// [`Options::store_survives`]: crate::Options::store_survives
    /// [`Options::store_code`]: crate::Options::store_code
    #[default]
    AsStore,
    /// Each page becomes `written` fragments on as many devices, any `needed` of which give it
    /// back. It survives at least as many lost devices as the store's own code does, and takes no
    /// more space than that, or than [`Options::store_widest`].
    ///
    /// With `needed` 1 a read occupies one device; the larger it is, the fewer bytes a write has.
    ///
    /// [`Options::store_widest`]: crate::Options::store_widest
    Fragments {
        /// From 1 to `written`.
        needed: usize,
        /// At most the number of devices.
        written: usize,
    },
    /// By the load of the table: as it is at first, then whatever promises a fifth more operations
    /// and repays the moves of its pages within ten minutes. Background work looks at loads every
    /// ten seconds, and moves pages in a quarter of the time
    /// ([`Database::store_loads`], [`Table::layout_now`]).
    ///
    /// [`Database::store_loads`]: crate::Database::store_loads
    /// [`Table::layout_now`]: crate::Table::layout_now
    Auto,
}

impl Layout {
    pub(crate) fn of(code: Code) -> Layout {
        Layout::Fragments { needed: code.needed(), written: code.written() }
    }

    /// `written` fragments, any `needed` of which give a page back.
    #[must_use]
    pub fn fragments(needed: usize, written: usize) -> Layout {
        Layout::Fragments { needed, written }
    }

    /// As the catalog holds it, of a table that has fragments now, or is as the store. `moving`:
    /// whether some of its pages may lie elsewhere.
    pub(crate) fn kept(self, now: Option<Fragments>, moving: bool) -> Fragmentation {
        let byte = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        match self {
            Layout::AsStore => Fragmentation::default(),
            Layout::Fragments { needed, written } => {
                Fragmentation::by_user(Some(Fragments { needed: byte(needed), written: byte(written) }))
            }
            Layout::Auto => Fragmentation { fragments: now, chosen: Chosen::ByLoad { moving } },
        }
    }

    /// What a table has.
    pub(crate) fn of_table(kept: Fragmentation) -> Layout {
        match kept.chosen {
            Chosen::ByUser => kept.fragments.map_or(Layout::AsStore, |it| {
                Layout::fragments(usize::from(it.needed), usize::from(it.written))
            }),
            Chosen::ByLoad { .. } => Layout::Auto,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::AsStore => f.write_str("as the store"),
            Layout::Fragments { needed, written } => write!(f, "{needed} of {written}"),
            Layout::Auto => f.write_str("auto"),
        }
    }
}
