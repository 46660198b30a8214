//! Every shipped profile under mixed loads: what a drive does of one kind, it cannot do of another
//! at the same time.
//!
//! A load alone reaches the rate that the profile prints (`figures.rs`). Of several at once, each
//! reaches a share of its rate alone, and the shares add up to at most the whole drive. Where the
//! chips may wait for the interface, which the profile then has a band for, the fast end of the
//! band exceeds that, and the interface alone is the limit.

use firndb_emulate::{Load, LoadOutcome, Model, profiles};
use firndb_profile::{DeviceProfile, Op, Parameter, Pattern, VariantName};

const REQUESTS: usize = 24_000;

/// What shares may add up to: requests are counted when they are submitted, and a cache takes some
/// in at the beginning. A disk gains by the order in which it serves a mixture. The completion of a
/// write that waits for a full cache is fixed when it is submitted: reads that come after it put
/// off the draining of those behind only, by more the longer one takes to drain.
const WHOLE: f64 = 1.05;

/// Random reads, random writes, sequential writes, sequential reads, deep enough to occupy the
/// whole device.
fn loads(profile: &DeviceProfile, durable: bool) -> [Load; 4] {
    let spindles = profile.model.mechanics.as_ref().map_or(1, |mechanics| mechanics.spindles);
    let load = |op, pattern, bytes, depth| Load { op, pattern, bytes, durable, depth };
    let depth = 32 * spindles.max(profile.model.channels.div_ceil(16));
    let stream_depth = if profile.model.mechanics.is_some() { 8 * spindles } else { 64 };
    [
        load(Op::Read, Pattern::Random, 4096, depth),
        load(Op::Write, Pattern::Random, 4096, depth),
        load(Op::Write, Pattern::Sequential, 256 << 10, stream_depth),
        load(Op::Read, Pattern::Sequential, 256 << 10, stream_depth),
    ]
}

/// The mixes, as places in `loads`.
const MIXES: [&[usize]; 5] = [&[0, 1], &[0, 2], &[0, 1, 2], &[2, 3], &[0, 3]];

/// Without outliers: a few that take half a second would drown the sums in noise.
fn model(profile: &DeviceProfile) -> Model {
    let mut even = profile.clone();
    even.model.outliers.clear();
    even.model.band.clear();
    Model::new(&even, 42).unwrap()
}

fn run(profile: &DeviceProfile, loads: &[Load]) -> Vec<LoadOutcome> {
    let mut model = model(profile);
    Load::run_together(loads, &mut model, profile.capacity_bytes, REQUESTS, 7)
}

/// The loads of a mix, what each reaches in it, and what each reaches alone with as many requests
/// outstanding as the mix has.
fn mixed(profile: &DeviceProfile, durable: bool, mix: &[usize]) -> Vec<(Load, LoadOutcome, f64)> {
    let all = loads(profile, durable);
    let mixed: Vec<Load> = mix.iter().map(|&at| all[at]).collect();
    let depth = mixed.iter().map(|load| load.depth).sum();
    let together = run(profile, &mixed);
    let alone = |load: Load| run(profile, &[Load { depth, ..load }])[0].iops;
    mixed.into_iter().zip(together).map(|(load, outcome)| (load, outcome, alone(load))).collect()
}

/// The sum over the loads of a mix: rate in the mix over rate alone.
fn share(profile: &DeviceProfile, durable: bool, mix: &[usize]) -> f64 {
    mixed(profile, durable, mix).iter().map(|(_, outcome, alone)| outcome.iops / alone).sum()
}

/// Whether at this end of its bands the profile has chips that wait for the interface.
fn chips_wait(profile: &DeviceProfile) -> bool {
    profile.model.read_occupancy < 1.0 || profile.model.write_occupancy < 1.0
}

/// The share of the chips' time that a load occupies which has the device for itself.
fn chips_alone(profile: &DeviceProfile, load: Load) -> f64 {
    let mut model = model(profile);
    let depth = 2 * load.depth;
    let outcome = Load { depth, ..load }.run(&mut model, profile.capacity_bytes, REQUESTS, 7);
    let busy = model.statistics().busy.as_secs_f64() / REQUESTS as f64;
    busy * outcome.iops / f64::from(profile.model.channels)
}

/// Durable writes, and others where they cost something else.
fn durabilities(profile: &DeviceProfile) -> &'static [bool] {
    if profile.model.write_cache.is_some() { &[true, false] } else { &[true] }
}

#[test]
fn shares_of_a_mix_add_up_to_at_most_the_drive() {
    let mut beyond = Vec::new();
    for profile in profiles::all().into_iter().filter(|profile| profile.model.striped) {
        for variant in profile.variants() {
            if variant.name == VariantName::Fast && chips_wait(&variant.profile) {
                continue;
            }
            for &durable in durabilities(&profile) {
                let sums = MIXES.map(|mix| share(&variant.profile, durable, mix));
                println!("{} {:?} durable {durable}: {sums:.2?}", profile.name, variant.name);
                if sums.iter().any(|&sum| sum > WHOLE) {
                    beyond
                        .push(format!("{} {:?}, durable {durable}: {sums:.2?}", profile.name, variant.name));
                }
            }
        }
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}

#[test]
fn no_profile_has_chips_that_wait_but_at_the_fast_end_of_a_band() {
    for profile in profiles::all() {
        for variant in profile.variants() {
            let banded =
                profile.model.band.iter().any(|band| {
                    matches!(band.parameter, Parameter::ReadOccupancy | Parameter::WriteOccupancy)
                });
            let wait = chips_wait(&variant.profile);
            assert_eq!(
                wait,
                banded && variant.name == VariantName::Fast,
                "{} {:?}",
                profile.name,
                variant.name
            );
        }
    }
}

#[test]
fn where_chips_wait_the_interface_and_the_chips_are_each_occupied_at_most_once() {
    for profile in profiles::all() {
        let fast = &profile.variants()[0].profile;
        if !chips_wait(fast) {
            continue;
        }
        let limits = |op| match op {
            Op::Read => fast.model.read_mb_s.unwrap(),
            Op::Write => fast.model.write_mb_s.unwrap(),
        };
        for mix in MIXES {
            let outcomes = mixed(fast, true, mix);
            // The interface: each direction, and both together where they share it.
            for op in [Op::Read, Op::Write] {
                let of_op = outcomes.iter().filter(|(load, ..)| load.op == op);
                let mb_s: f64 = of_op.map(|(_, outcome, _)| outcome.mb_s).sum();
                assert!(mb_s <= limits(op) * WHOLE, "{} {mix:?}: {op:?} {mb_s:.0} MB/s", profile.name);
            }
            let mb_s: f64 = outcomes.iter().map(|(_, outcome, _)| outcome.mb_s).sum();
            let total = fast.model.total_mb_s.unwrap_or(f64::INFINITY);
            assert!(mb_s <= total * WHOLE, "{} {mix:?}: {mb_s:.0} MB/s of {total}", profile.name);
            // The chips: each load in proportion to what it alone occupies of them.
            let chips: f64 = outcomes
                .iter()
                .map(|(load, outcome, alone)| outcome.iops / alone * chips_alone(fast, *load))
                .sum();
            assert!(chips <= WHOLE, "{} {mix:?}: chips {chips:.2}", profile.name);
        }
    }
}

#[test]
fn a_network_volume_keeps_to_each_of_its_two_limits() {
    for profile in profiles::all().into_iter().filter(|profile| !profile.model.striped) {
        let (iops, mb_s) = (profile.model.max_iops.unwrap(), profile.model.total_mb_s.unwrap());
        for mix in MIXES {
            let outcomes = mixed(&profile, true, mix);
            let requests: f64 = outcomes.iter().map(|(_, outcome, _)| outcome.iops).sum();
            let rate: f64 = outcomes.iter().map(|(_, outcome, _)| outcome.mb_s).sum();
            assert!(
                requests <= iops * WHOLE && rate <= mb_s * WHOLE,
                "{} {mix:?}: {requests:.0}, {rate:.0}",
                profile.name
            );
            assert!(
                requests > iops * 0.95 || rate > mb_s * 0.95,
                "{} {mix:?}: neither is reached",
                profile.name
            );
        }
    }
}

#[test]
fn a_drive_whose_streams_occupy_one_channel_is_found_out() {
    // As the model was once: beside random reads a stream of writes took an eighth of the drive.
    let mut profile = profiles::get("samsung-470").unwrap();
    profile.model.striped = false;
    profile.model.total_mb_s = None;
    assert!(share(&profile, true, &[0, 2]) > 1.8);
}
