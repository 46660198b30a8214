//! Reads that are late, and are begun again.

use super::*;

/// A device that begins reads and does not complete them.
#[derive(Debug)]
struct Frozen(MemoryDevice);

impl Device for Frozen {
    forward!(0: info, len, read, write, sync, grow, shrink, discard);
    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        let never = firndb_base::clock::now().after(Duration::from_secs(3600)).unwrap();
        in_flight.complete_at(never, read, Ok(()));
    }
}

/// Cause: a read that was late and was begun again chose members by their reads under way alone.
/// Effect: it could wait for the frozen member, too, and nothing began it a third time.
#[test]
fn a_read_begun_again_does_not_wait_for_the_same_member() {
    for (needed, written) in [(1, 2), (3, 4), (2, 4)] {
        let devices = (0..4).map(|at| -> Arc<dyn Device> {
            let memory = MemoryDevice::new(&format!("m{at}"));
            if at == 1 { Arc::new(Frozen(memory)) } else { Arc::new(memory) }
        });
        let code = Code::new(needed, written).unwrap();
        let array = Array::create(devices.collect(), code, SMALL, options(&Arc::default(), false)).unwrap();
        array.grow(SMALL.group_start(GROUPS), Fill::Reserved).unwrap();
        // Others are busy: by reads under way alone the frozen member would be taken again.
        let _busy: Vec<_> =
            [0, 2, 3].iter().flat_map(|at| (0..9).map(|_| array.members[*at].begin_read())).collect();
        for place in 0..SMALL.places {
            let offset = SMALL.place_offset(0, place);
            array.write(offset, &page_of(place), Durability::Durable).unwrap();
            let mut in_flight = InFlight::default();
            let mut next = |tag: u64, wait: Duration| {
                let buf = AlignedBuf::zeroed(PAGE);
                array.begin_read(&mut in_flight, OwnedRead { offset, len: PAGE, buf, tag });
                array.next_read(&mut in_flight, firndb_base::clock::now().after(wait))
            };
            let done = next(0, Duration::from_millis(1)).or_else(|| next(1, Duration::from_secs(5)));
            let done = done.expect("the second read is complete, if the first is not");
            assert!(done.read.buf[..] == page_of(place)[..], "{code}, place {place}");
        }
    }
}
