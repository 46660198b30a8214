//! The cost of work on a simulated machine: processor time for each call to an engine.
//!
//! Two settings are meant to be compared with: Firn's own measured cost, and a slower machine and
//! engine on which the log is as small a part of the work as in another published experiment
//! ([`CostModel::reaching`]). Ratios between logs depend on that, so every result has to name its
//! setting. `docs/lab/tools/virtual-time.md` says how the constants were measured.

use std::time::Duration;

/// Processor time for each call to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Beginning a transaction, and the client's work for one beside its statements.
    pub begin: Duration,
    /// Reading a row by its key, for update or not.
    pub read: Duration,
    /// Inserting, replacing or deleting a row.
    pub write: Duration,
    /// Starting a scan.
    pub scan: Duration,
    /// Each row that a scan visits.
    pub row: Duration,
    /// Ending a transaction, and the work of the engine's own threads for one.
    pub commit: Duration,
}

/// The calls of a transaction to an engine, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Rows read by their key.
    pub reads: f64,
    /// Rows inserted, replaced or deleted.
    pub writes: f64,
    /// Scans.
    pub scans: f64,
    /// Rows that scans visit.
    pub rows: f64,
}

/// TPC-C's standard mix over a population of full scale. Printed by this crate's example
/// `cost_model`.
pub const STANDARD_MIX: Work = Work { reads: 21.09, writes: 17.37, scans: 1.194, rows: 13.59 };

/// Share of New-Orders that commit among the transactions of the standard mix: 45 %, less those
/// that the inputs roll back.
const NEW_ORDER_SHARE: f64 = 0.45 * 0.99;

impl CostModel {
    /// A model in which nothing takes time.
    pub const FREE: CostModel = CostModel {
        begin: Duration::ZERO,
        read: Duration::ZERO,
        write: Duration::ZERO,
        scan: Duration::ZERO,
        row: Duration::ZERO,
        commit: Duration::ZERO,
    };

    /// Firn's own cost on a core of 2024: instructions counted on TPC-C in memory, at 5
    /// instructions a nanosecond.
    pub const FIRN: CostModel = CostModel {
        begin: Duration::from_nanos(3670),
        read: Duration::from_nanos(441),
        write: Duration::from_nanos(1227),
        scan: Duration::from_nanos(2617),
        row: Duration::from_nanos(88),
        commit: Duration::from_nanos(6234),
    };

    /// This model, slower by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> CostModel {
        CostModel {
            begin: self.begin.mul_f64(factor),
            read: self.read.mul_f64(factor),
            write: self.write.mul_f64(factor),
            scan: self.scan.mul_f64(factor),
            row: self.row.mul_f64(factor),
            commit: self.commit.mul_f64(factor),
        }
    }

    /// Processor time of a transaction that does `work`.
    #[must_use]
    pub fn of(&self, work: &Work) -> Duration {
        self.begin
            + self.read.mul_f64(work.reads)
            + self.write.mul_f64(work.writes)
            + self.scan.mul_f64(work.scans)
            + self.row.mul_f64(work.rows)
            + self.commit
    }

    /// The factor by which this model must be slower so that `cores` cores that never wait commit
    /// `new_orders` New-Orders a minute of TPC-C's standard mix.
    #[must_use]
    pub fn factor_reaching(&self, new_orders: f64, cores: f64) -> f64 {
        let transactions_per_second = new_orders / 60.0 / NEW_ORDER_SHARE;
        cores / transactions_per_second / self.of(&STANDARD_MIX).as_secs_f64()
    }

    /// This model, slower by [`CostModel::factor_reaching`].
    #[must_use]
    pub fn reaching(self, new_orders: f64, cores: f64) -> CostModel {
        self.times(self.factor_reaching(new_orders, cores))
    }

    /// Each cost by its name, in nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self) -> [(&'static str, u64); 6] {
        [
            ("begin", self.begin),
            ("read", self.read),
            ("write", self.write),
            ("scan", self.scan),
            ("row", self.row),
            ("commit", self.commit),
        ]
        .map(|(name, cost)| (name, cost.as_nanos() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_scale_every_cost() {
        let twice = CostModel::FIRN.times(2.0);
        for (one, two) in CostModel::FIRN.nanoseconds().iter().zip(twice.nanoseconds()) {
            assert_eq!(one.1 * 2, two.1, "{}", one.0);
        }
        assert_eq!(CostModel::FREE.times(7.0), CostModel::FREE);
    }

    #[test]
    fn a_rate_decides_what_a_transaction_costs() {
        // 60,000 New-Orders a minute are 2,245 transactions a second: two cores have 891 µs for
        // each.
        let slow = CostModel::FIRN.reaching(60_000.0, 2.0).of(&STANDARD_MIX);
        assert!((slow.as_secs_f64() - 891e-6).abs() < 1e-6, "{slow:?}");
        let slower = CostModel::FIRN.reaching(30_000.0, 2.0).of(&STANDARD_MIX);
        assert!((slower.as_secs_f64() / slow.as_secs_f64() - 2.0).abs() < 1e-3);
    }
}
