//! A structure change: several pages changed, taken into use and freed, by one atomic group of the
//! log.
//!
//! Order of a commit, and why a crash at each point is harmless (`docs/internals/tree.md` has the
//! whole argument):
//! 1. Every page that will change is latched exclusively and every change rehearsed; nothing is
//!    visible. A crash, or an error, forgets reserved pages; no byte of the tree has changed.
//! 2. Each latch becomes an intent: a checkpoint beginning now keeps the log from here on.
//! 3. The tier's record and all changes are appended as one group. A crash finds all of it or none.
//! 4. Each change is applied with its own record's LSN. Nothing can fail any more. No page can be
//!    written meanwhile, since all are latched; later the buffer waits for the log before it writes
//!    any.
//! 5. Latches are released, frames of freed pages discarded.
//!
//! Nothing of this waits for a device: what the group needs was acquired before (`stock.rs`), or
//! the group is withdrawn.

use crate::error::TreeError;
use crate::op::{self};
use crate::redo::PageChange;
use crate::stock::{Lack, Stock, Stop};
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferPool, Changed, ExclusiveGuard, IntentGuard, KeptOut};
use firndb_log::{Appended, Kind, Log, LogClass, LogError, LogErrorKind, Record};
use firndb_tier::{Allocation, TierErrorKind};

/// Bytes of log that the longest atomic group of a tree over pages of `page_size` bytes takes, at
/// most: that of a root that grows, which writes its entries to two new pages, with their fences
/// and the separator between them, each an eighth of a page at most, and the change of the page map
/// with them. Changes of rows with their before-images take less than a page.
#[must_use]
pub const fn group_bytes_max(page_size: usize) -> u64 {
    2 * page_size as u64 + 4096
}

struct PageEdit<'p> {
    guard: ExclusiveGuard<'p>,
    fresh: bool,
    kind: Kind,
    body: Vec<u8>,
    /// The page as the rehearsal made it, if it makes the whole page.
    image: Option<Vec<u8>>,
}

/// A change of one page, encoded.
pub(crate) struct Draft {
    page: PageId,
    kind: Kind,
    body: Vec<u8>,
}

impl Draft {
    /// Of a body that is encoded.
    pub(crate) fn of(page: PageId, kind: Kind, body: Vec<u8>) -> Draft {
        Draft { page, kind, body }
    }
    /// `encode` writes the operation after the body's beginning.
    pub(crate) fn new(guard: &ExclusiveGuard<'_>, encode: impl FnOnce(&mut Vec<u8>) -> Kind) -> Draft {
        Draft::with(guard, &[], encode)
    }
    /// As [`Draft::new`], with an attachment in the record.
    pub(crate) fn with(
        guard: &ExclusiveGuard<'_>,
        attachment: &[u8],
        encode: impl FnOnce(&mut Vec<u8>) -> Kind,
    ) -> Draft {
        let mut body = Vec::new();
        op::begin(&mut body, guard.page(), guard.version(), attachment);
        let kind = encode(&mut body);
        Draft { page: guard.page(), kind, body }
    }
}

/// A structure change being put together. Dropped without a commit, it leaves no trace.
pub(crate) struct Group<'p> {
    pool: &'p BufferPool,
    class: LogClass,
    edits: Vec<PageEdit<'p>>,
    freed: Vec<PageId>,
    freed_frames: Vec<ExclusiveGuard<'p>>,
    /// Freed pages that are in no frame, until the tier knows that they are free.
    freed_absent: Vec<KeptOut<'p>>,
    /// New pages that get no content here; their frames are forgotten.
    unwritten: Vec<Reserved<'p>>,
}

impl<'p> Group<'p> {
    /// A change of nothing yet, that uses what `stock` has.
    pub(crate) fn new(stock: &Stock<'p>) -> Group<'p> {
        let (pool, class) = (stock.pool(), stock.class());
        let (edits, freed, freed_frames, freed_absent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Group { pool, class, edits, freed, freed_frames, freed_absent, unwritten: Vec::new() }
    }

    /// Adds a change of a page.
    pub(crate) fn change(&mut self, guard: ExclusiveGuard<'p>, draft: Draft) {
        debug_assert_eq!(draft.page, guard.page());
        self.edits.push(PageEdit { guard, fresh: false, kind: draft.kind, body: draft.body, image: None });
    }

    /// Adds the first content of a new page.
    pub(crate) fn fill(&mut self, reserved: Reserved<'p>, draft: Draft) {
        debug_assert_eq!(draft.page, reserved.page());
        let guard = reserved.into_guard();
        self.edits.push(PageEdit { guard, fresh: true, kind: draft.kind, body: draft.body, image: None });
    }

    /// Takes a new page into use without content: the caller writes it before a reader may meet it.
    pub(crate) fn allocate_unwritten(&mut self, reserved: Reserved<'p>) {
        self.unwritten.push(reserved);
    }

    /// Frees a page, and forgets its frame.
    pub(crate) fn free(&mut self, guard: ExclusiveGuard<'p>) {
        self.freed.push(guard.page());
        self.freed_frames.push(guard);
    }

    /// Frees a page that is in no frame.
    pub(crate) fn free_absent(&mut self, kept_out: KeptOut<'p>) {
        self.freed.push(kept_out.page());
        self.freed_absent.push(kept_out);
    }

    /// Frees the page of a change of this group; its frame is forgotten once the change is applied.
    pub(crate) fn free_changed(&mut self, page: PageId) {
        assert!(self.edits.iter().any(|edit| edit.guard.page() == page));
        self.freed.push(page);
    }

    /// Appends the group and performs it. Where it would have to wait for a device, nothing is
    /// done, and its new pages go back to `stock`: the next attempt needs them again, and reserving
    /// them may write pages to have frames.
    pub(crate) fn commit(self, stock: &mut Stock<'p>) -> Result<(), Stop> {
        self.commit_at(stock).map(|_| ())
    }

    /// As [`Group::commit`]; returns the LSN of the first change of a page, which comes after the
    /// tier's record.
    pub(crate) fn commit_at(mut self, stock: &mut Stock<'p>) -> Result<Lsn, Stop> {
        let rehearsed = self.edits.iter_mut().try_for_each(|edit| {
            let image = decode(edit)?.rehearse_keeping(&edit.guard);
            edit.image = image.map_err(|error| TreeError::damaged(edit.guard.page(), error))?;
            Ok::<_, TreeError>(())
        });
        if let Err(error) = rehearsed {
            self.abandon();
            return Err(error.into());
        }
        self.check_in_debug();
        let edits = std::mem::take(&mut self.edits);
        let mut announced: Vec<Announced<'p>> = Vec::with_capacity(edits.len());
        let mut images = Vec::with_capacity(edits.len());
        for PageEdit { guard, fresh, kind, body, image } in edits {
            announced.push((guard.intend(), fresh, kind, body));
            images.push(image);
        }
        match self.append(&announced) {
            Ok(first) => {
                self.pool.note_freed(&self.freed);
                self.unwritten.drain(..).for_each(Reserved::forget_frame);
                self.apply(announced, images, first);
                Ok(first)
            }
            Err(stop) => {
                for (intent, fresh, kind, body) in announced {
                    self.edits.push(PageEdit { guard: intent.withdraw(), fresh, kind, body, image: None });
                }
                match stop {
                    Stop::Lacks(_) => self.reserved().for_each(|page| stock.put_back(page)),
                    Stop::Failed(_) => self.abandon(),
                }
                Err(stop)
            }
        }
    }

    /// In debug builds, asserts that each page is changed once, and freed once.
    fn check_in_debug(&self) {
        if cfg!(debug_assertions) {
            let mut changed: Vec<PageId> = self.edits.iter().map(|edit| edit.guard.page()).collect();
            let mut freed = self.freed.clone();
            for pages in [&mut changed, &mut freed] {
                pages.sort_unstable();
                assert!(
                    pages.windows(2).all(|pair| pair[0] < pair[1]),
                    "a page is in a group once: {pages:?}"
                );
            }
            let fresh = self.edits.iter().filter(|edit| edit.fresh);
            assert!(
                fresh.into_iter().all(|edit| edit.guard.version() == Lsn::ZERO),
                "a new page has no version"
            );
        }
    }

    /// Appends all records, without waiting for a device; returns the LSN of the first change.
    fn append(&self, announced: &[Announced<'p>]) -> Result<Lsn, Stop> {
        let log = self.pool.log();
        let page_size = self.pool.page_size();
        let mut bytes = 0;
        let mut append = |records: &[Record<'_>]| {
            bytes = records.iter().map(|record| Log::framed_len(record.body.len())).sum();
            debug_assert!(bytes <= group_bytes_max(page_size), "a group of {bytes} bytes");
            log.try_append_group(self.class, records)
        };
        let filled = announced.iter().filter(|m| m.1).map(|m| m.0.page());
        let fresh: Vec<PageId> = filled.chain(self.unwritten.iter().map(Reserved::page)).collect();
        if fresh.is_empty() && self.freed.is_empty() {
            return match append(&records(None, announced)) {
                Ok(appended) => Ok(appended.first),
                Err(error) if error.kind == LogErrorKind::BufferFull => {
                    Err(Stop::Lacks(Lack::LogBuffer(bytes)))
                }
                Err(error) => Err(Stop::Failed(error.into())),
            };
        }
        let mut tier_record_len = 0;
        let appended = self.pool.tier().publish(
            Allocation { allocate: &fresh, free: &self.freed },
            &mut |record: Record<'_>| -> Result<Appended, LogError> {
                tier_record_len = Log::framed_len(record.body.len());
                append(&records(Some(record), announced))
            },
        );
        match appended {
            Ok(appended) => Ok(appended.first.advance(tier_record_len)),
            Err(error) => Err(match error.kind {
                TierErrorKind::LogBufferFull => Stop::Lacks(Lack::LogBuffer(bytes)),
                TierErrorKind::Unprepared => Stop::Lacks(Lack::Map([fresh, self.freed.clone()].concat())),
                _ => Stop::Failed(error.into()),
            }),
        }
    }

    fn apply(&mut self, announced: Vec<Announced<'p>>, images: Vec<Option<Vec<u8>>>, first: Lsn) {
        let mut lsn = first;
        // All latches are held until all is applied: no reader sees half a structure change.
        let mut kept = Vec::with_capacity(announced.len());
        for ((intent, _, kind, body), image) in announced.into_iter().zip(images) {
            let guard = intent.apply(lsn, |page| match image {
                // What the record makes of this page, by the code that redo runs: made once is
                // enough.
                Some(image) => {
                    page.copy_from_slice(&image);
                    Changed::Most
                }
                None => {
                    let change = PageChange::decode(Record { kind, body: &body }).expect("rehearsed");
                    change.apply(page).expect("rehearsed before it was logged")
                }
            });
            match self.freed.contains(&guard.page()) {
                true => self.freed_frames.push(guard),
                false => kept.push(guard),
            }
            lsn = lsn.advance(Log::framed_len(body.len()));
        }
        // First the frames that other threads want: an image of a freed page may be in flight to a
        // device, and its end is waited for.
        drop(kept);
        ExclusiveGuard::discard_all(std::mem::take(&mut self.freed_frames));
    }

    /// Removes the changes from the group; returns its new pages, which have not been changed.
    fn reserved(&mut self) -> impl Iterator<Item = Reserved<'p>> {
        let pool = self.pool;
        let fresh = self.edits.drain(..).filter(|edit| edit.fresh);
        let filled = fresh.map(move |edit| Reserved::new(pool, edit.guard));
        filled.chain(self.unwritten.drain(..))
    }

    /// Gives reserved pages back to the tier.
    fn abandon(&mut self) {
        self.reserved().for_each(drop);
    }
}

/// A edit whose change is announced: its page, whether the page is new, and the record.
type Announced<'p> = (IntentGuard<'p>, bool, Kind, Vec<u8>);

/// The group's records, the tier's first.
fn records<'r>(tier: Option<Record<'r>>, announced: &'r [Announced<'_>]) -> Vec<Record<'r>> {
    tier.into_iter().chain(announced.iter().map(|(_, _, kind, body)| Record { kind: *kind, body })).collect()
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        self.abandon();
    }
}

fn decode<'m>(edit: &'m PageEdit<'_>) -> Result<PageChange<'m>, TreeError> {
    PageChange::decode(Record { kind: edit.kind, body: &edit.body })
        .map_err(|error| TreeError::damaged(edit.guard.page(), error))
}

/// A page reserved and not yet part of a group; unreserved when dropped.
pub(crate) struct Reserved<'p> {
    pool: &'p BufferPool,
    guard: Option<ExclusiveGuard<'p>>,
}

impl<'p> Reserved<'p> {
    /// Of a page just reserved, the frame made for it.
    pub(crate) fn new(pool: &'p BufferPool, guard: ExclusiveGuard<'p>) -> Reserved<'p> {
        Reserved { pool, guard: Some(guard) }
    }
    pub(crate) fn page(&self) -> PageId {
        self.guard.as_ref().expect("held until it is used").page()
    }
    /// The page's first content, encoded.
    pub(crate) fn draft(&self, attachment: &[u8], encode: impl FnOnce(&mut Vec<u8>) -> Kind) -> Draft {
        Draft::with(self.guard.as_ref().expect("held until it is used"), attachment, encode)
    }
    fn into_guard(mut self) -> ExclusiveGuard<'p> {
        self.guard.take().expect("held until it is used")
    }
    /// Of a page that was taken into use without content.
    fn forget_frame(self) {
        self.into_guard().discard_unused();
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            let page = guard.page();
            guard.discard_unused();
            self.pool.tier().unreserve(page);
        }
    }
}
