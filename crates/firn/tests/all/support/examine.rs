//! The examination of what is left of a sample after something was done to its devices.
//!
//! It asserts what holds for *any* damage: opening returns an error that says what is wrong, or
//! every read returns what the model says or an error; a check reports whatever a read stumbled
//! over; nothing panics.

use super::bed::Bed;
use super::sample::{INDEXED, Model, Rows, quiet};
use firndb::{CheckReport, Database, Direction, Error, ErrorKind, Index, KeyRange, Table, Transaction};
use std::time::{Duration, Instant};

/// What became of a busy database after something was done to it.
#[derive(Debug)]
pub enum BusyVerdict {
    /// It was not opened.
    Refused,
    /// It was opened. The tables that damage concerns.
    Opened(Vec<String>),
}

/// Opens what is on the devices with threads and gives these time for what they have to do; twice.
/// Each time every table that can be read must hold what the model says and take writes, whatever
/// became of the others. Then drops the others.
pub fn examine_busy(disks: &Bed, model: &Model) -> BusyVerdict {
    let mut damaged = Vec::new();
    for incarnation in 0..3 {
        let db = match quiet().background_threads(true).open_on(disks.devices()) {
            Ok(db) => db,
            Err(error) if incarnation == 0 => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                return BusyVerdict::Refused;
            }
            Err(error) => panic!("incarnation {incarnation}, which was opened before: {error}"),
        };
        let limit = Instant::now() + Duration::from_secs(20);
        while !db.recovery_report().complete {
            assert!(Instant::now() < limit, "recovery does not end: {:?}", db.recovery_report());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(60));
        let mut now = Vec::new();
        for (name, rows) in model.iter().filter(|(name, _)| incarnation < 2 || !damaged.contains(*name)) {
            let alone = Model::from([(name.clone(), rows.clone())]);
            if examine_reads(&db, &[&alone]).is_empty() {
                write_to(&db, name);
            } else {
                now.push(name.clone());
            }
        }
        assert!(
            incarnation == 0 || now.iter().all(|name| damaged.contains(name)),
            "{now:?}, and not {damaged:?}"
        );
        if incarnation == 1 {
            for name in &now {
                match db.drop_table(name) {
                    Ok(()) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error}"),
                }
            }
        }
        damaged = if incarnation == 0 { now } else { damaged };
        db.close().unwrap_or_else(|error| panic!("incarnation {incarnation} cannot be closed: {error}"));
    }
    BusyVerdict::Opened(damaged)
}

/// Writes to a table, and leaves it as it was.
fn write_to(db: &Database, name: &str) {
    let table = db.table(name).expect("it was read");
    let write = |work: &dyn Fn(&mut firndb::Transaction) -> Result<(), Error>| {
        db.transact(|tx| work(tx))
            .unwrap_or_else(|error| panic!("{name} can be read and not written: {error}"));
    };
    write(&|tx| (0..20u8).try_for_each(|i| tx.put(&table, &[b'z', i], &[b'v'; 50]).map(drop)));
    write(&|tx| (0..20u8).try_for_each(|i| tx.delete(&table, &[b'z', i]).map(drop)));
}

/// What became of a database after something was done to it.
#[derive(Debug)]
pub enum Verdict {
    /// It was not opened.
    Refused(Error),
    /// It was opened. Reads that failed, and what a check said.
    Opened(Vec<Error>, Result<CheckReport, Error>),
}

impl Verdict {
    /// Opened, every read went well, and a check found nothing.
    pub fn is_whole(&self) -> bool {
        matches!(self, Verdict::Opened(errors, Ok(report)) if errors.is_empty() && report.is_clean())
    }
}

/// Opens what is on the devices and compares every row with the models, one of which it has to be.
///
/// Panics if anything that was read is wrong, if an error does not tell of damage, or if a check is
/// content with what could not be read.
pub fn examine(disks: &Bed, models: &[&Model]) -> Verdict {
    let db = match quiet().open_on(disks.devices()) {
        Ok(db) => db,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
            assert!(error.to_string().len() > 20, "an error says what is wrong: {error}");
            return Verdict::Refused(error);
        }
    };
    examine_open(&db, models)
}

/// As [`examine`], of an open database.
pub fn examine_open(db: &Database, models: &[&Model]) -> Verdict {
    let errors = examine_reads(db, models);
    let check = db.check(&mut |_| {});
    if !errors.is_empty() {
        assert!(
            !matches!(&check, Ok(report) if report.is_clean()),
            "a check is content with what could not be read: {errors:?}"
        );
    }
    if let Ok(report) = &check {
        assert!(report.is_clean() == report.damage.is_empty(), "faults are described: {report:?}");
    }
    Verdict::Opened(errors, check)
}

/// Reads everything and compares it with the models. The errors, which tell of damage.
pub fn examine_reads(db: &Database, models: &[&Model]) -> Vec<Error> {
    let mut outcomes = models.iter().map(|model| read_everything(db, model));
    let errors = loop {
        match outcomes.next() {
            Some(Ok(errors)) => break errors,
            Some(Err(wrong)) if outcomes.len() == 0 => panic!("{wrong}"),
            Some(Err(_)) => {}
            None => unreachable!("there is a model"),
        }
    };
    for error in &errors {
        assert!(
            matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Failed),
            "reading what is damaged says so: {error:?}"
        );
    }
    errors
}

/// Reads every table both ways, by key and by index. Returns the errors; `Err` if a result is
/// wrong.
fn read_everything(db: &Database, model: &Model) -> Result<Vec<Error>, String> {
    let mut errors = Vec::new();
    for (name, rows) in model {
        let table = match db.table(name) {
            Ok(table) => table,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(format!("table {name} is gone")),
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let mut tx = db.snapshot();
        for direction in [Direction::Forward, Direction::Backward] {
            errors
                .extend(scan(&mut tx, &table, rows, direction).map_err(|wrong| format!("{name}: {wrong}"))?);
        }
        for number in (0..900).step_by(7) {
            let key = format!("key {number:05}").into_bytes();
            match tx.get(&table, &key) {
                Ok(found) if found.as_ref() == rows.get(&key) => {}
                Ok(found) => return Err(format!("{name}: {} is {found:?}", key.escape_ascii())),
                Err(error) => errors.push(error),
            }
        }
        if name == INDEXED {
            match table.index("by_first") {
                Ok(index) => errors.extend(scan_index(&mut tx, &index, rows)?),
                Err(error) => errors.push(error),
            }
        }
    }
    Ok(errors)
}

/// Reads a table as far as that goes. Returns the error that ended it; `Err` if a row is wrong.
fn scan(
    tx: &mut Transaction,
    table: &Table,
    rows: &Rows,
    direction: Direction,
) -> Result<Option<Error>, String> {
    let mut expected: Vec<_> = rows.iter().collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let mut expected = expected.into_iter();
    let mut cursor = tx.scan(table, KeyRange::all(), direction);
    loop {
        match cursor.next(tx) {
            Ok(Some((key, value))) => {
                let wanted = expected.next();
                if wanted.map(|(k, v)| (&k[..], &v[..])) != Some((key, value)) {
                    let key = key.escape_ascii();
                    return Err(format!("{direction:?} scan found {key}, expected {wanted:?}"));
                }
            }
            Ok(None) => match expected.next() {
                None => return Ok(None),
                Some((key, _)) => {
                    return Err(format!("the {direction:?} scan ends before {}", key.escape_ascii()));
                }
            },
            Err(error) => return Ok(Some(error)),
        }
    }
}

/// Reads the index over the first byte of the values, as [`scan`] does a table.
fn scan_index(tx: &mut Transaction, index: &Index, rows: &Rows) -> Result<Option<Error>, String> {
    let mut expected: Vec<_> = rows.iter().map(|(key, value)| (value[0], key)).collect();
    expected.sort_unstable();
    let mut expected = expected.into_iter();
    let mut cursor = tx.scan_index(index, KeyRange::all(), Direction::Forward);
    loop {
        match cursor.next(tx) {
            Ok(Some(row)) => {
                let wanted = expected.next();
                if wanted != Some((row.row[0], &row.primary_key.to_vec())) {
                    return Err(format!("the index shows another row than {wanted:?}"));
                }
            }
            Ok(None) if expected.len() == 0 => return Ok(None),
            Ok(None) => return Err("the index ends early".to_owned()),
            Err(error) => return Ok(Some(error)),
        }
    }
}
