//! Myers's equations 2.1 and 2.2, and the known write amplification of greedy cleaning, against
//! simulation.

use firndb_base::rng::Rng;
use firndb_emulate::nand::curve::{self, CurvePoint};
use firndb_emulate::nand::equations::{Costs, greedy_amplification, random_amplification};
use firndb_emulate::nand::{
    Flash, FlashTimes, Ftl, Geometry, LogicalPage, PageFtl, PageFtlOptions, VictimPolicy, WearLevelling,
};

const TOLERANCE: f64 = 0.02;

#[test]
fn naive_and_dynamic_costs_are_within_two_percent_of_the_equations_at_every_live_share() {
    let geometry = Geometry::myers();
    let points = curve::simulate(&geometry, &FlashTimes::myers(), &curve::all_shares(&geometry), 1);
    let points: Vec<CurvePoint> = points.expect("a sound configuration");
    assert_eq!((points[0].c, points.len()), (0.0, 62), "0 to 61 live pages of 64");
    assert!(points[61].c > 0.95);
    for point in points {
        let naive = point.naive_us / point.naive_equation_us - 1.0;
        let dynamic = point.dynamic_us / point.dynamic_equation_us - 1.0;
        assert!(naive.abs() < 1e-9, "naive at {}: {naive:+.6}", point.c);
        assert!(dynamic.abs() < TOLERANCE, "dynamic at {}: {dynamic:+.4}", point.c);
    }
}

#[test]
fn the_equations_hold_for_other_chips_as_well() {
    let geometry = Geometry {
        page_bytes: 4096,
        pages_per_block: 32,
        blocks_per_chip: 0,
        chips: 1,
        chips_per_channel: 1,
    };
    let times = FlashTimes { read_ns: 50_000, program_ns: 600_000, erase_ns: 3_000_000, transfer_ns: 10_000 };
    assert!((Costs::of(&geometry, &times).write_us - 610.0).abs() < 1e-9);
    for point in curve::simulate(&geometry, &times, &[0.0, 0.25, 0.5, 0.75, 0.90625], 5).expect("sound") {
        assert!((point.naive_us / point.naive_equation_us - 1.0).abs() < 1e-9, "{point:?}");
        assert!((point.dynamic_us / point.dynamic_equation_us - 1.0).abs() < TOLERANCE, "{point:?}");
    }
}

/// Write amplification in the steady state under uniform random writes to all pages.
fn amplification(victim: VictimPolicy, logical_share: f64, seed: u64) -> f64 {
    let geometry = Geometry {
        page_bytes: 4096,
        pages_per_block: 32,
        blocks_per_chip: 256,
        chips: 1,
        chips_per_channel: 1,
    };
    let logical = (f64::from(geometry.pages()) * logical_share) as u32;
    let flash = Flash::new(geometry, FlashTimes::myers(), u32::MAX);
    let options = PageFtlOptions {
        victim,
        separate_copies: false,
        wear_levelling: WearLevelling::None,
        seed,
        ..PageFtlOptions::default()
    };
    let mut layer = PageFtl::new(flash, logical, options).expect("it fits");
    let mut rng = Rng::new(seed);
    let write = |layer: &mut PageFtl, page| {
        layer.write(LogicalPage(page), 0, 0).expect("nothing wears out");
    };
    (0..logical).for_each(|page| write(&mut layer, page));
    for _ in 0..3 * logical {
        write(&mut layer, rng.below(u64::from(logical)) as u32);
    }
    let before = layer.flash().counts().programs;
    let writes = 6 * logical;
    for _ in 0..writes {
        write(&mut layer, rng.below(u64::from(logical)) as u32);
    }
    (layer.flash().counts().programs - before) as f64 / f64::from(writes)
}

#[test]
fn greedy_cleaning_amplifies_uniform_writes_as_published_and_less_than_random_cleaning() {
    for share in [0.6, 0.75, 0.85, 0.9] {
        let greedy = amplification(VictimPolicy::Greedy, share, 1);
        // One block of 256 is the reserve: it holds nothing live.
        let theory = greedy_amplification(share * 256.0 / 255.0, 32);
        assert!(
            (greedy / theory - 1.0).abs() < 0.03,
            "at {share}: simulated {greedy:.3}, theory {theory:.3}"
        );
        let random = amplification(VictimPolicy::Random, share, 1);
        assert!(greedy <= random, "at {share}: greedy {greedy:.3}, random {random:.3}");
        // Full blocks are no victims here, so it can only be better than drawing among all.
        let bound = random_amplification(share * 256.0 / 255.0);
        assert!(
            random <= bound * 1.01 && random > 0.7 * bound,
            "at {share}: {random:.3} of at most {bound:.3}"
        );
        let cost_benefit = amplification(VictimPolicy::CostBenefit, share, 1);
        assert!(cost_benefit < random, "at {share}: cost-benefit {cost_benefit:.3}, random {random:.3}");
    }
}
