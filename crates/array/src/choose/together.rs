//! Several loads on the same members, each under a code of its own.

use super::queues::{Fragments, Work};
use super::{Demands, Estimate, Load, MemberCosts};
use crate::code::Code;

/// What loads come to that share the members, each under its code.
///
/// By mean value analysis of a closed network, approximately: the time of an operation follows from
/// the queues that it finds, and the queues follow from the rates that these times leave. Iterated
/// until they agree.
#[must_use]
pub fn estimate_all(loads: &[(Code, Load)], members: &[MemberCosts], demands: Demands) -> Vec<Estimate> {
    let kinds = kinds(members);
    let count = members.len();
    let mut all: Vec<Tenant> = loads.iter().map(|load| Tenant::new(*load, &kinds, count, demands)).collect();
    // What each makes each kind of members do.
    let mut work = vec![vec![Work::default(); kinds.len()]; all.len()];
    for _ in 0..ROUNDS_MAX {
        for (tenant, work) in all.iter().zip(&mut work) {
            let (reads, writes) = tenant.rates();
            let on = |kind: usize| tenant.work(kind, reads, writes);
            work.iter_mut().enumerate().for_each(|(kind, work)| *work = on(kind));
        }
        let mut changed = 0f64;
        for (at, tenant) in all.iter_mut().enumerate() {
            let others = |kind: usize| {
                let others = work.iter().enumerate().filter(|(other, _)| *other != at);
                others.map(|(_, work)| work[kind]).reduce(Work::and)
            };
            let others: Vec<Option<Work>> = (0..kinds.len()).map(others).collect();
            changed = changed.max(tenant.step(&kinds, &others));
        }
        if changed < AGREEMENT {
            break;
        }
    }
    let busy = |kind: usize| all.iter().map(|tenant| tenant.busy(kind)).sum::<f64>();
    let utilisation = (0..kinds.len()).map(busy).fold(0.0, f64::max);
    all.iter().map(|tenant| tenant.estimate(utilisation)).collect()
}

/// Rounds are damped: near saturation the rates overshoot otherwise.
const STEP: f64 = 0.1;
/// When the rounds have come to agree.
const AGREEMENT: f64 = 1e-6;
/// They agree long before.
const ROUNDS_MAX: usize = 3000;

/// Members that cost the same, and how many these are.
fn kinds(members: &[MemberCosts]) -> Vec<(MemberCosts, f64)> {
    let mut kinds: Vec<(MemberCosts, f64)> = Vec::new();
    for member in members {
        match kinds.iter_mut().find(|(kind, _)| kind == member) {
            Some((_, count)) => *count += 1.0,
            None => kinds.push((*member, 1.0)),
        }
    }
    kinds
}

/// A load among others.
struct Tenant {
    code: Code,
    load: Load,
    members: usize,
    /// Fragments of a write that it waits for.
    acknowledged: usize,
    /// Microseconds that a fragment's read takes, and its write, of each kind of members.
    each_us: Vec<(f64, f64)>,
    read_us: f64,
    write_us: f64,
}

impl Tenant {
    fn new(
        (code, load): (Code, Load),
        kinds: &[(MemberCosts, f64)],
        members: usize,
        demands: Demands,
    ) -> Tenant {
        assert!(code.written() <= members, "{code} on {members} members");
        let bytes = code.fragment_bytes(demands.page_bytes, demands.block_bytes);
        let each = |(member, _): &(MemberCosts, f64)| (member.read.of(bytes), member.write.of(bytes));
        let each_us: Vec<(f64, f64)> = kinds.iter().map(each).collect();
        let takes_time = |(read_us, write_us): &(f64, f64)| *read_us > 0.0 && *write_us > 0.0;
        assert!(each_us.iter().all(takes_time), "a member takes time for every fragment");
        let read_us = mean(kinds, members, |kind| each_us[kind].0);
        let write_us = mean(kinds, members, |kind| each_us[kind].1);
        let acknowledged = (code.needed() + demands.survive).min(code.written());
        Tenant { code, load, members, acknowledged, each_us, read_us, write_us }
    }

    /// Operations a microsecond.
    fn rates(&self) -> (f64, f64) {
        (self.load.readers.rate(self.read_us), self.load.writers.rate(self.write_us))
    }

    /// What operations at these rates make a member do.
    fn work(&self, kind: usize, reads: f64, writes: f64) -> Work {
        self.fragments(kind, reads, writes).work(self.read_us, self.write_us)
    }

    fn fragments(&self, kind: usize, reads: f64, writes: f64) -> Fragments {
        let (count, (read_us, write_us)) = (self.members as f64, self.each_us[kind]);
        Fragments {
            reads: reads * self.code.needed() as f64 / count,
            writes: writes * self.code.written() as f64 / count,
            read_us,
            write_us,
        }
    }

    /// A round: beside the work of others. Returns by how much its times changed.
    fn step(&mut self, kinds: &[(MemberCosts, f64)], others: &[Option<Work>]) -> f64 {
        let (reads, writes) = self.rates();
        let found = |kind: usize, reads: f64, writes: f64| {
            let own = self.work(kind, reads, writes);
            others[kind].map_or(own, |others| own.and(others)).queue()
        };
        let new_read_us = mean(kinds, self.members, |kind| {
            let queue = found(kind, reads * self.load.readers.others(), writes);
            self.each_us[kind].0 + queue.wait_us(self.code, self.code.needed(), self.members)
        });
        let new_write_us = mean(kinds, self.members, |kind| {
            let queue = found(kind, reads, writes * self.load.writers.others());
            self.each_us[kind].1 + queue.wait_us(self.code, self.acknowledged, self.members)
        });
        let changed =
            (new_read_us / self.read_us - 1.0).abs().max((new_write_us / self.write_us - 1.0).abs());
        self.read_us += STEP * (new_read_us - self.read_us);
        self.write_us += STEP * (new_write_us - self.write_us);
        changed
    }

    /// The share of the time that it keeps a member busy.
    fn busy(&self, kind: usize) -> f64 {
        let ((reads, writes), (read_us, write_us)) = (self.rates(), self.each_us[kind]);
        let (needed, written) = (self.code.needed() as f64, self.code.written() as f64);
        (reads * needed * read_us + writes * written * write_us) / self.members as f64
    }

    fn estimate(&self, utilisation: f64) -> Estimate {
        let (reads, writes) = self.rates();
        let (read_us, write_us) = (self.read_us, self.write_us);
        Estimate { reads: reads * 1e6, writes: writes * 1e6, read_us, write_us, utilisation }
    }
}

/// Over the members, of what each kind has.
fn mean(kinds: &[(MemberCosts, f64)], members: usize, of: impl Fn(usize) -> f64) -> f64 {
    kinds.iter().enumerate().map(|(kind, (_, count))| count * of(kind)).sum::<f64>() / members as f64
}
