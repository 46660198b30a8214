//! RocksDB's objects as owned types: all calls of the C interface are here.
//!
//! Invariant: a handle is not null, was made by the call that makes its kind, is destroyed once (on
//! drop), and is used by one thread at a time; only the database itself is shared, as RocksDB
//! allows.

use super::*;
use firndb_workloads::Retry;
use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Memtable size for a block cache of `cache_bytes`; two may wait to be flushed.
pub fn write_buffer_bytes(cache_bytes: u64) -> usize {
    (cache_bytes / 4).clamp(4 << 20, 128 << 20) as usize
}
/// `kSkipAnyCorruptedRecords`: RocksDB 7.8 recycles WAL files in this recovery mode only. Its
/// recovery is not part of what is compared here.
const WAL_RECOVERY_MODE: i32 = 3;

/// An open database.
pub struct Db {
    db: *mut rocksdb_transactiondb_t,
}

// SAFETY: a RocksDB database may be used from any thread.
unsafe impl Send for Db {}
// SAFETY: and from several at once: the adapter only begins transactions on it.
unsafe impl Sync for Db {}

/// Runs a call that reports errors through a pointer.
fn checked<R>(call: impl FnOnce(*mut *mut c_char) -> R) -> Outcome<R> {
    let mut message = ptr::null_mut();
    let result = call(&mut message);
    if message.is_null() {
        return Ok(result);
    }
    // SAFETY: a call that fails leaves a text that ends with a zero, from `malloc`, to its caller.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        rocksdb_free(message.cast());
        text
    };
    // The C interface has no codes: the texts are those of `rocksdb::Status::ToString`.
    Err(if text.contains("Deadlock") {
        EngineError::Retry(Retry::Deadlock)
    } else if text.starts_with("Operation timed out") {
        EngineError::Retry(Retry::Busy)
    } else if text.starts_with("Resource busy") || text.starts_with("Operation failed. Try again") {
        EngineError::Retry(Retry::Conflict)
    } else {
        EngineError::Fatal(format!("RocksDB: {text}"))
    })
}

impl Db {
    /// Opens the database in a directory, with a block cache of `cache_bytes`.
    pub fn open(dir: &Path, cache_bytes: u64) -> Outcome<Db> {
        let path = CString::new(dir.as_os_str().as_bytes()).map_err(EngineError::fatal)?;
        // SAFETY: every option is set on an object just made, of the kind that the call expects.
        // Cache and table options are shared into `options`, and the filter policy is handed over,
        // as the header says.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_recycle_log_file_num(options, 4);
            rocksdb_options_set_wal_recovery_mode(options, WAL_RECOVERY_MODE);
            rocksdb_options_set_write_buffer_size(options, write_buffer_bytes(cache_bytes));
            rocksdb_options_set_max_write_buffer_number(options, 3);
            rocksdb_options_set_max_background_jobs(options, 4);
            rocksdb_options_set_bytes_per_sync(options, 1 << 20);
            rocksdb_options_set_compression(options, 0);
            rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
            let table = rocksdb_block_based_options_create();
            let cache = rocksdb_cache_create_lru(usize::try_from(cache_bytes).unwrap_or(usize::MAX));
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_filter_policy(
                table,
                rocksdb_filterpolicy_create_bloom_full(10.0),
            );
            rocksdb_options_set_block_based_table_factory(options, table);
            let transactions = rocksdb_transactiondb_options_create();
            let db = checked(|error| rocksdb_transactiondb_open(options, transactions, path.as_ptr(), error));
            rocksdb_transactiondb_options_destroy(transactions);
            rocksdb_cache_destroy(cache);
            rocksdb_block_based_options_destroy(table);
            rocksdb_options_destroy(options);
            Ok(Db { db: db? })
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: transactions borrow the database, so there are none left.
        unsafe { rocksdb_transactiondb_close(self.db) }
    }
}

/// How a session's transactions commit.
pub struct WriteOptions(*mut rocksdb_writeoptions_t);

impl WriteOptions {
    /// Options to commit with a sync of the WAL.
    pub fn synced() -> WriteOptions {
        // SAFETY: the object was just made.
        unsafe {
            let options = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(options, 1);
            WriteOptions(options)
        }
    }
}
impl Drop for WriteOptions {
    fn drop(&mut self) {
        // SAFETY: transactions that use it borrow it, so there are none left.
        unsafe { rocksdb_writeoptions_destroy(self.0) }
    }
}

struct ReadOptions(*mut rocksdb_readoptions_t);

impl ReadOptions {
    /// Options to read from `snapshot`, or the newest versions if it is null.
    fn of(snapshot: *const rocksdb_snapshot_t) -> ReadOptions {
        // SAFETY: the object was just made; the snapshot, if any, outlives it (see `Transaction`).
        unsafe {
            let options = rocksdb_readoptions_create();
            if !snapshot.is_null() {
                rocksdb_readoptions_set_snapshot(options, snapshot);
            }
            ReadOptions(options)
        }
    }
}
impl Drop for ReadOptions {
    fn drop(&mut self) {
        // SAFETY: made by `of`.
        unsafe { rocksdb_readoptions_destroy(self.0) }
    }
}

/// A transaction. Its snapshot, if it has one, belongs to `txn`; only the C interface's wrapper of
/// it must be freed.
pub struct Transaction<'db> {
    read: ReadOptions,
    snapshot: *const rocksdb_snapshot_t,
    txn: *mut rocksdb_transaction_t,
    db: PhantomData<&'db Db>,
}

impl<'db> Transaction<'db> {
    /// Begins a transaction, on a snapshot if `on_snapshot`.
    pub fn begin(db: &'db Db, write: &'db WriteOptions, on_snapshot: bool) -> Transaction<'db> {
        // SAFETY: database and options outlive 'db; the transaction options are copied by `begin`.
        unsafe {
            let options = rocksdb_transaction_options_create();
            rocksdb_transaction_options_set_set_snapshot(options, on_snapshot.into());
            rocksdb_transaction_options_set_deadlock_detect(options, 1);
            rocksdb_transaction_options_set_lock_timeout(options, LOCK_TIMEOUT_MS);
            let txn = rocksdb_transaction_begin(db.db, write.0, options, ptr::null_mut());
            rocksdb_transaction_options_destroy(options);
            assert!(!txn.is_null(), "RocksDB always returns a transaction");
            let snapshot = if on_snapshot { rocksdb_transaction_get_snapshot(txn) } else { ptr::null() };
            Transaction { read: ReadOptions::of(snapshot), snapshot, txn, db: PhantomData }
        }
    }

    /// Reads a row into `row`, under an exclusive lock if `for_update`; returns whether it exists.
    pub fn get(&mut self, key: &[u8], for_update: bool, row: &mut Vec<u8>) -> Outcome<bool> {
        row.clear();
        let (bytes, len) = (key.as_ptr().cast(), key.len());
        // SAFETY: transaction and options are alive, and the key's bytes are there during the call.
        let slice = checked(|error| unsafe {
            if for_update {
                rocksdb_transaction_get_pinned_for_update(self.txn, self.read.0, bytes, len, 1, error)
            } else {
                rocksdb_transaction_get_pinned(self.txn, self.read.0, bytes, len, error)
            }
        })?;
        if slice.is_null() {
            return Ok(false);
        }
        // SAFETY: the slice holds its bytes until it is destroyed, after they are copied.
        unsafe {
            let mut len = 0;
            let bytes = rocksdb_pinnableslice_value(slice, &mut len);
            row.extend_from_slice(bytes_of(bytes, len));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }

    /// Reads several rows with one call; `found` gets the number and the row of each key.
    pub fn multi_get(&mut self, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        let bytes: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
        let lens: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        let mut values = vec![ptr::null_mut(); keys.len()];
        let mut errors = values.clone();
        let mut value_lens = vec![0; keys.len()];
        // SAFETY: transaction and options are alive, the keys' bytes are there during the call, and
        // each list has a place for every key.
        unsafe {
            rocksdb_transaction_multi_get(
                self.txn,
                self.read.0,
                keys.len(),
                bytes.as_ptr(),
                lens.as_ptr(),
                values.as_mut_ptr(),
                value_lens.as_mut_ptr(),
                errors.as_mut_ptr(),
            );
        }
        let mut outcome = Ok(());
        for (number, ((value, len), error)) in values.into_iter().zip(value_lens).zip(errors).enumerate() {
            // SAFETY: `checked` passes a place for the message, which it frees.
            let read = checked(|message| unsafe { *message = error });
            if read.is_ok() {
                // SAFETY: a value that is not null has `len` bytes, until it is freed below.
                found(number, (!value.is_null()).then(|| unsafe { bytes_of(value, len) }));
            }
            // SAFETY: the value is this function's own. `rocksdb_free` takes null.
            unsafe { rocksdb_free(value.cast()) };
            outcome = outcome.and(read);
        }
        outcome
    }

    /// Adds or replaces a row.
    pub fn put(&mut self, key: &[u8], row: &[u8]) -> Outcome<()> {
        let (row_bytes, row_len) = (row.as_ptr().cast(), row.len());
        // SAFETY: as in `get`; key and row are copied.
        checked(|error| unsafe {
            rocksdb_transaction_put(self.txn, key.as_ptr().cast(), key.len(), row_bytes, row_len, error);
        })
    }

    /// Deletes a row.
    pub fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        // SAFETY: as in `put`.
        checked(|error| unsafe {
            rocksdb_transaction_delete(self.txn, key.as_ptr().cast(), key.len(), error);
        })
    }

    /// Commits.
    pub fn commit(self) -> Outcome<()> {
        // SAFETY: the transaction is alive and ends here.
        checked(|error| unsafe { rocksdb_transaction_commit(self.txn, error) })
    }

    /// Rolls back.
    pub fn rollback(self) -> Outcome<()> {
        // SAFETY: the transaction is alive and ends here.
        checked(|error| unsafe { rocksdb_transaction_rollback(self.txn, error) })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing reads through the snapshot any more. Destroying a transaction that has
        // not ended rolls it back. `rocksdb_free` takes null.
        unsafe {
            rocksdb_free(self.snapshot.cast_mut().cast());
            rocksdb_transaction_destroy(self.txn);
        }
    }
}

/// The bytes at `bytes`.
///
/// # Safety
/// `len` bytes must be readable at `bytes`, and stay as they are for `'a`, or `len` must be 0.
unsafe fn bytes_of<'a>(bytes: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by this function's own contract.
    unsafe { std::slice::from_raw_parts(bytes.cast(), len) }
}

/// A walk over the rows of a transaction with keys from `low` on and below `high`.
pub struct Iterator<'t> {
    iterator: *mut rocksdb_iterator_t,
    /// Must live as long as the iterator, which points into it.
    _options: ReadOptions,
    low: &'t [u8],
    high: &'t [u8],
    reverse: bool,
}

impl<'t> Iterator<'t> {
    /// Starts at the first row, or at the last in reverse.
    pub fn over(txn: &'t Transaction<'_>, low: &'t [u8], high: &'t [u8], reverse: bool) -> Iterator<'t> {
        let options = ReadOptions::of(txn.snapshot);
        // SAFETY: transaction and bounds outlive 't; the iterator is destroyed before its options,
        // which are dropped after `drop` below has run.
        let iterator = unsafe {
            if !reverse {
                rocksdb_readoptions_set_iterate_upper_bound(options.0, high.as_ptr().cast(), high.len());
            }
            let iterator = rocksdb_transaction_create_iterator(txn.txn, options.0);
            if reverse {
                rocksdb_iter_seek_for_prev(iterator, high.as_ptr().cast(), high.len());
            } else {
                rocksdb_iter_seek(iterator, low.as_ptr().cast(), low.len());
            }
            iterator
        };
        let mut rows = Iterator { iterator, _options: options, low, high, reverse };
        // Seeking backward to the bound finds the bound itself if it is there.
        if reverse && rows.key().is_some_and(|key| key >= high) {
            rows.advance();
        }
        rows
    }

    fn key(&self) -> Option<&[u8]> {
        // SAFETY: the key's bytes stay until the iterator moves, which takes a `&mut self`.
        unsafe {
            if rocksdb_iter_valid(self.iterator) == 0 {
                return None;
            }
            let mut len = 0;
            let bytes = rocksdb_iter_key(self.iterator, &mut len);
            Some(bytes_of(bytes, len))
        }
    }

    /// The current row; `None` past the last.
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        let key = self.key().filter(|&key| key >= self.low && key < self.high)?;
        // SAFETY: as for the key, and the iterator is valid.
        let row = unsafe {
            let mut len = 0;
            let bytes = rocksdb_iter_value(self.iterator, &mut len);
            bytes_of(bytes, len)
        };
        Some((key, row))
    }

    /// Moves to the next row. The current position must be a row, in or out of the range.
    pub fn advance(&mut self) {
        // SAFETY: the iterator is valid, as the caller has seen.
        unsafe {
            if self.reverse {
                rocksdb_iter_prev(self.iterator);
            } else {
                rocksdb_iter_next(self.iterator);
            }
        }
    }

    /// Whether the walk met an error.
    pub fn finish(self) -> Outcome<()> {
        // SAFETY: the iterator is alive.
        checked(|error| unsafe { rocksdb_iter_get_error(self.iterator, error) })
    }
}

impl Drop for Iterator<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `over`; fields are dropped after this.
        unsafe { rocksdb_iter_destroy(self.iterator) }
    }
}
