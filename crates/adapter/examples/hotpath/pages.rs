//! What is counted of page files: whole pages, logged and as shadows, and parts. With their share
//! of an asynchronous commit, and by the client's thread.

use crate::Error;
use crate::workload::count;
use firndb::{Database, Options, PageRecovery, Progress};
use firndb_workloads::Random;
use std::path::Path;

/// Pages of the file, all of which DRAM holds.
const PAGES: u64 = 4096;
/// How often each operation is counted.
const COUNT: u64 = 2048;
/// Operations of one transaction.
const EACH: u64 = 64;
const PAGE: usize = 4096;

fn options(recovery: PageRecovery) -> Options {
    crate::workload::options().tuning(|tuning| tuning.page_recovery(recovery))
}

/// Makes the database.
pub fn load(dir: &Path) -> Result<(), Error> {
    let db = options(PageRecovery::Log).open(dir)?;
    let file = db.create_page_file("pages")?;
    for first in (0..PAGES).step_by(EACH as usize) {
        db.transact(|tx| (first..first + EACH).try_for_each(|page| tx.put_page(&file, page, &[1; PAGE])))?;
    }
    Ok(db.close()?)
}

/// A statement on a page.
type Statement<'a> = &'a mut dyn FnMut(&mut firndb::Transaction, u64) -> Result<(), firndb::Error>;

/// Runs a statement on `COUNT` pages, drawn from a seed.
fn write(db: &Database, statement: Statement<'_>) -> Result<(), firndb::Error> {
    let mut random = Random::stream(7, COUNT);
    for _ in 0..COUNT / EACH {
        let mut tx = db.begin();
        for _ in 0..EACH {
            statement(&mut tx, random.between(0, PAGES - 1))?;
        }
        tx.commit_async()?;
    }
    Ok(())
}

/// Counts an operation, after it was run once without.
fn counted(name: &str, db: &Database, statement: Statement<'_>) -> Result<(), Error> {
    write(db, statement)?;
    while db.step()? == Progress::Worked {}
    let mut outcome = Ok(());
    count(name, COUNT, &mut || outcome = write(db, statement));
    Ok(outcome?)
}

/// Runs everything.
pub fn run(dir: &Path) -> Result<(), Error> {
    for (name, recovery) in
        [("put_page_logged", PageRecovery::Log), ("put_page_shadow", PageRecovery::Hybrid)]
    {
        let db = options(recovery).open(dir)?;
        let file = db.page_file("pages")?;
        let mut byte = 1u8;
        counted(name, &db, &mut |tx, page| {
            byte = byte.wrapping_add(1).max(1);
            tx.put_page(&file, page, &[byte; PAGE])
        })?;
        drop(file);
        db.close()?;
    }
    let db = options(PageRecovery::Hybrid).open(dir)?;
    let file = db.page_file("pages")?;
    let mut image = Vec::new();
    counted("read_page", &db, &mut |tx, page| {
        tx.read_page_into(&file, page, &mut image)?;
        assert_ne!(image[0], 0, "a page that was loaded");
        Ok(())
    })?;
    let mut at = 0;
    counted("write_page_part", &db, &mut |tx, page| {
        at = (at + 97) % 400;
        tx.write_page(&file, page, at, &[at as u8; 100])
    })?;
    drop(file);
    Ok(db.close()?)
}
