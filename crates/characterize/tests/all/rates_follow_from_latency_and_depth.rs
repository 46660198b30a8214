//! Cells on a device with known latencies.

use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_characterize::{Cell, Error, Op, Pattern, Plan, Purpose, Stop, Target, measure, round};
use firndb_device::{Device, DeviceError, DeviceErrorKind, Durability, Fill, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};
use std::time::Duration;

const READ: Duration = Duration::from_millis(5);
const WRITE: Duration = Duration::from_millis(10);
const SYNC: Duration = Duration::from_millis(20);

/// Memory with reads of 5 ms, durable writes of 10 ms, syncs of 20 ms; other writes take no time.
/// Sleeping on a busy machine takes longer than asked for, never shorter: rates are at most what
/// follows from these.
fn slow() -> Arc<dyn Device> {
    let memory = MemoryDevice::new("slow");
    memory.grow(64 << 20, Fill::Sparse).unwrap();
    Hooked::over(Arc::new(memory), |call| {
        match call {
            Call::Read { .. } => clock::sleep(READ),
            Call::Write { offset, .. } if offset == 13 << 20 => {
                return Err(DeviceError::new(DeviceErrorKind::Failed, "slow: bad place at 13 MiB"));
            }
            Call::Write { durability: Durability::Durable, .. } => clock::sleep(WRITE),
            Call::Sync => clock::sleep(SYNC),
            _ => {}
        }
        Ok(())
    })
}

fn never() -> Stop {
    Arc::new(|| false)
}

fn cell(op: Op, pattern: Pattern) -> Cell {
    Cell::new(Purpose::BySize, op, pattern, 4096, Duration::from_millis(400))
}

fn go(cell: Cell) -> firndb_characterize::Tally {
    round(&slow(), &cell, 1 << 20, cell.budget, (1, 0), &never()).unwrap()
}

/// What follows from the device's latency, `most`, is an upper limit whatever the machine does.
/// What follows from the latency that the round itself measured is close to the rate on a busy
/// machine too, since both count the same late wake-ups.
fn follows(tally: &firndb_characterize::Tally, depth: f64, most: f64) {
    let rate = tally.requests_per_second;
    let measured = depth * 1e6 / tally.latency.mean_us();
    assert!(rate <= most * 1.01, "{rate} requests a second instead of at most {most}");
    assert!(
        rate > measured * 0.66 && rate < measured * 1.5,
        "{rate} requests a second, {measured} by the latency"
    );
}

#[test]
fn rates_follow_from_latency_and_requests_in_flight() {
    follows(&go(cell(Op::Read, Pattern::Random)), 1.0, 200.0);
    follows(&go(cell(Op::WriteDurable, Pattern::Sequential)), 1.0, 100.0);
    follows(&go(cell(Op::Read, Pattern::Random).depth(4)), 4.0, 800.0);
    follows(&go(cell(Op::WriteDurable, Pattern::Sequential).depth(4).streams(4)), 4.0, 400.0);
    let batched = go(cell(Op::Read, Pattern::Random).batch(4));
    follows(&batched, 1.0, 50.0);
    assert!((batched.bytes_per_second / batched.requests_per_second - 4.0 * 4096.0).abs() < 1.0);
}

#[test]
fn syncs_and_the_writes_among_reads_are_kept_apart() {
    let synced = go(cell(Op::WriteThenSync, Pattern::Sequential));
    assert!(synced.aside.mean_us() >= 20_000.0 && synced.latency.quantile_us(0.5) < 10_000.0);
    let mixed = go(cell(Op::Mixed { read_percent: 50 }, Pattern::Random));
    assert!(mixed.latency.mean_us() >= 5000.0 && mixed.aside.mean_us() >= 10_000.0);
    assert!(mixed.latency.quantile_us(0.5) < mixed.aside.quantile_us(0.5));
    assert_eq!(mixed.requests, mixed.latency.count() + mixed.aside.count());
}

#[test]
fn a_round_slower_than_its_budget_ends_after_one_request_a_thread() {
    let begun = clock::now();
    let tally = round(
        &slow(),
        &cell(Op::WriteDurable, Pattern::Random).depth(8),
        1 << 20,
        Duration::from_millis(1),
        (1, 0),
        &never(),
    )
    .unwrap();
    assert!(tally.requests == 8 && begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(tally.requests_per_second > 0.0);
}

#[test]
fn a_plan_takes_medians_over_rounds_and_stops_when_asked() {
    let target = Target::given(slow());
    let mut plan = Plan::new(firndb_characterize::Effort::Quick);
    plan.cells = vec![cell(Op::Read, Pattern::Random), cell(Op::WriteDurable, Pattern::Rewrite)];
    let mut steps = Vec::new();
    let measured = measure(&target, &plan, &mut |step| steps.push(step.done), &never()).unwrap();
    assert_eq!((measured.cells.len(), measured.cut_short, steps.len()), (2, 0, 7));
    assert!(steps.windows(2).all(|pair| pair[0] <= pair[1]));
    let reads = measured.of(Purpose::BySize, Op::Read, Pattern::Random);
    assert_eq!(reads[0].rounds.len(), 3);
    let rate = reads[0].requests_per_second();
    assert!(rate <= 202.0 && rate > 20.0, "{rate} requests a second");

    let stopped = Arc::new(AtomicBool::new(false));
    let asked = stopped.clone();
    let stop: Stop = Arc::new(move || asked.load(Ordering::SeqCst));
    let mut left = 2;
    let mut progress = |_| {
        left -= 1;
        stopped.store(left <= 0, Ordering::SeqCst);
    };
    let outcome = measure(&target, &plan, &mut progress, &stop);
    assert_eq!(outcome.err(), Some(Error::Interrupted));
}

#[test]
fn an_error_of_the_device_is_the_answer() {
    let mut over_all = cell(Op::WriteLater, Pattern::Sequential).depth(3);
    over_all.bytes = 1 << 20;
    let outcome = round(&slow(), &over_all, 64 << 20, over_all.budget, (1, 0), &never());
    assert_eq!(outcome.err(), Some(Error::Failed("slow: bad place at 13 MiB".to_owned())));
}
