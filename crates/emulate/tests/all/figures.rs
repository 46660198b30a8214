//! Every shipped profile, compared with its own figures and with those of its paper.

use firndb_emulate::{Load, Model, profiles};
use firndb_profile::{DeviceProfile, Figure, Op, Pattern};

fn measured(profile: &DeviceProfile, figure: &Figure) -> f64 {
    let mut model = Model::new(profile, 42).unwrap();
    Load::of(figure).run(&mut model, profile.capacity_bytes, 20_000, 7).value(figure.unit)
}

#[test]
fn every_shipped_profile_is_read_under_its_own_name_and_says_where_it_is_from() {
    for name in profiles::names() {
        let text = profiles::text(name).unwrap();
        let profile = DeviceProfile::from_toml(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(profile.name, name);
        assert!(profile.source.len() > 10, "{name} has no source");
        assert!(!profile.notes.is_empty(), "{name} does not say what is derived");
        assert!(!profile.figures.is_empty(), "{name} has nothing that it could be held against");
        assert!(profile.measured.is_empty(), "{name} ships no measurement");
        assert_eq!(DeviceProfile::from_toml(&profile.to_toml().unwrap()).unwrap(), profile);
    }
    assert_eq!(profiles::all().len(), profiles::names().count());
}

#[test]
fn every_shipped_profile_gives_its_own_figures_within_five_percent() {
    let mut wrong = Vec::new();
    for profile in profiles::all() {
        for figure in &profile.figures {
            let value = measured(&profile, figure);
            let off = value / figure.value - 1.0;
            if off.abs() > 0.05 {
                wrong.push(format!(
                    "{}: {:?} {:?} {} B depth {}: {value:.1} for {} ({:+.1} %)",
                    profile.name,
                    figure.op,
                    figure.pattern,
                    figure.bytes,
                    figure.depth,
                    figure.value,
                    off * 100.0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_profile_is_found_out() {
    let mut profile = profiles::get("x25-e").unwrap();
    profile.model.read_random = profile.model.read_random.scaled(1.06);
    let figure = &profile.figures[0];
    assert_eq!((figure.op, figure.pattern), (Op::Read, Pattern::Random));
    assert!((measured(&profile, figure) / figure.value - 1.0).abs() > 0.05);
}

#[test]
fn every_variant_of_every_profile_makes_a_model_and_the_slow_one_is_not_faster() {
    for profile in profiles::all() {
        let variants = profile.variants();
        assert_eq!(variants.len(), if profile.model.band.is_empty() { 1 } else { 3 });
        let load = Load { op: Op::Write, pattern: Pattern::Random, bytes: 4096, durable: true, depth: 4 };
        let rates: Vec<f64> = variants
            .iter()
            .map(|variant| {
                let mut model = Model::new(&variant.profile, 1).unwrap();
                load.run(&mut model, profile.capacity_bytes, 12_000, 7).iops
            })
            .collect();
        assert!(rates.windows(2).all(|pair| pair[0] >= pair[1] * 0.97), "{}: {rates:?}", profile.name);
    }
}
