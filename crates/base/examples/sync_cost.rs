//! What the wrappers of `sync` cost beside the locks that they wrap, and how fast the simulator is.
//!
//! `cargo run --release -p firndb-base --example sync_cost`; with `locks N` or `bare N` it only
//! takes and releases a mutex and a latch N times, for counting instructions
//! (`valgrind --tool=callgrind`).

use firndb_base::clock;
use firndb_base::sim::{self, Policy, SimOptions};
use firndb_base::sync::{Arc, Mutex, RawLatch, thread};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn wrapped(turns: u64) {
    let (mutex, latch) = (Mutex::new(0u64), RawLatch::new());
    for _ in 0..turns {
        *black_box(&mutex).lock() += 1;
        black_box(&latch).lock_shared();
        // SAFETY: held shared since the line above.
        unsafe { black_box(&latch).unlock_shared() };
    }
}

fn bare(turns: u64) {
    use parking_lot::lock_api::RawRwLock as _;
    let (mutex, latch) = (parking_lot::Mutex::new(0u64), parking_lot::RawRwLock::INIT);
    for _ in 0..turns {
        *black_box(&mutex).lock() += 1;
        black_box(&latch).lock_shared();
        // SAFETY: held shared since the line above.
        unsafe { black_box(&latch).unlock_shared() };
    }
}

/// Seconds of real time, and what the run was.
fn timed(options: SimOptions, body: impl FnOnce() + Send + 'static) -> (f64, sim::SimOutcome<()>) {
    let began = Instant::now();
    let outcome = sim::run(options, body).unwrap_or_else(|failure| panic!("{failure}"));
    (began.elapsed().as_secs_f64(), outcome)
}

fn simulated(pin: bool) {
    let options = SimOptions { pin, policy: Policy::Fair, ..SimOptions::default() };
    let pairs = 1_000_000;
    let (seconds, _) = timed(options.clone(), move || {
        let mutex = Mutex::new(0u64);
        (0..pairs).for_each(|_| *mutex.lock() += 1);
    });
    println!("pin {pin}: lock and unlock, no other thread: {:.0} ns", seconds * 1e9 / pairs as f64);

    let sleeps = 1_000_000;
    let (seconds, outcome) =
        timed(options.clone(), move || (0..sleeps).for_each(|_| clock::sleep(Duration::from_micros(1))));
    assert_eq!(outcome.switches, 0);
    println!("pin {pin}: a sleep, no other thread: {:.0} ns", seconds * 1e9 / sleeps as f64);

    for threads in [2u64, 16] {
        let (seconds, outcome) = timed(options.clone(), move || {
            let mutex = Arc::new(Mutex::new(0u64));
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        (0..200_000 / threads).for_each(|_| {
                            *mutex.lock() += 1;
                            clock::sleep(Duration::from_micros(1));
                        });
                    });
                }
            });
        });
        let switches = outcome.switches as f64;
        println!(
            "pin {pin}: {threads} threads: {:.0} ns a hand-over, {:.0} a second",
            seconds * 1e9 / switches,
            switches / seconds
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, turns] = &args[..] {
        let turns = turns.parse().expect("a number of turns");
        if what == "locks" {
            wrapped(turns)
        } else {
            bare(turns)
        }
        return;
    }
    let turns = 20_000_000;
    for round in 0..3 {
        for (name, work) in [("parking_lot", bare as fn(u64)), ("firndb_base", wrapped)] {
            let began = Instant::now();
            work(turns);
            let ns = began.elapsed().as_secs_f64() * 1e9 / turns as f64;
            println!("round {round}: {name}: a mutex pair and a latch pair: {ns:.2} ns");
        }
    }
    simulated(true);
    simulated(false);
}
