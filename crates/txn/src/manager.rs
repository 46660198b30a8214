//! The transaction manager: what all transactions of a database share.

use crate::error::{TxnError, TxnErrorKind};
use crate::ghost_backlog::Backlog;
use crate::image_choice::{PageRecovery, WriteCosts};
use crate::image_costs::ImageCosts;
use crate::locks::LockTable;
use crate::losers::Loser;
use crate::prepared_list::PreparedList;
use crate::ranks;
use crate::registry::Registry;
use crate::set_aside::SetAsideList;
use crate::shadows::Shadows;
use crate::snapshot::Snapshot;
use crate::state::TxnState;
use crate::versions::Allowance;
use crate::waits::WaitGraph;
use firndb_base::hash::FixedMap;
use firndb_base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use firndb_base::sync::{Arc, Mutex, OnceLock, RwLock};
use firndb_base::{TreeId, TxnId};
use firndb_btree::Tree;
use firndb_buffer::BufferPool;
use firndb_log::Log;
use std::collections::BTreeMap;

/// How transactions use memory.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// DRAM for before-images, and for what is kept in memory of ended transactions for their sake.
    /// Beyond it they spill to the undo tree. Not counted are up to 32 KiB of each running
    /// transaction and of the 64 newest commits; less of both with a budget below 16 MiB.
    pub version_budget_bytes: usize,
    /// DRAM for private images of pages that transactions have put. A transaction that finds more
    /// in use writes its own early.
    pub page_file_bytes: usize,
    /// How these become durable.
    pub page_recovery: PageRecovery,
    /// What writing takes the devices, as far as it is known before anything is measured.
    pub write_costs: WriteCosts,
    /// Bytes of pages put that stay in DRAM before they are written to the store, about.
    pub kept_bytes: u64,
}

impl Default for ManagerOptions {
    fn default() -> ManagerOptions {
        ManagerOptions {
            version_budget_bytes: 16 << 20,
            page_file_bytes: 1 << 20,
            page_recovery: PageRecovery::default(),
            write_costs: WriteCosts::ASSUMED,
            kept_bytes: 1 << 20,
        }
    }
}

/// Counters since opening.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TxnStatistics {
    /// Transactions committed that wrote something.
    pub commits: u64,
    /// Transactions rolled back that had written something.
    pub rollbacks: u64,
    pub lock_waits: u64,
    /// Microseconds that transactions waited for locks, all together.
    pub lock_wait_us: u64,
    pub deadlocks: u64,
    /// Write conflicts under snapshot isolation.
    pub conflicts: u64,
    /// Transactions that hold or wait for something now.
    pub active: u64,
    pub snapshots: u64,
    /// Bytes of memory held for before-images, allocated and not only used; see
    /// [`ManagerOptions::version_budget_bytes`] for what is not counted.
    pub version_bytes: u64,
    /// Ended transactions kept in memory because a snapshot may need their before-images.
    pub kept: u64,
    /// Before-images spilled to the undo tree.
    pub spilled: u64,
    /// Ghost rows removed from their pages.
    pub ghosts_removed: u64,
    /// Bytes of memory that remember where ghosts are to be removed.
    pub ghost_bytes: u64,
    /// Images of page files written as shadows, and the writes that carried them.
    pub shadows: u64,
    pub shadow_writes: u64,
    /// Images of page files that were logged.
    pub images_logged: u64,
    /// Above how many images a transaction that commits alone would write them as shadows, if it
    /// chose by cost ([`PageRecovery::Adaptive`]); `None` if it would log any number.
    pub shadows_above: Option<u64>,
    /// Images of either kind that were written before their transaction ended, for lack of memory.
    pub images_early: u64,
    /// Bytes of memory of private images.
    pub image_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub rollbacks: AtomicU64,
    pub conflicts: AtomicU64,
    pub spilled: AtomicU64,
    pub ghosts_removed: AtomicU64,
}

const SHARDS: usize = 32;

/// This many transactions that write or lock may be open with every log.
const OPEN_ALWAYS: usize = 256;
/// With larger logs, one for this many bytes of the log's capacity: a checkpoint lists each in at
/// most 16 bytes, a sixty-fourth of the log then.
const OPEN_SHARE: u64 = 1024;

/// What all transactions of a database share.
pub struct TxnManager {
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) log: Arc<Log>,
    pub(crate) options: ManagerOptions,
    /// Spilled before-images, by (transaction, index).
    pub(crate) undo: Tree,
    pub(crate) registry: Mutex<Registry>,
    /// Transactions whose before-images may be needed: active ones, and committed ones until
    /// purged.
    shards: Vec<Mutex<FixedMap<TxnId, Arc<TxnState>>>>,
    /// Every transaction before this id has ended and is seen by every snapshot. Never decreases.
    low_water: AtomicU64,
    /// Transactions before this id began before the opening.
    pub(crate) first_txn: TxnId,
    pub(crate) locks: LockTable,
    pub(crate) waits: WaitGraph,
    /// Every tree with rows: rollback and purge find them by id.
    trees: RwLock<BTreeMap<TreeId, Tree>>,
    next_tree: AtomicU32,
    /// Bytes of before-images in memory.
    pub(crate) version_bytes: AtomicUsize,
    /// Bytes of private images.
    pub(crate) image_bytes: Arc<AtomicUsize>,
    pub(crate) shadows: Shadows,
    pub(crate) image_costs: ImageCosts,
    /// Ghosts waiting for physical removal.
    pub(crate) backlog: Backlog,
    pub(crate) allowance: Allowance,
    pub(crate) prepared: Mutex<PreparedList>,
    /// Transactions that are still to be rolled back, and not by their owners. Locked alone.
    pub(crate) losers: Mutex<BTreeMap<TxnId, Loser>>,
    /// Some losers were put off and are to be tried again. Changes under the lock of `losers`.
    pub(crate) put_off: AtomicBool,
    /// Why not every tree is known that recovery may have to undo in.
    pub(crate) unknown_trees: OnceLock<TxnError>,
    pub(crate) counters: Counters,
    /// Whether the registry remembers transactions that were spilled out. Changes under its lock.
    pub(crate) any_spilled: AtomicBool,
    pub(crate) set_aside: SetAsideList,
    broken: AtomicBool,
    broken_by: OnceLock<TxnError>,
    /// See [`TxnManager::make_log_space_with`].
    pub(crate) make_log_space: OnceLock<Box<LogSpaceFn>>,
}

/// Makes space in the log; the argument says whether the log has refused a record.
pub(crate) type LogSpaceFn = dyn Fn(bool) -> Result<(), TxnError> + Send + Sync;

impl TxnManager {
    /// A manager over the pages and the log of one database. `undo` is the undo tree; `next_txn`
    /// and `next_tree` are past every id ever given out.
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
        let backlog = Backlog::new();
        // What the undo tree holds of transactions that ended before this opening is not needed.
        backlog.leave_undo(TxnId(0), next_txn);
        undo.note_unmerged_in(&backlog.unmerged);
        Arc::new(TxnManager {
            pool,
            log,
            allowance: Allowance::of(options.version_budget_bytes),
            image_costs: ImageCosts::new(options.write_costs, options.kept_bytes),
            options,
            undo,
            registry: ranks::REGISTRY.mutex(Registry::new(next_txn)),
            shards: (0..SHARDS).map(|_| ranks::SHARD.mutex(FixedMap::default())).collect(),
            low_water: AtomicU64::new(0),
            first_txn: next_txn,
            locks: LockTable::default(),
            waits: WaitGraph::default(),
            trees: RwLock::default(),
            next_tree: AtomicU32::new(next_tree.0),
            version_bytes: AtomicUsize::new(0),
            image_bytes: Arc::new(AtomicUsize::new(0)),
            shadows: Shadows::new(),
            backlog,
            prepared: ranks::PREPARED.mutex(PreparedList::default()),
            losers: Mutex::default(),
            put_off: AtomicBool::new(false),
            unknown_trees: OnceLock::new(),
            counters: Counters::default(),
            any_spilled: AtomicBool::new(false),
            set_aside: SetAsideList::default(),
            broken: AtomicBool::new(false),
            broken_by: OnceLock::new(),
            make_log_space: OnceLock::new(),
        })
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

    /// Registers a tree for rollback and purge.
    pub fn register_tree(&self, tree: Tree) {
        tree.note_unmerged_in(&self.backlog.unmerged);
        self.next_tree.fetch_max(tree.id().0 + 1, Ordering::SeqCst);
        self.trees.write().insert(tree.id(), tree);
    }
    /// Unregisters a tree that was dropped.
    pub fn forget_tree(&self, id: TreeId) {
        self.trees.write().remove(&id);
    }
    #[must_use]
    pub fn tree(&self, id: TreeId) -> Option<Tree> {
        self.trees.read().get(&id).cloned()
    }
    pub(crate) fn tree_ids(&self) -> Vec<TreeId> {
        self.trees.read().keys().copied().collect()
    }
    /// Notes that there may be trees with rows which were not made known, because of `cause`.
    /// Before anything is rolled back.
    pub fn some_trees_are_unknown(&self, cause: TxnError) {
        let _ = self.unknown_trees.set(cause);
    }
    /// A tree id never used before.
    pub fn next_tree_id(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::SeqCst))
    }
    pub(crate) fn peek_next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Ordering::SeqCst))
    }

    #[must_use]
    pub fn statistics(&self) -> TxnStatistics {
        let (active, snapshots, commits) = {
            let registry = self.registry.lock();
            (registry.active.len() as u64, registry.snapshots_in_use(), registry.sequence())
        };
        let states: u64 = self.shards.iter().map(|shard| shard.lock().len() as u64).sum();
        let (lock_waits, lock_wait_us, deadlocks) = self.waits.counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TxnStatistics {
            commits,
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
            kept: states.saturating_sub(active),
            ghost_bytes: self.backlog.bytes() as u64,
            shadows: count(&self.shadows.counters.shadows),
            shadow_writes: count(&self.shadows.counters.writes),
            images_logged: count(&self.shadows.counters.logged),
            shadows_above: self.image_costs.shadows_above(&self.pool),
            images_early: count(&self.shadows.counters.early),
            image_bytes: self.image_bytes.load(Ordering::Relaxed) as u64,
        }
    }

    /// Asserts what the lock table and the before-images of all transactions promise (`locks.rs`,
    /// `versions.rs`). For tests and simulations; the caller holds no latch and no lock.
    pub fn check(&self) {
        self.locks.check();
        self.registry.lock().check();
        self.prepared.lock().check();
        for shard in &self.shards {
            let states: Vec<Arc<TxnState>> = shard.lock().values().cloned().collect();
            states.iter().for_each(|state| state.versions.lock().check());
        }
    }

    /// Called between the pieces of a long statement, which may write more than the log holds, with
    /// no latch and no lock of the engine held. May wait for a checkpoint.
    ///
    /// Errors: `LogFull` if no space could be made.
    pub fn pace(&self) -> Result<(), TxnError> {
        self.check_usable()?;
        self.make_log_space.get().map_or(Ok(()), |make| make(false))
    }

    /// Refuses all further work: something happened after which continuing could lose data.
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

    /// Hands in the function that makes space in the log, a checkpoint as a rule. Undoing and
    /// [`TxnManager::pace`] call it from time to time, with false; undoing also when the log has
    /// refused a record, with true. No latch and no lock of this crate is held then. Without it,
    /// undoing more than the log's reserve fails.
    pub fn make_log_space_with(&self, make: impl Fn(bool) -> Result<(), TxnError> + Send + Sync + 'static) {
        assert!(self.make_log_space.set(Box::new(make)).is_ok(), "set once, when the database is assembled");
    }

    /// Fails if the manager was poisoned.
    pub fn check_usable(&self) -> Result<(), TxnError> {
        if !self.broken.load(Ordering::Relaxed) {
            return Ok(());
        }
        let cause = self.broken_by.get().map_or("an earlier failure", |error| error.message.as_str());
        Err(TxnError::new(
            TxnErrorKind::Failed,
            format!("the database refuses all work until it is opened again, because of: {cause}"),
        ))
    }

    fn shard(&self, id: TxnId) -> &Mutex<FixedMap<TxnId, Arc<TxnState>>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// Gives a transaction an id: from here on others can meet it. Takes a snapshot before that, if
    /// it is to have one.
    ///
    /// Errors: `TooMany` if checkpoints, which list the open transactions, would take too much of
    /// the log.
    pub(crate) fn enroll(&self, with_snapshot: bool) -> Result<(Arc<TxnState>, Option<Snapshot>), TxnError> {
        let (snapshot, state) = {
            let mut registry = self.registry.lock();
            if registry.active.len() >= OPEN_ALWAYS {
                self.check_open_count(registry.active.len())?;
            }
            (with_snapshot.then(|| registry.snapshot()), registry.begin(self.allowance.running))
        };
        self.shard(state.id).lock().insert(state.id, state.clone());
        Ok((state, snapshot))
    }

    #[cold]
    fn check_open_count(&self, open: usize) -> Result<(), TxnError> {
        let capacity = self.log.space().capacity_bytes;
        if (open as u64) < capacity / OPEN_SHARE {
            return Ok(());
        }
        let message = format!(
            "{open} transactions that write or lock are open, which is as many as there may be with a log of {capacity} bytes: \
             end some of them, or make the log larger"
        );
        Err(TxnError::new(TxnErrorKind::TooMany, message))
    }

    pub(crate) fn enroll_found(&self, state: Arc<TxnState>) {
        self.shard(state.id).lock().insert(state.id, state.clone());
        self.registry.lock().adopt(state);
    }
    /// Forgets a transaction whose before-images are not needed any more.
    pub(crate) fn retire(&self, id: TxnId) {
        self.shard(id).lock().remove(&id);
    }
    pub(crate) fn find(&self, id: TxnId) -> Option<Arc<TxnState>> {
        self.shard(id).lock().get(&id).cloned()
    }

    /// Whether a transaction has ended. Once true, it stays true.
    pub(crate) fn has_ended(&self, id: TxnId) -> bool {
        id.0 < self.low_water.load(Ordering::SeqCst) || self.find(id).is_none_or(|state| state.has_ended())
    }

    /// How often a transaction has released locks without ending.
    pub(crate) fn releases(&self, id: TxnId) -> u32 {
        self.find(id).map_or(0, |state| state.releases())
    }

    pub(crate) fn low_water(&self) -> TxnId {
        TxnId(self.low_water.load(Ordering::SeqCst))
    }
    /// Called under the registry's lock. A thread that still reads the value before does more than
    /// it had to.
    pub(crate) fn raise_low_water(&self, registry: &Registry) {
        let low = registry.low_water().0;
        if self.low_water.load(Ordering::Relaxed) < low {
            self.low_water.store(low, Ordering::Release);
        }
    }

    pub(crate) fn take_snapshot(&self) -> Snapshot {
        self.registry.lock().snapshot()
    }
    pub(crate) fn release_snapshot(&self, snapshot: &Snapshot) {
        self.registry.lock().release(snapshot);
    }
}
