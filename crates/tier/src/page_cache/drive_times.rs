//! What requests take of the cache's drive and of the store's.

/// What a cache reads and writes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    /// Bytes of a read of one page, with what the cache keeps beside it.
    pub image_bytes: usize,
    /// Bytes of a group.
    pub group_bytes: usize,
}

/// Microseconds that one request takes of a drive which is busy with requests of that kind alone:
/// one over the rate that it reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveTimes {
    /// Cache: a read of one page.
    pub cache_page_read: f64,
    /// Cache: a read of a whole group.
    pub cache_group_read: f64,
    /// Cache: a durable write of a whole group.
    pub cache_group_write: f64,
    /// Store: a read of one page.
    pub store_page_read: f64,
    /// Store: one page of a write.
    pub store_page_write: f64,
}

impl DriveTimes {
    /// Whether a page found in the cache takes more than half as much of its drive as a miss would
    /// take of the store's.
    pub(crate) fn hits_spare_little(&self) -> bool {
        2.0 * self.cache_page_read > self.store_page_read
    }

    /// Whether requests for `pages` images take less of the cache's drive than one for the group.
    pub(crate) fn favour_pages(&self, pages: usize) -> bool {
        pages as f64 * self.cache_page_read < self.cache_group_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pages_of_a_group_are_read_alone() {
        let (cache_group_write, store_page_read, store_page_write) = (1.0, 1.0, 1.0);
        let (cache_page_read, cache_group_read) = (30.0, 1000.0);
        let times = DriveTimes {
            cache_page_read,
            cache_group_read,
            cache_group_write,
            store_page_read,
            store_page_write,
        };
        assert!(times.favour_pages(33) && !times.favour_pages(34));
    }
}
