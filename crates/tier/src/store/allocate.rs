//! Page numbers: reserved, allocated, freed.
//!
//! Why only a reservation can find the disk full: a page is reserved only if there are at least as
//! many places with space on the device as pages allocated and reserved, this one included, and
//! slack, and delta pages, and places that are in use without a name (`lost_sight.rs`). What is
//! needed is counted, not found: the totals page has the numbers, so no bitmap page is read for
//! it.
//!
//! A publication runs under page latches and `order`, so it waits for no device: `prepare`
//! has brought the map pages it needs into memory; where it has not, the call fails and the caller
//! prepares again.

use super::apply::{concerned, contradiction};
use super::give_back::Search;
use super::meta_page::MetaId;
use super::pins::Pins;
use super::records::{self, Change};
use super::space::Pending;
use super::state::{
    SLACK_BATCHES_NORMAL, SLACK_BATCHES_REMOVAL, SLACK_BATCHES_ROLLBACK, SLACK_BATCHES_SYSTEM, State, Store,
};
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{Allocation, Prepared};
use firndb_base::sync::before_device;
use firndb_base::{Lsn, PageId};
use firndb_log::{Appended, Kind, LogClass, LogError, Record};

/// The next thing that a call needs for its page number.
enum Next {
    Done(PageId),
    Load(u64),
    Learn(u64),
    Flush(Lsn),
    /// The file has to grow. With `must`, a failure means that the store is full.
    Grow {
        backed: u64,
        must: bool,
        needed: u64,
    },
}

#[cold]
fn unprepared() -> TierError {
    TierError::new(TierErrorKind::Unprepared, "what the change needs of the page map is not in memory")
}

impl Store {
    /// Places that have space, and may be taken when they are free: those of groups that are being
    /// emptied may not. None if damaged totals count more groups without than there are.
    pub(crate) fn backed_places(&self, state: &mut State) -> u64 {
        let without = state.totals().unbacked_groups.saturating_add(state.space.closed());
        let backed = state.space.groups().saturating_sub(without);
        backed * self.geometry.places_per_group
    }

    /// There are as many places as pages allocated and reserved. (That each can be written takes
    /// more, which `reserve` sees to before a page is reserved.)
    pub(crate) fn debug_assert_backed(&self, state: &mut State) {
        if cfg!(debug_assertions) {
            let needed = state.totals().pages + state.space.reserved();
            let backed = self.backed_places(state);
            assert!(needed <= backed, "{needed} pages and {backed} places with space");
        }
    }

    pub(crate) fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        before_device();
        self.poison.check()?;
        self.write_back_if_crowded()?;
        let durable = self.journal()?;
        let mut pins: Vec<Pins<'_>> = Vec::new();
        loop {
            match self.reserve_known(class, durable.durable()) {
                Next::Done(page) => return Ok(page),
                Next::Load(group) => match self.pin(&[MetaId::Bitmap(group)]) {
                    Ok(pin) => pins.push(pin),
                    Err(_) => self.learn(group)?,
                },
                Next::Learn(group) => self.learn(group)?,
                Next::Flush(end) => self.flush_log(end)?,
                Next::Grow { backed, must, needed } => match self
                    .add_space(backed, if must { Search::Everywhere } else { Search::KnownAndSome })
                {
                    Err(error) if error.kind == TierErrorKind::Full && !must => {
                        let pause = self.geometry.places_per_group / 8;
                        self.state.lock().grow_again_at = needed + pause.max(1);
                    }
                    Err(error) if error.kind == TierErrorKind::Full => {
                        // Deltas never make a store full.
                        if !self.give_up_delta_pages()? {
                            return Err(self.full(needed, &error));
                        }
                    }
                    other => other?,
                },
            }
        }
    }

    fn full(&self, needed: u64, cause: &TierError) -> TierError {
        let held = match self.state.lock().space.shadows.count() {
            0 => String::new(),
            held => format!(", or let the archive or a backup have the {held} images that it lacks"),
        };
        let message = format!(
            "the store is full: {needed} places are needed with what is kept free for writing, and {}. Delete \
             something, some rows in each transaction, or make the volume larger{held}",
            cause.message
        );
        TierError::new(TierErrorKind::Full, message)
    }

    fn reserve_known(&self, class: LogClass, durable: Lsn) -> Next {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.space.release_freed(&self.geometry, durable);
        let slack_batches = match class {
            LogClass::Normal => SLACK_BATCHES_NORMAL,
            LogClass::Removal => SLACK_BATCHES_REMOVAL,
            LogClass::Rollback | LogClass::Decision => SLACK_BATCHES_ROLLBACK,
            LogClass::System => SLACK_BATCHES_SYSTEM,
        };
        let needed = state.places_needed(slack_batches * self.policy.batch_pages as u64 + 1);
        let backed = self.backed_places(state);
        if needed > backed {
            return Next::Grow { backed, must: true, needed };
        }
        let full_percent = 100 - u64::from(self.policy.free_target_percent);
        if needed * 100 > backed * full_percent && needed >= state.grow_again_at {
            return Next::Grow { backed, must: false, needed };
        }
        if let Some(group) = state.space.next_for_page() {
            return Next::Learn(group);
        }
        if let Some(group) = state.space.group_for_page() {
            let Some(bitmap) = state.cache.get(MetaId::Bitmap(group)) else { return Next::Load(group) };
            let page = state.space.reserve_page(&self.geometry, group, &bitmap.body);
            return page.map_or(Next::Learn(group), Next::Done);
        }
        match state.space.pending_end() {
            Some(end) => Next::Flush(end),
            // Only if bitmap pages are damaged: their groups supply no numbers.
            None => Next::Grow { backed, must: true, needed },
        }
    }

    pub(crate) fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.poison.check()?;
        let groups = self.state.lock().space.groups();
        for page in change.free {
            if page.0 == 0 || self.geometry.group_of_page(*page) >= groups {
                return Err(self.not_allocated(*page));
            }
        }
        let mut sorted = change.free.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TierError::new(TierErrorKind::BadArgument, format!("{:?} is freed twice", twice[0])));
        }
        let _order = self.order.lock();
        let mut state = self.state.lock();
        if sorted.iter().any(|page| !state.knows(&self.geometry, *page)) {
            return Err(unprepared());
        }
        let (freed, changes) = self.publication(&mut state, change)?;
        let ids = concerned(&self.geometry, &changes);
        if ids.iter().any(|id| !state.cache.contains(*id)) {
            return Err(unprepared());
        }
        // What is appended must be such that it can be redone.
        if let Err((index, error)) = state.check(&self.geometry, &changes) {
            return Err(contradiction(changes[index].page().expect("a publication is of pages"), error));
        }
        ids.iter().for_each(|id| assert!(state.cache.pin(*id), "seen in the cache under the same lock"));
        drop(state);
        let body = records::encode_publish(change.allocate, &freed);
        let record = Record { kind: Kind::PAGES_PUBLISHED, body: &body };
        let appended = append(record);
        let mut state = self.state.lock();
        if let Ok(appended) = &appended {
            let waited = state.waits_from(&changes).unwrap_or(appended.first);
            state
                .apply(&self.geometry, (appended.first, record), &changes)
                .expect("checked before it was appended, under the same hold of `order`");
            change.allocate.iter().for_each(|page| state.space.allocated(*page));
            state.space.hold_freed(
                &self.geometry,
                Pending {
                    end: appended.end,
                    needed_from: appended.first.min(waited),
                    pages: change.free.to_vec(),
                    places: freed.iter().filter_map(|(_, place)| *place).collect(),
                },
            );
            self.debug_assert_backed(&mut state);
        }
        ids.iter().for_each(|id| state.cache.unpin(*id));
        Ok(appended?)
    }

    /// Loads and pins what a publication of these pages reads and changes.
    pub(crate) fn prepare(&self, pages: &[PageId]) -> Result<Prepared<'_>, TierError> {
        let groups = self.state.lock().space.groups();
        let exists = |page: &&PageId| page.0 != 0 && self.geometry.group_of_page(**page) < groups;
        let pages: Vec<PageId> = pages.iter().filter(exists).copied().collect();
        let of_page = |page: &PageId| [self.geometry.map_of_page(*page), self.geometry.bitmap_of_page(*page)];
        let pins = self.pin(&pages.iter().flat_map(of_page).collect::<Vec<_>>())?;
        let places: Vec<MetaId> = {
            let mut state = self.state.lock();
            // The publication reports an entry that cannot be read.
            let places = pages.iter().filter_map(|page| state.entry(self, *page).ok()?.place());
            places.map(|place| self.geometry.bitmap_of_place(place)).collect()
        };
        Ok(Prepared::holding([pins, self.pin(&places)?]))
    }

    /// What the publication changes now: the freed pages with their places, and all changes.
    #[allow(clippy::type_complexity)]
    fn publication(
        &self,
        state: &mut State,
        change: Allocation<'_>,
    ) -> Result<(Vec<(PageId, Option<super::Place>)>, Vec<Change>), TierError> {
        let mut changes = Vec::with_capacity(change.allocate.len() + change.free.len());
        for page in change.allocate {
            assert!(state.space.is_reserved(*page), "{page:?} is allocated without being reserved");
            changes.push(Change::Allocate { page: *page });
        }
        let mut freed = Vec::with_capacity(change.free.len());
        for page in change.free {
            let entry = state.entry(self, *page)?;
            if entry.version().is_none() {
                return Err(self.not_allocated(*page));
            }
            freed.push((*page, entry.place()));
            changes.push(Change::Free { page: *page, place: entry.place() });
        }
        Ok((freed, changes))
    }
}
