//! What a seed stands for: the machine, the options, the clients, and what goes wrong.

use crate::array::{ARCHIVE_GONE, ArrayRound, ArraySetup};
use crate::chores::{self, ChoresRound};
use crate::medium::{Survival, Timing, Uniform};
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultRule, When};
use firndb::{ArchiveFull, CachePolicy, CacheSpec, Hiding, Isolation, Options};
use firndb_base::rng::Rng;
use firndb_base::sim::Policy;
use std::fmt;
use std::time::Duration;

/// What may happen to the data under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Everything acknowledged survives, and no error speaks of damage.
    Survived,
    /// Errors may speak of damage; no result is ever wrong.
    Detected,
}

/// One thing that goes wrong in a round.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub name: &'static str,
    /// The rule for the devices.
    pub rule: FaultRule,
    /// What may come of it.
    pub severity: Severity,
    /// Whether what is stored is spoilt by it, and so later rounds are too.
    pub lasting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The database is closed; then the power fails, which must not matter.
    Close,
    /// The handle is dropped in the middle of things, without a close.
    Drop,
    /// The power fails after this time.
    PowerCut(Duration, Survival),
}

/// What is done to the flash cache while clients work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// One is put to use, if there is none.
    Attach(CacheSetup),
    /// It is emptied into the store and taken out of use.
    Detach,
    /// It is detached, and attached with space for this number of pages.
    Resize(u64),
}

/// From opening to the end of power.
#[derive(Clone, Debug)]
pub struct Round {
    /// Changes of the flash cache, each at its time after the one before.
    pub cache_changes: Vec<(Duration, CacheChange)>,
    pub transactions: u64,
    pub troubles: Vec<Trouble>,
    /// A power cut at this time after the beginning of the opening, which then comes before
    /// anything else.
    pub cut_in_recovery: Option<(Duration, Survival)>,
    pub end: End,
    /// The flash cache's device is lost while the power is off, and the database is opened without
    /// it, if log was kept.
    pub cache_lost: bool,
    /// Bits that flip in the medium of this number, while the power is off.
    pub rot: Option<(usize, u32)>,
    /// What happens to the log's array and the archive.
    pub array: ArrayRound,
    /// What is done beside the clients.
    pub chores: ChoresRound,
}

/// A flash cache over the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSetup {
    /// Admission and replacement.
    pub policy: CachePolicy,
    /// Pages that it holds, about.
    pub pages: u64,
    /// Pages replaced at a time.
    pub group_pages: usize,
    /// Whether dirty pages go to the store at once.
    pub write_through: bool,
}

/// Everything that follows from a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub page_size: usize,
    /// Pages in DRAM.
    pub frames: usize,
    /// Bytes for before-images.
    pub version_bytes: usize,
    pub log_devices: usize,
    /// Bytes of each log device.
    pub log_bytes_each: u64,
    /// How the log hides outliers.
    pub hiding: Hiding,
    /// Copies, changes of the log's devices, the archive.
    pub array: ArraySetup,
    pub cache: Option<CacheSetup>,
    /// Whether log is kept for rebuilding it.
    pub cache_rebuildable: bool,
    /// Bytes that the store may take.
    pub store_limit: u64,
    /// Longest time of a device call.
    pub slowest: Vec<Duration>,
    /// Clients at the same time.
    pub clients: u64,
    /// Rows and lists that they work on.
    pub keys: u32,
    /// Isolation level of all transactions.
    pub isolation: Isolation,
    /// Longest wait for a lock.
    pub lock_deadline: Option<Duration>,
    pub cores: usize,
    /// A thread loses its turn once in this number of chances.
    pub preempt_one_in: u32,
    /// One wait in this number ends without a cause; 0: none.
    pub spurious_one_in: u32,
    /// How threads are chosen.
    pub policy: Policy,
    pub rounds: Vec<Round>,
    /// Longest time that a client thinks before a transaction.
    pub pause: Duration,
    /// A bug that must be found.
    pub canary: Option<Canary>,
    /// Longest virtual time of a run.
    pub time_limit: Duration,
    /// Most scheduling decisions of a run.
    pub step_limit: u64,
}

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Pages are written before their log is durable.
    WriteAheadRule,
    /// Opening a flash cache forgets a part of what only it has.
    CacheRestore,
    /// A lost flash cache is rebuilt from too little log.
    CacheRebuild,
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

impl Scenario {
    /// Whether a database may be closed before its archive has all: the archive goes away, and
    /// nothing waits for it.
    #[must_use]
    pub fn may_leave_gaps(&self) -> bool {
        self.array.archive.is_some_and(|archive| archive.when_full == ArchiveFull::Gap)
            && self
                .rounds
                .iter()
                .any(|round| round.array.troubles.iter().any(|(name, _)| *name == ARCHIVE_GONE))
    }

    /// The scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Scenario {
        let rng = &mut Rng::new(seed ^ 0x5CE9_A810);
        let page_size = pick(rng, &[1024, 1024, 1024, 2048, 4096]);
        let log_devices = pick(rng, &[1, 1, 2, 3, 4]);
        let cache = rng.one_in(2).then(|| CacheSetup::draw(rng));
        let names: Vec<String> = device_names(log_devices, cache.is_some());
        let mut cache_rebuildable = false;
        let mut rounds: Vec<Round> = (0..rng.between(2, 5)).map(|_| Round::draw(rng, &names)).collect();
        if cache.is_some() {
            // Of their own, so that what else a seed stands for stays what it was.
            let rng = &mut Rng::new(seed ^ 0xCAC4_E001);
            rounds.iter_mut().for_each(|round| round.cache_changes = CacheChange::draw_some(rng));
            let rng = &mut Rng::new(seed ^ 0xCAC4_E002);
            cache_rebuildable = rng.one_in(2);
            for round in &mut rounds {
                // Of what rots elsewhere nothing may be needed that is rebuilt.
                round.cache_lost = cache_rebuildable && round.rot.is_none() && rng.one_in(3);
            }
        }
        let array = ArraySetup::draw(seed, log_devices, &mut rounds);
        chores::draw(seed, log_devices, array.copies, &mut rounds);
        if array.lenient || array.copies > 1 || array.archive.is_some_and(|archive| archive.completes) {
            // A log device that is given up because others have what recovery needs may have had
            // older log alone.
            rounds.iter_mut().for_each(|round| round.cache_lost = false);
        }
        Scenario {
            array,
            seed,
            page_size,
            frames: pick(rng, &[64, 80, 128, 512]),
            version_bytes: pick(rng, &[1000, 20_000, 1 << 20]),
            log_devices,
            log_bytes_each: pick(rng, &[512 << 10, 768 << 10, 1 << 20, 2 << 20]),
            hiding: pick(
                rng,
                &[Hiding::Off, Hiding::Naive, Hiding::TwoStream, Hiding::Adaptive, Hiding::Adaptive],
            ),
            cache,
            cache_rebuildable,
            // A store begins with about 4,096 places.
            store_limit: 4096 * page_size as u64 * pick(rng, &[5, 8, 16, 16]) / 4,
            slowest: names.iter().map(|_| Duration::from_micros(pick(rng, &[20, 100, 400, 8000]))).collect(),
            clients: rng.between(1, 6),
            keys: pick(rng, &[3, 8, 24]),
            isolation: pick(
                rng,
                &[
                    Isolation::Snapshot,
                    Isolation::Snapshot,
                    Isolation::Serializable,
                    Isolation::ReadCommitted,
                ],
            ),
            lock_deadline: rng.one_in(3).then(|| Duration::from_millis(rng.between(1, 50))),
            cores: pick(rng, &[1, 2, 4]),
            preempt_one_in: pick(rng, &[2, 5, 20, 100]),
            spurious_one_in: pick(rng, &[0, 0, 50]),
            policy: match rng.below(4) {
                0 => Policy::Priorities { changes: rng.between(1, 6) as u32, over_steps: 100_000 },
                _ => Policy::Random,
            },
            rounds,
            pause: Duration::ZERO,
            canary: None,
            time_limit: Duration::from_secs(3600),
            step_limit: 40_000_000,
        }
    }

    /// The same with a backup taken in the first round, an archive with space, no damage, and
    /// states to restore.
    #[must_use]
    pub fn restoring(mut self) -> Scenario {
        self.array.take_backup(self.seed, &mut self.rounds);
        for round in &mut self.rounds {
            (round.chores.two_devices_fail, round.chores.read_only_log) = (None, None);
            round.rot = None;
            round.troubles.retain(|trouble| trouble.severity == Severity::Survived);
        }
        self
    }

    /// The same with the smallest of logs, which goes round many times in tens of minutes of
    /// virtual time: clients think, background threads wake up, the log falls idle and is sealed.
    #[must_use]
    pub fn going_round(mut self) -> Scenario {
        let rng = &mut Rng::new(self.seed ^ 0x20F0_1A95);
        self.log_bytes_each = 256 << 10;
        self.pause = Duration::from_millis(pick(rng, &[500, 2000, 4000]));
        // Else the lists, which only grow, become longer than what there is to judge.
        self.keys = 24;
        (self.time_limit, self.step_limit) = (Duration::from_secs(4 * 3600), 200_000_000);
        for round in &mut self.rounds {
            round.transactions *= 8;
            if let End::PowerCut(after, _) = &mut round.end {
                // Up to eight minutes.
                *after *= 8000;
            }
            let times = round.array.changes.iter_mut().map(|(after, _)| after);
            let times = times.chain(round.array.clock.iter_mut().map(|(after, _)| after));
            times
                .chain(round.cache_changes.iter_mut().map(|(after, _)| after))
                .for_each(|after| *after *= 5000);
            let rules = round.troubles.iter_mut().map(|trouble| &mut trouble.rule);
            for rule in rules.chain(round.array.troubles.iter_mut().map(|(_, rule)| rule)) {
                match &mut rule.when {
                    When::Nth(n) | When::From(n) => *n *= rng.between(1, 50),
                    _ => {}
                }
            }
        }
        self
    }

    /// The same with the write-ahead rule broken, and a power cut that can show it.
    #[must_use]
    pub fn with_canary(mut self) -> Scenario {
        self.canary = Some(Canary::WriteAheadRule);
        self.frames = 64;
        self.array = ArraySetup::plain();
        for round in &mut self.rounds {
            (round.troubles, round.rot, round.cut_in_recovery) = (Vec::new(), None, None);
            round.array = ArrayRound::default();
            round.chores = ChoresRound::default();
            round.cache_lost = false;
            if !matches!(round.end, End::PowerCut(..)) {
                round.end = End::PowerCut(Duration::from_millis(5), Survival::None);
            }
        }
        self
    }

    /// The same over a flash cache that is written back, with a part of its recovery broken, and
    /// nothing else that goes wrong than what shows it.
    #[must_use]
    pub fn with_broken_cache(mut self, canary: Canary) -> Scenario {
        self = self.with_canary();
        self.canary = Some(canary);
        let policy = CachePolicy::GroupSecondChance;
        self.cache = Some(CacheSetup { policy, pages: 800, group_pages: 8, write_through: false });
        self.cache_rebuildable = canary == Canary::CacheRebuild;
        self.slowest.resize(self.log_devices + 3, Duration::from_micros(100));
        for round in &mut self.rounds {
            round.cache_changes.clear();
            round.transactions = 40;
            round.cache_lost = canary == Canary::CacheRebuild;
            round.end = End::PowerCut(Duration::from_millis(60), Survival::None);
        }
        self
    }

    /// The options for opening and creating.
    #[must_use]
    pub fn options(&self) -> Options {
        let mut options = Options::new()
            .page_size(self.page_size)
            .buffer_bytes(self.frames * self.page_size * 17 / 16)
            .tuning(|tuning| tuning.version_bytes(self.version_bytes))
            .log(|log| log.devices(self.log_devices).bytes(self.log_bytes_each * self.log_devices as u64))
            .log(|log| log.copies(self.array.copies).hiding(self.hiding))
            // Else a device that fails is not given up: the machine of the next round has all of
            // them.
            .log(|log| log.copies_required(if self.array.lenient { 1 } else { self.log_devices }));
        if let Some(cache) = self.cache {
            options = options.cache(|settings| {
                settings
                    .bytes(cache.pages * self.page_size as u64)
                    .policy(cache.policy)
                    .group_pages(cache.group_pages)
                    .write_through(cache.write_through)
                    .rebuildable(self.cache_rebuildable)
            });
        }
        if let Some(archive) = self.array.archive {
            let bytes = (archive.eager_bytes, archive.segment_bytes);
            options = options
                .archive(|settings| settings.eager_bytes(bytes.0).segment_bytes(bytes.1))
                .archive(|settings| settings.completes(archive.completes).when_full(archive.when_full));
        }
        if let Some(deadline) = self.lock_deadline {
            options = options.lock_deadline(deadline);
        }
        match self.canary {
            None => options,
            Some(Canary::WriteAheadRule) => options.unsafe_skip_wal_rule(),
            Some(Canary::CacheRestore) => options.unsafe_break_cache_restore(),
            Some(Canary::CacheRebuild) => options.unsafe_break_cache_rebuild(),
        }
    }

    /// How long the device of this number takes.
    #[must_use]
    pub fn timing(&self, device: usize, rng: &mut Rng) -> Box<dyn Timing> {
        // A spare is like the first log device.
        let slowest = self.slowest.get(device).unwrap_or(&self.slowest[1]);
        let (least, most) = (Duration::from_micros(5), *slowest);
        Box::new(Uniform { least, most, rng: Rng::new(rng.next_u64()) })
    }
}

impl CacheChange {
    fn draw_some(rng: &mut Rng) -> Vec<(Duration, CacheChange)> {
        let count = pick(rng, &[0, 0, 1, 2, 4, 8]);
        let change = |rng: &mut Rng| match rng.below(5) {
            0 | 1 => CacheChange::Detach,
            2 => CacheChange::Resize(rng.between(100, 3000)),
            _ => CacheChange::Attach(CacheSetup::draw(rng)),
        };
        (0..count).map(|_| (Duration::from_micros(rng.between(50, 15_000)), change(rng))).collect()
    }
}

impl CacheSetup {
    /// As a cache to be attached.
    #[must_use]
    pub fn spec(&self, page_size: usize) -> CacheSpec {
        CacheSpec::new(self.pages * page_size as u64)
            .policy(self.policy)
            .group_pages(self.group_pages)
            .write_through(self.write_through)
    }

    fn draw(rng: &mut Rng) -> CacheSetup {
        use CachePolicy::{
            Fifo, GroupReplacement, GroupSecondChance, Keeping, LazyCleaning, ReadLru, Selective, Temperature,
        };
        let group_pages = pick(rng, &[4, 8, 32]);
        let policy = pick(
            rng,
            &[
                GroupSecondChance,
                Keeping,
                Selective,
                GroupReplacement,
                Fifo,
                LazyCleaning,
                Temperature,
                ReadLru,
            ],
        );
        // Lazy cleaning has a least size of its own.
        let least = if policy == LazyCleaning { 200 } else { 0 };
        CacheSetup {
            policy,
            pages: (group_pages as u64 * pick(rng, &[20, 30, 100])).max(least),
            group_pages,
            write_through: rng.one_in(5),
        }
    }
}

/// Superblock, log devices, store, and the cache if there is one.
#[must_use]
pub fn device_names(logs: usize, cache: bool) -> Vec<String> {
    let logs = (0..logs).map(|log| format!("log.{log}"));
    let cache = cache.then(|| "cache".to_owned());
    ["superblock".to_owned()].into_iter().chain(logs).chain(["store".to_owned()]).chain(cache).collect()
}

impl Round {
    /// Openings before all else, while the archive is away.
    #[must_use]
    pub fn openings_without_archive(&self) -> u32 {
        if self.array.archive_missing { self.chores.openings_without_archive.max(1) } else { 0 }
    }

    pub(crate) fn draw(rng: &mut Rng, names: &[String]) -> Round {
        let survival =
            |rng: &mut Rng| pick(rng, &[Survival::None, Survival::Ended, Survival::Any, Survival::Any]);
        let mut troubles: Vec<Trouble> =
            (0..pick(rng, &[0, 0, 0, 1, 1, 2])).map(|_| Trouble::draw(rng, names)).collect();
        // Nothing vouches for the last request before a crash: where a device loses what it wrote,
        // the round has no other trouble, and ends with a seal (docs/fault-model.md).
        let vouched = troubles.iter().all(|trouble| !trouble.lasting);
        troubles.retain(|trouble| vouched || trouble.lasting);
        let end = match rng.below(6) {
            drawn if drawn == 0 || !vouched => End::Close,
            1 => End::Drop,
            _ => End::PowerCut(Duration::from_micros(rng.between(50, 60_000)), survival(rng)),
        };
        let cut_in_recovery =
            rng.one_in(3).then(|| (Duration::from_micros(rng.between(20, 10_000)), survival(rng)));
        let rot = rng.one_in(12).then(|| (rng.below(names.len() as u64) as usize, rng.between(1, 3) as u32));
        let array = ArrayRound::default();
        let transactions = rng.between(5, 40);
        Round {
            cache_changes: Vec::new(),
            transactions,
            troubles,
            cut_in_recovery,
            end,
            cache_lost: false,
            rot,
            array,
            chores: ChoresRound::default(),
        }
    }
}

impl Trouble {
    fn draw(rng: &mut Rng, names: &[String]) -> Trouble {
        let device = (!rng.one_in(4)).then(|| names[rng.below(names.len() as u64) as usize].clone());
        let nth = When::Nth(rng.below(200));
        if rng.one_in(6) {
            return Trouble::lasting(rng, names);
        }
        let (name, calls, fault, when, severity) = match rng.below(9) {
            0 => {
                let time = Duration::from_millis(pick(rng, &[1, 50, 5000]));
                ("a stall", Calls::Any, Fault::Stall(time), nth, Severity::Survived)
            }
            1 => {
                let time = Duration::from_millis(pick(rng, &[1, 10]));
                let when = When::OneIn(rng.between(5, 50));
                ("spikes", Calls::Any, Fault::Stall(time), when, Severity::Survived)
            }
            2 => ("EIO once", Calls::Any, Fault::Fail(DeviceErrorKind::Failed), nth, Severity::Survived),
            3 => {
                let when = When::From(rng.below(200));
                ("a device gone", Calls::Any, Fault::Fail(DeviceErrorKind::Failed), when, Severity::Survived)
            }
            4 => (
                "done, and EIO",
                Calls::Any,
                Fault::FailLate(DeviceErrorKind::Failed),
                nth,
                Severity::Survived,
            ),
            5 => {
                let when = When::From(rng.below(20));
                ("ENOSPC", Calls::Grows, Fault::Fail(DeviceErrorKind::NoSpace), when, Severity::Survived)
            }
            6 => {
                let fault = Fault::Torn { blocks: rng.below(4), error: Some(DeviceErrorKind::Failed) };
                ("a torn write", Calls::Writes, fault, nth, Severity::Survived)
            }
            7 => ("a spoilt read", Calls::Reads, Fault::BitRot { bits: 1 }, nth, Severity::Detected),
            _ => {
                let by = 512 * pick(rng, &[-8, -1, 1, 8]);
                ("a misdirected read", Calls::Reads, Fault::Misdirected { by }, nth, Severity::Detected)
            }
        };
        Trouble { name, rule: FaultRule { calls, device, when, fault }, severity, lasting: false }
    }

    /// A write of the superblock or the log that is acknowledged and not done, or done elsewhere.
    /// What nothing can notice of the store's is for `bad_devices_tell_no_lies`, which knows its
    /// layout.
    fn lasting(rng: &mut Rng, names: &[String]) -> Trouble {
        let of_store = names.iter().position(|name| name == "store").expect("there is a store");
        let device = Some(names[rng.below(of_store as u64) as usize].clone());
        let (name, fault) = match rng.below(3) {
            0 => ("a lost write", Fault::Lost),
            1 => ("a spoilt write", Fault::BitRot { bits: 1 }),
            _ => ("a misdirected write", Fault::Misdirected { by: 512 * pick(rng, &[-8, -1, 1, 8]) }),
        };
        let rule = FaultRule { calls: Calls::Writes, device, when: When::Nth(rng.below(60)), fault };
        Trouble { name, rule, severity: Severity::Detected, lasting: true }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} clients on {} keys, {:?}, {} cores, a turn is lost once in {}",
            self.clients, self.keys, self.isolation, self.cores, self.preempt_one_in
        )?;
        writeln!(
            f,
            "pages of {}, {} frames, {} log devices of {} KiB, store of at most {} MiB{}",
            self.page_size,
            self.frames,
            self.log_devices,
            self.log_bytes_each >> 10,
            self.store_limit >> 20,
            self.canary.map_or(String::new(), |canary| format!(", BROKEN: {canary:?}"))
        )?;
        writeln!(f, "{:?}", self.array)?;
        writeln!(f, "outliers of the log: {:?}; cache: {:?}; {:?}", self.hiding, self.cache, self.policy)?;
        for (number, round) in self.rounds.iter().enumerate() {
            write!(f, "round {number}: {} transactions a client", round.transactions)?;
            if let Some((after, survival)) = round.cut_in_recovery {
                write!(f, "; first a power cut {after:?} into the opening ({survival:?} survives)")?;
            }
            for trouble in &round.troubles {
                let device = trouble.rule.device.as_deref().unwrap_or("any device");
                write!(f, "; {} on {device} ({:?})", trouble.name, trouble.rule.when)?;
            }
            for (after, change) in &round.cache_changes {
                write!(f, "; after {after:?} {change:?}")?;
            }
            if round.array.archive_missing {
                write!(f, "; first {} openings without the archive", round.openings_without_archive())?;
            }
            if round.chores != ChoresRound::default() {
                write!(f, "; {:?}", round.chores)?;
            }
            for (name, rule) in &round.array.troubles {
                write!(f, "; {name} ({:?})", rule.when)?;
            }
            if !round.array.changes.is_empty() {
                write!(f, "; log devices: {:?}", round.array.changes)?;
            }
            write!(f, "; ends with {:?}", round.end)?;
            if let Some(device) = round.array.lost_device {
                write!(f, "; then log device {device} is lost")?;
            }
            if round.cache_lost {
                write!(f, "; then the cache's device is lost")?;
            }
            if let Some((device, bits)) = round.rot {
                write!(f, "; then {bits} bits of device {device} rot")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
