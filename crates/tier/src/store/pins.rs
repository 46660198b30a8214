//! Metadata pages pinned in memory while a call works with them.

use super::geometry::Geometry;
use super::load::Loaded;
use super::meta_page::{MetaId, MetaImage};
use super::state::{State, Store};
use super::suspects;
use crate::error::{TierError, TierErrorKind};
use firndb_base::Lsn;
use firndb_base::sync::atomic::Ordering;
use std::collections::BTreeMap;

/// Metadata pages that cannot be read, and why.
pub(crate) type Failed = BTreeMap<MetaId, TierError>;

/// Keeps metadata pages in memory until dropped. Must not be dropped under the `state` lock.
pub(crate) struct Pins<'a> {
    store: &'a Store,
    ids: Vec<MetaId>,
}

impl<'a> Pins<'a> {
    /// Of pages that the caller has pinned in the cache, under `state`.
    pub(crate) fn of_pinned(store: &'a Store, ids: Vec<MetaId>) -> Pins<'a> {
        Pins { store, ids }
    }
    pub(crate) fn ids(&self) -> &[MetaId] {
        &self.ids
    }
    /// As by dropping them, under `state`.
    pub(crate) fn release(mut self, state: &mut State) {
        std::mem::take(&mut self.ids).into_iter().for_each(|id| state.cache.unpin(id));
    }
    /// Pins the pages for as long as the store is open.
    pub(crate) fn keep(mut self) {
        self.ids = Vec::new();
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let mut state = self.store.state.lock();
        for id in &self.ids {
            state.cache.unpin(*id);
        }
    }
}

impl Store {
    /// Pins `ids` and loads those that are missing; their groups must exist. Called under none of
    /// the store's locks but `growth`. If it fails, nothing is pinned.
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
                // The group was cut off since the caller checked: nothing in it is allocated.
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
            let loaded = self.load_newest(&mine);
            // During recovery `finish_redo` looks at the totals, and what redo is given lies
            // before.
            let log_end = self.journal.get().map_or(Lsn(u64::MAX), |journal| journal.durable());
            let mut state = self.state.lock();
            let mut failure = None;
            for (id, image) in mine.iter().zip(loaded) {
                state.cache.loading.remove(id);
                match image.and_then(|loaded| state.accept(*id, loaded, log_end)) {
                    Ok(image) => {
                        state.insert(&self.geometry, *id, image);
                        self.map_wants.store(state.cache.wanted_bytes(), Ordering::Relaxed);
                        // At once, or the next insertion might evict it.
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

    /// Pins those of `ids` that can be read. Returns the others with the reasons.
    ///
    /// Errors: what does not concern single pages.
    pub(crate) fn pin_readable(&self, ids: &[MetaId]) -> Result<(Vec<Pins<'_>>, Failed), TierError> {
        match self.pin(ids) {
            Ok(pins) => return Ok((vec![pins], Failed::new())),
            Err(error) if error.concerns_the_page() => {}
            Err(error) => return Err(error),
        }
        let (mut pins, mut failed) = (Vec::new(), Failed::new());
        for id in ids {
            match self.pin(&[*id]) {
                Ok(pin) => pins.push(pin),
                Err(error) if error.concerns_the_page() => _ = failed.insert(*id, error),
                Err(error) => return Err(error),
            }
        }
        Ok((pins, failed))
    }
}

impl State {
    /// Decides whether a page that was just read may be used; all log before `log_end` is durable.
    fn accept(&mut self, id: MetaId, loaded: Loaded, log_end: Lsn) -> Result<MetaImage, TierError> {
        if loaded.image.lsn >= log_end {
            return Err(suspects::beyond_the_log(id, loaded.image.lsn, log_end));
        }
        if !loaded.sound && id == MetaId::Totals && self.recovering {
            self.recount = true;
        } else if !loaded.sound && !self.sweep.may_be_torn(id) {
            return Err(suspects::ambiguous(id));
        }
        Ok(loaded.image)
    }

    /// Inserts a page that was read, with what it lacks.
    fn insert(&mut self, geometry: &Geometry, id: MetaId, mut image: MetaImage) {
        let completed = self.deferred.complete(geometry, id, &mut image.body);
        let found = image.lsn;
        self.sequences.note(id, image.sequence);
        self.cache.insert(id, image);
        if let Some(lsn) = completed.filter(|lsn| *lsn > found) {
            self.cache.changed(id, lsn);
        }
    }
}
