//! The figure `choice`: what `choose` comes to in every cell, beside every code in all of them.

use super::cell::{CODES, Found, codes};
use super::measuring::Bench;
use super::simulator::Kind;
use super::targets::{self, CHOSEN_IN_TURN, CHOSEN_LEAST, CHOSEN_MEAN, CHOSEN_WORST};
use super::workloads::{self, IN_TURN};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use firndb_console::Failure;

const CHOOSE: &str = "choose";

/// The figure.
pub fn choice(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("choice");
    let mut all = Vec::new();
    let mut over_worst = Vec::new();
    let mut most_changes = 0;
    for kind in Kind::ALL {
        let title =
            format!("Operations a second over the best code's in each cell, {}: all 108", kind.name());
        let key = format!("array-choice-{}", kind.name());
        let mut panel = Panel::of_bars(&key, &title, "code", "over the best");
        panel.digits = 3;
        let mut by_code: Vec<Vec<Sampled>> = vec![Vec::new(); CODES + 1];
        for workload in workloads::all() {
            let measured = bench.measure(kind, workload)?;
            for (code, shares) in by_code[..CODES].iter_mut().enumerate() {
                shares.push(measured.value(|found| found.share(code)));
            }
            let share = |found: &Found| found.share(found.chosen.code);
            by_code[CODES].push(measured.value(share));
            let worst = |found: &Found| found.operations(found.chosen.code) / found.least();
            if kind == Kind::Flash {
                over_worst.push(measured.value(worst));
            }
            let changes = measured.value(|found| found.chosen.changes as f64);
            most_changes =
                most_changes.max(changes.summary().range.map_or(changes.median(), |(_, most)| most) as usize);
        }
        let names = codes().map(|code| code.to_string()).into_iter().chain([CHOOSE.to_owned()]);
        for (at, (name, shares)) in names.zip(&by_code).enumerate() {
            panel.add("mean", Point::new(at as f64, name.as_str(), &mean(shares)));
            let least = Sampled::least(shares).expect("108 cells");
            panel.add("least", Point::new(at as f64, name.as_str(), &least));
        }
        all.extend(by_code.swap_remove(CODES));
        figure.panels.push(panel);
    }
    CHOSEN_LEAST.judge(&mut figure, &Sampled::least(&all).expect("216 cells"));
    CHOSEN_MEAN.judge(&mut figure, &mean(&all));
    CHOSEN_WORST.judge(&mut figure, &Sampled::most(&over_worst).expect("108 cells"));
    let (ours, single) = in_turn(bench)?;
    CHOSEN_IN_TURN.judge(&mut figure, &ours.over(&single));
    figure.notes.push(format!(
        "Every cell begins with one copy, is measured, and goes over to the code that is chosen for the load that was \
         measured, until that is the code that it has: after {most_changes} changes at most."
    ));
    Ok(figure)
}

fn mean(all: &[Sampled]) -> Sampled {
    sum(all).map(|sum| sum / all.len() as f64)
}

fn sum(all: &[Sampled]) -> Sampled {
    let sum = all.iter().cloned().reduce(|one, two| one.with(&two, |one, two| one + two));
    sum.expect("there are cells")
}

/// Operations of three cells that follow each other, equally long: with the code chosen in each,
/// and with the single code that does most over all of them.
fn in_turn(bench: &Bench) -> Result<(Sampled, Sampled), Failure> {
    let mut ours = Vec::new();
    let mut singles: Vec<Vec<Sampled>> = vec![Vec::new(); CODES];
    for workload in IN_TURN {
        let measured = bench.measure(Kind::Flash, workload)?;
        ours.push(measured.value(|found| found.operations(found.chosen.code)));
        for (code, single) in singles.iter_mut().enumerate() {
            single.push(measured.value(|found| found.operations(code)));
        }
    }
    let singles: Vec<Sampled> = singles.iter().map(|single| sum(single)).collect();
    Ok((sum(&ours), Sampled::most(&singles).expect("ten codes")))
}
