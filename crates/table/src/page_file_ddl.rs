//! Page files of the catalog: creating, looking up, dropping; and which pages belong to them.
//!
//! Each definition change is a transaction of its own, as those of tables (`ddl.rs`).

use crate::catalog::Catalog;
use crate::catalog_rows::{self, TreeRow};
use crate::error::{TableError, TableErrorKind};
use crate::naming::{Naming, PageOwner};
use crate::page_file::{PageFile, PageFileDefinition};
use crate::schema;
use firndb_base::TreeId;
use std::collections::BTreeSet;

impl Catalog {
    /// Creates an empty page file, which takes one page, and one row of the catalog. Durable when
    /// it returns.
    ///
    /// Errors: `Exists`, `BadArgument`, and the transaction's.
    pub fn create_page_file(&self, name: &str) -> Result<PageFile, TableError> {
        schema::check_name("a page file", name).map_err(TableError::bad_argument)?;
        let _writing = self.writing.lock();
        self.check_whole()?;
        if self.page_files.read().contains_key(name) {
            let message = format!("a page file called {name:?} exists");
            return Err(TableError::new(TableErrorKind::Exists, message));
        }
        let is_first = self.superseded.tree().is_none();
        let (definition, marks) = self.commit(|txn| {
            let mut marks = None;
            if is_first {
                let tree = txn.create_tree()?;
                let row = TreeRow { tree: tree.id(), root: tree.root(), naming: Naming::None };
                catalog_rows::write_superseded(txn, &self.system, row)?;
                marks = Some(tree);
            }
            let tree = txn.create_tree()?;
            let definition = PageFileDefinition { tree: tree.id(), root: tree.root(), name: name.to_owned() };
            let bytes = definition.encode();
            catalog_rows::write(txn, &self.system, (definition.tree, name), &bytes)?;
            Ok((definition, marks))
        })?;
        if let Some(tree) = marks {
            self.superseded.begin(tree);
        }
        let file = PageFile::open(&definition, &self.manager, &self.superseded);
        let before = self.page_files.write().insert(name.to_owned(), file.clone());
        debug_assert!(before.is_none(), "names are given out under `writing`, once");
        Ok(file)
    }

    pub fn page_file(&self, name: &str) -> Result<PageFile, TableError> {
        self.page_files.read().get(name).cloned().ok_or_else(|| match &self.damage {
            None => {
                TableError::new(TableErrorKind::NotFound, format!("there is no page file called {name:?}"))
            }
            Some(damage) => TableError::damaged(format!(
                "there is no page file called {name:?} among those whose definitions can be read: {damage}"
            )),
        })
    }

    /// The names of all page files, in their order.
    #[must_use]
    pub fn page_file_names(&self) -> Vec<String> {
        self.page_files.read().keys().cloned().collect()
    }

    /// Drops a page file. From when it returns every use of a handle of it fails; its pages are
    /// freed in the background ([`Catalog::drop_step`]) once no transaction can need them.
    pub fn drop_page_file(&self, name: &str) -> Result<(), TableError> {
        let _writing = self.writing.lock();
        let file = self.page_file(name)?;
        let tree = file.tree()?;
        self.commit(|txn| {
            catalog_rows::erase(txn, &self.system, tree.id())?;
            let row = TreeRow { tree: tree.id(), root: tree.root(), naming: Naming::FileRows };
            catalog_rows::write_dropped(txn, &self.system, row)
        })?;
        // Listed before nothing else names it.
        self.will_free(&tree, Naming::FileRows, format!("page file {name:?}"));
        self.page_files.write().remove(name);
        file.close();
        Ok(())
    }

    /// The trees whose entries name pages, those of dropped page files included. A page that moves
    /// from one to the other meanwhile may be shown by neither, or by both.
    #[must_use]
    pub fn page_owners(&self) -> Vec<PageOwner> {
        let mut owners = Vec::new();
        for (name, file) in &*self.page_files.read() {
            let Ok(tree) = file.tree() else { continue };
            owners.push(PageOwner {
                what: format!("page file {name:?}"),
                tree: (*tree).clone(),
                naming: Naming::FileRows,
            });
        }
        for (name, table) in &*self.tables.read() {
            let Ok(state) = table.shared.state() else { continue };
            let Some(large) = &state.large else { continue };
            owners.push(PageOwner {
                what: format!("large values of table {name:?}"),
                tree: (**large).clone(),
                naming: Naming::LargeParts,
            });
        }
        for loaded in &*self.being_loaded.lock() {
            let Some(large) = &loaded.large else { continue };
            let what = format!("large values of table {:?}, being loaded", loaded.name);
            owners.push(PageOwner { what, tree: (**large).clone(), naming: Naming::LargeParts });
        }
        let listed: BTreeSet<TreeId> = owners.iter().map(|owner| owner.tree.id()).collect();
        // For a moment a tree that is being dropped is in two lists.
        let is_other = |row: &TreeRow| row.naming != Naming::None && !listed.contains(&row.tree);
        for row in self.drops.lock().rows().filter(is_other) {
            let tree = row.open(&self.manager);
            owners.push(PageOwner { what: format!("dropped {}", row.tree), tree, naming: row.naming });
        }
        if let Some(tree) = self.superseded.tree() {
            let what = "the marks of superseded pages".to_owned();
            owners.push(PageOwner { what, tree: tree.clone(), naming: Naming::Marks });
        }
        owners
    }
}
