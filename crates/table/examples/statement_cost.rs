//! What a statement costs above the transaction layer: nanoseconds a statement, everything in
//! memory.
//!
//! `cargo run --release -p firndb-table --example statement_cost`

use firndb_base::sync::Arc;
use firndb_base::{TreeId, TxnId, clock};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::LogClass;
use firndb_table::{Catalog, SYSTEM_TREE, TableKind};
use firndb_tier::testing::MemoryTier;
use firndb_txn::{ManagerOptions, Transaction, TxnManager, TxnOptions};

const ROWS: u64 = 1000;
const ROUNDS: u64 = 200;

fn main() {
    let log = firndb_log::testing::memory_log_with(512 << 20);
    let tier = Arc::new(MemoryTier::new(4096));
    let pool = Arc::new(BufferPool::new(tier, log, PoolOptions { budget_bytes: 16 << 20 }).expect("a pool"));
    let create = |id| Tree::create(pool.clone(), id, LogClass::System, &[]).expect("a tree");
    let (system, undo) = (create(SYSTEM_TREE), create(TreeId(2)));
    let manager = TxnManager::new(pool, undo, TxnId(1), TreeId(16), ManagerOptions::default());
    let catalog = Catalog::open(manager.clone(), system).expect("a catalog");
    let table = catalog.create_table("t", TableKind::Raw, vec![]).expect("a table");
    let tree = manager.tree(table.id()).expect("its tree");
    let mut old = Vec::new();
    for name in ["first round", "again"] {
        let put = measure(&manager, |txn, key, value| {
            table.put(txn, key, value).expect("written");
        });
        let bare = measure(&manager, |txn, key, value| {
            txn.replace_flagged(&tree, key, value.into(), &mut old).expect("written");
        });
        println!("{name}: put {put} ns, of these {bare} ns below the table floor");
    }
    let mut row = Vec::new();
    let get = measure(&manager, |txn, key, _| assert!(table.get(txn, key, &mut row).expect("read")));
    let bare = measure(&manager, |txn, key, _| assert!(txn.get(&tree, key, &mut row).expect("read")));
    println!("get {get} ns, of these {bare} ns below the table floor");
}

/// Nanoseconds a statement.
fn measure(manager: &Arc<TxnManager>, mut statement: impl FnMut(&mut Transaction, &[u8], &[u8])) -> u64 {
    let start = clock::now();
    for round in 0..ROUNDS {
        let mut txn = manager.begin(TxnOptions::default());
        for row in 0..ROWS {
            statement(&mut txn, &row.to_be_bytes(), &[round as u8; 40]);
        }
        txn.commit_order().expect("committed");
    }
    (start.elapsed().as_nanos() / u128::from(ROWS * ROUNDS)) as u64
}
