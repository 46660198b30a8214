//! A caller's device around each file sees what the database does, and its refusal is an error, not
//! a panic.

use firndb::device::trace::{TraceEvent, TraceOp, TraceReader};
use firndb::device::{DeviceError, DeviceErrorKind, Recording};
use firndb::{ErrorKind, Options};
use firndb_base::clock;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex};

type Recordings = Arc<Mutex<BTreeMap<String, Arc<Recording>>>>;

/// Options that record each file of a database into `traces`, and the recordings.
fn recorded(traces: &Path) -> (Options, Recordings) {
    let (recordings, traces, began) = (Recordings::default(), traces.to_owned(), clock::now());
    let all = recordings.clone();
    let options = Options::new().buffer_bytes(4 << 20).log(|log| log.bytes(4 << 20).devices(2));
    let options = options.wrap_devices(move |name, device| {
        let file = File::create(traces.join(name)).expect("a file");
        let recording = Arc::new(Recording::new(device, Box::new(file), began).expect("writable"));
        all.lock().expect("no panics").insert(name.to_owned(), recording.clone());
        Ok(recording)
    });
    (options, recordings)
}

fn events(path: &Path) -> Vec<TraceEvent> {
    let file = BufReader::new(File::open(path).expect("a trace"));
    TraceReader::new(file).collect::<Result<_, _>>().expect("a sound trace")
}

#[test]
fn recordings_hold_all_that_the_database_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    for life in 0..2 {
        let (options, recordings) = recorded(dir.path());
        let db = options.open(dir.path().join("db")).expect("opens");
        if life == 0 {
            db.create_table("fruit").expect("creates");
        }
        let fruit = db.table("fruit").expect("is there");
        for key in 0..200u32 {
            db.transact(|tx| tx.put(&fruit, &key.to_be_bytes(), &[life; 100])).expect("commits");
        }
        let counted = db.io_counts();
        db.close().expect("closes");
        let recordings = std::mem::take(&mut *recordings.lock().expect("no panics"));
        let names: Vec<&str> = recordings.keys().map(String::as_str).collect();
        assert_eq!(names, ["log.0", "log.1", "store", "superblock"]);
        let (mut durable_writes, mut writes) = (0, 0);
        for (name, recording) in &recordings {
            let lines = recording.finish().expect("written");
            let events = events(&dir.path().join(name));
            assert_eq!(events.len() as u64, lines, "{name}");
            assert!(events.iter().all(|event| !event.failed), "{name}");
            if name.starts_with("log") {
                let of = |op| events.iter().filter(|event| event.op == op).count() as u64;
                durable_writes += of(TraceOp::DurableWrite);
                writes += of(TraceOp::DurableWrite) + of(TraceOp::Write);
            }
        }
        assert!(durable_writes >= 200, "each commit waits for its log: {durable_writes}");
        // The counts were taken before the closing, which writes some more.
        assert!(writes >= counted.log_total().write_ops, "life {life}: {writes} of {counted:?}");
    }
}

#[test]
fn a_wrapper_that_refuses_makes_the_opening_fail_with_its_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::new().log(|log| log.devices(1)).wrap_devices(|name, device| match name {
        "store" => Err(DeviceError::new(DeviceErrorKind::Unusable, "no store today")),
        _ => Ok(device),
    });
    let error = options.open(dir.path().join("db")).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unusable);
    assert!(error.to_string().contains("no store today"), "{error}");
}
