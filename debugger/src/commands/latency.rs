//! How long calls took: `latency`, `slowest`.

use super::{Context, find};
use crate::error::Result;
use crate::functions;
use crate::latency::histogram::histogram;
use crate::latency::{Latencies, Measured, Spread, Unit, Unmeasured};
use crate::output::{LatencyView, Output, SlowCall, SlowestView, UnmeasuredView};
use crate::session::{Session, Thread};
use backtrail_decoder::{Entered, Watch};
use std::collections::BTreeMap;

/// How many calls `slowest` shows.
const SLOWEST: usize = 10;
/// No more are shown at once.
const MAX_SLOWEST: usize = 10_000;

/// What was asked for, without the options.
struct Question<'a> {
    function: String,
    instructions: bool,
    words: Vec<&'a str>,
}

impl<'a> Question<'a> {
    fn read(command: &str, arguments: &'a str) -> Result<Self> {
        let all = arguments.split_whitespace();
        let (options, words): (Vec<&str>, Vec<&str>) = all.partition(|word| word.starts_with("--"));
        if let Some(unknown) = options.iter().find(|&&option| option != "--instructions") {
            return Err(find(command)?.misuse(format!("{unknown} is no option")));
        }
        if words.is_empty() {
            return Err(find(command)?.misuse("it takes a function"));
        }
        Ok(Self {
            function: words.join(" "),
            instructions: !options.is_empty(),
            words,
        })
    }

    /// Takes the number at the end, if there is one behind the function.
    fn number(&mut self) -> Option<usize> {
        let (last, function) = self.words.split_last()?;
        let number = last.parse().ok().filter(|_| !function.is_empty())?;
        self.function = function.join(" ");
        Some(number)
    }
}

/// The threads of the current process.
fn threads<'a>(context: &'a Context<'_>) -> Result<impl Iterator<Item = &'a Thread>> {
    let session = context.navigator.session();
    let pid = context.navigator.process()?.pid;
    let of_process =
        move |thread: &&Thread| session.process(thread).is_some_and(|process| process.pid == pid);
    Ok(session.threads().iter().filter(of_process))
}

/// The lengths of all calls, in instructions where those of the calls have no time; says whether that is so.
fn measure(context: &Context<'_>, question: &Question<'_>) -> Result<(Latencies, bool)> {
    let navigator = &*context.navigator;
    let session = navigator.session();
    let entries = functions::entries(navigator.process()?, &question.function)?;
    let of = |unit| Latencies::of(session, threads(context)?, &entries, unit, context.watch);
    if question.instructions {
        return Ok((of(Unit::Instructions)?, false));
    }
    let by_time = of(Unit::of_time(session.times()))?;
    let without = by_time.unmeasured.contains_key(&Unmeasured::NoTime);
    match by_time.measured.is_empty() && without {
        true => Ok((of(Unit::Instructions)?, true)),
        false => Ok((by_time, false)),
    }
}

fn unmeasured(counts: &BTreeMap<Unmeasured, u64>) -> Vec<UnmeasuredView> {
    let counts = counts.iter();
    counts
        .map(|(&reason, &calls)| UnmeasuredView { reason, calls })
        .collect()
}

pub(super) fn latency(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let question = Question::read("latency", arguments)?;
    let (latencies, no_time) = measure(context, &question)?;
    let spans = latencies.measured.iter().map(|measured| measured.span);
    Ok(Output::Latency(LatencyView {
        function: question.function,
        unit: latencies.unit,
        no_time,
        calls: latencies.calls(),
        measured: latencies.measured.len() as u64,
        unmeasured: unmeasured(&latencies.unmeasured),
        spread: Spread::of(spans.clone()),
        total: latencies.total,
        split: latencies.split,
        histogram: histogram(spans),
    }))
}

pub(super) fn slowest(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let mut question = Question::read("slowest", arguments)?;
    let count = question.number().unwrap_or(SLOWEST).min(MAX_SLOWEST);
    let (latencies, no_time) = measure(context, &question)?;
    let (unit, calls, unmeasured) = (
        latencies.unit,
        latencies.calls(),
        unmeasured(&latencies.unmeasured),
    );
    let session = context.navigator.session();
    let slowest = latencies
        .slowest(count)
        .into_iter()
        .map(|measured| slow_call(session, measured, context.watch))
        .collect::<Result<_>>()?;
    Ok(Output::Slowest(SlowestView {
        function: question.function,
        unit,
        no_time,
        calls,
        unmeasured,
        slowest,
    }))
}

fn slow_call(session: &Session, measured: Measured, watch: &Watch<'_>) -> Result<SlowCall> {
    let thread = session.thread(measured.tid)?;
    let forest = session.forest(thread, watch)?;
    let call = forest.call(measured.call);
    let process = session.process(thread);
    let site = match call.entered {
        Entered::Call { site } | Entered::TailCall { site } => thread.history.pc(site),
        _ => None,
    };
    let caller = process.zip(site).and_then(|(process, site)| {
        let frames = process.symbols.frames_at(site);
        frames.into_iter().next()
    });
    let function = process.and_then(|process| process.symbols.function_at(call.function));
    Ok(SlowCall {
        length: measured.span,
        instructions: call.end.saturating_sub(call.first),
        call: thread.name_of(forest, measured.call).map(|name| name.to_string()),
        position: thread.position(call.first).to_string(),
        function: function.map_or_else(|| call.function.to_string(), |function| function.name.to_string()),
        caller: caller.map(|frame| frame.function.to_string()),
        thread: thread.tid.0,
        thread_name: thread.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_may_have_spaces_and_a_number_may_follow() {
        let mut question = Question::read("slowest", "f(int, char) --instructions 5").unwrap();
        assert!(question.instructions);
        assert_eq!(question.number(), Some(5));
        assert_eq!(question.function, "f(int, char)");
        let mut question = Question::read("slowest", "f(int, char)").unwrap();
        assert_eq!((question.number(), question.instructions), (None, false));
        assert_eq!(question.function, "f(int, char)");
        assert_eq!(Question::read("slowest", "7").unwrap().number(), None);
        assert!(Question::read("latency", "--instructions").is_err());
        assert!(Question::read("latency", "f --intructions").is_err());
    }
}
