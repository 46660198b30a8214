//! Figure 16: the bandwidth of the recovery scan.

use super::figure::{Better, Figure, Panel, Point};
use super::machine::{Logs, simulate};
use super::measuring::Bench;
use super::real_device;
use super::restart_figure;
use super::stream::{failed, identity, memories};
use crate::bench::cells::{Cellular, Judged};
use crate::bench::made::Made;
use crate::bench::sampled::Sampled;
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn, clock};
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_log::{Kind, Log, LogClass, LogOptions, LogScan, Record};
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Appends log of TPC-C's kind to devices that take no time, and returns their contents. The
/// requests go round the devices, as they do where all are equally fast.
fn written(count: usize, bytes: u64, seed: u64) -> Result<Vec<MemoryDevice>, Failure> {
    let (devices, _) = simulate(seed, move || {
        let memories = memories(count, bytes * 2 / count as u64 + (16 << 20))?;
        let devices = memories.iter().map(|memory| memory.clone() as Arc<dyn Device>).collect();
        let log = Log::create(devices, identity(count), Epoch(1), LogOptions::default()).map_err(failed)?;
        let mut rng = Rng::new(seed);
        while log.end().since(Lsn::FIRST) < bytes {
            // What gathers for one request of a busy log.
            for _ in 0..rng.between(1, 12) {
                let body = vec![0x5a; rng.between(200, 2500) as usize];
                let record = Record { kind: Kind::TREE_INSERT, body: &body };
                log.append(LogClass::Normal, record).map_err(failed)?;
            }
            log.flush(log.end()).map_err(failed)?;
        }
        log.close().map_err(failed)?;
        Ok(memories.iter().map(|memory| memory.duplicate()).collect::<Vec<_>>())
    })?;
    Ok(devices)
}

/// The recovery scan of a log on these devices.
#[derive(Clone, Debug)]
struct Scan {
    logs: Logs,
    bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ScanFound {
    /// 10⁶ bytes of log a second.
    mb_per_second: f64,
}

impl Cellular for Scan {
    type Found = ScanFound;

    fn name(&self) -> String {
        format!("recovery scan, {}", self.logs.name())
    }

    fn at_end(&self, end: VariantName) -> Option<Scan> {
        self.logs.at_end(end).map(|logs| Scan { logs, ..self.clone() })
    }
}

/// Contents of logs, by the number of devices. They are of the first seed whatever seed the devices
/// have: five of each would be gigabytes.
struct Images {
    seed: u64,
    written: Made<usize, Vec<MemoryDevice>>,
}

fn scan(cell: &Scan, seed: u64, images: &Images) -> Result<ScanFound, Failure> {
    let count = cell.logs.count();
    let image = images.written.get(count, || written(count, cell.bytes, images.seed))?;
    let memories = image.iter().map(|log| Arc::new(log.duplicate())).collect();
    let logs = cell.logs.clone();
    let (mb_per_second, _) = simulate(seed, move || {
        let devices = logs.emulated(memories, seed)?.devices;
        let began = clock::now();
        let scan = LogScan::new(devices, identity(count), Lsn::FIRST, &mut |_, _| {}).map_err(failed)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(scan.end().since(Lsn::FIRST) as f64 / seconds / 1e6)
    })?;
    Ok(ScanFound { mb_per_second })
}

/// Figure 16. The paper's logs have 900 MB, of which a crash leaves about half to be scanned.
pub fn scans(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = Figure::new("16", "bandwidth of the recovery scan, over devices");
    let bytes = if bench.is_quick() { 24 << 20 } else { 400 << 20 };
    let title = "Reading the log after a crash, from one to four log devices";
    let mut panel = Panel::new("flashlogging-figure-16", title, "log devices", "MB of log a second");
    (panel.digits, panel.log_x, panel.log_y) = (1, true, true);
    let names = ["flash-a", "flash-b", "flash-c", "disk-10k", "ssd-2008", "sata-ssd", "network-volume"];
    let images = Arc::new(Images { seed: bench.seed(), written: Made::default() });
    let (mut twos, mut fours) = (Vec::new(), Vec::new());
    for name in names {
        let mut rates = Vec::new();
        for count in [1usize, 2, 4] {
            let cell = Scan { logs: Logs::Each(bench.profile(name)?, count), bytes };
            let images = images.clone();
            let found = bench.cells.of(&cell, Judged::Yes, move |cell, seed| scan(cell, seed, &images))?;
            let rate = found.value(|found| found.mb_per_second);
            panel.add(name, Point::new(count as f64, count.to_string(), &rate));
            rates.push(rate);
        }
        if name.starts_with("flash") {
            let two = rates[1].over(&rates[0]);
            figure.beside(format!("{name}: two devices / one"), "1.19 to 1.81", &two);
        }
        twos.push(rates[1].over(&rates[0]));
        fours.push(rates[2].over(&rates[0]));
    }
    let least = |all: &[Sampled]| Sampled::least(all).unwrap_or_default();
    figure.panels.push(panel);
    restart_figure::after_a_kill(bench, &mut figure)?;
    figure.at_least("recovery scan: two devices / one, least over profiles", &least(&twos), 1.9);
    figure.at_least("recovery scan: four devices / one, least over profiles", &least(&fours), 3.6);
    let why = "in virtual time; `--real --dir DIR` measures it";
    figure.not_measured(real_device::SCAN_TARGET, 0.9, Better::Higher, why);
    Ok(figure)
}
