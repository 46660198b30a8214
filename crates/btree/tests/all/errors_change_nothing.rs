//! What cannot be done leaves tree, pages and allocation as they were.

use crate::common::*;
use firndb_base::sync::Arc;
use firndb_base::{PageId, TreeId};
use firndb_btree::{Change, Position, Tree, TreeError, TreeErrorKind, Unmerged, Visit};
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Appended, LogClass, LogError, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageTier, TierError, TierErrorKind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A tier that refuses reservations and publications after a number of each.
struct LimitedTier {
    inner: MemoryTier,
    reservations_left: AtomicI64,
    publications_left: AtomicI64,
    reserved_now: AtomicU64,
}

impl PageTier for LimitedTier {
    firndb_tier::forward_tier!(inner: page_size, read_batch, write_batch, make_batch_space, prepare, sync);
    firndb_tier::forward_tier!(inner: statistics, whereabouts);
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        if self.reservations_left.fetch_sub(1, Relaxed) <= 0 {
            return Err(TierError::new(TierErrorKind::Full, "the volume is full"));
        }
        self.reserved_now.fetch_add(1, Relaxed);
        self.inner.reserve(class)
    }
    fn unreserve(&self, page: PageId) {
        self.reserved_now.fetch_sub(1, Relaxed);
        self.inner.unreserve(page);
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        if self.publications_left.fetch_sub(1, Relaxed) <= 0 {
            return Err(TierError::new(TierErrorKind::LogFull, "the log is full"));
        }
        let appended = self.inner.publish(change, append)?;
        self.reserved_now.fetch_sub(change.allocate.len() as u64, Relaxed);
        Ok(appended)
    }
    fn version_of(&self, page: PageId) -> Result<Option<firndb_base::Lsn>, TierError> {
        self.inner.version_of(page)
    }
    fn oldest_needed_lsn(&self) -> Option<firndb_base::Lsn> {
        self.inner.oldest_needed_lsn()
    }
}

fn limited() -> (Arc<LimitedTier>, Tree) {
    let tier = Arc::new(LimitedTier {
        inner: MemoryTier::new(512),
        reservations_left: AtomicI64::new(i64::MAX),
        publications_left: AtomicI64::new(i64::MAX),
        reserved_now: AtomicU64::new(0),
    });
    let options = PoolOptions { budget_bytes: 1 << 20 };
    let pool = BufferPool::new(Arc::clone(&tier) as _, firndb_log::testing::memory_log(), options).unwrap();
    let tree = Tree::create(Arc::new(pool), TreeId(1), CLASS, b"").unwrap();
    (tier, tree)
}

fn try_put(tree: &Tree, key: &[u8], len: usize) -> Result<(), TreeError> {
    let put = |_: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| {
        *change = Change::Put(vec![5; len]);
        Ok::<_, TreeError>(())
    };
    tree.modify(key, CLASS, put).map(|_| ())
}

#[test]
fn a_full_volume_or_log_refuses_splits_and_nothing_else() {
    for (publication, seed) in [(false, 1), (true, 2)] {
        let (tier, tree) = limited();
        let (mut model, mut rng) = (Model::new(), firndb_base::rng::Rng::new(seed));
        let mut refused = 0;
        for _ in 0..3000 {
            let limit = if publication { &tier.publications_left } else { &tier.reservations_left };
            // A root needs two pages, a high tree several splits: some get halfway.
            limit.store(rng.below(4) as i64, Relaxed);
            let key = (rng.below(4000) as u32).to_be_bytes().to_vec();
            match try_put(&tree, &key, 30) {
                Ok(()) => drop(model.insert(key, vec![5; 30])),
                Err(error) => {
                    let kind = if publication { TreeErrorKind::LogFull } else { TreeErrorKind::Full };
                    assert_eq!(error.kind, kind, "{error}");
                    refused += 1;
                }
            }
            assert_eq!(tier.reserved_now.load(Relaxed), 0, "reserved pages are given back");
        }
        assert!(refused > 30 && model.len() > 500);
        assert_equal(&tree, &model);
    }
}

#[test]
fn merges_that_cannot_be_logged_are_put_off() {
    let (tier, tree) = limited();
    (0..1000u32).for_each(|n| try_put(&tree, &n.to_be_bytes(), 30).unwrap());
    tier.publications_left.store(0, Relaxed);
    (0..990u32).for_each(|n| assert!(remove(&tree, &n.to_be_bytes())));
    let report = tree.check().unwrap().into_result().unwrap();
    assert_eq!(report.entries, 10);
    assert!(report.leaf_pages > 50);
    tier.publications_left.store(i64::MAX, Relaxed);
    (990..1000u32).for_each(|n| assert!(remove(&tree, &n.to_be_bytes())));
    assert_sound(&tree, &Model::new());
}

#[test]
fn a_decision_that_fails_changes_nothing() {
    let tree = tree_of(512, 50);
    put(&tree, b"k", b"v");
    let end = tree.pool().log().end();
    let failed = tree.modify(b"k", CLASS, |_, change, attachment| {
        *change = Change::Remove;
        attachment.push(1);
        Err::<(), _>(TreeError::new(TreeErrorKind::Failed, "changed my mind"))
    });
    assert_eq!(failed.unwrap_err().message, "changed my mind");
    let kept = tree.modify(b"k", CLASS, |value, change, attachment| {
        assert_eq!((value, &*change, &attachment[..]), (Some(&b"v"[..]), &Change::Keep, &b""[..]));
        Ok::<_, TreeError>(41)
    });
    assert_eq!(kept.unwrap(), (41, None));
    assert_eq!(tree.pool().log().end(), end);
    assert_eq!(get(&tree, b"k").unwrap(), b"v");
}

#[test]
fn keys_and_entries_over_their_limits_are_refused() {
    for page_size in [512, 4096, 65536] {
        let tree = tree_of(page_size, 50);
        let (key_max, entry_max) = (Tree::max_key_len(page_size), Tree::max_entry_len(page_size));
        assert_eq!(try_put(&tree, &vec![1; key_max + 1], 0).unwrap_err().kind, TreeErrorKind::TooLarge);
        assert_eq!(try_put(&tree, &[1], entry_max).unwrap_err().kind, TreeErrorKind::TooLarge);
        for first in 0..30u8 {
            let key = [&[first][..], &vec![1; key_max - 1]].concat();
            try_put(&tree, &key, entry_max - key_max).expect("the longest entries fit");
        }
        assert_eq!(tree.check().unwrap().into_result().unwrap().entries, 30);
    }
}

#[test]
fn pages_of_another_tree_are_not_believed() {
    let tree = tree_of(512, 50);
    let other = Tree::open(Arc::clone(tree.pool()), TreeId(8), tree.root());
    let damaged = |error: TreeError| assert_eq!(error.kind, TreeErrorKind::Damaged, "{error}");
    damaged(other.get(b"k", |_| ()).unwrap_err());
    damaged(try_put(&other, b"k", 1).unwrap_err());
    damaged(
        other
            .visit_leaf(&Position::Start, firndb_btree::Direction::Forward, |_, _| Visit::Continue)
            .unwrap_err(),
    );
    damaged(other.clear(CLASS).unwrap_err());
    assert_eq!(other.check().unwrap().damage.len(), 1);
    let nowhere = Tree::open(Arc::clone(tree.pool()), TreeId(8), PageId(999));
    damaged(nowhere.get(b"k", |_| ()).unwrap_err());
    assert_eq!(nowhere.check().unwrap().damage.len(), 1);
}

/// An emptied leaf whose merge met a full log once stayed for ever: no later removal visited it.
#[test]
fn a_merge_that_met_an_error_is_noted_and_can_be_tried_again() {
    let (tier, tree) = limited();
    let unmerged = Arc::new(Unmerged::default());
    tree.note_unmerged_in(&unmerged);
    for number in 0..500u32 {
        try_put(&tree, &number.to_be_bytes(), 30).unwrap();
    }
    let pages = tree.check().unwrap().pages.len();
    // Removals need no publication, merges do.
    tier.publications_left.store(0, Relaxed);
    for number in 0..500u32 {
        assert!(remove(&tree, &number.to_be_bytes()));
    }
    assert_eq!(tree.check().unwrap().pages.len(), pages, "no merge came off");
    tier.publications_left.store(i64::MAX, Relaxed);
    let noted = unmerged.take().expect("they are noted");
    assert!(unmerged.take().is_none());
    for (id, low, high) in noted.iter() {
        assert_eq!((id, Some(low)), (tree.id(), high), "so few are noted one by one");
        tree.merge_small(low, CLASS).unwrap();
    }
    let report = tree.check().unwrap().into_result().unwrap();
    assert_eq!((report.entries, report.pages.len()), (0, 1), "all of {pages} pages but the root are free");
}
