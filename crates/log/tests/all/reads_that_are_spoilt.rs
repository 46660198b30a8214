//! Bytes that one read spoilt are neither taken for the log's end nor for damage.

use crate::support::bad_places::{Bed, add, add_many, create};
use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_device::{Device, DeviceError, MemoryDevice};
use firndb_log::testing::{identity, options};
use firndb_log::{KeptReads, LogErrorKind, LogScan, LogSources};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Spoils what is read of a place, once or each time, and keeps what was read, if it is to.
#[derive(Debug)]
struct SpoilsReads {
    inner: Arc<dyn Device>,
    place: (u64, u64),
    done: AtomicBool,
    always: bool,
    kept: Option<Mutex<BTreeMap<u64, Vec<u8>>>>,
}

impl SpoilsReads {
    fn new(inner: &Arc<MemoryDevice>, place: (u64, u64), always: bool, keeps: bool) -> Arc<SpoilsReads> {
        let inner = inner.clone() as Arc<dyn Device>;
        let kept = keeps.then(Mutex::default);
        Arc::new(SpoilsReads { inner, place, done: AtomicBool::new(false), always, kept })
    }
}

impl Device for SpoilsReads {
    firndb_device::forward!(inner: info, len, write, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let end = offset + buf.len() as u64;
        if let Some(kept) = &self.kept {
            let kept = kept.lock().unwrap();
            if let Some((&start, bytes)) = kept.range(..=offset).next_back()
                && end <= start + bytes.len() as u64
            {
                buf.copy_from_slice(&bytes[(offset - start) as usize..(end - start) as usize]);
                return Ok(());
            }
        }
        self.inner.read(offset, buf)?;
        let (from, len) = self.place;
        if from < end && offset < from + len && (self.always || !self.done.swap(true, Ordering::Relaxed)) {
            let range = from.max(offset) - offset..(from + len).min(end) - offset;
            buf[range.start as usize..range.end as usize].iter_mut().for_each(|byte| *byte ^= 0x40);
        }
        if let Some(kept) = &self.kept {
            kept.lock().unwrap().insert(offset, buf.to_vec());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Forgets(Vec<Arc<SpoilsReads>>);

impl KeptReads for Forgets {
    fn forget(&self, device: usize, range: std::ops::Range<u64>) {
        if let Some(kept) = &self.0[device].kept {
            kept.lock()
                .unwrap()
                .retain(|&at, bytes| at >= range.end || at + bytes.len() as u64 <= range.start);
        }
    }
}

/// Cause: bytes right behind log that are no log were believed at once, and kept for the second
/// pass. Effect: a read that was spoilt on its way, of the last request, made the log shorter,
/// without a word. Mend: they are read once more.
#[test]
fn what_one_read_spoilt_at_the_end_is_read_again_before_it_is_believed() {
    for (count, keeps) in [(1, false), (1, true), (3, false), (3, true)] {
        let bed = Bed::new(count, 512, 256 << 10);
        let log = create(&bed, options());
        add_many(&log, 20, 300);
        let before = log.end();
        let end = add(&log, 900);
        drop(log);
        let lost = |b: &(usize, Lsn, u16, u32)| b.1.0 + 472 > before.0;
        // The one that has the log's last block.
        let last = |device: &usize| bed.blocks(*device).iter().map(|block| (block.1, block.2)).max();
        let device = (0..count).max_by_key(last).unwrap();
        let first = bed.blocks(device).iter().find(|block| lost(block)).unwrap().0 as u64;
        // All blocks of the request, once or for ever.
        for always in [false, true] {
            let spoiling: Vec<Arc<SpoilsReads>> = (0..count)
                .map(|i| {
                    let place = if i == device { (first, 4 * 512) } else { (0, 0) };
                    SpoilsReads::new(&bed.media[i], place, always, keeps)
                })
                .collect();
            let devices = spoiling.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
            let sources = LogSources::new(devices, identity(count as u32), Lsn::FIRST);
            let found =
                LogScan::find(sources.with_kept_reads(Arc::new(Forgets(spoiling))), &mut |_, _| {}).unwrap();
            match always {
                false => assert_eq!(found.end(), end, "{count} devices, reads are kept: {keeps}"),
                true => assert!(found.end() <= before, "spoilt bytes count as no log"),
            }
            let mut records = found.records(Lsn::FIRST);
            let mut read = 0;
            while records.next().unwrap().is_some() {
                read += 1;
            }
            assert!(if always { read <= 20 } else { read == 21 }, "{read} records");
        }
    }
}

/// The same of log before the end: one spoilt read is no damage.
#[test]
fn what_one_read_spoilt_before_the_end_is_no_damage() {
    let bed = Bed::new(1, 512, 256 << 10);
    let log = create(&bed, options());
    add_many(&log, 50, 700);
    let (at, ..) = bed.blocks(0)[40];
    for (always, keeps) in [(false, true), (false, false), (true, true)] {
        let spoiling = SpoilsReads::new(&bed.media[0], (at as u64, 512), always, keeps);
        let sources = LogSources::new(vec![spoiling.clone()], identity(1), Lsn::FIRST);
        let found = LogScan::find(sources.with_kept_reads(Arc::new(Forgets(vec![spoiling]))), &mut |_, _| {});
        match always {
            false => assert_eq!(found.unwrap().end(), log.end()),
            true => assert_eq!(found.unwrap_err().kind, LogErrorKind::Damaged),
        }
    }
}
