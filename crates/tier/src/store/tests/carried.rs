//! Pages of the map that cannot be read for a while, beside calls that fail and other threads.

use super::harness::*;
use super::map_damage::{Opened, meets, open, opened, prepared, slots_of, unreadable};
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::bitmap::Which;
use crate::store::deferred::Fact;
use crate::store::geometry::Slot;
use crate::store::meta_page::MetaId;
use crate::store::{Journal, Store};
use crate::testing::Took;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_base::{Lsn, Progress};
use firndb_device::{Device, DeviceError, DeviceErrorKind, MemoryDevice};
use firndb_log::{Appended, LogError, Record};
use firndb_testkit::hooked::{Call, Hooked};

/// What a device does at present.
#[derive(Default)]
struct Faults {
    /// One page cannot be read.
    reads: AtomicBool,
    /// The first slot of the totals page finds no space, and the second one.
    totals: AtomicBool,
    second: AtomicBool,
}

impl Faults {
    fn set(&self, reads: bool, totals: bool) {
        self.reads.store(reads, Relaxed);
        self.totals.store(totals, Relaxed);
    }
    /// A device of which `id` cannot be read, and the totals page cannot be written, at times.
    fn over(self: &Arc<Faults>, inner: &Arc<MemoryDevice>, store: &Store, id: MetaId) -> Arc<dyn Device> {
        let (bad, faults) = (slots_of(store, id), self.clone());
        let slot = |slot| store.geometry.meta_offset(MetaId::Totals, slot);
        let (first, second) = (slot(Slot::A)..slot(Slot::A) + 1, slot(Slot::B)..slot(Slot::B) + 1);
        Hooked::over(inner.clone(), move |call| match call {
            Call::Read { offset, len } if faults.reads.load(Relaxed) && meets(&bad, offset, len) => {
                Err(unreadable())
            }
            Call::Write { offset, data, .. }
                if faults.totals.load(Relaxed) && meets(&first, offset, data.len())
                    || faults.second.load(Relaxed) && meets(&second, offset, data.len()) =>
            {
                Err(DeviceError::new(DeviceErrorKind::NoSpace, "no space on purpose"))
            }
            _ => Ok(()),
        })
    }
}

/// A store with a frame of a page that cannot be read, in a round that failed after it.
fn after_a_round_that_failed(id: MetaId) -> (Opened, Arc<Faults>) {
    let log = TestLog::new();
    let (device, store, pages, moved) = prepared(&log);
    let faults = Arc::new(Faults::default());
    let bad = faults.over(&device, &store, id);
    drop(store);
    let store = open(bad, &log);
    faults.set(true, true);
    let error = store.sweep_all(&mut store.write_back.lock()).expect_err("the totals page is not written");
    assert_eq!(error.kind, TierErrorKind::Full, "{error}");
    (Opened { device, log, store, pages, moved }, faults)
}

/// Cause: a round that failed had marked its carried frame with where it would have ended, and the
/// sweep began again before that. Effect: a full circle later the frame was kept, and the records
/// after it were not: what it says hid what the page had by then.
#[test]
fn an_old_frame_does_not_outlive_the_records_after_it() {
    let id = MetaId::Map(1);
    let (opened, faults) = after_a_round_that_failed(id);
    faults.set(false, false);
    let (store, log) = (&opened.store, &opened.log);
    let is_of = opened.is_of(id);
    let there: Vec<_> = opened.moved.iter().copied().filter(is_of).collect();
    assert!(!there.is_empty() && write(store, log, &there).iter().all(|(_, outcome)| outcome.is_ok()));
    log.flush(log.end()).unwrap();
    store.sweep_all(&mut store.write_back.lock()).unwrap();
    compare(&open(copy(&*opened.device), log), &fold(&log.records(), log.end()));
}

/// Cause: what a carried frame contains was not compared with the log's end. Effect: a log that had
/// lost its end was believed.
#[test]
fn a_carried_frame_beyond_the_end_of_the_log_is_noticed() {
    let id = MetaId::Map(1);
    let log = TestLog::new();
    let (device, store, pages, moved) = prepared(&log);
    let faults = Arc::new(Faults::default());
    let bad = faults.over(&device, &store, id);
    drop(store);
    let store = open(bad, &log);
    let cut = log.end();
    // From here on the totals do not say how much log there was.
    faults.set(true, true);
    faults.second.store(true, Relaxed);
    write(&store, &log, &pages[..1]);
    log.flush(log.end()).unwrap();
    store.sweep_all(&mut store.write_back.lock()).expect_err("the totals page is not written");
    assert!(store.state.lock().totals().pages > 0 && !moved.is_empty());
    let error = recover(copy(&*device), &[], cut, cut).err().expect("a frame contains more than the log");
    assert_eq!(error.kind, TierErrorKind::Damaged);
    assert!(error.message.contains("its end was lost"), "{error}");
}

/// Cause: whether a group can be cut off was found out by a sweep of a full circle. Effect: while
/// one page of the map was damaged, each look for space to return wrote all that, for nothing.
#[test]
fn space_is_returned_past_a_damaged_page_without_a_sweep_each_time() {
    let mut opened = opened(MetaId::Map(0));
    let (store, log) = (&opened.store, &opened.log);
    let more = allocate(store, log, 400).unwrap();
    publish(store, log, &[], &more).unwrap();
    log.flush(log.end()).unwrap();
    let before = store.statistics().places;
    let written = || store.counters.metadata_pages_written.load(Relaxed);
    while store.give_back_step().unwrap() == Progress::Worked {}
    while store.give_back_step().unwrap() == Progress::Worked {}
    assert!(store.statistics().places < before, "groups are discarded instead");
    let swept = written();
    for _ in 0..5 {
        assert_eq!(store.give_back_step(), Ok(Progress::Idle));
    }
    assert_eq!(written(), swept);
    // Work goes on, and other pages are right.
    let others: Vec<_> = opened.pages.iter().copied().filter(|page| page.0 >= 40).collect();
    opened.work(&others, 8);
    opened.assert_newest(&others);
}

/// A log during whose appends something else happens.
struct Meanwhile {
    log: Arc<TestLog>,
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    appends: AtomicU64,
}

impl Journal for Meanwhile {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        self.appends.fetch_add(1, Relaxed);
        if let Some(what) = self.what.lock().take() {
            thread::spawn("meanwhile", what).expect("a thread").join().expect("it does not panic");
        }
        Journal::append(&*self.log, record)
    }
    fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError> {
        self.log.wait_for_buffer(bytes)
    }
    fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        self.log.flush(lsn)
    }
    fn durable(&self) -> Lsn {
        self.log.durable()
    }
    fn end(&self) -> Lsn {
        self.log.end()
    }
    fn has_spare(&self) -> bool {
        self.log.has_spare()
    }
}

/// Cause: a bitmap page that could not be read when a record was checked was in memory when it was
/// applied, and contradicted it. Effect: a panic under the store's locks.
#[test]
fn a_bitmap_page_that_is_read_while_a_record_is_appended_takes_what_it_says() {
    let id = MetaId::Bitmap(0);
    let log = TestLog::new();
    let (device, store, pages, _) = prepared(&log);
    let faults = Arc::new(Faults::default());
    let bad = faults.over(&device, &store, id);
    let geometry = store.geometry;
    let in_group = |page: &&_| store.entry_of(**page).unwrap().place().unwrap().0 < geometry.places_per_group;
    let page = *pages.iter().find(in_group).expect("some are in group 0");
    let place = store.entry_of(page).unwrap().place().unwrap();
    drop(store);
    let store = Arc::new(recover(bad, &log.records(), log.end(), log.end()).unwrap());
    // Damage has cleared the bit of the place that the page leaves.
    let wrong = Fact::Bit { which: Which::Places, index: geometry.index_of_place(place), value: false };
    let newest = store.state.lock().map_log.last();
    store.state.lock().deferred.note(0, newest, wrong);
    faults.set(true, false);
    let (reader, healed) = (store.clone(), faults.clone());
    let read_it = move || {
        healed.set(false, false);
        drop(reader.pin(&[id]).expect("it can be read again"));
    };
    let what: Box<dyn FnOnce() + Send> = Box::new(read_it);
    let journal =
        Arc::new(Meanwhile { log: log.clone(), what: Mutex::new(Some(what)), appends: AtomicU64::new(0) });
    store.attach_journal(journal.clone());
    assert_eq!(write(&store, &log, &[page])[0].1, Ok(Took::Taken));
    assert!(journal.appends.load(Relaxed) == 1 && journal.what.lock().is_none());
    assert!(store.state.lock().cache.contains(id));
    assert_eq!(read(&store, page).unwrap().0, fold(&log.records(), log.end())[&page].0);
}
