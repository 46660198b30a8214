//! Profiles as files: a profile that is written is read back the same, and an error names the wrong
//! key.

use firndb_profile::{
    Band, Blocks, Choice, Choices, DeviceProfile, Figure, Input, MeasuredRow, Mechanics, ModelSection, Op,
    Origin, Outliers, Parameter, Pattern, ProfileError, Reordering, ServiceTable, Unit, VERSION, VariantName,
    WriteCache,
};

fn table(us: f64) -> ServiceTable {
    ServiceTable::new([(512, us), (4096, us * 1.5)])
}

fn flash() -> DeviceProfile {
    DeviceProfile {
        version: VERSION,
        name: "some-flash".into(),
        title: "Some flash".into(),
        origin: Origin::Measured,
        source: "a test".into(),
        notes: vec!["none of it is true".into()],
        capacity_bytes: 1 << 30,
        logical_block: 512,
        nand: None,
        model: ModelSection {
            channels: 4,
            read_sequential: table(10.0),
            read_random: table(20.0),
            write_sequential: table(30.0),
            write_random: table(40.0),
            write_overlapping: table(300.0),
            sync_us: 5.0,
            read_mb_s: Some(500.0),
            append_streams: 2,
            outliers: vec![Outliers {
                op: Op::Write,
                min_bytes: 0,
                max_bytes: Some(8192),
                share: 0.02,
                from_us: 1e4,
                to_us: 1e5,
                spacing: Some((40, 60)),
                blocks: Blocks::Device,
            }],
            write_cache: Some(WriteCache {
                bytes: 1 << 20,
                survives_power_cut: false,
                acknowledges_durable: false,
                accept_us: 3.0,
                drain_mb_s: 40.0,
                drain_random_us: 0.0,
            }),
            band: vec![
                Band { parameter: Parameter::WriteTime, low: 0.5, high: 2.0, why: "unknown".into() },
                Band { parameter: Parameter::Channels, low: 2.0, high: 8.0, why: "unknown".into() },
            ],
            ..ModelSection::default()
        },
        inputs: vec![Input { result: "Paper, figure 5".into(), why: "the ratio".into() }],
        figures: vec![Figure {
            op: Op::Read,
            pattern: Pattern::Random,
            bytes: 4096,
            depth: 1,
            durable: false,
            unit: Unit::Us,
            value: 30.0,
            source: "a test".into(),
        }],
        measured: vec![measured()],
        choices: Some(Choices {
            log_width: Some(Choice::new(4, "four small writes in flight are faster than one")),
            ..Choices::default()
        }),
    }
}

fn measured() -> MeasuredRow {
    MeasuredRow {
        op: Op::Write,
        pattern: Pattern::Append,
        bytes: 4096,
        depth: 1,
        streams: 1,
        durable: true,
        area_bytes: 1 << 30,
        read_share: None,
        samples: 1000,
        iops: 1.0,
        mb_s: 2.0,
        mean_us: 3.0,
        p50_us: 4.0,
        p95_us: 5.0,
        p99_us: 6.0,
        p999_us: 7.0,
        max_us: 8.0,
        outlier_share: Some(0.01),
        note: String::new(),
    }
}

fn disk() -> DeviceProfile {
    let mechanics = Mechanics {
        rpm: 7200.0,
        seek_track_ms: 0.3,
        seek_average_ms: 8.0,
        seek_full_ms: 16.0,
        write_settle_ms: 0.5,
        transfer_mb_s: 150.0,
        overhead_us: 100.0,
        buffered_us: 50.0,
        spindles: 2,
        stripe_bytes: 65_536,
        reordering: vec![Reordering { depth: 1, factor: 1.0 }, Reordering { depth: 32, factor: 0.5 }],
    };
    DeviceProfile {
        name: "some-disk".into(),
        model: ModelSection { mechanics: Some(mechanics), ..ModelSection::default() },
        nand: None,
        inputs: Vec::new(),
        figures: Vec::new(),
        measured: Vec::new(),
        choices: None,
        ..flash()
    }
}

#[test]
fn what_is_written_is_read_back() {
    for profile in [flash(), disk()] {
        let text = profile.to_toml().unwrap();
        assert_eq!(DeviceProfile::from_toml(&text).unwrap(), profile, "{text}");
    }
}

#[test]
fn a_file_is_saved_and_loaded_and_a_missing_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profile.toml");
    flash().save(&path).unwrap();
    assert_eq!(DeviceProfile::load(&path).unwrap(), flash());
    let missing = directory.path().join("missing.toml");
    let error = DeviceProfile::load(&missing).unwrap_err().to_string();
    assert!(error.contains("missing.toml"), "{error}");
}

#[test]
fn an_unknown_key_is_an_error_that_names_it() {
    let text = flash().to_toml().unwrap().replace("sync_us", "sink_us");
    let error = DeviceProfile::from_toml(&text).unwrap_err().to_string();
    assert!(error.contains("sink_us"), "{error}");
}

#[test]
fn a_newer_version_is_refused_for_its_version_whatever_its_keys() {
    let text = "version = 2\nsomething_new = true\n";
    assert_eq!(DeviceProfile::from_toml(text), Err(ProfileError::Version { found: 2 }));
    assert!(matches!(DeviceProfile::from_toml("what is this"), Err(ProfileError::Syntax(_))));
}

#[test]
fn whole_numbers_are_taken_for_times() {
    let text = flash().to_toml().unwrap().replace("[512, 10.0]", "[512, 10]");
    assert_eq!(DeviceProfile::from_toml(&text).unwrap(), flash());
}

/// A change to a good profile, and the key that the error must name.
type Spoiled = (fn(&mut DeviceProfile), &'static str);

#[test]
fn every_value_that_makes_no_sense_is_named() {
    let cases: Vec<Spoiled> = vec![
        (|p| p.name = "Two Words".into(), "name"),
        (|p| p.source = " ".into(), "source"),
        (|p| p.logical_block = 1000, "logical_block"),
        (|p| p.capacity_bytes = 0, "capacity_bytes"),
        (|p| p.model.channels = 0, "model.channels"),
        (|p| p.model.read_random = ServiceTable::default(), "model.read_random"),
        (|p| p.model.read_random.points[0].1 = f64::NAN, "model.read_random"),
        (|p| p.model.read_random.points[0].1 = -1.0, "model.read_random"),
        (|p| p.model.write_random.points.reverse(), "model.write_random"),
        (|p| p.model.write_random.points[1].1 = 1.0, "model.write_random"),
        (|p| p.model.sync_us = f64::INFINITY, "model.sync_us"),
        (|p| p.model.read_mb_s = Some(0.0), "model.read_mb_s"),
        (|p| p.model.jitter = 1.0, "model.jitter"),
        (|p| p.model.stripe_bytes = 1000, "model.stripe_bytes"),
        (|p| p.model.read_occupancy = 0.0, "model.read_occupancy"),
        (|p| p.model.write_occupancy = 1.5, "model.write_occupancy"),
        (
            |p| {
                (p.model.read_mb_s, p.model.total_mb_s) = (None, None);
                p.model.read_occupancy = 0.5;
            },
            "model.read_occupancy",
        ),
        (|p| p.model.outliers[0].share = 1.5, "model.outliers.share"),
        (|p| p.model.outliers[0].share = 0.5, "model.outliers.spacing"),
        (|p| p.model.outliers[0].spacing = Some((0, 5)), "model.outliers.spacing"),
        (|p| p.model.outliers[0].to_us = 1.0, "model.outliers.from_us"),
        (|p| p.model.band[0].low = 3.0, "model.band.low"),
        (|p| p.model.band[1].high = 1e9, "model.band"),
        (|p| p.model.write_cache.as_mut().unwrap().drain_mb_s = 0.0, "model.write_cache.drain_mb_s"),
        (|p| p.model.mechanics = disk().model.mechanics, "model.read_sequential"),
        (|p| p.figures[0].depth = 0, "figure.depth"),
        (|p| p.inputs[0].why.clear(), "input"),
        (|p| p.choices.as_mut().unwrap().log_width.as_mut().unwrap().value = 0, "choices.log_width"),
    ];
    for (spoil, key) in cases {
        let mut profile = flash();
        spoil(&mut profile);
        let Err(error) = profile.check() else { panic!("{key} was accepted") };
        assert!(matches!(&error, ProfileError::Invalid { key: named, .. } if named == key), "{key}: {error}");
        assert!(profile.to_toml().is_err(), "{key} was written");
    }
}

#[test]
fn a_disk_whose_seeks_contradict_each_other_is_refused() {
    let mut profile = disk();
    profile.model.mechanics.as_mut().unwrap().seek_average_ms = 1.0;
    let error = profile.check().unwrap_err().to_string();
    assert!(error.contains("seek_average_ms"), "{error}");
    profile.model.mechanics.as_mut().unwrap().seek_average_ms = 8.0;
    profile.model.channels = 2;
    let error = profile.check().unwrap_err().to_string();
    assert!(error.contains("spindles"), "{error}");
}

#[test]
fn the_seek_curve_has_the_stated_mean_and_end() {
    let mechanics = disk().model.mechanics.unwrap();
    let (root, linear) = mechanics.seek_curve();
    let seek = |d: f64| mechanics.seek_track_ms + root * d.sqrt() + linear * d;
    assert!((seek(1.0) - mechanics.seek_full_ms).abs() < 1e-9);
    // All pairs of 2000 tracks.
    let tracks = 2000;
    let total: f64 =
        (1..tracks).map(|d| 2.0 * f64::from(tracks - d) * seek(f64::from(d) / f64::from(tracks))).sum();
    let mean = total / (f64::from(tracks) * f64::from(tracks - 1));
    assert!((mean - mechanics.seek_average_ms).abs() < 0.01, "{mean}");
}

#[test]
fn variants_take_every_band_to_its_faster_or_slower_end() {
    let variants = flash().variants();
    let names: Vec<_> = variants.iter().map(|variant| variant.name).collect();
    assert_eq!(names, [VariantName::Fast, VariantName::Middle, VariantName::Slow]);
    let times: Vec<f64> = variants.iter().map(|v| v.profile.model.write_sequential.us(512)).collect();
    assert_eq!(times, [15.0, 30.0, 60.0]);
    let channels: Vec<u32> = variants.iter().map(|v| v.profile.model.channels).collect();
    assert_eq!(channels, [8, 4, 2]);
    assert!(variants.iter().all(|v| v.profile.model.band.is_empty() && v.profile.check().is_ok()));
    let certain = variants[1].profile.variants();
    assert_eq!((certain.len(), certain[0].name), (1, VariantName::Middle));
}

#[test]
fn channels_at_the_same_throughput_slow_down_the_single_request() {
    let mut model = flash().model;
    let busy = |model: &ModelSection| f64::from(model.channels) / model.read_random.us(4096);
    let before = (busy(&model), model.read_random.us(4096));
    model.set(Parameter::ChannelsAtSameThroughput, 10.0);
    assert_eq!(model.channels, 10);
    assert!((busy(&model) - before.0).abs() < 1e-12);
    assert_eq!(model.read_random.us(4096), before.1 * 2.5);
}

#[test]
fn channels_at_the_same_throughput_leave_a_request_as_it_is_that_is_striped_over_all_of_them() {
    // Eight channels; 32 KiB are a page on each.
    let model = ModelSection {
        channels: 8,
        read_sequential: ServiceTable::new([(4096, 130.0), (32_768, 130.0), (1 << 20, 4160.0)]),
        ..ModelSection::default()
    };
    for (channels, times) in [
        (4.0, [(4096, 65.0), (16_384, 65.0), (32_768, 130.0), (1 << 20, 4160.0)]),
        (16.0, [(4096, 260.0), (16_384, 260.0), (32_768, 260.0), (1 << 20, 4160.0)]),
    ] {
        let mut swept = model.clone();
        swept.set(Parameter::ChannelsAtSameThroughput, channels);
        for (bytes, us) in times {
            let found = swept.read_sequential.us(bytes);
            assert!((found - us).abs() < 1e-9, "{channels} channels, {bytes} B: {found}");
        }
    }
}
