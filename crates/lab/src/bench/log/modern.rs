//! What the paper could not measure: three network volumes, one of which misbehaves; and when to
//! compose requests.

use super::figure::{Figure, Panel, Point};
use super::machine::{Cell, Logs};
use super::measuring::Bench;
use super::stream::{Fault, Size, StreamCell};
use super::tpcc_figures::DRIVES;
use crate::bench::cells::Judged;
use firndb_console::Failure;
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
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
        })
    };
    let spikes = Fault { device: 1, spikes: Some((0.01, Duration::from_millis(100))), frozen: None };
    let frozen = (Duration::from_secs(2), Duration::from_secs(7));
    let frozen = Fault { device: 1, spikes: None, frozen: Some(frozen) };
    let title = "Commit latency on three network volumes, one of which misbehaves";
    let mut panel = Panel::of_bars("flashlogging-modern", title, "what the volume does", "milliseconds");
    (panel.log_y, panel.digits) = (true, 2);
    let mut found = Vec::new();
    let cases = [
        ("nothing unusual", Hedging::Adaptive, None),
        ("spikes, hidden", Hedging::Adaptive, Some(spikes)),
        ("spikes, not hidden", Hedging::Off, Some(spikes)),
        ("stops for 5 s, hidden", Hedging::Adaptive, Some(frozen)),
        ("stops for 5 s, not hidden", Hedging::Off, Some(frozen)),
    ];
    for (at, (name, hiding, fault)) in cases.into_iter().enumerate() {
        let one = bench.stream(&cell(hiding, fault)?, Judged::Yes)?;
        for (series, us) in [
            ("median", one.value(|it| it.latency.p50)),
            ("99.9 % are shorter", one.value(|it| it.latency.p999)),
            ("longest", one.value(|it| it.latency.max)),
        ] {
            panel.add(series, Point::new(at as f64, name, &us.map(|us| us / 1000.0)));
        }
        found.push(one);
    }
    figure.panels.push(panel);
    let p999 = |at: usize| found[at].value(|it| it.latency.p999);
    figure.at_most("spikes hidden: p99.9 / that without fault", &p999(1).over(&p999(0)), 1.5);
    figure.at_least("spikes: p99.9 not hidden / hidden", &p999(2).over(&p999(1)), 30.0);
    let longest = |at: usize| found[at].value(|it| it.latency.max);
    let beyond = longest(3).with(&longest(0), |one, two| (one - two) / 1000.0);
    figure.at_most("frozen for 5 s: longest commit beyond the longest without fault, ms", &beyond, 10.0);
    if bench.is_real() {
        figure.notes.push("Measured in real time, through emulated volumes.".into());
    }
    Ok(figure)
}

/// Requests composed at the flush call, as in the paper, and when a device falls free.
pub fn composing(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("compose", "when requests are composed: TPC-C on two drives");
    for cpu in bench.cpus() {
        let title = format!("TPC-C on two log devices, requests composed in two ways: {}", cpu.title());
        let key = format!("flashlogging-compose-{}", cpu.name);
        let mut panel = Panel::new(&key, &title, "clients", "New-Orders a minute");
        (panel.log_x, panel.log_y) = (true, true);
        for (drive, hiding) in DRIVES {
            for clients in bench.clients() {
                for (compose, name) in [
                    (Compose::AtFlush, "at the flush call"),
                    (Compose::WhenDeviceFree, "when a device is free"),
                ] {
                    let logs = Logs::Each(bench.profile(drive)?, 2);
                    let cell = Cell { compose, ..Cell::new(logs, hiding, clients, cpu, bench.time()) };
                    let rate = bench.tpcc(&cell, Judged::No)?.value(|found| found.tpm);
                    let series = format!("{drive}, {name}");
                    panel.add(&series, Point::new(clients as f64, clients.to_string(), &rate));
                }
            }
        }
        figure.panels.push(panel);
    }
    Ok(figure)
}
