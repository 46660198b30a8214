//! Where pages would be read from, by what is in memory.

use super::harness::*;
use crate::page_tier::{PageTier, Whereabouts};
use firndb_base::PageId;
use firndb_base::sync::Arc;
use firndb_device::{Counting, Device, MemoryDevice};

#[test]
fn whereabouts_follow_a_page_and_read_nothing() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 4).unwrap();
    write(&store, &log, &pages[..2]);
    let of = |store: &dyn PageTier, page| {
        let mut found = vec![Whereabouts::Cache; 7];
        store.whereabouts(&[page], &mut found);
        assert_eq!(found.len(), 1, "what was there before is gone");
        found[0]
    };
    let place = |found| match found {
        Whereabouts::Store { place } => place,
        other => panic!("a written page is in the store: {other:?}"),
    };
    let first = [place(of(&store, pages[0])), place(of(&store, pages[1]))];
    assert_eq!(first[0] + 1, first[1], "pages of one batch are adjacent");
    assert_eq!(of(&store, pages[2]), Whereabouts::Unwritten);
    write(&store, &log, &pages[..1]);
    assert_ne!(place(of(&store, pages[0])), first[0], "a new version goes to another place");
    publish(&store, &log, &[], &pages[2..3]).unwrap();
    assert_eq!(of(&store, pages[2]), Whereabouts::Unknown);
    assert_eq!(of(&store, PageId(0)), Whereabouts::Unknown);
    assert_eq!(of(&store, PageId(u64::MAX)), Whereabouts::Unknown);
    sweep(&store);
    drop(store);
    let counting = Arc::new(Counting::new(device));
    let store = recover(counting.clone(), &log.records(), log.end(), log.end()).unwrap();
    let before = counting.snapshot().reads.ops;
    assert_eq!(of(&store, pages[1]), Whereabouts::Unknown, "its map page is not in memory");
    assert_eq!(counting.snapshot().reads.ops, before);
    read(&store, pages[1]).unwrap();
    assert_eq!(place(of(&store, pages[1])), first[1]);
}
