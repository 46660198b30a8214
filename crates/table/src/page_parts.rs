//! Parts of pages: *granules* beside the row of their page.
//!
//! A write of a part does not put a new page: it leaves the page that the row names as it is, and
//! keeps what differs from it in rows of its own, which stand behind that row in the same tree. A
//! granule is 128 bytes of the page; its row holds those from the first that was written to the
//! last:
//!
//! ```text
//! number: u64 BE                   →  page: u64, flag: there may be granules
//! number: u64 BE  granule: u16 BE  →  start: u8, bytes in place of the granule's from there on
//! ```
//!
//! So a part is logged like a change of a row, by the bytes that differ, with its before-image, and
//! has the versions, locks and recovery of rows. The page is read only for bytes between two parts
//! of one granule. Invariants:
//! * a visible granule's page row is visible, names a page, and has its flag set;
//! * a transaction that writes a granule holds an intention lock on the page's row. One that
//!   replaces the page, or its flag, writes that row, and so waits for those. So parts in different
//!   granules are written side by side, and no page is replaced under a part;
//! * prepared transactions and losers of recovery have lost their intention locks. A transaction
//!   that replaces the page deletes its granules, and waits there for theirs;
//! * a page that is put whole has no granules, and its flag is not set.
//!
//! The next write of a part puts a page whole that has a quarter of its granules, unless another
//! transaction is writing parts of it, which might have to wait for this one in turn.

use crate::error::TableError;
use crate::naming::named_page;
use crate::page_file::{FILE_PAGES_MAX, PageFile, key};
use crate::show;
use firndb_base::{PageId, TxnId};
use firndb_btree::{Direction, Position, Tree, Visit};
use firndb_txn::{Course, PageRecovery, RowBatch, RowHeader, RowValue, Transaction};
use std::ops::Range;

/// Bytes of a granule.
const GRANULE: usize = 128;
/// A page is put whole by the write of a part after which it would have more than this share of
/// its granules: one in four.
const PUT_WHOLE_ABOVE: usize = 4;

/// What the key of a page file's row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKey {
    Page(u64),
    /// A page's number, and which of its granules.
    Granule(u64, usize),
}

impl RowKey {
    pub(crate) fn decode(key: &[u8]) -> Result<RowKey, TableError> {
        let malformed = || TableError::damaged("a row of a page file has no page number as its key");
        let (page, granule) = key.split_first_chunk().ok_or_else(malformed)?;
        let page = u64::from_be_bytes(*page);
        if page >= FILE_PAGES_MAX {
            return Err(malformed());
        }
        match *granule {
            [] => Ok(RowKey::Page(page)),
            [high, low] => Ok(RowKey::Granule(page, u16::from_be_bytes([high, low]).into())),
            _ => Err(malformed()),
        }
    }

    /// The number of the page.
    pub(crate) fn page(self) -> u64 {
        let (RowKey::Page(page) | RowKey::Granule(page, _)) = self;
        page
    }
}

fn granule_key(page: u64, granule: usize) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&key(page));
    bytes[8..].copy_from_slice(&u16::try_from(granule).expect("a page has fewer").to_be_bytes());
    bytes
}

/// The bytes of a granule in a page of `page_size` bytes. All page sizes are multiples of it.
fn bytes_of(granule: usize) -> Range<usize> {
    granule * GRANULE..(granule + 1) * GRANULE
}

/// The bytes that a granule's row holds, and where they begin in the granule.
fn held(row: &[u8]) -> Result<(usize, &[u8]), TableError> {
    match row.split_first() {
        Some((&start, bytes)) if !bytes.is_empty() && usize::from(start) + bytes.len() <= GRANULE => {
            Ok((start.into(), bytes))
        }
        _ => Err(TableError::damaged("a granule of a page file does not fit into 128 bytes")),
    }
}

/// Puts what a granule's row holds over the page's bytes.
fn put_over(image: &mut [u8], granule: usize, row: &[u8]) -> Result<(), TableError> {
    let (start, bytes) = held(row)?;
    let of_page = image.get_mut(bytes_of(granule));
    let of_page = of_page.ok_or_else(|| TableError::damaged("a granule lies beyond its page"))?;
    of_page[start..start + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// A part of a page that is being written.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) offset: usize,
    pub(crate) bytes: &'a [u8],
}

impl Part<'_> {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes.len()
    }

    /// The granules that it touches.
    fn granules(&self) -> Range<usize> {
        let Range { start, end } = self.range();
        start / GRANULE..end.div_ceil(GRANULE)
    }

    /// What of it lies in a granule: its bytes, and where they begin in the granule.
    fn within(&self, granule: usize) -> (usize, &[u8]) {
        let (part, of_granule) = (self.range(), bytes_of(granule));
        let (from, to) = (part.start.max(of_granule.start), part.end.min(of_granule.end));
        (from - of_granule.start, &self.bytes[from - part.start..to - part.start])
    }
}

/// The row of a page, locked.
#[derive(Clone, Copy)]
struct PageRow<'a> {
    page: u64,
    /// Empty: a page of zeros.
    row: &'a [u8],
    flagged: bool,
}

/// The granules of a page in their current versions, visible or not: a hint, unless the page's row
/// is locked for update.
#[derive(Default)]
struct Granules {
    /// The page's row has its flag set.
    flagged: bool,
    /// The granules, with their writers; ghosts are none.
    list: Vec<(usize, TxnId)>,
}

impl Granules {
    fn of(tree: &Tree, page: u64) -> Result<Granules, TableError> {
        let (mut current, mut outcome) = (Granules::default(), Ok(()));
        let mut position = Some(Position::At(key(page).to_vec()));
        while let Some(from) = position {
            position = tree.visit_leaf(&from, Direction::Forward, |key, value| {
                if key >= &self::key(page + 1)[..] {
                    return Visit::Stop;
                }
                outcome = current.add(key, value);
                if outcome.is_ok() { Visit::Continue } else { Visit::Stop }
            })?;
            std::mem::replace(&mut outcome, Ok(()))?;
            if position.as_ref().is_some_and(|next| is_behind(next, page)) {
                break;
            }
        }
        Ok(current)
    }

    /// Adds a row of the page. One with a malformed key is passed over: it is none.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let Ok(key) = RowKey::decode(key) else { return Ok(()) };
        let (header, _) = RowHeader::split(value)?;
        match key {
            _ if header.ghost => {}
            RowKey::Page(_) => self.flagged = header.flag,
            RowKey::Granule(_, granule) => self.list.push((granule, header.writer)),
        }
        Ok(())
    }

    /// Whether `txn` may replace all of them without waiting or a conflict.
    fn are_free_for(&self, txn: &Transaction) -> bool {
        self.list.iter().all(|(_, writer)| txn.may_replace(*writer))
    }
}

/// Whether no granule of the page lies at the position, or behind it.
fn is_behind(position: &Position, page: u64) -> bool {
    matches!(position, Position::At(key) | Position::Past(key) if key[..] >= self::key(page + 1)[..])
}

impl PageFile {
    /// Puts the granules that `txn` sees over the page's bytes.
    pub(crate) fn overlay(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        page: u64,
        image: &mut [u8],
    ) -> Result<(), TableError> {
        let end = key(page + 1);
        let mut batch = RowBatch::new();
        let mut position = Some(Position::At(granule_key(page, 0).to_vec()));
        while let Some(from) = position {
            position = txn.scan(tree, &from, Course::forward(Some(&end)), &mut batch)?;
            for (key, content) in batch.iter() {
                let placed = match RowKey::decode(key)? {
                    RowKey::Granule(_, granule) => put_over(image, granule, content),
                    RowKey::Page(_) => unreachable!("the range lies between two pages"),
                };
                placed.map_err(|error| TableError::damaged(format!("row {}: {error}", show::Bytes(key))))?;
            }
        }
        Ok(())
    }

    /// Deletes all granules of a page whose row `txn` has written.
    pub(crate) fn remove_granules(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        page: u64,
    ) -> Result<(), TableError> {
        let mut old = txn.take_buffer();
        let current = Granules::of(tree, page)?;
        let outcome = current
            .list
            .into_iter()
            .try_for_each(|(granule, _)| txn.remove(tree, &granule_key(page, granule), &mut old).map(|_| ()));
        txn.keep_buffer(old);
        Ok(outcome?)
    }

    /// Writes a part of a page, which is not empty and lies within it.
    pub(crate) fn write_part(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        page: u64,
        part: Part<'_>,
    ) -> Result<(), TableError> {
        if txn.may_replace_image(tree, &key(page)) {
            // Its own and private: a transaction that has asked for a lock waits for this one.
            return self.write_private(txn, tree, page, part);
        }
        let current = match self.parts_are_logged() {
            true => Granules::of(tree, page)?,
            false => Granules::default(),
        };
        let share = current.flagged;
        let mut row = txn.take_buffer();
        let mut flag = match share {
            true => txn.get_with_intent_flagged(tree, &key(page), &mut row)?,
            false => txn.get_for_update_flagged(tree, &key(page), &mut row)?,
        };
        if share && flag != Some(true) {
            // Put whole meanwhile, or freed.
            flag = txn.get_for_update_flagged(tree, &key(page), &mut row)?;
        }
        if flag.is_none() {
            row.clear();
        }
        named_page(&row)?;
        let locked = PageRow { page, row: &row, flagged: flag == Some(true) };
        let outcome = match self.decide_whole(txn, tree, locked, (part, &current)) {
            Ok(true) => self.write_whole(txn, tree, locked, part),
            Ok(false) => self.write_granules(txn, tree, locked, (part, &current)),
            Err(error) => Err(error),
        };
        txn.keep_buffer(row);
        outcome
    }

    /// Writes the part into the transaction's private image of the page, which has no granules.
    fn write_private(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        page: u64,
        part: Part<'_>,
    ) -> Result<(), TableError> {
        let mut row = Vec::new();
        txn.get_own_flagged(tree, &key(page), &mut row)?;
        self.write_whole(txn, tree, PageRow { page, row: &row, flagged: false }, part)
    }

    fn parts_are_logged(&self) -> bool {
        self.shared.manager.page_recovery() != PageRecovery::Shadow
    }

    /// Whether the page is put whole, with the part in it; then its row is locked for update.
    /// `current` was before it was locked.
    fn decide_whole(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        PageRow { page, row, flagged }: PageRow<'_>,
        (part, current): (Part<'_>, &Granules),
    ) -> Result<bool, TableError> {
        if row.is_empty() || !self.parts_are_logged() {
            return Ok(true);
        }
        let touched = part.granules();
        let others = current.list.iter().filter(|(granule, _)| !touched.contains(granule)).count();
        let few = self.page_size() / PUT_WHOLE_ABOVE / GRANULE;
        if others + touched.len() <= few {
            return Ok(false);
        }
        if !flagged {
            return Ok(true);
        }
        // Looked at before, too, so that the page is not locked in vain.
        Ok(current.are_free_for(txn)
            && txn.try_lock_for_update(tree, &key(page))?
            && Granules::of(tree, page)?.are_free_for(txn))
    }

    /// Puts the page whole. Its row is locked for update, or written by `txn`.
    fn write_whole(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        PageRow { page, row, flagged }: PageRow<'_>,
        part: Part<'_>,
    ) -> Result<(), TableError> {
        let mut image = Vec::with_capacity(self.page_size());
        self.read_named(txn, page, row, &mut image)?;
        let current = if flagged { Granules::of(tree, page)? } else { Granules::default() };
        let mut content = Vec::new();
        for (granule, _) in current.list {
            if txn.get_for_update(tree, &granule_key(page, granule), &mut content)? {
                put_over(&mut image, granule, &content)?;
            }
        }
        image[part.range()].copy_from_slice(part.bytes);
        self.put_image(txn, tree, page, &image)
    }

    /// Writes the granules that a part touches. The page's row, which names a page, is locked: for
    /// update, unless its flag is set.
    fn write_granules(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        PageRow { page, row, flagged }: PageRow<'_>,
        (part, current): (Part<'_>, &Granules),
    ) -> Result<(), TableError> {
        if !flagged {
            let mut old = txn.take_buffer();
            let value = RowValue { payload: row, flag: true };
            txn.replace_flagged(tree, &key(page), value, &mut old)?;
            txn.keep_buffer(old);
        }
        let mut image = Vec::new();
        part.granules().try_for_each(|granule| {
            let key = granule_key(page, granule);
            let write = GranuleWrite { key: &key, part: part.within(granule) };
            let there = current.list.iter().any(|(of, _)| *of == granule);
            while !write.perform(txn, tree, there, image.get(bytes_of(granule)))? {
                self.read_named(txn, page, row, &mut image)?;
            }
            Ok(())
        })
    }
}

/// A write of bytes of one granule, which begin at an offset in it.
struct GranuleWrite<'a> {
    key: &'a [u8],
    part: (usize, &'a [u8]),
}

impl GranuleWrite<'_> {
    /// Writes them. False, and nothing is changed, if this takes bytes of the page, and
    /// `of_page`, those of the granule, is `None`. `there` says that there seems to be such a row.
    fn perform(
        &self,
        txn: &mut Transaction,
        tree: &Tree,
        there: bool,
        of_page: Option<&[u8]>,
    ) -> Result<bool, TableError> {
        let (start, bytes) = self.part;
        let mut row = Vec::with_capacity(1 + GRANULE);
        row.push(start as u8);
        row.extend_from_slice(bytes);
        if bytes.len() == GRANULE {
            txn.put(tree, self.key, &row)?;
            return Ok(true);
        }
        let (mut edits_first, mut edited) = (there, txn.take_buffer());
        loop {
            if !std::mem::take(&mut edits_first) && txn.insert(tree, self.key, &row)? {
                return Ok(true);
            }
            let mut outcome = Ok(true);
            let found = txn.edit(tree, self.key, &mut edited, &mut |before, after| {
                outcome = self.join(before.payload, of_page, after);
                matches!(outcome, Ok(true))
            })?;
            match outcome? {
                true if found.is_none() => {}
                joined => {
                    txn.keep_buffer(edited);
                    return Ok(joined);
                }
            }
        }
    }

    /// Makes a row of them and of what the row holds, and of what of the page lies between; false
    /// if that is needed and not given.
    fn join(&self, row: &[u8], of_page: Option<&[u8]>, joined: &mut Vec<u8>) -> Result<bool, TableError> {
        let (start, bytes) = self.part;
        let (first, before) = held(row)
            .map_err(|error| TableError::damaged(format!("row {}: {error}", show::Bytes(self.key))))?;
        let all = first.min(start)..(first + before.len()).max(start + bytes.len());
        joined.clear();
        joined.push(all.start as u8);
        match of_page {
            _ if all.len() <= before.len() + bytes.len() => joined.resize(1 + all.len(), 0),
            Some(of_page) => joined.extend_from_slice(&of_page[all.clone()]),
            None => return Ok(false),
        }
        for (at, bytes) in [(first, before), (start, bytes)] {
            let at = 1 + at - all.start;
            joined[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(true)
    }
}

/// The page that a row of a page file names, if it names one.
pub(crate) fn page_of_row(key: &[u8], payload: &[u8]) -> Result<Option<PageId>, TableError> {
    match RowKey::decode(key)? {
        RowKey::Page(_) => named_page(payload),
        // A ghost's is empty.
        RowKey::Granule(..) if payload.is_empty() => Ok(None),
        RowKey::Granule(..) => held(payload).map(|_| None),
    }
}
