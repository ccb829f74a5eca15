//! Two calls side by side: `compare`.

use super::{Paint, Text};
use backtrail_debugger::compare::{CallSide, CalledBy, Cause, Comparison, Difference, is_certain};
use backtrail_debugger::latency::Unit;

/// Two bounds of a difference, with its sign.
fn change(unit: Unit, [least, most]: [i64; 2]) -> String {
    let sign = |change: i64| if change < 0 { "−" } else { "+" };
    if least == most {
        return format!("{}{}", sign(most), unit.amount(most.unsigned_abs()));
    }
    let [from, to] = unit.amounts([least, most].map(i64::unsigned_abs));
    format!("{}{from} … {}{to}", sign(least), sign(most))
}

fn place(side: Option<&CallSide>) -> Option<String> {
    let side = side?;
    Some(match &side.call {
        Some(call) => format!("{call} {}", side.position),
        None => side.position.clone(),
    })
}

/// Writes the comparison of two calls.
pub(super) fn render(comparison: &Comparison, to: &mut Text) {
    for (name, function, side) in [
        ("first", &comparison.functions[0], &comparison.first),
        ("second", &comparison.functions[1], &comparison.second),
    ] {
        let took = side
            .length
            .map(|span| format!(", {}", span.describe(comparison.unit)))
            .unwrap_or_default();
        let place = place(Some(side)).unwrap_or_default();
        to.line(format!(
            "{name:<7} {}: {} instructions{took}  {}",
            to.paint(Paint::Function, function),
            side.instructions,
            to.paint(Paint::Faint, format!("[{place}]"))
        ));
    }
    if comparison.no_time {
        to.line("The trace has no time for these calls, so instructions are compared.");
    }
    if comparison.differences.is_empty() {
        to.line("Both calls made the same calls and executed the same instructions.");
        return;
    }
    if !comparison.no_time {
        let heading =
            "Time difference by function (+ longer in the second, − longer in the first), where certain:";
        render_causes(heading, comparison.unit, &comparison.by_time, to);
    }
    let heading = "Instruction difference by function (+ more in the second, − more in the first):";
    render_causes(heading, Unit::Instructions, &comparison.by_instructions, to);
    to.line("");
    to.line("Differences (+ only in the second, − only in the first):");
    for difference in &comparison.differences {
        render_difference(difference, comparison.unit, to);
    }
    if comparison.more {
        to.line("… and more; compare two of the calls listed above.");
    }
    if comparison.cut {
        to.line("There are too many calls; those marked as cut were compared only as a whole.");
    }
}

fn render_causes(heading: &str, unit: Unit, causes: &[Cause], to: &mut Text) {
    if causes.is_empty() {
        return;
    }
    to.line("");
    to.line(heading);
    for cause in causes {
        let calls = match (cause.who, cause.calls) {
            (CalledBy::Both, _) => "in its own code".to_owned(),
            (CalledBy::First, 1) => "called only by the first".to_owned(),
            (CalledBy::First, calls) => format!("{calls} calls only by the first"),
            (CalledBy::Second, 1) => "called only by the second".to_owned(),
            (CalledBy::Second, calls) => format!("{calls} calls only by the second"),
        };
        to.line(format!(
            "{:>28}  {}, {calls}  {}",
            change(unit, cause.change),
            to.paint(Paint::Function, &cause.function),
            to.paint(Paint::Faint, format!("[{}]", cause.position))
        ));
    }
}

fn render_difference(row: &Difference, unit: Unit, to: &mut Text) {
    let sign = match row.who {
        CalledBy::Both => " ",
        CalledBy::First => "−",
        CalledBy::Second => "+",
    };
    let mut facts = Vec::new();
    if row.calls > 1 {
        facts.push(format!("{} times", row.calls));
    }
    if row.instructions != 0 {
        facts.push(change(Unit::Instructions, [row.instructions; 2]));
    }
    if let Some(time) = row.time.filter(|&time| is_certain(time)) {
        facts.push(change(unit, time));
    }
    if row.out_of_order {
        facts.push("calls differ too much and were paired without regard to order".to_owned());
    }
    if row.cut {
        facts.push("cut".to_owned());
    }
    let places = [place(row.first.as_ref()), place(row.second.as_ref())];
    let places: Vec<String> = places.into_iter().flatten().collect();
    to.line(format!(
        "{sign} {:indent$}{}  {}  {}",
        "",
        to.paint(Paint::Function, &row.function),
        facts.join(", "),
        to.paint(Paint::Faint, format!("[{}]", places.join(" | "))),
        indent = row.depth * 2
    ));
}
