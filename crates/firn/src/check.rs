//! Checking a whole database: every page, tree, index and log block.

use crate::database::Database;
use crate::error::Error;
use crate::options::callbacks::StoreEventKind;
use crate::page_set::PageSet;
use firndb_base::record_kind::KindOwner;
use firndb_base::{Lsn, PageId, TreeId};
use firndb_btree::{PageChange, Tree};
use firndb_device::Device;
use firndb_log::LogScan;
use firndb_table::TableErrorKind;
use firndb_tier::PageTier;
use firndb_tier::store::{CheckProgress, Store};
use firndb_txn::SetAside;
use std::collections::BTreeMap;

/// Progress of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckPhase {
    /// The page map and every page image: pages checked, and their total.
    Pages(u64, u64),
    /// A tree, by what it is.
    Tree(String),
    /// A table against its indexes, by its name.
    Table(String),
    /// The log since the redo start.
    Log,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Pages allocated.
    pub pages: u64,
    /// Page images read and verified.
    pub images: u64,
    /// Pages read and verified in the flash cache.
    pub cached: u64,
    /// Trees walked.
    pub trees: u64,
    /// Entries in the trees.
    pub entries: u64,
    /// Tables compared with their indexes.
    pub tables: u64,
    /// Rows in the tables.
    pub rows: u64,
    /// Page files.
    pub page_files: u64,
    /// Pages that page files hold, superseded ones that are not freed yet among them.
    pub file_pages: u64,
    /// Pages that large values hold, those to be freed among them.
    pub value_pages: u64,
    /// Log records read and decoded.
    pub log_records: u64,
    /// Pages that are allocated and belong to nothing: space is lost, no data.
    pub leaked_pages: u64,
    /// One sentence for each fault.
    pub damage: Vec<String>,
    /// All faults, including those beyond the capacity of `damage`.
    pub faults: u64,
}

impl Database {
    /// Asserts what the flash cache and the transactions promise of their structures in memory. For
    /// tests and simulations.
    #[doc(hidden)]
    pub fn check_memory(&self) {
        let engine = self.engine();
        if let Some(cache) = engine.tier.cache() {
            cache.check_memory();
        }
        engine.txns.check();
    }
}

impl CheckReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults == 0
    }
    fn add(&mut self, sentence: String) {
        self.faults += 1;
        self.say(sentence);
    }
    /// Adds the sentence for a fault that is counted already.
    fn say(&mut self, sentence: String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(sentence);
        }
    }
}

/// Most sentences in a report.
const DAMAGE_MAX: usize = 10_000;
/// Looks at all trees once more before a page is called leaked.
const LOOKS_MORE: u32 = 2;
/// Attempts to read a log that is overwritten each time before it is read.
const LOG_ATTEMPTS: u32 = 4;

/// Which pages are allocated and which belong to trees: two bits a page.
struct Pages<'a> {
    store: &'a Store,
    /// Allocated when the check began.
    allocated: PageSet,
    /// Whether `allocated` is complete.
    all_known: bool,
    /// Seen in a tree, or named by an entry.
    owned: PageSet,
    /// Found in the tree that is being walked, and not allocated.
    unallocated: Vec<PageId>,
}

impl<'a> Pages<'a> {
    fn new(store: &'a Store) -> Pages<'a> {
        Pages {
            store,
            allocated: PageSet::default(),
            all_known: true,
            owned: PageSet::default(),
            unallocated: Vec::new(),
        }
    }

    /// A tree holds the page, which is latched: it cannot be freed or allocated now.
    fn saw(&mut self, page: PageId) {
        if self.allocated.contains(page) {
            self.owned.insert(page);
        } else if self.all_known
            && self.unallocated.len() < DAMAGE_MAX
            // Allocated since the check began, perhaps.
            && self.store.version_of(page).is_ok_and(|version| version.is_none())
        {
            self.unallocated.push(page);
        }
    }
}

impl Database {
    /// Walks every page, tree, index and log block and reports what is wrong. Other threads may
    /// work meanwhile, and wait for one of its requests at most; what they change while it runs may
    /// be checked before or after the change. Memory: less than a byte a page, and up to 24 MiB for
    /// the names of large values. Of a store over several devices all fragments are read; of a
    /// database opened read-only, those that are wrong are faults, whatever the others make up for.
    ///
    /// Errors: only if the check itself could not go on.
    pub fn check(&self, progress: &mut dyn FnMut(CheckPhase)) -> Result<CheckReport, Error> {
        let engine = self.engine();
        engine.check_open()?;
        let mut report = CheckReport::default();
        let array = engine.devices.store_array.as_ref().map(|it| &it.array);
        let unmended = array.map(|array| (array, array.unmended()));
        match engine.finish_recovery() {
            // Of a database opened read-only, the images and the log in its files are checked.
            Ok(()) if engine.is_read_only() => {}
            // All dirty pages are written to the store or the cache, so that the images checked are
            // the newest.
            Ok(()) => match engine.checkpoint_all() {
                Err(error) if error.concerns_a_page() => report.add(format!("the checkpoint: {error}")),
                outcome => outcome?,
            },
            Err(error) if error.concerns_a_page() => report.add(format!("recovery: {error}")),
            Err(error) => return Err(error),
        }
        let set_aside = engine.txns.work_set_aside().0.into_iter().chain(engine.recovery.set_aside());
        set_aside.for_each(|SetAside { work, cause, .. }| report.add(format!("{work}: {cause}")));
        let store = engine.store.check(true, &mut |step| {
            if let CheckProgress::Images(done, total) = step {
                progress(CheckPhase::Pages(done, total));
            }
        })?;
        report.pages = store.pages;
        report.images = store.images_read;
        report.faults += store.faults;
        report.damage.extend(store.damage);
        if let Some(cache) = engine.tier.cache() {
            report.cached = cache.check(&mut |sentence| report.add(sentence))?;
        }
        self.check_trees(&mut report, progress)?;
        self.check_tables(&mut report, progress);
        progress(CheckPhase::Log);
        if let Err(error) = self.check_log(&mut report) {
            report.add(format!("the log: {error}"));
        }
        self.note_what_others_made_up_for(&mut report);
        if let Some((unmended, sentence)) = unmended.and_then(|(array, before)| array.unmended_since(before))
        {
            report.faults += unmended;
            report.say(sentence);
        }
        Ok(report)
    }

    /// Of a database opened read-only, what was found wrong on devices of the store since opening
    /// is so still. Otherwise it was written anew, which was reported, or could not be.
    fn note_what_others_made_up_for(&self, report: &mut CheckReport) {
        let Some(devices) = self.store_array().filter(|_| self.is_read_only()) else { return };
        report.faults += devices.devices.iter().map(|device| device.repairs).sum::<u64>();
        let repaired = self.store_events().into_iter().filter(|event| event.kind == StoreEventKind::Repaired);
        repaired.for_each(|event| report.say(event.message));
    }

    /// Every tree, by what it is.
    fn all_trees(&self) -> Vec<(String, Tree)> {
        let engine = self.engine();
        let mut trees = engine.catalog.trees();
        trees.push(("the undo tree".to_owned(), engine.txns.undo_tree().clone()));
        trees
    }

    /// Walks every tree, and compares their pages with those that the map calls allocated. Other
    /// threads may work meanwhile: a fault that their work may explain is checked again.
    fn check_trees(
        &self,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(CheckPhase),
    ) -> Result<(), Error> {
        let engine = self.engine();
        let began = engine.log.end();
        engine.catalog.settle();
        let mut pages = Pages::new(&engine.store);
        match engine.store.pages(&mut |page, _| pages.allocated.insert(page)) {
            Ok(()) => {}
            // A damaged map page was reported above; which of its pages are allocated is unknown
            // then.
            Err(error) if error.concerns_the_page() => pages.all_known = false,
            Err(error) => return Err(error.into()),
        }
        let mut walked: BTreeMap<TreeId, String> = BTreeMap::new();
        // Again, for trees that were created meanwhile: a page is leaked only if no tree has it at
        // the end.
        let mut unread = BTreeMap::new();
        loop {
            let before = walked.len();
            // First: one that is loaded or dropped meanwhile is in one of the lists at least.
            unread.extend(engine.catalog.unread_trees().into_iter().map(|(_, tree)| (tree.id(), tree)));
            for (what, tree) in self.all_trees() {
                match walked.get(&tree.id()) {
                    None => {
                        progress(CheckPhase::Tree(what.clone()));
                        walked.insert(tree.id(), what.clone());
                        self.check_tree(&what, &tree, &mut pages, report);
                    }
                    Some(other) if *other != what && self.are_two(tree.id(), other, &what) => {
                        report.add(format!("{what} and {other} are the same tree {}", tree.id()));
                    }
                    Some(_) => {}
                }
            }
            if walked.len() == before {
                break;
            }
        }
        for tree in unread.values() {
            tree.visit_pages(&mut |page| pages.saw(page));
        }
        // What others freed meanwhile.
        pages.unallocated.clear();
        self.check_named_pages(&mut pages, report);
        if pages.owned.len() < pages.allocated.len() {
            // A page that was superseded, or its replacement undone, while both trees concerned
            // were walked, is found the second time.
            self.check_named_pages(&mut pages, &mut CheckReport::default());
        }
        let mut lost = self.lost_pages(&pages, began)?;
        for _ in 0..LOOKS_MORE {
            if lost == 0 {
                break;
            }
            self.look_again(&mut pages);
            lost = self.lost_pages(&pages, began)?;
        }
        report.leaked_pages += lost;
        Ok(())
    }

    /// Pages that no tree has. Such a page had none when the walk began, if nothing has changed it
    /// since.
    fn lost_pages(&self, pages: &Pages<'_>, began: Lsn) -> Result<u64, Error> {
        let mut lost = 0;
        let listed = self.engine().store.pages(&mut |page, version| {
            let is_lost = pages.allocated.contains(page) && !pages.owned.contains(page) && version < began;
            lost += u64::from(is_lost);
        });
        match listed {
            Err(error) if !error.concerns_the_page() => Err(error.into()),
            _ => Ok(lost),
        }
    }

    /// Notes the pages of all trees once more, without their leaves: of a tree that was being
    /// freed, or whose nodes were moving, a walk may have passed some by.
    fn look_again(&self, pages: &mut Pages<'_>) {
        let unread = self.engine().catalog.unread_trees();
        for (_, tree) in unread.into_iter().chain(self.all_trees()) {
            tree.visit_pages(&mut |page| pages.saw(page));
        }
        self.check_named_pages(pages, &mut CheckReport::default());
        pages.unallocated.clear();
    }

    /// Notes the pages that page files and large values hold.
    fn check_named_pages(&self, pages: &mut Pages<'_>, report: &mut CheckReport) {
        let engine = self.engine();
        report.page_files = engine.catalog.page_file_names().len() as u64;
        for owner in engine.catalog.page_owners() {
            let held = match owner.is_of_large_values() {
                true => &mut report.value_pages,
                false => &mut report.file_pages,
            };
            let shown = owner.pages(&mut |page| {
                *held += 1;
                pages.saw(page);
            });
            // What is damaged as a tree was reported above.
            if let Err(error) = shown
                && error.kind == TableErrorKind::Damaged
                && self.still_is(&owner.what, owner.tree.id())
            {
                report.add(format!("{}: {error}", owner.what));
            }
            self.report_unallocated(&owner.what, owner.tree.id(), pages, report);
        }
    }

    /// Whether two trees are still listed under one number: not if a table was dropped or renamed
    /// meanwhile.
    fn are_two(&self, id: TreeId, one: &str, other: &str) -> bool {
        let listed: Vec<String> =
            self.all_trees().into_iter().filter(|(_, tree)| tree.id() == id).map(|(what, _)| what).collect();
        listed.iter().any(|what| what == one) && listed.iter().any(|what| what == other)
    }

    fn check_tree(&self, what: &str, tree: &Tree, pages: &mut Pages<'_>, report: &mut CheckReport) {
        let found = match tree.check_with(&mut |page| pages.saw(page)) {
            Ok(found) => found,
            Err(error) if self.still_is(what, tree.id()) => return report.add(format!("{what}: {error}")),
            Err(_) => return pages.unallocated.clear(),
        };
        report.trees += 1;
        report.entries += found.entries;
        // A dropped tree that is freed in pieces, of which a crash has left some. Its other pages
        // count as leaked until the next piece is freed.
        let half_freed = found.being_cleared && what.starts_with("dropped ");
        if found.faults > 0 && !half_freed && self.still_is(what, tree.id()) {
            found.damage.into_iter().for_each(|sentence| report.say(format!("{what}: {sentence}")));
            report.faults += found.faults;
        }
        self.report_unallocated(what, tree.id(), pages, report);
    }

    /// Reports pages of a tree that the map calls free, unless the tree was dropped since.
    fn report_unallocated(&self, what: &str, id: TreeId, pages: &mut Pages<'_>, report: &mut CheckReport) {
        let found = std::mem::take(&mut pages.unallocated);
        if !found.is_empty() && self.still_is(what, id) {
            found.iter().for_each(|page| report.add(format!("page {page} of {what} is not allocated")));
        }
    }

    /// Whether a tree is still listed as what it was: not if it was dropped since, and is being
    /// freed or is gone. A step that frees it keeps it listed until after its last page is freed,
    /// so that is asked first.
    fn still_is(&self, what: &str, id: TreeId) -> bool {
        if self.engine().catalog.is_being_freed(id) {
            return false;
        }
        self.all_trees().iter().any(|(now, tree)| tree.id() == id && now == what)
    }

    fn check_tables(&self, report: &mut CheckReport, progress: &mut dyn FnMut(CheckPhase)) {
        let engine = self.engine();
        for name in engine.catalog.names() {
            progress(CheckPhase::Table(name.clone()));
            let found = engine.catalog.table(&name).and_then(|table| engine.catalog.check_table(&table));
            match found {
                Ok(found) => {
                    report.tables += 1;
                    report.rows += found.rows;
                    report.faults += found.findings;
                    found.damage.into_iter().for_each(|sentence| report.say(sentence));
                }
                // It was dropped or renamed since it was listed.
                Err(_) if !engine.catalog.names().contains(&name) => {}
                Err(error) => report.add(format!("table {name:?}: {error}")),
            }
        }
    }

    /// Reads the log from the redo start on. The check does not retain it, since writers would wait
    /// for a log that is nearly full: where it is truncated and overwritten meanwhile, it is read
    /// again from the new redo start.
    fn check_log(&self, report: &mut CheckReport) -> Result<(), Error> {
        let engine = self.engine();
        for _ in 0..LOG_ATTEMPTS {
            let redo_start = engine.superblock.lock().redo_start;
            report.log_records = 0;
            match self.read_log(redo_start, report) {
                Err(_) if engine.log.space().oldest > redo_start => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    fn read_log(&self, redo_start: Lsn, report: &mut CheckReport) -> Result<(), Error> {
        let engine = self.engine();
        let (identity, devices) = engine.log_view();
        engine.log.flush(engine.log.end())?;
        let scan = LogScan::up_to(devices, identity, redo_start, engine.log.on_devices(), &mut |_, _| {})?;
        let mut records = scan.records(redo_start);
        while let Some((lsn, record)) = records.next()? {
            report.log_records += 1;
            if let Some(KindOwner::Tree) = record.kind.owner()
                && let Err(error) = PageChange::decode(record)
            {
                report.add(format!("log record at LSN {lsn}: {error}"));
            }
        }
        Ok(())
    }

    /// Bytes on its devices, in all.
    #[must_use]
    pub fn size_on_devices(&self) -> u64 {
        let devices = &self.engine().devices;
        let cache = devices.cache().map_or(0, |cache| cache.len());
        let logs = devices.logs.list().iter().map(|(_, log)| log.len()).sum::<u64>();
        logs + devices.store.len() + devices.superblock.len() + cache
    }
}

#[cfg(test)]
mod listed;
