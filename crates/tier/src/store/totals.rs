//! Sums over all groups, kept as a metadata page so that opening need not recount them.

/// The body of the totals page: four numbers of eight bytes, then zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Pages allocated; page 0 is not counted.
    pub pages: u64,
    /// Places in use, those of delta pages included.
    pub places: u64,
    /// Groups without space on the device for their places now.
    pub unbacked_groups: u64,
    /// Places of delta pages.
    pub delta_pages: u64,
}

impl Totals {
    pub(crate) fn read(body: &[u8]) -> Totals {
        let at = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        Totals { pages: at(0), places: at(8), unbacked_groups: at(16), delta_pages: at(24) }
    }
    pub(crate) fn write(self, body: &mut [u8]) {
        body[0..8].copy_from_slice(&self.pages.to_le_bytes());
        body[8..16].copy_from_slice(&self.places.to_le_bytes());
        body[16..24].copy_from_slice(&self.unbacked_groups.to_le_bytes());
        body[24..32].copy_from_slice(&self.delta_pages.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_have_golden_bytes() {
        let mut body = [0; 32];
        let totals = Totals { pages: 1, places: 2, unbacked_groups: 3, delta_pages: 4 };
        totals.write(&mut body);
        let golden = [1, 2, 3, 4].map(u64::to_le_bytes).concat();
        assert_eq!(body[..], golden);
        assert_eq!(Totals::read(&body), totals);
    }
}
