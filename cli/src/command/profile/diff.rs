//! `backtrail profile diff`.

use super::html;
use super::selected::{Selected, different_units};
use super::weight;
use crate::args::ProfileDiff;
use crate::exit::Failure;
use crate::output::Output;
use crate::terminal::plain;
use backtrail_profile::{Change, Comparison, FunctionProfile, FunctionWeight};
use serde::Serialize;
use std::io::Write;

/// The functions whose weights differ.
#[derive(Serialize)]
struct Difference<'a> {
    event: &'a str,
    /// The event of the second profile, which differs if no event is in both.
    other_event: &'a str,
    unit: &'a str,
    totals: [i64; 2],
    /// The weights of the second profile are multiplied by this.
    scale: f64,
    functions: Vec<DiffRow<'a>>,
}

#[derive(Serialize)]
struct DiffRow<'a> {
    name: &'a str,
    change: &'static str,
    own: [i64; 2],
    total: [i64; 2],
}

/// Prints the functions whose weights differ, the largest difference first.
pub fn run(args: &ProfileDiff) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        return html::diff(args, path);
    }
    let [before, after] = Selected::open_pair([&args.before, &args.after], &args.selection)?;
    let (event, unit) = before.event();
    let (other_event, other_unit) = after.event();
    if unit != other_unit {
        return Err(different_units([event, unit], [other_event, other_unit]));
    }
    let totals = [before.total(), after.total()];
    if args.normalize && totals[0] == 0 && totals[1] != 0 {
        return Err(Failure::failed(format_args!(
            "{} has no weight of {event}, so that nothing can be scaled to it; leave out --normalize",
            args.before.display()
        )));
    }
    let scale = match args.normalize && totals[1] != 0 {
        true => totals[0] as f64 / totals[1] as f64,
        false => 1.0,
    };
    let comparison = Comparison::new(&before.functions, &scaled(&after.functions, scale))?;
    let difference = Difference {
        event,
        other_event,
        unit,
        totals,
        scale,
        functions: rows(&comparison, args.limit),
    };
    let mut output = Output::new();
    match args.json {
        true => output.json("backtrail-profile-diff/1", &difference)?,
        false => print(args, &difference, &mut output)?,
    }
    output.finish()
}

fn scaled(profile: &FunctionProfile, scale: f64) -> FunctionProfile {
    let mut profile = profile.clone();
    if scale != 1.0 {
        for sample in &mut profile.samples {
            sample.weight = (sample.weight as f64 * scale).round() as i64;
        }
    }
    profile
}

fn rows(comparison: &Comparison, limit: usize) -> Vec<DiffRow<'_>> {
    let row = |(change, weights): (Change, FunctionWeight<2>)| DiffRow {
        name: comparison.name(weights.symbol),
        change: match change {
            Change::New => "new",
            Change::Removed => "removed",
            Change::Changed => "changed",
        },
        own: weights.own,
        total: weights.total,
    };
    comparison.functions().into_iter().take(limit).map(row).collect()
}

fn print(args: &ProfileDiff, difference: &Difference<'_>, output: &mut Output) -> Result<(), Failure> {
    let unit = difference.unit;
    let text = |weight| weight::text(weight, unit);
    writeln!(
        output,
        "{}: {} in {}, {} in {}",
        plain(difference.event),
        text(difference.totals[0]),
        args.before.display(),
        text(difference.totals[1]),
        args.after.display()
    )?;
    if difference.other_event != difference.event {
        writeln!(
            output,
            "no event is in both profiles: the second has {}",
            plain(difference.other_event)
        )?;
    }
    if difference.scale != 1.0 {
        writeln!(
            output,
            "weights of the second profile times {:.4}",
            difference.scale
        )?;
    }
    writeln!(
        output,
        "{:>11} {:>10} {:>10} {:>11}  function",
        "own change", "before", "after", "total change"
    )?;
    for row in &difference.functions {
        let change = |weights: [i64; 2]| {
            let change = weights[1].saturating_sub(weights[0]);
            let sign = if change > 0 { "+" } else { "" };
            format!("{sign}{}", text(change))
        };
        let mark = match row.change {
            "changed" => String::new(),
            change => format!(" ({change})"),
        };
        writeln!(
            output,
            "{:>11} {:>10} {:>10} {:>12}  {}{mark}",
            change(row.own),
            text(row.own[0]),
            text(row.own[1]),
            change(row.total),
            plain(row.name)
        )?;
    }
    if difference.functions.is_empty() {
        writeln!(output, "no function differs")?;
    }
    Ok(())
}
