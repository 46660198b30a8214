//! Erased blocks, ready to be written.

use super::wear::{Temperature, WearLevelling};
use super::{BlockAddress, Flash};

/// Erased blocks, in the order in which they became free.
#[derive(Debug)]
pub(super) struct FreeBlocks {
    blocks: Vec<BlockAddress>,
    levelling: WearLevelling,
}

impl FreeBlocks {
    /// All blocks of new chips.
    pub fn all(flash: &Flash, levelling: WearLevelling) -> FreeBlocks {
        FreeBlocks { blocks: (0..flash.geometry().blocks()).map(BlockAddress).collect(), levelling }
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }
    pub fn put(&mut self, block: BlockAddress) {
        debug_assert!(!self.blocks.contains(&block), "a block becomes free once");
        self.blocks.push(block);
    }
    /// Removes this block, if it is free.
    pub fn take_this(&mut self, block: BlockAddress) -> bool {
        match self.blocks.iter().position(|free| *free == block) {
            Some(at) => {
                self.blocks.remove(at);
                true
            }
            None => false,
        }
    }

    /// The block erased most often.
    pub fn most_worn(&self, flash: &Flash) -> Option<BlockAddress> {
        self.blocks.iter().copied().max_by_key(|block| (flash.erases(*block), u32::MAX - block.0))
    }

    /// Removes the free block that wear levelling chooses, on `chip` if that has one.
    pub fn take(&mut self, flash: &Flash, chip: usize, temperature: Temperature) -> Option<BlockAddress> {
        let here = |block: &BlockAddress| flash.geometry().chip_of(*block) == chip;
        let on_chip: Vec<usize> = (0..self.blocks.len()).filter(|index| here(&self.blocks[*index])).collect();
        let erases = |index: &usize| flash.erases(self.blocks[*index]);
        let index = match self.levelling.choose_free(on_chip.iter().map(erases), temperature) {
            Some(chosen) => on_chip[chosen],
            None => {
                let all = self.blocks.iter().map(|block| flash.erases(*block));
                self.levelling.choose_free(all, temperature)?
            }
        };
        Some(self.blocks.remove(index))
    }
}
