//! The process that is killed: runs the ledger and TPC-C, and acknowledges each commit to its
//! parent once it has returned.

use super::args::TortureChild;
use super::store_devices;
use crate::torture::acknowledgement::Message;
use crate::torture::ledger::Ledger;
use firndb::{CacheSettings, Commit, Database, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_console::Failure;
use firndb_tpcc::tables;
use firndb_workloads::tpcc::{
    self, ClientOptions, LoadOptions, Mix, Population, Scale, Terminals, TpccClient,
};
use firndb_workloads::{Attempt, Client, CommitMode, DriverOptions, EngineError, Outcome, Random};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longer than a parent lets a child run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);
/// Online log of a new database: small, so that it is gone around many times.
const LOG_BYTES: u64 = 24 << 20;

/// Runs until killed; returns only if something failed.
pub fn run(args: &TortureChild) -> Result<(), Failure> {
    let mut options = Options::new()
        .log(|log| log.bytes(LOG_BYTES).devices(args.log_devices as usize))
        .buffer_bytes(args.buffer as usize)
        .tuning(|tuning| tuning.version_bytes(1 << 20).checkpoint_log_bytes(args.checkpoint))
        .cache(|cache| cache.policy(args.cache_policy.policy()));
    options = options.cache(|cache| args.cache_policy.kinds().fold(cache, CacheSettings::kind));
    if let Some(bytes) = args.cache {
        options = options.cache(|cache| cache.bytes(bytes).group_pages(16));
    }
    let options = args.store_shape.map_or(options.clone(), |shape| shape.apply(options));
    let db = options.open(&args.dir)?;
    let ledger = Ledger::open(&db)?;
    let engine = tables::open(db.clone(), Isolation::Snapshot)?;
    let population = match Population::of(&engine)? {
        Some(found) => found,
        None => tpcc::load(&engine, &LoadOptions::new(Scale::tiny(args.warehouses), args.seed), &|_| ())?,
    };
    tell(Message::Ready);
    std::thread::scope(|scope| {
        for client in 0..args.clients {
            let (db, ledger) = (&db, &ledger);
            scope.spawn(move || {
                if let Err(failure) = transfers(db, ledger, args, client) {
                    give_up(&failure);
                }
            });
        }
        scope.spawn(|| {
            if let Err(failure) = change_devices(&db, args) {
                give_up(&failure);
            }
        });
        if args.tpcc_clients > 0
            && let Err(failure) = transactions(&engine, population, args)
        {
            give_up(&failure.into());
        }
    });
    Ok(())
}

/// Changes the store beneath the clients, where it is over several devices.
fn change_devices(db: &Database, args: &TortureChild) -> Result<(), Failure> {
    if args.replace_lost {
        store_devices::replace_lost(db)?;
    }
    if args.change_layouts {
        store_devices::change_layouts(db, Random::new(args.run))?;
    }
    Ok(())
}

/// The other threads would go on for ever; the parent sees the exit status and this sentence.
fn give_up(failure: &Failure) -> ! {
    eprintln!("firn lab torture: a client failed: {failure}");
    std::process::exit(1);
}

/// Tells the parent. If it is gone, so is the reason to go on.
fn tell(message: Message) {
    if message.send().is_err() {
        std::process::exit(1);
    }
}

/// Runs transfers of one client, each until it commits.
fn transfers(db: &Database, ledger: &Ledger, args: &TortureChild, client: u16) -> Result<(), Failure> {
    let mut number = {
        let mut tx = db.snapshot();
        ledger.head(&mut tx, client)? + 1
    };
    let mut outstanding: VecDeque<(u64, Commit)> = VecDeque::new();
    let mut refused = 0u32;
    loop {
        let outcome = ledger.transfer(db, args.seed, client, number).and_then(|tx| {
            if args.acknowledge_early {
                tell(Message::Transfer { client, number });
            }
            tx.commit_async()
        });
        match outcome {
            Ok(commit) => outstanding.push_back((number, commit)),
            Err(error) if error.is_retry() && refused < 10_000 => {
                refused += 1;
                std::thread::sleep(Duration::from_micros(50 << refused.min(6)));
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        refused = 0;
        number += 1;
        while let Some((number, commit)) = outstanding.front() {
            if outstanding.len() > args.window as usize {
                commit.wait()?;
            } else if !commit.is_durable() {
                break;
            }
            if !args.acknowledge_early {
                tell(Message::Transfer { client, number: *number });
            }
            outstanding.pop_front();
        }
    }
}

/// Runs TPC-C's clients.
fn transactions(engine: &FirnEngine, population: Population, args: &TortureChild) -> Outcome<()> {
    let driver = DriverOptions::new(args.tpcc_clients.into(), FOR_EVER);
    let clients =
        ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: args.seed ^ args.run };
    let make =
        |number| Ok(Telling { kind: 0, client: TpccClient::new(engine, population, &clients, number)? });
    firndb_workloads::drive(&driver, &tpcc::KINDS, &AtomicBool::new(false), make, &mut |_| ())?;
    Err(EngineError::Fatal("the clients stopped".into()))
}

/// A client of TPC-C that tells of its commits.
struct Telling<C> {
    kind: usize,
    client: C,
}

impl<C: Client> Client for Telling<C> {
    fn draw(&mut self) -> usize {
        self.kind = self.client.draw();
        self.kind
    }
    fn attempt(&mut self, mode: CommitMode) -> Outcome<Attempt> {
        assert_eq!(mode, CommitMode::Wait, "what returns is durable");
        let attempt = self.client.attempt(mode)?;
        if let Attempt::Committed(_) = attempt {
            tell(Message::Tpcc { kind: self.kind });
        }
        Ok(attempt)
    }
}
