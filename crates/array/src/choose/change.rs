//! Whether a table should have another code: a change has to promise much and to repay its moves,
//! and a load that does not change causes no second one.

use super::{Demands, Load, MemberCosts, estimate_all};
use crate::code::Code;
use std::collections::BTreeMap;

/// A change promises this share of the table's operations in addition, what it does to others
/// included.
const PROMISE: f64 = 0.2;
/// And this share of all operations: what is less cannot be told from noise.
const PROMISE_OF_ALL: f64 = 0.01;
/// Of codes that gain nearly as much as the best, by this share, that with the fewest fragments is
/// taken: each has costs that no estimate knows.
const NEARLY: f64 = 0.05;
/// Within this it gains as many operations as its moves keep others from.
const REPAYS_IN_US: f64 = 600e6;
/// A change of the same table is the best as often in a row before it is made.
const CONFIRMED: u32 = 3;
/// Two loads are alike up to this factor.
const ALIKE: f64 = 3.0;
/// Operations of a kind that are a smaller share of all do not make a load another one.
const NOTICED: f64 = 0.05;

/// A table as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableNow {
    /// By which it is known from one call to the next.
    pub id: u32,
    /// How its pages are fragmented.
    pub code: Code,
    /// What is done with them.
    pub load: Load,
    /// How many there are: all are read and written at a change.
    pub pages: u64,
    /// Whether it may have another code.
    pub may_change: bool,
}

/// Another code for a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Which table.
    pub id: u32,
    /// Its code.
    pub code: Code,
    /// Operations a second of all tables, as expected now and after the change.
    pub operations: (f64, f64),
    /// Microseconds for which the moves keep each member busy.
    pub moves_us: f64,
}

/// The best change of the code of one table that promises enough and repays its moves, if there is
/// one. Tables share the members: each change counts with what it does to the others.
#[must_use]
pub fn best_change(
    tables: &[TableNow],
    codes: &[Code],
    members: &[MemberCosts],
    demands: Demands,
) -> Option<Change> {
    let mut loads: Vec<(Code, Load)> = tables.iter().map(|table| (table.code, table.load)).collect();
    let now = estimate_all(&loads, members, demands);
    let all_now: f64 = now.iter().map(|estimate| estimate.operations()).sum();
    let mut found: Vec<Change> = Vec::new();
    for (at, table) in tables.iter().enumerate().filter(|(_, table)| table.may_change) {
        for code in codes.iter().copied().filter(|code| *code != table.code) {
            loads[at].0 = code;
            let after = estimate_all(&loads, members, demands);
            let all: f64 = after.iter().map(|estimate| estimate.operations()).sum();
            let (gain, moves_us) = (all - all_now, moves_us(table, code, members, demands));
            let promises = gain >= PROMISE * now[at].operations() && gain >= PROMISE_OF_ALL * all_now;
            let repays = gain * REPAYS_IN_US >= all_now * moves_us;
            if gain > 0.0 && promises && repays {
                found.push(Change { id: table.id, code, operations: (all_now, all), moves_us });
            }
        }
        loads[at].0 = table.code;
    }
    let gain = |change: &Change| change.operations.1 - change.operations.0;
    let most = found.iter().map(gain).fold(0.0, f64::max);
    let good = found.into_iter().filter(|change| gain(change) >= (1.0 - NEARLY) * most);
    good.min_by(|a, b| {
        let fragments = |change: &Change| (change.code.written(), change.code.needed());
        fragments(a).cmp(&fragments(b)).then(gain(b).total_cmp(&gain(a)))
    })
}

/// Microseconds for which moving all pages keeps each member busy, on average.
fn moves_us(table: &TableNow, to: Code, members: &[MemberCosts], demands: Demands) -> f64 {
    let bytes = |code: Code| code.fragment_bytes(demands.page_bytes, demands.block_bytes);
    let read_us = table.code.needed() as f64 * mean(members, |member| member.read.of(bytes(table.code)));
    let write_us = to.written() as f64 * mean(members, |member| member.write.of(bytes(to)));
    table.pages as f64 * (read_us + write_us) / members.len() as f64
}

fn mean(members: &[MemberCosts], of: impl Fn(&MemberCosts) -> f64) -> f64 {
    members.iter().map(of).sum::<f64>() / members.len() as f64
}

/// Operations a microsecond that clients would do if they never waited for each other: about the
/// same under each code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Demand {
    reads: f64,
    writes: f64,
}

impl Demand {
    fn of(load: &Load, members: &[MemberCosts], demands: Demands) -> Demand {
        let read_us = mean(members, |member| member.read.of(demands.page_bytes));
        let write_us = mean(members, |member| member.write.of(demands.page_bytes));
        Demand { reads: load.readers.rate(read_us), writes: load.writers.rate(write_us) }
    }

    fn and(self, other: Demand) -> Demand {
        Demand { reads: self.reads + other.reads, writes: self.writes + other.writes }
    }

    /// Whether it is about the same, where what is less than `least` does not count.
    fn is_like(self, other: Demand, least: f64) -> bool {
        let alike = |one: f64, other: f64| {
            let (less, more) = (one.min(other), one.max(other));
            more <= least || more <= ALIKE * less
        };
        alike(self.reads, other.reads) && alike(self.writes, other.writes)
    }

    fn sum(self) -> f64 {
        self.reads + self.writes
    }
}

/// What a table's code was chosen for.
#[derive(Clone, Copy, Debug)]
struct Settled {
    own: Demand,
    others: Demand,
    /// How often in a row the load was another one.
    unlike: u32,
}

/// Chooses changes from what is measured again and again.
#[derive(Clone, Debug, Default)]
pub struct Chooser {
    settled: BTreeMap<u32, Settled>,
    /// The table of the best change last time, and how often it was in a row. Of codes that are
    /// nearly as good now one is the best and now another.
    proposed: Option<(u32, u32)>,
}

impl Chooser {
    /// A change was not made after all: it is proposed again.
    pub fn forget(&mut self, id: u32) {
        self.settled.remove(&id);
    }

    /// Forgets tables that there are no more.
    pub fn keep(&mut self, is_there: impl Fn(u32) -> bool) {
        self.settled.retain(|id, _| is_there(*id));
    }

    /// The change that is to be made now, after the load was measured once more. Its table's code
    /// is settled then, as long as neither its load nor that of the others becomes another one.
    /// What is not among the tables this time is as it was.
    pub fn next(
        &mut self,
        tables: &[TableNow],
        codes: &[Code],
        members: &[MemberCosts],
        demands: Demands,
    ) -> Option<Change> {
        let each: Vec<Demand> = tables.iter().map(|it| Demand::of(&it.load, members, demands)).collect();
        let all = each.iter().fold(Demand::default(), |sum, demand| sum.and(*demand));
        let others = |own: Demand| Demand { reads: all.reads - own.reads, writes: all.writes - own.writes };
        self.settled.retain(|id, settled| {
            let Some(at) = tables.iter().position(|table| table.id == *id) else { return true };
            let least = NOTICED * all.sum().max(settled.own.and(settled.others).sum());
            let is_like =
                settled.own.is_like(each[at], least) && settled.others.is_like(others(each[at]), least);
            settled.unlike = if is_like { 0 } else { settled.unlike + 1 };
            settled.unlike < CONFIRMED
        });
        let open = |table: &TableNow| TableNow {
            may_change: table.may_change && !self.settled.contains_key(&table.id),
            ..*table
        };
        let now: Vec<TableNow> = tables.iter().map(open).collect();
        let Some(best) = best_change(&now, codes, members, demands) else {
            self.proposed = None;
            return None;
        };
        let before = self.proposed.filter(|(id, _)| *id == best.id);
        let times = before.map_or(0, |(_, times)| times) + 1;
        self.proposed = Some((best.id, times));
        if times < CONFIRMED {
            return None;
        }
        self.proposed = None;
        let at = tables.iter().position(|table| table.id == best.id).expect("it is one of them");
        self.settled.insert(best.id, Settled { own: each[at], others: others(each[at]), unlike: 0 });
        Some(best)
    }
}

#[cfg(test)]
mod tests;
