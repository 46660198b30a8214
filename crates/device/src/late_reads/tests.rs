use super::*;
use firndb_base::rng::Rng;

fn at(us: u64) -> Moment {
    Moment::from_nanos(us * 1000)
}

/// A device, and the clock beside it, microseconds.
struct Rig {
    late: LateReads,
    now: u64,
    reads: u64,
    /// Reads that were begun again, and those of them in vain.
    copies: u64,
    in_vain: u64,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            late: LateReads::new(true, Arc::new(CopyBudget::saving(8))),
            now: 0,
            reads: 0,
            copies: 0,
            in_vain: 0,
        }
    }

    /// One read after another, each of which takes what `took` says, and a second request of one
    /// that is late `again`, microseconds.
    fn read(&mut self, reads: u64, again: u64, mut took: impl FnMut() -> u64) {
        for _ in 0..reads {
            let (number, took) = (self.late.begin(4096, 1, at(self.now)), took());
            self.reads += 1;
            let late_at = self.late.late_at(number).map_or(u64::MAX, |at| at.as_nanos() / 1000 + 1);
            let waited = late_at.saturating_sub(self.now);
            let is_twice = waited < took && self.late.judge(number, at(late_at)) == Lateness::Late;
            self.copies += u64::from(is_twice);
            let in_vain = is_twice && took <= waited + again;
            self.in_vain += u64::from(in_vain);
            self.now += if is_twice { took.min(waited + again) } else { took };
            self.late.complete(number, in_vain, at(self.now));
        }
    }

    fn patience_us(&self) -> u64 {
        self.late.order.lock().patience.map_or(0, |patience| patience.as_micros() as u64)
    }
}

#[test]
fn a_read_waits_from_when_it_was_overtaken_or_the_device_completed_one() {
    let mut rig = Rig::new();
    rig.read(1, 1000, || 1000);
    let late = &rig.late;
    // Twice as long as the first read may they wait.
    let begin = |len: usize| late.begin(len, 1, at(2000));
    let [first, second, third, long] = [4096, 4096, 4096, 64 << 10].map(begin);
    assert_eq!(late.judge(first, at(3000)), Lateness::LookAt(at(4000)));
    late.complete(third, false, at(3000));
    // Each read in time makes it a thousandth shorter.
    let late_at = |number: u64| late.late_at(number).map_or(0, |at| at.as_nanos().div_ceil(100_000));
    assert_eq!((late_at(first), late_at(second), late_at(long)), (50, 50, 90));
    // They have been overtaken; the long one has not, and waits for what is before it.
    late.complete(second, false, at(5000));
    assert_eq!((late_at(first), late_at(long)), (50, 90), "overtaken before");
    late.complete(long, false, at(6000));
    let (one, other) = (late.begin(4096, 1, at(6000)), late.begin(4096, 1, at(6500)));
    late.complete(one, false, at(7000));
    assert_eq!(late_at(other), 90, "from when the one before it was complete");
}

#[test]
fn nothing_is_late_on_a_device_of_which_nothing_is_known() {
    let late = LateReads::new(true, Arc::new(CopyBudget::saving(8)));
    let number = late.begin(4096, 1, at(0));
    assert_eq!(late.judge(number, at(1_000_000)), Lateness::Unknown);
    // Nor is anything known by one that took no time.
    late.complete(number, false, at(0));
    let number = late.begin(4096, 1, at(0));
    assert_eq!((late.late_at(number), late.judge(number, at(1_000_000))), (None, Lateness::Unknown));
}

#[test]
fn nothing_is_late_where_it_is_not_to_be_hidden() {
    let mut rig = Rig::new();
    rig.late.are_hidden = false;
    rig.read(100, 1000, || 1000);
    let number = rig.late.begin(4096, 1, at(rig.now));
    assert_eq!(rig.late.late_at(number), None);
    assert_eq!(rig.late.judge(number, at(rig.now + 1_000_000)), Lateness::Unknown);
}

/// Cause: what one read alone takes was learned of the quickest ones. Effect: where a drive's own
/// cache served the first, all later ones were late, copies in vain drove the patience up, and
/// spikes were not hidden.
#[test]
fn patience_follows_a_drive_whose_first_reads_were_quick() {
    let (mut rig, mut rng) = (Rig::new(), Rng::new(3));
    rig.read(200, 1000, || 20);
    assert_eq!(rig.patience_us(), 200, "the least");
    rig.read(1000, 1000, || 700 + rng.below(300));
    assert!((850..1500).contains(&rig.patience_us()), "{} us", rig.patience_us());
    let copies = rig.copies;
    let spiked = rig.now;
    rig.read(1000, 800, || if rng.below(100) == 0 { 100_000 } else { 700 + rng.below(300) });
    assert!(rig.copies > copies + 5, "spikes are late");
    assert!((rig.now - spiked) / 1000 < 900, "and hidden: {} us a read", (rig.now - spiked) / 1000);
}

/// Cause: only copies that came first lowered the patience, which copies in vain had driven up to
/// 4,096 times. Effect: where none were made any more, late reads stayed so for good.
#[test]
fn patience_that_was_driven_up_falls_with_reads_that_were_not_late() {
    let (mut rig, mut rng) = (Rig::new(), Rng::new(4));
    rig.read(100, 100, || 700);
    // A device that is busy: what is begun again waits as long.
    rig.read(3000, 1_000_000, || 700 + rng.below(400_000));
    assert!(rig.patience_us() > 100_000, "{} us", rig.patience_us());
    rig.read(8000, 1000, || 700 + rng.below(300));
    assert!((850..1500).contains(&rig.patience_us()), "{} us", rig.patience_us());
}

#[test]
fn copies_are_one_in_twenty_reads_at_most_and_few_of_them_in_vain() {
    let mut rng = Rng::new(5);
    // Most reads take as long as any other; or a tenth are late; or all take longer and longer.
    let mut growing = 500;
    let mut loads: [Box<dyn FnMut() -> u64>; 3] = [
        Box::new(|| 500 + rng.below(500)),
        Box::new({
            let mut rng = Rng::new(6);
            move || if rng.below(10) == 0 { 50_000 } else { 500 }
        }),
        Box::new(|| {
            growing += 10;
            growing
        }),
    ];
    for (load, took) in loads.iter_mut().enumerate() {
        let mut rig = Rig::new();
        rig.read(20_000, 600, took);
        assert!(rig.copies * 20 <= rig.reads, "load {load}: {} copies", rig.copies);
        let in_vain = rig.in_vain * 1000 / rig.reads;
        let most = if load == 0 { 10 } else { 32 };
        assert!(in_vain <= most, "load {load}: {in_vain} in a thousand in vain");
    }
}

#[test]
fn a_request_of_many_reads_is_paid_for_by_as_many() {
    let mut rig = Rig::new();
    rig.read(40, 1000, || 1000);
    let late = |rig: &Rig, number: u64| rig.late.judge(number, at(rig.now + 1_000_000)) == Lateness::Late;
    let many = rig.late.begin(4096, 10, at(rig.now));
    assert!(late(&rig, many));
    rig.late.complete(many, false, at(rig.now + 2_000_000));
    rig.now += 2_000_000;
    rig.read(300, 1000, || 1000);
    let number = rig.late.begin(4096, 1, at(rig.now));
    assert!(!late(&rig, number), "350 reads, and ten copies");
    rig.read(50, 1000, || 1000);
    assert!(late(&rig, number));
}
