//! What reading pages with their deltas costs is weighed against writing them whole.

use super::delta_damage::{AT_ONCE, Rig, rig};
use super::delta_model::read_found;
use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::{DeltaRead, Found, PageTier, PageWrite, Written};
use crate::store::{DeltaPolicy, Journal, Policy};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::AlignedBuf;

fn reads_at(read_cost_percent: u16) -> Policy {
    Policy { deltas: DeltaPolicy { read_cost_percent, ..AT_ONCE.deltas }, ..AT_ONCE }
}

/// Offers a page that did not change since it was read, as the buffer does.
fn leave(rig: &Rig, page: PageId, found: Found, image: &[u8]) -> Written {
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    data.copy_from_slice(image);
    let write = PageWrite::back(page, found.version, found.version, &data);
    let write = write.changed_since(found.base, found.changes);
    let mut writes = [PageWrite { dirty: false, delta_read: found.delta_read, ..write }];
    rig.store.write_batch(&mut writes);
    writes[0].outcome.clone().expect("the store has the page: no failure concerns it")
}

#[test]
fn a_page_read_with_its_delta_for_as_much_as_a_write_is_written_whole_when_it_leaves_unchanged() {
    let rig = rig(reads_at(100), 6);
    let page = rig.pages[0];
    let (version, image) = rig.change(&[page], 40).remove(0);
    let (found, read) = read_found(&rig.store, page).unwrap();
    assert_eq!((found.delta_read, &read), (DeltaRead::Merge, &image));
    let written = leave(&rig, page, found, &image);
    let Written::Taken { base: Some(base), changes } = written else { panic!("{written:?}") };
    assert_eq!((base.version, changes.is_none(), rig.slot(page)), (version, true, None));
    let (now, read) = read_found(&rig.store, page).unwrap();
    assert_eq!((now.version, now.delta_read, read), (version, DeltaRead::No, image.clone()));
    assert_eq!(rig.store.statistics().deltas_merged_for_reads, 1);

    // It is whole by now; and it never replaces a later version.
    assert_eq!(leave(&rig, page, found, &image), Written::Declined);
    let (later, _) = rig.change(&[page], 80).remove(0);
    assert_eq!(leave(&rig, page, found, &image), Written::Declined);
    assert_eq!(read_found(&rig.store, page).unwrap().0.version, later);

    // The delta page is empty, and the merged page needs no log from before its record.
    rig.log.flush(rig.log.end()).unwrap();
    rig.store.sync().unwrap();
    rig.log.flush(rig.log.end()).unwrap();
    assert!(rig.store.oldest_needed_lsn().is_none_or(|needed| needed > later));
    assert_eq!(rig.store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn a_store_that_has_failed_leaves_unchanged_pages_as_they_are() {
    let rig = rig(reads_at(100), 6);
    let page = rig.pages[0];
    let (_, image) = rig.change(&[page], 40).remove(0);
    let (found, _) = read_found(&rig.store, page).unwrap();
    let error = crate::TierError::new(crate::TierErrorKind::Failed, "on purpose");
    rig.store.poison.set(&error);
    assert_eq!(leave(&rig, page, found, &image), Written::Declined);
    assert!(rig.slot(page).is_some());
}

#[test]
fn second_reads_count_against_a_pages_deltas() {
    for (read_cost_percent, deltas) in [(0, 4), (35, 3), (100, 1)] {
        let rig = rig(reads_at(read_cost_percent), 6);
        let page = rig.pages[0];
        // Each change reads the page, and from the second on its delta page.
        let is_delta: Vec<bool> = (0..4)
            .map(|_| {
                rig.change(&[page], 40);
                rig.slot(page).is_some()
            })
            .collect();
        let expected: Vec<bool> = (0..4).map(|change| change < deltas).collect();
        assert_eq!(is_delta[..=deltas.min(3)], expected[..=deltas.min(3)], "reads at {read_cost_percent}");
        let whole = rig.store.statistics().whole_for_rent;
        assert_eq!(whole > 0, deltas < 4);
    }
}

#[test]
fn a_read_from_the_write_buffer_is_no_second_read() {
    let rig =
        rig(Policy { deltas: DeltaPolicy { buffer_bytes: 1 << 20, ..reads_at(100).deltas }, ..AT_ONCE }, 6);
    let page = rig.pages[0];
    for _ in 0..5 {
        rig.change(&[page], 40);
        assert_eq!(read_found(&rig.store, page).unwrap().0.delta_read, DeltaRead::No);
    }
    rig.store.settle_deltas(Lsn(u64::MAX)).unwrap();
    assert_eq!(read_found(&rig.store, page).unwrap().0.delta_read, DeltaRead::Merge);
    assert_eq!(rig.store.statistics().reads_with_delta, 1);
}

/// Cause: only moves of images asked whether there was log to spare. Effect: while a backup or the
/// archive held the log, reads and the gathering of slots took the reserves of checkpoints, and no
/// checkpoint could free any once it was given up.
#[test]
fn no_deltas_are_gathered_or_merged_while_the_log_has_none_to_spare() {
    let few = DeltaPolicy { pages_percent: 7, ..reads_at(100).deltas };
    let rig = rig(Policy { deltas: few, ..AT_ONCE }, 60);
    // Ten delta pages; then all but one slot of each die.
    rig.pages.chunks(6).for_each(|pages| drop(rig.change(pages, 40)));
    rig.pages.chunks(6).for_each(|pages| rig.store.write_whole(&pages[1..]).unwrap());
    let page = rig.pages[0];
    let (found, image) = read_found(&rig.store, page).unwrap();
    assert_eq!(found.delta_read, DeltaRead::Merge);
    let mut sparse = rig.store.sparse_deltas();
    let records = || rig.log.records().len();
    let before = records();
    rig.log.set_short(true);
    assert_eq!(rig.store.clean_deltas().unwrap(), Progress::Idle);
    assert_eq!(records(), before, "in the background");
    assert_eq!(leave(&rig, page, found, &image), Written::Declined);
    assert_eq!(records(), before, "by reads");
    let refused = rig.store.compact_deltas_step(&mut sparse).unwrap_err();
    assert_eq!((refused.kind, records()), (TierErrorKind::LogFull, before));
    rig.log.set_short(false);
    assert_eq!(rig.store.compact_deltas_step(&mut sparse).unwrap(), Progress::Worked);
    assert!(records() > before && rig.store.statistics().deltas_gathered > 0);
}
