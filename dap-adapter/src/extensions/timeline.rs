//! `backtrail/timeline`: the threads on one clock, with the calls that are visible in the columns.

use crate::failure::{Failure, Result};
use crate::session::ClientSession;
use backtrail_debugger::Navigator;
use backtrail_debugger::own_code::CodeOrigin;
use backtrail_debugger::timeline::chart::{self, ChartRequest, Timeline};
use backtrail_decoder::{Position, Watch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The limit of columns.
const MOST_COLUMNS: usize = 4000;
/// As many are, unless the client says.
const COLUMNS: usize = 1000;
/// The limit of call levels.
const MOST_LEVELS: usize = 200;
/// As many are, unless the client says.
const LEVELS: usize = 40;

/// The arguments of `backtrail/timeline`.
#[derive(Clone, Debug, Deserialize)]
pub struct TimelineRequest {
    #[serde(default)]
    from: Option<f64>,
    #[serde(default)]
    to: Option<f64>,
    #[serde(default)]
    width: Option<f64>,
    #[serde(default)]
    depth: Option<f64>,
}

/// A timeline, and the code in it that is not the user's own.
#[derive(Debug, Serialize)]
pub struct TimelineBody {
    #[serde(flatten)]
    timeline: Timeline,
    libraries: BTreeMap<String, String>,
}

/// `backtrail/timeline`.
pub fn timeline(
    client: &mut ClientSession,
    arguments: TimelineRequest,
    watch: &Watch<'_>,
) -> Result<TimelineBody> {
    if let (Some(from), Some(to)) = (arguments.from, arguments.to)
        && from > to
    {
        return Err(Failure::Cannot("the window ends before it starts".to_owned()));
    }
    let request = ChartRequest {
        from: arguments.from,
        to: arguments.to,
        columns: whole(arguments.width, COLUMNS, MOST_COLUMNS),
        levels: whole(arguments.depth, LEVELS, MOST_LEVELS),
    };
    let debuggee = client.debuggee()?;
    let body = debuggee.navigator.with_earlier(watch, |navigator| {
        let (session, index) = (navigator.session(), navigator.index());
        let timeline = chart::timeline(session, navigator.thread()?, index, request, watch)?;
        Ok(TimelineBody {
            libraries: libraries(navigator, &timeline),
            timeline,
        })
    });
    Ok(body?)
}

/// Returns the libraries of the functions of a timeline. Functions of own code have none.
fn libraries(navigator: &Navigator, timeline: &Timeline) -> BTreeMap<String, String> {
    let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let calls = timeline.threads.iter().flat_map(|thread| &thread.calls);
    for call in calls {
        let look_up = || library_of(navigator, &call.position);
        known.entry(&call.function).or_insert_with(look_up);
    }
    let libraries = known.into_iter();
    libraries
        .filter_map(|(function, library)| Some((function.to_owned(), library?)))
        .collect()
}

/// Returns the library of the function that was called at a position.
fn library_of(navigator: &Navigator, position: &str) -> Option<String> {
    let session = navigator.session();
    let position: Position = position.parse().ok()?;
    let thread = session.thread(position.tid()).ok()?;
    let index = thread.index_of(position).ok()?;
    let (pc, symbols) = (thread.history.pc(index)?, session.symbols_at(thread, index)?);
    let function = symbols.function_at(pc);
    let declared = function.as_ref().and_then(|function| function.declared.clone());
    let row = || {
        symbols
            .line_at(pc)
            .filter(|row| row.line != 0)
            .map(|row| row.file)
    };
    let file = declared.map(|(file, _)| file).or_else(row);
    navigator.library_of(&CodeOrigin {
        function: function.as_ref().map(|function| &*function.name),
        file: file.as_deref(),
        module: symbols.module_at(pc).map(|module| &*module.name),
    })
}

/// A number of the client's in bounds.
fn whole(wanted: Option<f64>, usual: usize, most: usize) -> usize {
    wanted
        .filter(|wanted| *wanted >= 1.0)
        .map_or(usual, |wanted| wanted as usize)
        .min(most)
}
