//! Every translation layer beside a plain map, under random writes and discards on an array so
//! small that blocks are reclaimed all the time. The chips assert by themselves that no page is
//! programmed twice or out of order.

use firndb_base::rng::Rng;
use firndb_emulate::nand::{
    BlockFtl, DynamicFtl, Flash, FlashTimes, Ftl, Geometry, LogicalPage, NaiveFtl, NandError, PageFtl,
    PageFtlOptions, VictimPolicy, WearLevelling,
};
use std::collections::BTreeMap;

fn geometry(chips: u32, pages_per_block: u32) -> Geometry {
    Geometry { page_bytes: 512, pages_per_block, blocks_per_chip: 24 / chips, chips, chips_per_channel: 2 }
}

fn flash(geometry: Geometry, erase_limit: u32) -> Flash {
    Flash::new(geometry, FlashTimes::myers(), erase_limit)
}

/// Every layer in every configuration, with a name for messages.
fn layers(geometry: Geometry, limit: u32, seed: u64) -> Vec<(String, Box<dyn Ftl>)> {
    let mut layers: Vec<(String, Box<dyn Ftl>)> = Vec::new();
    layers.push(("naive".into(), Box::new(NaiveFtl::new(flash(geometry, limit)))));
    let most = DynamicFtl::logical_pages_max(&geometry);
    let dynamic = DynamicFtl::new(flash(geometry, limit), most, seed).expect("it fits");
    layers.push(("dynamic".into(), Box::new(dynamic)));
    let levellings = [WearLevelling::None, WearLevelling::Dynamic, WearLevelling::Static { spread: 2 }];
    for wear_levelling in levellings {
        let most = BlockFtl::logical_pages_max(&geometry);
        for logical in [most, most / 2 + 3] {
            let block = BlockFtl::new(flash(geometry, limit), logical, wear_levelling).expect("it fits");
            layers.push((format!("block {wear_levelling:?} {logical}"), Box::new(block)));
        }
        for victim in [VictimPolicy::Greedy, VictimPolicy::Random, VictimPolicy::CostBenefit] {
            for separate_copies in [false, true] {
                let options = PageFtlOptions {
                    victim,
                    separate_copies,
                    wear_levelling,
                    seed,
                    ..PageFtlOptions::default()
                };
                let most = PageFtl::logical_pages_max(&geometry, separate_copies);
                let page = PageFtl::new(flash(geometry, limit), most, options).expect("it fits");
                layers.push((format!("page {options:?}"), Box::new(page)));
            }
        }
    }
    layers
}

fn check_all(name: &str, layer: &mut dyn Ftl, model: &BTreeMap<u32, u64>) {
    for page in 0..layer.logical_pages() {
        let (token, _) = layer.read(LogicalPage(page), 0);
        assert_eq!(token, model.get(&page).copied(), "{name}: page {page}");
    }
}

/// Random writes (some of them sequential, most to a hot tenth) and discards until `operations` or
/// wear-out; returns whether it wore out.
fn drive(name: &str, layer: &mut dyn Ftl, operations: u32, seed: u64) -> bool {
    let (mut rng, mut model) = (Rng::new(seed), BTreeMap::new());
    let pages = u64::from(layer.logical_pages());
    let (mut sequential, mut now_ns) = (0, 0);
    for operation in 1..=operations {
        let page = match rng.below(8) {
            0 | 1 => {
                sequential = (sequential + 1) % pages;
                sequential
            }
            2..=4 => rng.below(pages / 10 + 1),
            _ => rng.below(pages),
        } as u32;
        if rng.one_in(7) {
            layer.discard(LogicalPage(page));
            model.remove(&page);
        } else {
            let token = u64::from(operation);
            match layer.write(LogicalPage(page), token, now_ns) {
                Ok(done_ns) => {
                    assert!(done_ns > now_ns, "{name}: a write takes time");
                    now_ns = done_ns;
                    model.insert(page, token);
                }
                Err(error) => {
                    assert_eq!(error, NandError::WornOut, "{name}");
                    assert!(layer.is_read_only(), "{name}");
                    check_all(name, layer, &model);
                    return true;
                }
            }
        }
        if operation % 500 == 0 {
            check_all(name, layer, &model);
        }
    }
    check_all(name, layer, &model);
    false
}

#[test]
fn pages_hold_what_was_written_last_under_random_writes_and_discards() {
    for (chips, pages_per_block) in [(1, 8), (4, 8), (3, 5)] {
        for seed in 1..=3 {
            for (name, mut layer) in layers(geometry(chips, pages_per_block), u32::MAX, seed) {
                let name = format!("{chips} chips, seed {seed}, {name}");
                assert!(!drive(&name, layer.as_mut(), 4000, seed), "{name}: nothing wears out");
                assert!(layer.flash().counts().erases > 100, "{name}: blocks are reclaimed all the time");
            }
        }
    }
}

#[test]
fn worn_out_flash_becomes_read_only_and_loses_nothing() {
    for seed in 1..=5 {
        for (name, mut layer) in layers(geometry(2, 6), 9, seed) {
            assert!(drive(&name, layer.as_mut(), 200_000, seed), "{name}: it wears out at last");
            for page in 0..layer.logical_pages() {
                assert_eq!(layer.write(LogicalPage(page), 0, 0), Err(NandError::WornOut), "{name}");
            }
        }
    }
}

#[test]
fn equal_seeds_do_equal_things() {
    let run = |seed| {
        let mut all = Vec::new();
        for (name, mut layer) in layers(geometry(4, 8), 500, seed) {
            drive(&name, layer.as_mut(), 2000, 7);
            all.push((layer.flash().counts(), layer.counts(), layer.flash().idle_at_ns()));
        }
        all
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2), "the seed draws random victims");
}

#[test]
fn a_layer_without_space_to_collect_garbage_is_refused_in_a_sentence() {
    let geometry = geometry(2, 8);
    let most = PageFtl::logical_pages_max(&geometry, true);
    for pages in [0, most + 1, geometry.pages()] {
        let error = PageFtl::new(flash(geometry, 9), pages, PageFtlOptions::default())
            .expect_err("too many logical pages");
        assert!(error.to_string().contains("over-provisioning"), "{error}");
    }
    let most = BlockFtl::logical_pages_max(&geometry);
    assert!(BlockFtl::new(flash(geometry, 9), most + 1, WearLevelling::None).is_err());
}
