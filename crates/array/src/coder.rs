//! Encoding pages, decoding them, and making single fragments anew.

use crate::code::Code;
use crate::combine::{CHUNK, combine};
use crate::matrix::{Inverse, PARITY};
use firndb_base::sync::{Arc, RwLock};
use std::collections::BTreeMap;

/// Inverse matrices that are kept, each of at most a few hundred bytes. An array with one member
/// lost needs one for each fragment that may lie there; only one with many members of which several
/// change between slow and fast comes near it.
const INVERSES_MAX: usize = 1024;

/// A code at work, for any number of threads.
#[derive(Debug)]
pub struct Coder {
    code: Code,
    /// By the set of fragments present, a bit each. No other lock is taken under it.
    inverses: RwLock<BTreeMap<u32, Arc<Inverse>>>,
}

impl Coder {
    /// A coder without inverses yet.
    #[must_use]
    pub fn new(code: Code) -> Coder {
        Coder { code, inverses: RwLock::new(BTreeMap::new()) }
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Writes all fragments of a page, which are equally long and together hold it; what a data
    /// fragment has beyond the page's end becomes zeros. Lengths are multiples of 128.
    pub fn encode(&self, page: &[u8], fragments: &mut [&mut [u8]]) {
        assert_eq!(fragments.len(), self.code.written(), "a buffer for each fragment");
        let bytes = fragments[0].len();
        self.check_lengths(page.len(), bytes, fragments.iter().map(|fragment| fragment.len()));
        let (data, parities) = fragments.split_at_mut(self.code.needed());
        let mut left = page;
        for fragment in data.iter_mut() {
            let (own, after) = left.split_at(bytes.min(left.len()));
            fragment[..own.len()].copy_from_slice(own);
            fragment[own.len()..].fill(0);
            left = after;
        }
        let mut inputs: [&[u8]; crate::MEMBERS_MAX] = Default::default();
        inputs.iter_mut().zip(&*data).for_each(|(input, fragment)| *input = fragment);
        let inputs = &inputs[..data.len()];
        for (fragment, row) in parities.iter_mut().zip(&PARITY) {
            combine(fragment, &row[..inputs.len()], inputs);
        }
    }

    /// Writes the page of which these are fragments: exactly as many as the code needs, each with
    /// its number, ascending and equally long.
    pub fn decode(&self, present: &[(usize, &[u8])], page: &mut [u8]) {
        let bytes = self.check_present(present, page.len());
        for &(number, fragment) in present.iter().filter(|(number, _)| *number < self.code.needed()) {
            let own = within(page, number * bytes, bytes);
            own.copy_from_slice(&fragment[..own.len()]);
        }
        if present.last().is_some_and(|(number, _)| *number < self.code.needed()) {
            return;
        }
        let (inverse, inputs) = (self.inverse(present), inputs_of(present));
        for (number, row) in &inverse.lost {
            let own = within(page, number * bytes, bytes);
            combine(own, &row[..present.len()], &inputs[..present.len()]);
        }
    }

    /// Writes one fragment, of data or parity, made of others: exactly as many as the code needs,
    /// each with its number, ascending and equally long.
    pub fn rebuild(&self, present: &[(usize, &[u8])], number: usize, fragment: &mut [u8]) {
        assert!(number < self.code.written(), "{} has no fragment {number}", self.code);
        let bytes = self.check_present(present, fragment.len());
        assert_eq!(bytes, fragment.len(), "fragments are equally long");
        let row = self.inverse(present).row(number);
        combine(fragment, &row[..present.len()], &inputs_of(present)[..present.len()]);
    }

    fn check_lengths(&self, page: usize, bytes: usize, all: impl IntoIterator<Item = usize>) {
        assert!(all.into_iter().all(|len| len == bytes), "fragments are equally long");
        assert!(page <= bytes * self.code.needed(), "{page} bytes do not fit into fragments of {bytes}");
        assert!(
            page.is_multiple_of(CHUNK) && bytes.is_multiple_of(CHUNK),
            "{page}, {bytes}: no whole chunks"
        );
    }

    /// Returns how long the fragments are.
    fn check_present(&self, present: &[(usize, &[u8])], page: usize) -> usize {
        assert_eq!(present.len(), self.code.needed(), "{} needs as many fragments", self.code);
        assert!(present.windows(2).all(|two| two[0].0 < two[1].0), "fragments are given in order");
        assert!(present.last().is_some_and(|(number, _)| *number < self.code.written()), "no such fragment");
        let bytes = present[0].1.len();
        self.check_lengths(page, bytes, present.iter().map(|(_, fragment)| fragment.len()));
        bytes
    }

    fn inverse(&self, present: &[(usize, &[u8])]) -> Arc<Inverse> {
        let key = present.iter().fold(0, |bits, (number, _)| bits | 1 << number);
        if let Some(known) = self.inverses.read().get(&key) {
            return known.clone();
        }
        let inverse = Arc::new(Inverse::of(present.iter().map(|(number, _)| *number).collect()));
        let mut inverses = self.inverses.write();
        if inverses.len() < INVERSES_MAX {
            inverses.insert(key, inverse.clone());
        }
        inverse
    }
}

/// What of the page lies from `start` on, at most `bytes`.
fn within(page: &mut [u8], start: usize, bytes: usize) -> &mut [u8] {
    let end = (start + bytes).min(page.len());
    &mut page[start.min(end)..end]
}

fn inputs_of<'a>(present: &[(usize, &'a [u8])]) -> [&'a [u8]; crate::MEMBERS_MAX] {
    let mut inputs: [&[u8]; crate::MEMBERS_MAX] = Default::default();
    inputs.iter_mut().zip(present).for_each(|(input, (_, fragment))| *input = fragment);
    inputs
}

#[cfg(test)]
mod tests;
