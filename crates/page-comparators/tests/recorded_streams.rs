//! Streams: what is written is read back, damage is refused, and the bytes are these.

use firndb_base::rng::Rng;
use firndb_page_comparators::event::Event;
use firndb_page_comparators::stream::{Head, StreamError, StreamReader, StreamWriter};
use firndb_page_comparators::{
    AppendPack, Firn, FirnOptions, InPageLogging, InPlace, Incremental, Medium, Method, Naive, Part,
    Placement, RentOrBuy, Start, granules, replay,
};
use firndb_tier::Changes;

fn head() -> Head {
    Head { page_size: 4096, pages: 300, frames: 64, note: "a note".into() }
}

fn write(events: &[Event]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), &head()).unwrap();
    events.iter().for_each(|event| writer.push(event).unwrap());
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, StreamError> {
    let mut reader = StreamReader::new(bytes)?;
    let mut events = Vec::new();
    while let Some(event) = reader.next_event()? {
        events.push(event);
    }
    Ok(events)
}

/// Reads and writes as a buffer has them: a page is written again only after it was read.
fn events(seed: u64, count: usize) -> Vec<Event> {
    let mut rng = Rng::new(seed);
    let mut events =
        vec![Event::Allocate { page: 300 }, Event::Write { page: 300, version: 1, changes: None }];
    for version in 0..count as u64 {
        let page = rng.below(301);
        events.push(Event::Read { page });
        let from = rng.below(Changes::GRANULES as u64 - 4) as usize;
        let changes = granules(from..from + 1 + rng.below(4) as usize) | granules(0..1);
        match rng.below(8) {
            0 => events.push(Event::Clean { page }),
            _ => events.push(Event::Write { page, version: 100 + version, changes: Some(changes) }),
        }
        if rng.below(16) == 0 {
            events.push(Event::BatchEnd);
        }
        match version {
            version if version == count as u64 / 4 => events.extend([Event::BatchEnd, Event::Measure]),
            version if version % 500 == 499 => events.extend([Event::BatchEnd, Event::Checkpoint]),
            _ => {}
        }
        events.push(Event::Commits { count: 1 });
    }
    events.extend([Event::BatchEnd, Event::Free { page: 300 }]);
    events
}

#[test]
fn what_is_written_is_read_back_in_many_blocks() {
    let all = events(1, 20_000);
    let bytes = write(&all);
    assert!(bytes.len() > 3 * (64 << 10), "{}", bytes.len());
    assert_eq!(read(&bytes).unwrap(), all);
    assert_eq!(StreamReader::new(&bytes[..]).unwrap().head(), &head());
}

#[test]
fn a_short_stream_has_these_bytes() {
    let bytes = write(&[
        Event::Allocate { page: 2 },
        Event::Write { page: 2, version: 9, changes: None },
        Event::Write { page: 1, version: 7, changes: Some(granules(1..3) | granules(127..128)) },
        Event::BatchEnd,
        Event::Read { page: 1 },
        Event::Clean { page: 1 },
        Event::Checkpoint,
        Event::Measure,
        Event::Commits { count: 300 },
        Event::Free { page: 2 },
    ]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            // The head.
            "4649524e50475354",
            "0100",
            "00100000",
            "2c01000000000000",
            "4000000000000000",
            "060061206e6f7465",
            "ff822ffd",
            // A block of 25 bytes.
            "19000000",
            "db099055",
            "0604",
            "020012",
            "0301030201027c01",
            "05",
            "0100",
            "0400",
            "08",
            "0a",
            "09ac02",
            "0702",
            // The end, after ten events.
            "00000000",
            "0a00000000000000"
        )
    );
}

#[test]
fn a_stream_that_was_cut_off_or_has_a_wrong_byte_is_refused() {
    let all = events(2, 200);
    let bytes = write(&all);
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
    }
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        let found = read(&wrong);
        assert!(found.is_err(), "byte {at}");
    }
}

fn methods() -> Vec<(&'static str, Box<dyn Method>)> {
    let start = Start { page_size: 4096, pages: 300 };
    let policy = Box::new(RentOrBuy { read_cost: 0.1 });
    vec![
        ("in place", Box::new(InPlace::new(false))),
        ("double write", Box::new(InPlace::new(true))),
        ("append and pack", Box::new(AppendPack::new(start, 1.25))),
        ("naive", Box::new(Naive::new(start, 8192, 40))),
        ("icl", Box::new(Incremental::new(start, 8192, 40))),
        ("ipl", Box::new(InPageLogging::new(4096))),
        (
            "firn",
            Box::new(Firn::new(
                start,
                FirnOptions { buffer_bytes: 16_384, policy, placement: Placement::Threaded },
            )),
        ),
        ("firn, off", Box::new(Firn::new(start, FirnOptions::off(Placement::Threaded)))),
    ]
}

/// Counts of every method over one stream, exactly: pages written and read, in hundredths of a page
/// for each page given down and asked for, and the most pages of deltas or logs read for one page.
#[test]
fn every_method_counts_the_same_each_time() {
    let bytes = write(&events(3, 20_000));
    let run = || -> Vec<String> {
        let runs = methods().into_iter().map(|(name, mut method)| {
            let mut reader = StreamReader::new(&bytes[..]).unwrap();
            let mut medium = Medium::new(4096);
            let ran = replay(&mut reader, &mut *method, &mut medium, Part::Measured).unwrap();
            let percent = |bytes: u64, of: u64| bytes * 100 / 4096 / of;
            format!(
                "{name}: {} {} {}",
                percent(ran.counts.written.all(), ran.writes),
                percent(ran.counts.read.all(), ran.reads),
                ran.deltas_read_most
            )
        });
        runs.collect()
    };
    let found = run();
    assert_eq!(found, run());
    assert_eq!(
        found,
        [
            "in place: 100 100 0",
            "double write: 200 100 0",
            "append and pack: 164 156 0",
            "naive: 38 250 9",
            "icl: 47 211 1",
            "ipl: 188 453 2",
            "firn: 22 174 1",
            "firn, off: 96 100 0",
        ]
    );
}
