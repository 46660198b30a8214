//! Where pages would be read from, by the cache's directory and the store's map.

use super::harness::*;
use crate::page_tier::{PageTier, Whereabouts};
use crate::switch::CacheSwitch;
use firndb_base::sync::Arc;

#[test]
fn pages_in_the_directory_are_in_the_cache_and_the_others_where_the_store_says() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(60);
    pages[1..].chunks(4).for_each(|chunk| assert!(rig.write(chunk).iter().all(Result::is_ok)));
    let (mut above, mut below) = (Vec::new(), Vec::new());
    let cached: Vec<bool> = pages.iter().map(|page| rig.cache.hit(*page).is_some()).collect();
    let Rig { store, cache, .. } = rig;
    store.whereabouts(&pages, &mut below);
    let switch = CacheSwitch::new(store, Some(Arc::new(cache)));
    switch.whereabouts(&pages, &mut above);
    assert_eq!(above.len(), pages.len());
    for ((cached, above), below) in cached.iter().zip(&above).zip(&below) {
        assert_eq!(*above, if *cached { Whereabouts::Cache } else { *below });
    }
    assert_eq!(above[0], Whereabouts::Unwritten);
    let in_store = above.iter().filter(|found| matches!(found, Whereabouts::Store { .. })).count();
    let in_cache = above.iter().filter(|found| **found == Whereabouts::Cache).count();
    assert!(in_store > 10 && in_cache > 10, "{above:?}");
}
