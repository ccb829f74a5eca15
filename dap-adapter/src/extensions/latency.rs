//! `backtrail/latency`: the latency of a function's calls, call by call.

use super::time::{Length, Moment};
use crate::failure::Result;
use crate::latency_cache::{CachedLatencies, Order};
use crate::session::ClientSession;
use backtrail_console::commands::latency_query::{described, measure};
use backtrail_console::views;
use backtrail_debugger::latency::histogram::{HistogramRow, histogram};
use backtrail_debugger::latency::{Percentiles, Unit};
use backtrail_decoder::Watch;
use serde::{Deserialize, Serialize};

/// The limit of calls in one response.
const MOST: usize = 1000;

/// The arguments of `backtrail/latency`.
#[derive(Clone, Debug, Deserialize)]
pub struct LatencyArguments {
    function: String,
    #[serde(default)]
    instructions: bool,
    #[serde(default)]
    sort: Order,
    #[serde(default)]
    start: Option<usize>,
    #[serde(default)]
    count: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Unmeasured {
    reason: String,
    calls: u64,
}

#[derive(Debug, Serialize)]
struct Named {
    name: &'static str,
    length: Length,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    position: String,
    thread_id: u32,
    length: Length,
    instructions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
}

/// `Latency` of `docs/dap.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    function: String,
    unit: Unit,
    no_time: bool,
    calls: u64,
    measured: u64,
    unmeasured: Vec<Unmeasured>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "spread")]
    percentiles: Option<Vec<Named>>,
    histogram: Vec<HistogramRow>,
    rows: Vec<Measured>,
}

/// `backtrail/latency`.
pub fn latency(
    client: &mut ClientSession,
    arguments: LatencyArguments,
    watch: &Watch<'_>,
) -> Result<Latency> {
    let debuggee = client.debuggee()?;
    let matches = |cached: &CachedLatencies| {
        (&cached.function, cached.instructions, cached.order)
            == (&arguments.function, arguments.instructions, arguments.sort)
    };
    let cached = match debuggee.latencies.take().filter(matches) {
        Some(cached) => cached,
        None => debuggee.navigator.with_earlier(watch, |navigator| {
            let (mut latencies, no_time) =
                measure(navigator, &arguments.function, arguments.instructions, watch)?;
            if arguments.sort == Order::Length {
                latencies.sort_by_length();
            }
            Ok(CachedLatencies {
                function: arguments.function.clone(),
                instructions: arguments.instructions,
                order: arguments.sort,
                no_time,
                latencies,
            })
        })?,
    };
    let answer = page(debuggee, &arguments, &cached, watch);
    debuggee.latencies = Some(cached);
    answer
}

fn page(
    debuggee: &crate::debuggee::Debuggee,
    arguments: &LatencyArguments,
    cached: &CachedLatencies,
    watch: &Watch<'_>,
) -> Result<Latency> {
    let navigator = &debuggee.navigator;
    let latencies = &cached.latencies;
    let unit = latencies.unit;
    let spans = latencies.measured.iter().map(|measured| measured.span);
    let count = arguments.count.unwrap_or(MOST).min(MOST);
    let calls = latencies
        .measured
        .iter()
        .skip(arguments.start.unwrap_or(0))
        .take(count);
    let mut rows = Vec::new();
    for measured in calls {
        let call = described(navigator.session(), measured, watch)?;
        let thread = navigator.session().thread(measured.tid)?;
        rows.push(Measured {
            call: call.call,
            position: call.position,
            thread_id: call.thread,
            length: Length::of(unit, call.length),
            instructions: call.instructions,
            time: views::time(navigator, thread, measured.first).map(Moment::from),
            caller: call.caller,
        });
    }
    Ok(Latency {
        function: cached.function.clone(),
        unit,
        no_time: cached.no_time,
        calls: latencies.calls(),
        measured: latencies.measured.len() as u64,
        unmeasured: latencies
            .unmeasured
            .iter()
            .map(|(reason, &calls)| Unmeasured {
                reason: reason.to_string(),
                calls,
            })
            .collect(),
        percentiles: Percentiles::of(spans.clone()).map(|percentiles| {
            let named = percentiles.named();
            named
                .into_iter()
                .map(|(name, span)| Named {
                    name,
                    length: Length::of(unit, span),
                })
                .collect()
        }),
        histogram: histogram(spans),
        rows,
    })
}
