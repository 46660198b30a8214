//! Building a tree from sorted entries.
//!
//! Leaves are composed in memory. Each is taken into use without content by the atomic group that
//! hangs it to the right of the one before, and given to the caller when it is full: to be written
//! to the store, or logged. So the log has no entry, if the caller chooses so. Inner nodes are
//! changed and logged as usual.
//!
//! Until all leaves have their content, the tree can only be cleared, which reads no leaf: no other
//! thread may know it, background work included, and what undoes its creation clears it. A crash or
//! error leaves no page astray.

use crate::descent::{Located, Target, child_at};
use crate::error::{TreeError, TreeErrorKind};
use crate::group::{Draft, Group};
use crate::node::pack::Packer;
use crate::node::split::shortest_separator;
use crate::node::{HEADER_LEN, SLOT_LEN, Shape, common_prefix, prefix_between};
use crate::op;
use crate::split::two_children;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_base::codec::Malformed;
use firndb_base::{Lsn, PageId};
use firndb_log::LogClass;

type Entry = (Vec<u8>, Vec<u8>);

/// A leaf that is complete, and whose page has no content yet.
#[derive(Debug)]
pub struct NewLeaf {
    pub page: PageId,
    /// The version of its content.
    pub version: Lsn,
    pub image: Vec<u8>,
}

/// A page that was taken into use for a leaf, and the version of its content.
type Place = (PageId, Lsn);

/// Entries of the leaf being filled.
#[derive(Default)]
struct Filling {
    /// `None` for the first leaf, which may stay the root.
    place: Option<Place>,
    /// Low fence of the leaf.
    low: Vec<u8>,
    entries: Vec<Entry>,
    bytes: usize,
}

impl Filling {
    /// Bytes of the leaf below a high fence, with one more entry of `extra` bytes.
    fn len_below(&self, high: &[u8], extra: usize, count: usize) -> usize {
        let saved = count * common_prefix(&self.low, high);
        (HEADER_LEN + self.low.len() + high.len() + self.bytes + extra).saturating_sub(saved)
    }
    fn push(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += SLOT_LEN + key.len() + value.len();
        self.entries.push((key, value));
    }
    /// Takes the entries from index `at` on.
    fn take_from(&mut self, at: usize) -> Vec<Entry> {
        let rest = self.entries.split_off(at);
        self.bytes -= rest.iter().map(|(key, value)| SLOT_LEN + key.len() + value.len()).sum::<usize>();
        rest
    }
    /// The high fence below `next`, and the entries that must wait for the leaf after. The prefix
    /// that the keys so far share with the low fence may be longer than what they share with a
    /// fence above the last of them: then all do not fit. All but the last do, since they did when
    /// the last was added.
    fn cut(&mut self, next: &[u8], page_size: usize) -> (Vec<u8>, Vec<Entry>) {
        let (last, _) = self.entries.last().expect("only a leaf with entries is closed");
        let separator = shortest_separator(last, next).to_vec();
        if self.len_below(&separator, 0, self.entries.len()) <= page_size {
            return (separator, Vec::new());
        }
        let rest = self.take_from(self.entries.len() - 1);
        let (last, _) = self.entries.last().expect("one entry always fits");
        (shortest_separator(last, &rest[0].0).to_vec(), rest)
    }
    /// The leaf's image, below a high fence.
    fn image(&self, tree: &Tree, high: Option<&[u8]>) -> Result<Vec<u8>, Malformed> {
        let mut image = vec![0; tree.pool().page_size()];
        let shape =
            Shape { tree: tree.id(), level: 0, condemned: false, low: &self.low, high, first_child: 0 };
        let prefix_len = prefix_between(&self.low, high);
        let mut packer = Packer::start(&mut image, &shape)?;
        for (key, value) in &self.entries {
            packer.push_stored(&key[prefix_len..], value)?;
        }
        packer.finish()?;
        Ok(image)
    }
}

impl Tree {
    /// Fills an empty tree with entries that ascend strictly by key, leaves up to `fill_percent`
    /// (10 to 100) of their page. Returns how many. `write` is given each leaf, in order, and may
    /// write it later; until all are written no other thread may use the tree. After an error,
    /// clear it.
    pub fn bulk_load<E: From<TreeError>>(
        &self,
        class: LogClass,
        fill_percent: usize,
        entries: impl IntoIterator<Item = Result<(Vec<u8>, Vec<u8>), E>>,
        mut write: impl FnMut(NewLeaf) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.check_empty()?;
        let budget = self.pool().page_size() * fill_percent.clamp(10, 100) / 100;
        let (mut filling, mut count) = (Filling::default(), 0);
        for entry in entries {
            let (key, value) = entry?;
            self.check_key(&key)?;
            self.check_entry(&key, value.len())?;
            if let Some((last, _)) = filling.entries.last() {
                if *last >= key {
                    return Err(unsorted().into());
                }
                let extra = SLOT_LEN + key.len() + value.len();
                if filling.len_below(&key, extra, filling.entries.len() + 1) > budget {
                    write(self.close_leaf(&mut filling, &key, class)?)?;
                }
            } else if key < filling.low {
                return Err(unsorted().into());
            }
            filling.push(key, value);
            count += 1;
        }
        self.finish(filling, class, &mut write)?;
        Ok(count)
    }

    fn check_empty(&self) -> Result<(), TreeError> {
        let root = self.pool().shared(self.root())?;
        let node = self.node(self.root(), &root, None)?;
        match node.is_leaf() && node.count() == 0 {
            true => Ok(()),
            false => Err(bad(format!("{:?} is not empty: only an empty tree can be bulk loaded", self.id()))),
        }
    }

    /// Completes the leaf below `next`, the key to come, and begins the next one.
    fn close_leaf(&self, filling: &mut Filling, next: &[u8], class: LogClass) -> Result<NewLeaf, TreeError> {
        let (separator, rest) = filling.cut(next, self.pool().page_size());
        let (place, next_place) = loop {
            let pages = if filling.place.is_none() { 2 } else { 1 };
            let stock = Stock::new(self.pool(), class).expecting(Lack::NewPages(pages));
            if let Some(places) = stock.run(|stock| self.try_hang(stock, filling.place, &separator))? {
                break places;
            }
            self.split(&separator, 1, SLOT_LEN + separator.len() + 8, class)?;
        };
        let leaf = self.complete(filling, place, Some(&separator))?;
        *filling = Filling { place: Some(next_place), low: separator, ..Filling::default() };
        rest.into_iter().for_each(|(key, value)| filling.push(key, value));
        Ok(leaf)
    }

    fn complete(
        &self,
        filling: &Filling,
        (page, version): Place,
        high: Option<&[u8]>,
    ) -> Result<NewLeaf, TreeError> {
        let image = filling.image(self, high).map_err(|error| TreeError::damaged(page, error))?;
        Ok(NewLeaf { page, version, image })
    }

    /// Takes a page into use for the leaf from `separator` on, and hangs it to the right of the
    /// last leaf, which is in `last`; of the first leaf it takes that one's page, too. Returns the
    /// places of both; `None` if their parent lacks space for the separator.
    fn try_hang<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        last: Option<Place>,
        separator: &[u8],
    ) -> Result<Option<(Place, Place)>, Stop> {
        let changed = || bad(format!("{:?} was changed while it was bulk loaded", self.id()));
        match (self.locate(Target::Last, 0)?, last) {
            (Located::Root(root), None) => {
                let (left, right) = stock.take_two()?;
                let (left_page, right_page) = (left.page(), right.page());
                let mut group = Group::new(stock);
                let shape = self.node(self.root(), &root, Some(0))?.shape();
                let above = two_children(&shape, left_page, separator, right_page);
                let above_shape = Shape { level: 1, first_child: left_page.0, low: &[], high: None, ..shape };
                let draft = Draft::new(&root, |body| op::format(body, &above_shape, &above));
                group.allocate_unwritten(left);
                group.allocate_unwritten(right);
                group.change(root, draft);
                let lsn = group.commit_at(stock)?;
                Ok(Some(((left_page, lsn), (right_page, lsn))))
            }
            (Located::Child(parent, index), Some(last)) => {
                let node = self.node(parent.page(), &parent, Some(1))?;
                if child_at(parent.page(), &node, index)? != last.0 {
                    return Err(changed().into());
                }
                if node.free() < SLOT_LEN + separator.len() + 8 {
                    return Ok(None);
                }
                let right = stock.take()?;
                let page = right.page();
                let mut group = Group::new(stock);
                let draft = Draft::new(&parent, |body| op::insert_child(body, index, separator, page));
                group.allocate_unwritten(right);
                group.change(parent, draft);
                Ok(Some((last, (page, group.commit_at(stock)?))))
            }
            _ => Err(changed().into()),
        }
    }

    /// Completes what is left as the last leaf, whose keys have no common prefix.
    fn finish<E: From<TreeError>>(
        &self,
        mut filling: Filling,
        class: LogClass,
        write: &mut impl FnMut(NewLeaf) -> Result<(), E>,
    ) -> Result<(), E> {
        if filling.entries.is_empty() && filling.place.is_none() {
            return Ok(());
        }
        if filling.len_below(&[], 0, 0) > self.pool().page_size() {
            // It fitted by its prefix only.
            let rest = filling.take_from(filling.entries.len() / 2);
            write(self.close_leaf(&mut filling, &rest[0].0, class)?)?;
            rest.into_iter().for_each(|(key, value)| filling.push(key, value));
            return self.finish(filling, class, write);
        }
        match filling.place {
            Some(place) => write(self.complete(&filling, place, None)?),
            None => Ok(self.fill_root(&filling, class)?),
        }
    }

    /// All entries are in one leaf, the root.
    fn fill_root(&self, filling: &Filling, class: LogClass) -> Result<(), TreeError> {
        let image = filling.image(self, None).map_err(|error| TreeError::damaged(self.root(), error))?;
        Stock::new(self.pool(), class).run(|stock| {
            let (leaf, _) = self.leaf_exclusive(Target::Last)?;
            let mut group = Group::new(stock);
            let draft = Draft::new(&leaf, |body| op::image(body, &image));
            group.change(leaf, draft);
            group.commit(stock)
        })
    }
}

fn bad(message: String) -> TreeError {
    TreeError::new(TreeErrorKind::BadArgument, message)
}

fn unsorted() -> TreeError {
    bad("entries for a bulk load must ascend strictly by key".to_owned())
}
