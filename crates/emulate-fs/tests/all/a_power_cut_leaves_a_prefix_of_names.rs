//! Names after a power cut are those of one moment: not before the last sync that ended, and with
//! no change from later.

use crate::support::{Place, end, listing};
use firndb_base::rng::Rng;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

fn names(root: &Path) -> Vec<(PathBuf, bool)> {
    listing(root).into_iter().map(|(path, bytes)| (path, bytes.is_none())).collect()
}

/// Makes, renames or removes an entry; most draws succeed.
fn step(root: &Path, rng: &mut Rng) {
    let mut draw = || {
        let dir = rng.below(4);
        let name = format!("{}", rng.below(4));
        if dir == 0 { root.join(name) } else { root.join(format!("d{dir}")).join(name) }
    };
    let (path, other) = (draw(), draw());
    // An operation that is refused changes nothing, which is also fine here.
    let _ = match rng.below(6) {
        0 | 1 => File::create(&path).map(|_| ()),
        2 => std::fs::create_dir(root.join(format!("d{}", rng.between(1, 3)))),
        3 => std::fs::remove_file(&path),
        4 => std::fs::remove_dir(root.join(format!("d{}", rng.between(1, 3)))),
        _ => std::fs::rename(&path, &other),
    };
}

#[test]
fn whatever_was_under_way() {
    let mut lost = BTreeSet::new();
    for seed in 0..30 {
        let (place, mut rng) = (Place::new(), Rng::new(seed));
        let Some(mounted) = place.mount(|options| options.seed = seed) else { return };
        let root = mounted.mount_point().to_owned();
        let mut states = vec![names(&root)];
        let mut durable = 0;
        for _ in 0..rng.between(1, 60) {
            step(&root, &mut rng);
            states.push(names(&root));
            if rng.one_in(20) {
                File::open(&root).and_then(|directory| directory.sync_all()).expect("synced");
                durable = states.len() - 1;
            }
        }
        mounted.cut_power();
        end(mounted);
        let left = names(&place.backing());
        let moment = states.iter().rposition(|state| *state == left);
        assert!(
            states[durable..].contains(&left),
            "seed {seed}: {left:?} is the state of {moment:?} of {}, {durable} is durable",
            states.len()
        );
        lost.insert(states.len() - 1 - moment.unwrap_or(0));

        // Mounted again, it is the same.
        let Some(mounted) = place.mount(|_| {}) else { return };
        assert_eq!(names(&root), left, "seed {seed}");
        end(mounted);
    }
    assert!(lost.contains(&0) && lost.len() > 3, "cuts take all, some and nothing: {lost:?}");
}
