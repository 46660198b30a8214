//! Taking and cleaning pages.

use super::LazyCleaning;
use super::places::Place;
use firndb_base::{Crc32c, Lsn, PageId};
use firndb_device::{AlignedBuf, Durability, Io, IoOp};
use firndb_tier::page_cache::statistics::add;
use firndb_tier::{PageWrite, TierError, TierErrorKind, Written};

/// Pages that one caller has in flight at once, at most. Their places are unavailable to others
/// meanwhile.
const TAKEN_TOGETHER: usize = 16;
/// Pages that a caller which needs one place writes back at once.
const CLEANED_TOGETHER: usize = 16;

/// What becomes of a page that is offered.
pub(crate) enum Claim {
    /// It goes to this place, marked as moving; whether that is new to the page.
    Place { at: usize, fresh: bool },
    /// It is clean and in the cache already.
    Needless,
    /// Other callers have its place, or every place.
    Wait,
}

/// A page of a batch, by index, and its place.
struct Claimed {
    index: usize,
    at: usize,
    fresh: bool,
}

impl LazyCleaning {
    pub(crate) fn offset(&self, at: usize) -> u64 {
        self.begin + at as u64 * u64::from(self.header.page_size)
    }
    pub(crate) fn checksum(page: PageId, version: Lsn, image: &[u8]) -> u32 {
        Crc32c::new().with(&page.0.to_le_bytes()).with(&version.0.to_le_bytes()).with(image).value()
    }

    /// Checks that this is the image that was written to the place. After a failed write it need
    /// not be: the write may have ended half way, in place. That is no damage, since the log is
    /// kept for it.
    pub(crate) fn verify(&self, place: &Place, buf: &[u8]) -> Result<(), TierError> {
        if LazyCleaning::checksum(place.page, place.version, buf) == place.checksum {
            return Ok(());
        }
        let (kind, what) = match self.poison.cause() {
            None => (TierErrorKind::Damaged, "is damaged".to_owned()),
            Some(cause) => {
                (TierErrorKind::Failed, format!("is not what was to be written there, because: {cause}"))
            }
        };
        Err(TierError::new(
            kind,
            format!(
                "{:?} in the flash cache {} {what}; open the database again, the log has it",
                place.page,
                self.device.info().name
            ),
        ))
    }

    /// Takes pages, and sets their outcomes.
    pub(crate) fn take(&self, writes: &mut [PageWrite<'_>]) {
        for chunk in writes.chunks_mut(TAKEN_TOGETHER) {
            self.take_together(chunk);
        }
    }

    /// Takes a few pages and submits their writes as few batches: a drive works on several in
    /// parallel. A caller that would have to wait for a place writes what it has before, since
    /// others may wait for places that it has.
    fn take_together(&self, writes: &mut [PageWrite<'_>]) {
        let mut claimed: Vec<Claimed> = Vec::with_capacity(writes.len());
        let mut index = 0;
        while index < writes.len() {
            let write = &mut writes[index];
            match self.poison.check().and_then(|()| self.claim(write, claimed.is_empty())) {
                Ok(Claim::Place { at, fresh }) => claimed.push(Claimed { index, at, fresh }),
                Ok(Claim::Wait) => {
                    self.write_claimed(writes, std::mem::take(&mut claimed));
                    continue;
                }
                Ok(Claim::Needless) => write.outcome = Ok(Written::Declined),
                Err(error) => write.outcome = Err(error),
            }
            index += 1;
        }
        self.write_claimed(writes, claimed);
    }

    /// Writes pages to the places claimed for them, and sets their outcomes.
    fn write_claimed(&self, writes: &mut [PageWrite<'_>], claimed: Vec<Claimed>) {
        let mut batch: Vec<Io<'_>> = claimed
            .iter()
            .map(|&Claimed { index, at, .. }| Io {
                offset: self.offset(at),
                op: IoOp::Write(writes[index].data, Durability::Later),
                outcome: Ok(()),
            })
            .collect();
        self.device.submit(&mut batch);
        let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
        for (Claimed { index, at, fresh }, outcome) in claimed.into_iter().zip(outcomes) {
            writes[index].outcome = self.settle(&writes[index], at, fresh, outcome.map_err(TierError::from));
        }
    }

    /// Ends the write of a claimed place.
    fn settle(
        &self,
        write: &PageWrite<'_>,
        at: usize,
        fresh: bool,
        written: Result<(), TierError>,
    ) -> Result<Written, TierError> {
        let mut state = self.state.lock();
        self.settled.notify_all();
        let place = state.place(at);
        place.moving = false;
        if let Err(error) = written {
            self.poison.set(&error);
            if !state.place(at).dirty {
                state.forget(at);
            }
            return Err(error);
        }
        self.counters.wrote(write.data.len());
        place.version = write.version;
        place.checksum = LazyCleaning::checksum(write.page, write.version, write.data);
        (place.base, place.changes) = (write.base, write.changes);
        let taken = Written::Taken { base: write.base, changes: write.changes };
        if state.pages.get(&write.page) != Some(&at) {
            // Freed meanwhile.
            state.forget(at);
            return Ok(taken);
        }
        if !fresh {
            state.touch(at);
        }
        if write.dirty {
            let place = state.place(at);
            let (was, first) = (place.dirty, place.recovery_lsn);
            place.recovery_lsn = if was { first.min(write.recovery_lsn) } else { write.recovery_lsn };
            place.after_cleaning =
                Some(place.after_cleaning.map_or(write.recovery_lsn, |lsn| lsn.min(write.recovery_lsn)));
            state.set_dirty(at, true);
        }
        add(if write.dirty { &self.counters.dirty_enqueued } else { &self.counters.clean_enqueued }, 1);
        Ok(taken)
    }

    /// Chooses a place for the page, marked as moving: its own, or a free one, or that of the
    /// coldest clean page. `waits`: until there is one.
    pub(crate) fn claim(&self, write: &PageWrite<'_>, waits: bool) -> Result<Claim, TierError> {
        let mut state = self.state.lock();
        loop {
            if let Some(&at) = state.pages.get(&write.page) {
                if !write.dirty {
                    add(&self.counters.clean_declined, 1);
                    return Ok(Claim::Needless);
                }
                let place = state.place(at);
                if !place.moving && place.users == 0 {
                    place.moving = true;
                    return Ok(Claim::Place { at, fresh: false });
                }
                if !waits {
                    return Ok(Claim::Wait);
                }
                self.settled.wait(&mut state);
                continue;
            }
            if let Some(at) = state.occupy(write.page, write.version) {
                return Ok(Claim::Place { at, fresh: true });
            }
            if let Some(at) = state.victim() {
                add(&self.counters.discarded_clean, 1);
                state.forget(at);
                continue;
            }
            // No page is clean and idle. Several are written back, so that not every page waits.
            let coldest = state.coldest_dirty(CLEANED_TOGETHER);
            if coldest.is_empty() {
                if !waits {
                    return Ok(Claim::Wait);
                }
                self.settled.wait(&mut state);
                continue;
            }
            drop(state);
            self.clean(&coldest)?;
            state = self.state.lock();
        }
    }

    /// Writes these places' pages to the store, if they are still dirty and no other thread writes
    /// them, here or there.
    pub(crate) fn clean(&self, places: &[usize]) -> Result<usize, TierError> {
        let mut chosen: Vec<(usize, Place)> = Vec::with_capacity(places.len());
        {
            let mut state = self.state.lock();
            for &at in places {
                let idle = |place: &&mut Place| place.dirty && !place.moving && !place.cleaning;
                let Some(place) = state.places[at].as_mut().filter(idle) else { continue };
                place.cleaning = true;
                // Keeps a newer version from overwriting it while it is read.
                place.users += 1;
                place.after_cleaning = None;
                chosen.push((at, *place));
            }
        }
        if chosen.is_empty() {
            return Ok(0);
        }
        let page_size = self.header.page_size as usize;
        let mut buf = AlignedBuf::zeroed(chosen.len() * page_size);
        let mut batch: Vec<Io<'_>> = chosen
            .iter()
            .zip(buf.chunks_mut(page_size))
            .map(|((at, _), out)| Io { offset: self.offset(*at), op: IoOp::Read(out), outcome: Ok(()) })
            .collect();
        self.device.submit(&mut batch);
        let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
        let images = chosen.iter().zip(buf.chunks(page_size)).zip(outcomes);
        let read: Vec<Result<(), TierError>> = images
            .map(|(((_, place), image), outcome)| {
                outcome.map_err(TierError::from).and_then(|()| self.verify(place, image))
            })
            .collect();
        let outcomes = self.store_images(&chosen, &buf, &read);
        let mut state = self.state.lock();
        self.settled.notify_all();
        let mut cleaned = 0;
        let mut failure = None;
        for ((at, place), outcome) in chosen.iter().zip(outcomes) {
            match outcome {
                Ok(written) => {
                    cleaned += 1;
                    state.cleaned(*at, place.version, written);
                }
                Err(error) => failure = Some(error),
            }
            state.place(*at).cleaning = false;
            state.release(*at);
        }
        add(&self.counters.write_backs, cleaned);
        failure.map_or(Ok(cleaned), Err)
    }

    /// Writes the images that were read to the store and returns what became of them; `None`: the
    /// page was freed meanwhile.
    pub(crate) fn store_images(
        &self,
        chosen: &[(usize, Place)],
        buf: &[u8],
        read: &[Result<(), TierError>],
    ) -> Vec<Result<Option<Written>, TierError>> {
        let page_size = self.header.page_size as usize;
        let mut writes: Vec<PageWrite<'_>> = Vec::with_capacity(chosen.len());
        for (((_, place), data), read) in chosen.iter().zip(buf.chunks(page_size)).zip(read) {
            if read.is_ok() {
                let write = PageWrite::back(place.page, place.version, place.recovery_lsn, data);
                writes.push(write.changed_since(place.base, place.changes));
            }
        }
        self.store.write_batch(&mut writes);
        let mut outcomes = writes.into_iter().map(|write| match write.outcome {
            Ok(written) => Ok(Some(written)),
            Err(error) if error.kind == TierErrorKind::NotAllocated => Ok(None),
            Err(error) => Err(error),
        });
        let next = |read: &Result<(), TierError>| match read {
            Ok(()) => outcomes.next().expect("an outcome for each write"),
            Err(error) => Err(error.clone()),
        };
        read.iter().map(next).collect()
    }

    /// Forgets these pages: they are freed, or a new incarnation begins.
    pub(crate) fn invalidate<'p>(&self, pages: impl Iterator<Item = &'p PageId>) {
        let mut state = self.state.lock();
        for page in pages {
            let Some(at) = state.pages.get(page).copied() else { continue };
            if state.place(at).users == 0 && !state.place(at).moving {
                state.forget(at);
            } else {
                // The last user frees the place.
                state.pages.remove(page);
                state.set_dirty(at, false);
            }
        }
    }
}
