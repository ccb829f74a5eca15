//! The lines of a file that ran.

use crate::failure::Result;
use crate::requests::breakpoints::by_path;
use crate::session::ClientSession;
use backtrail_decoder::Watch;
use serde::{Deserialize, Serialize};

/// The arguments of `backtrail/coverage`.
#[derive(Debug, Deserialize)]
pub struct CoverageArguments {
    path: String,
}

#[derive(Debug, Serialize)]
struct CoveredLine {
    line: u32,
    executions: u64,
}

/// Its answer.
#[derive(Debug, Default, Serialize)]
pub struct CoverageBody {
    lines: Vec<CoveredLine>,
}

/// `backtrail/coverage`.
pub fn coverage(
    client: &mut ClientSession,
    arguments: CoverageArguments,
    watch: &Watch<'_>,
) -> Result<CoverageBody> {
    let debuggee = client.debuggee()?;
    let Some(file) = debuggee
        .sources
        .file_of(&debuggee.navigator, &by_path(&arguments.path))
    else {
        return Ok(CoverageBody::default());
    };
    let lines = debuggee.navigator.with_earlier(watch, |navigator| {
        let thread = navigator.thread()?;
        let coverage = navigator.session().coverage(thread, watch)?;
        let mut files = coverage.files();
        let ran = files.find(|(name, _)| ***name == *file);
        let lines = ran.into_iter().flat_map(|(_, lines)| lines);
        Ok(lines
            .map(|(&line, count)| CoveredLine {
                line,
                executions: count.count,
            })
            .collect())
    })?;
    Ok(CoverageBody { lines })
}
