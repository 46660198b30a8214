//! Metadata pages held in memory while a call works with them.

use super::geometry::Slot;
use super::meta_page::{self, MetaId, MetaImage};
use super::{State, Store, count, suspects};
use crate::{TierError, TierErrorKind};
use firn_device::{AlignedBuf, Io, IoOp};

/// Keeps metadata pages in memory until dropped. Not to be dropped under the `state` lock.
pub(crate) struct Pins<'a> {
    store: &'a Store,
    ids: Vec<MetaId>,
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        for id in &self.ids {
            state.cache.unpin(*id);
        }
    }
}

impl Store {
    /// Has `ids` in memory, loading what is missing; of groups that exist. Called under none of the store's
    /// locks but `growth`. If it fails, nothing is pinned.
    pub(crate) fn pin(&self, ids: &[MetaId]) -> Result<Pins<'_>, TierError> {
        let mut pins = Pins { store: self, ids: Vec::with_capacity(ids.len()) };
        let mut wanted: Vec<MetaId> = ids.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        loop {
            let mut state = self.state.lock();
            let groups = state.space.groups();
            let beyond =
                |id: &&MetaId| self.geometry.group_of_meta(**id).is_some_and(|group| group >= groups);
            if let Some(id) = wanted.iter().find(beyond) {
                // The group was given back since the caller looked: nothing in it is allocated.
                let message = format!("{id:?} lies beyond the end of the store");
                drop(state);
                return Err(TierError::new(TierErrorKind::NotAllocated, message));
            }
            wanted.retain(|id| {
                let cached = state.cache.pin(*id);
                if cached {
                    pins.ids.push(*id);
                }
                !cached
            });
            if wanted.is_empty() {
                return Ok(pins);
            }
            let mine: Vec<MetaId> =
                wanted.iter().copied().filter(|id| state.cache.loading.insert(*id)).collect();
            if mine.is_empty() {
                self.progress.wait(&mut state);
                continue;
            }
            drop(state);
            let loaded = self.load(&mine);
            let mut state = self.state.lock();
            let mut failure = None;
            for (id, image) in mine.iter().zip(loaded) {
                state.cache.loading.remove(id);
                match image.and_then(|loaded| state.accept(*id, loaded)) {
                    Ok(image) => {
                        state.cache.insert(*id, image);
                        // At once, or the next insertion might drop it.
                        assert!(state.cache.pin(*id));
                        pins.ids.push(*id);
                    }
                    Err(error) => failure = Some(error),
                }
            }
            wanted.retain(|id| !mine.contains(id));
            self.progress.notify_all();
            drop(state);
            if let Some(error) = failure {
                return Err(error);
            }
        }
    }

    /// Reads metadata pages, both slots of each, side by side.
    pub(crate) fn load(&self, ids: &[MetaId]) -> Vec<Result<Loaded, TierError>> {
        let meta_bytes = self.geometry.meta_bytes;
        count(&self.counters.metadata_pages_read, ids.len());
        let mut bufs: Vec<AlignedBuf> = ids.iter().map(|_| AlignedBuf::zeroed(2 * meta_bytes)).collect();
        let mut batch = Vec::with_capacity(2 * ids.len());
        for (id, buf) in ids.iter().zip(&mut bufs) {
            let (a, b) = buf.split_at_mut(meta_bytes);
            for (slot, half) in [(Slot::A, a), (Slot::B, b)] {
                let offset = self.geometry.meta_offset(*id, slot);
                batch.push(Io { offset, op: IoOp::Read(half), outcome: Ok(()) });
            }
        }
        self.device.submit(&mut batch);
        let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
        ids.iter()
            .zip(&bufs)
            .zip(outcomes.chunks(2))
            .map(|((id, buf), outcome)| {
                // One unreadable slot may be the newest; guessing that it is not could lose durable changes.
                outcome.iter().try_for_each(Clone::clone)?;
                let (a, b) = buf.split_at(meta_bytes);
                let image = meta_page::choose(self.database, *id, a, b)?;
                let sound = meta_page::other_is_sound(self.database, *id, &image, a, b);
                Ok(Loaded { image, sound })
            })
            .collect()
    }
}

/// A metadata page as found on the device.
pub(crate) struct Loaded {
    pub image: MetaImage,
    /// Whether the other slot is what it should be, so that `image` is the newest version for sure.
    pub sound: bool,
}

impl State {
    /// Whether a page just read may be used.
    fn accept(&mut self, id: MetaId, loaded: Loaded) -> Result<MetaImage, TierError> {
        if !loaded.sound {
            if !self.recovering {
                return Err(suspects::ambiguous(id));
            }
            self.suspects.insert(id);
        }
        Ok(loaded.image)
    }
}
