//! Ends the process when one case takes too long: a hang must be a failure with a name, not a test
//! that never ends, and a thread that hangs cannot be ended otherwise.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that one case may take. Cases take milliseconds; machines may be busy.
const LIMIT: Duration = Duration::from_secs(30);

fn hangs(case: &str, limit: Duration) -> ! {
    // Not by eprintln!, whose output a test harness keeps to itself.
    let _ = writeln!(std::io::stderr(), "{case} hangs: it did not end within {limit:?}");
    std::process::abort()
}

/// Watches over the cases of one test. Ends with it.
pub struct Watchdog {
    now: Arc<Mutex<(String, Instant)>>,
    /// Dropped with the watchdog, which ends its thread.
    _ends: Sender<()>,
}

impl Watchdog {
    /// Watches from here on.
    #[must_use]
    pub fn start() -> Watchdog {
        let now = Arc::new(Mutex::new(("the start".to_owned(), Instant::now())));
        let watched = now.clone();
        let (sender, ended) = channel::<()>();
        thread::spawn(move || {
            while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                let (case, since) = watched.lock().expect("never poisoned").clone();
                if since.elapsed() > LIMIT {
                    hangs(&case, LIMIT);
                }
            }
        });
        Watchdog { now, _ends: sender }
    }

    /// Says what runs from here on.
    pub fn case(&self, case: impl Into<String>) {
        *self.now.lock().expect("never poisoned") = (case.into(), Instant::now());
    }
}

/// Runs `test` in a thread of its own, which must end within `limit`.
pub fn within(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let began = Instant::now();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let worker = thread::Builder::new().name(name.clone()).spawn(test).expect("a thread");
    while !worker.is_finished() {
        if began.elapsed() > limit {
            hangs(&name, limit);
        }
        thread::sleep(Duration::from_millis(2));
    }
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}
