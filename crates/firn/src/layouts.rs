//! How pages of tables are fragmented over the store's devices, where it has several.

use crate::database::Database;
use crate::engine::Engine;
use crate::error::Error;
use crate::table::Table;
use firndb_array::Code;
use firndb_base::Progress;
use firndb_table::{Chosen, Fragmentation, Fragments};
use firndb_tier::store::CodeWalk;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

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
    Auto,
}

impl Layout {
    fn of(code: Code) -> Layout {
        Layout::Fragments { needed: code.needed(), written: code.written() }
    }

    /// `written` fragments, any `needed` of which give a page back.
    #[must_use]
    pub fn fragments(needed: usize, written: usize) -> Layout {
        Layout::Fragments { needed, written }
    }

    /// As the catalog holds it, of a table that has fragments now, or is as the store.
    pub(crate) fn kept(self, now: Option<Fragments>) -> Fragmentation {
        let byte = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        match self {
            Layout::AsStore => Fragmentation::default(),
            Layout::Fragments { needed, written } => {
                Fragmentation::by_user(Some(Fragments { needed: byte(needed), written: byte(written) }))
            }
            Layout::Auto => Fragmentation { fragments: now, chosen: Chosen::ByLoad { moving: false } },
        }
    }

    /// What a table has.
    pub(crate) fn of_table(kept: Fragmentation) -> Layout {
        match kept.chosen {
            Chosen::ByUser => Layout::now(kept),
            Chosen::ByLoad { .. } => Layout::Auto,
        }
    }

    /// What pages of a table have, or will.
    pub(crate) fn now(kept: Fragmentation) -> Layout {
        kept.fragments
            .map_or(Layout::AsStore, |it| Layout::fragments(usize::from(it.needed), usize::from(it.written)))
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

/// What [`Database::move_to_layouts`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveReport {
    /// It was not stopped.
    pub complete: bool,
    /// Pages that stayed as they were, since no space could be had for their layout; a later call
    /// may move them, or their being written.
    pub pages_left: u64,
}

impl Database {
    /// The layouts that tables may have: the store's own first. None if the store is one device.
    #[must_use]
    pub fn layouts(&self) -> Vec<Layout> {
        self.engine().codes().iter().copied().map(Layout::of).collect()
    }

    /// Has the pages of a table and of its indexes fragmented otherwise from now on, as they are
    /// written: those that there are stay where they are until [`Database::move_to_layouts`], or
    /// until they are written next. Where no space can be had for another layout, pages go to where
    /// there is some; no layout survives fewer lost devices than the store's. With [`Layout::Auto`]
    /// nothing changes at once.
    ///
    /// Errors: `BadArgument` if the store has no such layout, or is one device.
    pub fn set_layout(&self, table: &Table, layout: Layout) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.check_layout(layout)?;
        let now = table.inner.definition()?.fragmentation;
        if Layout::of_table(now) == Layout::Auto && layout == Layout::Auto {
            return Ok(());
        }
        let kept = layout.kept(now.fragments);
        engine.write(|| Ok(engine.catalog.set_fragmentation(&table.inner, kept)?))?;
        engine.place_trees()
    }

    /// Moves pages that are fragmented otherwise than their tables are to be, beside running
    /// transactions. Reads the store once. May be stopped anywhere, and what was moved stays so.
    /// Calls `progress` with the pages of the page map that were looked through, and how many there
    /// are.
    ///
    /// Errors: `BadArgument` if the store is one device, and those of devices and of space.
    pub fn move_to_layouts(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<MoveReport, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        if engine.codes().is_empty() {
            return Err(one_device());
        }
        engine.move_to_layouts(progress)
    }
}

impl Table {
    /// How its pages are fragmented over the store's devices.
    ///
    /// Errors: `Stale` if it was dropped.
    pub fn layout(&self) -> Result<Layout, Error> {
        Ok(Layout::of_table(self.inner.definition()?.fragmentation))
    }

    /// As [`Table::layout`]; with [`Layout::Auto`], what was chosen. Pages may be about to be moved
    /// to it.
    ///
    /// Errors: `Stale` if it was dropped.
    pub fn layout_now(&self) -> Result<Layout, Error> {
        Ok(Layout::now(self.inner.definition()?.fragmentation))
    }
}

fn one_device() -> Error {
    Error::bad_argument("the store is one device, so there are no layouts: name several (store_paths)")
}

impl Engine {
    /// Codes that groups of the store may have.
    pub(crate) fn codes(&self) -> &[Code] {
        self.devices.store_array.as_ref().map_or(&[], |it| it.array.codes())
    }

    pub(crate) fn check_layout(&self, layout: Layout) -> Result<(), Error> {
        let codes = self.codes();
        match layout {
            Layout::AsStore => Ok(()),
            _ if codes.is_empty() => Err(one_device()),
            Layout::Auto => Ok(()),
            _ if codes.iter().any(|code| Layout::of(*code) == layout) => Ok(()),
            _ => {
                let there: Vec<String> = codes.iter().map(Code::to_string).collect();
                Err(Error::bad_argument(format!(
                    "the store has no layout {layout}; it has {}: others survive fewer lost devices, or take more \
                     space (store_widest)",
                    there.join(", ")
                )))
            }
        }
    }

    /// Has pages go to groups of the codes that the catalog wants for their tables.
    pub(crate) fn place_trees(&self) -> Result<(), Error> {
        let Some(it) = &self.devices.store_array else { return Ok(()) };
        let _placing = it.placing.lock();
        let number = |fragments: Fragments| {
            let code = Code::new(usize::from(fragments.needed), usize::from(fragments.written));
            self.codes().iter().position(|it| Some(*it) == code)
        };
        let mut codes = BTreeMap::new();
        for table in self.catalog.fragmentations() {
            // Checked when it was set.
            let code = table.fragmentation.fragments.and_then(number).and_then(|it| u8::try_from(it).ok());
            codes.extend(table.trees.iter().filter_map(|tree| Some((tree.0, code?))));
        }
        Ok(self.store.set_codes_of_trees(codes)?)
    }

    fn move_to_layouts(
        &self,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<MoveReport, Error> {
        let (mut walk, mut checkpoints) = (CodeWalk::default(), 0);
        loop {
            if progress(walk.next, self.store.map_pages_in_all()).is_break() {
                return Ok(MoveReport { complete: false, pages_left: walk.left });
            }
            let step = self.step_that_moves(&mut checkpoints, &mut || self.store.move_to_codes(&mut walk))?;
            if step == Progress::Idle {
                return Ok(MoveReport { complete: true, pages_left: walk.left });
            }
        }
    }
}
