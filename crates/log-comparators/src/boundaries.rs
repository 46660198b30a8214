//! Group boundaries that lanes pass.

use firndb_base::Lsn;
use std::collections::VecDeque;

/// Group boundaries ahead, ascending, and the last one passed.
#[derive(Debug)]
pub(crate) struct Boundaries {
    passed: Lsn,
    ahead: VecDeque<Lsn>,
}

impl Boundaries {
    pub fn new(start: Lsn) -> Boundaries {
        Boundaries { passed: start, ahead: VecDeque::new() }
    }

    pub fn add(&mut self, boundary: Lsn) {
        if let Err(place) = self.ahead.binary_search(&boundary)
            && boundary > self.passed
        {
            self.ahead.insert(place, boundary);
        }
    }

    /// Passes all boundaries at or before `lsn`. Returns the last, if there was one.
    pub fn pass(&mut self, lsn: Lsn) -> Option<Lsn> {
        let before = self.passed;
        while self.ahead.front().is_some_and(|&boundary| boundary <= lsn) {
            self.passed = self.ahead.pop_front().expect("checked above");
        }
        (self.passed > before).then_some(self.passed)
    }
}
