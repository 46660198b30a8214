//! The ghosts that one transaction has made.

use firndb_base::TreeId;
use firndb_btree::KeyRanges;

/// Rows that one transaction has made ghosts of: the first ones one by one, further ones by ranges.
#[derive(Debug, Default)]
pub(crate) struct GhostList {
    /// Keys one after the other.
    keys: Vec<u8>,
    /// For each, its tree and its end.
    ends: Vec<(TreeId, u32)>,
    more: Option<Box<KeyRanges>>,
}

impl GhostList {
    /// Rows kept one by one, at most.
    const ROWS_MAX: usize = 256;
    const KEYS_MAX: usize = 8 << 10;
    const MORE_MAX: usize = 16 << 10;

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.more.is_none()
    }

    pub fn add(&mut self, tree: TreeId, key: &[u8]) {
        if self.ends.len() == GhostList::ROWS_MAX || self.keys.len() + key.len() > GhostList::KEYS_MAX {
            let mut more = self.more.take().unwrap_or_else(|| Box::new(KeyRanges::new(GhostList::MORE_MAX)));
            self.each(|tree, key| more.add_key(tree, key));
            self.more = Some(more);
            self.keys.clear();
            self.ends.clear();
        }
        self.keys.extend_from_slice(key);
        self.ends.push((tree, self.keys.len() as u32));
    }

    fn each(&self, mut show: impl FnMut(TreeId, &[u8])) {
        let mut start = 0;
        for &(tree, end) in &self.ends {
            show(tree, &self.keys[start..end as usize]);
            start = end as usize;
        }
    }

    pub fn add_to(&self, ranges: &mut KeyRanges) {
        if let Some(more) = &self.more {
            ranges.add_all(more);
        }
        self.each(|tree, key| ranges.add_key(tree, key));
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let more = self.more.as_ref().map_or(0, |more| size_of::<KeyRanges>() + more.bytes());
        self.keys.capacity() + self.ends.capacity() * size_of::<(TreeId, u32)>() + more
    }
}
