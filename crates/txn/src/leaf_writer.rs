//! Leaves of trees that are being filled, on their way to the store or the log (`put_page.rs`).
//!
//! Shadows of former leaves are written, by helpers, while the next ones are composed. All are
//! durable, or in the log, only when [`LeafWriter::finish`] returns.

use crate::error::TxnError;
use crate::image_costs;
use crate::manager::TxnManager;
use crate::page_images::PageImage;
use crate::shadows::{Images, Writing};
use firndb_btree::NewLeaf;
use firndb_tier::PageWrite;

/// Bytes of leaves that are handed on together.
const BYTES_AT_ONCE: usize = 1 << 20;
/// Leaves between two checks of the space in the log.
const LEAVES_BETWEEN_PACES: usize = 8;

/// When it is dropped no write of leaves is under way any more.
pub(crate) struct LeafWriter<'m> {
    manager: &'m TxnManager,
    _writing: image_costs::Writing<'m>,
    shadows: Writing<'m>,
    composed: Images,
    at_once: usize,
    leaves: usize,
}

impl<'m> LeafWriter<'m> {
    pub fn new(manager: &'m TxnManager) -> LeafWriter<'m> {
        LeafWriter {
            manager,
            _writing: manager.image_costs.writing(),
            shadows: manager.shadows.begin(),
            composed: Vec::new(),
            at_once: (BYTES_AT_ONCE / manager.pool.page_size()).max(1),
            leaves: 0,
        }
    }

    /// Takes a leaf that is complete.
    pub fn add(&mut self, leaf: NewLeaf) -> Result<(), TxnError> {
        let NewLeaf { page, version, image } = leaf;
        self.composed.push(PageImage { page, version, bytes: image });
        self.leaves += 1;
        if self.leaves.is_multiple_of(LEAVES_BETWEEN_PACES) {
            self.manager.pace()?;
        }
        if self.composed.len() < self.at_once { Ok(()) } else { self.hand_on() }
    }

    /// Returns when all leaves are durable, or in the log.
    pub fn finish(mut self) -> Result<(), TxnError> {
        self.hand_on()?;
        let LeafWriter { manager, shadows, .. } = self;
        let mut left = shadows.finish(&|writes: &mut [PageWrite<'_>]| manager.write_shadows(writes));
        manager.log_images(&mut left)
    }

    fn hand_on(&mut self) -> Result<(), TxnError> {
        let manager = self.manager;
        let mut logged = std::mem::take(&mut self.composed);
        let shadows = manager.choose_shadows(&mut logged);
        if !shadows.is_empty() {
            logged.append(&mut self.shadows.add(shadows, &|writes| manager.write_shadows(writes)));
        }
        manager.log_images(&mut logged)
    }
}
