//! What the tests of failing devices and of crashes share: devices to open on, a model of what a
//! database must hold, sessions that run scripts on both side by side, and walks over crash images.
//!
//! Every script is deterministic: databases are opened without background threads, and random
//! choices come from seeds. A failure names the script, the fault or the event, and the seed, which
//! replay it.

pub mod bed;
pub mod caches;
pub mod images;
pub mod model;
pub mod scripts;
pub mod session;
pub mod watchdog;

/// What went wrong in some of many cases: counted in full, described for the first few.
#[derive(Debug, Default)]
pub struct Failures {
    count: usize,
    told: Vec<String>,
}

impl Failures {
    /// Sentences that are kept.
    const TOLD_MAX: usize = 25;

    pub fn add(&mut self, sentence: String) {
        self.count += 1;
        if self.told.len() < Failures::TOLD_MAX {
            self.told.push(sentence);
        }
    }
    pub fn count(&self) -> usize {
        self.count
    }
    pub fn join(&mut self, other: Failures) {
        self.count += other.count;
        self.told.extend(other.told);
        self.told.truncate(Failures::TOLD_MAX);
    }
    /// Panics with the sentences, if there are any.
    pub fn assert_none(&self, what: &str) {
        assert!(self.count == 0, "{what}: {} failures, among them\n{}", self.count, self.told.join("\n"));
    }
}

/// Runs `work`; a panic becomes a sentence.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("panicked: {}", text.unwrap_or_default())
    })
}
