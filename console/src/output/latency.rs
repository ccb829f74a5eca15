//! The answers of the latency commands: `latency`, `slowest`.

use super::flow::render_rests;
use super::{Paint, Text, is_zero};
use backtrail_debugger::latency::histogram::{HistogramRow, bar};
use backtrail_debugger::latency::{Percentiles, Span, Split, Unit, Unmeasured};
use serde::Serialize;

/// The number of calls whose length is unknown for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnmeasuredView {
    /// The reason.
    pub reason: Unmeasured,
    /// The number of calls.
    pub calls: u64,
}

/// The answer of `latency`. A length is an array of two numbers: not less than the first, not more
/// than the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LatencyView {
    /// As it was given.
    pub function: String,
    /// The unit of lengths.
    pub unit: Unit,
    /// The trace has no time for these calls, so instructions are counted instead.
    pub no_time: bool,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls with a known length.
    pub measured: u64,
    /// The calls of unknown length, by reason.
    pub unmeasured: Vec<UnmeasuredView>,
    /// The number of calls that may continue an earlier one, because the function is inlined.
    #[serde(skip_serializing_if = "is_zero")]
    pub rests: u64,
    /// The percentiles of the lengths; `None` if no length is known.
    #[serde(rename = "spread")]
    pub percentiles: Option<Percentiles>,
    /// All together. A call inside of another is in the other's.
    pub total: Span,
    /// The parts of the total.
    pub split: Split,
    /// The histogram of lengths.
    pub histogram: Vec<HistogramRow>,
}

/// One of the calls that took longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowCall {
    /// The length.
    pub length: Span,
    /// The number of instructions that it and its callees executed.
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
    /// The unit of lengths.
    pub unit: Unit,
    /// The trace has no time for these calls, so instructions are counted instead.
    pub no_time: bool,
    /// The number of calls.
    pub calls: u64,
    /// The calls of unknown length, by reason.
    pub unmeasured: Vec<UnmeasuredView>,
    /// The number of calls that may continue an earlier one, because the function is inlined.
    #[serde(skip_serializing_if = "is_zero")]
    pub rests: u64,
    /// The longest first.
    pub slowest: Vec<SlowCall>,
}

/// The width of a bar.
const BAR: usize = 40;

pub(super) fn no_time(to: &mut Text) {
    to.line("The trace has no time for these calls, so instructions are counted.");
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
        render_rests(self.rests, to);
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
        to.line(to.paint(Paint::Faint, "  The length of a bar is logarithmic."));
        if uncertain > 0 {
            to.line(to.paint(
                Paint::Faint,
                format!(
                    "  ░ {} placed by the upper bound of their length; they may belong in an earlier row.",
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
        render_rests(self.rests, to);
    }
}
