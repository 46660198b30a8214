//! After the first failed write no append is accepted, no flush is acknowledged, and no thread is
//! left waiting.

use crate::support::{before_writes, device_with};
use firndb_base::Epoch;
use firndb_device::{Device, DeviceError, DeviceErrorKind};
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, Record};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const RECORD: Record<'_> = Record { kind: Kind(0x20), body: &[1; 200] };

fn failing(trouble: Arc<AtomicBool>, panics: bool) -> Arc<dyn Device> {
    before_writes(device_with("log 0", 512, 4 << 20), move |_, _| {
        std::thread::sleep(Duration::from_micros(200));
        if !trouble.load(Ordering::SeqCst) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!panics, "the device panics, as the test wants");
        Err(DeviceError::new(DeviceErrorKind::Failed, "log 0: write failed: EIO"))
    })
}

#[test]
fn every_waiter_gets_the_error_and_later_calls_fail() {
    for (panics, workers, members) in
        [(false, false, 1), (false, true, 2), (true, false, 1), (true, false, 2)]
    {
        let trouble = Arc::new(AtomicBool::new(false));
        let mut devices = vec![failing(trouble.clone(), panics)];
        if members == 2 {
            devices.push(device_with("log 1", 512, 4 << 20));
        }
        let options = LogOptions { workers, ..options() };
        let log = Log::create(devices, identity(members), Epoch(1), options).unwrap();
        let failures = AtomicUsize::new(0);
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|i| {
                    let (log, trouble, failures) = (&log, &trouble, &failures);
                    scope.spawn(move || {
                        for turn in 0.. {
                            if i == 0 && turn == 5 {
                                trouble.store(true, Ordering::SeqCst);
                            }
                            let outcome = log
                                .append(LogClass::Normal, RECORD)
                                .and_then(|at| log.flush(at.end).map(|()| at));
                            match outcome {
                                Ok(at) => assert!(log.durable() >= at.end),
                                Err(error) => {
                                    assert_eq!(error.kind, LogErrorKind::Failed);
                                    assert!(error.message.contains("unknown"), "{error}");
                                    failures.fetch_add(1, Ordering::SeqCst);
                                    return;
                                }
                            }
                        }
                    })
                })
                .collect();
            clients.into_iter().map(|c| c.join().is_ok()).collect()
        });
        let panicked = outcomes.iter().filter(|ok| !**ok).count();
        assert_eq!(failures.load(Ordering::SeqCst) + panicked, 8);
        assert_eq!(panicked, usize::from(panics));
        assert_eq!(log.append(LogClass::System, RECORD).unwrap_err().kind, LogErrorKind::Failed);
        let durable = log.durable();
        log.flush(durable).unwrap();
        log.request_flush(log.end());
        log.step();
        assert_eq!(log.durable(), durable);
        assert_eq!(log.close().unwrap_err().kind, LogErrorKind::Failed);
    }
}
