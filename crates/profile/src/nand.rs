//! The part of a profile that says what flash is behind a device's interface.

use serde::{Deserialize, Serialize};

fn one() -> u32 {
    1
}
fn is_one(value: &u32) -> bool {
    *value == 1
}
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
fn endurance() -> u32 {
    10_000
}

/// `[nand]`: chips and a translation layer. An emulated device of such a profile completes a
/// request when the model's interface and the chips are both done with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NandSection {
    /// Bytes of a page: the unit of reading and programming. A power of two from 512 to 65536.
    pub page_bytes: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Chips (dies) that work side by side.
    pub chips: u32,
    /// Chips that share one bus for transfers.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub chips_per_channel: u32,
    /// Reading a page from the cells into the chip's register.
    pub read_us: f64,
    /// Programming a page.
    pub program_us: f64,
    /// Erasing a block.
    pub erase_us: f64,
    /// Moving a page over the bus; 0 if the other times count it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub transfer_us: f64,
    /// How often a block can be erased.
    #[serde(default = "endurance")]
    pub erase_limit: u32,
    /// The translation layer.
    #[serde(default)]
    pub translation: TranslationLayer,
    /// The block that garbage collection of the page-level map reclaims.
    #[serde(default)]
    pub victim: Victim,
    /// Difference in erases that static wear levelling leaves alone; without it, erases are spread
    /// by the choice of free blocks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear_spread: Option<u32>,
    /// Flash besides, as a share of `capacity_bytes`.
    pub over_provisioning: f64,
    /// Share of the capacity that was written before the device is used: what garbage collection
    /// finds live. 0 is a new device.
    #[serde(default)]
    pub filled: f64,
}

/// Translation layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TranslationLayer {
    /// Page-level map, log-structured: what SSDs do.
    #[default]
    Page,
    /// Block-level map with log blocks: what cards and sticks do.
    Block,
    /// Static map: every write erases and rewrites its block (Myers, equation 2.1).
    Naive,
    /// Dynamic map with random victims (Myers, equation 2.2).
    Dynamic,
}

/// Which block garbage collection reclaims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// The one with the fewest live pages.
    #[default]
    Greedy,
    /// Any.
    Random,
    /// The one with the most free space times age over cost.
    CostBenefit,
}
