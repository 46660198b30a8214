//! Which pages entries name: pages without a node's format, which belong to no tree but through
//! them.

use crate::error::TableError;
use crate::large::Part;
use crate::page_parts::page_of_row;
use crate::superseded::marked_page;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_btree::{Direction, Position, Tree, TreeErrorKind, Visit};
use firndb_txn::RowHeader;

/// How the entries of a tree name pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// They name none.
    None,
    /// Rows of a page file.
    FileRows,
    /// Parts of large values.
    LargeParts,
    /// Marks of superseded pages.
    Marks,
}

impl Naming {
    /// As the catalog says it of a dropped tree, whose marks are never.
    pub(crate) fn code(self) -> u8 {
        match self {
            Naming::None => 0,
            Naming::FileRows => 1,
            Naming::LargeParts => 2,
            Naming::Marks => unreachable!("the tree of marks is not dropped"),
        }
    }

    pub(crate) fn of_code(code: u8) -> Result<Naming, Malformed> {
        match code {
            0 => Ok(Naming::None),
            1 => Ok(Naming::FileRows),
            2 => Ok(Naming::LargeParts),
            _ => Err(Malformed { what: "an unknown kind of tree" }),
        }
    }

    /// The page that an entry names, if it names one.
    pub(crate) fn page(self, key: &[u8], value: &[u8]) -> Result<Option<PageId>, TableError> {
        match self {
            Naming::None => Ok(None),
            Naming::Marks => marked_page(key).map(Some),
            Naming::FileRows => page_of_row(key, RowHeader::split(value)?.1),
            Naming::LargeParts => match Part::decode(key) {
                Ok(Part::Page(..)) => named_page(RowHeader::split(value)?.1),
                _ => Ok(None),
            },
        }
    }
}

/// The page that a row's payload names; `None`: it is a page of zeros.
pub(crate) fn named_page(payload: &[u8]) -> Result<Option<PageId>, TableError> {
    match <[u8; 8]>::try_from(payload) {
        Ok(name) => Ok(Some(PageId(u64::from_le_bytes(name)))),
        Err(_) if payload.is_empty() => Ok(None),
        Err(_) => Err(TableError::damaged("a row that is to name a page does not name one")),
    }
}

/// A page of zeros is a row that names no page; so no page that a row names is.
pub(crate) fn is_zeros(image: &[u8]) -> bool {
    image.iter().all(|byte| *byte == 0)
}

/// A tree whose entries name pages.
pub struct PageOwner {
    /// What it is, for people.
    pub what: String,
    pub tree: Tree,
    pub(crate) naming: Naming,
}

impl PageOwner {
    /// Whether the pages are those of large values, not of page files.
    #[must_use]
    pub fn is_of_large_values(&self) -> bool {
        self.naming == Naming::LargeParts
    }

    /// Shows every page that an entry names, under the latch of the leaf which it stands in: it
    /// cannot be freed meanwhile.
    pub fn pages(&self, each: &mut dyn FnMut(PageId)) -> Result<(), TableError> {
        let mut position = Some(Position::Start);
        let mut outcome = Ok(());
        while let Some(from) = position {
            let visited = self.tree.visit_leaf(&from, Direction::Forward, |key, value| {
                match self.naming.page(key, value) {
                    Ok(page) => page.into_iter().for_each(&mut *each),
                    Err(error) => outcome = Err(error),
                }
                Visit::Continue
            });
            position = match visited {
                // It is being cleared: no row is left.
                Err(error) if error.kind == TreeErrorKind::Condemned => None,
                visited => visited?,
            };
        }
        outcome
    }
}
