//! The part of RocksDB's C interface (`rocksdb/c.h`, version 7.8) that the adapter uses.
//!
//! Written by hand, since generating it needs libclang. Every `errptr` is set to a message from
//! `malloc`, to be freed with `rocksdb_free`, if the call fails.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_double, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}
opaque!(
    rocksdb_block_based_table_options_t,
    rocksdb_cache_t,
    rocksdb_filterpolicy_t,
    rocksdb_iterator_t,
    rocksdb_options_t,
    rocksdb_pinnableslice_t,
    rocksdb_readoptions_t,
    rocksdb_snapshot_t,
    rocksdb_transaction_options_t,
    rocksdb_transaction_t,
    rocksdb_transactiondb_options_t,
    rocksdb_transactiondb_t,
    rocksdb_writeoptions_t
);

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_free(memory: *mut c_void);

    pub fn rocksdb_options_create() -> *mut rocksdb_options_t;
    pub fn rocksdb_options_destroy(options: *mut rocksdb_options_t);
    pub fn rocksdb_options_set_create_if_missing(options: *mut rocksdb_options_t, yes: c_uchar);
    pub fn rocksdb_options_set_recycle_log_file_num(options: *mut rocksdb_options_t, files: usize);
    pub fn rocksdb_options_set_wal_recovery_mode(options: *mut rocksdb_options_t, mode: c_int);
    pub fn rocksdb_options_set_write_buffer_size(options: *mut rocksdb_options_t, bytes: usize);
    pub fn rocksdb_options_set_max_write_buffer_number(options: *mut rocksdb_options_t, buffers: c_int);
    pub fn rocksdb_options_set_max_background_jobs(options: *mut rocksdb_options_t, jobs: c_int);
    pub fn rocksdb_options_set_bytes_per_sync(options: *mut rocksdb_options_t, bytes: u64);
    pub fn rocksdb_options_set_compression(options: *mut rocksdb_options_t, kind: c_int);
    pub fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
        options: *mut rocksdb_options_t,
        yes: c_uchar,
    );
    pub fn rocksdb_options_set_block_based_table_factory(
        options: *mut rocksdb_options_t,
        table: *mut rocksdb_block_based_table_options_t,
    );
    pub fn rocksdb_block_based_options_create() -> *mut rocksdb_block_based_table_options_t;
    pub fn rocksdb_block_based_options_destroy(options: *mut rocksdb_block_based_table_options_t);
    pub fn rocksdb_block_based_options_set_block_cache(
        options: *mut rocksdb_block_based_table_options_t,
        cache: *mut rocksdb_cache_t,
    );
    pub fn rocksdb_block_based_options_set_filter_policy(
        options: *mut rocksdb_block_based_table_options_t,
        policy: *mut rocksdb_filterpolicy_t,
    );
    pub fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: c_double) -> *mut rocksdb_filterpolicy_t;
    pub fn rocksdb_cache_create_lru(bytes: usize) -> *mut rocksdb_cache_t;
    pub fn rocksdb_cache_destroy(cache: *mut rocksdb_cache_t);

    pub fn rocksdb_transactiondb_options_create() -> *mut rocksdb_transactiondb_options_t;
    pub fn rocksdb_transactiondb_options_destroy(options: *mut rocksdb_transactiondb_options_t);
    pub fn rocksdb_transactiondb_open(
        options: *const rocksdb_options_t,
        transaction_options: *const rocksdb_transactiondb_options_t,
        path: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_transactiondb_t;
    pub fn rocksdb_transactiondb_close(db: *mut rocksdb_transactiondb_t);

    pub fn rocksdb_writeoptions_create() -> *mut rocksdb_writeoptions_t;
    pub fn rocksdb_writeoptions_destroy(options: *mut rocksdb_writeoptions_t);
    pub fn rocksdb_writeoptions_set_sync(options: *mut rocksdb_writeoptions_t, yes: c_uchar);
    pub fn rocksdb_readoptions_create() -> *mut rocksdb_readoptions_t;
    pub fn rocksdb_readoptions_destroy(options: *mut rocksdb_readoptions_t);
    pub fn rocksdb_readoptions_set_snapshot(
        options: *mut rocksdb_readoptions_t,
        snapshot: *const rocksdb_snapshot_t,
    );
    pub fn rocksdb_readoptions_set_iterate_upper_bound(
        options: *mut rocksdb_readoptions_t,
        key: *const c_char,
        key_len: usize,
    );
    pub fn rocksdb_transaction_options_create() -> *mut rocksdb_transaction_options_t;
    pub fn rocksdb_transaction_options_destroy(options: *mut rocksdb_transaction_options_t);
    pub fn rocksdb_transaction_options_set_set_snapshot(
        options: *mut rocksdb_transaction_options_t,
        yes: c_uchar,
    );
    pub fn rocksdb_transaction_options_set_deadlock_detect(
        options: *mut rocksdb_transaction_options_t,
        yes: c_uchar,
    );
    pub fn rocksdb_transaction_options_set_lock_timeout(
        options: *mut rocksdb_transaction_options_t,
        milliseconds: i64,
    );

    pub fn rocksdb_transaction_begin(
        db: *mut rocksdb_transactiondb_t,
        write: *const rocksdb_writeoptions_t,
        options: *const rocksdb_transaction_options_t,
        old: *mut rocksdb_transaction_t,
    ) -> *mut rocksdb_transaction_t;
    pub fn rocksdb_transaction_destroy(txn: *mut rocksdb_transaction_t);
    pub fn rocksdb_transaction_commit(txn: *mut rocksdb_transaction_t, error: *mut *mut c_char);
    pub fn rocksdb_transaction_rollback(txn: *mut rocksdb_transaction_t, error: *mut *mut c_char);
    pub fn rocksdb_transaction_get_snapshot(txn: *mut rocksdb_transaction_t) -> *const rocksdb_snapshot_t;
    pub fn rocksdb_transaction_get_pinned(
        txn: *mut rocksdb_transaction_t,
        options: *const rocksdb_readoptions_t,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_pinnableslice_t;
    pub fn rocksdb_transaction_get_pinned_for_update(
        txn: *mut rocksdb_transaction_t,
        options: *const rocksdb_readoptions_t,
        key: *const c_char,
        key_len: usize,
        exclusive: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_pinnableslice_t;
    /// Each value and each error comes from `malloc`; a row that is not there has neither.
    pub fn rocksdb_transaction_multi_get(
        txn: *mut rocksdb_transaction_t,
        options: *const rocksdb_readoptions_t,
        keys: usize,
        key_list: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut c_char,
        value_lens: *mut usize,
        errors: *mut *mut c_char,
    );
    pub fn rocksdb_pinnableslice_value(
        slice: *const rocksdb_pinnableslice_t,
        len: *mut usize,
    ) -> *const c_char;
    pub fn rocksdb_pinnableslice_destroy(slice: *mut rocksdb_pinnableslice_t);
    pub fn rocksdb_transaction_put(
        txn: *mut rocksdb_transaction_t,
        key: *const c_char,
        key_len: usize,
        row: *const c_char,
        row_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_transaction_delete(
        txn: *mut rocksdb_transaction_t,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );

    pub fn rocksdb_transaction_create_iterator(
        txn: *mut rocksdb_transaction_t,
        options: *const rocksdb_readoptions_t,
    ) -> *mut rocksdb_iterator_t;
    pub fn rocksdb_iter_destroy(iterator: *mut rocksdb_iterator_t);
    pub fn rocksdb_iter_valid(iterator: *const rocksdb_iterator_t) -> c_uchar;
    pub fn rocksdb_iter_seek(iterator: *mut rocksdb_iterator_t, key: *const c_char, key_len: usize);
    pub fn rocksdb_iter_seek_for_prev(iterator: *mut rocksdb_iterator_t, key: *const c_char, key_len: usize);
    pub fn rocksdb_iter_next(iterator: *mut rocksdb_iterator_t);
    pub fn rocksdb_iter_prev(iterator: *mut rocksdb_iterator_t);
    pub fn rocksdb_iter_key(iterator: *const rocksdb_iterator_t, len: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_value(iterator: *const rocksdb_iterator_t, len: *mut usize) -> *const c_char;
    pub fn rocksdb_iter_get_error(iterator: *const rocksdb_iterator_t, error: *mut *mut c_char);
}
