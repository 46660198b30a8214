//! Publishing work that was done outside of the locks: one record of the map says what came of it.
//!
//! What the record says is decided under `order`, from entries and bits that are in memory then; so
//! it is decided anew after each wait, for a metadata page or for space in the log's buffer. A
//! change that metadata contradicts is left out before anything of it is logged: it could not be
//! redone. A bitmap page that cannot be read is no obstacle: its bits are kept until it can be.
//!
//! Reserving and freeing page numbers (`allocate.rs`) waits for nothing, and so has its own way.

use super::apply::concerned;
use super::geometry::Place;
use super::held_shadows::images_of;
use super::meta_page::MetaId;
use super::pins::{Failed, Pins};
use super::records::{self, Change};
use super::space::Pending;
use super::state::{State, Store};
use crate::error::TierError;
use firndb_base::Lsn;
use firndb_base::codec::Malformed;
use firndb_base::sync::MutexGuard;
use firndb_log::{Kind, Log, LogErrorKind, Record};

/// What one record is to say.
pub(crate) trait Publication {
    /// The record's kind.
    fn kind(&self) -> Kind;

    /// The map pages that must be read before `changes` can tell.
    fn unknown(&self, store: &Store, state: &State) -> Vec<MetaId>;

    /// What the record says now; nothing if none is needed. Called again if it could not be
    /// appended.
    fn changes(&mut self, store: &Store, state: &mut State) -> Vec<Change>;

    /// From now on leaves out a change that metadata contradicts.
    ///
    /// Errors: it cannot be left out.
    fn leave_out(&mut self, state: &mut State, change: Change, error: Malformed) -> Result<(), TierError>;

    /// The record's body.
    fn encode(changes: &[Change]) -> Vec<u8>;

    /// From where the log is needed until the record is durable, beside what waited in the write
    /// buffer.
    fn needed_from(&self) -> Lsn;

    /// Called with the changes that were applied, in the same hold of `state`.
    fn published(&mut self, store: &Store, state: &mut State, changes: &[Change]);
}

impl Store {
    /// Appends one record and applies it. Of the places `taken` for it, those that it names are in
    /// use then, and the others are free again; all of them are if it fails.
    pub(crate) fn publish_record(
        &self,
        publication: &mut impl Publication,
        taken: &[Place],
    ) -> Result<(), TierError> {
        let published = self.try_publish(publication, taken);
        published.inspect_err(|_| self.drop_places(taken))
    }

    fn try_publish<P: Publication>(&self, publication: &mut P, taken: &[Place]) -> Result<(), TierError> {
        let mut pins: Vec<Pins<'_>> = Vec::new();
        let mut unreadable = Failed::new();
        loop {
            let order = self.order.lock();
            let mut state = self.state.lock();
            let mut missing = publication.unknown(self, &state);
            let (mut changes, mut ids) = (Vec::new(), Vec::new());
            if missing.is_empty() {
                changes = publication.changes(self, &mut state);
                let concerned = concerned(&self.geometry, &changes).into_iter();
                (ids, missing) = concerned.partition(|id| state.cache.contains(*id));
                missing.retain(|id| !unreadable.contains_key(id));
            }
            if !missing.is_empty() {
                drop(state);
                drop(order);
                let (pinned, failed) = self.pin_readable(&missing)?;
                pins.extend(pinned);
                if let Some((_, error)) = failed.iter().find(|(id, _)| !matches!(id, MetaId::Bitmap(_))) {
                    return Err(error.clone());
                }
                unreadable.extend(failed);
                continue;
            }
            if let Err((index, error)) = state.check(&self.geometry, &changes) {
                publication.leave_out(&mut state, changes[index], error)?;
                continue;
            }
            let needed = self.append_and_apply(publication, state, &changes, &ids, taken)?;
            drop(order);
            // Other threads may change the map while this one waits: everything is checked again.
            match needed {
                None => return Ok(()),
                Some(bytes) => self.journal()?.wait_for_buffer(bytes)?,
            }
        }
    }

    /// Appends and applies, with the pages concerned in memory that can be read, under `order`. If
    /// the log's buffer has no space for the record, does nothing and returns the bytes that it
    /// needs.
    fn append_and_apply<'a, P: Publication>(
        &'a self,
        publication: &mut P,
        mut state: MutexGuard<'a, State>,
        changes: &[Change],
        ids: &[MetaId],
        taken: &[Place],
    ) -> Result<Option<u64>, TierError> {
        let mut unused = taken.to_vec();
        if !changes.is_empty() {
            let journal = self.journal()?;
            ids.iter().for_each(|id| assert!(state.cache.pin(*id), "seen in the cache under the same lock"));
            let kept = Pins::of_pinned(self, ids.to_vec());
            let held_from = state.space.shadows.from;
            drop(state);
            let mut body = P::encode(changes);
            if publication.kind() == Kind::PAGES_SHADOWED {
                records::put_held_from(&mut body, held_from);
            }
            let record = Record { kind: publication.kind(), body: &body };
            let appended = match journal.append(record) {
                Err(error) if error.kind == LogErrorKind::BufferFull => {
                    return Ok(Some(Log::framed_len(body.len())));
                }
                appended => appended?,
            };
            state = self.state.lock();
            kept.release(&mut state);
            let waited = state.waits_from(changes).unwrap_or(appended.first);
            state
                .apply(&self.geometry, (appended.first, record), changes)
                .expect("checked before it was appended, under the same hold of `order`");
            if publication.kind() == Kind::PAGES_SHADOWED {
                // Both what the record says and what holds by now: either may have changed.
                match held_from.and(state.space.shadows.from) {
                    Some(_) => {
                        let images = images_of(appended.first, changes);
                        state.space.hold_shadows(&self.geometry, &images);
                    }
                    None => state.space.shadows.newest_not_held = Some(appended.first),
                }
            }
            for place in changes.iter().filter_map(Change::taken_place) {
                state.space.placed(place);
                unused.retain(|taken| *taken != place);
            }
            let pending = Pending {
                end: appended.end,
                needed_from: appended.first.min(waited).min(publication.needed_from()),
                pages: Vec::new(),
                places: changes.iter().filter_map(Change::freed_place).collect(),
            };
            state.space.hold_freed(&self.geometry, pending);
        }
        unused.iter().for_each(|place| state.space.drop_place(&self.geometry, *place));
        publication.published(self, &mut state, changes);
        self.progress.notify_all();
        Ok(None)
    }
}
