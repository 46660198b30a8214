//! Pages that are to be brought in before a thread fixes them.

use crate::page_use::PageUse;
use firndb_base::PageId;

/// A page to bring in, and what for.
pub(crate) type Hint = (PageId, PageUse);

/// Pages to bring in.
pub(crate) trait Hints {
    /// The next one. `more` are wanted in all, just now.
    fn next(&mut self, more: usize) -> Option<Hint>;
    /// The one before was not used.
    fn put_back(&mut self, hint: Hint);
}

/// A list of hints, and how many of them were looked at.
pub(crate) struct Listed<'a> {
    pub(crate) hints: &'a [Hint],
    pub(crate) passed: usize,
}

impl Hints for Listed<'_> {
    fn next(&mut self, _: usize) -> Option<Hint> {
        let hint = self.hints.get(self.passed).copied()?;
        self.passed += 1;
        Some(hint)
    }
    fn put_back(&mut self, _: Hint) {
        self.passed -= 1;
    }
}
