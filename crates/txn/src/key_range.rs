//! Ranges of keys, as they are locked.

/// Keys from `low` to `high`; `None` is without bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// First key in the range.
    pub low: Option<Vec<u8>>,
    /// Last key, and whether it is itself in the range.
    pub high: Option<(Vec<u8>, bool)>,
}

impl KeyRange {
    pub const ALL: KeyRange = KeyRange { low: None, high: None };

    /// One key.
    pub fn of_key(key: &[u8]) -> KeyRange {
        KeyRange { low: Some(key.to_vec()), high: Some((key.to_vec(), true)) }
    }

    /// Both ranges as one, if the next one begins where this one ends, in either direction: a scan
    /// locks its range batch by batch.
    pub fn continued_by(&self, next: &KeyRange) -> Option<KeyRange> {
        let meet = |end: &Option<(Vec<u8>, bool)>, begin: &Option<Vec<u8>>| match (end, begin) {
            (Some((end, true)), Some(begin)) => end == begin,
            _ => false,
        };
        if meet(&self.high, &next.low) {
            return Some(KeyRange { low: self.low.clone(), high: next.high.clone() });
        }
        meet(&next.high, &self.low).then(|| KeyRange { low: next.low.clone(), high: self.high.clone() })
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_ref().is_none_or(|low| low.as_slice() <= key)
            && self.high.as_ref().is_none_or(|(high, inclusive)| {
                if *inclusive { key <= high.as_slice() } else { key < high.as_slice() }
            })
    }
}
