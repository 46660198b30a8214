//! Tests of `write.rs`.

use super::*;

/// It was once an assertion in the caller's thread.
#[test]
fn a_change_beyond_the_last_undo_index_is_refused() {
    let log = firndb_log::testing::memory_log();
    let tier = firndb_base::sync::Arc::new(firndb_tier::testing::MemoryTier::new(1024));
    let options = firndb_buffer::PoolOptions { budget_bytes: 1 << 20 };
    let pool =
        firndb_base::sync::Arc::new(firndb_buffer::BufferPool::new(tier, log, options).expect("a pool"));
    let create = |id| Tree::create(pool.clone(), TreeId(id), LogClass::System, &[]).expect("a tree");
    let (undo, tree) = (create(2), create(16));
    let manager = crate::manager::TxnManager::new(
        pool,
        undo,
        TxnId(1),
        TreeId(17),
        crate::manager::ManagerOptions::default(),
    );
    manager.register_tree(tree.clone());
    let mut txn = manager.begin(crate::options::TxnOptions::default());
    txn.ensure_state().expect("an id");
    txn.state.as_ref().expect("ensured").versions.lock().start_at(RowHeader::UNDO_MAX - 1);
    txn.put(&tree, b"last", b"value").expect("the last one");
    let refused = [
        txn.put(&tree, b"key", b"value").expect_err("no index is left"),
        txn.update(&tree, b"last", b"other").expect_err("no index is left"),
        txn.remove(&tree, b"last", &mut Vec::new()).expect_err("no index is left"),
        txn.next_write().expect_err("no index is left"),
        txn.create_tree().err().expect("no index is left"),
    ];
    for error in refused {
        assert_eq!(error.kind, TxnErrorKind::TooLarge);
        assert!(error.message.contains("1073741824 changes"), "{error}");
    }
    txn.commit().expect("committed");
    let mut value = Vec::new();
    assert!(
        manager.begin(crate::options::TxnOptions::default()).get(&tree, b"last", &mut value).expect("read")
    );
    assert_eq!(value, b"value");
}
