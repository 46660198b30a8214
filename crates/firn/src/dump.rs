//! Shows what is stored, for a user in search of a fault.

use crate::database::Database;
use crate::engine::checkpoint_record::Checkpoint;
use crate::error::Error;
use crate::table::TypedTable;
use firndb_base::PageId;
use firndb_base::record_kind::KindOwner;
use firndb_btree::{Direction, PageChange};
use firndb_log::{Kind, LogScan, Record};
use firndb_table::{KeyRange, Value};
use firndb_txn::Attachment;
use std::fmt;
use std::io::Write;
use std::ops::Bound;

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpWhat {
    /// The log's records since the redo start.
    Log,
    /// One page's bytes.
    Page(u64),
    /// A table's rows: of a typed table each column with its name.
    Table(String),
    /// A table's rows, keys and values as they are stored.
    RawTable(String),
    /// The tables, their trees and indexes.
    Catalog,
}

impl Database {
    /// Writes what is stored to `out`, a line each.
    ///
    /// Errors: `NotFound`; `Damaged`, after what could be shown; `Failed` if `out` cannot be
    /// written.
    pub fn dump(&self, what: &DumpWhat, out: &mut dyn Write) -> Result<(), Error> {
        self.engine().check_open()?;
        match what {
            DumpWhat::Log => self.dump_log(out),
            DumpWhat::Page(page) => self.dump_page(PageId(*page), out),
            DumpWhat::Table(name) => match self.table(name)?.typed() {
                Ok(table) => self.dump_typed(&table, out),
                Err(_) => self.dump_table(name, out),
            },
            DumpWhat::RawTable(name) => self.dump_table(name, out),
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
        let checked = firndb_btree::check_page(&guard);
        // Before the owners are asked, which latch pages.
        let (version, bytes) = (guard.version(), guard.to_vec());
        drop(guard);
        let owner = match &checked {
            Ok(()) => None,
            Err(_) => self.page_file_of(page)?,
        };
        let state = match (&checked, &owner) {
            (Ok(()), _) => "a tree node".to_owned(),
            (Err(_), Some(owner)) => format!("a page of {owner}"),
            (Err(error), None) => format!("not a valid tree node: {error}"),
        };
        writeln!(out, "page {page}, version LSN {version}, {state}").map_err(unwritable)?;
        for (index, line) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let text: String = line
                .iter()
                .map(|&byte| if byte.is_ascii_graphic() { char::from(byte) } else { '.' })
                .collect();
            writeln!(out, "{:05x}  {}  {text}", index * 16, hex.join(" ")).map_err(unwritable)?;
        }
        match checked {
            Err(error) if owner.is_none() => {
                Err(Error::damaged(format!("page {page} is not a valid tree node: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// The page file, or what else holds pages that are no nodes, that this page belongs to. Looks
    /// through all of them.
    fn page_file_of(&self, page: PageId) -> Result<Option<String>, Error> {
        for owner in self.engine().catalog.page_owners() {
            let mut found = false;
            owner.pages(&mut |other| found |= other == page)?;
            if found {
                return Ok(Some(owner.what));
            }
        }
        Ok(None)
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

    fn dump_typed(&self, table: &TypedTable, out: &mut dyn Write) -> Result<(), Error> {
        let names: Vec<String> =
            table.schema()?.columns().iter().map(|column| shown_name(&column.name)).collect();
        let mut tx = self.snapshot();
        let mut rows = table.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        while let Some(row) = rows.next(&mut tx)? {
            for (place, (name, value)) in names.iter().zip(row).enumerate() {
                let gap = if place == 0 { "" } else { ", " };
                write!(out, "{gap}{name} = {}", Shown(value)).map_err(unwritable)?;
            }
            writeln!(out).map_err(unwritable)?;
        }
        Ok(())
    }

    fn dump_catalog(&self, out: &mut dyn Write) -> Result<(), Error> {
        let mut damaged = 0;
        for (what, tree) in self.engine().catalog.trees() {
            let found = match tree.check_with(&mut |_| {}) {
                Ok(report) if report.height > 0 => Ok(report),
                Ok(report) => Err(report.damage.into_iter().next().unwrap_or_default()),
                Err(error) => Err(error.to_string()),
            };
            let report = match found {
                Ok(report) => report,
                Err(damage) => {
                    damaged += 1;
                    writeln!(out, "{what}: tree {}, root page {}, {damage}", tree.id(), tree.root())
                        .map_err(unwritable)?;
                    continue;
                }
            };
            let damage =
                report.damage.first().map(|damage| format!("; damaged: {damage}")).unwrap_or_default();
            damaged += u64::from(!report.damage.is_empty() && !report.being_cleared);
            writeln!(
                out,
                "{what}: tree {}, root page {}, height {}, {} pages, {} entries, {} bytes{damage}",
                tree.id(),
                tree.root(),
                report.height,
                report.inner_pages + report.leaf_pages,
                report.entries,
                report.entry_bytes
            )
            .map_err(unwritable)?;
        }
        for (what, tree) in self.engine().catalog.unread_trees() {
            writeln!(out, "{what}: root page {}", tree.root()).map_err(unwritable)?;
        }
        match damaged {
            0 => Ok(()),
            count => {
                Err(Error::damaged(format!("{count} trees are damaged; run firn check to see all of it")))
            }
        }
    }
}

/// A column's name, in quotes if it would not read as one word.
fn shown_name(name: &str) -> String {
    let is_word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_word { name.to_owned() } else { format!("{name:?}") }
}

/// A value as people write it: text in quotes, bytes in hexadecimal, times in microseconds since
/// 1970.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("NULL"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::I32(value) => write!(f, "{value}"),
            Value::I64(value) => write!(f, "{value}"),
            Value::U64(value) => write!(f, "{value}"),
            Value::F64(value) => write!(f, "{value:?}"),
            Value::Timestamp(value) => write!(f, "{value} us"),
            Value::Text(value) => write!(f, "{value:?}"),
            Value::Bytes(value) => {
                f.write_str("x'")?;
                value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
            // Column types of later versions.
            other => write!(f, "{other:?}"),
        }
    }
}

fn unwritable(error: std::io::Error) -> Error {
    Error::failed(format!("cannot write the dump: {error}")).caused_by(error)
}

fn describe(record: Record<'_>) -> String {
    let kind = record.kind.0;
    let bytes = record.body.len();
    match record.kind {
        _ if record.kind.owner() == Some(KindOwner::Tree) => match PageChange::decode(record) {
            Ok(change) => {
                let cause = match Attachment::decode(change.attachment) {
                    Ok(Attachment::None) => "structure".to_owned(),
                    Ok(Attachment::Change { txn, index, .. }) => format!("transaction {txn}, change {index}"),
                    Ok(Attachment::Compensation { txn, index }) => {
                        format!("transaction {txn}, undo of {index}")
                    }
                    Ok(Attachment::Spilled { txn, index }) => {
                        format!("transaction {txn}, before-image {index} spilled")
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
        _ if record.kind.owner() == Some(KindOwner::PageMap) => {
            format!("page map, kind {kind:#04x}, {bytes} bytes")
        }
        Kind::COMMIT => format!("commit {}", first_number(record.body)),
        Kind::ABORT => format!("abort {}", first_number(record.body)),
        Kind::PREPARE => format!("prepare {}", first_number(record.body)),
        Kind::ROLLBACK => format!("decision to roll back {}", first_number(record.body)),
        Kind::CHECKPOINT_LIST => format!("part of a checkpoint's list, {bytes} bytes"),
        Kind::CHECKPOINT => match Checkpoint::decode(record.body) {
            Ok(found) => {
                format!("checkpoint, redo starts at {}, {} open transactions", found.redo_start, found.open)
            }
            Err(error) => format!("checkpoint: {error}"),
        },
        _ => format!("kind {kind:#04x}, {bytes} bytes"),
    }
}

fn first_number(body: &[u8]) -> String {
    firndb_base::codec::Reader::new(body).varint().map_or_else(|error| error.to_string(), |id| id.to_string())
}
