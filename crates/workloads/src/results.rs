//! Results as JSON, in the layout that all of the project's tools write, and as a table for
//! readers.

use crate::latency::Latency;
use crate::report::{RetryCounts, RunReport};
use crate::tpcc::{Condition, Scale};
use crate::wall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The conditions of a result; the head of every file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// `firn-tpcc/1` or `firn-bench/1`.
    pub schema: String,
    /// Commit of the source; `unknown` outside a checkout.
    pub commit: String,
    /// The whole effective configuration.
    pub config: Value,
    /// FNV-1a of the configuration's JSON, as 16 hexadecimal digits.
    pub config_hash: String,
    /// Name of the emulated device's profile, if there is one.
    pub device_profile: Option<String>,
    /// Whether time was virtual.
    pub simulated: bool,
    /// Seed of the inputs.
    pub seed: u64,
    /// Start of the run, in UTC.
    pub started_at: String,
    /// Length of the measured interval.
    pub seconds: f64,
}

impl Conditions {
    /// Conditions of a run in real time on real devices that starts now; `seconds` is filled in
    /// after it.
    #[must_use]
    pub fn now(schema: &str, commit: impl Into<String>, config: Value, seed: u64) -> Conditions {
        Conditions {
            schema: schema.to_owned(),
            commit: commit.into(),
            config_hash: config_hash(&config),
            config,
            device_profile: None,
            simulated: false,
            seed,
            started_at: wall::iso8601(wall::now_us()),
            seconds: 0.0,
        }
    }
}

/// FNV-1a (64 bits) of a configuration's JSON. Keys are sorted, so equal configurations have equal
/// hashes.
#[must_use]
pub fn config_hash(config: &Value) -> String {
    let bytes = config.to_string();
    let hash = bytes
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// Transactions that did not commit, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Aborts {
    /// Requested by the input.
    pub user: u64,
    /// Run again after a conflict.
    pub conflict: u64,
    /// Run again after a deadlock.
    pub deadlock: u64,
    /// Run again because the engine was busy.
    pub busy: u64,
}

impl Aborts {
    fn of(user: u64, retries: RetryCounts) -> Aborts {
        Aborts { user, conflict: retries.conflict, deadlock: retries.deadlock, busy: retries.busy }
    }
}

/// One kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TransactionResult {
    /// Durable commits.
    pub count: u64,
    /// Durable commits a second.
    pub per_second: f64,
    /// Transactions that did not commit.
    pub aborts: Aborts,
    /// Latency, retries included.
    pub latency_us: Latency,
}

/// The result of a consistency check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConsistencyResult {
    /// Numbers of the conditions checked.
    pub checked: Vec<u8>,
    /// Numbers of those that do not hold.
    pub failed: Vec<u8>,
    /// A sentence for each that does not hold.
    pub failures: Vec<String>,
}

impl ConsistencyResult {
    /// Summarises conditions.
    #[must_use]
    pub fn of(conditions: &[Condition]) -> ConsistencyResult {
        let failed = || conditions.iter().filter(|condition| !condition.holds());
        ConsistencyResult {
            checked: conditions.iter().map(|condition| condition.number).collect(),
            failed: failed().map(|condition| condition.number).collect(),
            failures: failed().map(ToString::to_string).collect(),
        }
    }
}

/// Operations and bytes of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierIo {
    /// Writes.
    pub write_ops: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub read_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
}

/// A run of TPC-C, as `firn tpcc --json` writes it.
#[derive(Clone, Debug, Serialize)]
pub struct TpccResult {
    /// The conditions of the run.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The engine's name.
    pub engine: String,
    /// The scale: number of warehouses.
    pub warehouses: u32,
    /// Whether the population is the specification's; if not, the figures are not TPC-C's.
    pub full_scale: bool,
    /// Clients.
    pub clients: usize,
    /// Isolation level.
    pub isolation: String,
    /// Durably committed New-Orders a minute. Those rolled back on purpose are not among them.
    #[serde(rename = "tpmC")]
    pub tpm_c: f64,
    /// Durable commits of all kinds a second.
    pub transactions_per_second: f64,
    /// Durable commits of all kinds.
    pub commits: u64,
    /// Transactions that did not commit.
    pub aborts: Aborts,
    /// Results by kind of transaction.
    pub transactions: BTreeMap<String, TransactionResult>,
    /// I/O by tier (`log`, `cache`, `delta`, `store`), for engines that count it; `map`, pages of
    /// the page map, is part of `store`.
    pub io: BTreeMap<String, TierIo>,
    /// Figures of the DRAM buffer: `budget_bytes`, `hit_rate`.
    pub buffer: Map<String, Value>,
    /// Figures of the flash cache: `hit_rate`.
    pub cache: Map<String, Value>,
    /// The process's largest resident set, if known.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes of the database's files, if known.
    pub database_bytes: Option<u64>,
    /// Result of the consistency check; empty if none was made.
    pub consistency: ConsistencyResult,
    /// Figures of a run in virtual time: `virtual_seconds`, `steps`, `trace_hash`, which follow
    /// from the seed, and `real_seconds`, which do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Value>,
}

impl TpccResult {
    /// A result; the caller still fills in the engine's own counters (`io`, `buffer`, `cache`,
    /// sizes) and the consistency.
    #[must_use]
    pub fn new(
        mut conditions: Conditions,
        (engine, isolation): (&str, &str),
        (scale, clients): (Scale, usize),
        report: &RunReport,
    ) -> TpccResult {
        conditions.seconds = report.seconds;
        let simulated = conditions.simulated;
        let transactions = report.kinds.iter().map(|kind| {
            let result = TransactionResult {
                count: kind.commits,
                per_second: report.per_second(kind.commits),
                aborts: Aborts::of(kind.user_aborts, kind.retries),
                latency_us: kind.latency,
            };
            (kind.name.to_owned(), result)
        });
        TpccResult {
            conditions,
            engine: engine.into(),
            warehouses: scale.warehouses,
            full_scale: scale.is_full(),
            clients,
            isolation: isolation.into(),
            tpm_c: report.per_second(report.kinds[0].commits) * 60.0,
            transactions_per_second: report.per_second(report.commits()),
            commits: report.commits(),
            aborts: Aborts::of(report.user_aborts(), report.retries()),
            transactions: transactions.collect(),
            io: ["log", "cache", "delta", "store", "map"]
                .map(|tier| (tier.to_owned(), TierIo::default()))
                .into(),
            buffer: object(json!({"budget_bytes": null, "hit_rate": null})),
            cache: object(json!({"hit_rate": null})),
            // A simulation's result does not depend on the machine that it ran on.
            memory_peak_bytes: if simulated { None } else { memory_peak_bytes() },
            database_bytes: None,
            consistency: ConsistencyResult::default(),
            simulation: None,
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The process's largest resident set so far, where the system reports it (Linux).
#[must_use]
pub fn memory_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

impl fmt::Display for TpccResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} warehouses, {} clients, {} isolation, {:.1} s",
            self.engine, self.warehouses, self.clients, self.isolation, self.conditions.seconds
        )?;
        writeln!(
            f,
            "{:<14}{:>10}{:>10}{:>8}{:>9}{:>11}{:>11}{:>11}{:>11}{:>11}",
            "transaction",
            "commits",
            "per s",
            "user",
            "retries",
            "p50 us",
            "p95 us",
            "p99 us",
            "p99.9 us",
            "max us"
        )?;
        for name in crate::tpcc::KINDS {
            let Some(kind) = self.transactions.get(name) else { continue };
            let (aborts, latency) = (kind.aborts, kind.latency_us);
            writeln!(
                f,
                "{name:<14}{:>10}{:>10.1}{:>8}{:>9}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}",
                kind.count,
                kind.per_second,
                aborts.user,
                aborts.conflict + aborts.deadlock + aborts.busy,
                latency.p50,
                latency.p95,
                latency.p99,
                latency.p999,
                latency.max
            )?;
        }
        writeln!(f, "tpmC {:.0}, {:.1} transactions/s", self.tpm_c, self.transactions_per_second)?;
        if !self.full_scale {
            writeln!(f, "The population is scaled down: these are not TPC-C's figures.")?;
        }
        for failure in &self.consistency.failures {
            writeln!(f, "consistency: {failure}")?;
        }
        Ok(())
    }
}

/// One measurement of the commit bench.
#[derive(Clone, Debug, Serialize)]
pub struct CommitRow {
    /// The engine's name.
    pub engine: String,
    /// Clients.
    pub clients: usize,
    /// Durable commits a second.
    pub commits_per_second: f64,
    /// Latency from the transaction's begin until it was known durable.
    pub latency_us: Latency,
    /// Attempts repeated.
    pub retries: RetryCounts,
    /// Bytes of log for a commit, for engines that count them.
    pub log_bytes_per_commit: Option<f64>,
}

/// A ratio that an issue requires, and whether it is met.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Its name, which never changes without a line in the change log.
    pub name: String,
    /// The measured value; `None` if it could not be measured.
    pub value: Option<f64>,
    /// The limit.
    pub target: f64,
    /// `lower` or `higher`.
    pub better: &'static str,
    /// Whether the value meets the limit.
    pub met: bool,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A bench's results, as `firn lab bench --json` writes them.
#[derive(Clone, Debug, Serialize)]
pub struct BenchResult<R: Serialize> {
    /// The conditions of the run.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The bench's name.
    pub bench: String,
    /// Raw measurements.
    pub rows: Vec<R>,
    /// Ratios that issues require.
    pub targets: Vec<Target>,
    /// Comparisons with values printed in papers.
    pub paper: Vec<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_configurations_hash_alike_whatever_the_order_of_keys() {
        let one: Value = serde_json::from_str(r#"{"a": 1, "b": [2]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b": [2], "a": 1}"#).unwrap();
        assert_eq!(config_hash(&one), config_hash(&two));
        assert_ne!(config_hash(&one), config_hash(&json!({"a": 2, "b": [2]})));
    }
}
