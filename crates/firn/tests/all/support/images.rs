//! Walks over what a power cut at any moment of a script may leave.

use super::bed::Bed;
use super::model::{State, verify, verify_and_go_on};
use super::scripts::Script;
use super::session::Session;
use firndb::Options;
use firndb::device::{CrashPlan, CrashReplay, MemoryDevice, Survival};
use firndb_base::rng::Rng;
use firndb_testkit::cases::{Failures, caught};
use firndb_testkit::seeds::number_from;
use firndb_testkit::watchdog::Watchdog;
use std::sync::Arc;

/// How densely a record is walked.
#[derive(Clone, Copy)]
pub struct Walk {
    /// About this many images of one script.
    pub images: usize,
    /// One image in this many is crashed again while it recovers.
    pub again_one_in: u64,
    /// One image in this many is worked on after it was verified.
    pub go_on_one_in: u64,
    pub seed: u64,
}

impl Walk {
    /// A walk of minutes, unless `FIRN_SEED` and `FIRN_IMAGES` say otherwise.
    pub fn long(images: usize, go_on_one_in: u64) -> Walk {
        let images = number_from("FIRN_IMAGES").map_or(images, |images| images as usize);
        Walk { images, again_one_in: 5, go_on_one_in, seed: number_from("FIRN_SEED").unwrap_or(2) }
    }
}

/// What a walk saw.
#[derive(Debug, Default)]
pub struct Tally {
    pub events: usize,
    /// Images verified, those of second crashes included.
    pub images: usize,
    /// Images of crashes during recovery.
    pub again: usize,
    /// Images in which a commit was found that had not been acknowledged yet.
    pub ahead: usize,
    pub failures: Failures,
}

impl Tally {
    pub fn join(&mut self, other: Tally) {
        self.events += other.events;
        self.images += other.images;
        self.again += other.again;
        self.ahead += other.ahead;
        self.failures.join(other.failures);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { events, images, again, ahead, .. } = self;
        write!(f, "{events} events, {images} images, {again} of them of second crashes, {ahead} ahead")
    }
}

/// What a script's images are compared with.
pub struct Record {
    pub name: String,
    pub plan: CrashPlan,
    pub session: Session,
    /// Options that images are opened with.
    pub options: Options,
    /// State that was acknowledged before the record began.
    pub acknowledged: usize,
}

/// A script to be walked: its name among others, and the options that its images are opened with.
pub struct Case {
    pub name: String,
    pub script: Script,
    pub reopened: fn(Options) -> Options,
}

/// Walks the scripts one after the other; those that `FIRN_SCRIPT` names, if it is set.
pub fn walk_all(cases: impl IntoIterator<Item = Case>, walk: Walk) -> Tally {
    let only = std::env::var("FIRN_SCRIPT").ok();
    let dog = Watchdog::start();
    let mut tally = Tally::default();
    let is_chosen = |case: &Case| only.as_ref().is_none_or(|only| case.script.name == only);
    for Case { name, script, reopened } in cases.into_iter().filter(is_chosen) {
        let mut record = record(&script, script.options_for(), CrashPlan::new(), &|devices| devices);
        let Session { broken, errors, .. } = &record.session;
        assert!(broken.is_empty() && errors.is_empty(), "{name}: {broken:?} {errors:?}");
        record.options = reopened(record.options);
        let found = record.walk(walk, &dog);
        eprintln!("{name}: {found}, {} failures", found.failures.count());
        tally.join(found);
    }
    eprintln!("in all: {tally}");
    tally
}

/// Runs a script once, on devices that record everything. `options` are those that it runs under.
pub fn record(script: &Script, options: Options, plan: CrashPlan, wrap: Wrap<'_>) -> Record {
    let prepared = script.prepare();
    let (history, effects) = (prepared.history.clone(), prepared.prepared());
    let acknowledged = history.acknowledged();
    let bed = prepared.into_bed();
    let devices = wrap(bed.crashing(&plan));
    let mut session = Session::over(devices, plan.clone(), options, history).with_prepared(effects);
    session.open();
    (script.run)(&mut session);
    session.close();
    Record { name: script.name.to_owned(), plan, session, options: script.options_for(), acknowledged }
}

/// Puts something between a database and the devices that record.
pub type Wrap<'a> = &'a dyn Fn(firndb::Devices) -> firndb::Devices;

impl Record {
    /// What an image at this moment may hold: from the newest state that was acknowledged to the
    /// newest that was attempted.
    fn allowed(&self, replay: &CrashReplay) -> &[Arc<State>] {
        let marks = replay.marks();
        let of = |odd: u64| marks.iter().rev().find(|&&mark| mark % 2 == odd).map(|mark| (mark / 2) as usize);
        let acknowledged = of(1).unwrap_or(self.acknowledged);
        let attempted = of(0).unwrap_or(self.acknowledged).max(acknowledged);
        self.session.history.between(acknowledged, attempted)
    }

    /// Verifies images all along the record.
    pub fn walk(&self, walk: Walk, dog: &Watchdog) -> Tally {
        let mut tally = Tally { events: self.plan.event_count(), ..Tally::default() };
        let mut rng = Rng::new(walk.seed);
        // Every survival at every event, thinned out evenly at random.
        let places = (self.plan.event_count() as u64 + 1) * Survival::ALL.len() as u64;
        let images = walk.images as u64;
        let mut replay = self.plan.replay();
        loop {
            // Where everything is durable all images are equal.
            let ways = if replay.pending_writes() == 0 { 2 } else { Survival::ALL.len() };
            for survival in &Survival::ALL[..ways] {
                if rng.below(places) < images {
                    self.verify_image(&replay, *survival, walk, &mut rng, &mut tally, dog);
                }
            }
            if replay.step().is_none() {
                return tally;
            }
        }
    }

    fn verify_image(
        &self,
        replay: &CrashReplay,
        survival: Survival,
        walk: Walk,
        rng: &mut Rng,
        tally: &mut Tally,
        dog: &Watchdog,
    ) {
        let allowed = self.allowed(replay);
        let place = format!(
            "{}, seed {}: {survival:?} at event {} of {}",
            self.name,
            walk.seed,
            replay.position(),
            replay.event_count()
        );
        dog.case(&*place);
        let image = replay.image(survival, rng);
        // Kept from before it is opened: memory devices share what does not change.
        let again = rng.one_in(walk.again_one_in).then(|| duplicates(&image));
        let go_on = rng.one_in(walk.go_on_one_in);
        let bed = Bed::of_image(image);
        let found = caught(|| match go_on {
            true => verify_and_go_on(&bed, &self.options, allowed),
            false => verify(&bed, &self.options, allowed),
        });
        tally.images += 1;
        match found.and_then(|found| found) {
            Ok(state) => {
                tally.ahead += usize::from(state > 0);
                if let Some(image) = again {
                    self.crash_again(&place, image, &allowed[state..=state], rng, tally, dog);
                }
            }
            Err(sentence) => tally.failures.add(format!("{place}: {sentence}")),
        }
    }

    /// Opens an image on devices that record, and verifies images of that.
    fn crash_again(
        &self,
        place: &str,
        image: Vec<Arc<MemoryDevice>>,
        allowed: &[Arc<State>],
        rng: &mut Rng,
        tally: &mut Tally,
        dog: &Watchdog,
    ) {
        let plan = CrashPlan::new();
        let devices = Bed::of_image(image).crashing(&plan);
        match self.options.clone().open_on(devices) {
            Ok(db) => drop(db.close()),
            Err(error) => return tally.failures.add(format!("{place}, opened on a record: {error}")),
        }
        let mut replay = plan.replay();
        let mut positions: Vec<usize> =
            (0..4).map(|_| rng.below(plan.event_count() as u64 + 1) as usize).collect();
        positions.sort_unstable();
        for position in positions {
            replay.advance_to(position);
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            let place = format!("{place}; again, {survival:?} at event {position} of its recovery");
            dog.case(&*place);
            let bed = Bed::of_image(replay.image(survival, rng));
            tally.images += 1;
            tally.again += 1;
            let found = caught(|| verify(&bed, &self.options, allowed)).and_then(|found| found);
            if let Err(sentence) = found {
                tally.failures.add(format!("{place}: {sentence}"));
            }
        }
    }
}

fn duplicates(image: &[Arc<MemoryDevice>]) -> Vec<Arc<MemoryDevice>> {
    image.iter().map(|device| Arc::new(device.duplicate())).collect()
}
