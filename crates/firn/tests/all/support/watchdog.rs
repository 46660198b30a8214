//! Ends the test when one case takes too long: a hang must be a failure with a name, not a test
//! that never ends.

use std::process;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that one case may take. Cases take milliseconds; machines may be busy.
const LIMIT: Duration = Duration::from_secs(30);

/// Watches over one test. Ends with it.
#[derive(Clone)]
pub struct Watchdog {
    now: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Watchdog {
    pub fn start() -> Watchdog {
        let dog = Watchdog { now: Arc::new(Mutex::new(Some(("the start".to_owned(), Instant::now())))) };
        let now = dog.now.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(500));
                let Some((case, since)) = now.lock().expect("never poisoned").clone() else { return };
                if since.elapsed() > LIMIT {
                    eprintln!("hangs: {case}");
                    process::abort();
                }
            }
        });
        dog
    }

    /// Says what runs from here on.
    pub fn case(&self, case: impl Into<String>) {
        *self.now.lock().expect("never poisoned") = Some((case.into(), Instant::now()));
    }

    pub fn end(&self) {
        *self.now.lock().expect("never poisoned") = None;
    }
}
