//! The flash that a profile's `[nand]` describes.

use super::{FlashTimes, Geometry, NandConfig, NandError, Translation, VictimPolicy, WearLevelling};
use firndb_profile::{DeviceProfile, NandSection, TranslationLayer, Victim};

impl NandConfig {
    /// The flash of the profile, if it names any; `seed` draws random victims.
    pub fn of_profile(profile: &DeviceProfile, seed: u64) -> Result<Option<NandConfig>, NandError> {
        let Some(nand) = &profile.nand else { return Ok(None) };
        let geometry = Geometry {
            page_bytes: nand.page_bytes,
            pages_per_block: nand.pages_per_block,
            blocks_per_chip: 1,
            chips: nand.chips,
            chips_per_channel: nand.chips_per_channel,
        };
        let translation = match nand.translation {
            TranslationLayer::Page => Translation::Page,
            TranslationLayer::Block => Translation::Block,
            TranslationLayer::Naive => Translation::Naive,
            TranslationLayer::Dynamic => Translation::Dynamic,
        };
        let (bytes, spare) = (profile.capacity_bytes, nand.over_provisioning);
        let mut config = NandConfig::sized_with(geometry, translation, bytes, spare)?;
        config.times = times(nand);
        config.erase_limit = nand.erase_limit;
        config.seed = seed;
        config.victim = match nand.victim {
            Victim::Greedy => VictimPolicy::Greedy,
            Victim::Random => VictimPolicy::Random,
            Victim::CostBenefit => VictimPolicy::CostBenefit,
        };
        config.wear_levelling =
            nand.wear_spread.map_or(WearLevelling::Dynamic, |spread| WearLevelling::Static { spread });
        Ok(Some(config))
    }
}

/// The profile bounds each time by a day.
fn times(nand: &NandSection) -> FlashTimes {
    let ns = |us: f64| (us * 1000.0).round() as u64;
    FlashTimes {
        read_ns: ns(nand.read_us),
        program_ns: ns(nand.program_us),
        erase_ns: ns(nand.erase_us),
        transfer_ns: ns(nand.transfer_us),
    }
}
