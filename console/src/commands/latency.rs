//! The answers of the latency commands: `latency`, `slowest`.

use super::latency_query::{described, measure};
use super::{Context, find};
use crate::output::{LatencyView, Output, SlowestView, UnmeasuredView};
use backtrail_debugger::Result;
use backtrail_debugger::latency::histogram::histogram;
use backtrail_debugger::latency::{Percentiles, Unmeasured};
use std::collections::BTreeMap;

/// The default number of calls that `slowest` shows.
const SLOWEST: usize = 10;
/// No more are shown at once.
const MAX_SLOWEST: usize = 10_000;

/// The arguments without the options.
struct LatencyArguments<'a> {
    function: String,
    instructions: bool,
    words: Vec<&'a str>,
}

impl<'a> LatencyArguments<'a> {
    fn read(command: &str, arguments: &'a str) -> Result<Self> {
        let all = arguments.split_whitespace();
        let (options, words): (Vec<&str>, Vec<&str>) = all.partition(|word| word.starts_with("--"));
        if let Some(unknown) = options.iter().find(|&&option| option != "--instructions") {
            return Err(find(command)?.misuse(format!("unknown option {unknown}")));
        }
        if words.is_empty() {
            return Err(find(command)?.misuse("a function is required"));
        }
        Ok(Self {
            function: words.join(" "),
            instructions: !options.is_empty(),
            words,
        })
    }

    /// Takes the number after the function, if there is one.
    fn number(&mut self) -> Option<usize> {
        let (last, function) = self.words.split_last()?;
        let number = last.parse().ok().filter(|_| !function.is_empty())?;
        self.function = function.join(" ");
        Some(number)
    }
}

fn unmeasured(counts: &BTreeMap<Unmeasured, u64>) -> Vec<UnmeasuredView> {
    let counts = counts.iter();
    counts
        .map(|(&reason, &calls)| UnmeasuredView { reason, calls })
        .collect()
}

pub(super) fn latency(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let parsed = LatencyArguments::read("latency", arguments)?;
    let (latencies, no_time) = measure(
        context.navigator,
        &parsed.function,
        parsed.instructions,
        context.watch,
    )?;
    let spans = latencies.measured.iter().map(|measured| measured.span);
    Ok(Output::Latency(LatencyView {
        function: parsed.function,
        unit: latencies.unit,
        no_time,
        calls: latencies.calls(),
        measured: latencies.measured.len() as u64,
        unmeasured: unmeasured(&latencies.unmeasured),
        rests: latencies.rests,
        percentiles: Percentiles::of(spans.clone()),
        total: latencies.total,
        split: latencies.split,
        histogram: histogram(spans),
    }))
}

pub(super) fn slowest(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let mut parsed = LatencyArguments::read("slowest", arguments)?;
    let count = parsed.number().unwrap_or(SLOWEST).min(MAX_SLOWEST);
    let (latencies, no_time) = measure(
        context.navigator,
        &parsed.function,
        parsed.instructions,
        context.watch,
    )?;
    let (unit, calls, rests, unmeasured) = (
        latencies.unit,
        latencies.calls(),
        latencies.rests,
        unmeasured(&latencies.unmeasured),
    );
    let session = context.navigator.session();
    let slowest = latencies
        .slowest(count)
        .into_iter()
        .map(|measured| described(session, &measured, context.watch))
        .collect::<Result<_>>()?;
    Ok(Output::Slowest(SlowestView {
        function: parsed.function,
        unit,
        no_time,
        calls,
        unmeasured,
        rests,
        slowest,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_may_have_spaces_and_a_number_may_follow() {
        let mut parsed = LatencyArguments::read("slowest", "f(int, char) --instructions 5").unwrap();
        assert!(parsed.instructions);
        assert_eq!(parsed.number(), Some(5));
        assert_eq!(parsed.function, "f(int, char)");
        let mut parsed = LatencyArguments::read("slowest", "f(int, char)").unwrap();
        assert_eq!((parsed.number(), parsed.instructions), (None, false));
        assert_eq!(parsed.function, "f(int, char)");
        assert_eq!(LatencyArguments::read("slowest", "7").unwrap().number(), None);
        assert!(LatencyArguments::read("latency", "--instructions").is_err());
        assert!(LatencyArguments::read("latency", "f --intructions").is_err());
    }
}
