//! Entries that name pages of their own: content that the layers above keep in whole pages.
//!
//! Such a page has no node's format, and the tree does not know which entries name pages: callers
//! say so. An entry and the page that it names change in one atomic group, so no crash leaves a
//! page that no entry names, nor an entry that names a free one:
//!
//! | call | group |
//! |---|---|
//! | [`Tree::modify_naming`] | page allocated · the leaf's change |
//! | [`Tree::modify_freeing`] | page freed · the leaf's change |
//! | [`Tree::sweep_naming`] | pages freed · entries of one leaf removed |
//!
//! A page is taken into use without content, and has to get it ([`fill_page`], or a shadow of the
//! tier's) before a reader may meet the entry.
//!
//! Latches: the new page is latched while nothing points to it; a page to be freed is latched below
//! the leaf that names it, as a child. Nothing waits for a device under them (`stock.rs`).

use crate::change::Change;
use crate::descent::Target;
use crate::error::TreeError;
use crate::group::{Draft, Group};
use crate::hint;
use crate::modify::{Logged, Planned};
use crate::node::{GIVEN_UP, Node};
use crate::op;
use crate::redo::PageChange;
use crate::scratch;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_base::codec::Malformed;
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferPool, InMemory};
use firndb_log::{Log, LogClass, LogErrorKind, Record};

/// Pages freed by one group of [`Tree::sweep_naming`], at most.
const FREED_MAX: usize = 32;

/// What a try at a change came to.
enum Outcome<R> {
    /// With the page taken into use, and the LSN of the first change after that.
    Done(R, Option<(PageId, Lsn)>),
    /// As `Done`; an entry was removed, and the leaf may be small.
    Removed(R),
    /// The leaf lacks space for an entry of this many bytes, slot included.
    NoSpace(usize),
    /// Garbage was removed from the leaf: try again.
    Again,
    NoBuffer(u64),
}

/// What [`Tree::sweep_naming`] is to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    Keep,
    /// Remove it, and free the page that it names.
    Remove(Option<PageId>),
}

/// What [`Tree::sweep_naming`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptNames {
    pub removed: usize,
    /// Entries of this leaf are left to be judged: call again with the same key.
    pub more: bool,
    /// The leaf held the keys up to this one, which was not its own; `None`: to the end of the
    /// tree.
    pub high: Option<Vec<u8>>,
}

impl Tree {
    /// As [`Tree::modify_with`]; besides, a page is taken into use without content. `decide` is
    /// given its number, which the entry that it asks for must name. If it asks for no change, no
    /// page is taken into use. Also returns the page, and a version for its first content, later
    /// than that of its allocation.
    pub fn modify_naming<R, E: From<TreeError>>(
        &self,
        key: &[u8],
        class: LogClass,
        mut decide: impl FnMut(PageId, Option<&[u8]>, &mut Change, &mut Vec<u8>) -> Result<R, E>,
        garbage: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(R, Option<(PageId, Lsn)>), E> {
        self.modify_with_pages(
            key,
            class,
            true,
            |page, current, change, attachment| {
                let page = page.expect("reserved for this entry");
                decide(page, current, change, attachment).map(|result| (result, None))
            },
            garbage,
        )
    }

    /// As [`Tree::modify`]; besides, the page that `decide` returns is freed.
    pub fn modify_freeing<R, E: From<TreeError>>(
        &self,
        key: &[u8],
        class: LogClass,
        mut decide: impl FnMut(Option<&[u8]>, &mut Change, &mut Vec<u8>) -> Result<(R, Option<PageId>), E>,
    ) -> Result<R, E> {
        let decide = |_: Option<PageId>,
                      current: Option<&[u8]>,
                      change: &mut Change,
                      attachment: &mut Vec<u8>| { decide(current, change, attachment) };
        self.modify_with_pages(key, class, false, decide, |_, _| false).map(|(result, _)| result)
    }

    fn modify_with_pages<R, E: From<TreeError>>(
        &self,
        key: &[u8],
        class: LogClass,
        takes_page: bool,
        mut decide: impl FnMut(
            Option<PageId>,
            Option<&[u8]>,
            &mut Change,
            &mut Vec<u8>,
        ) -> Result<(R, Option<PageId>), E>,
        mut garbage: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(R, Option<(PageId, Lsn)>), E> {
        self.check_key(key)?;
        loop {
            let mut stock = Stock::new(self.pool(), class);
            if takes_page {
                stock = stock.expecting(Lack::NewPages(1));
            }
            let outcome = stock
                .run(|stock| self.try_modify_with_pages(stock, key, takes_page, &mut decide, &mut garbage))?;
            match outcome? {
                Outcome::Done(result, taken) => return Ok((result, taken)),
                Outcome::Removed(result) => {
                    // The change is done: that its leaf cannot be fixed again is no failure of it.
                    let small = self
                        .leaf_shared(Target::Key(key))
                        .is_ok_and(|(leaf, parts)| self.is_small_node(&Node::at(&leaf, parts), leaf.page()));
                    if small {
                        self.merge_opportunely(key, class);
                    }
                    return Ok((result, None));
                }
                Outcome::Again => {}
                Outcome::NoBuffer(bytes) => {
                    self.pool().log().wait_for_buffer(bytes).map_err(TreeError::from)?;
                }
                Outcome::NoSpace(need) => self.split(key, 0, need, class)?,
            }
        }
    }

    /// One attempt; the inner error is `decide`'s.
    fn try_modify_with_pages<'p, R, E: From<TreeError>>(
        &'p self,
        stock: &mut Stock<'p>,
        key: &[u8],
        takes_page: bool,
        decide: &mut impl FnMut(
            Option<PageId>,
            Option<&[u8]>,
            &mut Change,
            &mut Vec<u8>,
        ) -> Result<(R, Option<PageId>), E>,
        garbage: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Result<Outcome<R>, E>, Stop> {
        let fresh = takes_page.then(|| stock.take()).transpose()?;
        // With a page from the stock the thread holds a latch: it must not wait for the frame of a
        // hint, which may have got that very page, or one that another thread has reserved.
        let (leaf, parts) = match fresh {
            Some(_) => self.leaf_exclusive(Target::Key(key))?,
            None => self.leaf_for_change(key)?,
        };
        let page = leaf.page();
        hint::remember(self, leaf.optimistic());
        let damaged = |error| TreeError::damaged(page, error);
        let node = Node::at(&leaf, parts);
        let found = node.search(key).map_err(damaged)?;
        let value = found.ok().map(|slot| node.value(slot)).transpose().map_err(damaged)?;
        let (mut change, mut attachment, mut body) = (Change::Keep, Vec::new(), Vec::new());
        let named = fresh.as_ref().map(|page| page.page());
        let (result, freed) = match decide(named, value, &mut change, &mut attachment) {
            Ok(decided) => decided,
            Err(error) => return Ok(Err(error)),
        };
        op::begin(&mut body, page, leaf.version(), &attachment);
        let planned = self.plan(page, &node, key, found, &change, &mut body)?;
        let Some(Planned { kind, need, room, .. }) = planned else {
            assert!(freed.is_none(), "a page is freed with the entry that named it");
            return Ok(Ok(Outcome::Done(result, None)));
        };
        if need > room {
            let own = found.ok();
            let mut full_key = Vec::new();
            let swept =
                self.sweep_slots(leaf, stock.class(), &mut full_key, &mut body, |at, key, value| {
                    Some(at) != own && garbage(key, value)
                })?;
            return Ok(Ok(match swept {
                Logged::Done(_, 0) => Outcome::NoSpace(need),
                Logged::Done(..) => Outcome::Again,
                Logged::NoBuffer(bytes) => Outcome::NoBuffer(bytes),
            }));
        }
        let removes = matches!(change, Change::Remove);
        change.recycle();
        let mut group = Group::new(stock);
        if let Some(fresh) = fresh {
            group.allocate_unwritten(fresh);
        }
        if let Some(freed) = freed {
            self.free_named(&mut group, page, &[freed])?;
        }
        group.change(leaf, Draft::of(page, kind, body));
        let lsn = group.commit_at(stock)?;
        let taken = named.map(|page| (page, lsn));
        Ok(Ok(if removes { Outcome::Removed(result) } else { Outcome::Done(result, taken) }))
    }

    /// Removes the entries of one leaf, that of `key`, which `judge` condemns, and frees the pages
    /// that they name, up to a limit. No reader may need either any more: nothing here is undone.
    /// `judge` must not block.
    ///
    /// Errors: `Damaged` if two entries name one page, or one names a page that is not allocated:
    /// then nothing is changed.
    pub fn sweep_naming(
        &self,
        key: &[u8],
        class: LogClass,
        mut judge: impl FnMut(&[u8], &[u8]) -> Judgement,
    ) -> Result<SweptNames, TreeError> {
        Stock::new(self.pool(), class).run(|stock| self.try_sweep_naming(stock, key, &mut judge))
    }

    fn try_sweep_naming<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        key: &[u8],
        judge: &mut impl FnMut(&[u8], &[u8]) -> Judgement,
    ) -> Result<SweptNames, Stop> {
        let (leaf, parts) = self.leaf_exclusive(Target::Key(key))?;
        let page = leaf.page();
        let damaged = |error| TreeError::damaged(page, error);
        let node = Node::at(&leaf, parts);
        let high = node.high().map(<[u8]>::to_vec);
        let (mut slots, mut pages, mut more) = (Vec::new(), Vec::new(), false);
        let looked = scratch::with(|scratch| -> Result<(), Malformed> {
            for at in 0..node.count() {
                node.full_key(at, &mut scratch.key)?;
                let Judgement::Remove(named) = judge(&scratch.key, node.value(at)?) else { continue };
                if slots.len() == FREED_MAX {
                    more = true;
                    break;
                }
                slots.push(at);
                pages.extend(named);
            }
            Ok(())
        });
        looked.map_err(damaged)?;
        let removed = slots.len();
        if removed == 0 {
            return Ok(SweptNames { removed, more, high });
        }
        if (1..pages.len()).any(|at| pages[..at].contains(&pages[at])) {
            return Err(damaged(Malformed { what: "two entries that name one page" }).into());
        }
        let draft = Draft::new(&leaf, |body| op::sweep(body, &slots));
        let mut group = Group::new(stock);
        self.free_named(&mut group, page, &pages)?;
        group.change(leaf, draft);
        group.commit(stock)?;
        Ok(SweptNames { removed, more, high })
    }

    /// Adds pages to free that entries of `leaf` name, which this thread holds latched. The entries
    /// may be damaged and name any page, also one above the leaf: so no latch is waited for.
    fn free_named<'p>(&'p self, group: &mut Group<'p>, leaf: PageId, pages: &[PageId]) -> Result<(), Stop> {
        for &page in pages {
            if page == leaf || page == self.root() {
                let error = Malformed { what: "an entry that names a page of its own tree" };
                return Err(TreeError::damaged(leaf, error).into());
            }
            match self.pool().try_exclusive_in_memory(page) {
                InMemory::Latched(guard) => group.free(guard),
                InMemory::Absent(kept_out) => group.free_absent(kept_out),
                InMemory::BeingRead => return Err(Stop::Lacks(Lack::Page(page))),
            }
        }
        Ok(())
    }
}

/// Gives a page that was taken into use without content its content, through the log.
pub fn fill_page(pool: &BufferPool, page: PageId, image: &[u8], class: LogClass) -> Result<(), TreeError> {
    assert!(image.len() <= pool.page_size(), "an image fits its page");
    loop {
        // Nothing is read: whatever the frame of an earlier incarnation holds is overwritten.
        let guard = pool.create(page)?;
        let mut body = Vec::new();
        op::begin(&mut body, page, guard.version(), &[]);
        let record = Record { kind: op::image(&mut body, image), body: &body };
        let change = PageChange::decode(record).expect("encoded just now");
        let intent = guard.intend();
        match pool.log().try_append(class, record) {
            Ok(appended) => {
                let filled = intent.apply(appended.first, |bytes| change.apply(bytes).expect("it fits"));
                drop(filled);
                return Ok(());
            }
            Err(error) => {
                intent.withdraw().discard_unused();
                match error.kind {
                    LogErrorKind::BufferFull => {
                        pool.log().wait_for_buffer(Log::framed_len(body.len()))?;
                    }
                    _ => return Err(error.into()),
                }
            }
        }
    }
}

/// Whether the content of a page is that of one whose changes were given up after damage
/// ([`crate::give_up_page`]): for pages that are no nodes.
#[must_use]
pub fn is_given_up(page: &[u8]) -> bool {
    page.strip_prefix(GIVEN_UP).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redo::give_up_page;
    use firndb_log::Kind;

    #[test]
    fn the_record_of_an_image_is_pinned_and_makes_the_page() {
        let mut body = Vec::new();
        op::begin(&mut body, PageId(5), Lsn(0), &[]);
        let kind = op::image(&mut body, &[7, 0, 8, 0, 0]);
        assert_eq!((kind, &body[..]), (Kind::TREE_IMAGE, &[5, 0, 0, 7, 0, 8][..]));
        assert_eq!(kind.0, 0x2c);
        let change = PageChange::decode(Record { kind, body: &body }).unwrap();
        assert!(change.overwrites() && !change.frees());
        let mut page = [9; 5];
        change.rehearse(&page).unwrap();
        change.apply(&mut page).unwrap();
        assert_eq!(page, [7, 0, 8, 0, 0]);
        assert!(change.rehearse(&[0; 2]).is_err(), "an image longer than its page");
        assert!(change.apply(&mut [0; 2]).is_err());
    }

    #[test]
    fn only_a_page_that_was_given_up_counts_as_one() {
        let mut page = [1; 64];
        give_up_page(&mut page);
        assert!(is_given_up(&page));
        page[63] = 1;
        assert!(!is_given_up(&page) && !is_given_up(&[0; 64]) && !is_given_up(&[]));
    }
}
