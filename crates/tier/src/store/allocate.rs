//! Page numbers: reserved, allocated, freed.
//!
//! Why a full disk is met here and nowhere else: a page is reserved only if places with space on the device
//! are at least as many as pages allocated and reserved, this one included, and slack. Places are counted,
//! not found: the totals page says how many are in use without any bitmap page being read.

use super::apply::{apply, concerned};
use super::meta_page::MetaId;
use super::pins::Pins;
use super::records::{self, Change, PUBLISH};
use super::space::Pending;
use super::{SLACK_BATCHES_NORMAL, SLACK_BATCHES_ROLLBACK, SLACK_BATCHES_SYSTEM, State, Store};
use crate::{Allocation, TierError, TierErrorKind};
use firn_base::{Lsn, PageId};
use firn_log::{Appended, LogClass, LogError, Record};

/// What stands between a call and its page number.
enum Next {
    Done(PageId),
    Load(u64),
    Learn(u64),
    Flush(Lsn),
    /// The file has to grow. `must`: else there is no room.
    Grow {
        groups: u64,
        must: bool,
        needed: u64,
    },
}

impl Store {
    /// Places that must have space for one more page.
    fn needed_with_one_more(&self, state: &mut State, slack_batches: u64) -> u64 {
        let slack = slack_batches * self.policy.batch_pages as u64;
        state.totals().pages + state.space.reserved() + 1 + slack
    }
    /// Places that have space.
    pub(crate) fn backed_places(&self, state: &mut State) -> u64 {
        (state.space.groups() - state.totals().unbacked_groups) * self.geometry.places_per_group
    }

    pub(crate) fn reserve_page(&self, class: LogClass) -> Result<PageId, TierError> {
        self.check_poison()?;
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
                Next::Grow { groups, must, needed } => match self.add_space(groups) {
                    Err(error) if error.kind == TierErrorKind::Full && !must => {
                        let pause = self.geometry.places_per_group / 8;
                        self.state.lock().grow_again_at = needed + pause.max(1);
                    }
                    Err(error) if error.kind == TierErrorKind::Full => return Err(self.full(needed, &error)),
                    other => other?,
                },
            }
        }
    }

    fn full(&self, needed: u64, cause: &TierError) -> TierError {
        let message = format!(
            "the store is full: {needed} places are needed with what is kept free for writing, and {}. Delete \
             something or make the volume larger",
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
            LogClass::Rollback => SLACK_BATCHES_ROLLBACK,
            LogClass::System => SLACK_BATCHES_SYSTEM,
        };
        let needed = self.needed_with_one_more(state, slack_batches);
        let backed = self.backed_places(state);
        let groups = state.space.groups();
        if needed > backed {
            return Next::Grow { groups, must: true, needed };
        }
        let full_percent = 100 - u64::from(self.policy.free_target_percent);
        if needed * 100 > backed * full_percent && needed >= state.grow_again_at {
            return Next::Grow { groups, must: false, needed };
        }
        if let Some(group) = state.space.group_for_page() {
            let Some(bitmap) = state.cache.get(MetaId::Bitmap(group)) else { return Next::Load(group) };
            let page = state.space.reserve_page(&self.geometry, group, &bitmap.body);
            return Next::Done(page.expect("the group has an available page number"));
        }
        if let Some(group) = state.space.next_to_learn() {
            return Next::Learn(group);
        }
        match state.space.pending_end() {
            Some(end) => Next::Flush(end),
            // Only if bitmap pages are damaged: their groups give no numbers.
            None => Next::Grow { groups, must: true, needed },
        }
    }

    pub(crate) fn publish_pages(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.check_poison()?;
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
        let mut wanted: Vec<MetaId> = sorted.iter().map(|page| self.geometry.map_of_page(*page)).collect();
        let mut pins: Vec<Pins<'_>> = Vec::new();
        loop {
            pins.push(self.pin(&wanted)?);
            let _order = self.order.lock();
            let mut state = self.state.lock();
            let (freed, changes) = self.publication(&mut state, change)?;
            let ids = concerned(&self.geometry, &changes);
            wanted = ids.iter().copied().filter(|id| !state.cache.contains(*id)).collect();
            if !wanted.is_empty() {
                continue;
            }
            ids.iter().for_each(|id| assert!(state.cache.pin(*id), "seen in the cache under the same lock"));
            drop(state);
            let body = records::encode_publish(change.allocate, &freed);
            let appended = append(Record { kind: PUBLISH, body: &body });
            let mut state = self.state.lock();
            if let Ok(appended) = &appended {
                let groups = state.space.groups();
                apply(&self.geometry, &mut state.cache, groups, appended.first, &changes)
                    .expect("checked under the same hold of `order`");
                change.allocate.iter().for_each(|page| state.space.allocated(*page));
                state.space.hold_freed(Pending {
                    end: appended.end,
                    needed_from: appended.first,
                    pages: change.free.to_vec(),
                    places: freed.iter().filter_map(|(_, place)| *place).collect(),
                });
            }
            ids.iter().for_each(|id| state.cache.unpin(*id));
            return Ok(appended?);
        }
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
