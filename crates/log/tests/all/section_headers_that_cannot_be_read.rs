//! A section whose header cannot be read is the newest of its stream or the oldest: its blocks
//! decide, and none of them is left out.

use crate::support::bad_places::{Bed, EPOCHS, create};
use crate::support::scan;
use firndb_base::Lsn;
use firndb_device::{Device, FaultPlan, Faulty};
use firndb_log::testing::options;
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, Record};
use std::collections::VecDeque;
use std::sync::Arc;

const BYTES: u64 = 80 << 10;
const SECTION: u64 = 4096;
const SECTIONS: u64 = (BYTES - 1024) / SECTION;

/// Appends and flushes a record. If the log is full, truncates it to the end of the oldest record
/// of `live`, as often as needed, so that the log stays as full as it can be.
fn add(log: &Log, live: &mut VecDeque<Lsn>, oldest: &mut Lsn) {
    let body = [7; 300];
    loop {
        match log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }) {
            Ok(appended) => {
                log.flush(appended.end).unwrap();
                return live.push_back(appended.end);
            }
            Err(error) => {
                assert_eq!(error.kind, LogErrorKind::Full, "{error}");
                *oldest = live.pop_front().expect("a full log has records");
                log.truncate(*oldest);
            }
        }
    }
}

/// The bed's device, with these sections' headers unreadable.
fn without_headers(bed: &Bed, sections: &[u64]) -> Vec<Arc<dyn Device>> {
    let faulty = Faulty::new(bed.media[0].clone(), &FaultPlan::new(0));
    sections.iter().for_each(|section| faulty.make_unreadable(1024 + section * SECTION, 512));
    vec![Arc::new(faulty)]
}

/// Cause: the place behind the newest section was taken for a section newer still if its header
/// could not be read, although it was the oldest section of a full ring; its blocks then looked
/// left over. Effect: the log ended before what was flushed.
#[test]
fn a_full_ring_is_found_whole_without_any_five_headers_in_a_row() {
    let bed = Bed::new(1, 512, BYTES);
    let log = create(&bed, LogOptions { section_bytes: SECTION, ..options() });
    let (mut live, mut oldest) = (VecDeque::new(), Lsn::FIRST);
    let mut full = 0;
    for round in 0..400 {
        add(&log, &mut live, &mut oldest);
        let found = |sections: &[u64]| {
            let scan = scan(&without_headers(&bed, sections), &EPOCHS, oldest)
                .unwrap_or_else(|error| panic!("round {round} without {sections:?}: {error}"));
            let mut records = scan.records(oldest);
            let mut lsns = Vec::new();
            while let Some((lsn, _)) = records.next().unwrap() {
                lsns.push(lsn);
            }
            assert!(scan.end() >= log.durable(), "round {round} without {sections:?}: {}", scan.end());
            lsns
        };
        let whole = found(&[]);
        assert_eq!(whole.len(), live.len(), "round {round}");
        full += u64::from(oldest > Lsn::FIRST);
        for section in 0..SECTIONS {
            // A log that is full has free sections in reserve.
            for count in [1, 5] {
                let bad: Vec<u64> = (section..section + count).map(|place| place % SECTIONS).collect();
                assert_eq!(found(&bad), whole, "round {round} without headers {bad:?}");
            }
        }
    }
    assert!(full > 100, "the ring was full in {full} rounds only");
}

/// The order of its sections is not known: the log is not taken for one that ends early.
#[test]
fn a_main_stream_without_any_readable_header_is_damage() {
    let bed = Bed::new(1, 512, BYTES);
    let log = create(&bed, LogOptions { section_bytes: SECTION, ..options() });
    let (mut live, mut oldest) = (VecDeque::new(), Lsn::FIRST);
    for _ in 0..3 {
        add(&log, &mut live, &mut oldest);
    }
    let all: Vec<u64> = (0..SECTIONS).collect();
    let error = scan(&without_headers(&bed, &all), &EPOCHS, Lsn::FIRST).unwrap_err();
    assert_eq!(error.kind, LogErrorKind::Damaged, "{error}");
    assert!(error.message.contains("sections of log 0 from byte 1024 on"), "{error}");
}
