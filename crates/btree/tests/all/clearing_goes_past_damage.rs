//! Dropping a tree frees every page that can be reached, whatever of it is damaged.

use crate::common::*;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, TreeId};
use firndb_btree::{Tree, TreeErrorKind};
use firndb_buffer::{BufferPool, Changed, PoolOptions};
use firndb_log::{Kind, Log, Record};
use firndb_tier::PageTier;
use firndb_tier::testing::MemoryTier;

const PAGE_SIZE: usize = 1024;
const TREE: TreeId = TreeId(7);
/// Where a node says its level, its tree and its first child.
const LEVEL_AT: usize = 1;
const TREE_AT: usize = 20;
const FIRST_CHILD_AT: std::ops::Range<usize> = 24..32;

struct Rig {
    tier: Arc<MemoryTier>,
    tree: Tree,
    /// Levels and pages, from the root on.
    nodes: Vec<(u8, PageId)>,
}

fn pool_over(tier: &Arc<MemoryTier>, log: Arc<Log>) -> Arc<BufferPool> {
    let options = PoolOptions { budget_bytes: 2 << 20 };
    Arc::new(BufferPool::new(tier.clone(), log, options).expect("a pool"))
}

impl Rig {
    /// A tree of three levels, none of whose pages is in a frame.
    fn new() -> Rig {
        let tier = Arc::new(MemoryTier::new(PAGE_SIZE));
        let log = firndb_log::testing::memory_log_with(256 << 20);
        let tree = Tree::create(pool_over(&tier, log), TREE, CLASS, b"").expect("a tree");
        for number in 0..300u32 {
            put(&tree, &format!("a key of some length {number:08}").into_bytes(), &[7; 200]);
        }
        let level = |page: &PageId| tree.pool().shared(*page).expect("readable")[LEVEL_AT];
        let mut nodes: Vec<(u8, PageId)> =
            tree.check().expect("a check").pages.iter().map(|page| (level(page), *page)).collect();
        nodes.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        assert!(nodes[0].0 == 2 && nodes[0].1 == tree.root() && nodes[4].0 == 1, "{:?}", &nodes[..5]);
        let mut rig = Rig { tier, tree, nodes };
        rig.reopen();
        rig
    }

    /// Puts the pages of an open pool to the tier and begins with an empty one.
    fn reopen(&mut self) {
        self.tree.pool().write_older_than(Lsn::MAX).expect("written");
        let pool = pool_over(&self.tier, self.tree.pool().log().clone());
        self.tree = Tree::open(pool, TREE, self.tree.root());
    }

    fn at_level(&self, level: u8) -> Vec<PageId> {
        self.nodes.iter().filter(|node| node.0 == level).map(|node| node.1).collect()
    }

    /// Changes a page behind the tree's back.
    fn change(&self, page: PageId, change: impl FnOnce(&mut [u8])) {
        let intent = self.tree.pool().exclusive(page).expect("readable").intend();
        let record = Record { kind: Kind(0x3f), body: b"" };
        let lsn = self.tree.pool().log().try_append(CLASS, record).expect("space").first;
        drop(intent.apply(lsn, |bytes| {
            change(bytes);
            Changed::Most
        }));
    }

    /// Clears and drops the tree; returns why pages were lost.
    fn clear(self) -> Vec<String> {
        let mut lost = Vec::new();
        let mut steps = 0;
        while self
            .tree
            .clear_step_past_damage(CLASS, &mut |error| {
                assert_eq!(error.kind, TreeErrorKind::Damaged, "{error}");
                lost.push(error.message.clone());
            })
            .expect("what can be reached is freed")
        {
            steps += 1;
            assert!(steps < 10_000, "it ends");
        }
        self.tree.drop_root(CLASS, b"").expect("an empty leaf");
        lost
    }
}

fn pages(tier: &MemoryTier) -> u64 {
    tier.statistics().pages_allocated
}

#[test]
fn leaves_are_not_read() {
    let rig = Rig::new();
    let tier = rig.tier.clone();
    rig.at_level(0).iter().for_each(|leaf| tier.damage(*leaf));
    assert_eq!(rig.clear(), Vec::<String>::new());
    assert_eq!(pages(&tier), 0);
}

#[test]
fn below_an_inner_node_that_cannot_be_read() {
    for which in [0, 1, usize::MAX] {
        let mut rig = Rig::new();
        let tier = rig.tier.clone();
        let inner = rig.at_level(1);
        let damaged = inner[which.min(inner.len() - 1)];
        let bytes = rig.tree.pool().shared(damaged).expect("readable").to_vec();
        let children = u64::from(u16::from_le_bytes([bytes[4], bytes[5]])) + 1;
        rig.reopen();
        tier.damage(damaged);
        let error = loop {
            match rig.tree.clear_step(CLASS) {
                Ok(more) => assert!(more, "it cannot be complete"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, TreeErrorKind::Damaged, "without being asked to, nothing is given up");
        let lost = rig.clear();
        assert!(lost.len() == 1 && lost[0].contains(&format!("{damaged:?}")), "{lost:?}");
        assert_eq!(pages(&tier), children, "its children are lost, and it alone is not");
    }
}

#[test]
fn when_all_inner_nodes_are_damaged_they_come_back_alone() {
    let rig = Rig::new();
    let tier = rig.tier.clone();
    let leaves = rig.at_level(0).len() as u64;
    rig.at_level(1).iter().for_each(|page| tier.damage(*page));
    let inner = rig.at_level(1).len();
    assert_eq!(rig.clear().len(), inner);
    assert_eq!(pages(&tier), leaves);
}

#[test]
fn what_is_another_trees_is_not_freed() {
    for (at, value) in [(TREE_AT, 8), (LEVEL_AT, 7)] {
        let rig = Rig::new();
        let tier = rig.tier.clone();
        let foreign = rig.at_level(1)[1];
        rig.change(foreign, |bytes| bytes[at] = value);
        let lost = rig.clear();
        assert!(lost.len() == 1 && lost[0].contains(&format!("{foreign:?}")), "{lost:?}");
        assert!(tier.version_of(foreign).expect("asked").is_some(), "it is still allocated");
    }
}

#[test]
fn a_pointer_to_a_page_that_is_not_allocated_is_forgotten() {
    let rig = Rig::new();
    let tier = rig.tier.clone();
    let (leaf, inner) = (rig.at_level(0)[5], rig.at_level(1)[0]);
    tier.forget(leaf);
    assert_eq!(rig.clear().len(), 1);
    assert_eq!(pages(&tier), 0);

    let rig = Rig::new();
    let tier = rig.tier.clone();
    // Its last child is the root: which is one of this tree, and of another level.
    let root = rig.tree.root();
    rig.change(inner, |bytes| bytes[FIRST_CHILD_AT].copy_from_slice(&root.0.to_le_bytes()));
    assert!(!rig.clear().is_empty());
    assert!(pages(&tier) <= 1, "{}", pages(&tier));
}

#[test]
fn a_leaf_that_its_parent_names_twice_is_freed_once() {
    let rig = Rig::new();
    let tier = rig.tier.clone();
    let inner = rig.at_level(1)[0];
    // The value of its first slot, a pointer, becomes the first child's.
    rig.change(inner, |bytes| {
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let slot = 32 + half(8) + half(10);
        let pointer = half(slot) + half(slot + 2);
        bytes.copy_within(FIRST_CHILD_AT, pointer);
    });
    let lost = rig.clear();
    assert!(!lost.is_empty(), "the leaf that is named by no node any more");
    assert_eq!(pages(&tier), 1);
}

#[test]
fn a_root_that_cannot_be_read_comes_back_alone() {
    let rig = Rig::new();
    let tier = rig.tier.clone();
    let all = pages(&tier);
    tier.damage(rig.tree.root());
    let error = rig.tree.clear_step_past_damage(CLASS, &mut |_| panic!("nothing was freed")).unwrap_err();
    assert_eq!(error.kind, TreeErrorKind::Damaged);
    assert!(rig.tree.drop_damaged_root(CLASS).expect("freed"));
    assert_eq!(pages(&tier), all - 1);

    let rig = Rig::new();
    rig.change(rig.tree.root(), |bytes| bytes[TREE_AT] = 8);
    assert!(!rig.tree.drop_damaged_root(CLASS).expect("looked at"), "it is another tree's");
    assert!(rig.tier.version_of(rig.tree.root()).expect("asked").is_some());
}
