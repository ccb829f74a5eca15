//! Opening a trace.

use crate::access::Access;
use crate::breakpoint_table::BreakpointTable;
use crate::call_list_cache::CallListCache;
use crate::debuggee::Debuggee;
use crate::extensions::bookmarks::Bookmark;
use crate::extensions::navigation;
use crate::failure::{Failure, Result};
use crate::fetch;
use crate::handles::Handles;
use crate::session::{ClientSession, FollowUp};
use crate::sources::Sources;
use crate::stop_events;
use backtrail_debugger::{Navigator, OpenOptions, Session};
use backtrail_decoder::{Position, Watch};
use serde::Deserialize;
use std::path::PathBuf;
use tempfile::TempPath;

/// The arguments of `launch` and `attach`: see `docs/dap.md`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchArguments {
    bundle: Option<String>,
    sha256: Option<String>,
    position: Option<String>,
    /// In MiB.
    last: Option<u64>,
    source_paths: Option<Vec<PathBuf>>,
    debug_roots: Option<Vec<PathBuf>>,
    bookmarks: Option<Vec<Bookmark>>,
}

/// Opens a trace.
pub fn launch(client: &mut ClientSession, arguments: LaunchArguments, watch: &Watch<'_>) -> Result<()> {
    let missing = || {
        Failure::Cannot(
            "`bundle` is missing: a bundle's folder, a .btz file, a core, or the address of a .btz file"
                .to_owned(),
        )
    };
    let bundle = arguments
        .bundle
        .filter(|bundle| !bundle.is_empty())
        .ok_or_else(missing)?;
    let mut options = OpenOptions {
        last: arguments.last.map(|last| last.saturating_mul(1 << 20)),
        first: Some(OpenOptions::FIRST),
        main_calls: true,
        ..OpenOptions::default()
    };
    options.source_paths = arguments.source_paths.unwrap_or_default();
    options.debug_roots = arguments.debug_roots.unwrap_or_default();
    let (path, downloaded) = found(&bundle, arguments.sha256.as_deref(), &client.access, watch)?;
    let mut navigator = Navigator::new(Session::open(&path, &options, watch)?)?;
    if client.access.is_bounded || downloaded.is_some() {
        navigator.bound_sources();
    }
    navigator.decode_ahead();
    let mut notes = navigator.session().notes().to_vec();
    for Bookmark { name, position } in arguments.bookmarks.unwrap_or_default() {
        match position.parse::<Position>() {
            Ok(position) => {
                navigator.bookmarks.insert(name, position);
            }
            Err(_) => notes.push(format!(
                "bookmark \"{name}\" is ignored: \"{position}\" is not a position"
            )),
        }
    }
    if let Some(position) = &arguments.position {
        navigation::go_to(&mut navigator, position, watch)?;
    }
    client.debuggee = Some(Debuggee {
        home: navigator.position(),
        navigator,
        handles: Handles::default(),
        sources: Sources::of_client(client.features.path_format.as_ref()),
        breakpoints: BreakpointTable::default(),
        latencies: None,
        call_lists: CallListCache::default(),
        _downloaded: downloaded,
    });
    for note in notes {
        stop_events::print(client, &note);
    }
    client.follow_ups.push(FollowUp::Initialized);
    Ok(())
}

/// Returns the path of the trace, and the downloaded file, if there is one.
fn found(
    bundle: &str,
    sha256: Option<&str>,
    access: &Access,
    watch: &Watch<'_>,
) -> Result<(PathBuf, Option<TempPath>)> {
    let report = |done: u64, total: Option<u64>| {
        (watch.progress)(backtrail_decoder::Progress {
            stage: backtrail_decoder::Stage::Fetch,
            done,
            total: total.unwrap_or(0),
        });
    };
    if !fetch::is_address(bundle) {
        let path = PathBuf::from(bundle);
        if let Some(sha256) = sha256 {
            fetch::check(&path, sha256, watch.cancel, &report)?;
        }
        return Ok((path, None));
    }
    let file = fetch::fetch(bundle, sha256, access, watch.cancel, &report)?;
    Ok((file.to_path_buf(), Some(file)))
}
