//! The measurements that figures ask for, and running them.
//!
//! A figure is a function of its measurements. It is called twice: first to learn which cells it
//! asks for (every one comes to zeros then), and once more when all of them have been run. Cells
//! are simulations that have nothing in common, so several run side by side, and the order in which
//! they end changes nothing. What a file of results holds already is not run again.
//!
//! A figure therefore asks for the same cells whatever they come to.

use super::figure::Figure;
use super::kept::{Head, Kept, Key};
use super::picture;
use super::sampled::Sampled;
use clap::Args;
use firndb_console::{Failure, interrupt, progress};
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::results::config_hash;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Seeds of a cell that a target names.
const SEEDS: usize = 5;

/// How cells are run and what becomes of their results: arguments that benches share.
#[derive(Args, Clone, Debug)]
pub struct Running {
    /// Equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seeds of each cell that a target names, from --seed on: the median counts [5, or 1 with
    /// --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: Option<u64>,
    /// Measure also with all estimated parameters of the devices at the ends of their bands
    #[arg(long)]
    pub bands: bool,
    /// Cells that are run side by side [as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub workers: Option<u64>,
    /// Show each measurement on standard error when it is done
    #[arg(long)]
    pub verbose: bool,
    /// Write the pictures into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Keep each measurement in this file as soon as it is made, and the results when all are
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Go on with the file of --json: what it holds is not measured again
    #[arg(long, requires = "json")]
    pub resume: bool,
}

/// What is measured: a machine, a load, and for how long.
pub trait Cellular: Clone + Debug + Send + Sync + 'static {
    /// What a run of it finds.
    type Found: Serialize + DeserializeOwned + Default + Clone;

    /// Short, for people. All of it is in the output of `Debug`.
    fn name(&self) -> String;

    /// The same with the estimated parameters of its devices at this end of their bands; `None` if
    /// nothing is estimated.
    fn at_end(&self, end: VariantName) -> Option<Self>;
}

/// Whether a target is judged by a cell: such a cell is run with several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    Yes,
    No,
}

/// What the runs of one cell found.
#[derive(Clone, Debug)]
pub struct Measured<F> {
    seeds: Vec<F>,
    fast: Option<F>,
    slow: Option<F>,
}

impl<F> Measured<F> {
    /// A quantity of all runs.
    pub fn value(&self, of: impl Fn(&F) -> f64) -> Sampled {
        let seeds = self.seeds.iter().map(&of).collect();
        Sampled::new(seeds, self.fast.as_ref().map(&of), self.slow.as_ref().map(&of))
    }

    /// The same where the quantity depends on the profile, too.
    pub fn value_at(&self, of: impl Fn(&F, VariantName) -> f64) -> Sampled {
        let seeds = self.seeds.iter().map(|found| of(found, VariantName::Middle)).collect();
        let fast = self.fast.as_ref().map(|found| of(found, VariantName::Fast));
        Sampled::new(seeds, fast, self.slow.as_ref().map(|found| of(found, VariantName::Slow)))
    }

    /// The run with the first seed, and the profiles as they stand.
    pub fn first(&self) -> &F {
        &self.seeds[0]
    }
}

/// The profile with its estimated parameters at this end; `None` if it has none.
pub fn end_of(profile: &DeviceProfile, end: VariantName) -> Option<DeviceProfile> {
    let variants = profile.variants();
    if variants.len() < 2 {
        return None;
    }
    variants.into_iter().find(|variant| variant.name == end).map(|variant| variant.profile)
}

type Work = Box<dyn FnOnce() -> Result<Value, Failure> + Send>;

struct Job {
    key: Key,
    work: Work,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// Cells are noted.
    Asking,
    /// Cells are looked up.
    Showing,
    /// A cell is run when it is asked for, with one seed: in real time.
    AtOnce,
}

pub struct Cells<'a> {
    running: &'a Running,
    quick: bool,
    stop: &'static AtomicBool,
    kept: RefCell<Kept>,
    phase: Cell<Phase>,
    asked: RefCell<(Vec<Job>, BTreeSet<Key>)>,
}

impl<'a> Cells<'a> {
    /// Begins a bench, which Ctrl-C ends from here on: opens the file of its results, with
    /// `unmeasured` in the place of figures until they are measured.
    pub fn begin(
        running: &'a Running,
        quick: bool,
        head: Head,
        unmeasured: Vec<Figure>,
    ) -> Result<Cells<'a>, Failure> {
        picture::prepare(running.pictures.as_deref())?;
        let stop = interrupt::install()?;
        let mut kept = Kept::open(running.json.as_deref(), running.resume, head)?;
        kept.add_missing(unmeasured);
        Ok(Cells::new(running, quick, stop, kept))
    }

    fn new(running: &'a Running, quick: bool, stop: &'static AtomicBool, kept: Kept) -> Cells<'a> {
        let (kept, phase) = (RefCell::new(kept), Cell::new(Phase::Asking));
        Cells { running, quick, stop, kept, phase, asked: RefCell::default() }
    }

    /// Set once the bench is to stop.
    pub fn stop(&self) -> &'static AtomicBool {
        self.stop
    }

    /// Prints figures, and writes their pictures if that is asked for.
    pub fn show(&self, figures: &[Figure]) -> Result<(), Failure> {
        picture::show(figures, self.running.pictures.as_deref())
    }

    fn seeds(&self, judged: Judged) -> usize {
        let usual = if self.quick { 1 } else { SEEDS };
        match judged {
            Judged::Yes => self.running.seeds.map_or(usual, |seeds| seeds as usize),
            Judged::No => 1,
        }
    }

    /// What `run` finds of the cell, with each seed and at each end that is to be measured.
    pub fn of<C: Cellular>(
        &self,
        cell: &C,
        judged: Judged,
        run: impl Fn(&C, u64) -> Result<C::Found, Failure> + Clone + Send + 'static,
    ) -> Result<Measured<C::Found>, Failure> {
        let real = self.phase.get() == Phase::AtOnce;
        let count = if real { 1 } else { self.seeds(judged) };
        let seeds = (0..count as u64).map(|more| self.run_of(cell, VariantName::Middle, more, &run));
        let seeds = seeds.collect::<Result<Vec<_>, _>>()?;
        let end = |end: VariantName| {
            let at_end = if self.running.bands && !real { cell.at_end(end) } else { None };
            at_end.map(|cell| self.run_of(&cell, end, 0, &run)).transpose()
        };
        Ok(Measured { seeds, fast: end(VariantName::Fast)?, slow: end(VariantName::Slow)? })
    }

    /// One run of the cell; its seed is `more` above the first.
    fn run_of<C: Cellular>(
        &self,
        cell: &C,
        end: VariantName,
        more: u64,
        run: &(impl Fn(&C, u64) -> Result<C::Found, Failure> + Clone + Send + 'static),
    ) -> Result<C::Found, Failure> {
        let seed = self.running.seed + more;
        let key = Key {
            cell: cell.name(),
            arguments: config_hash(&json!(format!("{cell:?}"))),
            band: format!("{end:?}").to_lowercase(),
            seed,
        };
        if self.phase.get() == Phase::AtOnce {
            self.check_interrupt()?;
            return run(cell, seed);
        }
        if let Some(found) = self.kept.borrow().get(&key) {
            let found = serde_json::from_value(Value::Object(found.clone()));
            return found.map_err(|error| Failure::new(format!("a kept result of {}: {error}", key.cell)));
        }
        assert!(self.phase.get() == Phase::Asking, "{} was not asked for at first", key.cell);
        let (jobs, known) = &mut *self.asked.borrow_mut();
        if known.insert(key.clone()) {
            let (cell, run) = (cell.clone(), run.clone());
            let work = move || {
                let found = run(&cell, seed)?;
                serde_json::to_value(found).map_err(|error| Failure::new(error.to_string()))
            };
            jobs.push(Job { key, work: Box::new(work) });
        }
        Ok(C::Found::default())
    }

    pub fn check_interrupt(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        Ok(())
    }

    /// The figures that `figures` returns once their cells have been run; kept in the file.
    pub fn figures(
        &self,
        figures: impl Fn() -> Result<Vec<Figure>, Failure>,
    ) -> Result<Vec<Figure>, Failure> {
        self.phase.set(Phase::Asking);
        figures()?;
        let (jobs, _) = self.asked.take();
        self.run_all(jobs)?;
        self.phase.set(Phase::Showing);
        self.keep(figures()?)
    }

    /// The figures, of cells that are run in real time, one after the other.
    pub fn figures_in_real_time(
        &self,
        figures: impl Fn() -> Result<Vec<Figure>, Failure>,
    ) -> Result<Vec<Figure>, Failure> {
        self.phase.set(Phase::AtOnce);
        self.keep(figures()?)
    }

    fn keep(&self, figures: Vec<Figure>) -> Result<Vec<Figure>, Failure> {
        self.kept.borrow_mut().add_figures(&figures)?;
        Ok(figures)
    }

    fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.running.workers.map_or_else(cores, |workers| workers as usize)
    }

    /// Runs the jobs, several side by side; each is kept when it is done. After a failure none is
    /// begun any more.
    fn run_all(&self, jobs: Vec<Job>) -> Result<(), Failure> {
        let all = jobs.len();
        let bar = progress::bar("measuring", all as u64);
        let jobs: Vec<Mutex<Option<Job>>> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
        let next = AtomicUsize::new(0);
        let mut kept = self.kept.borrow_mut();
        let shared: Mutex<(&mut Kept, Result<(), Failure>, usize)> = Mutex::new((&mut kept, Ok(()), 0));
        let (stop, verbose) = (self.stop, self.running.verbose);
        let work = || {
            loop {
                let job = jobs.get(next.fetch_add(1, Ordering::Relaxed));
                let Some(job) = job.and_then(|job| job.lock().expect(UNPOISONED).take()) else { return };
                if stop.load(Ordering::SeqCst) || shared.lock().expect(UNPOISONED).1.is_err() {
                    return;
                }
                bar.set_message(job.key.cell.clone());
                let (key, began) = (job.key, Instant::now());
                let found = (job.work)();
                let (kept, outcome, done) = &mut *shared.lock().expect(UNPOISONED);
                let (took, name) =
                    (began.elapsed(), format!("{} ({}, seed {})", key.cell, key.band, key.seed));
                match found.and_then(|found| kept.add(key, found)) {
                    Ok(()) => *done += 1,
                    Err(error) if outcome.is_ok() => *outcome = Err(error),
                    Err(_) => {}
                }
                bar.inc(1);
                bar.set_message(format!("{done} of {all} cells"));
                if verbose {
                    bar.suspend(|| eprintln!("{done} of {all}: {name}: {:.1} s", took.as_secs_f64()));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.workers().min(all) {
                scope.spawn(work);
            }
        });
        bar.finish_and_clear();
        let (_, outcome, _) = shared.into_inner().expect(UNPOISONED);
        outcome?;
        self.check_interrupt()
    }
}

/// Why a lock cannot be poisoned: a panic in a worker ends the scope, and with it the command.
const UNPOISONED: &str = "no worker panics while it holds the lock";

#[cfg(test)]
mod tests {
    use super::super::kept::Head;
    use super::*;
    use firndb_workloads::results::Conditions;
    use serde::Deserialize;
    use std::sync::Arc;

    #[derive(Clone, Debug)]
    struct Square(u64);

    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Area {
        value: f64,
    }

    impl Cellular for Square {
        type Found = Area;
        fn name(&self) -> String {
            format!("square {}", self.0)
        }
        fn at_end(&self, end: VariantName) -> Option<Square> {
            Some(Square(if end == VariantName::Fast { self.0 * 10 } else { self.0 * 100 }))
        }
    }

    static GOES_ON: AtomicBool = AtomicBool::new(false);

    fn running(path: &std::path::Path) -> Running {
        Running {
            seed: 5,
            seeds: Some(3),
            bands: true,
            workers: Some(4),
            verbose: false,
            pictures: None,
            json: Some(path.to_owned()),
            resume: true,
        }
    }

    fn kept(running: &Running) -> Kept {
        let head = Head::new("log", Conditions::now("firn-bench/1", "a", json!({}), running.seed));
        Kept::open(running.json.as_deref(), true, head).unwrap()
    }

    /// A figure with one target and one other cell; how many runs it took, and its text.
    fn figure(running: &Running) -> (usize, Result<String, Failure>) {
        let ran = Arc::new(AtomicUsize::new(0));
        let counts = ran.clone();
        let run = move |square: &Square, seed: u64| {
            counts.fetch_add(1, Ordering::Relaxed);
            Ok(Area { value: (square.0 * square.0 + seed) as f64 })
        };
        let cells = Cells::new(running, false, &GOES_ON, kept(running));
        let figures = cells.figures(|| {
            let mut figure = Figure::new("1", "squares");
            let area = cells.of(&Square(2), Judged::Yes, run.clone())?;
            figure.at_least("area", &area.value(|area| area.value), 10.0);
            let other = cells.of(&Square(3), Judged::No, run.clone())?;
            figure.beside("other", "14", &other.value(|area| area.value));
            // Asked for again, it is not run again.
            cells.of(&Square(2), Judged::No, run.clone())?;
            Ok(vec![figure])
        });
        (ran.load(Ordering::Relaxed), figures.map(|figures| figures[0].text()))
    }

    #[test]
    fn judged_cells_have_several_seeds_and_every_cell_its_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (ran, text) = figure(&running(&dir.path().join("results")));
        let text = text.unwrap();
        assert!(text.contains("area: 10 (9..11) [10..40005], at least 10 wanted: met"), "{text}");
        assert!(text.contains("14.0"), "{text}");
        assert_eq!(ran, 3 + 2 + 1 + 2);
    }

    #[test]
    fn what_the_file_holds_is_not_run_again_and_comes_to_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        let one_seed = Running { seeds: Some(1), bands: false, workers: None, ..running(&path) };
        assert_eq!(figure(&one_seed).0, 2);
        let (ran, text) = figure(&running(&path));
        assert_eq!(ran, 2 + 2 + 2, "two seeds more of one cell, and the ends of both");
        let whole = std::fs::read_to_string(&path).unwrap();
        assert_eq!(figure(&running(&path)).0, 0);
        let rows = |text: &str| text[text.find("\"rows\"").unwrap()..].to_owned();
        assert_eq!(rows(&std::fs::read_to_string(&path).unwrap()), rows(&whole));
        let (_, afresh) = figure(&running(&dir.path().join("other")));
        assert_eq!(afresh.unwrap(), text.unwrap());
    }

    #[test]
    fn a_failure_leaves_what_was_measured_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let running = Running { workers: Some(1), bands: false, ..running(&dir.path().join("results")) };
        let cells = Cells::new(&running, false, &GOES_ON, kept(&running));
        let run = |square: &Square, _: u64| match square.0 {
            13 => Err(Failure::new("13 has no square")),
            side => Ok(Area { value: side as f64 }),
        };
        let failed = cells.figures(|| {
            for side in [2, 13, 4] {
                cells.of(&Square(side), Judged::No, run)?;
            }
            Ok(Vec::new())
        });
        assert!(failed.unwrap_err().to_string().contains("13 has no square"));
        let left = std::fs::read_to_string(running.json.as_ref().unwrap()).unwrap();
        assert!(left.contains("square 2") && !left.contains("square 4"), "{left}");
    }
}
