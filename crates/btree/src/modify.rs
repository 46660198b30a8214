//! Changing one entry: decided, logged and applied under the leaf's exclusive latch.

use crate::change::Change;
use crate::error::{TreeError, TreeErrorKind};
use crate::hint;
use crate::node::{Node, SLOT_LEN, max_entry_len, max_key_len};
use crate::op::{self, Op, Patches};
use crate::redo::PageChange;
use crate::scratch::{self, Scratch};
use crate::tree::Tree;
use firndb_base::{Lsn, PageId};
use firndb_buffer::ExclusiveGuard;
use firndb_log::{Kind, Log, LogClass, LogErrorKind, Record};

/// What a try at a change came to.
enum Outcome<R> {
    Done(R, Option<Lsn>),
    /// The leaf lacks space for an entry of this many bytes, slot included.
    NoSpace(usize),
    /// As `Done`; the leaf has become small.
    Underfull(R, Lsn),
    /// Garbage was removed from the leaf: try again.
    Again,
    /// The log's buffer lacks space for this many bytes: wait for it with no latch held, and try
    /// again.
    NoBuffer(u64),
}

/// What a try at logging a change of a leaf came to.
pub(crate) enum Logged<'p, T> {
    /// The leaf, changed if there was anything to change.
    Done(ExclusiveGuard<'p>, T),
    /// As [`Outcome::NoBuffer`]; the leaf is unlatched.
    NoBuffer(u64),
}

/// A change of an entry, and encoded.
pub(crate) struct Planned<'a> {
    pub(crate) op: Op<'a>,
    pub(crate) kind: Kind,
    /// Bytes that the entry needs, slot included, and those that it may have.
    pub(crate) need: usize,
    pub(crate) room: usize,
}

impl Tree {
    /// Shows the entry's value to `decide` under the leaf's exclusive latch and performs the change
    /// it asks for, logged as one record with the attachment it wrote. If the change needs space,
    /// the leaf is split or merged first and `decide` is called again, as it is if the log's buffer
    /// was full: it must cope with being called more than once, and only its last result counts.
    /// Returns the record's LSN, if there was a change.
    ///
    /// The change handed to `decide` is always `Change::Keep` and the attachment empty.
    ///
    /// A `decide` that fails changes nothing and its error is passed on.
    pub fn modify<R, E: From<TreeError>>(
        &self,
        key: &[u8],
        class: LogClass,
        decide: impl FnMut(Option<&[u8]>, &mut Change, &mut Vec<u8>) -> Result<R, E>,
    ) -> Result<(R, Option<Lsn>), E> {
        self.modify_with(key, class, decide, |_, _| false)
    }

    /// As [`Tree::modify`]. Before a leaf is split for lack of space, entries for which `garbage`
    /// returns true are removed from it; the entry of `key` itself is never offered. `garbage` is
    /// called under the latch.
    pub fn modify_with<R, E: From<TreeError>>(
        &self,
        key: &[u8],
        class: LogClass,
        mut decide: impl FnMut(Option<&[u8]>, &mut Change, &mut Vec<u8>) -> Result<R, E>,
        mut garbage: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(R, Option<Lsn>), E> {
        self.check_key(key)?;
        scratch::with(|scratch| {
            loop {
                match self.try_modify(key, class, scratch, &mut decide, &mut garbage)? {
                    Outcome::Done(result, lsn) => return Ok((result, lsn)),
                    Outcome::Again => {}
                    Outcome::NoBuffer(bytes) => {
                        self.pool().log().wait_for_buffer(bytes).map_err(TreeError::from)?;
                    }
                    Outcome::NoSpace(need) => self.split(key, 0, need, class)?,
                    Outcome::Underfull(result, lsn) => {
                        self.merge_opportunely(key, class);
                        return Ok((result, Some(lsn)));
                    }
                }
            }
        })
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), TreeError> {
        let max = max_key_len(self.pool().page_size());
        match key.len() <= max {
            true => Ok(()),
            false => Err(too_large("a key", key.len(), max)),
        }
    }

    pub(crate) fn check_entry(&self, key: &[u8], value_len: usize) -> Result<(), TreeError> {
        let max = max_entry_len(self.pool().page_size());
        match key.len() + value_len <= max {
            true => Ok(()),
            false => Err(too_large("a key with its value", key.len() + value_len, max)),
        }
    }

    fn try_modify<R, E: From<TreeError>>(
        &self,
        key: &[u8],
        class: LogClass,
        scratch: &mut Scratch,
        decide: &mut impl FnMut(Option<&[u8]>, &mut Change, &mut Vec<u8>) -> Result<R, E>,
        garbage: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Outcome<R>, E> {
        let (leaf, parts) = self.leaf_for_change(key)?;
        let page = leaf.page();
        hint::remember(self, leaf.optimistic());
        let damaged = |error| TreeError::damaged(page, error);
        let node = Node::at(&leaf, parts);
        let found = node.search(key).map_err(damaged)?;
        let value = found.ok().map(|slot| node.value(slot)).transpose().map_err(damaged)?;
        let (mut change, Scratch { attachment, body, key: full_key }) = (Change::Keep, scratch);
        attachment.clear();
        let result = decide(value, &mut change, attachment)?;
        op::begin(body, page, leaf.version(), attachment);
        let begun = body.len();
        let planned = self.plan(page, &node, key, found, &change, body)?;
        let Some(Planned { op, kind, need, room }) = planned else {
            return Ok(Outcome::Done(result, None));
        };
        if need > room {
            let own = found.ok();
            let swept = self.sweep_slots(leaf, class, full_key, body, |at, key, value| {
                Some(at) != own && garbage(key, value)
            })?;
            return Ok(match swept {
                Logged::Done(_, 0) => Outcome::NoSpace(need),
                Logged::Done(..) => Outcome::Again,
                Logged::NoBuffer(bytes) => Outcome::NoBuffer(bytes),
            });
        }
        let record = Record { kind, body };
        let made = PageChange::made(record, (page, leaf.version()), attachment, (op, &body[begun..]));
        made.rehearse_on(&node).map_err(damaged)?;
        let (leaf, lsn) = match self.log_and_apply(leaf, class, record, &made)? {
            Logged::Done(leaf, lsn) => (leaf, lsn),
            Logged::NoBuffer(bytes) => return Ok(Outcome::NoBuffer(bytes)),
        };
        let removes = matches!(change, Change::Remove);
        change.recycle();
        match removes && self.is_underfull(&leaf)? {
            true => Ok(Outcome::Underfull(result, lsn)),
            false => Ok(Outcome::Done(result, Some(lsn))),
        }
    }

    /// Appends the operation to `body`, which is begun; `None` if nothing is to be changed.
    #[inline]
    pub(crate) fn plan<'a>(
        &self,
        page: PageId,
        node: &Node<'_>,
        key: &'a [u8],
        found: Result<usize, usize>,
        change: &'a Change,
        body: &mut Vec<u8>,
    ) -> Result<Option<Planned<'a>>, TreeError> {
        let planned = match (change, found) {
            (Change::Keep, _) => return Ok(None),
            (Change::Put(value), Err(slot)) => {
                self.check_entry(key, value.len())?;
                let Some(stored) = key.strip_prefix(node.prefix()) else {
                    return Err(TreeError::damaged(page, OUTSIDE));
                };
                let need = SLOT_LEN + stored.len() + value.len();
                let kind = op::insert(body, slot, stored, value);
                Planned { op: Op::Insert { slot, stored, value }, kind, need, room: node.free() }
            }
            (Change::Put(value), Ok(slot)) => {
                self.check_entry(key, value.len())?;
                let need = SLOT_LEN + node.slot(slot).key_len + value.len();
                let room = node.free() + SLOT_LEN + node.slot(slot).len();
                let kind = op::replace(body, slot, value);
                Planned { op: Op::Replace { slot, value }, kind, need, room }
            }
            (Change::Patch(patches), Ok(slot)) => {
                assert!(patches.end() <= node.slot(slot).value_len, "patches lie within the value");
                let (kind, patches) = (op::patch(body, slot, patches), Patches::of(patches));
                Planned { op: Op::Patch { slot, patches }, kind, need: 0, room: 0 }
            }
            (Change::Remove, Ok(slot)) => {
                Planned { op: Op::Remove { slot }, kind: op::remove(body, slot), need: 0, room: 0 }
            }
            (Change::Patch(_) | Change::Remove, Err(_)) => {
                panic!("only an entry that is there can be patched or removed")
            }
        };
        Ok(Some(planned))
    }

    /// Appends a record of one page and performs its change, which was rehearsed on that page.
    /// Waits for no device: while the log's buffer is full nothing is done.
    fn log_and_apply<'p>(
        &'p self,
        leaf: ExclusiveGuard<'p>,
        class: LogClass,
        record: Record<'_>,
        change: &PageChange<'_>,
    ) -> Result<Logged<'p, Lsn>, TreeError> {
        let intent = leaf.intend();
        // On an error the intent is withdrawn by its drop, and the page is as it was.
        let lsn = match self.pool().log().try_append(class, record) {
            Ok(appended) => appended.first,
            Err(error) if error.kind == LogErrorKind::BufferFull => {
                return Ok(Logged::NoBuffer(Log::framed_len(record.body.len())));
            }
            Err(error) => return Err(error.into()),
        };
        let leaf = intent.apply(lsn, |bytes| change.apply(bytes).expect("rehearsed before it was logged"));
        Ok(Logged::Done(leaf, lsn))
    }

    /// Removes the entries of a leaf that `judge` condemns, logged as one record. Returns the leaf
    /// and how many there were.
    pub(crate) fn sweep_slots<'p>(
        &'p self,
        leaf: ExclusiveGuard<'p>,
        class: LogClass,
        key: &mut Vec<u8>,
        body: &mut Vec<u8>,
        mut judge: impl FnMut(usize, &[u8], &[u8]) -> bool,
    ) -> Result<Logged<'p, usize>, TreeError> {
        let page = leaf.page();
        let damaged = |error| TreeError::damaged(page, error);
        let node: Node<'_> = self.node(page, &leaf, Some(0))?;
        let mut slots = Vec::new();
        for at in 0..node.count() {
            node.full_key(at, key).map_err(damaged)?;
            if judge(at, key, node.value(at).map_err(damaged)?) {
                slots.push(at);
            }
        }
        if slots.is_empty() {
            return Ok(Logged::Done(leaf, 0));
        }
        op::begin(body, page, leaf.version(), &[]);
        let record = Record { kind: op::sweep(body, &slots), body };
        let change = PageChange::decode(record).map_err(damaged)?;
        change.rehearse_on(&node).map_err(damaged)?;
        Ok(match self.log_and_apply(leaf, class, record, &change)? {
            Logged::Done(leaf, _) => Logged::Done(leaf, slots.len()),
            Logged::NoBuffer(bytes) => Logged::NoBuffer(bytes),
        })
    }
}

const OUTSIDE: firndb_base::codec::Malformed =
    firndb_base::codec::Malformed { what: "a leaf found for a key outside its fences" };

#[cold]
fn too_large(what: &str, len: usize, max: usize) -> TreeError {
    TreeError::new(
        TreeErrorKind::TooLarge,
        format!("{what} of {len} bytes is over this page size's limit of {max}"),
    )
}
