//! What the tests share: a catalog over a log and a tier in memory.
use firndb_base::sync::Arc;
use firndb_base::{Progress, TreeId, TxnId};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::LogClass;
use firndb_table::*;
use firndb_tier::testing::MemoryTier;
use firndb_txn::{Isolation, ManagerOptions, Transaction, TxnManager, TxnOptions};

const UNDO_TREE: TreeId = TreeId(2);

pub struct World {
    pub tier: Arc<MemoryTier>,
    pool: Arc<BufferPool>,
    system: Tree,
    undo: Tree,
    pub manager: Arc<TxnManager>,
    pub catalog: Catalog,
}

impl World {
    pub fn new(page_size: usize) -> World {
        World::with_memory(page_size, 16 << 20)
    }

    /// With so little memory that most pages are read from the tier.
    pub fn with_memory(page_size: usize, budget_bytes: usize) -> World {
        let log = firndb_log::testing::memory_log_with(256 << 20);
        let tier = Arc::new(MemoryTier::new(page_size));
        let options = PoolOptions { budget_bytes };
        let pool = Arc::new(BufferPool::new(tier.clone(), log, options).expect("a pool"));
        let create = |id| Tree::create(pool.clone(), id, LogClass::System, &[]).expect("a tree");
        let (system, undo) = (create(SYSTEM_TREE), create(UNDO_TREE));
        let manager = new_manager(&pool, &undo, TxnId(1));
        let catalog = Catalog::open(manager.clone(), system.clone()).expect("an empty catalog");
        World { tier, pool, system, undo, manager, catalog }
    }

    /// The same database after a reopening: everything but the pages is forgotten. No transaction
    /// is open.
    pub fn reopened(self) -> World {
        let World { tier, pool, system, undo, manager, catalog } = self;
        let mut txn = manager.begin(TxnOptions::default());
        txn.put(&system, b"dropped/", b"").expect("an id is drawn");
        let next = TxnId(txn.id().expect("it wrote").0 + 1);
        txn.rollback().expect("rolled back");
        drop((manager, catalog));
        let manager = new_manager(&pool, &undo, next);
        let catalog = Catalog::open(manager.clone(), system.clone()).expect("a catalog");
        World { tier, pool, system, undo, manager, catalog }
    }

    pub fn begin(&self) -> Transaction {
        self.manager.begin(TxnOptions::default())
    }

    pub fn begin_at(&self, isolation: Isolation) -> Transaction {
        self.manager.begin(TxnOptions { isolation, ..TxnOptions::default() })
    }

    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Runs `work` beside a thread that reads ahead.
    pub fn with_reader<R>(&self, work: impl FnOnce() -> R) -> R {
        self.pool.begin_read_ahead();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    if self.pool.read_ahead_step() == Progress::Idle {
                        self.pool.wait_for_read_ahead(std::time::Duration::from_millis(1));
                    }
                }
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            self.pool.end_read_ahead();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub fn pages(&self) -> u64 {
        self.pool.tier().statistics().pages_allocated
    }

    /// Pages that belong to some tree: those of the catalog, and the undo tree's. No thread writes
    /// meanwhile.
    pub fn pages_of_trees(&self) -> u64 {
        let trees = self.catalog.trees().into_iter().map(|(_, tree)| tree).chain([self.undo.clone()]);
        trees.map(|tree| tree.check().expect("a check").pages.len() as u64).sum()
    }

    /// Drop steps until there is nothing to do.
    pub fn drop_all(&self) {
        while self.catalog.drop_step().expect("a drop step") == Progress::Worked {}
    }

    /// Checks a table and every tree of the catalog.
    pub fn assert_sound(&self, table: &Table) {
        let report = self.catalog.check_table(table).expect("a check");
        assert_eq!(report.damage, Vec::<String>::new());
        let again = self.catalog.check_table_within(table, 4).expect("a check in little memory");
        assert_eq!(again, report);
        for (name, entries) in &report.entries {
            assert_eq!(*entries, report.rows, "index {name:?} has one entry a row");
        }
        for (what, tree) in self.catalog.trees() {
            let report = tree.check().expect("a check");
            assert_eq!(report.damage, Vec::<String>::new(), "{what}");
        }
    }
}

fn new_manager(pool: &Arc<BufferPool>, undo: &Tree, next: TxnId) -> Arc<TxnManager> {
    TxnManager::new(pool.clone(), undo.clone(), next, TreeId(3), ManagerOptions::default())
}

/// people(id i64, name text, mail text NULL, age i32), primary key id, plain index by (name, age
/// descending), unique index by mail.
pub fn people(world: &World) -> Table {
    let columns = vec![
        Column::new("id", ColumnType::I64),
        Column::new("name", ColumnType::Text),
        Column::new("mail", ColumnType::Text).nullable(),
        Column::new("age", ColumnType::I32),
    ];
    let schema = Schema::with_key(columns, &["id"]).expect("a schema");
    world.catalog.create_table("people", TableKind::Typed(schema), people_indexes()).expect("a table")
}

pub fn people_indexes() -> Vec<IndexSpec> {
    vec![
        IndexSpec::columns("by_name", false, vec![KeyColumn::ascending(1), KeyColumn::descending(3)]),
        IndexSpec::columns("by_mail", true, vec![KeyColumn::ascending(2)]),
    ]
}

pub fn person<'a>(id: i64, name: &'a str, mail: Option<&'a str>, age: i32) -> [ValueRef<'a>; 4] {
    [id.into(), name.into(), mail.map_or(ValueRef::Null, ValueRef::Text), age.into()]
}

pub fn borrowed(row: &[Value]) -> Vec<ValueRef<'_>> {
    row.iter().map(Value::as_ref).collect()
}

/// Every row that the cursor has left.
pub fn rest(cursor: &mut TypedCursor, txn: &mut Transaction) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    while let Some(row) = cursor.next(txn).expect("a row or the end") {
        rows.push(row.to_vec());
    }
    rows
}
