//! The figure `drop`, in real time: how much of a dropped table's space the file system has again,
//! and when. The store is a file, or a loop device, of whose file the blocks are counted.

use super::Bench;
use super::targets::{DROPPED, figure};
use crate::bench::cells::{Cellular, Judged};
use crate::bench::figure::{Figure, Panel, Point};
use firndb::{Options, TableSpec};
use firndb_console::{Failure, progress};
use firndb_profile::VariantName;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the file system waits for its blocks at most.
const WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Seconds after the drop that the figure shows.
const SECONDS: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
const ROW_BYTES: usize = 200;

#[derive(Clone, Debug)]
struct Cell {
    dir: PathBuf,
    store: Option<PathBuf>,
    bytes: u64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("drop of {} MiB", self.bytes >> 20)
    }

    fn at_end(&self, _: VariantName) -> Option<Cell> {
        None
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    /// Bytes of the table's pages.
    table_bytes: u64,
    /// Share of them that the file system has again, by seconds since the drop.
    shares: Vec<(f64, f64)>,
    /// Milliseconds that the drop itself took.
    drop_ms: f64,
}

impl Found {
    fn share_at(&self, seconds: f64) -> f64 {
        let until = self.shares.iter().take_while(|(at, _)| *at <= seconds);
        until.last().map_or(0.0, |(_, share)| *share)
    }
}

/// The file whose blocks are those of the store: its own, or that of a loop device.
fn blocks_of(store: &Path) -> Result<PathBuf, Failure> {
    if !std::fs::metadata(store)?.file_type().is_block_device() {
        return Ok(store.to_owned());
    }
    let name = store.file_name().unwrap_or_default();
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    let path = std::fs::read_to_string(&file).map_err(|_| {
        Failure::bad_argument(format!(
            "{} is no loop device: of other block devices it is not known what they have free",
            store.display()
        ))
    })?;
    Ok(PathBuf::from(path.trim_end()))
}

fn run(cell: &Cell, stop: &std::sync::atomic::AtomicBool) -> Result<Found, Failure> {
    std::fs::create_dir_all(&cell.dir)?;
    let dir = tempfile::tempdir_in(&cell.dir)?;
    let mut options = Options::new().buffer_bytes(64 << 20);
    if let Some(store) = &cell.store {
        options = options.store_path(store);
    }
    let db = options.open(dir.path().join("db"))?;
    let file = blocks_of(&cell.store.clone().unwrap_or_else(|| dir.path().join("db/store")))?;
    let bytes_on_disk = || Ok::<_, Failure>(std::fs::metadata(&file)?.blocks() * 512);
    let pages_before = db.statistics().store.pages_allocated;
    let mut row = [0; ROW_BYTES];
    let rows = (0..cell.bytes / ROW_BYTES as u64).map(|number: u64| {
        let key = number.to_be_bytes();
        row.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&key));
        Ok((key.to_vec(), row.to_vec()))
    });
    db.load_table("dropped", TableSpec::raw(), rows)?;
    db.checkpoint()?;
    let statistics = db.statistics();
    let table_bytes = (statistics.store.pages_allocated - pages_before) * statistics.page_size as u64;
    let before = bytes_on_disk()?;
    let bar = progress::spinner("waiting for blocks");
    let began = Instant::now();
    db.drop_table("dropped")?;
    let mut found =
        Found { table_bytes, shares: Vec::new(), drop_ms: began.elapsed().as_secs_f64() * 1000.0 };
    while began.elapsed() <= WAIT {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        let share = before.saturating_sub(bytes_on_disk()?) as f64 / table_bytes as f64;
        found.shares.push((began.elapsed().as_secs_f64(), share));
        bar.tick();
        std::thread::sleep(LOOK_EVERY);
    }
    bar.finish_and_clear();
    db.close()?;
    Ok(found)
}

/// The figure.
pub fn returned(bench: &Bench, dir: &Path) -> Result<Figure, Failure> {
    let bytes = match (bench.args.tiny, bench.args.quick) {
        (true, _) => 16 << 20,
        (false, true) => 128 << 20,
        (false, false) => 1 << 30,
    };
    let cell = Cell { dir: dir.to_owned(), store: bench.args.store.clone(), bytes };
    let stop = bench.stop;
    let found = bench.cells.of(&cell, Judged::Yes, move |cell, _| run(cell, stop))?;
    let mut figure = figure("drop");
    let title = "Blocks of a dropped table that the file system has again";
    let mut panel = Panel::of_bars("space-drop", title, "seconds after the drop", "share of its pages");
    panel.digits = 3;
    for (at, seconds) in SECONDS.into_iter().enumerate() {
        let share = found.value(|found| found.share_at(seconds));
        panel.add("", Point::new(at as f64, format!("{seconds}"), &share));
    }
    figure.panels.push(panel);
    DROPPED.judge(&mut figure, &found.value(|found| found.share_at(60.0)));
    let first = found.first();
    figure.notes.push(format!(
        "{:.0} MB of pages; the call took {:.1} ms.",
        first.table_bytes as f64 / 1e6,
        first.drop_ms
    ));
    Ok(figure)
}
