//! Groups that were cut off and grown again on raw devices, which keep what was there.

use super::harness::*;
use super::over_array::{array, open};
use crate::store::give_back::Search;
use crate::store::{Journal, Store};
use firndb_array::Code;
use firndb_base::Progress;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_device::{Device, DeviceError, Durability, MemoryDevice, forward};

/// A raw device, which keeps its length and content. It may lose writes of metadata pages.
#[derive(Debug)]
struct Raw {
    inner: MemoryDevice,
    loses: AtomicBool,
    lost: AtomicU64,
}

impl Device for Raw {
    forward!(inner: info, len, read, sync, grow);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if data.starts_with(b"FIRNMETA") && self.loses.load(Ordering::Relaxed) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.write(offset, data, durability)
    }
    fn shrink(&self, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn groups(store: &Store) -> u64 {
    store.state.lock().space.groups()
}

/// Cause: metadata pages of a group that was cut off and grown again began with sequence 1. Effect:
/// a member that lost their first write had former ones, which were newer, and after the second
/// write, to the other slot, the next opening took those: pages were gone.
#[test]
fn a_lost_write_of_new_metadata_does_not_revive_that_of_a_group_that_was_cut_off() {
    for member in 0..2 {
        let raw = |name: &str| {
            let inner = MemoryDevice::new(name);
            Arc::new(Raw { inner, loses: AtomicBool::new(false), lost: AtomicU64::new(0) })
        };
        let raw = ["m0", "m1"].map(raw);
        let devices = || raw.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
        let log = TestLog::new();
        let store = create(array(Code::new(1, 2).unwrap(), devices()).0, &log);
        // Metadata of the last groups comes to high sequences before they are cut off.
        let pages = allocate(&store, &log, 500).unwrap();
        for some in pages.chunks(50) {
            write(&store, &log, some);
            sweep(&store);
        }
        let large = groups(&store);
        publish(&store, &log, &[], &pages[10..]).unwrap();
        log.flush(log.end()).unwrap();
        while store.give_back_step().unwrap() == Progress::Worked {}
        assert!(groups(&store) < large / 2);
        raw[member].loses.store(true, Ordering::Relaxed);
        while groups(&store) < large {
            store.add_space(u64::MAX, Search::KnownAndSome).unwrap();
        }
        raw[member].loses.store(false, Ordering::Relaxed);
        assert!(raw[member].lost.load(Ordering::Relaxed) > 0);
        let again = allocate(&store, &log, 490).unwrap();
        write(&store, &log, &again);
        log.flush(log.end()).unwrap();
        sweep(&store);
        store.device.sync().unwrap();
        drop(store);
        let opened = recover(Arc::new(open(devices()).unwrap()), &log.records(), log.end(), log.end());
        compare(&opened.unwrap(), &fold(&log.records(), log.end()));
    }
}
