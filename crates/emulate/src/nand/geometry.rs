//! What a flash array is made of: sizes, times, and how its parts are named.

use super::NandError;

/// A page that the host names: byte offset divided by the page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalPage(pub u32);

/// An erase block of the array. Block `b` is on chip `b % chips`, so that neighbours are on
/// different chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress(pub u32);

/// A physical page: its block's number times the pages of a block, plus its place in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddress(pub u32);

/// Pages of an array that the model can hold: at about 20 bytes of memory a page, 2.5 GiB.
const PAGES_MAX: u64 = 1 << 27;

/// How a flash array is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a page: the unit of reading and programming. A power of two from 512 to 65536.
    pub page_bytes: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Erase blocks of a chip.
    pub blocks_per_chip: u32,
    /// Chips (dies) that work side by side.
    pub chips: u32,
    /// Chips that share one bus for transfers.
    pub chips_per_channel: u32,
}

impl Geometry {
    /// The array of Myers's simulator (2008, section 8.4): four chips of 16 MiB, pages of 2 KiB,
    /// blocks of 64 pages, a bus each.
    #[must_use]
    pub fn myers() -> Geometry {
        Geometry {
            page_bytes: 2048,
            pages_per_block: 64,
            blocks_per_chip: 128,
            chips: 4,
            chips_per_channel: 1,
        }
    }

    /// Refuses an array that is impossible, or larger than the model can hold.
    pub fn check(&self) -> Result<(), NandError> {
        let refuse = |message: String| Err(NandError::BadConfig(message));
        if !self.page_bytes.is_power_of_two() || !(512..=65536).contains(&self.page_bytes) {
            return refuse(format!(
                "a page has {} bytes; give a power of two from 512 to 65536",
                self.page_bytes
            ));
        }
        for (what, count) in [
            ("pages_per_block", self.pages_per_block),
            ("blocks_per_chip", self.blocks_per_chip),
            ("chips", self.chips),
            ("chips_per_channel", self.chips_per_channel),
        ] {
            if count == 0 {
                return refuse(format!("{what} is 0; it must be at least 1"));
            }
        }
        let blocks = u64::from(self.blocks_per_chip) * u64::from(self.chips);
        match blocks.checked_mul(u64::from(self.pages_per_block)) {
            Some(pages) if pages <= PAGES_MAX => Ok(()),
            _ => refuse(format!(
                "the array has more than {PAGES_MAX} pages; the model keeps each in memory: take larger pages or fewer blocks"
            )),
        }
    }

    /// Erase blocks of all chips.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks_per_chip * self.chips
    }
    /// Pages of all chips.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }
    /// Bytes of all chips.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages()) * u64::from(self.page_bytes)
    }
    /// Buses of the array.
    #[must_use]
    pub fn channels(&self) -> u32 {
        self.chips.div_ceil(self.chips_per_channel)
    }
    /// The chip that a block is on.
    #[must_use]
    pub fn chip_of(&self, block: BlockAddress) -> usize {
        (block.0 % self.chips) as usize
    }
    /// The bus that a chip is on.
    #[must_use]
    pub fn channel_of(&self, chip: usize) -> usize {
        chip / self.chips_per_channel as usize
    }
    /// The block that a page is in.
    #[must_use]
    pub fn block_of(&self, page: PageAddress) -> BlockAddress {
        BlockAddress(page.0 / self.pages_per_block)
    }
    /// The place of a page in its block, from 0.
    #[must_use]
    pub fn index_of(&self, page: PageAddress) -> u32 {
        page.0 % self.pages_per_block
    }
    /// The page at a place of a block.
    #[must_use]
    pub fn page(&self, block: BlockAddress, index: u32) -> PageAddress {
        assert!(index < self.pages_per_block && block.0 < self.blocks());
        PageAddress(block.0 * self.pages_per_block + index)
    }
}

/// How long a chip's operations take, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashTimes {
    /// Time to read a page from the cells into the chip's register.
    pub read_ns: u64,
    /// Time to program a page from the chip's register into the cells.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// Time to transfer one page over the bus, either way. 0 if it is counted in the other times,
    /// as in Myers's equations.
    pub transfer_ns: u64,
}

impl FlashTimes {
    /// Myers 2008, section 8.4, after Samsung's literature: 20 µs, 200 µs, 1500 µs.
    #[must_use]
    pub fn myers() -> FlashTimes {
        FlashTimes { read_ns: 20_000, program_ns: 200_000, erase_ns: 1_500_000, transfer_ns: 0 }
    }
}
