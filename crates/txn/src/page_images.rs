//! Private images: the content of pages that a transaction has put, until it is decided how it
//! becomes durable.
//!
//! A put takes a page into use without content (`Tree::modify_naming`); its image stays
//! here. Invariants:
//! * An image is here, or its content is in the store or in the log; before a commit or prepare
//!   record is appended, that of every page that a row names is not here any more (`shadows.rs`).
//! * Only its transaction reads an image here: no other may see the row that names its page.
//! * An image is replaced in place only if no return to a savepoint can need what it was: none was
//!   made since the put. Else another page is taken into use, and the image before is *superseded*
//!   by the undo entry of that change. It comes back if that entry is undone.
//! * Images that are being written are *lent*. Those that could not be written come back: the
//!   transaction goes on, and writes them at its end.
//! * A rollback drops images and writes no page: undoing frees the pages.
//! * Bytes of all images are counted in the manager's total, from `add` until they are written or
//!   dropped.

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
}

#[derive(Debug)]
struct Private {
    row: Row,
    /// The undo entry of the change that put it.
    index: u32,
    /// The undo entry of the change by which its row names it no more.
    superseded: Option<u32>,
    /// `None` while it is lent.
    image: Option<PageImage>,
    /// What is counted for it.
    memory: usize,
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
        self.pages.get(&page)?.image.as_ref().map(|image| &*image.bytes)
    }

    /// The image of the page that the row names, if it may be replaced in place: the newest
    /// savepoint is the one before undo entry `savepoint`.
    pub fn replaceable(&mut self, tree: TreeId, key: &[u8], savepoint: u32) -> Option<&mut PageImage> {
        let page = self.current.get(&(tree, Box::from(key)))?;
        let private = self.pages.get_mut(page).expect("a current image is here");
        private.image.as_mut().filter(|_| private.index >= savepoint)
    }

    /// Keeps the image of a page just taken into use, whose row was changed with undo entry
    /// `index`; `total` counts the bytes of all transactions' images.
    pub fn add(&mut self, row: Row, index: u32, image: PageImage, total: &Arc<AtomicUsize>) {
        let page = image.page;
        let memory = IMAGE_OVERHEAD + image.bytes.len() + 2 * row.1.len();
        let private = Private { row, index, superseded: None, image: Some(image), memory };
        total.fetch_add(memory, Ordering::Relaxed);
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
        undone.into_iter().for_each(|page| self.remove(page));
        for (page, private) in &mut self.pages {
            if private.superseded.is_some_and(|superseded| superseded >= index) {
                private.superseded = None;
                self.current.insert(private.row.clone(), *page);
            }
        }
    }

    /// Lends all images that some reader, or a return to a savepoint, may want, in the order of
    /// their pages, until [`PageImages::end_loan`]. The newest savepoint is that before undo entry
    /// `savepoint`; `None`: none can be returned to any more. The others are dropped.
    pub fn lend(&mut self, savepoint: Option<u32>) -> Vec<PageImage> {
        let mut pages: Vec<PageId> = self.pages.keys().copied().collect();
        pages.sort_unstable();
        let lent = pages.into_iter().filter_map(|page| {
            let private = self.pages.get_mut(&page).expect("just listed");
            let may_return = savepoint.is_some_and(|savepoint| private.index < savepoint);
            if private.superseded.is_none() || may_return {
                return private.image.take();
            }
            self.remove(page);
            None
        });
        lent.collect()
    }

    /// Of the images lent, all but the `unwritten` were written: they are private no more.
    pub fn end_loan(&mut self, unwritten: Vec<PageImage>) {
        for image in unwritten {
            let private = self.pages.get_mut(&image.page).expect("it was lent");
            private.image = Some(image);
        }
        let written: Vec<PageId> =
            self.pages.iter().filter(|(_, private)| private.image.is_none()).map(|(page, _)| *page).collect();
        written.into_iter().for_each(|page| self.remove(page));
    }

    pub fn clear(&mut self) {
        self.return_to(0);
    }

    fn remove(&mut self, page: PageId) {
        let private = self.pages.remove(&page).expect("the caller found it");
        if self.current.get(&private.row) == Some(&page) {
            self.current.remove(&private.row);
        }
        let total = self.total.as_ref().expect("set with the first image");
        let before = total.fetch_sub(private.memory, Ordering::Relaxed);
        assert!(before >= private.memory, "each image is counted once");
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
        PageImage { page: PageId(page), version: Lsn(page), bytes: vec![page as u8; 100] }
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
        assert_eq!(pages(&images.lend(None)), [11], "the older one is read by no one");
        assert_ne!(total.load(Ordering::Relaxed), 0, "what is being written is in memory");
        images.end_loan(Vec::new());
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn images_that_could_not_be_written_are_private_as_before() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut images = PageImages::default();
        for page in 0..4 {
            images.add(row(page), u32::from(page), image(u64::from(page) + 10), &total);
        }
        let each = total.load(Ordering::Relaxed) / 4;
        let mut lent = images.lend(Some(0));
        assert_eq!(pages(&lent), [10, 11, 12, 13]);
        assert_eq!(images.get(PageId(12)), None);
        images.end_loan(lent.split_off(2));
        assert_eq!(images.get(PageId(11)), None, "written");
        assert_eq!(images.get(PageId(12)), Some(&[12; 100][..]));
        assert_eq!(total.load(Ordering::Relaxed), 2 * each);
        images.return_to(3);
        assert_eq!(pages(&images.lend(None)), [12]);
        drop(images);
        assert_eq!(total.load(Ordering::Relaxed), 0, "dropped while it was lent");
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
        assert_eq!(pages(&images.lend(Some(2))), [10, 12, 20], "30 is wanted by no savepoint");
        images.end_loan(Vec::new());
        assert!(images.pages.is_empty());
        images.add(row(1), 9, image(13), &total);
        drop(images);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
