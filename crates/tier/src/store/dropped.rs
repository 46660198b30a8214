//! The metadata pages that were dropped from memory lately: one that is read again soon would have
//! stayed, had the map more memory.

use super::meta_page::MetaId;
use firndb_base::hash::FixedMap;
use std::collections::VecDeque;

/// Names of pages, in the order in which they were dropped; some 100 bytes each, as few as growth
/// would add pages: a fortieth of what it would take.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Oldest first, with their numbers; those that have come back since are no longer in `newest`.
    order: VecDeque<(MetaId, u64)>,
    newest: FixedMap<MetaId, u64>,
    next: u64,
}

impl Dropped {
    /// A page was dropped; `most` are remembered.
    pub(crate) fn note(&mut self, id: MetaId, most: usize) {
        if most == 0 {
            *self = Dropped::default();
            return;
        }
        self.order.push_back((id, self.next));
        self.newest.insert(id, self.next);
        self.next += 1;
        while self.order.len() > most {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if self.newest.get(&oldest) == Some(&number) {
                self.newest.remove(&oldest);
            }
        }
    }

    /// A page has come back: whether it is remembered. It is not from now on.
    pub(crate) fn take(&mut self, id: MetaId) -> bool {
        self.newest.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_dropped_last_are_remembered_until_they_come_back() {
        let mut dropped = Dropped::default();
        for number in [1, 2, 3, 2] {
            dropped.note(MetaId::Map(number), 3);
        }
        assert!(!dropped.take(MetaId::Map(1)), "three were dropped since");
        assert!(dropped.take(MetaId::Map(2)) && !dropped.take(MetaId::Map(2)), "once");
        assert!(dropped.take(MetaId::Map(3)));
        dropped.note(MetaId::Map(4), 3);
        dropped.note(MetaId::Map(5), 0);
        assert!(
            !dropped.take(MetaId::Map(5))
                && !dropped.take(MetaId::Map(4))
                && dropped.order.is_empty()
                && dropped.newest.is_empty()
        );
    }
}
