//! A job queue with several workers: each job is done exactly once, whatever fails.
//!
//! A worker claims a job by locking its row, does it, and moves the row to `done`, all in one
//! transaction. A worker that fails, or a crash, rolls that back, and the job waits again.
//!
//! `cargo run -p firndb --example job_queue`

use firndb::{Database, Direction, ErrorKind, KeyRange, Table, Transaction, TransactionOptions};
use std::error::Error;
use std::time::Duration;

const JOBS: u64 = 60;
const WORKERS: u8 = 4;

/// Why a worker's transaction was rolled back. `transact` returns the caller's own error type.
#[derive(Debug)]
enum Stopped {
    /// The job itself failed; it is to be tried again.
    JobFailed(u64),
    Database(firndb::Error),
}

impl From<firndb::Error> for Stopped {
    fn from(error: firndb::Error) -> Stopped {
        Stopped::Database(error)
    }
}

struct Queue {
    db: Database,
    waiting: Table,
    done: Table,
    attempts: Table,
}

/// What a look at the queue found.
enum Claimed {
    Job(u64),
    /// Other workers hold all jobs that are left.
    Busy,
    Empty,
}

impl Queue {
    fn open(db: &Database) -> Result<Queue, firndb::Error> {
        let (waiting, done) = (db.open_table("waiting")?, db.open_table("done")?);
        Ok(Queue { db: db.clone(), waiting, done, attempts: db.open_table("attempts")? })
    }

    fn add(&self, jobs: std::ops::Range<u64>) -> Result<(), firndb::Error> {
        self.db.transact(|tx| {
            jobs.clone().try_for_each(|job| tx.insert(&self.waiting, &job.to_be_bytes(), b"square"))
        })
    }

    /// Locks the first waiting job that no other worker has locked. The lock deadline of zero makes
    /// locked rows fail with `Timeout` at once, so that workers pass each other.
    fn claim(&self, tx: &mut Transaction) -> Result<Claimed, firndb::Error> {
        let mut found = Claimed::Empty;
        let mut jobs = tx.scan(&self.waiting, KeyRange::all(), Direction::Forward);
        while let Some((key, _)) = jobs.next(tx)? {
            let key: [u8; 8] = key.try_into().expect("jobs have numbers");
            match tx.get_for_update(&self.waiting, &key) {
                Ok(Some(_)) => return Ok(Claimed::Job(u64::from_be_bytes(key))),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Timeout => found = Claimed::Busy,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Does one job.
    fn step(&self, worker: u8) -> Result<Claimed, Stopped> {
        let options =
            TransactionOptions { lock_deadline: Some(Duration::ZERO), ..TransactionOptions::default() };
        self.db.transact_with(options, |tx| {
            let claimed = self.claim(tx)?;
            if let Claimed::Job(job) = claimed {
                let key = job.to_be_bytes();
                // Every tenth job fails when it is tried for the first time.
                if job % 10 == 0 && tx.get(&self.attempts, &key)?.is_none() {
                    return Err(Stopped::JobFailed(job));
                }
                let result = [&[worker][..], &(job * job).to_be_bytes()].concat();
                tx.delete(&self.waiting, &key)?;
                tx.insert(&self.done, &key, &result)?;
            }
            Ok(claimed)
        })
    }

    /// Works until no job is left; returns how many failures it met.
    fn work(&self, worker: u8) -> Result<u64, firndb::Error> {
        let mut failures = 0;
        loop {
            match self.step(worker) {
                Ok(Claimed::Job(_)) => {}
                Ok(Claimed::Busy) => std::thread::sleep(Duration::from_micros(200)),
                Ok(Claimed::Empty) => return Ok(failures),
                Err(Stopped::JobFailed(job)) => {
                    failures += 1;
                    self.db.transact(|tx| tx.put(&self.attempts, &job.to_be_bytes(), b"1"))?;
                }
                Err(Stopped::Database(error)) => return Err(error),
            }
        }
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = firndb::Options::new().log(|log| log.bytes(4 << 20)).open(dir.path().join("db"))?;
    let queue = Queue::open(&db)?;
    queue.add(0..JOBS)?;
    let failures: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn({
                    let queue = &queue;
                    move || queue.work(worker)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<Result<u64, _>>()
    })?;
    assert!(failures >= JOBS / 10, "each tenth job failed once");

    let tx = &mut db.snapshot();
    let mut done = tx.scan(&queue.done, KeyRange::all(), Direction::Forward);
    for job in 0..JOBS {
        let (key, result) = done.next(tx)?.expect("every job is done");
        assert_eq!((key, &result[1..]), (&job.to_be_bytes()[..], &(job * job).to_be_bytes()[..]));
    }
    assert_eq!(done.next(tx)?, None, "and done once");
    println!("{JOBS} jobs done by {WORKERS} workers, after {failures} failures");
    db.close()?;
    Ok(())
}
