//! Two calls side by side: `compare`.

use super::latency_query::measure;
use super::{Context, find};
use crate::output::Output;
use backtrail_debugger::compare::{ComparedCall, ComparisonLimits, InlinedPart, compare as compared};
use backtrail_debugger::session::Thread;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{CallId, Forest, Position};

/// `compare CALL CALL`, `compare RANK RANK FUNCTION`, or a CALL and a RANK among the calls of its
/// function.
pub(super) fn compare(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let misuse = |problem: &str| Err(find("compare")?.misuse(problem));
    let [first, second, function @ ..] = words.as_slice() else {
        return misuse("two calls are required");
    };
    let (first, second) = match (rank(first), rank(second), function) {
        (Some(_), Some(_), []) => return misuse("a function is required after two percentiles"),
        (Some(low), Some(high), function) => {
            let function = function.join(" ");
            (
                ranked(context, low, &function)?,
                ranked(context, high, &function)?,
            )
        }
        (_, _, [_, ..]) => return misuse("two calls are required, or two percentiles and a function"),
        (Some(low), None, []) => {
            let second = call(context, second)?;
            (ranked(context, low, &function_of(context, &second)?)?, second)
        }
        (None, Some(high), []) => {
            let first = call(context, first)?;
            let function = function_of(context, &first)?;
            (first, ranked(context, high, &function)?)
        }
        (None, None, []) => (call(context, first)?, call(context, second)?),
    };
    let comparison = compared(
        context.navigator.session(),
        first,
        second,
        ComparisonLimits::default(),
        context.watch,
    )?;
    Ok(Output::Comparison(Box::new(comparison)))
}

/// Reads `median`, `min`, `max`, or a percentile such as `p99.9`. Returns it in percent.
fn rank(text: &str) -> Option<f64> {
    match text {
        "min" => Some(0.0),
        "median" => Some(50.0),
        "max" => Some(100.0),
        _ => {
            let percent = text.strip_prefix('p')?;
            let is_number = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let percent: f64 = percent.parse().ok().filter(|_| is_number)?;
            (0.0..=100.0).contains(&percent).then_some(percent)
        }
    }
}

/// Returns the call of a function at a percentile of its lengths.
fn ranked<'a>(context: &'a Context<'_>, percent: f64, function: &str) -> Result<ComparedCall<'a>> {
    let (latencies, _) = measure(context.navigator, function, false, context.watch)?;
    let found = latencies.at_percentile(percent).ok_or_else(|| {
        Error::Cannot(format!(
            "no call of {function} has a known length; `latency {function}` gives the reasons"
        ))
    })?;
    let session = context.navigator.session();
    let thread = session.thread(found.tid)?;
    let call = whole(thread, session.forest(thread, context.watch)?, found.call)?;
    let range = found.first..found.end;
    let part = found.inlined.map(|function| InlinedPart { function, range });
    Ok(ComparedCall { part, ..call })
}

/// Returns the name of a call's function.
fn function_of(context: &Context<'_>, compared: &ComparedCall<'_>) -> Result<String> {
    let call = compared.forest.call(compared.call);
    let symbols = context
        .navigator
        .session()
        .symbols_at(compared.thread, call.first);
    let function = symbols.and_then(|symbols| symbols.function_at(call.function));
    let function = function.map(|function| function.name.to_string());
    function.ok_or_else(|| Error::Cannot("the function of this call has no name; name two calls".to_owned()))
}

/// The call of a name in the current thread, or the one that begins at a position of any.
fn call<'a>(context: &'a Context<'_>, text: &str) -> Result<ComparedCall<'a>> {
    let navigator = &*context.navigator;
    let session = navigator.session();
    let here = navigator.thread()?;
    let none = |tid| {
        Error::Cannot(format!(
            "thread {tid} has no call {text}; `calls` and `slowest` list calls and their positions"
        ))
    };
    if let Ok(name) = text.parse() {
        let forest = session.forest(here, context.watch)?;
        let call = here.call_named(forest, name)?.ok_or_else(|| none(here.tid))?;
        return whole(here, forest, call);
    }
    let position = match text.strip_prefix('#') {
        Some(index) => format!("t{}#{index}", here.tid).parse(),
        None => text.parse::<Position>(),
    };
    let position = position.map_err(|_| none(here.tid))?;
    let thread = session.thread(position.tid())?;
    let first = thread.index_of(position)?;
    let forest = session.forest(thread, context.watch)?;
    let call = forest
        .call_at(first)
        .filter(|&call| forest.call(call).first == first);
    whole(thread, forest, call.ok_or_else(|| none(thread.tid))?)
}

/// Unless history that is not decoded yet has more of the call.
fn whole<'a>(thread: &'a Thread, forest: &'a Forest, call: CallId) -> Result<ComparedCall<'a>> {
    if thread.is_cut_off(&forest.call(call)) {
        return Err(Error::Earlier);
    }
    Ok(ComparedCall {
        thread,
        forest,
        call,
        part: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_percentiles() {
        for (text, percent) in [
            ("min", Some(0.0)),
            ("median", Some(50.0)),
            ("p99.9", Some(99.9)),
            ("p100", Some(100.0)),
            ("max", Some(100.0)),
            ("p101", None),
            ("p", None),
            ("pinf", None),
            ("p1e1", None),
            ("c12", None),
            ("t5#12", None),
        ] {
            assert_eq!(rank(text), percent, "{text}");
        }
    }
}
