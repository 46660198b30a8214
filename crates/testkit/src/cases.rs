//! Many cases in one test: which of them failed, and how.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What went wrong in some of many cases: counted in full, described for the first few.
#[derive(Debug, Default)]
pub struct Failures {
    count: usize,
    sentences: Vec<String>,
}

impl Failures {
    /// Sentences that are kept.
    const KEPT_MAX: usize = 25;

    /// One more.
    pub fn add(&mut self, sentence: String) {
        self.count += 1;
        if self.sentences.len() < Failures::KEPT_MAX {
            self.sentences.push(sentence);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// These, and those of other cases.
    pub fn join(&mut self, other: Failures) {
        self.count += other.count;
        self.sentences.extend(other.sentences);
        self.sentences.truncate(Failures::KEPT_MAX);
    }

    /// Panics with the sentences, if there are any.
    pub fn assert_none(&self, what: &str) {
        assert!(
            self.count == 0,
            "{what}: {} failures, among them\n{}",
            self.count,
            self.sentences.join("\n")
        );
    }
}

/// Runs `work`; a panic becomes a sentence.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("panicked: {}", text.unwrap_or_default())
    })
}

/// Runs one case; prints which it was if it panics, and panics on.
pub fn case<T>(what: impl Display, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        eprintln!("in the case: {what}");
        resume_unwind(panic)
    })
}
