//! Emulated drives whose streams occupy a known share of the chips, characterized in virtual time:
//! the profile has that share.

use crate::recognition::characterized;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Arc;
use firndb_characterize::{Effort, Plan, Purpose, Target};
use firndb_device::{Device, Fill, MemoryDevice};
use firndb_emulate::{Emulated, profiles};
use firndb_profile::{DeviceProfile, Parameter};

const AREA: u64 = 64 << 20;

/// The profile that characterizing an emulation of `built` gives.
fn recognised(built: DeviceProfile) -> DeviceProfile {
    let body = move || {
        let memory = MemoryDevice::new("built");
        memory.grow(AREA, Fill::Sparse).unwrap();
        let device = Emulated::new(Arc::new(memory), &built, 3).unwrap();
        let target = Target::given(Arc::new(device));
        let mut plan = Plan::new(Effort::Quick);
        plan.cells
            .retain(|cell| matches!(cell.purpose, Purpose::BySize | Purpose::ByDepth | Purpose::Beside));
        characterized(&target, plan, AREA).1
    };
    let outcome = sim::run(SimOptions::measuring(1, 64), body);
    outcome.unwrap_or_else(|failure| panic!("{failure:?}")).value
}

/// The Samsung 470 of FaCE, with chips that wait for the interface while streams run.
fn built(read_occupancy: f64, write_occupancy: f64) -> DeviceProfile {
    let mut profile = profiles::get("samsung-470").unwrap();
    profile.model.band.clear();
    profile.model.total_mb_s = None;
    // So that random reads between its requests do not make a stream of reads random.
    profile.model.read_streams = 128;
    (profile.model.read_occupancy, profile.model.write_occupancy) = (read_occupancy, write_occupancy);
    profile
}

#[test]
fn the_share_of_the_chips_time_that_a_stream_takes_is_found() {
    for (reads, writes) in [(0.4, 0.7), (1.0, 0.25), (1.0, 1.0)] {
        let found = recognised(built(reads, writes)).model;
        println!("{reads} {writes}: {} {}", found.read_occupancy, found.write_occupancy);
        assert!(found.striped);
        assert!((found.read_occupancy - reads).abs() < 0.08, "reads {}, not {reads}", found.read_occupancy);
        assert!(
            (found.write_occupancy - writes).abs() < 0.08,
            "writes {}, not {writes}",
            found.write_occupancy
        );
        let banded = |parameter| found.band.iter().any(|band| band.parameter == parameter);
        assert_eq!(banded(Parameter::ReadOccupancy), reads < 1.0);
        assert_eq!(banded(Parameter::WriteOccupancy), writes < 1.0);
    }
}

#[test]
fn a_device_that_gives_each_request_one_channel_is_not_taken_for_a_striped_one() {
    let mut profile = built(1.0, 1.0);
    profile.model.striped = false;
    (profile.model.read_mb_s, profile.model.write_mb_s) = (None, None);
    assert!(!recognised(profile).model.striped);
}
