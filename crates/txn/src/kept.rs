//! What the layer above keeps with a transaction, so that not each statement asks for it.

use firndb_base::TreeId;
use firndb_base::sync::Arc;
use std::any::Any;

/// Places. Trees with numbers that follow each other, as those of the tables that are used together
/// mostly have, do not meet.
const PLACES: usize = 16;

/// A thing, and the tree that it is kept by.
type Thing = (TreeId, Arc<dyn Any + Send + Sync>);

/// Things of the layer above, each by the id of a tree, which says where it is.
#[derive(Default)]
pub struct Kept {
    things: [Option<Thing>; PLACES],
}

impl Kept {
    fn place(&mut self, id: TreeId) -> &mut Option<Thing> {
        &mut self.things[id.0 as usize % PLACES]
    }

    /// Takes out what is kept for `id`, if it is a `T`.
    #[inline]
    pub fn take<T: Any + Send + Sync>(&mut self, id: TreeId) -> Option<Arc<T>> {
        let (_, thing) = self.place(id).take_if(|(of, _)| *of == id)?;
        thing.downcast().ok()
    }

    /// Keeps something, in place of another perhaps.
    #[inline]
    pub fn put<T: Any + Send + Sync>(&mut self, id: TreeId, thing: Arc<T>) {
        *self.place(id) = Some((id, thing));
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.things.iter().flatten().map(|(id, _)| id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_taken_once_and_only_so_much_is() {
        let mut kept = Kept::default();
        assert!(kept.take::<u32>(TreeId(1)).is_none());
        (0..20).for_each(|id| kept.put(TreeId(id), Arc::new(id)));
        let found: Vec<u32> = (0..20).filter_map(|id| kept.take(TreeId(id))).map(|thing| *thing).collect();
        assert_eq!(found, Vec::from_iter(4..20), "the newest of each place");
        assert!((0..20).all(|id| kept.take::<u32>(TreeId(id)).is_none()));
        kept.put(TreeId(1), Arc::new("another type"));
        assert!(kept.take::<u32>(TreeId(1)).is_none());
    }
}
