//! Page files as users hold them: whole pages by number, under transactions.

use crate::database::{Database, Handle};
use crate::error::Error;
use crate::transaction::Transaction;
use firndb_base::sync::Arc;

/// A page file: pages of bytes by number, for what keeps whole pages itself (a pager, a file
/// system, blobs). Cheap to clone; usable from any thread. Read and write it through a
/// [`Transaction`].
///
/// A page has as many bytes as the database's pages, all of them the user's. Pages that were never
/// written, and those past the end, read as zeros and take no space.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = firndb::Database::open(dir.path().join("db"))?;
/// let file = db.create_page_file("disk.img")?;
/// db.transact(|tx| {
///     tx.put_page(&file, 7, &vec![1; file.page_size()])?;
///     tx.write_page(&file, 7, 100, b"part of a page")
/// })?;
/// let mut tx = db.snapshot();
/// assert_eq!(file.pages(&mut tx)?, 8);
/// assert_eq!(tx.read_page(&file, 7)?[100..104], *b"part");
/// assert_eq!(tx.read_page(&file, 1_000)?, vec![0; file.page_size()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PageFile {
    inner: firndb_table::PageFile,
    /// Keeps the database open.
    _handle: Arc<Handle>,
}

impl PageFile {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }
    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.inner.page_size()
    }
    /// How many pages it has: one more than the number of its last.
    pub fn pages(&self, tx: &mut Transaction) -> Result<u64, Error> {
        tx.read(|txn| self.inner.pages(txn))
    }
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Database {
    /// Creates an empty page file. Its name is apart from those of tables. It takes one page, one
    /// row of the catalog and one commit; thousands in one database are usual.
    ///
    /// Errors: `Exists`, `BadArgument` (names have 1 to 255 bytes).
    pub fn create_page_file(&self, name: &str) -> Result<PageFile, Error> {
        let engine = self.engine();
        engine.check_writable()?;
        let inner = engine.write(|| Ok(engine.catalog.create_page_file(name)?))?;
        Ok(PageFile { inner, _handle: self.handle.clone() })
    }

    /// The page file of this name.
    ///
    /// Errors: `NotFound`.
    pub fn page_file(&self, name: &str) -> Result<PageFile, Error> {
        self.engine().check_open()?;
        let inner = self.engine().catalog.page_file(name)?;
        Ok(PageFile { inner, _handle: self.handle.clone() })
    }

    /// The names of all page files, ascending.
    #[must_use]
    pub fn page_file_names(&self) -> Vec<String> {
        self.engine().catalog.page_file_names()
    }

    /// Drops a page file. Its pages are freed in the background.
    pub fn drop_page_file(&self, name: &str) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.write(|| Ok(engine.catalog.drop_page_file(name)?))
    }
}

/// Pages of page files. Errors of all: `Stale` if the file was dropped, `BadArgument` for a page
/// number of 2⁴⁰ or more, and those of rows (see [`Transaction::put`]).
impl Transaction {
    /// Reads a page, as a read of a row would: by the transaction's snapshot, or under a lock if
    /// it is serializable.
    pub fn read_page(&mut self, file: &PageFile, page: u64) -> Result<Vec<u8>, Error> {
        let mut image = Vec::new();
        self.read_page_into(file, page, &mut image)?;
        Ok(image)
    }

    /// As [`Transaction::read_page`], into `image`, whose memory is used again.
    pub fn read_page_into(&mut self, file: &PageFile, page: u64, image: &mut Vec<u8>) -> Result<(), Error> {
        self.read(|txn| file.inner.read(txn, page, image))
    }

    /// Reads a page and shows it to `look`: a copy, so `look` may use the database.
    pub fn with_page<R>(
        &mut self,
        file: &PageFile,
        page: u64,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Error> {
        let mut image = self.inner.take_buffer();
        let outcome = self.read_page_into(file, page, &mut image).map(|()| look(&image));
        self.inner.keep_buffer(image);
        outcome
    }

    /// Replaces a page. A page past the end becomes the file's last. Other transactions that write
    /// the page wait, those that read it see the page before and never wait.
    ///
    /// Errors: `BadArgument` if `image` has another length than a page.
    pub fn put_page(&mut self, file: &PageFile, page: u64, image: &[u8]) -> Result<(), Error> {
        self.write(|txn| file.inner.put(txn, page, image))
    }

    /// Replaces a part of a page, and locks the granules of 128 bytes that it touches: other
    /// transactions can write parts in other granules of the page meanwhile, and wait if they put
    /// it whole. Locks and writes all of the page if much of it is in parts, and with
    /// [`PageRecovery::Shadow`](crate::PageRecovery::Shadow).
    ///
    /// Errors: `BadArgument` if the part goes beyond the page.
    pub fn write_page(
        &mut self,
        file: &PageFile,
        page: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.write(|txn| file.inner.write(txn, page, offset, bytes))
    }

    /// Makes a page one of zeros that takes no space. The file stays as long as it is.
    pub fn free_page(&mut self, file: &PageFile, page: u64) -> Result<(), Error> {
        self.write(|txn| file.inner.free(txn, page))
    }

    /// Cuts the file to a number of pages, or lets it grow by pages of zeros.
    pub fn set_pages(&mut self, file: &PageFile, pages: u64) -> Result<(), Error> {
        self.write(|txn| file.inner.set_pages(txn, pages))
    }

    /// Writes a row of the page file as it is given, for tests of what damaged rows do.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn put_page_row(
        &mut self,
        file: &PageFile,
        key: &[u8],
        payload: &[u8],
        flag: bool,
    ) -> Result<(), Error> {
        self.write(|txn| file.inner.put_row(txn, key, firndb_txn::RowValue { payload, flag }))
    }
}
