//! Layouts of tables, where the store has several devices: setting them, moving pages to them.

use crate::database::Database;
use crate::engine::Engine;
use crate::error::Error;
use crate::layout::Layout;
use crate::table::{Table, TableSpec};
use firndb_array::Code;
use firndb_base::Progress;
use firndb_table::{BuildLimits, Fragmentation, IndexSpec};
use firndb_tier::store::CodeWalk;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

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
    /// no layout changes at once, and background work moves pages that lie elsewhere.
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
        let kept = layout.kept(now.fragments, true);
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
    /// to it. As the store's, where that does not have the table's layout: it was restored onto
    /// other devices.
    ///
    /// Errors: `Stale` if it was dropped.
    pub fn layout_now(&self) -> Result<Layout, Error> {
        Ok(self.handle.engine.layout_now(self.inner.definition()?.fragmentation))
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

    /// The layout of a new table, as the catalog holds it.
    ///
    /// Errors: `BadArgument` if the store has no such layout.
    pub(crate) fn layout_of_new(&self, spec: &TableSpec) -> Result<Fragmentation, Error> {
        let by_options = || if self.codes().is_empty() { Layout::AsStore } else { self.options.table_layout };
        let layout = spec.layout.unwrap_or_else(by_options);
        self.check_layout(layout)?;
        Ok(layout.kept(None, false))
    }

    fn check_layout(&self, layout: Layout) -> Result<(), Error> {
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

    /// The number of the code that a table has of its own. `None` also if the store has no such
    /// code: that was checked when it was set, but the database may have been restored onto other
    /// devices since. Pages are as the store's then.
    pub(crate) fn own_code(&self, kept: Fragmentation) -> Option<usize> {
        let wanted =
            kept.fragments.and_then(|it| Code::new(usize::from(it.needed), usize::from(it.written)))?;
        self.codes().iter().position(|code| *code == wanted)
    }

    /// What pages of a table have, or will.
    pub(crate) fn layout_now(&self, kept: Fragmentation) -> Layout {
        self.own_code(kept).map_or(Layout::AsStore, |number| Layout::of(self.codes()[number]))
    }

    /// Has pages go to groups of the codes that the catalog wants for their tables, and their loads
    /// counted.
    pub(crate) fn place_trees(&self) -> Result<(), Error> {
        let Some(it) = &self.devices.store_array else { return Ok(()) };
        let _placing = it.placing.lock();
        let mut codes = BTreeMap::new();
        let mut counted: [Vec<u32>; 2] = Default::default();
        // Those that are being loaded first: they become tables.
        let loaded = self.catalog.fragmentations_being_loaded();
        for table in loaded.into_iter().chain(self.catalog.fragmentations()) {
            let code = self.own_code(table.fragmentation).unwrap_or(0);
            let code = u8::try_from(code).expect("there are fewer codes than pairs of 16 numbers");
            let trees = || table.trees.iter().map(|tree| tree.0);
            codes.extend(trees().map(|tree| (tree, code)));
            // Those whose layouts are chosen first.
            counted[usize::from(!table.fragmentation.is_by_load())].extend(trees());
        }
        self.store.count_trees(&counted.concat());
        Ok(self.store.set_codes_of_trees(codes)?)
    }

    /// As [`firndb_table::Catalog::create_index`]; its pages go where those of its table do.
    pub(crate) fn create_index(
        &self,
        table: &firndb_table::Table,
        index: IndexSpec,
        limits: &BuildLimits,
    ) -> Result<(), Error> {
        let mut placed = Ok(());
        let begun = &mut || placed = self.place_trees();
        self.catalog.create_index_begun(table, index, limits, begun)?;
        placed
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
