//! Checking a whole database: every page, tree, index and log block.

use crate::{Database, Error, ErrorKind};
use firn_base::PageId;
use firn_btree::PageChange;
use firn_device::Device;
use firn_log::{Kind, LogScan};
use firn_tier::TierErrorKind;
use firn_tier::store::CheckProgress;
use std::collections::BTreeMap;

/// What a check is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckPhase {
    /// The page map and every page image; so many done of so many.
    Pages(u64, u64),
    /// A tree: what it is.
    Tree(String),
    /// A table against its indexes: its name.
    Table(String),
    /// The log since the redo start.
    Log,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Pages allocated.
    pub pages: u64,
    /// Page images read and verified.
    pub images: u64,
    /// Pages read and verified in the flash cache.
    pub cached: u64,
    /// Trees walked.
    pub trees: u64,
    /// Entries in them.
    pub entries: u64,
    /// Tables compared with their indexes.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Log records read and decoded.
    pub log_records: u64,
    /// Pages that are allocated and belong to nothing: space lost, no data.
    pub leaked_pages: u64,
    /// Sentences, one for each fault.
    pub damage: Vec<String>,
    /// Faults in all, those included that `damage` had no room for.
    pub faults: u64,
}

impl CheckReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults == 0
    }
    fn add(&mut self, sentence: String) {
        self.faults += 1;
        self.damage.push(sentence);
    }
}

impl Database {
    /// Walks every page, tree, index and log block and says what is wrong. Best on a database opened without
    /// background threads and with nobody else at work: pages that move meanwhile look like faults.
    ///
    /// Errors: only if the check itself could not go on.
    pub fn check(&self, progress: &mut dyn FnMut(CheckPhase)) -> Result<CheckReport, Error> {
        let engine = self.engine();
        engine.check_open()?;
        let mut report = CheckReport::default();
        match engine.finish_recovery() {
            // Everything dirty goes to the store or the cache, so that the images checked are the newest.
            Ok(()) => engine.checkpoint_all()?,
            Err(error) if error.kind() == ErrorKind::Damaged => report.add(format!("recovery: {error}")),
            Err(error) => return Err(error),
        }
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
        Ok(report)
    }

    fn check_trees(
        &self,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(CheckPhase),
    ) -> Result<(), Error> {
        let engine = self.engine();
        let mut owners: BTreeMap<PageId, Option<String>> = BTreeMap::new();
        let listed = engine.store.pages(&mut |page, _| {
            owners.insert(page, None);
        });
        // A damaged map page was reported above; which of its pages are allocated is not known then.
        let all_known = match listed {
            Ok(()) => true,
            Err(error) if error.kind == TierErrorKind::Damaged => false,
            Err(error) => return Err(error.into()),
        };
        let mut trees = engine.catalog.trees();
        trees.push(("the undo tree".to_owned(), engine.txns.undo_tree().clone()));
        for (what, tree) in trees {
            progress(CheckPhase::Tree(what.clone()));
            let found = match tree.check() {
                Ok(found) => found,
                Err(error) => {
                    report.add(format!("{what}: {error}"));
                    continue;
                }
            };
            report.trees += 1;
            report.entries += found.entries;
            // A dropped tree that is freed in pieces, of which a crash has left some. The rest of it counts
            // as leaked until the next piece is freed.
            let half_freed = found.being_cleared && what.starts_with("dropped ");
            for sentence in found.damage.iter().filter(|_| !half_freed) {
                report.add(format!("{what}: {sentence}"));
            }
            for page in found.pages {
                match owners.insert(page, Some(what.clone())) {
                    Some(None) => {}
                    Some(Some(other)) => report.add(format!("page {page} belongs to {what} and to {other}")),
                    None if all_known => report.add(format!("page {page} of {what} is not allocated")),
                    None => {}
                }
            }
        }
        report.leaked_pages = owners.values().filter(|owner| owner.is_none()).count() as u64;
        Ok(())
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
                    report.faults += found.findings - found.damage.len() as u64;
                    for sentence in found.damage {
                        report.add(sentence);
                    }
                }
                Err(error) => report.add(format!("table {name:?}: {error}")),
            }
        }
    }

    fn check_log(&self, report: &mut CheckReport) -> Result<(), Error> {
        let engine = self.engine();
        let redo_start = engine.superblock.lock().redo_start;
        let (identity, devices) = engine.log_view();
        engine.log.flush(engine.log.end())?;
        let scan = LogScan::up_to(devices, identity, redo_start, engine.log.on_devices(), &mut |_, _| {})?;
        let mut records = scan.records(redo_start);
        while let Some((lsn, record)) = records.next()? {
            report.log_records += 1;
            if let Kind(0x20..=0x3f) = record.kind
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
