//! Figure 6: I/O time on kinds of drives, by unit costs as in the paper, and measured in virtual
//! time over the same requests.

use super::cell::{Found, Way};
use super::targets::{self, TIME_HIGH, TIME_LOW_A, TIME_LOW_OCZ, TIME_PACK};
use super::timed::Units;
use super::{Bench, JUDGED_BUFFER, PAGE_SIZES};
use crate::bench::cells::{Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};

/// Low end, middle, high end.
pub const DRIVES: [(&str, &str); 10] = [
    ("myers-a", "low"),
    ("myers-b", "low"),
    ("ocz-core", "low"),
    ("microsd", "low"),
    ("samsung-470", "middle"),
    ("x25-m", "middle"),
    ("ssd-2008", "middle"),
    ("x25-e", "high"),
    ("nvme", "high"),
    ("network-volume", "volume"),
];
const WAYS: [Way; 7] = [
    Way::InPlace,
    Way::DoubleWrite,
    Way::AppendPack,
    Way::AppendPackTight,
    Way::Naive,
    Way::Incremental,
    Way::Off,
];
const PACK: usize = 2;
const ICL: usize = 5;

/// What `auto` chooses for a drive: deltas with the cost of a second read, or none where a page is
/// written for less than one is read, in a run as the store's are.
fn auto(units: &Units) -> Way {
    let read_cost = units.read_over_write();
    if read_cost >= 1.0 {
        return Way::Off;
    }
    // To the thousandth: the text of a cell's arguments is its key.
    Way::Firn { read_cost: (read_cost * 1000.0).round() / 1000.0 }
}

/// Unit costs as the profile stands, and at the ends of its bands.
pub struct Drive {
    profile: DeviceProfile,
    name: &'static str,
    pub middle: Units,
    fast: Option<Units>,
    slow: Option<Units>,
}

impl Drive {
    pub fn new(name: &'static str, page_size: u64) -> Result<Drive, Failure> {
        let profile = crate::tpcc::machine::profile(name)?;
        let end = |end| end_of(&profile, end).map(|profile| Units::of(&profile, page_size)).transpose();
        let (fast, slow) = (end(VariantName::Fast)?, end(VariantName::Slow)?);
        Ok(Drive { middle: Units::of(&profile, page_size)?, fast, slow, profile, name })
    }

    /// Seconds a thousand transactions, by unit costs.
    pub fn by_units(&self, found: &Measured<Found>) -> Sampled {
        let of = |units: &Units, found: &Found| {
            units.seconds(&found.requests) * 1000.0 / found.transactions as f64
        };
        let middle = found.value(|found| of(&self.middle, found));
        match (&self.fast, &self.slow) {
            (Some(fast), Some(slow)) => middle.between(of(fast, found.first()), of(slow, found.first())),
            _ => middle,
        }
    }

    /// Seconds a thousand transactions, measured.
    fn measured(&self, found: &Measured<Found>) -> Sampled {
        found.value(|found| {
            found.seconds.get(self.name).copied().unwrap_or_default() * 1000.0 / found.transactions as f64
        })
    }
}

/// Figure 6.
pub fn on_drives(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("6");
    let mut over_pack = Vec::new();
    for page_size in PAGE_SIZES {
        one_size(bench, page_size, &mut figure, &mut over_pack)?;
    }
    TIME_PACK.judge(&mut figure, &Sampled::most(&over_pack).unwrap_or_default());
    figure.notes.push(
        "By unit costs: the number of requests of each kind, times what one costs that is alone on the drive. The \
         paper's own devices and unit costs are not printed; its percentages are averages over sizes of the write \
         buffer, or over devices: the words leave that open."
            .into(),
    );
    figure.notes.push(
        "Measured: the same requests on the emulated drive, 32 in flight, in order. Ranges in brackets: the ends of \
         what the profile does not know."
            .into(),
    );
    Ok(figure)
}

fn one_size(
    bench: &Bench,
    page_size: u64,
    figure: &mut Figure,
    over_pack: &mut Vec<Sampled>,
) -> Result<(), Failure> {
    let kib = page_size >> 10;
    let panel = |key: &str, what: &str| {
        let title =
            format!("I/O time over ORIG, pages of {kib} KiB, write buffer {JUDGED_BUFFER} MB: {what}");
        let mut panel = Panel::of_bars(&format!("delta-{key}-{kib}k"), &title, "drive", "of ORIG");
        panel.digits = 3;
        panel
    };
    let mut estimated = panel("time", "by unit costs");
    let mut measured = panel("virtual", "measured in virtual time");
    let names = DRIVES.map(|(name, _)| name);
    let ways = WAYS.iter().map(|&way| {
        let buffer = if matches!(way, Way::Naive | Way::Incremental) { JUDGED_BUFFER } else { 0 };
        bench.measure_on(page_size, way, buffer, Judged::Yes, names.to_vec())
    });
    let ways: Vec<Measured<Found>> = ways.collect::<Result<_, _>>()?;
    let mut chosen_off = Vec::new();
    for (at, (name, class)) in DRIVES.into_iter().enumerate() {
        let drive = Drive::new(name, page_size)?;
        let label = format!("{name} ({class})");
        let choice = auto(&drive.middle);
        let firn = match choice {
            Way::Off => {
                chosen_off.push(format!("{} ({:.2})", drive.profile.name, drive.middle.read_over_write()));
                ways[WAYS.len() - 1].clone()
            }
            way => bench.measure_on(page_size, way, JUDGED_BUFFER, Judged::Yes, vec![name])?,
        };
        let way = Way::StoreDeltas { drive: Some(name) };
        let store = bench.measure_on(page_size, way, JUDGED_BUFFER, Judged::Yes, vec![name])?;
        let firns = [("firn auto (model)", &firn), (way.title(), &store)];
        let all = WAYS.iter().map(|way| way.title()).zip(&ways).chain(firns);
        for (title, found) in all {
            let by_units = drive.by_units(found).over(&drive.by_units(&ways[0]));
            let in_time = drive.measured(found).over(&drive.measured(&ways[0]));
            estimated.add(title, Point::new(at as f64, &*label, &by_units));
            measured.add(title, Point::new(at as f64, &*label, &in_time));
        }
        let over = |found: &Measured<Found>| drive.by_units(&firn).over(&drive.by_units(found));
        over_pack.push(over(&ways[PACK]));
        if page_size == 8192 {
            match name {
                "x25-e" => TIME_HIGH.judge(figure, &over(&ways[0])),
                "myers-a" => TIME_LOW_A.judge(figure, &over(&ways[0])),
                "ocz-core" => TIME_LOW_OCZ.judge(figure, &over(&ways[0])),
                _ => {}
            }
            beside(figure, name, class, &drive, &ways);
        }
    }
    figure.panels.extend([estimated, measured]);
    if !chosen_off.is_empty() {
        figure.notes.push(format!(
            "Pages of {kib} KiB: `auto` chooses no deltas where a read costs more than a page written, two with a \
             request (that ratio in brackets): {}.",
            chosen_off.join(", ")
        ));
    }
    Ok(())
}

/// What the paper prints of classes of drives.
fn beside(figure: &mut Figure, name: &str, class: &str, drive: &Drive, ways: &[Measured<Found>]) {
    let over = |at: usize| drive.by_units(&ways[at]).over(&drive.by_units(&ways[0]));
    match class {
        "high" => {
            figure.beside(format!("WOL over ORIG, high end: {name}"), "0.28", &over(ICL));
            figure.beside(format!("A&P over ORIG, high end: {name}"), "0.23", &over(PACK));
        }
        "low" => figure.beside(format!("WOL over ORIG, low end: {name}"), "0.09", &over(ICL)),
        _ => {}
    }
}
