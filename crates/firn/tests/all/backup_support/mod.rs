//! What the tests of backups and of the archive share.
use firndb::device::Device;
use firndb::{Database, Direction, KeyRange, Lsn, Options, Table};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn small() -> Options {
    Options::new()
        .buffer_bytes(1 << 20)
        .log(|log| log.bytes(2 << 20).devices(2))
        .archive(|archive| archive.segment_bytes(256 << 10))
}

pub fn rows_of(db: &Database, table: &str) -> Rows {
    let table = db.table(table).unwrap();
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next(&mut tx).unwrap() {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

pub fn go_on(_: firndb::BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Waits until everything durable is archived.
pub fn wait_for_archive(db: &Database) {
    for _ in 0..10_000 {
        let archive = db.archive_statistics().unwrap();
        if archive.behind_bytes == 0 && archive.archived.is_some() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the archive does not keep up: {:?}", db.archive_statistics());
}

pub fn commit_one(db: &Database, table: &Table, i: u64) -> Lsn {
    let mut tx = db.begin();
    tx.put(table, &(i % 50).to_be_bytes(), &[i as u8; 700]).unwrap();
    tx.put(table, b"last", &i.to_le_bytes()).unwrap();
    let commit = tx.commit_async().unwrap();
    commit.wait().unwrap();
    commit.lsn()
}

/// Lets writes to the archive through, holds them, or fails them.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Mode>, std::sync::Condvar)>);

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Mode {
    #[default]
    Open,
    Shut,
    Failing,
    Full,
}

impl Gate {
    pub fn set(&self, mode: Mode) {
        *self.0.0.lock().unwrap() = mode;
        self.0.1.notify_all();
    }
    fn pass(&self, grows: bool) -> Result<(), firndb::device::DeviceError> {
        use firndb::device::{DeviceError, DeviceErrorKind};
        let mut mode = self.0.0.lock().unwrap();
        while *mode == Mode::Shut {
            mode = self.0.1.wait(mode).unwrap();
        }
        match *mode {
            Mode::Failing => Err(DeviceError::new(DeviceErrorKind::Failed, "the archive is gone")),
            Mode::Full if grows => Err(DeviceError::new(DeviceErrorKind::NoSpace, "the archive is full")),
            _ => Ok(()),
        }
    }
    pub fn options(&self) -> Options {
        let gate = self.clone();
        small().wrap_archive(Arc::new(move |inner| Arc::new(Gated { inner, gate: gate.clone() })))
    }
}

#[derive(Debug)]
pub struct Gated {
    inner: Arc<dyn Device>,
    gate: Gate,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate")
    }
}

impl Device for Gated {
    firndb::device::forward!(inner: info, len, read, sync, shrink, discard);
    fn write(
        &self,
        offset: u64,
        data: &[u8],
        durability: firndb::device::Durability,
    ) -> Result<(), firndb::device::DeviceError> {
        self.gate.pass(false)?;
        self.inner.write(offset, data, durability)
    }
    fn grow(&self, len: u64, fill: firndb::device::Fill) -> Result<(), firndb::device::DeviceError> {
        self.gate.pass(true)?;
        self.inner.grow(len, fill)
    }
}
