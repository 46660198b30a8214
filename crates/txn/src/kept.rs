//! What the layer above keeps with a transaction, so that not each statement asks for it.

use firndb_base::TreeId;
use firndb_base::sync::Arc;
use std::any::Any;

/// Places. Trees with numbers that follow each other, as those of the tables that are used together
/// mostly have, do not meet.
const PLACES: usize = 16;

/// What the layer above keeps.
pub trait Keepable: Any + Send + Sync {
    /// Notes that a transaction which kept this has changed `rows` rows and committed, or was
    /// prepared.
    fn rows_changed(&self, rows: u32);
}

/// A thing, the tree that it is kept by, and the rows changed with it.
struct Thing {
    of: TreeId,
    changed: u32,
    thing: Arc<dyn Keepable>,
}

/// Things of the layer above, each by the id of a tree, which says where it is.
#[derive(Default)]
pub struct Kept {
    things: [Option<Thing>; PLACES],
    /// A bit for each place whose thing has changed rows.
    changed: u16,
}

impl Kept {
    fn place(id: TreeId) -> usize {
        id.0 as usize % PLACES
    }

    /// Takes out what is kept for `id`, if it is a `T`, with the rows changed so far.
    #[inline]
    pub fn take<T: Keepable>(&mut self, id: TreeId) -> Option<(Arc<T>, u32)> {
        let kept = self.things[Kept::place(id)].take_if(|kept| kept.of == id)?;
        let thing: Arc<dyn Any + Send + Sync> = kept.thing;
        Some((thing.downcast().ok()?, kept.changed))
    }

    /// Keeps something with the rows changed by now, in place of another perhaps.
    #[inline]
    pub fn put<T: Keepable>(&mut self, id: TreeId, thing: Arc<T>, changed: u32) {
        let place = Kept::place(id);
        if changed > 0 {
            self.changed |= 1 << place;
        }
        if let Some(other) = self.things[place].replace(Thing { of: id, changed, thing }) {
            other.thing.rows_changed(other.changed);
        }
    }

    /// The transaction is rolled back: it has changed nothing.
    pub(crate) fn forget_changes(&mut self) {
        self.changed = 0;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        while self.changed != 0 {
            if let Some(kept) = &self.things[self.changed.trailing_zeros() as usize] {
                kept.thing.rows_changed(kept.changed);
            }
            self.changed &= self.changed - 1;
        }
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.things.iter().flatten().map(|kept| kept.of)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counter(u32, AtomicU32);

    impl Keepable for Counter {
        fn rows_changed(&self, rows: u32) {
            self.1.fetch_add(rows, Ordering::Relaxed);
        }
    }

    fn counter(number: u32) -> Arc<Counter> {
        Arc::new(Counter(number, AtomicU32::new(0)))
    }

    #[test]
    fn what_was_kept_is_taken_once_and_only_so_much_is() {
        let mut kept = Kept::default();
        assert!(kept.take::<Counter>(TreeId(1)).is_none());
        (0..20).for_each(|id| kept.put(TreeId(id), counter(id), 0));
        let found: Vec<u32> =
            (0..20).filter_map(|id| kept.take::<Counter>(TreeId(id))).map(|(thing, _)| thing.0).collect();
        assert_eq!(found, Vec::from_iter(4..20), "the newest of each place");
        assert!((0..20).all(|id| kept.take::<Counter>(TreeId(id)).is_none()));
    }

    #[test]
    fn changed_rows_are_noted_once_at_the_end_or_when_another_takes_the_place() {
        let things: Vec<Arc<Counter>> = (0..20).map(counter).collect();
        let noted = || things.iter().map(|thing| thing.1.load(Ordering::Relaxed)).collect::<Vec<u32>>();
        let mut kept = Kept::default();
        kept.put(TreeId(3), things[3].clone(), 1);
        let (thing, changed) = kept.take::<Counter>(TreeId(3)).unwrap();
        kept.put(TreeId(3), thing, changed + 4);
        kept.put(TreeId(7), things[7].clone(), 0);
        assert_eq!(noted(), vec![0; 20]);
        kept.put(TreeId(19), things[19].clone(), 2);
        let mut expected = vec![0; 20];
        expected[3] = 5;
        assert_eq!(noted(), expected, "it had the place of the first");
        drop(kept);
        expected[19] = 2;
        assert_eq!(noted(), expected);
        let mut kept = Kept::default();
        kept.put(TreeId(7), things[7].clone(), 9);
        kept.forget_changes();
        drop(kept);
        assert_eq!(noted(), expected, "rolled back");
    }
}
