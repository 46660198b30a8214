//! How long a fragment waits at a member.

use crate::code::Code;

/// Fragments that come to a member: how many a microsecond, and what each takes.
#[derive(Clone, Copy, Debug)]
pub struct Fragments {
    pub reads: f64,
    pub writes: f64,
    pub read_us: f64,
    pub write_us: f64,
}

/// What a fragment that comes to a member finds there.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The chance that the member works.
    busy: f64,
    /// Microseconds of reads that are before it.
    reads_us: f64,
    /// Likewise of writes.
    writes_us: f64,
    /// Microseconds of the fragment that the member works at, if it does.
    at_work_us: f64,
}

/// What fragments of several kinds make a member do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    busy: f64,
    reads_us: f64,
    writes_us: f64,
    /// The chance that the member works at one, times its microseconds.
    at_work: f64,
}

impl Fragments {
    /// The work, if fragments stay for this long. By Little's law their number follows; of the one
    /// that the member works at half is left.
    pub fn work(&self, read_stay_us: f64, write_stay_us: f64) -> Work {
        let work = |rate: f64, each_us: f64, stay_us: f64| {
            let busy = (rate * each_us).min(1.0);
            let waiting = (rate * stay_us.max(each_us) - busy).max(0.0);
            (busy, waiting * each_us + busy * each_us / 2.0)
        };
        let (reading, reads_us) = work(self.reads, self.read_us, read_stay_us);
        let (writing, writes_us) = work(self.writes, self.write_us, write_stay_us);
        let at_work = reading * self.read_us + writing * self.write_us;
        Work { busy: reading + writing, reads_us, writes_us, at_work }
    }
}

impl Work {
    /// This and other work at the same member.
    pub fn and(self, other: Work) -> Work {
        Work {
            busy: self.busy + other.busy,
            reads_us: self.reads_us + other.reads_us,
            writes_us: self.writes_us + other.writes_us,
            at_work: self.at_work + other.at_work,
        }
    }

    /// What a fragment finds that comes to the member.
    pub fn queue(self) -> Queue {
        let Work { busy, reads_us, writes_us, at_work } = self;
        let at_work_us = if busy > 0.0 { at_work / busy } else { 0.0 };
        Queue { busy: busy.min(BUSY_MAX), reads_us, writes_us, at_work_us }
    }
}

/// A member that works all the time is never found idle, but the sums below need a difference.
const BUSY_MAX: f64 = 0.999;

impl Queue {
    /// How long a fragment waits that is the `rank`-th of its operation to begin: reads take the
    /// members that begin first, and go on with the slowest of those taken; writes return with the
    /// slowest of those that count.
    ///
    /// * Reads that take the shorter queue keep queues equally long but for about a fragment: only
    ///   that part of the wait differs between members.
    /// * A write comes to w members together. As far as the sets of members of different places
    ///   overlap, the queues of writes are alike, and there is nothing to choose; reads find each
    ///   of the members that may be left out busy by itself. For the rest the waits are
    ///   independent.
    pub fn wait_us(&self, code: Code, rank: usize, members: usize) -> f64 {
        let all = self.reads_us + self.writes_us;
        if all <= 0.0 {
            return 0.0;
        }
        let written = code.written();
        let alike = alike(written, members);
        let level = (all - self.at_work_us).max(0.0);
        let differing = all - level;
        let pooled = self.busy.powi(code.spare() as i32);
        let together = (self.writes_us + self.reads_us * pooled) / all;
        let apart = ranked(rank, written, self.busy) / self.busy;
        level + differing * (alike * together + (1.0 - alike) * apart)
    }
}

/// Of the writes that come to a member of a place, the share that comes to another one of its
/// members, too: places lie on runs of w members around the array, which begin at each equally
/// often.
fn alike(written: usize, members: usize) -> f64 {
    if written == members {
        return 1.0;
    }
    // Of runs of w that contain a member, w - d also contain the one d further on; where runs reach
    // around, more.
    let (written, members) = (written as f64, members as f64);
    ((2.0 * written - 1.0) / (3.0 * written)).max((written - 1.0) / (members - 1.0))
}

/// The mean of the `rank`-th shortest of `count` independent waits, each none with the chance
/// 1 - `busy` and else exponential with a mean of one.
///
/// The wait exceeds x if at least `count - rank + 1` waits do, each with the chance `u` = `busy` ·
/// exp(-x). Over x this is the sum over k, from that number on, of the chance that k members are
/// busy or more, over k.
fn ranked(rank: usize, count: usize, busy: f64) -> f64 {
    // The chance that exactly k are busy, from all of them down.
    let mut exactly = busy.powi(count as i32);
    let (mut at_least, mut sum) = (0.0, 0.0);
    for k in (count - rank + 1..=count).rev() {
        at_least += exactly;
        sum += at_least / k as f64;
        exactly *= k as f64 / (count - k + 1) as f64 * (1.0 - busy) / busy;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn ranked_waits_are_those_of_a_draw() {
        let mut rng = Rng::new(1);
        let mut unit = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        for (count, busy) in [(1, 0.4), (2, 0.3), (4, 0.9), (3, 0.7)] {
            let mut sums = vec![0.0; count];
            for _ in 0..40_000 {
                let mut draw = || if unit() < busy { -unit().max(1e-12).ln() } else { 0.0 };
                let mut waits: Vec<f64> = (0..count).map(|_| draw()).collect();
                waits.sort_by(f64::total_cmp);
                sums.iter_mut().zip(waits).for_each(|(sum, wait)| *sum += wait / 40_000.0);
            }
            for (at, drawn) in sums.into_iter().enumerate() {
                let computed = ranked(at + 1, count, busy);
                assert!((computed - drawn).abs() < 0.03, "{} of {count}: {computed}, {drawn}", at + 1);
            }
        }
    }

    #[test]
    fn members_share_the_writes_that_their_places_have_in_common() {
        use crate::{Cells, MEMBERS_MAX};
        for members in 2..=MEMBERS_MAX {
            for written in 2..=members {
                let cells = Cells::new(written, members);
                let place = |place| (0..written).map(|fragment| cells.cell(place, fragment).member).collect();
                let sets: Vec<Vec<usize>> = (0..(written * members * members) as u64).map(place).collect();
                let of = |one: usize, other: usize| {
                    let with = sets.iter().filter(|set| set.contains(&one));
                    let both = with.clone().filter(|set| set.contains(&other)).count();
                    both as f64 / with.count() as f64
                };
                let pairs: Vec<f64> = (1..written).map(|other| of(sets[0][0], sets[0][other])).collect();
                let (least, most) =
                    pairs.iter().fold((1f64, 0f64), |(l, m), &share| (l.min(share), m.max(share)));
                let shared = alike(written, members);
                assert!((least - 0.01..=most + 0.01).contains(&shared), "{written} of {members}: {shared}");
            }
        }
    }

    #[test]
    fn an_idle_member_is_not_waited_for() {
        let idle = Fragments { reads: 0.0, writes: 0.0, read_us: 20.0, write_us: 100.0 };
        for code in Code::all(4) {
            assert_eq!(idle.work(20.0, 100.0).queue().wait_us(code, code.needed(), 4), 0.0);
        }
    }

    #[test]
    fn copies_are_of_no_use_where_writes_keep_all_of_them_busy() {
        let one_copy = Code::ONE_COPY;
        let wait = |fragments: Fragments, code: Code| {
            fragments.work(fragments.read_us, fragments.write_us).queue().wait_us(code, 1, 4)
        };
        let writes = Fragments { reads: 0.0, writes: 0.004, read_us: 20.0, write_us: 100.0 };
        let reads = Fragments { reads: 0.02, writes: 0.0, read_us: 20.0, write_us: 100.0 };
        let four = Code::new(1, 4).unwrap();
        assert!((wait(writes, four) / wait(writes, one_copy) - 1.0).abs() < 1e-9);
        assert!((wait(reads, four) / wait(reads, one_copy) - 0.064).abs() < 1e-9);
        // Of two members half of the writes are shared.
        let two = Code::new(1, 2).unwrap();
        assert!((wait(writes, two) / wait(writes, one_copy) - 0.6).abs() < 1e-9);
        // Three copies on four members: a write leaves one of them alone.
        assert!(wait(writes, Code::new(1, 3).unwrap()) < 0.8 * wait(writes, one_copy));
    }
}
