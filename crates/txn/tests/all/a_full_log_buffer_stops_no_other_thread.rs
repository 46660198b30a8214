//! While a log device stalls and the log's buffer is full, threads that append wait; threads that
//! need no log do not wait with them: neither for the registry, which every transaction locks, nor
//! for the leaf in which a change waits to be made.

use firndb_base::sync::Arc;
use firndb_base::{Epoch, TreeId, TxnId};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, Record, testing};
use firndb_testkit::gate::{Gate, Mode};
use firndb_tier::testing::MemoryTier;
use firndb_txn::{Isolation, ManagerOptions, Transaction, TxnManager, TxnOptions};
use std::sync::mpsc;
use std::time::Duration;

struct World {
    gate: Gate,
    log: Arc<Log>,
    manager: Arc<TxnManager>,
    tree: Tree,
}

impl World {
    fn new() -> World {
        let gate = Gate::default();
        let device = gate.over(testing::memory_device("log", 16 << 20));
        let options = LogOptions { buffer_bytes: 16 << 10, ..testing::options() };
        let log = Log::create(vec![device], testing::identity(1), Epoch(1), options).unwrap();
        let pool = PoolOptions { budget_bytes: 8 << 20 };
        let pool = Arc::new(BufferPool::new(Arc::new(MemoryTier::new(1024)), log.clone(), pool).unwrap());
        let create = |id| Tree::create(pool.clone(), id, LogClass::System, &[]).unwrap();
        let (undo, tree) = (create(TreeId(2)), create(TreeId(16)));
        let manager = TxnManager::new(pool, undo, TxnId(1), TreeId(17), ManagerOptions::default());
        manager.register_tree(tree.clone());
        World { gate, log, manager, tree }
    }

    fn begin(&self) -> Transaction {
        self.manager.begin(TxnOptions { isolation: Isolation::Snapshot, ..TxnOptions::default() })
    }

    /// Closes the device and fills the log's buffer to the last byte.
    fn fill_buffer(&self) {
        self.gate.set(Mode::Shut);
        for len in [1000, 100, 10, 0] {
            let record = || Record { kind: Kind(0x60), body: &[7; 1000][..len] };
            let refused = std::iter::repeat_with(|| self.log.try_append(LogClass::System, record()))
                .find_map(Result::err)
                .expect("it has an end");
            assert_eq!(refused.kind, LogErrorKind::BufferFull, "{}", refused.message);
        }
    }

    /// Runs `appends` on a thread that will wait for the device, and `reads` beside it, which must
    /// end before.
    fn beside(&self, appends: impl FnOnce() + Send, reads: impl FnOnce() + Send) {
        let before = self.log.statistics().buffer_waits;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(appends);
            while self.log.statistics().buffer_waits == before {
                std::thread::yield_now();
            }
            let (done, told) = mpsc::channel();
            scope.spawn(move || {
                reads();
                done.send(()).unwrap();
            });
            let outcome = told.recv_timeout(Duration::from_secs(20));
            assert!(!waiting.is_finished(), "the device is closed, and the buffer full");
            self.gate.set(Mode::Open);
            outcome.expect("a thread that appends nothing does not wait");
        });
    }
}

#[test]
fn at_a_commit() {
    let world = World::new();
    let mut txn = world.begin();
    txn.put(&world.tree, b"k", b"new").unwrap();
    world.fill_buffer();
    world.beside(
        || drop(txn.commit_order().unwrap()),
        || {
            // Each asks the registry.
            let mut other = world.begin();
            let mut found = Vec::new();
            assert!(!other.get(&world.tree, b"k", &mut found).unwrap(), "it is not committed yet");
            assert_eq!(world.manager.statistics().commits, 0);
            other.rollback().unwrap();
        },
    );
    let mut found = Vec::new();
    assert!(world.begin().get(&world.tree, b"k", &mut found).unwrap());
    assert_eq!(found, b"new");
}

#[test]
fn at_a_prepare() {
    let world = World::new();
    let mut txn = world.begin();
    txn.put(&world.tree, b"k", b"new").unwrap();
    world.fill_buffer();
    world.beside(
        || drop(txn.prepare(b"gid").unwrap()),
        || {
            let mut found = Vec::new();
            assert!(!world.begin().get(&world.tree, b"k", &mut found).unwrap());
        },
    );
    world.manager.commit_prepared(b"gid").unwrap();
}

#[test]
fn at_a_change_of_a_row() {
    let world = World::new();
    let mut txn = world.begin();
    txn.put(&world.tree, b"k", b"old").unwrap();
    txn.commit().unwrap();
    world.fill_buffer();
    let mut txn = world.begin();
    world.beside(
        || {
            txn.put(&world.tree, b"k", b"new").unwrap();
            txn.commit_order().unwrap();
        },
        || {
            // In the leaf that is to be changed.
            let mut found = Vec::new();
            assert!(world.begin().get(&world.tree, b"k", &mut found).unwrap());
            assert_eq!(found, b"old");
        },
    );
}
