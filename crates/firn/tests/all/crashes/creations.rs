//! What a power cut leaves of a creation is taken over by the next one, which may be cut, too.

use crate::support::sample::quiet;
use firndb::device::{CrashPlan, Device, MemoryDevice, Survival};
use firndb::{Database, Devices, Error, ErrorKind, Options};
use firndb_base::rng::Rng;
use std::sync::Arc;

/// Superblock, two log devices, three of the store, and a cache.
const DEVICES: usize = 7;

fn options() -> Options {
    quiet().store_survives(1).cache(|cache| cache.bytes(256 << 10).group_pages(4))
}

fn devices(of: &[Arc<dyn Device>]) -> Devices {
    Devices {
        superblock: of[0].clone(),
        logs: of[1..3].to_vec(),
        store: of[3].clone(),
        store_others: of[4..6].to_vec(),
        cache: Some(of[6].clone()),
    }
}

/// Records a creation on devices that hold what an earlier one left.
fn create(left: &[Arc<MemoryDevice>]) -> CrashPlan {
    let plan = CrashPlan::new();
    let on: Vec<_> = left.iter().map(|device| plan.device_holding(device) as Arc<dyn Device>).collect();
    options().create_on(devices(&on)).unwrap_or_else(|error| panic!("{error}")).close().expect("closed");
    plan
}

fn open(left: &[Arc<MemoryDevice>]) -> Result<Database, Error> {
    let copies: Vec<_> = left.iter().map(|device| Arc::new(device.duplicate()) as Arc<dyn Device>).collect();
    options().open_on(devices(&copies))
}

/// Events in which the mark and the claims are written.
const FIRST: usize = 8 * DEVICES;

/// Visits images of a creation that was cut off: `images` at each of about `first` moments while
/// marks and claims are written, and of about `rest` later ones.
fn interrupted(
    plan: &CrashPlan,
    (first, rest, images): (usize, usize, usize),
    rng: &mut Rng,
    visit: &mut impl FnMut(Vec<Arc<MemoryDevice>>, &mut Rng),
) {
    let (mut replay, events) = (plan.replay(), plan.event_count());
    loop {
        let (moments, of) = if replay.position() < FIRST { (first, FIRST) } else { (rest, events - FIRST) };
        let chosen = rng.below(of as u64) < moments as u64;
        for _ in 0..if chosen { images } else { 0 } {
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            let left = replay.image(survival, rng);
            match open(&left) {
                // It was complete.
                Ok(_) => return,
                Err(error) if error.kind() == ErrorKind::NotFound => visit(left, rng),
                // Nothing was marked.
                Err(error) => assert!(error.to_string().contains("is blank"), "{error}"),
            }
        }
        if replay.step().is_none() {
            return;
        }
    }
}

#[test]
fn whatever_a_creation_left_is_taken_over() {
    let mut rng = Rng::new(7);
    let blank: Vec<_> = (0..DEVICES).map(|at| Arc::new(MemoryDevice::new(&format!("device.{at}")))).collect();
    let (mut once, mut twice) = (0, 0);
    interrupted(&create(&blank), (FIRST, 30, 10), &mut rng, &mut |left, rng| {
        once += 1;
        interrupted(&create(&left), (2, 1, 1), rng, &mut |left, _| {
            twice += 1;
            create(&left);
        });
    });
    assert!(once > 300 && twice > 300, "{once}, {twice} were interrupted");
}
