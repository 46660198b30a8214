//! Reads pending page changes again from the log, for pages whose changes are not in memory.

use crate::engine::page_changes::PageChanges;
use firndb_base::record_kind::KindOwner;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_btree::PageChange;
use firndb_log::{Log, LogError, LogErrorKind, LogIdentity, LogScan};
use std::collections::BTreeMap;

/// The log that has the changes which are not in memory.
pub(crate) struct PendingLog {
    pub log: Arc<Log>,
    /// As the log was opened.
    pub identity: LogIdentity,
}

impl PendingLog {
    /// Collects the changes since `from` of `wanted` pages, up to the LSN that is given for each:
    /// those of `asked`, and of the others as many as fit `budget`.
    pub fn changes(
        &self,
        from: Lsn,
        asked: PageId,
        mut wanted: BTreeMap<PageId, Lsn>,
        mut budget: usize,
    ) -> Result<BTreeMap<PageId, PageChanges>, LogError> {
        let end = wanted.values().copied().fold(Lsn::ZERO, Lsn::max);
        // Its devices may have changed since the opening.
        let (members, devices) = self.log.members().into_iter().unzip();
        let identity = LogIdentity { members, ..self.identity.clone() };
        let scan = LogScan::up_to(devices, identity, from, self.log.on_devices(), &mut |_, _| {})?;
        let mut records = scan.records(from);
        let mut collected: BTreeMap<PageId, PageChanges> = BTreeMap::new();
        while let Some((lsn, record)) = records.next()?
            && lsn <= end
        {
            let Some(KindOwner::Tree) = record.kind.owner() else { continue };
            let change = PageChange::decode(record).map_err(|error| {
                let message = format!("the log record at LSN {lsn} is damaged: {error}");
                LogError::new(LogErrorKind::Damaged, message)
            })?;
            let page = change.page;
            if wanted.get(&page).is_none_or(|last| lsn > *last) {
                continue;
            }
            let of_others = page != asked;
            if (change.frees() || change.overwrites())
                && let Some(before) = collected.remove(&page)
                && of_others
            {
                budget += before.size();
            }
            if change.frees() {
                continue;
            }
            let changes = collected.entry(page).or_insert_with(|| PageChanges::new(lsn));
            let before = if changes.bytes.is_empty() { 0 } else { changes.size() };
            changes.push(lsn, record.kind, &change);
            if of_others {
                let grown = changes.size() - before;
                if grown > budget {
                    // It gets a pass of its own.
                    budget += before;
                    collected.remove(&page);
                    wanted.remove(&page);
                } else {
                    budget -= grown;
                }
            }
        }
        Ok(collected)
    }
}
