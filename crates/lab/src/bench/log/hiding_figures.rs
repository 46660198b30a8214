//! Figures 7, 14 and 15: two sequential streams on one drive, and what hiding outliers gains.

use super::figure::{Figure, Panel, Point};
use super::found::StreamFound;
use super::machine::{Cell, Logs, simulate};
use super::measuring::Bench;
use super::stream::{Size, StreamCell, memories};
use super::tpcc_figures::DRIVES;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::emulated;
use firndb_base::clock;
use firndb_console::{Failure, size};
use firndb_device::{AlignedBuf, Device, Durability};
use firndb_log_comparators::{Compose, Hedging, LogPolicy};
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::{Latency, LatencyRecorder};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const POLICIES: [(Hedging, &str); 4] = [
    (Hedging::Off, "no hiding"),
    (Hedging::Naive, "naive"),
    (Hedging::TwoStream, "2 streams"),
    (Hedging::Adaptive, "adaptive"),
];

/// Writes of 4 KiB, one after the other: all to one stream, then as many of which one in a hundred
/// goes to a second.
#[derive(Clone, Debug)]
struct TwoStreams {
    profile: DeviceProfile,
    writes: u64,
}

/// Latencies of each stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StreamLatencies {
    alone: Latency,
    first: Latency,
    second: Latency,
}

impl Cellular for TwoStreams {
    type Found = StreamLatencies;

    fn name(&self) -> String {
        format!("two streams of writes on {}", self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<TwoStreams> {
        end_of(&self.profile, end).map(|profile| TwoStreams { profile, ..self.clone() })
    }
}

fn run_two_streams(cell: &TwoStreams, seed: u64) -> Result<StreamLatencies, Failure> {
    let cell = cell.clone();
    let (found, _) = simulate(seed, move || {
        let memory = memories(1, 256 << 20)?.remove(0);
        let device = emulated(memory, &cell.profile, seed)?;
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
        for _ in 0..cell.writes {
            write(0, &mut latencies[0])?;
        }
        for number in 0..cell.writes {
            let second = number % 100 == 99;
            write(usize::from(second), &mut latencies[1 + usize::from(second)])?;
        }
        let [alone, first, second] = latencies.map(|recorder| recorder.summary());
        Ok(StreamLatencies { alone, first, second })
    })?;
    Ok(found)
}

/// Figure 7: of 4 KiB writes to one drive, one in a hundred goes to a second sequential stream.
pub fn two_streams(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("7", "two sequential streams of 4 KiB writes on one drive").of_inputs();
    let title = "Writes of 4 KiB to one drive: one stream, and two of which one is rarely written";
    let mut panel = Panel::of_bars("flashlogging-figure-7", title, "drive", "mean latency, microseconds");
    for (at, (drive, _)) in DRIVES.into_iter().enumerate() {
        let writes = if bench.is_quick() { 2_000 } else { 20_000 };
        let cell = TwoStreams { profile: bench.profile(drive)?, writes };
        let found = bench.cells.of(&cell, Judged::No, run_two_streams)?;
        let of = |which: fn(&StreamLatencies) -> f64| found.value(which);
        for (name, latency) in [
            ("one stream alone", of(|it| it.alone.mean)),
            ("first of two", of(|it| it.first.mean)),
            ("second, 1 % of the writes", of(|it| it.second.mean)),
        ] {
            panel.add(name, Point::new(at as f64, drive, &latency));
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
fn micro(bench: &Bench, drive: &str, hiding: Hedging, bytes: u64) -> Result<Measured<StreamFound>, Failure> {
    let cell = StreamCell {
        logs: Logs::Each(bench.profile(drive)?, 2),
        policy: LogPolicy::Array,
        compose: Compose::AtFlush,
        hiding,
        threads: 4,
        size: Size::Fixed(bytes),
        work: Duration::ZERO,
        fault: None,
        warm_up: Duration::from_secs(1),
        time: bench.time(),
    };
    bench.stream(&cell, if drive == "flash-c" { Judged::Yes } else { Judged::No })
}

/// Figure 14: four threads, requests of a fixed size.
pub fn fixed_size(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("14", "hiding outliers with four threads and requests of a fixed size");
    let sizes: &[u64] =
        if bench.is_quick() { &[512, 4096, 16384] } else { &[512, 1024, 2048, 4096, 8192, 16384, 32768] };
    for (drive, _) in DRIVES {
        let title = format!("Hiding long writes on two drives {drive}, four threads, writes of one size");
        let key = format!("flashlogging-figure-14-{drive}");
        let mut panel = Panel::new(&key, &title, "size of a write", "MB/s on both drives");
        (panel.log_x, panel.log_y, panel.digits) = (true, true, 2);
        let (mut gains, mut reissues) = (Vec::new(), Vec::new());
        for &bytes in sizes {
            let mut found = Vec::new();
            for (hiding, name) in POLICIES {
                let one = micro(bench, drive, hiding, bytes)?;
                let label = size::show(bytes).replace(".0", "");
                panel.add(name, Point::new(bytes as f64, label, &one.value(|it| it.mb_per_second)));
                found.push(one);
            }
            let rate = |at: usize| found[at].value(|it| it.mb_per_second);
            gains.push(rate(2).over(&rate(0)));
            let reissued = |at: usize| found[at].value(|it| it.log.reissued as f64);
            reissues.push(reissued(2).with(&reissued(1), |two, naive| two / naive.max(1.0)));
        }
        figure.panels.push(panel);
        let (gain, reissues) =
            (Sampled::most(&gains).unwrap_or_default(), Sampled::most(&reissues).unwrap_or_default());
        let printed = if drive == "flash-c" { "1.37" } else { "1 (almost no effect)" };
        figure.beside(format!("{drive}: 2 streams / no hiding, most over sizes"), printed, &gain);
        if drive == "flash-c" {
            figure.beside("flash-c: re-issues, 2 streams / naive, most over sizes", "18.6", &reissues);
            figure.at_least("hiding on flash-C, fixed sizes: 2 streams / no hiding", &gain, 1.37);
        }
    }
    Ok(figure)
}

/// Figure 15: TPC-C on two drives of flash-C.
pub fn tpcc(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("15", "hiding outliers, TPC-C on two drives of flash-C");
    let profile = bench.profile("flash-c")?;
    let (mut gains, mut extras, mut adaptives) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in bench.cpus() {
        let key = format!("flashlogging-figure-15-{}", cpu.name);
        let title = format!("TPC-C on two log devices flash-c, hiding long writes: {}", cpu.title());
        let mut panel = Panel::new(&key, &title, "clients", "New-Orders a minute");
        (panel.log_x, panel.log_y) = (true, true);
        for clients in bench.clients() {
            let mut found = Vec::new();
            for (hiding, name) in POLICIES {
                let logs = Logs::Each(profile.clone(), 2);
                let cell = Cell::new(logs, hiding, clients, cpu, bench.time_with_outliers(cpu));
                let one = bench.tpcc(&cell, Judged::Yes)?;
                panel.add(name, Point::new(clients as f64, clients.to_string(), &one.value(|it| it.tpm)));
                found.push(one);
            }
            let rate = |at: usize| found[at].value(|it| it.per_second);
            gains.push(rate(2).over(&rate(0)));
            extras.push(found[3].value(|it| it.log.extra_bytes()));
            adaptives.push(rate(3).over(&rate(0).with(&rate(2), f64::max)));
        }
        figure.panels.push(panel);
    }
    let gain = Sampled::most(&gains).unwrap_or_default();
    figure.beside("2 streams / no hiding, most over clients", "1.66", &gain);
    figure.at_least("hiding on flash-C, TPC-C: 2 streams / no hiding", &gain, 1.66);
    let extra = Sampled::most(&extras).unwrap_or_default();
    figure.beside("bytes written again by adaptive hiding, share of the log, most", "not printed", &extra);
    adaptives.extend(adaptive_elsewhere(bench, &mut figure)?);
    figure.at_least(
        "adaptive hiding / the better of on and off, least over profiles",
        &Sampled::least(&adaptives).unwrap_or_default(),
        0.98,
    );
    Ok(figure)
}

/// Adaptive hiding beside on and off on every kind of device, with the log alone: its rate over
/// the better of both.
fn adaptive_elsewhere(bench: &Bench, figure: &mut Figure) -> Result<Vec<Sampled>, Failure> {
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
    let mut ratios = Vec::new();
    let title = "Hiding long writes on three log devices of each kind, eight threads";
    let mut panel = Panel::of_bars("flashlogging-adaptive", title, "device", "commits a second");
    panel.log_y = true;
    for (at, name) in names.iter().enumerate() {
        let mut rates = Vec::new();
        for (hiding, policy) in [POLICIES[0], POLICIES[2], POLICIES[3]] {
            let cell = StreamCell {
                logs: Logs::Each(bench.profile(name)?, 3),
                policy: LogPolicy::Array,
                compose: Compose::WhenDeviceFree,
                hiding,
                threads: 8,
                size: Size::Tpcc,
                work: Duration::from_micros(100),
                fault: None,
                warm_up: Duration::from_millis(500),
                time: bench.time(),
            };
            let rate = bench.stream(&cell, Judged::Yes)?.value(|found| found.per_second);
            panel.add(policy, Point::new(at as f64, *name, &rate));
            rates.push(rate);
        }
        ratios.push(rates[2].over(&rates[0].with(&rates[1], f64::max)));
    }
    figure.panels.push(panel);
    Ok(ratios)
}
