//! A hanging device delays closing for a stated time and no longer; a slow one does not end it
//! early. In virtual time.

use crate::support::{device_with, scan};
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_base::{Epoch, Lsn};
use firndb_device::{Calls, Device, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_log::testing::{identity, options};
use firndb_log::{Hiding, Kind, Log, LogClass, LogErrorKind, LogOptions, Record};
use std::sync::Arc;
use std::time::Duration;

const EPOCHS: [(Epoch, Lsn); 1] = [(Epoch(1), Lsn::FIRST)];
const HANGS: Duration = Duration::from_secs(3600);

struct Bed {
    plain: Vec<Arc<dyn Device>>,
    plan: FaultPlan,
    log: Arc<Log>,
}

impl Bed {
    fn new(options: LogOptions) -> Bed {
        let plain: Vec<Arc<dyn Device>> =
            (0..2).map(|i| device_with(&format!("log {i}"), 512, 2 << 20) as Arc<dyn Device>).collect();
        let plan = FaultPlan::new(1);
        let given =
            plain.iter().map(|d| Arc::new(Faulty::new(d.clone(), &plan)) as Arc<dyn Device>).collect();
        let options = LogOptions { workers: true, ..options };
        let log = Log::create(given, identity(2), Epoch(1), options).unwrap();
        Bed { plain, plan, log }
    }

    /// Each write to `device` takes longer by `time` from now on.
    fn stall(&self, device: &str, time: Duration) {
        let (device, fault) = (Some(device.to_owned()), Fault::Stall(time));
        self.plan.add(FaultRule { calls: Calls::Writes, device, when: When::From(0), fault });
    }

    fn append(&self) -> Lsn {
        self.log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[5; 400] }).unwrap().end
    }

    /// Makes both devices busy.
    fn keep_busy(&self) {
        for _ in 0..8 {
            let end = self.append();
            self.log.request_flush(end);
            clock::sleep(Duration::from_millis(5));
        }
    }
}

fn simulate(body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    for seed in 0..8 {
        let body = body.clone();
        sim::run(SimOptions::seeded(seed), move || body()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn closing_names_the_device_that_hangs_after_the_time_that_was_asked_for() {
    for (hiding, patience) in [(Hiding::Off, 30), (Hiding::Adaptive, 30), (Hiding::Off, 2)] {
        simulate(move || {
            let close_patience = Duration::from_secs(patience);
            let bed = Bed::new(LogOptions { hiding, close_patience, ..options() });
            let acknowledged = bed.append();
            bed.log.flush(acknowledged).unwrap();
            bed.stall("log 1", HANGS);
            bed.keep_busy();
            let begun = clock::now();
            let error = bed.log.close().unwrap_err();
            let took = begun.elapsed();
            assert!(took >= close_patience && took < close_patience + Duration::from_secs(2), "{took:?}");
            assert_eq!(error.kind, LogErrorKind::Failed);
            assert!(error.message.contains("log 1") && !error.message.contains("log 0"), "{error}");
            // The error is kept; and dropping the log does not wait either.
            assert_eq!(bed.log.close().unwrap_err(), error);
            let Bed { plain, log, .. } = bed;
            drop(log);
            assert!(begun.elapsed() < close_patience + Duration::from_secs(2));
            assert!(scan(&plain, &EPOCHS, Lsn::FIRST).unwrap().end() >= acknowledged);
            // The write ends at last, and its thread with it.
            clock::sleep(2 * HANGS);
        });
    }
}

#[test]
fn dropping_a_log_ends_too() {
    simulate(|| {
        let bed = Bed::new(LogOptions { hiding: Hiding::Off, ..options() });
        bed.stall("log 0", HANGS);
        bed.stall("log 1", HANGS);
        bed.keep_busy();
        let begun = clock::now();
        drop(bed);
        assert!(begun.elapsed() < Duration::from_secs(32), "{:?}", begun.elapsed());
        clock::sleep(2 * HANGS);
    });
}

#[test]
fn a_slow_device_is_waited_for() {
    simulate(|| {
        let bed = Bed::new(LogOptions { hiding: Hiding::Off, ..options() });
        for device in ["log 0", "log 1"] {
            bed.stall(device, Duration::from_secs(20));
        }
        bed.keep_busy();
        let (begun, end) = (clock::now(), bed.log.end());
        bed.log.close().unwrap();
        assert!(begun.elapsed() > Duration::from_secs(39), "{:?}", begun.elapsed());
        assert!(bed.log.statistics().seals > 0);
        let found = scan(&bed.plain, &EPOCHS, Lsn::FIRST).unwrap();
        assert_eq!(found.end(), end);
    });
}
