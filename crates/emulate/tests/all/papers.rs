//! What the papers report of their devices besides figures: ratios and bounds.

use firndb_emulate::{Load, Model, profiles};
use firndb_profile::{DeviceProfile, Op, Pattern, VariantName};

/// Mean latency of durable writes, or of reads, one at a time; microseconds.
fn mean_us(name: &str, op: Op, pattern: Pattern, bytes: u64) -> f64 {
    mean_of(&profiles::get(name).unwrap(), op, pattern, bytes)
}

fn mean_of(profile: &DeviceProfile, op: Op, pattern: Pattern, bytes: u64) -> f64 {
    let mut model = Model::new(profile, 9).unwrap();
    let load = Load { op, pattern, bytes, durable: true, depth: 1 };
    load.run(&mut model, profile.capacity_bytes, 30_000, 7).mean_us
}

fn close(what: &str, value: f64, printed: f64) {
    assert!((value / printed - 1.0).abs() < 0.05, "{what}: {value:.3}, printed is {printed}");
}

#[test]
fn myers_table_3_1_fraction_of_the_magnetic_disks_performance() {
    use Op::{Read, Write};
    use Pattern::{Random, Sequential};
    let table = [
        (Read, Sequential, 0.44, 1.11),
        (Write, Sequential, 0.33, 0.09),
        (Read, Random, 30.71, 68.89),
        (Write, Random, 0.32, 0.21),
    ];
    for (op, pattern, a, b) in table {
        let disk = mean_us("myers-disk", op, pattern, 4096);
        for (device, printed) in [("myers-a", a), ("myers-b", b)] {
            close(
                &format!("{device} {op:?} {pattern:?}"),
                disk / mean_us(device, op, pattern, 4096),
                printed,
            );
        }
    }
}

#[test]
fn myers_table_3_2_random_against_sequential() {
    let table = [("myers-a", 2.96, 112.01), ("myers-b", 3.32, 48.12), ("myers-disk", 205.40, 108.86)];
    for (device, read, write) in table {
        for (op, printed) in [(Op::Read, read), (Op::Write, write)] {
            let slowdown =
                mean_us(device, op, Pattern::Random, 4096) / mean_us(device, op, Pattern::Sequential, 4096);
            close(&format!("{device} {op:?}"), slowdown, printed);
        }
    }
}

#[test]
fn myers_chapter_6_device_a_against_the_disk_at_16_kb() {
    for (op, printed) in [(Op::Read, 16.8), (Op::Write, 0.33)] {
        let at = |device| mean_us(device, op, Pattern::Random, 16_384);
        close(&format!("{op:?}"), at("myers-disk") / at("myers-a"), printed);
    }
}

#[test]
fn flashlogging_small_sequential_writes_are_1_2_to_9_4_times_faster_than_the_disk_at_all_ends() {
    for bytes in [512, 1024, 2048, 4096, 8192, 16_384] {
        let disk = mean_us("disk-10k", Op::Write, Pattern::Sequential, bytes);
        for device in ["flash-a", "flash-b", "flash-c"] {
            for variant in profiles::get(device).unwrap().variants() {
                let ratio = disk / mean_of(&variant.profile, Op::Write, Pattern::Sequential, bytes);
                let name = variant.name;
                // A mean of outliers is drawn.
                let bounds = 1.2 * 0.97..=9.4 * 1.03;
                assert!(bounds.contains(&ratio), "{device} {name:?}, {bytes} B: {ratio:.2}");
            }
        }
    }
}

#[test]
fn flashlogging_note_8_drive_c_is_the_slowest_of_the_three() {
    let mean = |device: &str, end: VariantName, bytes: u64| {
        let variants = profiles::get(device).unwrap().variants();
        let variant = variants.into_iter().find(|variant| variant.name == end).unwrap();
        mean_of(&variant.profile, Op::Write, Pattern::Sequential, bytes)
    };
    for end in [VariantName::Fast, VariantName::Middle, VariantName::Slow] {
        for bytes in [2048, 4096, 8192] {
            let slowest = mean("flash-c", end, bytes);
            for device in ["flash-a", "flash-b"] {
                let other = mean(device, end, bytes);
                assert!(other < slowest, "{end:?}, {bytes} B: {device} {other:.0} us, C {slowest:.0}");
            }
        }
    }
}

#[test]
fn flashlogging_disks_are_competitive_for_writes_of_32_kib_and_more() {
    for bytes in [32_768, 65_536, 1 << 20] {
        let disk = mean_us("disk-10k", Op::Write, Pattern::Sequential, bytes);
        for device in ["flash-a", "flash-b", "flash-c"] {
            let flash = mean_us(device, Op::Write, Pattern::Sequential, bytes);
            assert!(disk < flash * 1.1, "{device}, {bytes} B: {flash:.0} µs, the disk {disk:.0}");
        }
    }
}

/// What is printed is what the times were computed from: the profile is read back, no more.
#[test]
fn flashlogging_figure_5_is_an_input_and_comes_out_as_printed() {
    for (device, least, most) in [("flash-a", 1.41, 1.51), ("flash-b", 1.79, 1.83), ("flash-c", 1.13, 1.85)] {
        let at = |bytes| mean_us(device, Op::Write, Pattern::Sequential, bytes);
        let gain = 2.0 * at(2048) / at(4096);
        assert!((least..=most).contains(&gain), "{device}: {gain:.3}");
        for figure in ["FlashLogging, figure 5", "FlashLogging, figure 7"] {
            assert!(profiles::get(device).unwrap().input(figure).is_some(), "{device}: {figure}");
        }
    }
}

#[test]
fn flashlogging_overlapping_and_random_writes_are_dear() {
    let disk = mean_us("disk-10k", Op::Write, Pattern::Random, 4096);
    for device in ["flash-a", "flash-b", "flash-c"] {
        let sequential = mean_us(device, Op::Write, Pattern::Sequential, 4096);
        let overlapping = mean_us(device, Op::Write, Pattern::Overlapping, 4096) / sequential;
        assert!((1.0..=60.8).contains(&overlapping), "{device}: {overlapping:.1}");
        assert!(mean_us(device, Op::Write, Pattern::Random, 4096) > disk, "{device}");
    }
}

#[test]
fn flashlogging_reads_are_2_6_to_11_4_times_slower_than_the_disks() {
    let disk = mean_us("disk-10k", Op::Read, Pattern::Sequential, 1 << 20);
    for device in ["flash-a", "flash-b", "flash-c"] {
        let ratio = mean_us(device, Op::Read, Pattern::Sequential, 1 << 20) / disk;
        assert!((2.6 * 0.95..=11.4 * 1.05).contains(&ratio), "{device}: {ratio:.2}");
        assert!(
            mean_us(device, Op::Read, Pattern::Random, 4096)
                < mean_us("disk-10k", Op::Read, Pattern::Random, 4096)
        );
    }
}

#[test]
fn flashlogging_writes_are_bimodal() {
    for (device, share) in [("flash-a", 0.02), ("flash-b", 0.02), ("flash-c", 0.01)] {
        let profile = profiles::get(device).unwrap();
        let normal = profile.model.write_sequential.us(4096);
        let mut model = Model::new(&profile, 9).unwrap();
        let load = Load { op: Op::Write, pattern: Pattern::Sequential, bytes: 4096, durable: true, depth: 1 };
        let latencies = load.run(&mut model, profile.capacity_bytes, 60_000, 7).latencies_us;
        let outliers = latencies.iter().filter(|&&us| us > 1.5 * normal).count();
        close(device, outliers as f64 / latencies.len() as f64, share);
    }
}

#[test]
fn face_random_writes_are_10_to_13_percent_of_sequential_bandwidth_and_reads_48_to_60() {
    for device in ["samsung-470", "x25-m", "x25-e"] {
        let profile = profiles::get(device).unwrap();
        let mb_s = |op, pattern, bytes: u64, depth| {
            let mut model = Model::new(&profile, 9).unwrap();
            let load = Load { op, pattern, bytes, durable: true, depth };
            load.run(&mut model, profile.capacity_bytes, 20_000, 7).mb_s
        };
        let share = |op| mb_s(op, Pattern::Random, 4096, 32) / mb_s(op, Pattern::Sequential, 1 << 20, 4);
        assert!((0.10 * 0.95..0.13 * 1.05).contains(&share(Op::Write)), "{device}: {}", share(Op::Write));
        // The text says 48 to 60 %, its table gives 46 to 61 %.
        assert!((0.46 * 0.95..0.61 * 1.05).contains(&share(Op::Read)), "{device}: {}", share(Op::Read));
    }
}
