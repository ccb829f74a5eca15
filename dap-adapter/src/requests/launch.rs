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
use std::collections::BTreeMap;
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
    source_map: Option<SourceMap>,
    bookmarks: Option<Vec<Bookmark>>,
    scheduler_locking: Option<bool>,
    just_my_code: Option<bool>,
}

/// Rules for the paths of source files: a path that begins with the first text is searched at the
/// second one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SourceMap {
    /// In the order in which they are tried.
    Pairs(Vec<(String, String)>),
    /// The longest first text is tried first.
    Object(BTreeMap<String, String>),
}

impl SourceMap {
    /// Returns the rules in the order in which they are tried.
    fn rules(self) -> Vec<(String, String)> {
        match self {
            Self::Pairs(rules) => rules,
            Self::Object(rules) => {
                let mut rules: Vec<_> = rules.into_iter().collect();
                rules.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
                rules
            }
        }
    }
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
    if let Some(map) = arguments.source_map {
        navigator.sources.substitutions = map.rules();
    }
    if client.access.is_bounded || downloaded.is_some() {
        navigator.bound_sources();
    }
    navigator.scheduler_locking = arguments.scheduler_locking.unwrap_or_default();
    navigator.just_my_code = arguments.just_my_code.unwrap_or(true);
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

#[cfg(test)]
mod tests {
    use super::SourceMap;

    #[test]
    fn source_map_is_an_object_or_a_list_of_pairs() {
        let rules = |text: &str| {
            let read: Option<SourceMap> = serde_json::from_str(text).ok();
            read.map(SourceMap::rules)
        };
        let expected = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
            Some(owned.collect::<Vec<_>>())
        };
        let object = r#"{"/a": "/x", "/a/b": "/y"}"#;
        assert_eq!(rules(object), expected(&[("/a/b", "/y"), ("/a", "/x")]));
        let pairs = r#"[["/a", "/x"], ["/a/b", "/y"]]"#;
        assert_eq!(rules(pairs), expected(&[("/a", "/x"), ("/a/b", "/y")]));
        assert_eq!(rules(r#"["/a"]"#), None);
    }
}
