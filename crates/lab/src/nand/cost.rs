//! `firn lab nand cost`: equations 2.1 and 2.2 of Myers's thesis beside simulation, as a table and
//! as a picture.

use super::{Cost as Args, failure, nanoseconds};
use firndb_console::chart::{Axis, Chart, Corner, Legend, Mark, Series};
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, say, table};
use firndb_emulate::nand::curve::{self, CurvePoint};
use firndb_emulate::nand::{FlashTimes, Geometry};
use firndb_workloads::results::Conditions;
use serde_json::json;
use std::path::Path;

/// Live shares of the short table.
const SHARES: [f64; 7] = [0.0, 0.25, 0.5, 0.75, 0.875, 0.9375, 0.953_125];
/// How far simulation may lie off the equations.
const TOLERANCE: f64 = 0.02;

pub fn run(args: &Args) -> Result<(), Failure> {
    let geometry = Geometry { pages_per_block: args.pages_per_block, ..Geometry::myers() };
    let times = FlashTimes {
        read_ns: nanoseconds("--read-us", args.read_us)?,
        program_ns: nanoseconds("--program-us", args.program_us)?,
        erase_ns: nanoseconds("--erase-us", args.erase_us)?,
        transfer_ns: 0,
    };
    if times.program_ns == 0 {
        return Err(Failure::bad_argument("--program-us is 0; a write takes time"));
    }
    let all = args.curve || args.svg.is_some();
    let shares = if all { curve::all_shares(&geometry) } else { SHARES.to_vec() };
    let points = curve::simulate(&geometry, &times, &shares, args.seed).map_err(failure)?;
    let worst = points.iter().flat_map(deviations).fold(0.0, |worst: f64, it| worst.max(it.abs()));
    say!("{}", text(&points));
    say!("\nSimulation is within {:.2} % of equations 2.1 (naive) and 2.2 (dynamic).", worst * 100.0);
    if let Some(path) = &args.svg {
        draw(path, &points)?;
        say!("The picture is {}.", path.display());
    }
    if let Some(path) = &args.json {
        write_json(path, &results(args, &points, worst)?)?;
    }
    Ok(())
}

/// Relative deviations of simulation from the equations: naive, dynamic.
fn deviations(point: &CurvePoint) -> [f64; 2] {
    [point.naive_us / point.naive_equation_us - 1.0, point.dynamic_us / point.dynamic_equation_us - 1.0]
}

fn text(points: &[CurvePoint]) -> String {
    let headers = ["c", "naive µs", "eq. 2.1 µs", "off", "dynamic µs", "eq. 2.2 µs", "off"];
    let mut table = table::new(&headers);
    for point in points {
        let [naive, dynamic] = deviations(point);
        table.add_row([
            format!("{:.4}", point.c),
            format!("{:.1}", point.naive_us),
            format!("{:.1}", point.naive_equation_us),
            format!("{:+.2} %", naive * 100.0),
            format!("{:.1}", point.dynamic_us),
            format!("{:.1}", point.dynamic_equation_us),
            format!("{:+.2} %", dynamic * 100.0),
        ]);
    }
    table::text(table, 0)
}

fn results(args: &Args, points: &[CurvePoint], worst: f64) -> Result<serde_json::Value, Failure> {
    let config = json!({
        "pages_per_block": args.pages_per_block, "read_us": args.read_us, "program_us": args.program_us,
        "erase_us": args.erase_us,
    });
    let mut head = Conditions::now("firn-bench/1", commit_of_source(), config, args.seed);
    head.simulated = true;
    let rows: Vec<_> = points
        .iter()
        .map(|point| {
            json!({"c": point.c, "naive_us": point.naive_us, "naive_equation_us": point.naive_equation_us,
                   "dynamic_us": point.dynamic_us, "dynamic_equation_us": point.dynamic_equation_us})
        })
        .collect();
    let mut all = serde_json::to_value(&head).map_err(|error| Failure::new(error.to_string()))?;
    all["bench"] = json!("nand-cost");
    all["rows"] = json!(rows);
    all["targets"] = json!([{
        "name": "FTL equations: largest deviation of simulation over c in 0 to 0.95", "value": worst,
        "target": TOLERANCE, "better": "lower", "met": worst <= TOLERANCE,
    }]);
    Ok(all)
}

/// Figure 2-1 of the thesis, with simulation as dots.
fn draw(path: &Path, points: &[CurvePoint]) -> Result<(), Failure> {
    type Of = fn(&CurvePoint) -> f64;
    let curves: [(&str, Of, Of); 2] = [
        ("naive map: eq. 2.1, simulated (dots)", |it| it.naive_equation_us, |it| it.naive_us),
        ("dynamic map: eq. 2.2, simulated (dots)", |it| it.dynamic_equation_us, |it| it.dynamic_us),
    ];
    let series = curves.into_iter().enumerate().flat_map(|(color, (name, equation, simulated))| {
        let line = points.iter().map(|it| (it.c, equation(it))).collect();
        // A dot in five keeps them apart.
        let dots = points.iter().step_by(5).map(|it| (it.c, simulated(it))).collect();
        [
            Series { name: Some(name), color, mark: Mark::Line, points: line, bars: Vec::new() },
            Series { name: None, color, mark: Mark::Points, points: dots, bars: Vec::new() },
        ]
    });
    let all = points.iter().flat_map(|point| [point.naive_equation_us, point.dynamic_equation_us]);
    let chart = Chart {
        title: "Cost of a page write over the live share of an erase block",
        x: Axis::linear("live share c", 0.0..1.0),
        y: Axis::log("µs", all),
        legend: Legend::Inside(Corner::LowerRight),
        series: series.collect(),
    };
    chart.draw(path)
}
