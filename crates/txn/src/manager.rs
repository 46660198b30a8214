//! The transaction manager: what all transactions of a database share.

use crate::locks::LockTable;
use crate::ranks;
use crate::read::View;
use crate::registry::Registry;
use crate::snapshot::Snapshot;
use crate::state::{Entry, SpareMemory, TxnState};
use crate::undo::{Before, Undo};
use crate::waits::WaitGraph;
use crate::{RowHeader, Transaction, TxnError, TxnErrorKind, TxnOptions};
use firn_base::hash::FixedMap;
use firn_base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use firn_base::sync::{Arc, Mutex, OnceLock, RwLock};
use firn_base::{TreeId, TxnId};
use firn_btree::Tree;
use firn_buffer::BufferPool;
use firn_log::Log;
use std::collections::BTreeMap;

/// How transactions use memory.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// DRAM for before-images. Beyond it they spill to the undo tree.
    pub version_budget_bytes: usize,
}

impl Default for ManagerOptions {
    fn default() -> ManagerOptions {
        ManagerOptions { version_budget_bytes: 16 << 20 }
    }
}

/// Counters since opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxnStatistics {
    /// Transactions committed that wrote something.
    pub commits: u64,
    /// Transactions rolled back that had written something.
    pub rollbacks: u64,
    /// Waits for a lock.
    pub lock_waits: u64,
    /// Microseconds that transactions waited for locks, all together.
    pub lock_wait_us: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Write conflicts under snapshot isolation.
    pub conflicts: u64,
    /// Transactions that hold or wait for something now.
    pub active: u64,
    /// Snapshots in use.
    pub snapshots: u64,
    /// Bytes of before-images in memory.
    pub version_bytes: u64,
    /// Before-images spilled to the undo tree.
    pub spilled: u64,
    /// Ghost rows removed from their pages.
    pub ghosts_removed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub commits: AtomicU64,
    pub rollbacks: AtomicU64,
    pub conflicts: AtomicU64,
    pub spilled: AtomicU64,
    pub ghosts_removed: AtomicU64,
}

const SHARDS: usize = 32;

/// What all transactions of a database share.
pub struct TxnManager {
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) log: Arc<Log>,
    pub(crate) options: ManagerOptions,
    /// Spilled before-images, by (transaction, index).
    pub(crate) undo: Tree,
    pub(crate) registry: Mutex<Registry>,
    /// Transactions whose before-images may be needed: active ones, and committed ones until purged.
    shards: Vec<Mutex<FixedMap<TxnId, Arc<TxnState>>>>,
    /// Every transaction before this id has ended, for all to see. Never goes back.
    low_water: AtomicU64,
    pub(crate) locks: LockTable,
    pub(crate) waits: WaitGraph,
    /// Every tree with rows: rollback and purge find them by id.
    trees: RwLock<BTreeMap<TreeId, Tree>>,
    next_tree: AtomicU32,
    /// Bytes of before-images in memory.
    pub(crate) version_bytes: AtomicUsize,
    /// Ghosts of transactions whose before-images are purged, waiting for physical removal.
    pub(crate) ghosts: Mutex<Vec<Arc<TxnState>>>,
    /// Prepared transactions by their global ids.
    pub(crate) prepared: Mutex<BTreeMap<Vec<u8>, Arc<TxnState>>>,
    /// Those that were prepared and are being rolled back, because the log had no room at first: until who decided is told.
    /// Locked under `prepared`, or alone.
    pub(crate) unfinished: Mutex<BTreeMap<Vec<u8>, Arc<TxnState>>>,
    /// The undo tree may hold entries of ended transactions before this id: left by an earlier life.
    pub(crate) orphans_below: AtomicU64,
    /// Transactions that recovery found and that are still to be rolled back. Locked alone.
    pub(crate) losers: Mutex<BTreeMap<TxnId, Arc<TxnState>>>,
    /// Held while one of them is being rolled back, by whoever does it; with no latch and no lock taken before.
    pub(crate) undoing: Mutex<()>,
    /// Whether waiters roll back what they would wait for.
    pub(crate) waiters_undo: AtomicBool,
    /// Some losers are here because the log had no room to undo them. Changes under the lock of `losers`.
    pub(crate) put_off: AtomicBool,
    pub(crate) counters: Counters,
    /// Locked alone.
    pub(crate) spare: SpareMemory,
    /// Committed transactions up to this sequence have no before-images in memory any more.
    pub(crate) ended_spilled: AtomicU64,
    broken: AtomicBool,
    broken_by: OnceLock<TxnError>,
    /// See [`TxnManager::make_room_with`].
    pub(crate) room: OnceLock<Box<RoomFn>>,
}

/// Makes room in the log; told whether the log has refused a record.
pub(crate) type RoomFn = dyn Fn(bool) -> Result<(), TxnError> + Send + Sync;

impl TxnManager {
    /// A manager over the pages and the log of one database. `undo` is the undo tree; `next_txn` and
    /// `next_tree` are past every id ever given out.
    #[must_use]
    pub fn new(
        pool: Arc<BufferPool>,
        undo: Tree,
        next_txn: TxnId,
        next_tree: TreeId,
        options: ManagerOptions,
    ) -> Arc<TxnManager> {
        assert!(next_txn.0 > 0, "id zero stands for rows that were always there");
        let log = pool.log().clone();
        Arc::new(TxnManager {
            pool,
            log,
            options,
            undo,
            registry: ranks::REGISTRY.mutex(Registry::new(next_txn)),
            shards: (0..SHARDS).map(|_| ranks::SHARD.mutex(FixedMap::default())).collect(),
            low_water: AtomicU64::new(0),
            locks: LockTable::default(),
            waits: WaitGraph::default(),
            trees: RwLock::default(),
            next_tree: AtomicU32::new(next_tree.0),
            version_bytes: AtomicUsize::new(0),
            ghosts: Mutex::default(),
            prepared: ranks::PREPARED.mutex(BTreeMap::new()),
            unfinished: Mutex::default(),
            orphans_below: AtomicU64::new(next_txn.0),
            losers: Mutex::default(),
            undoing: Mutex::default(),
            waiters_undo: AtomicBool::new(false),
            put_off: AtomicBool::new(false),
            counters: Counters::default(),
            spare: SpareMemory::default(),
            ended_spilled: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            broken_by: OnceLock::new(),
            room: OnceLock::new(),
        })
    }

    /// Begins a transaction. Costs nothing until it reads or writes.
    #[must_use]
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Transaction {
        Transaction::new(self.clone(), options)
    }

    /// The log that commits go to.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }
    /// The pool that pages are in.
    #[must_use]
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// The tree of spilled before-images.
    #[must_use]
    pub fn undo_tree(&self) -> &Tree {
        &self.undo
    }

    /// Makes a tree known to rollback and purge.
    pub fn register_tree(&self, tree: Tree) {
        self.next_tree.fetch_max(tree.id().0 + 1, Ordering::SeqCst);
        self.trees.write().insert(tree.id(), tree);
    }
    /// Forgets a tree that is gone.
    pub fn forget_tree(&self, id: TreeId) {
        self.trees.write().remove(&id);
    }
    /// A known tree.
    #[must_use]
    pub fn tree(&self, id: TreeId) -> Option<Tree> {
        self.trees.read().get(&id).cloned()
    }
    /// A tree id never used before.
    pub fn next_tree_id(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::SeqCst))
    }
    pub(crate) fn peek_next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Ordering::SeqCst))
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> TxnStatistics {
        let (active, snapshots) = {
            let registry = self.registry.lock();
            (registry.active.len() as u64, registry.snapshots_in_use())
        };
        let (lock_waits, lock_wait_us, deadlocks) = self.waits.counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TxnStatistics {
            commits: count(&self.counters.commits),
            rollbacks: count(&self.counters.rollbacks),
            conflicts: count(&self.counters.conflicts),
            spilled: count(&self.counters.spilled),
            ghosts_removed: count(&self.counters.ghosts_removed),
            lock_waits,
            lock_wait_us,
            deadlocks,
            active,
            snapshots,
            version_bytes: self.version_bytes.load(Ordering::Relaxed) as u64,
        }
    }

    /// Called between the pieces of a long statement, which may write more than the log holds, with no latch
    /// and no lock of the engine held. May wait for a checkpoint.
    ///
    /// Errors: `LogFull` if no room could be made.
    pub fn pace(&self) -> Result<(), TxnError> {
        self.check_usable()?;
        self.room.get().map_or(Ok(()), |room| room(false))
    }

    /// Refuses all further work: something happened after which going on could lose data.
    pub fn poison(&self, cause: TxnError) {
        let _ = self.broken_by.set(cause);
        self.broken.store(true, Ordering::SeqCst);
        // What they wait for may never end now.
        self.waits.wake_all();
    }

    /// Whether the manager was poisoned.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Hands in what makes room in the log. Undoing and [`TxnManager::pace`] ask it from time to time, with
    /// false; undoing also when the log has refused a record, with true. No latch and no lock of this crate is
    /// held then. Without it, undoing more than the log's reserve fails.
    pub fn make_room_with(&self, room: impl Fn(bool) -> Result<(), TxnError> + Send + Sync + 'static) {
        assert!(self.room.set(Box::new(room)).is_ok(), "set once, when the database is assembled");
    }

    /// Fails if the manager was poisoned.
    pub fn check_usable(&self) -> Result<(), TxnError> {
        if !self.broken.load(Ordering::Relaxed) {
            return Ok(());
        }
        let cause = self.broken_by.get().map_or("an earlier failure", |error| error.message.as_str());
        Err(TxnError::new(
            TxnErrorKind::Failed,
            format!("the database must be opened again, because of: {cause}"),
        ))
    }

    fn shard(&self, id: TxnId) -> &Mutex<FixedMap<TxnId, Arc<TxnState>>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// Gives a transaction an id: from here on others can meet it.
    pub(crate) fn enroll(&self) -> Arc<TxnState> {
        let state = self.registry.lock().begin();
        state.versions.lock().adopt(self.spare.take());
        self.shard(state.id).lock().insert(state.id, state.clone());
        state
    }
    pub(crate) fn enroll_found(&self, state: Arc<TxnState>) {
        self.shard(state.id).lock().insert(state.id, state.clone());
        self.registry.lock().adopt(state);
    }
    /// Forgets a transaction whose before-images nobody needs.
    pub(crate) fn retire(&self, id: TxnId) {
        self.shard(id).lock().remove(&id);
    }
    pub(crate) fn find(&self, id: TxnId) -> Option<Arc<TxnState>> {
        self.shard(id).lock().get(&id).cloned()
    }

    /// Whether a transaction has ended. True is for ever.
    pub(crate) fn has_ended(&self, id: TxnId) -> bool {
        id.0 < self.low_water.load(Ordering::SeqCst) || self.find(id).is_none_or(|state| state.has_ended())
    }

    pub(crate) fn is_prepared(&self, id: TxnId) -> bool {
        self.find(id).is_some_and(|state| state.status() == crate::state::Status::Prepared)
    }

    pub(crate) fn low_water(&self) -> TxnId {
        TxnId(self.low_water.load(Ordering::SeqCst))
    }
    /// Called with a value read under the registry's lock.
    pub(crate) fn raise_low_water(&self, low: TxnId) {
        self.low_water.fetch_max(low.0, Ordering::SeqCst);
    }

    pub(crate) fn take_snapshot(&self) -> Snapshot {
        self.registry.lock().snapshot()
    }
    pub(crate) fn release_snapshot(&self, snapshot: &Snapshot) {
        self.registry.lock().release(snapshot);
    }
    pub(crate) fn view<'a>(&'a self, me: Option<TxnId>, snapshot: &'a Snapshot) -> View<'a> {
        View { manager: self, me, snapshot }
    }

    /// Copies a transaction's undo entry into `out`; false if there is none.
    pub(crate) fn read_undo(
        &self,
        state: &TxnState,
        index: u32,
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let entry = state.versions.lock().read(index, out);
        match entry {
            Entry::Copied => Ok(true),
            Entry::None => Ok(false),
            Entry::InUndoTree => self
                .undo
                .get(&undo_key(state.id, index), |value| match value {
                    Some(value) => {
                        out.clear();
                        out.extend_from_slice(value);
                        true
                    }
                    None => false,
                })
                .map_err(TxnError::from),
        }
    }

    /// Goes one version back: turns `payload`, the version written by (`writer`, `index`), into the one
    /// before and answers its header; `None` if there was no row.
    pub(crate) fn step_back(
        &self,
        header: RowHeader,
        payload: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<RowHeader>, TxnError> {
        let missing = || {
            TxnError::new(
                TxnErrorKind::Damaged,
                format!("before-image {} of transaction {} is missing", header.undo, header.writer),
            )
        };
        let state = self.find(header.writer).ok_or_else(missing)?;
        if !self.read_undo(&state, header.undo, scratch)? {
            return Err(missing());
        }
        match Undo::decode(scratch)? {
            Undo::Row { before: Before::Absent, .. } => Ok(None),
            Undo::Row { before: Before::Full(before, old), .. } => {
                payload.clear();
                payload.extend_from_slice(old);
                Ok(Some(before))
            }
            Undo::Row { before: Before::Patch(before, patches), .. } => {
                patches.apply(payload)?;
                Ok(Some(before))
            }
            Undo::TreeCreated { .. } => Err(missing()),
        }
    }
}

/// Key of a spilled entry: ordered by transaction, then index.
pub(crate) fn undo_key(id: TxnId, index: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.0.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}
