//! What a power cut may undo in one file: the earlier contents of blocks with writes that are not
//! durable yet.
//!
//! The backing file always holds the newest bytes. Before the first overwrite of a block since the
//! last sync *began*, its bytes are kept here with the write's sequence number. A sync that ends
//! drops the entries from before its begin. A power cut chooses, sector by sector, between the
//! durable bytes, those in between, and the newest.
//!
//! Invariant: the entries of a block have rising sequence numbers; its durable bytes are the first
//! entry's, or the file's if it has none.

use firndb_base::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a block, the unit in which earlier contents are kept.
pub const BLOCK: u64 = 4096;

/// Orders the writes and syncs of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// A block's bytes as they were before the write of this number.
type Kept = (Sequence, Box<[u8]>);

/// The earlier contents of one file's blocks.
#[derive(Debug, Default)]
pub struct Undo {
    blocks: BTreeMap<u64, Vec<Kept>>,
    /// The last sync or durable write that began; a write after it needs an entry of its own.
    barrier: Sequence,
    kept: u64,
}

/// What a power cut does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Everything that is not durable is lost.
    AllLost,
    /// Everything survives.
    AllKept,
    /// Each block is drawn independently.
    ByBlock,
    /// Each sector is drawn independently: blocks are torn.
    BySector,
}

impl Undo {
    /// The blocks of `range` that must be kept before they are overwritten.
    #[must_use]
    pub fn wanted(&self, range: &Range<u64>) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let covered = |block: &u64| {
            self.blocks.get(block).and_then(|kept| kept.last()).is_some_and(|(at, _)| *at > self.barrier)
        };
        (range.start / BLOCK..=(range.end - 1) / BLOCK).filter(|block| !covered(block)).collect()
    }

    /// Keeps a block's bytes as they were before the write `at`.
    pub fn keep(&mut self, block: u64, at: Sequence, bytes: Box<[u8]>) {
        assert!(at > self.barrier && bytes.len() as u64 == BLOCK);
        let kept = self.blocks.entry(block).or_default();
        assert!(
            kept.last().is_none_or(|(last, _)| *last <= self.barrier),
            "a block is kept once between syncs"
        );
        kept.push((at, bytes));
        self.kept += BLOCK;
    }

    /// Begins a sync, which does not cover later writes.
    pub fn begin_sync(&mut self, at: Sequence) {
        assert!(at > self.barrier);
        self.barrier = at;
    }

    /// Makes writes to `range` before `at` durable.
    pub fn durable(&mut self, range: Range<u64>, at: Sequence) {
        if range.is_empty() {
            return;
        }
        let mut emptied = Vec::new();
        for (block, kept) in self.blocks.range_mut(range.start / BLOCK..=(range.end - 1) / BLOCK) {
            let before = kept.len();
            kept.retain(|(written, _)| *written > at);
            self.kept -= (before - kept.len()) as u64 * BLOCK;
            if kept.is_empty() {
                emptied.push(*block);
            }
        }
        for block in emptied {
            self.blocks.remove(&block);
        }
    }

    /// Bytes held in memory.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Whether all is durable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// What a power cut writes back over the newest bytes: pieces of whole sectors, each with its
    /// offset. Bytes at or past `cut_to`, the file's newest length, were cut off by a truncation
    /// and are all restored.
    #[must_use]
    pub fn survivors(&self, sector: usize, cut_to: u64, rng: &mut Rng) -> Vec<(u64, Vec<u8>)> {
        assert!(sector > 0 && (BLOCK as usize).is_multiple_of(sector));
        let fate = match rng.below(4) {
            0 => Fate::AllLost,
            1 => Fate::AllKept,
            2 => Fate::ByBlock,
            _ => Fate::BySector,
        };
        let mut pieces = Vec::new();
        for (block, kept) in &self.blocks {
            let for_block = rng.below(kept.len() as u64 + 1) as usize;
            for start in (0..BLOCK as usize).step_by(sector) {
                let offset = block * BLOCK + start as u64;
                let chosen = match fate {
                    _ if offset >= cut_to => 0,
                    Fate::AllLost => 0,
                    Fate::AllKept => kept.len(),
                    Fate::ByBlock => for_block,
                    Fate::BySector => rng.below(kept.len() as u64 + 1) as usize,
                };
                if let Some((_, bytes)) = kept.get(chosen) {
                    pieces.push((offset, bytes[start..start + sector].to_vec()));
                }
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn block(fill: u8) -> Box<[u8]> {
        vec![fill; BLOCK as usize].into_boxed_slice()
    }

    /// The bytes a block of newest content `newest` may have after a cut, over many seeds.
    fn outcomes(undo: &Undo, newest: u8) -> BTreeSet<u8> {
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let mut file = vec![newest; BLOCK as usize];
            for (offset, bytes) in undo.survivors(512, BLOCK, &mut Rng::new(seed)) {
                file[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
            }
            seen.extend(file);
        }
        seen
    }

    #[test]
    fn a_block_is_kept_once_between_syncs() {
        let mut undo = Undo::default();
        assert_eq!(undo.wanted(&(4095..4097)), vec![0, 1]);
        undo.keep(0, Sequence(1), block(0));
        assert_eq!(undo.wanted(&(0..8192)), vec![1]);
        undo.begin_sync(Sequence(2));
        assert_eq!(undo.wanted(&(0..1)), vec![0], "what a sync covers must not be lost to a later write");
        undo.keep(0, Sequence(3), block(1));
        assert_eq!(undo.kept(), 2 * BLOCK);
        assert!(undo.wanted(&(7..7)).is_empty());
    }

    #[test]
    fn a_cut_chooses_among_all_that_is_not_durable_and_nothing_older() {
        let mut undo = Undo::default();
        undo.keep(0, Sequence(1), block(0));
        undo.begin_sync(Sequence(2));
        undo.keep(0, Sequence(3), block(1));
        assert_eq!(outcomes(&undo, 2), BTreeSet::from([0, 1, 2]));
        undo.durable(0..BLOCK, Sequence(2));
        assert_eq!(outcomes(&undo, 2), BTreeSet::from([1, 2]), "the synced bytes or newer ones");
        undo.begin_sync(Sequence(4));
        undo.durable(0..u64::MAX, Sequence(4));
        assert_eq!(outcomes(&undo, 2), BTreeSet::from([2]));
        assert!(undo.is_empty() && undo.kept() == 0);
    }

    #[test]
    fn a_durable_write_covers_its_blocks_only() {
        let mut undo = Undo::default();
        undo.keep(0, Sequence(1), block(0));
        undo.keep(1, Sequence(1), block(0));
        undo.begin_sync(Sequence(2));
        undo.durable(BLOCK..BLOCK + 1, Sequence(2));
        assert_eq!(undo.kept(), BLOCK);
        assert_eq!(undo.wanted(&(BLOCK..2 * BLOCK)), vec![1]);
    }

    #[test]
    fn sectors_are_torn_apart_and_cut_off_bytes_come_back() {
        let mut undo = Undo::default();
        undo.keep(0, Sequence(1), block(7));
        let torn = (0..64).any(|seed| {
            let sectors = undo.survivors(512, BLOCK, &mut Rng::new(seed)).len();
            (1..8).contains(&sectors)
        });
        assert!(torn, "some seed keeps a part of a block");
        for seed in 0..64 {
            let whole = undo.survivors(4096, BLOCK, &mut Rng::new(seed)).len();
            assert!(whole <= 1);
            assert_eq!(undo.survivors(512, 0, &mut Rng::new(seed)).len(), 8, "all lies past the newest end");
        }
    }
}
