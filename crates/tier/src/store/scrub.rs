//! Reading everything that an array under the store holds more than once, so that what is wrong is
//! found, and made anew, while there is enough to make it of.

use super::check::note_fault;
use super::read::same;
use super::state::Store;
use crate::error::TierError;
use firndb_array::Array;
use firndb_base::PageId;
use firndb_device::AlignedBuf;

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Pages of which all fragments were read.
    pub pages: u64,
    /// Faults that the other devices could not make up for.
    pub faults: u64,
    /// A message for each of the first thousand of these.
    pub damage: Vec<String>,
}

impl Scrubbed {
    fn fault(&mut self, sentence: String) {
        note_fault(&mut self.faults, &mut self.damage, sentence);
    }
}

impl Store {
    /// Reads all fragments of every page and all copies of metadata on `array`, which is the
    /// store's device, beside all other work. What is wrong and can be made anew is mended, and
    /// reported by the array; the rest is returned. Calls `progress` with the pages done.
    ///
    /// Errors: a map page cannot be read.
    pub fn scrub(&self, array: &Array, progress: &mut dyn FnMut(u64)) -> Result<Scrubbed, TierError> {
        let mut found = Scrubbed::default();
        let unmended = array.unmended();
        if let Err(error) = array.scrub_before_groups() {
            found.fault(format!("metadata before group 0: {error}"));
        }
        for group in 0..self.groups() {
            if let Err(error) = array.scrub_group(group) {
                found.fault(format!("metadata of group {group}: {error}"));
            }
        }
        self.pages(&mut |page, _| {
            match self.scrub_page(page) {
                Ok(true) => {}
                Ok(false) => found.fault(format!("{page:?} is damaged on too many devices of the store")),
                Err(error) => found.fault(error.to_string()),
            }
            found.pages += 1;
            progress(found.pages);
        })?;
        if let Some((_, sentence)) = array.unmended_since(unmended) {
            found.fault(sentence);
        }
        Ok(found)
    }

    /// Whether all of a page is right now.
    fn scrub_page(&self, page: PageId) -> Result<bool, TierError> {
        let mut bytes = AlignedBuf::zeroed(self.geometry.page_size);
        let mut before = self.look(page);
        loop {
            let looked = before.clone()?;
            if looked.entry.place().is_none() || self.mend(page, &looked, &mut bytes) {
                return Ok(true);
            }
            let now = self.look(page);
            if same(&now, &before) {
                return Ok(self.has_lost(page));
            }
            before = now;
        }
    }
}
