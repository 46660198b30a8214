//! Creating trees within a transaction.

use crate::attachment::begin_change;
use crate::error::TxnError;
use crate::transaction::Transaction;
use crate::undo;
use crate::write::check_undo_index;
use firndb_btree::Tree;
use firndb_log::LogClass;

impl Transaction {
    /// Creates an empty tree, which is freed if this transaction is rolled back.
    pub fn create_tree(&mut self) -> Result<Tree, TxnError> {
        let tree = self.create_private_tree()?;
        self.manager.register_tree(tree.clone());
        Ok(tree)
    }

    /// As [`Transaction::create_tree`]; background work leaves the tree alone until the caller
    /// [registers](crate::TxnManager::register_tree) it, once this transaction has committed.
    pub fn create_private_tree(&mut self) -> Result<Tree, TxnError> {
        self.begin_write()?;
        let me = self.ensure_state()?;
        check_undo_index(self.next_index())?;
        let id = self.manager.next_tree_id();
        let state = self.state.clone().expect("ensured");
        let lsn = self.manager.log.end();
        // The entry is added before the record is appended, so that a checkpoint sees what it must
        // keep.
        let mut entry = Vec::new();
        undo::encode_tree_created(&mut entry, id, None);
        let index = {
            let mut versions = state.versions.lock();
            let index = versions.push(&entry, lsn);
            versions.promise(self.manager.log.undo_promise());
            index
        };
        let start = begin_change(&mut self.attachment, me, index);
        self.attachment.extend_from_slice(&entry);
        debug_assert_eq!(&self.attachment[start..], entry);
        let created = Tree::create(self.manager.pool.clone(), id, LogClass::Normal, &self.attachment);
        let mut versions = state.versions.lock();
        versions.pop();
        versions.promise(self.manager.log.undo_promise());
        let tree = created?;
        entry.clear();
        undo::encode_tree_created(&mut entry, id, Some(tree.root()));
        let again = versions.push(&entry, lsn);
        versions.promise(self.manager.log.undo_promise());
        versions.settle();
        assert_eq!(index, again, "no other thread adds to this transaction's entries");
        versions.account(&self.manager.version_bytes);
        drop(versions);
        self.exposed = true;
        Ok(tree)
    }
}
