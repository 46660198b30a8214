//! What the tests share: a manager over a log and a tier in memory.
use firndb_base::sync::Arc;
use firndb_base::{TreeId, TxnId};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Kind, LogClass, Record};
use firndb_tier::testing::MemoryTier;
use firndb_txn::{Isolation, ManagerOptions, Transaction, TxnManager, TxnOptions};

const UNDO_TREE: TreeId = TreeId(2);
const TREE: TreeId = TreeId(16);

pub struct World {
    pub manager: Arc<TxnManager>,
    pub tree: Tree,
}

impl World {
    pub fn new(options: ManagerOptions) -> World {
        World::with_log(64 << 20, options)
    }

    pub fn with_log(bytes: u64, options: ManagerOptions) -> World {
        let log = firndb_log::testing::memory_log_with(bytes);
        let tier = Arc::new(MemoryTier::new(1024));
        let pool =
            Arc::new(BufferPool::new(tier, log, PoolOptions { budget_bytes: 8 << 20 }).expect("a pool"));
        let create = |id| Tree::create(pool.clone(), id, LogClass::System, &[]).expect("a tree");
        let (undo, tree) = (create(UNDO_TREE), create(TREE));
        let manager = TxnManager::new(pool, undo, TxnId(1), TreeId(17), options);
        manager.register_tree(tree.clone());
        World { manager, tree }
    }

    /// Fills the log until what `class` may take is used up.
    pub fn fill_log(&self, class: LogClass) {
        let log = self.manager.log();
        for len in [4000, 300] {
            let body = vec![0; len];
            while log.append(class, Record { kind: Kind(0x7f), body: &body }).is_ok() {
                log.flush(log.end()).expect("a device in memory");
            }
        }
    }

    /// Truncates all log so far, as a checkpoint would.
    pub fn empty_log(&self) {
        let log = self.manager.log();
        log.flush(log.end()).expect("a device in memory");
        log.truncate(log.end());
    }

    pub fn begin(&self) -> Transaction {
        self.manager.begin(TxnOptions::default())
    }

    pub fn begin_at(&self, isolation: Isolation) -> Transaction {
        self.manager.begin(TxnOptions { isolation, ..TxnOptions::default() })
    }
}
