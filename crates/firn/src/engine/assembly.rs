//! Assembles a database from its devices: creates one, and has what opening shares with that.

use crate::engine::archive_needed::ArchiveNeed;
use crate::engine::archiver::OpenArchive;
use crate::engine::background_recovery::BackgroundRecovery;
use crate::engine::checkpointer::Interval;
use crate::engine::creation_mark::{self, Interrupted, Making};
use crate::engine::devices::{Counted, Devices};
use crate::engine::log_device_failure::Losses;
use crate::engine::log_holds::LogHolds;
use crate::engine::store_array_field::StoreArrayField;
use crate::engine::superblock::{Member, Superblock};
use crate::engine::superblock_fields::Extensions;
use crate::engine::{Engine, Parts, cache, claim};
use crate::error::Error;
use crate::options::Options;
use crate::options::limits::{MAP_SHARE, MAP_SHARE_MOST, PAGE_FILE_SHARE};
use crate::options::page_writes::PageWrites;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Epoch, Lsn, PageId, TreeId, TxnId, clock};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_device::Fill;
use firndb_log::{Log, LogClass, LogOptions, MemberId};
use firndb_table::{Catalog, SYSTEM_TREE};
use firndb_tier::store::{Policy, Store, StoreOptions};
use firndb_tier::{CacheSwitch, PageTier};
use firndb_txn::{ManagerOptions, TxnManager};

/// The tree of before-images that were spilled from memory.
pub(crate) const UNDO_TREE: TreeId = TreeId(2);
/// Ids of tables' trees begin here.
pub(crate) const FIRST_USER_TREE: TreeId = TreeId(16);

pub(crate) fn store_options(options: &Options, page_size: usize) -> StoreOptions {
    let map_budget_bytes = options.tuning.map_bytes.unwrap_or(options.buffer_bytes / MAP_SHARE);
    StoreOptions { page_size, map_budget_bytes }
}

/// Bytes of DRAM for images of shadows that archive and backups lack: as much as private images
/// take before, which are committed then.
fn shadow_image_bytes(options: &Options) -> usize {
    (options.buffer_bytes / PAGE_FILE_SHARE).min(SHADOW_IMAGES_MAX)
}

/// How the store writes pages.
pub(crate) fn store_policy(options: &Options) -> Policy {
    let PageWrites { placement, deltas, .. } = options.page_writes();
    let hides_late_reads = !options.testing.waits_for_late_reads;
    Policy { placement, deltas, hides_late_reads, ..Policy::default() }
}

/// Opens the store of an existing database.
pub(crate) fn open_store(
    devices: &Counted,
    superblock: &Superblock,
    options: &Options,
) -> Result<Arc<Store>, Error> {
    let (database, page_size) = (superblock.database, superblock.page_size);
    let (options, policy) = (store_options(options, page_size), store_policy(options));
    let store = Arc::new(Store::open_with(devices.store(), database, options, policy)?);
    attach_codes(devices, &store);
    Ok(store)
}

/// Has the store give its groups the codes of the array below it.
fn attach_codes(devices: &Counted, store: &Store) {
    if let Some(it) = &devices.store_array {
        store.attach_codes(it.array.clone());
    }
}

/// What an archive that follows has not taken yet: some hundred commits.
const SHADOW_IMAGES_MAX: usize = 8 << 20;
/// The paper's log buffer (FlashLogging, 3.2): an archive that begins late still finds its log in
/// DRAM.
const LOG_BUFFER_MAX: usize = 16 << 20;

/// Bytes of DRAM for the log buffer: an eighth of the log; more than 4 MiB only as an eighth of the
/// page buffer, up to [`LOG_BUFFER_MAX`].
pub(crate) fn log_buffer_bytes(options: &Options) -> usize {
    let most = (options.buffer_bytes / 8).clamp(LogOptions::default().buffer_bytes, LOG_BUFFER_MAX);
    let share = (options.log.bytes / 8).clamp(64 << 10, most as u64) as usize;
    // A group may take half of the buffer.
    share.max(2 * firndb_btree::group_bytes_max(options.page_size) as usize)
}

pub(crate) fn log_options(options: &Options) -> LogOptions {
    let default = LogOptions::default();
    let share = log_buffer_bytes(options);
    LogOptions {
        buffer_bytes: share,
        request_bytes: default.request_bytes.min(share / 2),
        workers: options.background,
        hiding: options.log.hiding,
        layout: options.log.layout.clone(),
        copies: options.log.copies.unwrap_or(1),
        copies_required: options.log.copies_required.get(),
        outliers: options.outlier_options(),
        close_patience: options.close_patience,
        ..default
    }
}

impl Options {
    /// For an existing database: options that its creation fixed are as they were fixed then, and
    /// kept settings are as the database keeps them, unless the caller names them.
    pub(crate) fn for_existing(&self, superblock: &Superblock) -> Options {
        let mut options = self.clone();
        options.page_size = superblock.page_size;
        (options.log.bytes, options.log.devices) = (superblock.log_bytes(), superblock.members.len());
        options.with_kept(superblock.extensions.settings)
    }
}

/// Hands the log to the store.
pub(crate) fn attach(options: &Options, store: &Store, log: &Arc<Log>) {
    store.keep_shadow_images(shadow_image_bytes(options));
    if options.tuning.map_bytes.is_none() {
        store.let_map_grow(options.buffer_bytes / MAP_SHARE_MOST);
    }
    match options.testing.skip_wal_rule {
        false => store.attach(log.clone()),
        true => store.attach_breaking_the_wal_rule(log.clone()),
    }
}

/// The buffer over the tier below.
pub(crate) fn pool(
    options: &Options,
    tier: &Arc<CacheSwitch>,
    log: &Arc<Log>,
) -> Result<Arc<BufferPool>, Error> {
    let tier: Arc<dyn PageTier> = match &options.testing.wrap_tier {
        Some(wrap) => wrap(tier.clone()),
        None => tier.clone(),
    };
    let budget_bytes = match options.tuning.map_bytes {
        Some(_) => options.buffer_bytes,
        None => options.buffer_bytes - options.buffer_bytes / MAP_SHARE,
    };
    let budget_bytes = budget_bytes - options.page_writes().deltas.buffer_bytes;
    let pool_options = PoolOptions { budget_bytes };
    let pool = if options.testing.skip_wal_rule {
        BufferPool::new_breaking_the_wal_rule(tier, log.clone(), pool_options)
    } else {
        BufferPool::new(tier, log.clone(), pool_options)
    };
    let pool = match options.read_depth() {
        Some((reads, _)) => pool?.with_read_depth(reads),
        None => pool?,
    };
    let pool = if options.reads_in_one_stream() { pool.with_one_stream() } else { pool };
    Ok(Arc::new(if options.tuning.read_ahead { pool } else { pool.without_read_ahead() }))
}

/// Before-images in DRAM are limited to a small part of the log: recovery finds them there, and
/// needs as much space again to spill them.
pub(crate) fn manager_options(options: &Options, superblock: &Superblock) -> ManagerOptions {
    let most = usize::try_from(superblock.log_bytes() / 16).unwrap_or(usize::MAX);
    let drives = superblock.log_drives(options.archive.base.as_deref()) as f64;
    let copies = f64::from(superblock.copies());
    let checkpoints = Interval::chosen(options, superblock).most;
    ManagerOptions {
        version_budget_bytes: options.tuning.version_bytes.min(most),
        page_file_bytes: options.tuning.page_file_bytes.unwrap_or(options.buffer_bytes / PAGE_FILE_SHARE),
        page_recovery: options.tuning.page_recovery,
        write_costs: options.write_costs(superblock.page_size, drives / copies),
        kept_bytes: checkpoints.min(options.buffer_bytes as u64 / 2),
    }
}

/// Claims the devices for the database that is to be created on them. Marks the superblock's device
/// first.
///
/// Errors: `BadArgument` if one of them holds anything, except what an interrupted creation left
/// there.
pub(crate) fn claim_devices(
    database: DatabaseId,
    devices: &Devices,
    members: &[Member],
    store_paths: &[String],
    options: &Options,
) -> Result<(), Error> {
    let names = file_names(members, store_paths, cache::path(None, options));
    let cache = devices.cache.iter().filter(|_| options.cache.bytes.is_some());
    let stores = devices.stores();
    let others = || devices.logs.iter().chain(&stores).chain(cache.clone());
    let interrupted = creation_mark::interrupted_on(&devices.superblock)?;
    let before = claim::take_over(others(), &interrupted.ids)?;
    let made = Interrupted { ids: [database].into_iter().chain(before).collect(), files: names };
    creation_mark::mark(&devices.superblock, Making::Creating, &made)?;
    for device in others() {
        claim::claim(&**device, database)?;
    }
    Ok(())
}

/// The superblock of a new database, whose log begins at `start`. Its trees are not made yet.
pub(crate) fn first_superblock(
    database: DatabaseId,
    members: Vec<Member>,
    store_paths: &[String],
    start: Lsn,
    options: &Options,
) -> Result<Superblock, Error> {
    let mut superblock = Superblock {
        database,
        sequence: 0,
        page_size: options.page_size,
        created_us: clock::unix_time_us(),
        catalog_root: PageId(0),
        undo_root: PageId(0),
        checkpoint: start,
        redo_start: start,
        clean: false,
        epochs: vec![(Epoch(1), start)],
        members,
        store_path: store_paths[0].clone(),
        store_version: Lsn::ZERO,
        extensions: Extensions {
            archive: options.archive.text()?,
            settings: options.kept(),
            store_array: match store_paths.len() {
                1 => None,
                several => Some(StoreArrayField::new(options.code_over(several)?, store_paths)),
            },
            ..Extensions::default()
        },
        in_doubt: false,
    };
    let copies = options.log.copies.unwrap_or(1) as u8;
    superblock.want_copies(copies, start, copies);
    Ok(superblock)
}

/// The empty log of a new database, as its superblock describes it.
pub(crate) fn first_log(
    devices: &Counted,
    superblock: &Superblock,
    options: &Options,
) -> Result<Arc<Log>, Error> {
    for (log, member) in devices.logs().iter().zip(&superblock.members) {
        log.grow(member.bytes, Fill::Written)?;
    }
    let (epoch, start) = superblock.epochs[0];
    Ok(Log::create_at(devices.logs(), superblock.log_identity(), epoch, start, log_options(options))?)
}

/// Creates a database on devices that were marked and claimed for it. `members` and `store_paths`
/// are what the superblock will say of their paths. The database exists once the superblock is
/// written, at the very end.
pub(crate) fn create(
    database: DatabaseId,
    devices: Devices,
    members: Vec<Member>,
    store_paths: &[String],
    options: &Options,
    archives: &dyn OpenArchive,
) -> Result<Arc<Engine>, Error> {
    options.check()?;
    let copies = options.log.copies.unwrap_or(1);
    if copies.max(options.log.copies_required.get()) > members.len() {
        return Err(Error::bad_argument(format!(
            "log.copies is {copies} and log.copies_required {}, but the log is to have {} devices only",
            options.log.copies_required.get(),
            members.len()
        )));
    }
    options.code_over(store_paths.len())?;
    let devices = Counted::create(devices, &members, database, options.testing.store_layout, options)?;
    let mut superblock = first_superblock(database, members, store_paths, Lsn::FIRST, options)?;
    let retention = LogHolds::default();
    // Before anything is written: the directory may hold another database's archive.
    let archive =
        archives.open(&superblock, options.archive.text()?, Lsn::FIRST, &options.archive, &retention)?;
    let archive_need = ArchiveNeed::new(options.archive.text()?);
    let log = first_log(&devices, &superblock, options)?;
    let store = Arc::new(Store::create_with(
        devices.store(),
        superblock.database,
        store_options(options, options.page_size),
        options.testing.store_layout,
        store_policy(options),
    )?);
    attach_codes(&devices, &store);
    let cache = cache::make(&mut superblock, &devices, &store, options)?;
    attach(options, &store, &log);
    let tier = Arc::new(CacheSwitch::new(store.clone(), cache));
    let pool = pool(options, &tier, &log)?;
    let catalog_tree = Tree::create(pool.clone(), SYSTEM_TREE, LogClass::System, &[])?;
    let undo_tree = Tree::create(pool.clone(), UNDO_TREE, LogClass::System, &[])?;
    superblock.catalog_root = catalog_tree.root();
    superblock.undo_root = undo_tree.root();
    let txns = TxnManager::new(
        pool.clone(),
        undo_tree,
        TxnId(1),
        FIRST_USER_TREE,
        manager_options(options, &superblock),
    );
    let catalog = Arc::new(Catalog::open(txns.clone(), catalog_tree)?);
    let recovery = BackgroundRecovery::nothing();
    devices.settle_store(&mut superblock);
    let losses = Losses::new(superblock, Arc::new(devices), options);
    log.on_device_lost(losses.handler());
    let parts =
        Parts { losses, log, store, tier, pool, txns, catalog, retention, archive, archive_need, recovery };
    let engine = Engine::new(parts, options);
    engine.checkpoint_all()?;
    Ok(engine)
}

/// The files that a creation makes, except for the superblock.
pub(crate) fn file_names(
    members: &[Member],
    store_paths: &[String],
    cache_path: Option<String>,
) -> Vec<String> {
    let logs = members.iter().map(|member| member.path.clone());
    logs.chain(store_paths.iter().cloned()).chain(cache_path).collect()
}

/// The store's file, unless it is named otherwise.
pub(crate) const STORE: &str = "store";

/// The store's devices for `options`: a file in the database's directory unless paths were given.
pub(crate) fn store_paths(options: &Options) -> Vec<String> {
    match options.store_paths.as_slice() {
        [] => vec![STORE.to_owned()],
        paths => paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
    }
}

/// The log's members for `options`, all files in the database's directory unless paths were given.
pub(crate) fn members(options: &Options) -> Vec<Member> {
    let each = options.log.bytes / options.log.devices as u64 / 4096 * 4096;
    (0..options.log.devices)
        .map(|index| {
            let path = match options.log.paths.get(index) {
                Some(path) => path.to_string_lossy().into_owned(),
                None => format!("log.{index}"),
            };
            Member { id: MemberId(index as u32 + 1), path, bytes: each }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_buffer_is_a_share_of_the_log_and_beyond_four_mib_of_the_page_buffer() {
        let bytes = |buffer: usize, log: u64| {
            log_buffer_bytes(&Options::new().buffer_bytes(buffer).log(|settings| settings.bytes(log)))
        };
        assert_eq!(bytes(128 << 20, 256 << 20), 16 << 20, "the defaults");
        assert_eq!(bytes(1 << 30, 4 << 30), 16 << 20);
        assert_eq!(bytes(64 << 20, 256 << 20), 8 << 20);
        assert_eq!(bytes(4 << 20, 256 << 20), 4 << 20, "little memory for pages");
        assert_eq!(bytes(128 << 20, 16 << 20), 2 << 20, "a small log");
        assert_eq!(bytes(256 << 10, 1 << 20), 128 << 10);
    }
}
