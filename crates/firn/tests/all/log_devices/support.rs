//! Databases with several log devices, and what they must hold.

use firndb::{Database, Devices, Error, Options};

pub fn options(logs: usize, copies: usize) -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log(|log| log.bytes(logs as u64 * (256 << 10)).devices(logs).copies(copies))
        .background_threads(false)
}

/// As `options`, for a database that is there.
pub fn reopened() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log(|log| log.bytes(1 << 20))
        .background_threads(false)
}

pub fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

pub fn commit(db: &Database, n: u64) -> Result<(), Error> {
    let table = db.open_table("rows")?;
    db.transact(|tx| tx.put(&table, &key(n), &vec![n as u8; 30 + (n as usize * 37) % 400]).map(drop))
}

/// All rows below `acknowledged` are there, nothing is damaged; what is open is worked on.
pub fn verify(db: &Database, acknowledged: u64) {
    let table = db.open_table("rows").unwrap();
    let tx = &mut db.snapshot();
    for n in 0..acknowledged {
        assert!(tx.get(&table, &key(n)).unwrap().is_some(), "commit {n} of {acknowledged} is lost");
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    commit(db, acknowledged + 1000).unwrap();
}

pub fn without(devices: &Devices, lost: usize) -> Devices {
    let mut devices = devices.clone();
    devices.logs.remove(lost);
    devices
}
