//! Restoring, steps 2 and 3: the layers of the database that is being built adopt the backup's
//! pages, and repeat the changes that these lack.

use crate::backup::archive_survey::archive_error;
use crate::backup::manifest::PAGES;
use crate::backup::pages::{BATCH_PAGES, PagesReader};
use crate::backup::restore::plan::{Plan, Source};
use crate::engine::redo::{Pages, redo};
use crate::error::Error;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_buffer::BufferPool;
use firndb_device::AlignedBuf;
use firndb_log::Log;
use firndb_log::archive::{Image, Images};
use firndb_tier::store::Store;
use firndb_tier::{CacheSwitch, PageTier, PageWrite};

/// The layers of the database that is being built.
pub(super) struct Site {
    pub log: Arc<Log>,
    pub store: Arc<Store>,
    pub tier: Arc<CacheSwitch>,
    pub pool: Arc<BufferPool>,
}

impl Site {
    /// Writes everything and empties the log.
    fn settle(&self) -> Result<(), Error> {
        self.pool.write_older_than(self.log.end())?;
        self.log.flush(self.log.end())?;
        self.store.sync()?;
        self.log.flush(self.log.end())?;
        self.log.truncate(self.log.end());
        Ok(())
    }

    fn settle_if_crowded(&self) -> Result<(), Error> {
        let space = self.log.space();
        if space.used_bytes > space.capacity_bytes / 3 { self.settle() } else { Ok(()) }
    }

    /// Repeats the changes up to `end`, `workers` pages at once, and writes everything. `between`
    /// is called now and then with the LSN that was reached.
    pub fn redo(
        &self,
        source: &Source,
        end: Lsn,
        workers: usize,
        between: &dyn Fn(Lsn),
    ) -> Result<u64, Error> {
        let mut records = source.records(source.manifest.from, end)?;
        let redone = redo(&mut records, &Pages::All, workers, &self.pool, None, &mut |lsn| {
            between(lsn);
            self.settle_if_crowded()
        })?;
        self.settle()?;
        Ok(redone)
    }

    /// Adopts the backup's pages, and the contents that neither these nor the log have.
    pub fn take_pages(&self, source: &Source, plan: &mut Plan, progress: &dyn Fn(u64)) -> Result<u64, Error> {
        let manifest = &source.manifest;
        let mut reader = PagesReader::open(&source.backup.join(PAGES), manifest.page_size)?;
        let mut buf = AlignedBuf::zeroed(manifest.page_size * BATCH_PAGES);
        let mut taken = 0;
        for _ in 0..manifest.batches {
            reader.next()?;
            let mut pages = Vec::with_capacity(reader.len());
            for (index, image) in (0..reader.len()).zip(buf.chunks_mut(manifest.page_size)) {
                let (entry, bytes) = reader.page(index);
                if entry.version >= manifest.end {
                    return Err(Error::damaged(format!(
                        "the backup's page {} has version {}, which its log does not reach; use another backup",
                        entry.page, entry.version
                    )));
                }
                if plan.keeps(entry.page, entry.version) {
                    image.copy_from_slice(bytes);
                    pages.push((entry.page, entry.version, &*image));
                }
            }
            self.write_pages(&pages)?;
            taken += pages.len() as u64;
            progress(taken);
        }
        // Pages allocated since: empty, until redo fills them.
        let mut born: Vec<(PageId, Lsn)> = Vec::new();
        for (page, allocated) in &plan.allocations {
            if let Some(version) = allocated
                && self.store.version_of(*page)?.is_none()
            {
                born.push((*page, *version));
            }
        }
        for chunk in born.chunks(1024) {
            self.store.adopt(chunk)?;
            self.settle_if_crowded()?;
        }
        if let Some(images) = plan.images.take() {
            self.take_shadows(plan, images, &mut buf)?;
        }
        Ok(taken)
    }

    /// Writes the images of shadows, unless the backup has the page in a later version.
    fn take_shadows(&self, plan: &Plan, mut images: Images, buf: &mut [u8]) -> Result<(), Error> {
        let page_size = self.store.page_size();
        let shadows: Vec<&Image> = plan.shadows.values().collect();
        for chunk in shadows.chunks(BATCH_PAGES) {
            let mut pages = Vec::with_capacity(chunk.len());
            for (image, bytes) in chunk.iter().zip(buf.chunks_mut(page_size)) {
                let Image { page, version, .. } = **image;
                let there = self.store.version_of(page)?;
                if there.is_none() {
                    self.store.adopt(&[(page, version)])?;
                }
                if there.is_none_or(|there| there < version) {
                    images.read(image, bytes).map_err(archive_error)?;
                    pages.push(PageWrite::back(page, version, version, bytes));
                }
            }
            self.store.write_batch(&mut pages);
            for write in pages {
                if !write.outcome?.is_taken() {
                    return Err(Error::damaged(format!("the image of page {} was not taken", write.page)));
                }
            }
            self.settle_if_crowded()?;
        }
        Ok(())
    }

    fn write_pages(&self, pages: &[(PageId, Lsn, &[u8])]) -> Result<(), Error> {
        let versions: Vec<(PageId, Lsn)> = pages.iter().map(|(page, version, _)| (*page, *version)).collect();
        self.store.adopt(&versions)?;
        let mut writes: Vec<PageWrite<'_>> = pages
            .iter()
            .map(|(page, version, data)| PageWrite::back(*page, *version, *version, data))
            .collect();
        self.store.write_batch(&mut writes);
        for write in writes {
            if !write.outcome?.is_taken() {
                return Err(Error::damaged(format!("page {} is in the backup twice", write.page)));
            }
        }
        self.settle_if_crowded()
    }
}
