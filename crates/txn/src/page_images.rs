//! Private images: the content of pages that a transaction has put, until it is decided how it
//! becomes durable.
//!
//! A put takes a page into use without content (`Tree::modify_naming_unwritten`); its image stays
//! here. Invariants:
//! * An image is here, or its content is in the store or in the log; before a commit or prepare
//!   record is appended, that of every page that a row names is not here any more (`shadows.rs`).
//! * Only its transaction reads an image here: no other may see the row that names its page.
//! * An image is replaced in place only if no return to a savepoint can need what it was: none was
//!   made since the put. Else another page is taken into use, and the image before is *superseded*
//!   by the undo entry of that change. It comes back if that entry is undone.
//! * A rollback drops images and writes no page: undoing frees the pages.
//! * Bytes of all images are counted in the manager's total, from `add` to the drop.

use firndb_base::hash::FixedMap;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicUsize, Ordering};
use firndb_base::{Lsn, PageId, TreeId};

/// Approximate memory of an image beside its bytes.
const IMAGE_OVERHEAD: usize = 160;

/// A row: its tree and key.
type Row = (TreeId, Box<[u8]>);

/// An image that is to become durable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageImage {
    pub page: PageId,
    /// The version under which it is stored, if it is a shadow.
    pub version: Lsn,
    pub bytes: Vec<u8>,
    /// It was put whole, and not made of a part and the page before.
    pub whole: bool,
}

#[derive(Debug)]
struct Private {
    row: Row,
    /// The undo entry of the change that put it.
    index: u32,
    /// The undo entry of the change by which its row names it no more.
    superseded: Option<u32>,
    image: PageImage,
}

impl Private {
    fn memory(&self) -> usize {
        IMAGE_OVERHEAD + self.image.bytes.len() + 2 * self.row.1.len()
    }
}

/// The private images of one transaction.
#[derive(Debug, Default)]
pub(crate) struct PageImages {
    pages: FixedMap<PageId, Private>,
    /// The image of the page that a row names, where it is here.
    current: FixedMap<Row, PageId>,
    total: Option<Arc<AtomicUsize>>,
}

/// Those of a transaction, most of which have none: that costs them eight bytes.
pub(crate) type OfTransaction = Option<Box<PageImages>>;

impl PageImages {
    /// The content of a page, if it is here.
    pub fn get(&self, page: PageId) -> Option<&[u8]> {
        self.pages.get(&page).map(|private| &*private.image.bytes)
    }

    /// The image of the page that the row names, if it may be replaced in place: the newest
    /// savepoint is the one before undo entry `savepoint`.
    pub fn replaceable(&mut self, tree: TreeId, key: &[u8], savepoint: u32) -> Option<&mut PageImage> {
        let page = self.current.get(&(tree, Box::from(key)))?;
        let private = self.pages.get_mut(page).expect("a current image is here");
        (private.index >= savepoint).then_some(&mut private.image)
    }

    /// Keeps the image of a page just taken into use, whose row was changed with undo entry
    /// `index`; `total` counts the bytes of all transactions' images.
    pub fn add(&mut self, row: Row, index: u32, image: PageImage, total: &Arc<AtomicUsize>) {
        let page = image.page;
        let private = Private { row, index, superseded: None, image };
        total.fetch_add(private.memory(), Ordering::Relaxed);
        self.total.get_or_insert_with(|| total.clone());
        self.current.insert(private.row.clone(), page);
        let before = self.pages.insert(page, private);
        assert!(before.is_none(), "{page:?} is taken into use once");
    }

    /// The change with undo entry `index` made a row name `page` no more.
    pub fn supersede(&mut self, page: PageId, index: u32) {
        let Some(private) = self.pages.get_mut(&page) else { return };
        private.superseded = Some(index);
        if self.current.get(&private.row) == Some(&page) {
            self.current.remove(&private.row);
        }
    }

    /// The changes from undo entry `index` on are undone: what they put is dropped, and what they
    /// superseded is current again.
    pub fn return_to(&mut self, index: u32) {
        let undone: Vec<PageId> =
            self.pages.iter().filter(|(_, private)| private.index >= index).map(|(page, _)| *page).collect();
        undone.into_iter().for_each(|page| drop(self.remove(page)));
        for (page, private) in &mut self.pages {
            if private.superseded.is_some_and(|superseded| superseded >= index) {
                private.superseded = None;
                self.current.insert(private.row.clone(), *page);
            }
        }
    }

    /// Takes all images out that some reader, or a return to a savepoint, may want, in the order of
    /// their pages. The newest savepoint is the one before undo entry `savepoint`; `None`: none can
    /// be returned to any more. The others are dropped.
    pub fn take(&mut self, savepoint: Option<u32>) -> Vec<PageImage> {
        let mut pages: Vec<PageId> = self.pages.keys().copied().collect();
        pages.sort_unstable();
        let taken = pages.into_iter().filter_map(|page| {
            let private = self.remove(page);
            let may_return = savepoint.is_some_and(|savepoint| private.index < savepoint);
            (private.superseded.is_none() || may_return).then_some(private.image)
        });
        taken.collect()
    }

    pub fn clear(&mut self) {
        self.return_to(0);
    }

    fn remove(&mut self, page: PageId) -> Private {
        let private = self.pages.remove(&page).expect("the caller found it");
        if self.current.get(&private.row) == Some(&page) {
            self.current.remove(&private.row);
        }
        let total = self.total.as_ref().expect("set with the first image");
        let before = total.fetch_sub(private.memory(), Ordering::Relaxed);
        assert!(before >= private.memory(), "each image is counted once");
        private
    }
}

impl Drop for PageImages {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(7);

    fn row(key: u8) -> Row {
        (TREE, Box::from([key]))
    }

    fn image(page: u64) -> PageImage {
        PageImage { page: PageId(page), version: Lsn(page), bytes: vec![page as u8; 100], whole: true }
    }

    fn pages(images: &[PageImage]) -> Vec<u64> {
        images.iter().map(|image| image.page.0).collect()
    }

    #[test]
    fn an_image_is_replaced_in_place_until_a_savepoint_is_made() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut images = PageImages::default();
        images.add(row(1), 0, image(10), &total);
        images.replaceable(TREE, &[1], 0).expect("no savepoint").bytes.fill(9);
        assert_eq!(images.get(PageId(10)), Some(&[9; 100][..]));
        assert!(images.replaceable(TREE, &[2], 0).is_none(), "another row");
        assert!(images.replaceable(TREE, &[1], 1).is_none(), "a return would need it as it was");
        images.add(row(1), 1, image(11), &total);
        images.supersede(PageId(10), 1);
        assert_eq!(images.replaceable(TREE, &[1], 1).map(|image| image.page.0), Some(11));
        assert_eq!(pages(&images.take(None)), [11], "the older one is read by no one");
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_return_to_a_savepoint_brings_back_what_was_superseded_since() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut images = PageImages::default();
        images.add(row(1), 0, image(10), &total);
        images.add(row(2), 1, image(20), &total);
        images.add(row(1), 2, image(11), &total);
        images.supersede(PageId(10), 2);
        images.supersede(PageId(20), 4);
        images.return_to(2);
        assert_eq!(images.get(PageId(11)), None);
        assert_eq!(images.current.get(&row(1)), Some(&PageId(10)));
        assert_eq!(images.current.get(&row(2)), Some(&PageId(20)));
        images.add(row(1), 5, image(12), &total);
        images.supersede(PageId(10), 5);
        images.add(row(3), 7, image(30), &total);
        images.supersede(PageId(30), 8);
        assert_eq!(pages(&images.take(Some(2))), [10, 12, 20], "30 is wanted by no savepoint");
        assert!(images.pages.is_empty());
        images.add(row(1), 9, image(13), &total);
        drop(images);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
