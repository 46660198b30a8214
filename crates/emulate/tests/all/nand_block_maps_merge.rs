//! A block-level map is cheap for sequential writes and expensive for random ones: the kind of
//! merge decides.

use firndb_base::rng::Rng;
use firndb_emulate::nand::{Geometry, Nand, NandConfig, NandReport, Translation};

const PAGE: u64 = 2048;
const PAGES_PER_BLOCK: u64 = 16;

/// A full device of 1 MiB, with eight log blocks.
fn full() -> Nand {
    let geometry = Geometry { pages_per_block: PAGES_PER_BLOCK as u32, chips: 1, ..Geometry::myers() };
    let mut config = NandConfig::sized_with(geometry, Translation::Block, 1 << 20, 0.0).expect("it fits");
    config.geometry.blocks_per_chip = (512 / PAGES_PER_BLOCK) as u32 + 8 + 1;
    let mut nand = Nand::new(config).expect("sound");
    nand.fill(nand.len()).expect("nothing wears out");
    nand
}

fn write(nand: &mut Nand, page: u64) {
    nand.write(page * PAGE, PAGE, 0).expect("nothing wears out");
}

fn amplification(report: &NandReport) -> f64 {
    report.write_amplification().expect("written")
}

#[test]
fn sequential_rewriting_switches_blocks_and_copies_nothing() {
    let mut nand = full();
    (0..512 * 4).for_each(|page| write(&mut nand, page % 512));
    let report = nand.report();
    assert_eq!((report.translation.full_merges, report.translation.partial_merges), (0, 0));
    assert!(report.translation.switch_merges >= 4 * 512 / PAGES_PER_BLOCK - 8, "{report:?}");
    assert_eq!(report.translation.copies, 0);
    assert!((amplification(&report) - 1.0).abs() < 1e-9);
}

#[test]
fn rewriting_the_beginnings_of_blocks_completes_them() {
    let mut nand = full();
    // The first four pages of each of 32 blocks; eight log blocks replace each other.
    for round in 0..4 * 32 {
        (0..4).for_each(|page| write(&mut nand, round % 32 * PAGES_PER_BLOCK + page));
    }
    let report = nand.report();
    assert_eq!((report.translation.full_merges, report.translation.switch_merges), (0, 0), "{report:?}");
    assert_eq!(report.translation.partial_merges, 4 * 32 - 8);
    assert_eq!(report.translation.copies, report.translation.partial_merges * 12);
}

#[test]
fn random_writes_merge_whole_blocks_for_a_page_or_two() {
    let mut nand = full();
    let mut rng = Rng::new(1);
    (0..2000).for_each(|_| write(&mut nand, rng.below(512)));
    let report = nand.report();
    assert!(report.translation.full_merges > 1000, "{report:?}");
    assert!(amplification(&report) > 8.0, "{}", amplification(&report));
    // A fourth of the logical blocks has log blocks: about that share of the writes needs no merge.
    assert!(amplification(&report) < PAGES_PER_BLOCK as f64 + 1.0, "{}", amplification(&report));
}

#[test]
fn a_block_whose_pages_were_all_discarded_is_written_without_a_merge() {
    let mut nand = full();
    nand.discard(0, PAGES_PER_BLOCK * PAGE).expect("inside");
    (0..PAGES_PER_BLOCK).for_each(|page| write(&mut nand, page));
    let report = nand.report();
    assert_eq!((report.flash.programs, report.flash.erases), (PAGES_PER_BLOCK, 1), "{report:?}");
}
