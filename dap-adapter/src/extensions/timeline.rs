//! `backtrail/timeline`: the threads on one clock, with the calls that are visible in the columns.

use crate::failure::{Failure, Result};
use crate::session::ClientSession;
use backtrail_debugger::timeline::chart::{self, ChartRequest, Timeline};
use backtrail_decoder::Watch;
use serde::Deserialize;

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

/// `backtrail/timeline`.
pub fn timeline(
    client: &mut ClientSession,
    arguments: TimelineRequest,
    watch: &Watch<'_>,
) -> Result<Timeline> {
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
        chart::timeline(session, navigator.thread()?, index, request, watch)
    });
    Ok(body?)
}

/// A number of the client's in bounds.
fn whole(wanted: Option<f64>, usual: usize, most: usize) -> usize {
    wanted
        .filter(|wanted| *wanted >= 1.0)
        .map_or(usual, |wanted| wanted as usize)
        .min(most)
}
