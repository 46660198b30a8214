//! Figures 7, 14 and 15: two sequential streams on one drive, and what hiding outliers gains.

use super::figure::{Figure, Panel, Point, round};
use super::machine::{Cell, Logs, simulate};
use super::measuring::Bench;
use super::stream::{Size, StreamCell, StreamFound, memories};
use super::tpcc_figures::{DRIVES, row};
use crate::bench::simulation::emulated;
use firndb_base::clock;
use firndb_console::{Failure, size};
use firndb_device::{AlignedBuf, Device, Durability};
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
use firndb_workloads::LatencyRecorder;
use serde_json::json;
use std::time::Duration;

const POLICIES: [(Hedging, &str); 4] = [
    (Hedging::Off, "no hiding"),
    (Hedging::Naive, "naive"),
    (Hedging::TwoStream, "2 streams"),
    (Hedging::Adaptive, "adaptive"),
];

/// Figure 7: of 4 KiB writes to one drive, one in a hundred goes to a second sequential stream.
pub fn two_streams(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("7", "two sequential streams of 4 KiB writes on one drive");
    let mut panel = Panel::new("figure-7", "Figure 7", "drive", "mean latency, microseconds");
    for (at, (drive, _)) in DRIVES.into_iter().enumerate() {
        let profile = bench.profile(drive)?;
        bench.measuring(format!("two streams on {drive}"))?;
        let seed = bench.seed();
        let writes = if bench.is_quick() { 2_000 } else { 20_000 };
        let (found, _) = simulate(seed, move || {
            let memory = memories(1, 256 << 20)?.remove(0);
            let device = emulated(memory, &profile, seed)?;
            let data = AlignedBuf::zeroed(4096);
            let mut next = [0u64, 192 << 20];
            let mut write = |stream: usize, recorder: &mut LatencyRecorder| -> Result<(), Failure> {
                let began = clock::now();
                let written = device.write(next[stream], &data, Durability::Durable);
                written.map_err(|error| Failure::new(error.to_string()))?;
                next[stream] += 4096;
                recorder.record(began.elapsed());
                Ok(())
            };
            let mut latencies = [const { None }; 3].map(|_: Option<()>| LatencyRecorder::default());
            for _ in 0..writes {
                write(0, &mut latencies[0])?;
            }
            for number in 0..writes {
                let second = number % 100 == 99;
                write(usize::from(second), &mut latencies[1 + usize::from(second)])?;
            }
            Ok(latencies.map(|recorder| recorder.summary()))
        })?;
        for (name, latency) in ["normal", "stream 1", "stream 2"].into_iter().zip(found) {
            let label = drive.to_owned();
            panel.add(name, Point { x: at as f64, label, value: latency.mean, range: None });
            figure.rows.push(json!({
                "figure": "7", "series": name, "device_profile": drive, "latency_us": latency,
            }));
        }
    }
    figure.panels.push(panel);
    figure.notes.push(
        "That two streams cost what one does is in the profiles, as the text says so; how many more do is not printed."
            .into(),
    );
    Ok(figure)
}

/// Four threads issue requests of one size: the text's micro-benchmark.
fn micro(bench: &Bench, drive: &str, hiding: Hedging, bytes: u64) -> Result<StreamFound, Failure> {
    bench.stream(&StreamCell {
        logs: Logs::Each(bench.profile(drive)?, 2),
        policy: LogPolicy::Array,
        compose: Compose::AtFlush,
        hiding,
        threads: 4,
        size: Size::Fixed(bytes),
        work: Duration::ZERO,
        fault: None,
        warm_up: Duration::from_secs(1),
        time: 4 * bench.stream_time(),
        seed: bench.seed(),
    })
}

/// Figure 14: four threads, requests of a fixed size.
pub fn fixed_size(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("14", "hiding outliers with four threads and requests of a fixed size");
    let sizes: &[u64] =
        if bench.is_quick() { &[512, 4096, 16384] } else { &[512, 1024, 2048, 4096, 8192, 16384, 32768] };
    for (drive, _) in DRIVES {
        let title = format!("Figure 14, {drive}, two drives");
        let mut panel = Panel::new(&format!("figure-14-{drive}"), &title, "size of a request", "MB/s");
        (panel.log_x, panel.digits) = (true, 2);
        let (mut gain, mut reissues) = (0.0f64, 0.0f64);
        for &bytes in sizes {
            let mut found = Vec::new();
            for (hiding, name) in POLICIES {
                let one = micro(bench, drive, hiding, bytes)?;
                let label = size::show(bytes).replace(".0", "");
                panel.add(name, Point { x: bytes as f64, label, value: one.mb_per_second, range: None });
                figure.rows.push(json!({
                    "figure": "14", "series": name, "device_profile": drive, "request_bytes": bytes,
                    "mb_per_second": round(one.mb_per_second), "latency_us": one.latency,
                    "detected": one.log.hiding.detected, "reissued": one.log.hiding.reissued,
                    "extra_bytes": round(one.extra_bytes()),
                }));
                found.push(one);
            }
            gain = gain.max(found[2].mb_per_second / found[0].mb_per_second);
            let [naive, two] = [1, 2].map(|at: usize| found[at].log.hiding.reissued as f64);
            reissues = reissues.max(two / naive.max(1.0));
        }
        figure.panels.push(panel);
        let printed = if drive == "flash-c" { "1.37" } else { "1 (almost no effect)" };
        figure.beside(format!("{drive}: 2 streams / no hiding, most over sizes"), printed, gain);
        if drive == "flash-c" {
            figure.beside("flash-c: re-issues, 2 streams / naive, most over sizes", "18.6", reissues);
            figure.at_least("hiding on flash-C, fixed sizes: 2 streams / no hiding", gain, 1.37);
        }
    }
    Ok(figure)
}

/// Figure 15: TPC-C on two drives of flash-C.
pub fn tpcc(bench: &mut Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("15", "hiding outliers, TPC-C on two drives of flash-C");
    let profile = bench.profile("flash-c")?;
    let (mut gain, mut extra, mut adaptive) = (0.0f64, 0.0f64, f64::MAX);
    for cpu in bench.cpus() {
        let key = format!("figure-15-{}", cpu.name);
        let title = format!("Figure 15, flash-c, processor: {}", cpu.name);
        let mut panel = Panel::new(&key, &title, "clients", "New-Orders a minute");
        panel.log_x = true;
        for clients in bench.clients() {
            let mut found = Vec::new();
            for (hiding, name) in POLICIES {
                let logs = Logs::Each(profile.clone(), 2);
                let time = bench.tpcc_time_with_outliers(cpu);
                let cell = Cell::new(logs, hiding, clients, cpu, time, bench.seed());
                let one = bench.tpcc(&format!("flash-c {name}"), &cell)?;
                figure.rows.push(row("15", name, &cell, &one));
                let label = clients.to_string();
                panel.add(name, Point { x: clients as f64, label, value: one.tpm, range: None });
                found.push(one);
            }
            gain = gain.max(found[2].per_second / found[0].per_second);
            let written = &found[3].log;
            let again = written.hiding.reissued_bytes;
            extra = extra.max(again as f64 / (written.written_bytes - again).max(1) as f64);
            let better = found[0].per_second.max(found[2].per_second);
            adaptive = adaptive.min(found[3].per_second / better);
        }
        figure.panels.push(panel);
    }
    figure.beside("2 streams / no hiding, most over clients", "1.66", gain);
    figure.at_least("hiding on flash-C, TPC-C: 2 streams / no hiding", gain, 1.66);
    figure.at_most("hiding on flash-C, TPC-C: extra log bytes of adaptive hiding", extra, 0.05);
    let others = adaptive_elsewhere(bench, &mut figure)?;
    figure.at_least(
        "adaptive hiding / the better of on and off, least over profiles",
        adaptive.min(others),
        0.98,
    );
    Ok(figure)
}

/// Adaptive hiding beside on and off on every kind of device, with the log alone.
fn adaptive_elsewhere(bench: &Bench, figure: &mut Figure) -> Result<f64, Failure> {
    let names: &[&str] = if bench.is_quick() {
        &["flash-a", "network-volume-spiky"]
    } else {
        &[
            "flash-a",
            "flash-b",
            "flash-c",
            "ssd-2008",
            "microsd",
            "sata-ssd",
            "nvme",
            "network-volume",
            "network-volume-spiky",
            "disk-10k",
            "disk-7200",
        ]
    };
    let mut worst = f64::MAX;
    let mut panel =
        Panel::new("adaptive", "Adaptive hiding beside on and off", "profile", "commits a second");
    for (at, name) in names.iter().enumerate() {
        let mut rates = Vec::new();
        for (hiding, policy) in [POLICIES[0], POLICIES[2], POLICIES[3]] {
            let found = bench.stream(&StreamCell {
                logs: Logs::Each(bench.profile(name)?, 3),
                policy: LogPolicy::Array,
                compose: Compose::WhenDeviceFree,
                hiding,
                threads: 8,
                size: Size::Tpcc,
                work: Duration::from_micros(100),
                fault: None,
                warm_up: Duration::from_millis(500),
                time: 2 * bench.stream_time(),
                seed: bench.seed(),
            })?;
            let label = (*name).to_owned();
            panel.add(policy, Point { x: at as f64, label, value: found.per_second, range: None });
            figure.rows.push(json!({
                "figure": "15", "series": format!("log alone, {policy}"), "device_profile": name,
                "commits_per_second": round(found.per_second), "latency_us": found.latency,
                "reissued": found.log.hiding.reissued, "extra_bytes": round(found.extra_bytes()),
            }));
            rates.push(found.per_second);
        }
        worst = worst.min(rates[2] / rates[0].max(rates[1]));
    }
    figure.panels.push(panel);
    Ok(worst)
}
