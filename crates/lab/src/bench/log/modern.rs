//! What the paper could not measure: three network volumes, one of which misbehaves; and when to
//! compose requests.

use super::figure::{Figure, Panel, Point, round};
use super::machine::{Cell, Logs};
use super::measuring::Bench;
use super::stream::{Fault, Size, StreamCell, StreamFound};
use super::tpcc_figures::{DRIVES, row};
use firndb_console::Failure;
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
use serde_json::json;
use std::time::Duration;

/// One of three volumes has spikes of 100 ms in 1 % of its requests, or stands still for five
/// seconds.
pub fn misbehaving(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("modern", "three network volumes, one of which misbehaves");
    let time = Duration::from_secs(if bench.is_quick() { 8 } else { 30 });
    let cell = |hiding, fault| -> Result<StreamCell, Failure> {
        Ok(StreamCell {
            logs: Logs::Each(bench.profile("network-volume")?, 3),
            policy: LogPolicy::Array,
            compose: Compose::WhenDeviceFree,
            hiding,
            threads: 8,
            size: Size::Tpcc,
            work: Duration::from_micros(100),
            fault,
            warm_up: Duration::ZERO,
            time,
            seed: bench.seed(),
        })
    };
    let spikes = Fault { device: 1, spikes: Some((0.01, Duration::from_millis(100))), frozen: None };
    let frozen = (Duration::from_secs(2), Duration::from_secs(7));
    let frozen = Fault { device: 1, spikes: None, frozen: Some(frozen) };
    let mut panel =
        Panel::new("modern", "Three network volumes, one of which misbehaves", "case", "milliseconds");
    panel.digits = 2;
    let mut found: Vec<StreamFound> = Vec::new();
    let cases = [
        ("no fault", Hedging::Adaptive, None),
        ("spikes, hidden", Hedging::Adaptive, Some(spikes)),
        ("spikes, not hidden", Hedging::Off, Some(spikes)),
        ("frozen, hidden", Hedging::Adaptive, Some(frozen)),
        ("frozen, not hidden", Hedging::Off, Some(frozen)),
    ];
    for (at, (name, hiding, fault)) in cases.into_iter().enumerate() {
        let one = bench.stream(&cell(hiding, fault)?)?;
        for (series, us) in
            [("p50", one.latency.p50), ("p99.9", one.latency.p999), ("longest", one.latency.max)]
        {
            let label = name.to_owned();
            panel.add(series, Point { x: at as f64, label, value: us / 1000.0, range: None });
        }
        figure.rows.push(json!({
            "figure": "modern", "series": name, "device_profile": "network-volume", "log_devices": 3,
            "commits_per_second": round(one.per_second), "latency_us": one.latency,
            "reissued": one.log.hiding.reissued, "extra_bytes": round(one.extra_bytes()),
            "real_time": bench.is_real(),
        }));
        found.push(one);
    }
    figure.panels.push(panel);
    let p999 = |at: usize| found[at].latency.p999;
    figure.at_most("spikes hidden: p99.9 / that without fault", p999(1) / p999(0), 1.5);
    figure.at_least("spikes: p99.9 not hidden / hidden", p999(2) / p999(1), 30.0);
    let beyond = (found[3].latency.max - found[0].latency.max) / 1000.0;
    figure.at_most("frozen for 5 s: longest commit beyond the longest without fault, ms", beyond, 10.0);
    if bench.is_real() {
        figure.notes.push("Measured in real time, through emulated volumes.".into());
    }
    Ok(figure)
}

/// Requests composed at the flush call, as in the paper, and when a device falls free.
pub fn composing(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("compose", "when requests are composed: TPC-C on two drives");
    for cpu in bench.cpus() {
        let title = format!("Composing requests, processor: {}", cpu.name);
        let key = format!("compose-{}", cpu.name);
        let mut panel = Panel::new(&key, &title, "clients", "New-Orders a minute");
        panel.log_x = true;
        for (drive, hiding) in DRIVES {
            for clients in bench.clients() {
                for (compose, name) in
                    [(Compose::AtFlush, "at flush"), (Compose::WhenDeviceFree, "when free")]
                {
                    let logs = Logs::Each(bench.profile(drive)?, 2);
                    let cell = Cell::new(logs, hiding, clients, cpu, bench.tpcc_time(cpu), bench.seed());
                    let cell = Cell { compose, ..cell };
                    let series = format!("{drive} {name}");
                    let found = bench.tpcc(&series, &cell)?;
                    figure.rows.push(row("compose", &series, &cell, &found));
                    let label = clients.to_string();
                    panel.add(&series, Point { x: clients as f64, label, value: found.tpm, range: None });
                }
            }
        }
        figure.panels.push(panel);
    }
    Ok(figure)
}
