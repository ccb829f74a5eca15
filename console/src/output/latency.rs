//! How long calls took: `latency`, `slowest`.

use super::{Paint, Text};
use backtrail_debugger::latency::histogram::{HistogramRow, bar};
use backtrail_debugger::latency::{Percentiles, Span, Split, Unit, Unmeasured};
use serde::Serialize;

/// How many calls have no length, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnmeasuredView {
    /// The reason.
    pub reason: Unmeasured,
    /// So many.
    pub calls: u64,
}

/// The answer of `latency`. A length is an array of two numbers: not less than the first, not more than the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LatencyView {
    /// As it was given.
    pub function: String,
    /// What lengths are counted in.
    pub unit: Unit,
    /// The trace has no time for these calls, so instructions are counted instead.
    pub no_time: bool,
    /// How many calls there are.
    pub calls: u64,
    /// Of how many the length is known.
    pub measured: u64,
    /// Of how many others it is not.
    pub unmeasured: Vec<UnmeasuredView>,
    /// How the lengths are percentiles; `None`: none is known.
    #[serde(rename = "spread")]
    pub percentiles: Option<Percentiles>,
    /// All together. A call inside of another is in the other's.
    pub total: Span,
    /// Where that went.
    pub split: Split,
    /// How many calls took how long.
    pub histogram: Vec<HistogramRow>,
}

/// One of the calls that took longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowCall {
    /// How long it took.
    pub length: Span,
    /// How many instructions it and its callees executed.
    pub instructions: u64,
    /// `c12`, a name in its thread.
    pub call: Option<String>,
    /// Its first instruction, for `goto`.
    pub position: String,
    /// The function.
    pub function: String,
    /// The function that called it, if that is known.
    pub caller: Option<String>,
    /// Its thread.
    pub thread: u32,
    /// The thread's name.
    pub thread_name: Option<String>,
}

/// The answer of `slowest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowestView {
    /// As it was given.
    pub function: String,
    /// What lengths are counted in.
    pub unit: Unit,
    /// The trace has no time for these calls, so instructions are counted instead.
    pub no_time: bool,
    /// How many calls there are.
    pub calls: u64,
    /// Of how many the length is not known.
    pub unmeasured: Vec<UnmeasuredView>,
    /// The longest first.
    pub slowest: Vec<SlowCall>,
}

/// How wide a bar is.
const BAR: usize = 40;

pub(super) fn no_time(to: &mut Text) {
    to.line("The trace has no time for these calls; instructions are counted instead.");
}

fn render_unmeasured(unmeasured: &[UnmeasuredView], to: &mut Text) {
    for UnmeasuredView { reason, calls } in unmeasured {
        to.line(format!("Length unknown: {calls} that {reason}."));
    }
}

fn count(calls: u64) -> String {
    match calls {
        1 => "1 call".to_owned(),
        _ => format!("{calls} calls"),
    }
}

impl LatencyView {
    pub(super) fn render(&self, to: &mut Text) {
        if self.calls == 0 {
            to.line(format!("{} was not called in the history.", self.function));
            return;
        }
        let name = to.paint(Paint::Function, &self.function);
        to.line(format!("{name}: {}", count(self.calls)));
        if self.no_time {
            no_time(to);
        }
        render_unmeasured(&self.unmeasured, to);
        let Some(percentiles) = &self.percentiles else {
            return;
        };
        let rest = [
            ("total", self.total),
            ("self", self.split.own),
            ("callees", self.split.callees),
            ("off-CPU", self.split.off_cpu),
        ];
        for (name, span) in percentiles.named().into_iter().chain(rest) {
            if name == "off-CPU" && self.unit == Unit::Instructions {
                continue;
            }
            let indent = if matches!(name, "self" | "callees" | "off-CPU") {
                "  "
            } else {
                ""
            };
            to.line(format!("  {indent}{name:<9}{}", span.describe(self.unit)));
        }
        self.render_histogram(to);
    }

    fn render_histogram(&self, to: &mut Text) {
        let most = self.histogram.iter().map(|row| row.calls).max().unwrap_or(0);
        to.line("");
        let rows = self.histogram.iter().map(|row| {
            let bounds = format!("{} –", self.unit.amount(row.from));
            (bounds, row)
        });
        let rows: Vec<_> = rows.collect();
        let width = rows.iter().map(|(bounds, _)| bounds.chars().count()).max();
        let width = width.unwrap_or(0);
        for (bounds, row) in &rows {
            let long = bar(row.calls, most, BAR);
            let certain = bar(row.calls - row.uncertain, most, BAR).min(long);
            let certain = if row.uncertain > 0 {
                certain.min(long.saturating_sub(1))
            } else {
                long
            };
            let drawn = format!("{}{}", "█".repeat(certain), "░".repeat(long - certain));
            to.line(format!("  {bounds:>width$} {drawn:<BAR$} {:>8}", row.calls));
        }
        let uncertain: u64 = self.histogram.iter().map(|row| row.uncertain).sum();
        to.line(to.paint(Paint::Faint, "  Bars are long by the logarithm."));
        if uncertain > 0 {
            to.line(to.paint(
                Paint::Faint,
                format!(
                    "  ░ {} by the longest that it can have taken: it may belong further up.",
                    count(uncertain)
                ),
            ));
        }
    }
}

impl SlowestView {
    pub(super) fn render(&self, to: &mut Text) {
        if self.calls == 0 {
            to.line(format!("{} was not called in the history.", self.function));
            return;
        }
        if self.no_time {
            no_time(to);
        }
        for call in &self.slowest {
            let name = call.call.as_deref().unwrap_or("?");
            let caller = call
                .caller
                .as_deref()
                .map(|caller| format!(" from {caller}"))
                .unwrap_or_default();
            let thread = call
                .thread_name
                .as_deref()
                .map(|name| format!(" \"{name}\""))
                .unwrap_or_default();
            let instructions = match self.unit {
                Unit::Instructions => String::new(),
                Unit::Ns | Unit::Ticks => format!(", {} instructions", call.instructions),
            };
            let aside = format!(
                "[{name} {}, thread {}{thread}{instructions}]",
                call.position, call.thread
            );
            to.line(format!(
                "{:>24}  {}{caller}  {}",
                call.length.describe(self.unit),
                to.paint(Paint::Function, &call.function),
                to.paint(Paint::Faint, aside)
            ));
        }
        render_unmeasured(&self.unmeasured, to);
    }
}
