//! Index sort-merge: the entries of two indexes are merged in their order, and only the rows of
//! matches are read.
//!
//! Work is done in blocks of left entries and of pairs with right ones, as memory allows. If the
//! left entries with one key do not fit, the right ones are read again for the next piece of them.
//! The left rows of a block are read by sorted primary keys, a piece at a time, and for each piece
//! the right rows.

use super::left_rows::LeftRows;
use super::matcher::Matcher;
use super::on::Output;
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::fetch::Fetch;
use crate::operator::Operator;
use crate::source::{Source, SourceReader};
use firndb_btree::Direction;
use firndb_spill::Reservation;
use firndb_spill::{Arena, Place};
use firndb_table::{Index, IndexCursor, IndexDefinition, KeyRange, Schema, encode_sort_key};
use firndb_txn::Transaction;
use std::ops::Bound;

/// One side of the join: its rows, and an index whose first columns are the join's keys.
#[derive(Clone, Debug)]
pub struct IndexSide {
    pub source: Source,
    pub index: Index,
    pub range: KeyRange,
}

/// The entries of an index.
struct Entries {
    side: IndexSide,
    cursor: IndexCursor,
    definition: IndexDefinition,
    schema: Schema,
    /// How many columns of the index are compared.
    columns: usize,
    has_entry: bool,
    /// Of the current entry: bytes that sort as its columns do; whether none of them is NULL.
    key: Vec<u8>,
    is_whole: bool,
    /// As it is stored.
    stored_key: Vec<u8>,
    primary_key: Vec<u8>,
    read: u64,
}

impl Entries {
    fn new(side: &IndexSide, columns: usize) -> Result<Entries, QueryError> {
        Ok(Entries {
            side: side.clone(),
            cursor: side.index.scan(side.range.clone(), Direction::Forward),
            definition: side.index.definition()?,
            schema: side.source.schema().clone(),
            columns,
            has_entry: false,
            key: Vec::new(),
            is_whole: false,
            stored_key: Vec::new(),
            primary_key: Vec::new(),
            read: 0,
        })
    }

    fn advance(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        self.read += 1;
        context.work.add(|counts| counts.entries += 1);
        if self.read.is_multiple_of(1024) {
            context.check(txn)?;
        }
        self.has_entry = false;
        let Some((key, primary_key)) = self.cursor.next_entry(txn)? else { return Ok(()) };
        let entry = self.definition.stored(&self.schema, key, primary_key);
        self.key.clear();
        self.is_whole = true;
        for part in &self.definition.columns()[..self.columns] {
            let field = entry.field(part.column)?;
            self.is_whole &= !field.value().is_null();
            encode_sort_key(field.value(), part.descending, &mut self.key);
        }
        primary_key.clone_into(&mut self.primary_key);
        key.clone_into(&mut self.stored_key);
        self.has_entry = true;
        Ok(())
    }

    /// Goes back to an entry that was read.
    fn go_back(&mut self, key: &[u8], txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        let high = self.side.range.high().map_or(Bound::Unbounded, Bound::Excluded);
        let range = KeyRange::new(Bound::Included(key), high);
        self.cursor = self.side.index.scan(range, Direction::Forward);
        self.advance(txn, context)
    }
}

/// A left entry of a block.
#[derive(Clone, Copy)]
struct Left {
    primary_key: Place,
    matched: bool,
    /// More of its pairs come in the next block.
    is_open: bool,
}

/// Left entries and their pairs.
struct Block {
    keys: Arena,
    left: Vec<Left>,
    /// Numbers of left entries, with the primary keys of right ones.
    pairs: Vec<(u32, Place)>,
    reserved: [Reservation; 2],
    most_bytes: usize,
}

impl Block {
    fn new(context: &Context) -> Block {
        let (none, most_bytes) = (|| Reservation::none(&context.memory), context.share / 3);
        let keys = Arena::new(&context.memory, most_bytes);
        Block { keys, left: Vec::new(), pairs: Vec::new(), reserved: [none(), none()], most_bytes }
    }
    fn clear(&mut self) {
        self.keys.clear();
        self.left.clear();
        self.pairs.clear();
    }
    fn has_space(&self) -> bool {
        let lists = self.left.len() * size_of::<Left>() + self.pairs.len() * size_of::<(u32, Place)>();
        self.keys.bytes() + 3 * lists < self.most_bytes
    }
    fn push_left(&mut self, primary_key: &[u8], matched: bool) -> Result<(), QueryError> {
        self.reserved[0].grow(&mut self.left, 1)?;
        let primary_key = self.keys.push(&[primary_key])?;
        self.left.push(Left { primary_key, matched, is_open: false });
        Ok(())
    }
    fn push_pair(&mut self, left: usize, right: Place) -> Result<(), QueryError> {
        self.reserved[1].grow(&mut self.pairs, 1)?;
        self.pairs.push((u32::try_from(left).expect("entries in memory"), right));
        Ok(())
    }
}

/// Left entries with one key, while right entries with that key are being read.
struct Group {
    key: Option<Vec<u8>>,
    keys: Arena,
    /// Primary keys, and whether they have matched.
    left: Vec<(Place, bool)>,
    reserved: Reservation,
    /// The number of the first of them in the block.
    first: usize,
    /// The first right entry with the key, as it is stored.
    right: Vec<u8>,
}

/// Bytes of memory that a left entry of a group takes beside its key: in the group, in a block, and
/// in one pair at least; lists double by copying.
const OF_GROUP: usize = 3 * (size_of::<(Place, bool)>() + size_of::<Left>() + size_of::<(u32, Place)>());

pub(crate) struct IndexSortMerge {
    left: Entries,
    right: Entries,
    started: bool,
    group: Group,
    block: Block,
    /// The next left entry of the block, in the order of primary keys; and the next pair.
    at: usize,
    pair_at: usize,
    fetch: Fetch,
    /// Left rows of the present piece, and the numbers of their entries in the block.
    rows: LeftRows,
    entries: Vec<u32>,
    /// Numbers of the block's left entries in the order of their primary keys.
    order: Vec<u32>,
    order_reserved: Reservation,
    matcher: Matcher,
    output: Output,
    state: State,
}

enum State {
    Merge,
    Piece,
    Pairs,
    Unmatched,
    End,
}

impl IndexSortMerge {
    /// Joins by the first `columns` columns of both indexes.
    pub(crate) fn new(
        left: &IndexSide,
        right: &IndexSide,
        columns: usize,
        output: Output,
        context: &Context,
    ) -> Result<IndexSortMerge, QueryError> {
        let keys = Arena::new(&context.memory, context.share / 8);
        Ok(IndexSortMerge {
            left: Entries::new(left, columns)?,
            right: Entries::new(right, columns)?,
            started: false,
            group: Group {
                key: None,
                keys,
                left: Vec::new(),
                reserved: Reservation::none(&context.memory),
                first: 0,
                right: Vec::new(),
            },
            block: Block::new(context),
            at: 0,
            pair_at: 0,
            fetch: Fetch::new(SourceReader::new(left.source.clone()), context.share / 2, context),
            rows: LeftRows::new(output.left_types.clone(), context, context.share / 8),
            entries: Vec::new(),
            order: Vec::new(),
            order_reserved: Reservation::none(&context.memory),
            matcher: Matcher::new(right.source.clone(), false, context.share / 4, context),
            output,
            state: State::Merge,
        })
    }

    /// Collects a block; false if there are no more entries.
    fn merge(&mut self, txn: &mut Transaction, context: &Context) -> Result<bool, QueryError> {
        self.block.clear();
        if !self.started {
            self.started = true;
            self.left.advance(txn, context)?;
            self.right.advance(txn, context)?;
        }
        self.reopen_group()?;
        loop {
            // At least one right entry in a block.
            if self.group.key.is_some() && !self.pair_group(txn, context)? {
                break;
            }
            if !self.left.has_entry || !(self.block.left.is_empty() || self.block.has_space()) {
                break;
            }
            while self.right.has_entry && self.right.key < self.left.key {
                self.right.advance(txn, context)?;
            }
            if self.left.is_whole && self.right.has_entry && self.right.key == self.left.key {
                self.collect_group(txn, context)?;
                continue;
            }
            if self.output.is_outer() {
                self.block.push_left(&self.left.primary_key, false)?;
            } else if !self.right.has_entry {
                // Nothing matches any more.
                self.left.has_entry = false;
                break;
            }
            self.left.advance(txn, context)?;
        }
        Ok(!self.block.left.is_empty())
    }

    /// Collects the left entries with the key that both sides have, or a piece of them.
    fn collect_group(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        let Group { key, keys, left, reserved, first, right } = &mut self.group;
        let of_group = key.insert(self.left.key.clone());
        self.right.stored_key.clone_into(right);
        *first = self.block.left.len();
        left.clear();
        keys.clear();
        while self.left.has_entry
            && self.left.key == *of_group
            && (left.is_empty() || keys.bytes() + left.len() * OF_GROUP < context.share / 3)
        {
            reserved.grow(left, 1)?;
            left.push((keys.push(&[&self.left.primary_key])?, false));
            self.block.push_left(&self.left.primary_key, false)?;
            self.left.advance(txn, context)?;
        }
        Ok(())
    }

    /// Has the block begin with the left entries whose pairs were not all in the block before.
    fn reopen_group(&mut self) -> Result<(), QueryError> {
        if self.group.key.is_some() {
            self.group.first = 0;
            for (primary_key, matched) in &self.group.left {
                self.block.push_left(self.group.keys.get(*primary_key), *matched)?;
            }
        }
        Ok(())
    }

    /// Pairs the group with right entries while the block has space, at least with one; false if
    /// the block is full.
    fn pair_group(&mut self, txn: &mut Transaction, context: &Context) -> Result<bool, QueryError> {
        let members = self.group.first..self.group.first + self.group.left.len();
        while self.right.has_entry && Some(&self.right.key) == self.group.key.as_ref() {
            let right = self.block.keys.push(&[&self.right.primary_key])?;
            members.clone().try_for_each(|left| self.block.push_pair(left, right))?;
            self.right.advance(txn, context)?;
            if !self.block.has_space() {
                self.block.left[members].iter_mut().for_each(|left| left.is_open = true);
                return Ok(false);
            }
        }
        let key = self.group.key.take();
        if self.left.has_entry && Some(&self.left.key) == key.as_ref() {
            self.right.go_back(&self.group.right, txn, context)?;
        }
        Ok(true)
    }

    /// The block is complete: puts it in the order in which left rows are read.
    fn sort_block(&mut self, context: &Context) -> Result<(), QueryError> {
        let Block { keys, left, pairs, .. } = &mut self.block;
        context.work.add_sorted(left.len());
        // Also of the ranks.
        self.order_reserved.set(2 * left.len() * size_of::<u32>())?;
        self.order.clear();
        self.order.extend(0..left.len() as u32);
        self.order.sort_unstable_by_key(|number| keys.get(left[*number as usize].primary_key));
        let mut rank = vec![0u32; left.len()];
        self.order.iter().enumerate().for_each(|(at, number)| rank[*number as usize] = at as u32);
        pairs.iter_mut().for_each(|(left, _)| *left = rank[*left as usize]);
        pairs.sort_unstable_by_key(|(left, _)| *left);
        (self.at, self.pair_at) = (0, 0);
        Ok(())
    }

    /// Where the pairs end of the left entry that is read as the `at`-th, of those from `from` on.
    fn pairs_end(&self, from: usize, at: usize) -> usize {
        from + self.block.pairs[from..].partition_point(|(left, _)| *left as usize <= at)
    }

    /// How many left entries come next: as many as one read takes, and whose pairs fit.
    fn piece_len(&self, context: &Context) -> usize {
        let most = self.fetch.keys_max().min(self.order.len() - self.at);
        let (mut bytes, mut from) = (0, self.pair_at);
        for number in 0..most {
            let end = self.pairs_end(from, self.at + number);
            let keys = self.block.pairs[from..end].iter().map(|(_, key)| self.block.keys.get(*key).len());
            bytes += keys.map(Matcher::pair_bytes).sum::<usize>();
            from = end;
            if bytes > context.share / 4 {
                return number.max(1);
            }
        }
        most
    }

    /// Reads the next left rows of the block, and hands their pairs to the matcher; false at the
    /// block's end.
    fn piece(&mut self, txn: &mut Transaction, context: &Context) -> Result<bool, QueryError> {
        self.rows.clear();
        self.matcher.clear();
        self.entries.clear();
        let count = self.piece_len(context);
        if count == 0 {
            return Ok(false);
        }
        let primary_key = |of: &Self, at: usize| of.block.left[of.order[at] as usize].primary_key;
        let places: Vec<Place> = (self.at..self.at + count).map(|at| primary_key(self, at)).collect();
        context.work.add(|counts| counts.kept += count as u64);
        let keys: Vec<&[u8]> = places.iter().map(|place| self.block.keys.get(*place)).collect();
        let count = self.fetch.read(txn, context, &keys)?;
        for (number, place) in places.into_iter().take(count).enumerate() {
            let at = self.at + number;
            let pairs = self.pair_at..self.pairs_end(self.pair_at, at);
            self.pair_at = pairs.end;
            let Some(row) = self.fetch.row(number, self.block.keys.get(place))? else { continue };
            let (row_number, entry) = (self.rows.len(), self.order[at]);
            self.rows.push(row.bytes(), &[])?;
            self.entries.push(entry);
            if self.block.left[entry as usize].matched {
                self.rows.set_matched(row_number);
            }
            for (_, right) in &self.block.pairs[pairs] {
                let key = self.matcher.key(self.block.keys.get(*right))?;
                self.matcher.pair(key, row_number)?;
            }
        }
        self.at += count;
        self.matcher.sort(context);
        Ok(true)
    }

    /// The pairs of the piece are done: what more pairs come of is not unmatched yet.
    fn note_open(&mut self) {
        for (row_number, entry) in self.entries.iter().enumerate() {
            if self.block.left[*entry as usize].is_open {
                let matched = self.rows.is_matched(row_number);
                self.group.left[*entry as usize - self.group.first].1 |= matched;
                self.rows.set_matched(row_number);
            }
        }
    }
}

impl Operator for IndexSortMerge {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() {
            match self.state {
                State::Merge => {
                    self.state = if self.merge(txn, context)? { State::Piece } else { State::End };
                    self.sort_block(context)?;
                }
                State::Piece => {
                    self.state = if self.piece(txn, context)? { State::Pairs } else { State::Merge };
                }
                State::Pairs => {
                    if self.matcher.put(&mut self.rows, &mut self.output, txn, context, out)? {
                        self.note_open();
                        self.state = State::Unmatched;
                    }
                }
                State::Unmatched => {
                    if self.rows.put_unmatched(&mut self.output, out)? {
                        self.state = State::Piece;
                    }
                }
                State::End => break,
            }
        }
        Ok(!out.is_empty())
    }
}
