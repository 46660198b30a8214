//! Commits of shadows with an archive that follows: it reads each image back, and writes it to a
//! drive of its own.

use super::machine::{CORES, Loaded, Machine, Memory, PAGE, content};
use super::setting::{Bench, Shown, VERSION_BYTES};
use super::targets::{self, ARCHIVED};
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::{Options, PageRecovery};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, thread};
use firndb_console::Failure;
use firndb_emulate::{Emulated, Model};
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MEMORY: Memory = Memory { buffer: 4096, private: 512, version_bytes: VERSION_BYTES };
/// Pages of the file, and of one commit.
const FILE_PAGES: u64 = 1000;
const EACH: u64 = 10;
const CLIENTS: u64 = 4;
/// Commits of a client.
const COMMITS: u64 = 200;
const COMMITS_QUICK: u64 = 60;

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    archived: bool,
    commits: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    seconds: f64,
    commits: f64,
    /// Images of these that were logged instead, for the archive's lag.
    logged: f64,
    /// Read from the drive, per image.
    read_back: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let with = if self.archived { "with" } else { "without" };
        format!("{}, {} commits of {EACH} pages {with} archive", self.profile.name, self.commits * CLIENTS)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Commits of random pages of a client's own part of the file.
fn work(machine: &Machine, client: u64, cell: &Cell, seed: u64, stop: &AtomicBool) -> Result<(), Failure> {
    let mut rng = Rng::new(seed << 8 | client);
    for number in 0..cell.commits {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        machine.db.transact(|tx| {
            (0..EACH).try_for_each(|_| {
                let page = client + CLIENTS * rng.below(FILE_PAGES / CLIENTS);
                tx.put_page(&machine.file, page, &content(page, number % 200 + 1))
            })
        })?;
    }
    Ok(())
}

fn run(cell: &Cell, loaded: &Arc<Loaded>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let (cell, loaded) = (cell.clone(), loaded.clone());
    let body = move || {
        let (dir, profile) = (tempfile::tempdir()?, cell.profile.clone());
        let model = Model::new(&profile, seed).map_err(|error| Failure::bad_argument(error.to_string()))?;
        let archived = |options: Options| match cell.archived {
            false => options,
            true => {
                let (profile, model) = (profile.clone(), model.clone());
                options.archive(|archive| archive.directory(dir.path())).wrap_archive(Arc::new(move |file| {
                    Arc::new(Emulated::over(file, &profile, model.clone()))
                }))
            }
        };
        let machine =
            Machine::open_with(&loaded, &cell.profile, (MEMORY, PageRecovery::Shadow), seed, &archived)?;
        let machine = Arc::new(machine);
        let (before, began) = (machine.db.statistics(), clock::now());
        let client = |client| {
            let (machine, cell) = (machine.clone(), cell.clone());
            thread::spawn("client", move || work(&machine, client, &cell, seed, stop))
        };
        let clients = (0..CLIENTS).map(client).collect::<Result<Vec<_>, _>>();
        for client in clients.map_err(|error| Failure::new(error.to_string()))? {
            client.join().map_err(|_| Failure::new("a client panicked"))??;
        }
        let seconds = began.elapsed().as_secs_f64();
        let after = machine.db.statistics();
        machine.run_free(true);
        while machine.db.archive_statistics().is_some_and(|archive| archive.behind_bytes > 0) {
            clock::sleep(Duration::from_millis(10));
        }
        let machine = Arc::try_unwrap(machine).map_err(|_| Failure::new("a client is left"))?;
        machine.close()?;
        let commits = (cell.commits * CLIENTS) as f64;
        let logged = (after.txn.images_logged - before.txn.images_logged) as f64;
        let read = (after.io.store.reads.bytes - before.io.store.reads.bytes) as f64;
        Ok(Found { seconds, commits, logged, read_back: read / PAGE as f64 / commits / EACH as f64 })
    };
    Ok(simulate(seed, CORES, body)?.0)
}

const SHOWN: [Shown<Found>; 3] = [
    ("commits a second", |found| found.commits / found.seconds),
    ("images logged", |found| found.logged),
    ("pages read per page put", |found| found.read_back),
];

/// Figure `archive`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("archive");
    let mut panel = Panel::of_bars(
        "pages-archive",
        "Commits of shadows, with an archive that follows",
        "drive, archive",
        "commits a second",
    );
    panel.drawn = false;
    let commits = if bench.args.quick { COMMITS_QUICK } else { COMMITS };
    let (mut ratios, mut place) = (Vec::new(), 0.0);
    for profile in &bench.drives {
        let mut measure = |archived: bool| -> Result<Measured<Found>, Failure> {
            let cell = Cell { profile: profile.clone(), archived, commits };
            let found = bench.over_file(&cell, (FILE_PAGES, Judged::Yes), run)?;
            let label = if archived { "with" } else { "without" };
            for (name, of) in SHOWN {
                panel.add(name, Point::new(place, format!("{}, {label}", profile.name), &found.value(of)));
            }
            place += 1.0;
            Ok(found)
        };
        let (without, with) = (measure(false)?, measure(true)?);
        ratios.push(with.value(SHOWN[0].1).over(&without.value(SHOWN[0].1)));
    }
    ARCHIVED.judge(&mut figure, &Sampled::least(&ratios).unwrap_or_default());
    figure.panels.push(panel);
    figure.notes.push(format!(
        "{CLIENTS} clients, each {commits} commits of {EACH} random pages of {FILE_PAGES}, in mode shadow; the archive on \
         a drive of its own of the same kind."
    ));
    Ok(figure)
}
