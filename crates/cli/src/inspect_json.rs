//! The store and the flash cache in `firn stat --json`.

use crate::store_array;
use firndb::{CacheStatistics, Statistics};
use serde_json::{Value, json};

pub fn store_json(statistics: &Statistics) -> Value {
    let store = &statistics.store;
    json!({
        "pages_allocated": store.pages_allocated, "places": store.places,
        "places_free": store.places_free, "places_live": store.places_live(),
        "places_dead": store.places_dead, "places_held": store.places_held,
        "places_returned": store.places_returned, "shadows_held": store.shadows_held,
        "groups_emptied": store.groups_emptied, "discards_failed": store.discards_failed,
        "groups_kept_by_device": store.groups_kept, "bytes": statistics.store_device.1,
        "array": statistics.store_array.as_ref().map(store_array::as_json),
        "loads": statistics.store_loads.as_ref().map(store_array::loads_json),
        "pages_read": store.pages_read, "read_requests": store.read_requests,
        "pages_written": store.pages_written,
        "map_pages_read": store.metadata_pages_read,
        "map_bytes_read": store.metadata_bytes_read,
        "map_pages_written": store.metadata_pages_written,
        "map_bytes_written": store.metadata_bytes_written,
        "map_memory_bytes": store.map_memory_bytes,
        "deltas_taken": store.deltas_taken, "deltas_waiting": store.deltas_waiting,
        "delta_pages": store.delta_pages,
        "delta_pages_written": store.delta_pages_written,
        "delta_pages_read": store.delta_pages_read,
        "deltas_gathered": store.deltas_gathered,
        "deltas_merged": store.deltas_merged,
        "deltas_merged_for_reads": store.deltas_merged_for_reads,
        "reads_with_delta": store.reads_with_delta,
        "whole_for_size": store.whole_for_size,
        "whole_for_rent": store.whole_for_rent,
        "segments_whole": store.segments_whole,
        "segments_opened": store.segments_opened,
        "segments_emptied": store.segments_emptied,
        "images_moved": store.images_moved,
        "places_scattered": store.places_scattered,
        "syncs": store.syncs, "syncs_shared": store.syncs_shared
    })
}

pub fn cache_json(cache: &CacheStatistics) -> Value {
    json!({
        "slots": cache.slots, "slots_used": cache.slots_used, "pages_valid": cache.pages_valid,
        "pages_dirty": cache.pages_dirty, "duplicate_share": cache.duplicate_share(),
        "hits": cache.hits, "misses": cache.misses, "read_requests": cache.read_requests,
        "groups_read": cache.groups_read, "images_read": cache.images_read, "hit_share": cache.hit_share(),
        "dirty_enqueued": cache.dirty_enqueued, "clean_enqueued": cache.clean_enqueued,
        "clean_declined": cache.clean_declined, "write_backs": cache.write_backs,
        "write_reduction": cache.write_reduction(), "second_chances": cache.second_chances,
        "discarded_invalid": cache.discarded_invalid, "discarded_clean": cache.discarded_clean,
        "writes_by_size_kib_log2": cache.writes_by_size, "write_bytes": cache.write_bytes,
        "segments_written": cache.segments_written, "faults": cache.faults,
        "directory_bytes": cache.directory_bytes, "write_through": cache.write_through, "lost": cache.lost,
    })
}
