//! A database opened read-only is recovered in memory: not a byte of its files, its archive and
//! their metadata changes.

use firndb::device::{Device, DeviceError, Durability, Fill, Io, IoOp, MemoryDevice};
use firndb::{
    CacheSpec, Database, Devices, Direction, DumpWhat, ErrorKind, IndexSpec, KeyRange, Options, RowCount,
    TransactionOptions,
};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name, bytes, and what the file system says of a file: inode, mode, modification and change
/// times.
type State = BTreeMap<PathBuf, (Vec<u8>, [i64; 7])>;

fn state(dir: &Path) -> State {
    let mut found = State::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        let [mtime, mtime_ns, ctime, ctime_ns] = times;
        let kept =
            [meta.ino() as i64, i64::from(meta.mode()), meta.len() as i64, mtime, mtime_ns, ctime, ctime_ns];
        found.insert(path, (bytes, kept));
    }
    assert!(found.len() > 3, "{found:?}");
    found
}

fn assert_untouched(before: &State, dir: &Path, what: &str) {
    let after = state(dir);
    for (path, now) in &after {
        let was = before.get(path).unwrap_or_else(|| panic!("{what} made {}", path.display()));
        assert!(was.0 == now.0, "{what} changed bytes of {}", path.display());
        assert_eq!(was.1, now.1, "{what} changed what the file system says of {}", path.display());
    }
    assert_eq!(before.len(), after.len(), "{what} removed something");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() { copy(&path, &to) } else { _ = std::fs::copy(&path, &to).unwrap() }
    }
}

fn options() -> Options {
    Options::new().buffer_bytes(1 << 20).log(|log| log.bytes(4 << 20).devices(2))
}

const ROWS: u32 = 3000;

fn row(number: u32) -> Vec<u8> {
    format!("row {number} ").repeat(6).into_bytes()
}

/// A database in `DIR/db` with an archive in `DIR/archive`, and files as a crash leaves them: with
/// transactions that had not committed, one that is prepared, and pages that had not been written.
fn crashed(dir: &Path, options: Options) {
    let live = dir.join("live");
    let db = options
        .archive(|archive| archive.directory("../archive"))
        .background_threads(false)
        .open(live.join("db"))
        .unwrap();
    let table = db.create_table("rows").unwrap();
    for chunk in 0..ROWS / 100 {
        db.transact(|tx| {
            (chunk * 100..chunk * 100 + 100).try_for_each(|i| tx.insert(&table, &i.to_be_bytes(), &row(i)))
        })
        .unwrap();
        while db.step().unwrap() == firndb::Progress::Worked && chunk % 2 == 0 {}
    }
    db.checkpoint().unwrap();
    db.transact(|tx| tx.put(&table, &7u32.to_be_bytes(), b"changed after the checkpoint").map(drop)).unwrap();
    let mut prepared = db.begin();
    prepared.put(&table, &8u32.to_be_bytes(), b"prepared").unwrap();
    prepared.prepare(b"gid").unwrap();
    let mut open = db.begin();
    (100..400u32).for_each(|i| _ = open.put(&table, &i.to_be_bytes(), b"never committed").unwrap());
    open.delete(&table, &9u32.to_be_bytes()).unwrap();
    db.transact(|tx| tx.put(&table, &10u32.to_be_bytes(), b"last").map(drop)).unwrap();
    copy(&live, dir);
    drop(open);
    db.close().unwrap();
    std::fs::remove_dir_all(&live).unwrap();
}

/// Every row is as the last commit left it.
fn assert_rows(db: &Database) {
    let table = db.table("rows").unwrap();
    let mut tx = db.snapshot();
    let mut rows = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut count = 0u32;
    while let Some((key, value)) = rows.next(&mut tx).unwrap() {
        assert_eq!(key, count.to_be_bytes());
        match count {
            7 => assert_eq!(value, b"changed after the checkpoint"),
            10 => assert_eq!(value, b"last"),
            _ => assert_eq!(value, row(count)),
        }
        count += 1;
    }
    assert_eq!(count, ROWS);
}

/// Everything that looks.
fn look_all_over(db: &Database) {
    assert!(db.is_read_only());
    assert_rows(db);
    for what in [DumpWhat::Log, DumpWhat::Catalog, DumpWhat::Table("rows".into()), DumpWhat::Page(1)] {
        let mut text = Vec::new();
        db.dump(&what, &mut text).unwrap();
        assert!(!text.is_empty(), "{what:?}");
    }
    let report = db.check(&mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    assert!(report.images > 0 && report.log_records > 0 && report.rows == u64::from(ROWS), "{report:?}");
    let statistics = db.statistics();
    assert_eq!(statistics.tables, ["rows"]);
    db.finish_recovery().unwrap();
    assert_rows(db);
    while db.step().unwrap() == firndb::Progress::Worked {}
    assert!(db.log_array().members.len() == 2 && db.recovery_report().complete);
}

#[test]
fn openings_of_a_crashed_database_leave_every_byte_and_time_as_it_was() {
    for cache in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let with = |options: Options| {
            if cache { options.cache(|cache| cache.bytes(4 << 20).rebuildable(true)) } else { options }
        };
        crashed(dir.path(), with(options()));
        let (db, before) = (dir.path().join("db"), state(dir.path()));
        for eager in [false, true, false] {
            let db = options().tuning(|tuning| tuning.eager_recovery(eager)).open_read_only(&db).unwrap();
            assert_eq!((db.recovery_report().clean, db.prepared()), (false, vec![b"gid".to_vec()]));
            look_all_over(&db);
            let archive = db.archive_statistics().expect("the database has one");
            assert!(
                archive.archived.is_some() && archive.failing.is_none() && archive.gaps.is_empty(),
                "{archive:?}"
            );
            assert_eq!((archive.writes, archive.bytes), (0, 0));
            db.close().unwrap();
            assert_untouched(&before, dir.path(), "a read-only opening");
        }
        // Dropped instead of closed.
        drop(options().open_read_only(&db).unwrap());
        firndb::log_status(&db).unwrap();
        assert_eq!(firndb::cache_status(&db).unwrap().is_some(), cache);
        assert_untouched(&before, dir.path(), "showing the log's devices and the cache");
        // What was looked at recovers as if it had not been.
        let db = with(options()).open(&db).unwrap();
        assert_rows(&db);
        db.rollback_prepared(b"gid").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_database_that_was_closed_is_left_as_it_is_and_openings_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path(), options());
    let db = dir.path().join("db");
    let opened = options().open(&db).unwrap();
    opened.rollback_prepared(b"gid").unwrap();
    opened.close().unwrap();
    let before = state(dir.path());
    let mut epochs = Vec::new();
    for _ in 0..20 {
        let db = Database::open_read_only(&db).unwrap();
        assert!(db.recovery_report().clean);
        epochs.push(db.statistics().epoch);
        assert_eq!(db.statistics().archive.expect("it has one").behind_bytes, 0);
        db.close().unwrap();
    }
    look_all_over(&Database::open_read_only(&db).unwrap());
    assert_untouched(&before, dir.path(), "a read-only opening");
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
    let opened = options().open(&db).unwrap();
    assert_eq!(opened.statistics().epoch, epochs[0] + 1, "the next epoch is the next opening's");
    opened.close().unwrap();
}

/// Passes reads on, and panics at anything else.
#[derive(Debug)]
struct OnlyReads(Arc<dyn Device>);

impl Device for OnlyReads {
    firndb::device::forward!(0: info, len, read);
    fn submit(&self, batch: &mut [Io<'_>]) {
        assert!(batch.iter().all(|io| matches!(io.op, IoOp::Read(_))), "a batch writes");
        self.0.submit(batch);
    }
    fn write(&self, offset: u64, data: &[u8], _: Durability) -> Result<(), DeviceError> {
        panic!("{} bytes are written to {} at {offset}", data.len(), self.0.info().name)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        panic!("{} is synced", self.0.info().name)
    }
    fn grow(&self, _: u64, _: Fill) -> Result<(), DeviceError> {
        panic!("{} grows", self.0.info().name)
    }
    fn shrink(&self, _: u64) -> Result<(), DeviceError> {
        panic!("{} is cut", self.0.info().name)
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        panic!("{} is discarded from", self.0.info().name)
    }
}

/// The files of this process in `dir`, and the flags they were opened with.
fn open_flags(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        let Ok(path) = std::fs::read_link(entry.path()) else { continue };
        if path.starts_with(dir) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let text = std::fs::read_to_string(info).unwrap();
            let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).expect("a file has flags");
            found.push((path, u32::from_str_radix(flags.trim(), 8).unwrap()));
        }
    }
    found
}

#[test]
fn files_are_opened_for_reading_alone_and_devices_are_only_read() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path(), options().cache(|cache| cache.bytes(4 << 20)));
    let dir = dir.path().canonicalize().unwrap();
    let looking = options().wrap_devices(|_, device| Ok(Arc::new(OnlyReads(device))));
    let db = looking.tuning(|tuning| tuning.eager_recovery(true)).open_read_only(dir.join("db")).unwrap();
    look_all_over(&db);
    let files = open_flags(&dir);
    // Superblock, two logs, store, cache.
    assert_eq!(files.len(), 5, "{files:?}");
    for (path, flags) in files {
        assert_eq!(flags & 0o3, 0, "{} is open with flags {flags:o}", path.display());
    }
    drop(db);
    // The probe itself sees a file that is open for writing.
    let db = options().open(dir.join("db")).unwrap();
    assert!(open_flags(&dir).iter().filter(|(_, flags)| flags & 0o3 == 2).count() >= 5);
    drop(db);
}

/// The same on devices instead of files, damaged ones among them.
#[test]
fn devices_are_only_read() {
    let memory = || Arc::new(MemoryDevice::new("device"));
    let (superblock, log, store) = (memory(), memory(), memory());
    let given = |wrap: &dyn Fn(&Arc<MemoryDevice>) -> Arc<dyn Device>| Devices {
        superblock: wrap(&superblock),
        logs: vec![wrap(&log)],
        store: wrap(&store),
        store_others: Vec::new(),
        cache: None,
    };
    let options =
        || Options::new().buffer_bytes(1 << 20).log(|log| log.bytes(2 << 20)).background_threads(false);
    let db = options().create_on(given(&|device| device.clone())).unwrap();
    let table = db.create_table("rows").unwrap();
    (0..400u32).for_each(|i| _ = db.transact(|tx| tx.put(&table, &i.to_be_bytes(), &row(i))).unwrap());
    db.checkpoint().unwrap();
    db.transact(|tx| tx.put(&table, b"late", b"").map(drop)).unwrap();
    let copies =
        |device: &Arc<MemoryDevice>| Arc::new(OnlyReads(Arc::new(device.duplicate()))) as Arc<dyn Device>;
    let crashed = given(&copies);
    let count = |devices: Devices| {
        let db = options().open_read_only_on(devices).unwrap();
        let table = db.table("rows").unwrap();
        db.finish_recovery().unwrap();
        let report = db.check(&mut |_| ()).unwrap();
        (table.count_rows(&mut db.snapshot()), report)
    };
    let (rows, report) = count(crashed.clone());
    assert_eq!(rows.unwrap(), RowCount { rows: 401, is_exact: true });
    assert!(report.is_clean(), "{:?}", report.damage);
    // A bit of a row turns over: its page is reported, the rest is there, and nothing is written
    // all the same.
    let len = store.len() as usize;
    let mut bytes = vec![0; len];
    store.read(0, &mut bytes).unwrap();
    let needle = row(200);
    let at =
        (0..len - needle.len()).find(|&at| bytes[at..].starts_with(&needle)).expect("it is in the store");
    let block = at / 512 * 512;
    bytes[at] ^= 1;
    store.write(block as u64, &bytes[block..block + 512], Durability::Later).unwrap();
    let (rows, report) = count(given(&copies));
    assert_eq!(rows.unwrap_err().kind(), ErrorKind::Damaged);
    assert!(!report.is_clean());
    drop((table, db));
}

#[test]
fn what_does_not_fit_in_memory_goes_to_a_file_without_a_name() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path(), options());
    let (path, before) = (dir.path().join("db"), state(dir.path()));
    let mut aside = Vec::new();
    for bytes in [64 << 20, 16 << 10, 0] {
        let db = options()
            .tuning(|tuning| tuning.overlay_bytes(bytes).eager_recovery(true))
            .open_read_only(&path)
            .unwrap();
        look_all_over(&db);
        let (memory, filed) = db.statistics().kept_aside.expect("it was opened read-only");
        assert!(memory <= bytes, "{memory} of {bytes}");
        assert_eq!(filed > 0, bytes < 1 << 20, "{memory} in memory and {filed} in the file");
        aside.push(memory + filed);
        drop(db);
        assert_untouched(&before, dir.path(), "a read-only opening");
    }
    assert!(aside.iter().all(|bytes| *bytes < 4 << 20), "recovery keeps little aside: {aside:?}");
    let db = options().open(&path).unwrap();
    assert_eq!(db.statistics().kept_aside, None);
}

#[test]
fn what_would_change_the_database_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path(), options());
    let (path, before) = (dir.path().join("db"), state(dir.path()));
    let db = Database::open_read_only(&path).unwrap();
    let table = db.table("rows").unwrap();
    let index = IndexSpec::columns("by_nothing", false, Vec::new());
    let spec = CacheSpec::new(4 << 20);
    let mut tx = db.begin();
    let mut serializable = db
        .begin_with(TransactionOptions { isolation: firndb::Isolation::Serializable, ..Default::default() });
    let refused = [
        ("put", tx.put(&table, b"k", b"v").map(drop)),
        ("insert", tx.insert(&table, b"k", b"v")),
        ("update", tx.update(&table, &1u32.to_be_bytes(), b"v").map(drop)),
        ("delete", tx.delete(&table, &1u32.to_be_bytes()).map(drop)),
        ("a locking read", tx.get_for_update(&table, &1u32.to_be_bytes()).map(drop)),
        ("put, serializable", serializable.put(&table, b"k", b"v").map(drop)),
        ("transact", db.transact(|tx| tx.put(&table, b"k", b"v").map(drop))),
        ("create_table", db.create_table("new").map(drop)),
        ("open_table", db.open_table("new").map(drop)),
        ("drop_table", db.drop_table("rows")),
        ("rename_table", db.rename_table("rows", "lines")),
        ("create_index", db.create_index(&table, index)),
        ("drop_index", db.drop_index(&table, "by_nothing")),
        ("commit_prepared", db.commit_prepared(b"gid")),
        ("rollback_prepared", db.rollback_prepared(b"gid")),
        ("checkpoint", db.checkpoint()),
        (
            "backup",
            db.backup(dir.path().join("backup"), &mut |_| std::ops::ControlFlow::Continue(())).map(drop),
        ),
        ("add_log_device", db.add_log_device("log.9").map(drop)),
        ("remove_log_device", db.remove_log_device(1)),
        ("replace_log_device", db.replace_log_device(1, "log.9").map(drop)),
        ("attach_cache", db.attach_cache(&spec)),
        ("detach_cache", db.detach_cache(&mut |_| ())),
        ("replace_cache", db.replace_cache(&spec, &mut |_| ())),
    ];
    for (what, outcome) in refused {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}: {error}");
        assert!(
            error.to_string().contains("was opened read-only: close it and open it for writing"),
            "{what}: {error}"
        );
    }
    assert_eq!(tx.get(&table, &1u32.to_be_bytes()).unwrap(), Some(row(1)), "reads go on");
    assert_eq!(serializable.get(&table, &1u32.to_be_bytes()).unwrap(), Some(row(1)));
    tx.commit().unwrap();
    serializable.rollback().unwrap();
    drop((table, db));
    assert_untouched(&before, dir.path(), "what was refused");
}

#[test]
fn readers_share_a_database_and_a_writer_has_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path(), options());
    let path = dir.path().join("db");
    let in_use = |outcome: Result<Database, firndb::Error>, what: &str| {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InUse, "{what}: {error}");
        assert!(error.to_string().contains("is in use; close the database that has it open"), "{error}");
    };
    let readers: Vec<_> = (0..3).map(|_| Database::open_read_only(&path).unwrap()).collect();
    readers.iter().for_each(assert_rows);
    in_use(options().open(&path), "a writer beside readers");
    drop(readers);
    let writer = options().open(&path).unwrap();
    in_use(Database::open_read_only(&path), "a reader beside a writer");
    assert_eq!(firndb::log_status(&path).expect_err("beside a writer").kind(), ErrorKind::InUse);
    writer.close().unwrap();
    assert_rows(&Database::open_read_only(&path).unwrap());
}

#[test]
fn where_there_is_no_database_none_is_made_and_a_sentence_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("empty")).unwrap();
    std::fs::create_dir(at("begun")).unwrap();
    std::fs::write(at("begun/superblock"), []).unwrap();
    std::fs::write(at("file"), "text").unwrap();
    std::os::unix::fs::symlink(at("gone"), at("link")).unwrap();
    let before = state(dir.path());
    for (name, kind, sentence) in [
        ("none", ErrorKind::NotFound, "there is no Firn database here"),
        ("empty", ErrorKind::NotFound, "there is no Firn database here"),
        ("begun", ErrorKind::Damaged, "it is empty"),
        ("file", ErrorKind::Unusable, "is a file: name the directory that a database is in"),
        ("link", ErrorKind::Unusable, "is a symbolic link to"),
    ] {
        let error = Database::open_read_only(at(name)).expect_err(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(sentence), "{name}: {error}");
        if kind == ErrorKind::Unusable {
            let error = Options::new().open(at(name)).expect_err(name);
            assert!(error.to_string().contains(sentence), "to write: {error}");
        }
    }
    assert_untouched(&before, dir.path(), "looking for a database");
}
