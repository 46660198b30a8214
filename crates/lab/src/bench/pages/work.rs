//! What the client does: the workloads of the paper's table 4.

use super::machine::{Machine, PAGE, content};
use firndb::PageFile;
use firndb_base::rng::Rng;
use firndb_console::Failure;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// What transactions do with pages, and how they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Commit,
    Abort,
    Read,
}

/// One client's work on a page file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub kind: Kind,
    /// A part of each page only.
    pub part: bool,
    /// In a random order, each page once; else ascending.
    pub random: bool,
    /// Of the file; each is worked on once.
    pub pages: u64,
    /// Pages that are worked on, if not all.
    pub operations: u64,
    /// Pages of one transaction.
    pub each: u64,
}

/// Bytes of a part, at a drawn offset; the paper does not print them.
pub const PART: usize = 100;

/// A page operation: the page, and where its part begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub page: u64,
    at: usize,
}

impl Work {
    /// All operations, in their order.
    pub fn operations(&self, seed: u64) -> Vec<Operation> {
        let mut rng = Rng::new(seed);
        let mut pages: Vec<u64> = (0..self.pages).collect();
        if self.random {
            for place in (1..pages.len()).rev() {
                pages.swap(place, rng.below(place as u64 + 1) as usize);
            }
        }
        pages.truncate(self.operations as usize);
        let operation = |page| Operation { page, at: rng.below((PAGE - PART) as u64 + 1) as usize };
        pages.into_iter().map(operation).collect()
    }

    /// Bytes that an operation changes.
    pub fn bytes(&self) -> u64 {
        (if self.part { PART } else { PAGE }) as u64
    }

    /// As `commit, full, random, N`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Commit => "commit",
            Kind::Abort => "abort",
            Kind::Read => "read",
        };
        let part = if self.part { "partial" } else { "full" };
        let order = if self.random { "random" } else { "sequential" };
        let transactions = match self.each {
            each if each == self.pages => "1".to_owned(),
            each if each == self.operations => format!("1 of {each} pages"),
            1 => "N".to_owned(),
            each => format!("of {each} pages"),
        };
        format!("{kind}, {part}, {order}, {transactions}")
    }
}

/// `perform` calls an implementation as it makes progress.
pub trait Watching {
    /// Called after each operation, with the number of operations done so far.
    fn done(&mut self, operations: u64);
    /// Called before each commit or rollback, with the number of operations done so far.
    fn ending(&mut self, operations: u64);
}

/// Does the work.
pub fn perform(
    machine: &Machine,
    work: Work,
    operations: &[Operation],
    stop: &AtomicBool,
    watch: &mut impl Watching,
) -> Result<(), Failure> {
    let (db, file) = (&machine.db, &machine.file);
    let mut done = 0;
    let mut image = Vec::new();
    for batch in operations.chunks(work.each as usize) {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        let mut tx = if work.kind == Kind::Read { db.snapshot() } else { db.begin() };
        for operation in batch {
            match (work.kind, work.part) {
                (Kind::Read, _) => {
                    tx.read_page_into(file, operation.page, &mut image)?;
                    expect(&image, operation.page, 0)?;
                }
                (_, false) => tx.put_page(file, operation.page, &content(operation.page, 1))?,
                (_, true) => write_part(&mut tx, file, *operation)?,
            }
            done += 1;
            watch.done(done);
        }
        watch.ending(done);
        match work.kind {
            Kind::Abort => tx.rollback()?,
            Kind::Commit | Kind::Read => tx.commit()?,
        }
    }
    Ok(())
}

fn write_part(tx: &mut firndb::Transaction, file: &PageFile, operation: Operation) -> Result<(), Failure> {
    let Operation { page, at } = operation;
    Ok(tx.write_page(file, page, at, &content(page, 1)[at..at + PART])?)
}

fn expect(image: &[u8], page: u64, generation: u64) -> Result<(), Failure> {
    match image == content(page, generation) {
        true => Ok(()),
        false => Err(Failure::new(format!("page {page} has not what generation {generation} wrote"))),
    }
}

/// Checks that every page is as the work must leave it.
pub fn check(machine: &Machine, work: Work, operations: &[Operation]) -> Result<(), Failure> {
    let mut tx = machine.db.snapshot();
    let mut untouched: BTreeSet<u64> = (0..work.pages).collect();
    for operation in operations {
        let Operation { page, at } = *operation;
        untouched.remove(&page);
        let image = tx.read_page(&machine.file, page)?;
        match (work.kind, work.part) {
            (Kind::Commit, false) => expect(&image, page, 1)?,
            (Kind::Commit, true) => {
                let mut wanted = content(page, 0);
                wanted[at..at + PART].copy_from_slice(&content(page, 1)[at..at + PART]);
                if image != wanted {
                    return Err(Failure::new(format!("page {page} has not its part at {at}")));
                }
            }
            (Kind::Abort | Kind::Read, _) => expect(&image, page, 0)?,
        }
    }
    untouched.into_iter().try_for_each(|page| expect(&tx.read_page(&machine.file, page)?, page, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work =
        Work { kind: Kind::Commit, part: true, random: true, pages: 100, operations: 100, each: 1 };

    #[test]
    fn a_random_order_is_a_permutation_of_the_file_by_its_seed() {
        let operations = WORK.operations(7);
        let pages: BTreeSet<u64> = operations.iter().map(|operation| operation.page).collect();
        assert_eq!(pages.len(), 100);
        assert!(operations.windows(2).any(|pair| pair[1].page != pair[0].page + 1));
        assert!(operations.iter().all(|operation| operation.at + PART <= PAGE));
        assert_eq!(operations, WORK.operations(7));
        assert_ne!(operations, WORK.operations(8));
        let few = Work { operations: 10, ..WORK }.operations(7);
        assert_eq!(few.len(), 10);
        let ascending = Work { random: false, ..WORK }.operations(7);
        assert!(ascending.iter().map(|operation| operation.page).eq(0..100));
    }

    #[test]
    fn cells_are_named_as_table_4_has_them() {
        assert_eq!(WORK.name(), "commit, partial, random, N");
        let one = Work { kind: Kind::Abort, part: false, random: false, each: 100, ..WORK };
        assert_eq!(one.name(), "abort, full, sequential, 1");
        assert_eq!(Work { each: 5, ..one }.name(), "abort, full, sequential, of 5 pages");
        let few = Work { each: 5, operations: 5, ..one };
        assert_eq!(few.name(), "abort, full, sequential, 1 of 5 pages");
    }

    #[test]
    fn no_two_contents_are_alike_and_none_is_zeros() {
        let mut seen = BTreeSet::new();
        for page in 0..1000 {
            for generation in 0..2 {
                let content = content(page, generation);
                assert!(content.len() == PAGE && content.iter().any(|byte| *byte != 0));
                assert!(seen.insert(content[..8].to_vec()), "page {page}, generation {generation}");
            }
        }
    }
}
