//! Where settings come from: options, profiles, the device itself, defaults.

use firndb::{ErrorKind, Options, Setting, SettingOrigin};
use firndb_profile::{Choice, Choices, DeviceProfile, ModelSection, Origin, ServiceTable, VERSION};
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
