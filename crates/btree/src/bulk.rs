//! Building a tree from sorted entries.
//!
//! Each leaf is one atomic group that holds its image: the tree's last leaf, which is empty,
//! becomes the full leaf, and a new empty last leaf is hung to its right. So the tree is whole
//! after every group, a crash or error leaves what was loaded so far and no page astray, and every
//! entry is logged once.

use crate::descent::{Located, Target, child_at};
use crate::error::{TreeError, TreeErrorKind};
use crate::group::{Draft, Group};
use crate::node::pack::EntryList;
use crate::node::split::shortest_separator;
use crate::node::{HEADER_LEN, SLOT_LEN, Shape, common_prefix};
use crate::op;
use crate::split::two_children;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_log::LogClass;

type Entry = (Vec<u8>, Vec<u8>);

/// Entries of the leaf being filled.
#[derive(Default)]
struct Filling {
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
    fn list(&self, prefix_len: usize, entries: std::ops::Range<usize>) -> EntryList {
        let mut list = EntryList::default();
        for (key, value) in &self.entries[entries] {
            list.push(&[], &key[prefix_len..], value);
        }
        list
    }
}

impl Tree {
    /// Fills an empty tree with entries that ascend strictly by key, leaves up to `fill_percent`
    /// (10 to 100) of their page. Returns how many. On an error the entries loaded so far stay:
    /// clear the tree.
    ///
    /// Meanwhile no other thread may change the tree.
    pub fn bulk_load<E: From<TreeError>>(
        &self,
        class: LogClass,
        fill_percent: usize,
        entries: impl IntoIterator<Item = Result<(Vec<u8>, Vec<u8>), E>>,
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
                    self.close_leaf(&mut filling, &key, class)?;
                }
            } else if key < filling.low {
                return Err(unsorted().into());
            }
            filling.push(key, value);
            count += 1;
        }
        self.finish(filling, class)?;
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

    /// Writes what was gathered as a leaf below `next`, the key to come, and starts the next leaf.
    fn close_leaf(&self, filling: &mut Filling, next: &[u8], class: LogClass) -> Result<(), TreeError> {
        let (separator, rest) = filling.cut(next, self.pool().page_size());
        loop {
            let stock = Stock::new(self.pool(), class).expecting(Lack::NewPages(1));
            if stock.run(|stock| self.try_close(stock, filling, &separator))? {
                break;
            }
            self.split(&separator, 1, SLOT_LEN + separator.len() + 8, class)?;
        }
        *filling = Filling { low: separator, ..Filling::default() };
        rest.into_iter().for_each(|(key, value)| filling.push(key, value));
        Ok(())
    }

    /// Returns false if the last leaf's parent lacks space for the separator.
    fn try_close<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        filling: &Filling,
        separator: &[u8],
    ) -> Result<bool, Stop> {
        let mut group = Group::new(stock);
        let prefix_len = common_prefix(&filling.low, separator);
        let list = filling.list(prefix_len, 0..filling.entries.len());
        let leaf = Shape {
            tree: self.id(),
            level: 0,
            condemned: false,
            low: &filling.low,
            high: Some(separator),
            first_child: 0,
        };
        let rest = Shape { low: separator, high: None, ..leaf };
        match self.locate(Target::Last, 0)? {
            Located::Above => unreachable!("every tree has leaves"),
            Located::Root(root) => {
                let (left, right) = stock.take_two()?;
                let shape = self.node(self.root(), &root, Some(0))?.shape();
                let above = two_children(&shape, left.page(), separator, right.page());
                let above_shape =
                    Shape { level: 1, first_child: left.page().0, low: &[], high: None, ..leaf };
                let left_draft = left.draft(&[], |body| op::format(body, &leaf, &list));
                let right_draft = right.draft(&[], |body| op::format(body, &rest, &EntryList::default()));
                let root_draft = Draft::new(&root, |body| op::format(body, &above_shape, &above));
                group.fill(left, left_draft);
                group.fill(right, right_draft);
                group.change(root, root_draft);
            }
            Located::Child(parent, index) => {
                let node = self.node(parent.page(), &parent, Some(1))?;
                let last = child_at(parent.page(), &node, index)?;
                if node.free() < SLOT_LEN + separator.len() + 8 {
                    return Ok(false);
                }
                let guard = stock.latch(last)?;
                let old = self.node(last, &guard, Some(0))?;
                if old.count() > 0 || old.low() != filling.low {
                    return Err(bad(format!("{:?} was changed while it was bulk loaded", self.id())).into());
                }
                let right = stock.take()?;
                let right_page = right.page();
                let leaf_draft = Draft::new(&guard, |body| op::format(body, &leaf, &list));
                let right_draft = right.draft(&[], |body| op::format(body, &rest, &EntryList::default()));
                let parent_draft =
                    Draft::new(&parent, |body| op::insert_child(body, index, separator, right_page));
                group.change(guard, leaf_draft);
                group.fill(right, right_draft);
                group.change(parent, parent_draft);
            }
        }
        group.commit(stock)?;
        Ok(true)
    }

    /// Writes what is left as the last leaf, whose keys have no common prefix.
    fn finish(&self, mut filling: Filling, class: LogClass) -> Result<(), TreeError> {
        if filling.entries.is_empty() {
            return Ok(());
        }
        if filling.len_below(&[], 0, 0) > self.pool().page_size() {
            // It fitted by its prefix only.
            let rest = filling.take_from(filling.entries.len() / 2);
            self.close_leaf(&mut filling, &rest[0].0, class)?;
            rest.into_iter().for_each(|(key, value)| filling.push(key, value));
            return self.finish(filling, class);
        }
        let list = filling.list(0, 0..filling.entries.len());
        Stock::new(self.pool(), class).run(|stock| {
            let (leaf, _) = self.leaf_exclusive(Target::Last)?;
            let shape = self.node(leaf.page(), &leaf, Some(0))?.shape();
            let shape = Shape { low: &filling.low, ..shape };
            let mut group = Group::new(stock);
            let draft = Draft::new(&leaf, |body| op::format(body, &shape, &list));
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
