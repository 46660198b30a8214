//! Page files of a session. The model of a page file is that of a table, called [`model_name`]: a
//! row for each page that is not all zeros, and one for the file's length.

use super::Session;
use super::work::Work;
use crate::support::model::Rows;
use firndb::{Database, Error, PageFile, Transaction};

const LENGTH: &[u8] = b"length";

/// What the model calls a page file.
pub fn model_name(file: &str) -> String {
    format!("page file {file}")
}

/// The model of a page file, read.
pub fn read_page_file(tx: &mut Transaction, file: &PageFile) -> Result<Rows, Error> {
    let pages = file.pages(tx)?;
    let mut rows = Rows::from([(LENGTH.to_vec(), pages.to_be_bytes().to_vec())]);
    let mut image = Vec::new();
    // One past the end, too.
    for page in 0..=pages {
        tx.read_page_into(file, page, &mut image)?;
        if image.iter().any(|byte| *byte != 0) {
            rows.insert(page.to_be_bytes().to_vec(), image.clone());
        }
    }
    Ok(rows)
}

/// A page whose bytes tell which it is, and of which version.
pub fn image(page: u64, version: u64, len: usize) -> Vec<u8> {
    let mut image = vec![(page * 7 + version * 3) as u8 | 1; len];
    image[..8].copy_from_slice(&page.to_le_bytes());
    image[8..16].copy_from_slice(&version.to_le_bytes());
    image
}

impl Work {
    /// A statement on a page file, which makes `pages` what the model says; skipped if the file is
    /// not there, because its creation failed.
    fn change_file(
        &mut self,
        file: &str,
        statement: impl FnOnce(&mut Transaction, &PageFile) -> Result<(), Error>,
        model: impl FnOnce(&mut Rows),
    ) -> Result<(), Error> {
        let name = model_name(file);
        let Some(table) = self.state.tables.get_mut(&name) else { return Ok(()) };
        statement(&mut self.tx, &self.db.page_file(file)?)?;
        let before = table.rows.clone();
        model(&mut table.rows);
        for key in before.keys().chain(table.rows.keys()) {
            let value = table.rows.get(key).cloned();
            if before.get(key) != value.as_ref() {
                self.effects.push((name.clone(), key.clone(), value));
            }
        }
        Ok(())
    }

    pub fn put_page(&mut self, file: &str, page: u64, image: &[u8]) -> Result<(), Error> {
        self.change_file(file, |tx, file| tx.put_page(file, page, image), |rows| set(rows, page, image))
    }
    pub fn write_page(&mut self, file: &str, page: u64, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let size = self.db.page_file(file).map_or(0, |file| file.page_size());
        self.change_file(
            file,
            |tx, file| tx.write_page(file, page, offset, bytes),
            |rows| {
                let before = rows.get(&page.to_be_bytes()[..]).cloned();
                let mut image = before.unwrap_or_else(|| vec![0; size]);
                image[offset..offset + bytes.len()].copy_from_slice(bytes);
                set(rows, page, &image);
            },
        )
    }
    pub fn free_page(&mut self, file: &str, page: u64) -> Result<(), Error> {
        self.change_file(
            file,
            |tx, file| tx.free_page(file, page),
            |rows| {
                rows.remove(&page.to_be_bytes()[..]);
            },
        )
    }
    pub fn set_pages(&mut self, file: &str, pages: u64) -> Result<(), Error> {
        self.change_file(
            file,
            |tx, file| tx.set_pages(file, pages),
            |rows| {
                rows.retain(|key, _| key == LENGTH || key[..] < pages.to_be_bytes()[..]);
                rows.insert(LENGTH.to_vec(), pages.to_be_bytes().to_vec());
            },
        )
    }
    /// Reads a page file whole.
    pub fn read_file(&mut self, file: &str) -> Result<(), Error> {
        let Some(model) = self.state.tables.get(&model_name(file)) else { return Ok(()) };
        let expected = model.rows.clone();
        let found = read_page_file(&mut self.tx, &self.db.page_file(file)?)?;
        self.expect(found == expected, || format!("page file {file:?} shows other pages"));
        Ok(())
    }
}

fn set(rows: &mut Rows, page: u64, image: &[u8]) {
    match image.iter().any(|byte| *byte != 0) {
        true => rows.insert(page.to_be_bytes().to_vec(), image.to_vec()),
        false => rows.remove(&page.to_be_bytes()[..]),
    };
    let length = rows.get_mut(LENGTH).expect("every file has a length");
    let least = (page + 1).to_be_bytes();
    if length[..] < least[..] {
        *length = least.to_vec();
    }
}

impl Session {
    pub fn create_page_file(&mut self, file: &str) {
        if self.has_table(&model_name(file)) {
            return;
        }
        let change = |db: &Database| db.create_page_file(file).map(drop);
        self.define("creating a page file", change, |state| {
            let rows = &mut state.tables.entry(model_name(file)).or_default().rows;
            rows.insert(LENGTH.to_vec(), 0u64.to_be_bytes().to_vec());
        });
    }
    pub fn drop_page_file(&mut self, file: &str) {
        if self.has_table(&model_name(file)) {
            self.define(
                "dropping a page file",
                |db| db.drop_page_file(file),
                |state| {
                    state.tables.remove(&model_name(file));
                },
            );
        }
    }
}
