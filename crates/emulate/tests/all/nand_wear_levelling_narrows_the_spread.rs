//! A tenth of the pages receives nine tenths of the writes; the rest is written once and stays.

use firndb_base::rng::Rng;
use firndb_emulate::nand::{Geometry, Nand, NandConfig, NandReport, Translation, WearLevelling};

fn run(translation: Translation, wear_levelling: WearLevelling) -> NandReport {
    let geometry = Geometry {
        page_bytes: 4096,
        pages_per_block: 16,
        blocks_per_chip: 64,
        chips: 2,
        chips_per_channel: 1,
    };
    let mut config = NandConfig::sized_with(geometry, translation, 6 << 20, 0.15).expect("it fits");
    config.wear_levelling = wear_levelling;
    config.erase_limit = 1_000_000;
    let mut nand = Nand::new(config).expect("sound");
    nand.fill(nand.len()).expect("nothing wears out");
    let (mut rng, pages, mut now_ns) = (Rng::new(5), u64::from(config.logical_pages), 0);
    for _ in 0..60_000 {
        let page = if rng.below(10) < 9 { rng.below(pages / 10) } else { pages / 10 + rng.below(pages / 10) };
        now_ns = nand.write(page * 4096, 4096, now_ns).expect("nothing wears out");
    }
    nand.report()
}

#[test]
fn static_levelling_keeps_the_spread_in_bounds_and_costs_little() {
    for translation in [Translation::Page, Translation::Block] {
        let none = run(translation, WearLevelling::None);
        let dynamic = run(translation, WearLevelling::Dynamic);
        let levelled = run(translation, WearLevelling::Static { spread: 16 });
        let spread = |report: &NandReport| report.wear.max - report.wear.min;
        // Without wear levelling, blocks of data at rest are hardly ever erased, and the others
        // take all erases.
        assert!(none.wear.min <= 1, "{translation:?}: {:?}", none.wear);
        assert!(spread(&none) > 100, "{translation:?}: {:?}", none.wear);
        assert!(spread(&levelled) <= 40, "{translation:?}: {:?}", levelled.wear);
        assert!(levelled.wear.deviation * 4.0 < none.wear.deviation, "{translation:?}");
        assert!(
            levelled.wear.deviation * 4.0 < dynamic.wear.deviation,
            "{translation:?}: moving is what does it"
        );
        assert!(levelled.translation.wear_copies > 0 && none.translation.wear_copies == 0);
        // The most worn block lasts longer although there is more work.
        assert!(levelled.wear.max * 2 < none.wear.max, "{translation:?}");
        let amplification = |report: &NandReport| report.write_amplification().expect("written");
        assert!(amplification(&levelled) < 1.25 * amplification(&none), "{translation:?}");
    }
}
