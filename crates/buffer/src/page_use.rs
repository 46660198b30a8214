//! What a page is wanted for, and what its frame knows of its uses.

/// What a page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageUse {
    /// As part of the working set.
    Working,
    /// Only a scan wants it: it is not worth the place of another page, in DRAM or in the flash
    /// cache. Its use by any other thread makes it an ordinary page.
    Once,
}

/// What is known of the uses of a page in its frame: one byte, so that a hit loads no more than
/// that. A hint, but for the first use of a page that was read ahead, which is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uses(u8);

impl Uses {
    /// Used once, or not since the clock's hand passed.
    pub(crate) const COLD: Uses = Uses(0);
    /// Used since the hand passed.
    pub(crate) const REFERENCED: Uses = Uses(1);
    /// Only a scan wants it.
    pub(crate) const ONCE: Uses = Uses(2);
    /// Brought in before any thread fixed it, and not fixed since.
    const AHEAD: u8 = 4;

    /// Of a page that comes in for such a use.
    pub(crate) fn of(page_use: PageUse) -> Uses {
        match page_use {
            PageUse::Working => Uses::COLD,
            PageUse::Once => Uses::ONCE,
        }
    }
    /// The same for a page that no thread has fixed yet.
    pub(crate) fn ahead(self) -> Uses {
        debug_assert!(self != Uses::REFERENCED, "a use is what makes a page referenced");
        Uses(self.0 | Uses::AHEAD)
    }
    pub(crate) const fn byte(self) -> u8 {
        self.0
    }
    pub(crate) fn from_byte(byte: u8) -> Uses {
        Uses(byte)
    }
    pub(crate) fn is_ahead(self) -> bool {
        self.0 & Uses::AHEAD != 0
    }
    /// Whether only a scan wants the page.
    pub(crate) fn is_once(self) -> bool {
        self.0 & Uses::ONCE.0 != 0
    }

    /// After a use. The first use of a page that was read ahead is what it was read for: as if it
    /// came in now. A scan's use is none for replacement; any other makes the page an ordinary one.
    pub(crate) fn after(self, page_use: PageUse) -> Uses {
        match page_use {
            PageUse::Once => Uses(self.0 & !Uses::AHEAD),
            PageUse::Working if self.is_ahead() => Uses::COLD,
            PageUse::Working => Uses::REFERENCED,
        }
    }
}
