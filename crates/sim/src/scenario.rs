//! What a seed stands for: the machine, the options, the clients, and what goes wrong.

mod draw;
mod show;

use crate::array::{ARCHIVE_GONE, ArrayRound, ArraySetup};
use crate::chores::ChoresRound;
use crate::medium::{Survival, Timing, Uniform};
use draw::pick;
use firndb::device::{FaultRule, When};
use firndb::{
    ArchiveFull, CachePolicy, CacheSettings, CacheSpec, Deltas, Isolation, Options, PageRecovery, Placement,
};
use firndb_base::rng::Rng;
use firndb_base::sim::Policy;
use firndb_cache_comparators::Compared;
use firndb_log_comparators::{Comparator, Hedging};
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
    /// Which cache it is, and its policy.
    pub policy: Compared,
    /// Pages that it holds, about.
    pub pages: u64,
    /// Pages replaced at a time.
    pub group_pages: usize,
    /// Whether dirty pages go to the store at once.
    pub write_through: bool,
}

/// How the store keeps its pages and their map.
#[derive(Clone, Copy, Debug)]
pub struct StoreSetup {
    pub placement: Placement,
    /// Bytes of a metadata page and map pages of a group, if they are not the default.
    pub layout: Option<(usize, u32)>,
    /// From which page number on compaction moves pages, if it is not what the file's length asks.
    pub numbers_limit: Option<u64>,
    /// DRAM for the page map: the buffer's over this.
    pub map_share: Option<usize>,
    /// One in this number of discards and cuts of its devices fails.
    pub refuses_one_in: Option<u64>,
    /// Over several devices: fragments that give a page back, fragments, and devices.
    pub array: Option<(usize, usize, usize)>,
}

impl StoreSetup {
    /// Devices beside the first.
    #[must_use]
    pub fn others(&self) -> usize {
        self.array.map_or(0, |(_, _, of)| of - 1)
    }
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
    /// DRAM for deltas that wait, if pages are written as deltas.
    pub delta_bytes: Option<usize>,
    /// How pages of page files become durable at commit, and DRAM for those of open transactions.
    pub page_files: (PageRecovery, usize),
    pub store: StoreSetup,
    pub log_devices: usize,
    /// Bytes of each log device.
    pub log_bytes_each: u64,
    /// Time that reading the log may take after a crash, if checkpoints go by that.
    pub recovery_time: Option<Duration>,
    /// How the log hides outliers.
    pub hiding: Hedging,
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
    /// A commit record is durable before the shadows of the pages that it makes reachable.
    LateShadows,
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
        let policy = Compared::Firn(CachePolicy::GroupSecondChance);
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

    /// The same with commit records before their shadows, and a power cut that can show it.
    #[must_use]
    pub fn with_late_shadows(mut self) -> Scenario {
        self = self.with_canary();
        self.canary = Some(Canary::LateShadows);
        self.cache = None;
        self.page_files = (PageRecovery::Shadow, 64 * self.page_size);
        for round in &mut self.rounds {
            round.cache_changes.clear();
            round.end = End::PowerCut(Duration::from_millis(20), Survival::None);
        }
        self
    }

    /// Has tables analyzed while a round lasts, though they have few rows.
    fn analyses(&self, options: Options) -> Options {
        match self.seed % 3 {
            2 => options,
            _ => options.analyze_every(Duration::from_millis(3), 1),
        }
    }

    /// The options for opening and creating.
    #[must_use]
    pub fn options(&self) -> Options {
        let comparator = Comparator { hedging: self.hiding, ..Comparator::default() };
        let mut options = self
            .analyses(Options::new())
            .page_size(self.page_size)
            .buffer_bytes(self.frames * self.page_size * 17 / 16 + self.delta_bytes.unwrap_or(0))
            .tuning(|tuning| tuning.version_bytes(self.version_bytes))
            .log(|log| log.devices(self.log_devices).bytes(self.log_bytes_each * self.log_devices as u64))
            .log(|log| log.copies(self.array.copies).hiding(comparator.hiding()).layout(comparator.layout()))
            // Else a device that fails is not given up: the machine of the next round has all of
            // them.
            .log(|log| log.copies_required(if self.array.lenient { 1 } else { self.log_devices }));
        if let Some(bytes) = self.delta_bytes {
            options = options.tuning(|tuning| tuning.deltas(Deltas::On).delta_bytes(bytes));
        }
        options = options.tuning(|tuning| tuning.placement(self.store.placement));
        let (recovery, bytes) = self.page_files;
        options = options.tuning(|tuning| tuning.page_recovery(recovery).page_file_bytes(bytes));
        if let Some(limit) = self.store.numbers_limit {
            options = options.move_page_numbers_from(limit);
        }
        if let Some(time) = self.recovery_time {
            options = options.recovery_time(time);
        }
        if let Some((meta_bytes, maps_per_group)) = self.store.layout {
            options = options.store_layout(meta_bytes, maps_per_group);
        }
        if let Some((needed, written, _)) = self.store.array {
            options = options.store_code(needed, written);
            if self.seed % 4 != 3 {
                // While a round lasts.
                options = options.choose_layouts_every(Duration::from_millis(5)).choose_layouts_in_turn();
            }
        }
        if let Some(share) = self.store.map_share {
            let bytes = self.frames * self.page_size * 17 / 16 / share;
            options = options.tuning(|tuning| tuning.map_bytes(bytes));
        }
        // One that is attached later may be of any kind.
        let first = self.cache.map_or(Compared::Firn(CachePolicy::default()), |cache| cache.policy);
        options = options.cache(|cache| first.kinds().fold(cache, CacheSettings::kind));
        if let Some(cache) = self.cache {
            options = options.cache(|settings| {
                settings
                    .bytes(cache.pages * self.page_size as u64)
                    .policy(cache.policy.policy())
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
            Some(Canary::LateShadows) => options,
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

impl CacheSetup {
    /// As a cache to be attached.
    #[must_use]
    pub fn spec(&self, page_size: usize) -> CacheSpec {
        CacheSpec::new(self.pages * page_size as u64)
            .kind(self.policy.kind())
            .policy(self.policy.policy())
            .group_pages(self.group_pages)
            .write_through(self.write_through)
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
}
