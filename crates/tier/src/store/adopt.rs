//! Adopting pages with the numbers and versions that they had in another database: restoring.
//!
//! A restored page keeps its number, because trees name it, and its version, because redo of the
//! old log on it compares versions. So the pages are not allocated by a publication (its LSN would
//! be their version), but by an *adopt* record of this log that gives the version. Only a store
//! that is being restored has such records.

use super::apply::{concerned, contradiction};
use super::give_back::Search;
use super::journal::made_space;
use super::records::{self, CHANGES_MAX, Change};
use super::state::{SLACK_BATCHES_NORMAL, Store};
use crate::error::{TierError, TierErrorKind};
use firndb_base::codec::Malformed;
use firndb_base::{Lsn, PageId};
use firndb_log::{Kind, LogError, Record};
use std::collections::BTreeSet;

/// The allocations and frees in a map record: each page with its version if it became allocated,
/// without if it became free. Moves are left out.
pub fn page_incarnations(lsn: Lsn, record: Record<'_>) -> Result<Vec<(PageId, Option<Lsn>)>, Malformed> {
    let changes = records::decode(record)?;
    Ok(changes
        .into_iter()
        .filter_map(|change| match change {
            Change::Allocate { page } => Some((page, Some(lsn))),
            Change::Adopt { page, version } => Some((page, Some(version))),
            Change::Free { page, .. } => Some((page, None)),
            Change::Move { .. }
            | Change::DeltaPage { .. }
            | Change::Delta { .. }
            | Change::DeltaFreed { .. }
            | Change::Backing { .. } => None,
        })
        .collect())
}

impl Store {
    /// Allocates pages, none of which is allocated, in the versions given; they have no image yet.
    /// The file grows as far as their numbers require.
    ///
    /// Errors: `Full`; `BadArgument` if a page is allocated already, or has an impossible number.
    pub fn adopt(&self, pages: &[(PageId, Lsn)]) -> Result<(), TierError> {
        self.poison.check()?;
        pages.chunks(self.policy.batch_pages.min(CHANGES_MAX)).try_for_each(|chunk| self.adopt_chunk(chunk))
    }

    fn adopt_chunk(&self, pages: &[(PageId, Lsn)]) -> Result<(), TierError> {
        let bad = |message: String| Err(TierError::new(TierErrorKind::BadArgument, message));
        let Some(highest) = pages.iter().map(|(page, _)| page.0).max() else { return Ok(()) };
        if pages.iter().any(|(page, _)| page.0 == 0) || highest >= 1 << 56 {
            return bad(format!("page {highest} cannot be adopted: no store has a page of this number"));
        }
        self.write_back_if_crowded()?;
        loop {
            let (groups, backed, needed) = {
                let mut state = self.state.lock();
                let slack = SLACK_BATCHES_NORMAL * self.policy.batch_pages as u64;
                let needed = state.places_needed(slack + pages.len() as u64);
                (state.space.groups(), self.backed_places(&mut state), needed)
            };
            if needed <= backed && self.geometry.group_of_page(PageId(highest)) < groups {
                break;
            }
            self.add_space(backed, Search::Everywhere)?;
        }
        let changes: Vec<Change> =
            pages.iter().map(|&(page, version)| Change::Adopt { page, version }).collect();
        let mut ids = concerned(&self.geometry, &changes);
        ids.extend(pages.iter().map(|(page, _)| self.geometry.map_of_page(*page)));
        let _pins = self.pin(&ids)?;
        let body = records::encode_adopt(pages);
        let record = Record { kind: Kind::PAGES_ADOPTED, body: &body };
        while let Err(error) = self.try_adopt(pages, &changes, record)? {
            if !made_space(&**self.journal()?, &error, record)? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Appends and applies, with all pages concerned in memory. The inner error is the log's;
    /// nothing has changed then.
    fn try_adopt(
        &self,
        pages: &[(PageId, Lsn)],
        changes: &[Change],
        record: Record<'_>,
    ) -> Result<Result<(), LogError>, TierError> {
        let _order = self.order.lock();
        {
            let mut state = self.state.lock();
            for (page, _) in pages {
                if state.entry(self, *page)?.version().is_some() {
                    let message = format!("{page:?} is to be adopted twice");
                    return Err(TierError::new(TierErrorKind::BadArgument, message));
                }
            }
            if let Err((index, error)) = state.check(&self.geometry, changes) {
                return Err(contradiction(pages[index].0, error));
            }
        }
        let appended = match self.journal()?.append(record) {
            Ok(appended) => appended,
            Err(error) => return Ok(Err(error)),
        };
        let mut state = self.state.lock();
        state.apply(&self.geometry, (appended.first, record), changes).map_err(|error| {
            let error = TierError::new(TierErrorKind::Damaged, format!("adopting pages: {error}"));
            self.poison.set(&error);
            error
        })?;
        // Free space in these groups is counted anew.
        let touched: BTreeSet<u64> =
            pages.iter().map(|(page, _)| self.geometry.group_of_page(*page)).collect();
        touched.into_iter().for_each(|group| state.space.unlearn(group));
        Ok(Ok(()))
    }
}
