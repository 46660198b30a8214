//! One run of a child process: how it is set up, and when it is killed.

use super::acknowledgement::Received;
use super::args::TortureKill;
use super::database;
use super::store_devices::Shape;
use firndb_cache_comparators::Compared;
use firndb_console::Failure;
use firndb_workloads::Random;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a child may take to be ready, or to say anything, before it counts as hung.
const HANG: Duration = Duration::from_secs(60);
/// How often the parent polls the child: short, so that a kill follows an acknowledgement closely.
const LOOK: Duration = Duration::from_micros(200);

/// What differs from one run of a child to the next.
#[derive(Clone, Debug)]
pub struct Setting {
    /// DRAM for pages: small, so that pages are written out all the time.
    buffer: u64,
    /// Bytes of log between checkpoints: small, so that kills fall into them.
    checkpoint: u64,
    /// Commits that a client of the ledger has outstanding; 0 if it waits for each.
    pub window: u32,
    log_devices: u32,
    policy: Option<Compared>,
    /// Of a store over several devices: its shape, and what is done to it beside the clients.
    shape: Option<Shape>,
    replace_lost: bool,
    change_layouts: bool,
}

impl Setting {
    pub fn draw(
        random: &mut Random,
        log_devices: u32,
        (policy, shape): (Option<Compared>, Option<Shape>),
    ) -> Setting {
        Setting {
            buffer: random.between(2, 24) << 20,
            checkpoint: 128 << (10 + random.between(0, 4)),
            window: if random.percent(30) { random.number(1, 50) } else { 0 },
            log_devices,
            policy,
            shape,
            replace_lost: shape.is_some() && random.percent(60),
            change_layouts: shape.is_some() && random.percent(50),
        }
    }
}

/// When a child is killed.
#[derive(Clone, Copy, Debug)]
enum KillAfter {
    /// At this time after its start: while it opens, recovers or, if there was nothing, creates.
    Start(Duration),
    /// As soon as this number of commits has been acknowledged.
    Acknowledgements(u64),
    /// At this time after it was ready.
    Ready(Duration),
}

impl KillAfter {
    fn draw(random: &mut Random, fresh: bool, longest: Duration) -> KillAfter {
        let part = |random: &mut Random, of: Duration| {
            Duration::from_micros(random.between(0, of.as_micros().max(1) as u64))
        };
        match random.between(0, 9) {
            0 | 1 => {
                let opening = if fresh { 600 } else { 60 };
                KillAfter::Start(part(random, Duration::from_millis(opening)))
            }
            2..=6 => {
                let magnitude = random.between(0, 12);
                KillAfter::Acknowledgements(random.between(1, 1 << magnitude))
            }
            _ => KillAfter::Ready(part(random, longest)),
        }
    }
}

/// A child that is to be started and killed.
pub struct ChildRun<'a> {
    pub args: &'a TortureKill,
    /// Seed of the ledger.
    pub seed: u64,
    pub setting: &'a Setting,
    /// Whether everything has still to be made.
    pub fresh: bool,
    /// The longest that a child runs once it is ready.
    pub longest: Duration,
}

impl ChildRun<'_> {
    /// Starts a child, kills it at a drawn moment, and notes what it had acknowledged.
    pub fn start_and_kill(&self, random: &mut Random, received: &mut Received) -> Result<(), Failure> {
        let end = KillAfter::draw(random, self.fresh, self.longest);
        let mut child = self.start(random)?;
        let pipe = child.stdout.take().ok_or_else(|| Failure::new("the child has no pipe"))?;
        let (commits, ready) = (&AtomicU64::new(0), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || received.read(pipe, commits, ready));
            let ended = self.watch(&mut child, end, commits, ready);
            // After a failure, too, no child process is left behind.
            let killed = child.kill().and_then(|()| child.wait());
            let read = match reader.join() {
                Ok(read) => read,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            killed?;
            // A reader that gave up ends the child by closing its pipe: its reason comes first.
            read.and(ended)
        })
    }

    fn start(&self, random: &mut Random) -> Result<Child, Failure> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["lab", "torture", "child", "--dir"]).arg(database(self.args));
        let numbers = [
            ("--seed", self.seed),
            ("--run", random.next_u64() >> 1),
            ("--clients", self.args.clients.into()),
            ("--tpcc-clients", self.args.tpcc_clients.into()),
            ("--warehouses", self.args.warehouses.into()),
            ("--buffer", self.setting.buffer),
            ("--checkpoint", self.setting.checkpoint),
            ("--window", self.setting.window.into()),
            ("--log-devices", self.setting.log_devices.into()),
        ];
        for (name, value) in numbers {
            command.arg(name).arg(value.to_string());
        }
        if let (Some(bytes), Some(policy)) = (self.args.cache, self.setting.policy) {
            command.args(["--cache", &bytes.to_string(), "--cache-policy", &policy.name()]);
        }
        if let Some(shape) = self.setting.shape {
            command.args(["--store-shape", &shape.number().to_string()]);
        }
        if self.setting.replace_lost {
            command.arg("--replace-lost");
        }
        if self.setting.change_layouts {
            command.arg("--change-layouts");
        }
        if self.args.acknowledge_early {
            command.arg("--acknowledge-early");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Returns when it is time to kill the child; an error if the child ended by itself or hangs.
    fn watch(
        &self,
        child: &mut Child,
        end: KillAfter,
        commits: &AtomicU64,
        ready: &AtomicU64,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let mut ready_at = None;
        loop {
            if let Some(status) = child.try_wait()? {
                return Err(Failure::new(format!("the child ended by itself, with {status}")));
            }
            if ready_at.is_none() && ready.load(Ordering::Acquire) > 0 {
                ready_at = Some(Instant::now());
            }
            let over = match end {
                KillAfter::Start(time) => started.elapsed() >= time,
                KillAfter::Acknowledgements(count) => commits.load(Ordering::Acquire) >= count,
                KillAfter::Ready(time) => ready_at.is_some_and(|at| at.elapsed() >= time),
            };
            if over
                || ready_at
                    .is_some_and(|at| at.elapsed() >= self.longest && commits.load(Ordering::Acquire) > 0)
            {
                return Ok(());
            }
            if ready_at.unwrap_or(started).elapsed() > HANG {
                return Err(Failure::new(format!(
                    "HANG: the child said nothing new for {} s",
                    HANG.as_secs()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }
}
