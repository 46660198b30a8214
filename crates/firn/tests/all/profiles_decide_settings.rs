//! Where settings come from: options, profiles, the device itself, defaults.

use firndb::{Deltas, ErrorKind, Options, Placement, Setting, SettingOrigin, Tuning};
use firndb_profile::{
    Choice, Choices, DeviceProfile, ModelSection, Origin, ServiceTable, VERSION, WriteCache,
};
use std::path::Path;

fn profile(width: u32, threshold: f64) -> DeviceProfile {
    let table = || ServiceTable::new([(512, 90.0), (4096, 100.0), (65_536, 400.0)]);
    DeviceProfile {
        version: VERSION,
        name: "test".to_owned(),
        title: "A device of a test".to_owned(),
        origin: Origin::Measured,
        source: "a test".to_owned(),
        notes: Vec::new(),
        capacity_bytes: 1 << 30,
        logical_block: 512,
        nand: None,
        model: ModelSection {
            read_sequential: table(),
            read_random: table(),
            write_sequential: table(),
            write_random: table(),
            ..ModelSection::default()
        },
        inputs: Vec::new(),
        figures: Vec::new(),
        measured: Vec::new(),
        choices: Some(Choices {
            log_width: Some(Choice::new(width, "it was so in the test")),
            outlier_threshold: Some(Choice::new(threshold, "")),
            ..Choices::default()
        }),
    }
}

fn options() -> Options {
    Options::new().buffer_bytes(4 << 20).log(|log| log.bytes(4 << 20))
}

/// (log devices, their origin, the outlier threshold's value)
fn opened(options: Options, dir: &Path) -> (usize, SettingOrigin, String) {
    let db = options.open(dir).unwrap();
    let statistics = db.statistics();
    let find = |name: &str| -> Setting {
        statistics
            .settings
            .iter()
            .find(|setting| setting.name == name)
            .expect("the setting is listed")
            .clone()
    };
    let width = find("log devices");
    assert_eq!(width.value, statistics.log_devices.len().to_string());
    let answer = (statistics.log_devices.len(), width.origin, find("outlier write").value);
    db.close().unwrap();
    answer
}

#[test]
fn a_profile_decides_and_an_option_overrules_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.toml");
    profile(3, 4.5).save(&path).unwrap();
    let origin = SettingOrigin::Profile(path.display().to_string());
    let db = dir.path().join("a");
    assert_eq!(opened(options().profile(&path), &db), (3, origin.clone(), "4.5 times normal".to_owned()));
    let again = opened(options(), &db);
    assert_eq!(
        again,
        (3, origin, "2.0 times normal".to_owned()),
        "the width stays, the threshold is the opening's"
    );
    let db = dir.path().join("b");
    let overruled = opened(options().profile(&path).log(|log| log.devices(2)), &db);
    assert_eq!(overruled, (2, SettingOrigin::Option, "4.5 times normal".to_owned()));
    let db = dir.path().join("c");
    let other = dir.path().join("other.toml");
    profile(1, 3.0).save(&other).unwrap();
    assert_eq!(
        opened(options().tuning(|tuning| tuning.store_profile(&other)).log(|log| log.profile(&path)), &db).0,
        3,
        "the log's profile decides"
    );
}

#[test]
fn firn_toml_names_profiles_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    profile(2, 3.0).save(dir.path().join("log.toml")).unwrap();
    std::fs::write(dir.path().join("firn.toml"), "[profiles]\nlog = \"log.toml\"\n").unwrap();
    let (width, origin, threshold) = opened(options(), dir.path());
    assert_eq!((width, threshold.as_str()), (2, "3.0 times normal"));
    assert!(matches!(origin, SettingOrigin::Profile(path) if path.ends_with("log.toml")));
    std::fs::write(dir.path().join("firn.toml"), "[profiles]\nlogs = \"log.toml\"\n").unwrap();
    let error = options().open(dir.path()).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("logs"), "{error}");
    std::fs::write(dir.path().join("firn.toml"), "[profiles]\nlog = \"none.toml\"\n").unwrap();
    let error = options().open(dir.path()).unwrap_err();
    assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("none.toml"), "{error}");
}

#[test]
fn without_a_profile_the_width_is_timed_and_the_threshold_a_default() {
    let dir = tempfile::tempdir().unwrap();
    let (_, origin, threshold) = opened(options(), &dir.path().join("db"));
    assert_eq!((origin, threshold.as_str()), (SettingOrigin::Timed, "2.0 times normal"));
}

#[test]
fn a_log_too_small_for_the_profiles_width_gets_fewer_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.toml");
    profile(64, 2.0).save(&path).unwrap();
    assert_eq!(opened(options().log(|log| log.bytes(1 << 20)).profile(&path), &dir.path().join("db")).0, 4);
}

#[test]
#[ignore = "measures for half a minute; cargo test -p firndb --test all profiles_decide_settings -- --ignored"]
fn asked_to_creation_measures_and_keeps_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let (_, origin, _) = opened(options().tuning(|tuning| tuning.measure_at_creation(true)), dir.path());
    assert_eq!(origin, SettingOrigin::Measured);
    let kept = DeviceProfile::load(dir.path().join("profile.toml")).unwrap();
    assert!(kept.choices.is_some_and(|choices| choices.log_width.is_some()));
    let begun = std::time::Instant::now();
    assert_eq!(
        opened(options().tuning(|tuning| tuning.measure_at_creation(true)), dir.path()).1,
        SettingOrigin::Measured
    );
    assert!(begun.elapsed().as_secs() < 5, "an existing database is not measured again");
}

/// A profile of a store's device that reads a page in `read_us` and writes two, in one request at a
/// random place, in `write_us`; eight in sequence in 800 us.
fn of_store(read_us: f64, write_us: f64) -> DeviceProfile {
    let mut profile = profile(1, 2.0);
    profile.model.read_random = ServiceTable::new([(4096, read_us), (8192, 2.0 * read_us)]);
    profile.model.write_random = ServiceTable::new([(4096, write_us), (8192, write_us)]);
    profile.model.write_sequential = ServiceTable::new([(4096, 100.0), (32_768, 800.0)]);
    profile
}

/// A setting of a database with this profile of its store's device.
fn shown(name: &str, tuning: fn(Tuning) -> Tuning, profile: Option<DeviceProfile>) -> Setting {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options().tuning(tuning);
    if let Some(profile) = profile {
        let path = dir.path().join("store.toml");
        profile.save(&path).unwrap();
        options = options.tuning(|tuning| tuning.store_profile(path));
    }
    let db = options.open(dir.path().join("db")).unwrap();
    let settings = db.statistics().settings;
    db.close().unwrap();
    settings.into_iter().find(|setting| setting.name == name).expect("the setting is listed")
}

fn deltas_with(deltas: Deltas, times: Option<(f64, f64)>) -> Setting {
    let tuning: fn(Tuning) -> Tuning = match deltas {
        Deltas::Off => |tuning| tuning.deltas(Deltas::Off),
        Deltas::On => |tuning| tuning.deltas(Deltas::On),
        Deltas::Auto => |tuning| tuning.deltas(Deltas::Auto),
    };
    shown("deltas", tuning, times.map(|(read_us, write_us)| of_store(read_us, write_us)))
}

#[test]
fn auto_writes_whole_segments_where_that_and_the_copies_cost_less_than_writes_at_random_places() {
    let auto = |profile| shown("placement", |tuning| tuning.placement(Placement::Auto), profile);
    let segments = auto(Some(of_store(100.0, 10_000.0)));
    assert_eq!(segments.value, "segments");
    assert!(matches!(segments.origin, SettingOrigin::Profile(_)), "{segments:?}");
    assert!(
        segments.reason.contains("5000 us in a run") && segments.reason.contains("340 us"),
        "{segments:?}"
    );
    assert_eq!(auto(Some(of_store(100.0, 500.0))).value, "threaded");
    let unknown = auto(None);
    assert_eq!(
        (unknown.value.as_str(), unknown.reason.as_str()),
        ("threaded", "no profile of the store's device")
    );
    // A second read is weighed against what a page written costs there.
    let deltas = |tuning: Tuning| tuning.placement(Placement::Segments).deltas(Deltas::Auto);
    let weighed = shown("deltas", deltas, Some(of_store(100.0, 10_000.0)));
    assert_eq!(weighed.value, "on, a second read counts as 29 % of a page written");
}

/// They were taken to cost a write at a random place whatever the placement: on drives where that
/// is dear all pages were logged, and written once more.
#[test]
fn pages_of_page_files_are_shadows_where_segments_make_their_writes_sequential() {
    let shown = |tuning: fn(Tuning) -> Tuning| {
        shown("pages of page files", tuning, Some(of_store(100.0, 10_000.0))).value
    };
    let shadows = "as shadows where a commit has more than 0";
    assert_eq!(shown(|tuning| tuning.placement(Placement::Segments)), shadows);
    assert_eq!(shown(|tuning| tuning.placement(Placement::Auto)), shadows);
    let threaded = shown(|tuning| tuning.placement(Placement::Threaded));
    let above = threaded.rsplit(' ').next().and_then(|images| images.parse::<u64>().ok());
    assert!(above.is_some_and(|images| images > 10), "{threaded}");
}

#[test]
fn auto_writes_deltas_where_a_second_read_costs_little_of_a_page_written() {
    let on = "on, a second read counts as 20 % of a page written";
    let cheap = deltas_with(Deltas::Auto, Some((100.0, 1000.0)));
    assert_eq!(cheap.value, on);
    assert!(matches!(cheap.origin, SettingOrigin::Profile(_)), "{cheap:?}");
    assert!(
        cheap.reason.contains("read in 100 us") && cheap.reason.contains("written in 500 us"),
        "{cheap:?}"
    );
    assert_eq!(deltas_with(Deltas::On, Some((100.0, 1000.0))).value, on);
    assert!(deltas_with(Deltas::Auto, Some((199.0, 1000.0))).value.starts_with("on,"));
    assert_eq!(deltas_with(Deltas::Auto, Some((210.0, 1000.0))).value, "off", "2.4 reads");
    let dear = deltas_with(Deltas::Auto, Some((500.0, 1000.0)));
    assert_eq!(dear.value, "off");
    assert!(matches!(dear.origin, SettingOrigin::Profile(_)), "{dear:?}");
    assert!(deltas_with(Deltas::On, Some((500.0, 1000.0))).value.contains("100 %"));
    let cache = WriteCache {
        bytes: 1 << 20,
        survives_power_cut: false,
        acknowledges_durable: false,
        accept_us: 20.0,
        drain_mb_s: 100.0,
        drain_random_us: 0.0,
    };
    let mut profile = of_store(100.0, 1000.0);
    profile.model.write_cache = Some(cache);
    let cached = shown("deltas", |tuning| tuning.deltas(Deltas::Auto), Some(profile));
    assert!(cached.value == "off" && cached.reason.contains("written in 41 us"), "drained: {cached:?}");
    let default = shown("deltas", |tuning| tuning, Some(of_store(100.0, 1000.0)));
    assert!(default.value == on && matches!(default.origin, SettingOrigin::Profile(_)), "{default:?}");
    let unknown = deltas_with(Deltas::Auto, None);
    assert_eq!(
        (unknown.value.as_str(), unknown.reason.as_str()),
        ("off", "no profile of the store's device")
    );
    assert!(deltas_with(Deltas::On, None).value.contains("50 %"));
    assert_eq!(deltas_with(Deltas::Off, Some((100.0, 1000.0))).value, "off");
}
