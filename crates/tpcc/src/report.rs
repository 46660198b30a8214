//! The report of a TPC-C run, for people.

use firndb::{Database, IoCounts, IoTotal};
use firndb_console::{size, table};
use firndb_workloads::results::TpccResult;
use firndb_workloads::{RunReport, tpcc};
use std::fmt::Write;

/// A number of things, in words.
pub fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

pub fn of(result: &TpccResult, db: &Database, io: &IoCounts, report: &RunReport) -> String {
    let statistics = db.statistics();
    let commits = result.commits.max(1) as f64;
    let share = result.buffer.get("hit_rate").and_then(serde_json::Value::as_f64).unwrap_or(1.0);
    let mut text = String::new();
    let mut tiers = vec![("log", io.log_total()), ("store", io.store_total())];
    if io.cache.is_some() {
        tiers.push(("cache", io.cache_total()));
    }
    let _ = write!(
        text,
        "TPC-C: {}, {}, {} isolation, {:.1} s measured\n\n{}\n\n\
         {:.0} tpmC, {:.0} durable commits per second\n\
         run again: {} after conflicts, {} after deadlocks; rolled back because the input asks for it: {}\n\n\
         {}\n\nlog writes by size: {}\n\
         page buffer {}, hit rate {:.2} %; before-images {}; {}database {}",
        count(result.warehouses.into(), "warehouse"),
        count(result.clients as u64, "client"),
        result.isolation,
        report.seconds,
        transactions(result),
        result.tpm_c,
        result.transactions_per_second,
        result.aborts.conflict,
        result.aborts.deadlock,
        result.aborts.user,
        io_table(&tiers, commits),
        sizes(io),
        size::show(statistics.buffer.memory_bytes),
        100.0 * share,
        size::show(statistics.txn.version_bytes),
        peak_memory(result),
        size::show(db.size_on_devices()),
    );
    if let Some(cache) = &statistics.cache {
        let _ = write!(
            text,
            "\nflash cache {}: {:.1} % of what DRAM missed, {:.1} % of dirty pages needed no write to the store (since the opening)",
            size::show(cache.slots * statistics.page_size as u64),
            100.0 * cache.hit_share(),
            100.0 * cache.write_reduction(),
        );
    }
    if !result.full_scale {
        text.push_str("\nThe population is scaled down: these are not TPC-C's figures.");
    }
    text
}

/// A simulation's report says nothing of the machine that it ran on.
fn peak_memory(result: &TpccResult) -> String {
    if result.conditions.simulated {
        return String::new();
    }
    let peak = result.memory_peak_bytes.map_or_else(|| "unknown".to_owned(), size::show);
    format!("peak memory of the process {peak}; ")
}

fn transactions(result: &TpccResult) -> String {
    let mut table = table::new(&[
        "transaction",
        "count",
        "per second",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
    ]);
    for name in tpcc::KINDS {
        let Some(kind) = result.transactions.get(name) else { continue };
        let latency = kind.latency_us;
        let mut row = vec![name.to_owned(), kind.count.to_string(), format!("{:.1}", kind.per_second)];
        let times = [latency.p50, latency.p95, latency.p99, latency.p999, latency.max];
        row.extend(times.map(|us| format!("{:.2}", us / 1000.0)));
        table.add_row(row);
    }
    table::text(table, 1)
}

fn io_table(tiers: &[(&str, IoTotal)], commits: f64) -> String {
    let mut table =
        table::new(&["I/O per transaction", "writes", "bytes written", "flushes", "reads", "bytes read"]);
    for (name, total) in tiers {
        let per = |count: u64| format!("{:.3}", count as f64 / commits);
        let bytes = |count: u64| format!("{:.0}", count as f64 / commits);
        table.add_row([
            (*name).to_owned(),
            per(total.write_ops),
            bytes(total.write_bytes),
            per(total.flushes),
            per(total.read_ops),
            bytes(total.read_bytes),
        ]);
    }
    table::text(table, 1)
}

/// Shares of the log's writes by their size.
fn sizes(io: &IoCounts) -> String {
    let mut counts = [0u64; firndb::device::DeviceCounts::SIZES];
    for log in &io.logs {
        counts.iter_mut().zip(log.writes_by_size).for_each(|(sum, count)| *sum += count);
    }
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return "none".to_owned();
    }
    let shares = counts.iter().enumerate().filter(|(_, count)| **count * 200 >= all).map(|(class, count)| {
        format!("from {} {:.0} %", size::show(512 << class), 100.0 * *count as f64 / all as f64)
    });
    shares.collect::<Vec<_>>().join(", ")
}
