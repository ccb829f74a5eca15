//! Opening a trace.

use crate::access::Access;
use crate::adapter::{Adapter, Then};
use crate::debuggee::Debuggee;
use crate::failure::{Failure, Result};
use crate::fetch;
use crate::handles::Handles;
use crate::own::bookmarks::Bookmark;
use crate::own::motion;
use crate::own::siblings::Siblings;
use crate::sources::Sources;
use crate::stopped;
use backtrail_debugger::{Navigator, OpenOptions, Session};
use backtrail_decoder::{Position, Watch};
use serde::Deserialize;
use std::path::PathBuf;
use tempfile::TempPath;

/// What `launch` and `attach` take: see `docs/dap.md`.
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
pub fn launch(adapter: &mut Adapter, arguments: LaunchArguments, watch: &Watch<'_>) -> Result<()> {
    let missing = || {
        Failure::Cannot(
            "`bundle` is missing: a bundle's folder, a .btz file, a core, or an address of a .btz file"
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
    let (path, downloaded) = found(&bundle, arguments.sha256.as_deref(), &adapter.access, watch)?;
    let mut navigator = Navigator::new(Session::open(&path, &options, watch)?)?;
    if adapter.access.is_bounded || downloaded.is_some() {
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
                "bookmark \"{name}\" is left out: \"{position}\" is no position"
            )),
        }
    }
    if let Some(position) = &arguments.position {
        motion::go_to(&mut navigator, position, watch)?;
    }
    adapter.debuggee = Some(Debuggee {
        home: navigator.position(),
        navigator,
        handles: Handles::default(),
        sources: Sources::of_client(adapter.client.path_format.as_ref()),
        breakpoints: crate::requests::breakpoints::Table::default(),
        latencies: None,
        siblings: Siblings::default(),
        _downloaded: downloaded,
    });
    for note in notes {
        stopped::say(adapter, &note);
    }
    adapter.then.push(Then::Initialized);
    Ok(())
}

/// Where the trace lies, and what of it was downloaded.
fn found(
    bundle: &str,
    sha256: Option<&str>,
    access: &Access,
    watch: &Watch<'_>,
) -> Result<(PathBuf, Option<TempPath>)> {
    let tell = |done: u64, total: Option<u64>| {
        (watch.progress)(backtrail_decoder::Progress {
            stage: backtrail_decoder::Stage::Fetch,
            done,
            total: total.unwrap_or(0),
        });
    };
    if !fetch::is_address(bundle) {
        let path = PathBuf::from(bundle);
        if let Some(sha256) = sha256 {
            fetch::check(&path, sha256, watch.cancel, &tell)?;
        }
        return Ok((path, None));
    }
    let file = fetch::fetch(bundle, sha256, access, watch.cancel, &tell)?;
    Ok((file.to_path_buf(), Some(file)))
}
