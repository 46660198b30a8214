//! Showing what is stored, for people who look for something.

use crate::{Database, Error, ErrorKind};
use firn_base::PageId;
use firn_btree::{Direction, PageChange};
use firn_log::{Kind, LogScan, Record};
use firn_table::KeyRange;
use firn_txn::Attachment;
use std::io::Write;

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpWhat {
    /// The log's records since the redo start.
    Log,
    /// One page's bytes.
    Page(u64),
    /// A table's rows.
    Table(String),
    /// The tables, their trees and indexes.
    Catalog,
}

impl Database {
    /// Writes what is stored to `out`, a line each.
    ///
    /// Errors: `NotFound`, `Damaged`; `Failed` if `out` cannot be written.
    pub fn dump(&self, what: &DumpWhat, out: &mut dyn Write) -> Result<(), Error> {
        self.engine().check_open()?;
        match what {
            DumpWhat::Log => self.dump_log(out),
            DumpWhat::Page(page) => self.dump_page(PageId(*page), out),
            DumpWhat::Table(name) => self.dump_table(name, out),
            DumpWhat::Catalog => self.dump_catalog(out),
        }
    }

    fn dump_log(&self, out: &mut dyn Write) -> Result<(), Error> {
        let engine = self.engine();
        let redo_start = engine.superblock.lock().redo_start;
        let (identity, devices) = engine.log_view();
        let scan = LogScan::up_to(devices, identity, redo_start, engine.log.on_devices(), &mut |_, _| {})?;
        let mut records = scan.records(redo_start);
        while let Some((lsn, record)) = records.next()? {
            writeln!(out, "{lsn} {}", describe(record)).map_err(unwritable)?;
        }
        Ok(())
    }

    fn dump_page(&self, page: PageId, out: &mut dyn Write) -> Result<(), Error> {
        let engine = self.engine();
        let guard = engine.pool.shared(page)?;
        let state = match firn_btree::check_page(&guard) {
            Ok(()) => "a tree node".to_owned(),
            Err(error) => format!("not a valid tree node: {error}"),
        };
        writeln!(out, "page {page}, version LSN {}, {state}", guard.version()).map_err(unwritable)?;
        for (index, line) in guard.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let text: String = line
                .iter()
                .map(|&byte| if byte.is_ascii_graphic() { char::from(byte) } else { '.' })
                .collect();
            writeln!(out, "{:05x}  {}  {text}", index * 16, hex.join(" ")).map_err(unwritable)?;
        }
        Ok(())
    }

    fn dump_table(&self, name: &str, out: &mut dyn Write) -> Result<(), Error> {
        let table = self.table(name)?;
        let mut tx = self.snapshot();
        let mut rows = tx.scan(&table, KeyRange::all(), Direction::Forward);
        while let Some((key, value)) = rows.next(&mut tx)? {
            writeln!(out, "{} = {}", key.escape_ascii(), value.escape_ascii()).map_err(unwritable)?;
        }
        Ok(())
    }

    fn dump_catalog(&self, out: &mut dyn Write) -> Result<(), Error> {
        for (what, tree) in self.engine().catalog.trees() {
            let Ok(report) = tree.check() else { continue };
            writeln!(
                out,
                "{what}: tree {}, root page {}, height {}, {} pages, {} entries, {} bytes",
                tree.id(),
                tree.root(),
                report.height,
                report.inner_pages + report.leaf_pages,
                report.entries,
                report.entry_bytes
            )
            .map_err(unwritable)?;
        }
        Ok(())
    }
}

fn unwritable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Failed, format!("cannot write the dump: {error}"))
}

fn describe(record: Record<'_>) -> String {
    let kind = record.kind.0;
    let bytes = record.body.len();
    match record.kind {
        Kind(0x20..=0x3f) => match PageChange::decode(record) {
            Ok(change) => {
                let cause = match Attachment::decode(change.attachment) {
                    Ok(Attachment::None) => "structure".to_owned(),
                    Ok(Attachment::Change { txn, index, .. }) => format!("transaction {txn}, change {index}"),
                    Ok(Attachment::Compensation { txn, index }) => {
                        format!("transaction {txn}, undo of {index}")
                    }
                    Err(error) => format!("attachment: {error}"),
                };
                format!(
                    "page {} (was {}), kind {kind:#04x}, {cause}, {bytes} bytes",
                    change.page, change.previous
                )
            }
            Err(error) => format!("page change, kind {kind:#04x}: {error}"),
        },
        Kind(0x10..=0x1f) => format!("page map, kind {kind:#04x}, {bytes} bytes"),
        firn_txn::kinds::COMMIT => format!("commit {}", first_number(record.body)),
        firn_txn::kinds::ABORT => format!("abort {}", first_number(record.body)),
        firn_txn::kinds::PREPARE => format!("prepare {}", first_number(record.body)),
        crate::checkpoint::CHECKPOINT => match crate::checkpoint::decode(record.body) {
            Ok((redo_start, state)) => {
                format!("checkpoint, redo starts at {redo_start}, {} open transactions", state.active.len())
            }
            Err(error) => format!("checkpoint: {error}"),
        },
        _ => format!("kind {kind:#04x}, {bytes} bytes"),
    }
}

fn first_number(body: &[u8]) -> String {
    firn_base::codec::Reader::new(body).varint().map_or_else(|error| error.to_string(), |id| id.to_string())
}
