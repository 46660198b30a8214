//! Pages that rows name: their private images, and how these become durable: as shadows, or through
//! the log.
//!
//! The order, and why a crash at each point is harmless (`docs/lab/2026-11-25-shadows.md`):
//! 1. images that are to be shadows are written to free places, durably, and named by map records
//!    (`PageTier::write_shadows`); what the tier does not take is logged;
//! 2. the others are logged, each by one record, and applied to frames;
//! 3. only then is the commit or prepare record appended.
//!
//! So all that a commit record makes reachable lies before it in the log, or is durable and named
//! before it in the log. No other transaction can meet the pages before 3, and an undo frees them,
//! written or not.
//!
//! Frames: none may hold a page's zeros when it gets its content below. No row leads to such a page
//! yet. Read-ahead may still be led there by what it knew of an earlier incarnation: it is kept out
//! until the page has its content, and what came before, or was led there by damage, is forgotten
//! before and after the write.

use crate::error::TxnError;
use crate::image_choice::{PageRecovery, choose};
use crate::manager::TxnManager;
use crate::page_images::PageImage;
use crate::shadows::Images;
use crate::transaction::Transaction;
use firndb_base::PageId;
use firndb_base::sync::atomic::Ordering;
use firndb_btree::Tree;
use firndb_buffer::KeptOut;
use firndb_log::LogClass;
use firndb_tier::PageWrite;

impl TxnManager {
    /// Writes shadows of large commits, and of loads, beside their own threads, until
    /// [`TxnManager::end_shadow_help`]. For [`TxnManager::shadow_helpers`] threads.
    pub fn help_with_shadows(&self) {
        self.shadows.help(|writes| self.write_shadows(writes));
    }

    /// Ends those threads; images are written without them from here on.
    pub fn end_shadow_help(&self) {
        self.shadows.end_help();
    }

    /// How images become durable.
    #[must_use]
    pub fn page_recovery(&self) -> PageRecovery {
        self.options.page_recovery
    }

    /// How many threads are to help.
    #[must_use]
    pub fn shadow_helpers(&self) -> usize {
        if self.options.page_recovery == PageRecovery::Log { 0 } else { crate::shadows::HELPERS }
    }

    /// Makes images durable, or puts them into the log, and removes them from the list. Called with
    /// no lock and no latch held. After an error the list has those that were not written.
    pub(crate) fn write_images(&self, images: &mut Images) -> Result<(), TxnError> {
        let _writing = (!images.is_empty()).then(|| self.image_costs.writing());
        let shadows = self.choose_shadows(images);
        if !shadows.is_empty() {
            images.extend(self.shadows.write(shadows, |writes| self.write_shadows(writes)));
        }
        self.log_images(images)
    }

    /// Takes those images out of the list that are to become shadows.
    pub(crate) fn choose_shadows(&self, images: &mut Images) -> Images {
        let choice = |images: &[PageImage]| self.image_costs.choice(images, &self.pool);
        let (logged, shadows) = choose(self.options.page_recovery, std::mem::take(images), choice);
        *images = logged;
        shadows
    }

    /// Logs images, and removes them from the list.
    pub(crate) fn log_images(&self, images: &mut Images) -> Result<(), TxnError> {
        let mut logged = 0;
        let outcome = images.iter().try_for_each(|image| {
            self.with_log_space(|| {
                firndb_btree::fill_page(&self.pool, image.page, &image.bytes, LogClass::Normal)?;
                Ok(())
            })?;
            logged += 1;
            Ok(())
        });
        images.drain(..logged);
        self.shadows.counters.logged.fetch_add(logged as u64, Ordering::Relaxed);
        outcome
    }

    /// One write. A change of the flash cache, which keeps all others out while it waits for calls
    /// of the tier, waits for those under way at most.
    pub(crate) fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        let kept_out: Vec<KeptOut<'_>> = writes.iter().map(|write| self.pool.keep_out(write.page)).collect();
        writes.iter().for_each(|write| self.pool.forget_unwritten(write.page));
        let timed = self.image_costs.times.begin();
        self.pool.tier().write_shadows(writes);
        if writes.iter().all(PageWrite::is_taken) {
            timed.measured(writes.iter().map(|write| write.data.len()).sum());
        }
        writes.iter().for_each(|write| self.pool.forget_unwritten(write.page));
        drop(kept_out);
    }
}

impl Transaction {
    /// As [`Transaction::replace_flagged`], of a row that names a page: a page is taken into use
    /// with `image`, which is not all zeros, as its content, and the row becomes its number in
    /// eight bytes. If the change is undone, the page is freed with it. The image is
    /// private until the transaction ends well ([`Transaction::private_image`]).
    pub fn put_page(
        &mut self,
        tree: &Tree,
        key: &[u8],
        image: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<Option<bool>, TxnError> {
        let before = self.write_naming(tree, key, old)?;
        let (page, version) = self.taken.take().expect("such a write takes a page into use");
        let index = self.next_index() - 1;
        self.manager.image_costs.rewrites.put(page, image.len());
        let image = PageImage { page, version, bytes: image.to_vec() };
        let images = self.images.get_or_insert_default();
        images.add((tree.id(), key.into()), index, image, &self.manager.image_bytes);
        self.write_images_over_budget()?;
        Ok(before)
    }

    /// Replaces the content of the page that a row names by another that is not all zeros, if this
    /// transaction has put it and no savepoint was made since; false, and nothing is changed, if it
    /// has not.
    pub fn replace_image(&mut self, tree: &Tree, key: &[u8], image: &[u8]) -> Result<bool, TxnError> {
        if self.images.is_none() {
            return Ok(false);
        }
        self.begin_write()?;
        self.writes += 1;
        let savepoint = self.newest_savepoint.load(Ordering::Relaxed);
        let images = self.images.as_mut();
        let Some(private) = images.and_then(|images| images.replaceable(tree.id(), key, savepoint)) else {
            return Ok(false);
        };
        private.bytes.copy_from_slice(image);
        Ok(true)
    }

    /// Whether [`Transaction::replace_image`] would replace the content of the page that the row
    /// names.
    #[must_use]
    pub fn may_replace_image(&mut self, tree: &Tree, key: &[u8]) -> bool {
        let savepoint = self.newest_savepoint.load(Ordering::Relaxed);
        let images = self.images.as_mut();
        images.and_then(|images| images.replaceable(tree.id(), key, savepoint)).is_some()
    }

    /// The content of a page that this transaction has put and not yet written.
    #[must_use]
    pub fn private_image(&self, page: PageId) -> Option<&[u8]> {
        self.images.as_ref()?.get(page)
    }

    /// The last change of this transaction made a row name `page` no more.
    pub fn supersede_image(&mut self, page: PageId) {
        self.manager.image_costs.rewrites.superseded(page);
        let index = self.next_index().checked_sub(1);
        if let (Some(images), Some(index)) = (&mut self.images, index) {
            images.supersede(page, index);
        }
    }

    /// Before the commit or prepare record: everything that it makes reachable becomes durable, or
    /// gets into the log. After an error the rest is private as before: the transaction can be
    /// continued, and this be tried again.
    pub(crate) fn settle_images(&mut self) -> Result<(), TxnError> {
        self.write_private_images(None).map(|_| ())
    }

    /// Writes the transaction's images early if all images take more memory than they may.
    pub(crate) fn write_images_over_budget(&mut self) -> Result<(), TxnError> {
        let manager = &self.manager;
        if manager.image_bytes.load(Ordering::Relaxed) <= manager.options.page_file_bytes {
            return Ok(());
        }
        let savepoint = self.newest_savepoint.load(Ordering::Relaxed);
        let written = self.write_private_images(Some(savepoint))?;
        self.manager.shadows.counters.early.fetch_add(written as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the images that may be wanted ([`PageImages::lend`]); returns how many.
    ///
    /// [`PageImages::lend`]: crate::page_images::PageImages::lend
    fn write_private_images(&mut self, savepoint: Option<u32>) -> Result<usize, TxnError> {
        let Some(images) = &mut self.images else { return Ok(0) };
        let mut lent = images.lend(savepoint);
        let all = lent.len();
        let outcome = self.manager.write_images(&mut lent);
        let written = all - lent.len();
        images.end_loan(lent);
        outcome.map(|()| written)
    }
}
