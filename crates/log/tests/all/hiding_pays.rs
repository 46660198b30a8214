//! Gains and costs of hiding outliers, on emulated devices in virtual time: every run gives the
//! same result. The devices are the paper's (flash-a, flash-c) and later ones.

use crate::support::emulation::{Fault, Found, Run};
use firndb_log::OutlierOptions;
use firndb_log_comparators::Hedging;
use std::time::Duration;

fn throughput(run: &Run, hiding: Hedging) -> (f64, Found) {
    let found = Run { hiding, ..run.clone() }.go();
    (found.commits_a_second(), found)
}

#[test]
fn on_a_device_with_long_outliers_hiding_them_pays() {
    for (devices, clients, least) in [(2, 1, 1.5), (3, 8, 1.66)] {
        let run = Run { profile: "flash-c", devices, clients, ..Run::default() };
        let (off, _) = throughput(&run, Hedging::Off);
        for hiding in [Hedging::TwoStream, Hedging::Adaptive] {
            let (on, found) = throughput(&run, hiding);
            assert!(on > least * off, "K={devices} N={clients} {hiding:?}: {on:.0} after {off:.0}");
            assert!(found.extra_bytes() < 0.05, "{}", found.extra_bytes());
            assert!(found.statistics.hiding.gained > Duration::from_millis(500));
        }
    }
}

#[test]
fn naive_hiding_finds_a_place_less_often_than_the_second_stream() {
    let time = Duration::from_secs(1);
    let run = Run { profile: "network-volume-spiky", clients: 16, time, ..Run::default() };
    let (naive, naively) = throughput(&run, Hedging::Naive);
    let (two, separately) = throughput(&run, Hedging::TwoStream);
    assert!(two > 1.4 * naive, "{two:.0} {naive:.0}");
    assert!(separately.statistics.hiding.reissued > 4 * naively.statistics.hiding.reissued);
}

fn adaptive_is_as_good(profiles: &[&'static str], shapes: &[(usize, u64)], time: Duration) {
    for &profile in profiles {
        for &(devices, clients) in shapes {
            let run = Run { profile, devices, clients, time, ..Run::default() };
            let better = [Hedging::Off, Hedging::TwoStream]
                .map(|hiding| throughput(&run, hiding).0)
                .into_iter()
                .fold(0.0, f64::max);
            let (adaptive, found) = throughput(&run, Hedging::Adaptive);
            assert!(
                adaptive >= 0.98 * better,
                "{profile} K={devices} N={clients}: {adaptive:.0} where {better:.0} is possible"
            );
            assert!(found.extra_bytes() < 0.05, "{profile}: {}", found.extra_bytes());
        }
    }
}

#[test]
fn adaptive_hiding_is_as_good_as_the_better_of_on_and_off() {
    let time = Duration::from_secs(1);
    adaptive_is_as_good(&["flash-a", "flash-c", "network-volume-spiky"], &[(2, 1), (3, 8)], time);
    adaptive_is_as_good(&["sata-ssd", "nvme"], &[(2, 4)], time / 2);
}

#[test]
#[ignore = "takes minutes; run with --ignored"]
fn adaptive_hiding_is_as_good_as_the_better_of_on_and_off_long() {
    let profiles = [
        "flash-a",
        "flash-b",
        "flash-c",
        "network-volume-spiky",
        "network-volume",
        "sata-ssd",
        "nvme",
        "disk-10k",
    ];
    adaptive_is_as_good(&profiles, &[(2, 1), (2, 32), (3, 8), (4, 16)], Duration::from_secs(4));
}

#[test]
fn a_device_frozen_for_five_seconds_delays_no_commit_by_ten_milliseconds() {
    let frozen = (Duration::from_secs(1), Duration::from_secs(6));
    for (profile, clients) in [("network-volume", 1), ("flash-a", 8)] {
        let run = Run { profile, clients, ..Run::default() };
        let normal = run.go();
        let fault = Fault { device: 1, spikes: None, frozen: Some(frozen) };
        let time = Duration::from_secs(7);
        let found = Run { fault: Some(fault), time, ..run.clone() }.go();
        let most = normal.longest() + Duration::from_millis(10);
        assert!(
            found.longest() < most,
            "{profile} N={clients}: {:?}, normal {:?}",
            found.longest(),
            normal.longest()
        );
    }
    let fault = Fault { device: 1, spikes: None, frozen: Some(frozen) };
    let time = Duration::from_secs(7);
    let endured = Run { hiding: Hedging::Off, fault: Some(fault), time, ..Run::default() }.go();
    assert!(endured.longest() > Duration::from_secs(4), "without hiding it does: {:?}", endured.longest());
}

#[test]
fn spikes_of_one_device_are_hardly_seen() {
    let spikes = Fault { device: 1, spikes: Some((0.01, Duration::from_millis(100))), frozen: None };
    // Until the usual latency is known, only stalls are detected: the first seconds count, too.
    let run = Run { profile: "network-volume", clients: 8, time: Duration::from_secs(4), ..Run::default() };
    let normal = run.go().quantile(0.999);
    let spiky = Run { fault: Some(spikes), ..run };
    let hidden = spiky.go().quantile(0.999);
    assert!(hidden < normal.mul_f64(1.6), "{hidden:?}, normal {normal:?}");
    let endured = Run { hiding: Hedging::Off, ..spiky }.go().quantile(0.999);
    assert!(endured > 20 * normal, "{endured:?}");
}

#[test]
fn a_quick_device_without_outliers_is_trusted_and_its_stall_catches_one_client_at_most() {
    let outliers = OutlierOptions { direct_below: Duration::from_secs(1), ..OutlierOptions::default() };
    let run = Run { profile: "nvme", clients: 4, outliers, ..Run::default() };
    let hands_over = |found: &Found| found.statistics.hiding.devices.iter().any(|device| device.hands_over);
    assert!(!hands_over(&run.go()));
    let spikes = Fault { device: 1, spikes: Some((0.01, Duration::from_millis(100))), frozen: None };
    assert!(hands_over(&Run { fault: Some(spikes), ..run.clone() }.go()));
    let frozen = Some((Duration::from_millis(1500), Duration::from_millis(3000)));
    let fault = Fault { device: 1, spikes: None, frozen };
    let found = Run { fault: Some(fault), time: Duration::from_secs(4), ..run }.go();
    let caught = found.latencies.iter().filter(|&&time| time > Duration::from_millis(20)).count();
    assert_eq!(caught, 1);
    assert!(found.commits_a_second() > 2000.0, "{}", found.commits_a_second());
}
