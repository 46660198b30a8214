//! The report of a TPC-C run, for people.

use crate::size;
use comfy_table::{CellAlignment, Table, presets};
use firn::{Database, IoCounts, IoTotal};
use firn_workloads::results::TpccResult;
use firn_workloads::{RunReport, tpcc};
use std::fmt::Write;

/// Share of page accesses answered from DRAM.
pub fn hit_rate(buffer: &firn::BufferStatistics) -> f64 {
    let all = buffer.hits + buffer.misses;
    if all == 0 { 1.0 } else { buffer.hits as f64 / all as f64 }
}

/// The whole report.
pub fn of(result: &TpccResult, db: &Database, io: &IoCounts, report: &RunReport) -> String {
    let mut text = String::new();
    let statistics = db.statistics();
    let _ = writeln!(
        text,
        "TPC-C, {} warehouses, {} clients, {} isolation, {:.1} s",
        result.warehouses, result.clients, result.isolation, report.seconds
    );
    let _ = writeln!(text, "{}", transactions(result));
    let _ = writeln!(
        text,
        "{:.0} tpmC, {:.0} durable commits a second; retried: {} conflicts, {} deadlocks; {} rolled back by intent",
        result.tpm_c,
        result.transactions_per_second,
        result.aborts.conflict,
        result.aborts.deadlock,
        result.aborts.user
    );
    let commits = result.commits.max(1) as f64;
    let _ = writeln!(
        text,
        "\nI/O a transaction\n{}",
        io_table(&[("log", io.log_total()), ("store", io.store_total())], commits)
    );
    let _ = writeln!(text, "log writes by size: {}", sizes(io));
    let _ = writeln!(
        text,
        "buffer: {} for pages, hit rate {:.2} %; before-images {}; peak memory of the process {}; database {}",
        size::show(statistics.buffer.memory_bytes),
        100.0 * hit_rate(&statistics.buffer),
        size::show(statistics.txn.version_bytes),
        result.memory_peak_bytes.map_or_else(|| "unknown".to_owned(), size::show),
        size::show(db.size_on_devices()),
    );
    text
}

fn right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn transactions(result: &TpccResult) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "transaction",
        "count",
        "a second",
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
        row.extend(times.map(|us| format!("{:.2}", us as f64 / 1000.0)));
        table.add_row(row);
    }
    right(&mut table);
    table
}

fn io_table(tiers: &[(&str, IoTotal)], commits: f64) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["tier", "writes", "bytes written", "flushes", "reads", "bytes read"]);
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
    right(&mut table);
    table
}

/// Shares of the log's writes by their size.
fn sizes(io: &IoCounts) -> String {
    let mut counts = [0u64; firn::device::DeviceCounts::SIZES];
    for log in &io.logs {
        counts.iter_mut().zip(log.writes_by_size).for_each(|(sum, count)| *sum += count);
    }
    let all: u64 = counts.iter().sum();
    let shares = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(class, count)| {
        format!("{} {:.0} %", size::show(512 << class), 100.0 * *count as f64 / all as f64)
    });
    shares.collect::<Vec<_>>().join(", ")
}
