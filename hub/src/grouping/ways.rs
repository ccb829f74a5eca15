//! Ways into a crash: crashes of one group, split by the calls that ran before.
//!
//! A trace records the calls before a crash, also those that have returned. Two crashes with one
//! stack can have different histories, such as an account that was closed, or never opened.

use super::lists::{self, Role};
use super::printable::{printable, shortened};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

/// The distinct calls that make a way.
const EDGES: usize = 4;
/// The most calls that are read to find them.
const MAX_READ: usize = 4096;
/// The longest text of a way, in bytes.
const MAX_TEXT: usize = 500;
/// The most ways that are counted one by one.
const MAX_WAYS: usize = 1000;
/// The crashes that a way names.
const EXAMPLES: usize = 3;

/// A call before a crash, by the normalized names of both functions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallEdge {
    /// The function that called.
    pub caller: String,
    /// The function that was called.
    pub callee: String,
}

/// The last distinct calls before a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashPath {
    /// A stable key: equal calls have an equal key.
    pub key: String,
    /// The calls as a text, oldest first.
    pub text: String,
    /// The calls, newest first.
    pub edges: Vec<CallEdge>,
}

/// A way into a crash, and the crashes that went that way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCount {
    /// The calls.
    pub path: CrashPath,
    /// The number of crashes.
    pub crashes: u64,
    /// The identifiers of the first crashes, at most three.
    pub examples: Vec<String>,
}

/// The ways into a group of crashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    /// The ways, most frequent first.
    pub paths: Vec<PathCount>,
    /// Crashes without a recorded call.
    pub unknown: u64,
    /// Crashes on further ways, beyond the limit.
    pub others: u64,
}

impl CrashPath {
    /// Determines the way from the calls before a crash, newest first. `None`: no call is recorded.
    ///
    /// Calls of library functions are skipped, because nearly every function makes some. A path
    /// that has no other calls keeps them.
    #[must_use]
    pub fn of(calls: &[CallEdge]) -> Option<Self> {
        let of_program = distinct(calls, |edge| is_of_program(&edge.callee));
        let edges = match of_program.is_empty() {
            true => distinct(calls, |edge| !edge.callee.is_empty()),
            false => of_program,
        };
        if edges.is_empty() {
            return None;
        }
        let mut digest = Sha256::new();
        for name in edges.iter().flat_map(|edge| [&edge.caller, &edge.callee]) {
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
        }
        let mut key = String::with_capacity(16);
        for byte in digest.finalize().iter().take(8) {
            let _ = write!(key, "{byte:02x}");
        }
        let text = text(&edges);
        Some(Self { key, text, edges })
    }
}

fn is_of_program(callee: &str) -> bool {
    !callee.is_empty() && lists::find(callee).is_none_or(|known| known.role == Role::Sentinel)
}

/// Returns the first distinct calls for which a condition holds.
fn distinct(calls: &[CallEdge], condition: impl Fn(&CallEdge) -> bool) -> Vec<CallEdge> {
    let mut seen = HashSet::new();
    let chosen = calls.iter().take(MAX_READ).filter(|edge| condition(edge));
    chosen
        .filter(|edge| seen.insert(*edge))
        .take(EDGES)
        .cloned()
        .collect()
}

/// Returns the calls oldest first. A caller that was the last callee is not repeated.
fn text(edges: &[CallEdge]) -> String {
    let mut text = String::new();
    let mut last = "";
    for edge in edges.iter().rev() {
        if last.is_empty() {
            text.push_str(&edge.caller);
        } else if last != edge.caller {
            let _ = write!(text, ", then {}", edge.caller);
        }
        let _ = write!(text, " → {}", edge.callee);
        last = &edge.callee;
    }
    shortened(&printable(&text), MAX_TEXT)
}

/// Counts the ways of many crashes: their identifiers, and their calls newest first.
#[must_use]
pub fn count<'a>(crashes: impl IntoIterator<Item = (&'a str, &'a [CallEdge])>) -> PathCounts {
    let mut counts = PathCounts::default();
    let mut paths: BTreeMap<String, PathCount> = BTreeMap::new();
    for (crash, calls) in crashes {
        let Some(path) = CrashPath::of(calls) else {
            counts.unknown += 1;
            continue;
        };
        if paths.len() >= MAX_WAYS && !paths.contains_key(&path.key) {
            counts.others += 1;
            continue;
        }
        let entry = paths.entry(path.key.clone()).or_insert_with(|| PathCount {
            path,
            crashes: 0,
            examples: Vec::new(),
        });
        entry.crashes += 1;
        if entry.examples.len() < EXAMPLES {
            entry.examples.push(crash.to_owned());
        }
    }
    counts.paths = paths.into_values().collect();
    // The map has the order of the keys, so that equal counts have an order too.
    counts.paths.sort_by_key(|path| std::cmp::Reverse(path.crashes));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(edges: &[(&str, &str)]) -> Vec<CallEdge> {
        edges
            .iter()
            .map(|(caller, callee)| CallEdge {
                caller: (*caller).to_owned(),
                callee: (*callee).to_owned(),
            })
            .collect()
    }

    #[test]
    fn path_is_read_from_the_oldest_call() {
        let calls = calls(&[
            ("post", "settle"),
            ("post", "memcpy"),
            ("run", "post"),
            ("run", "load"),
        ]);
        let path = CrashPath::of(&calls).unwrap();
        assert_eq!(path.text, "run → load, then run → post → settle");
        assert_eq!(path.edges.len(), 3);
    }

    #[test]
    fn repetitions_and_library_calls_do_not_change_the_key() {
        let short = calls(&[("post", "settle"), ("run", "post")]);
        let long = calls(&[
            ("post", "settle"),
            ("settle", "malloc"),
            ("post", "settle"),
            ("run", "post"),
            ("post", "settle"),
        ]);
        assert_eq!(CrashPath::of(&short), CrashPath::of(&long));
        let other = calls(&[("post", "settle"), ("close", "post")]);
        assert_ne!(
            CrashPath::of(&short).unwrap().key,
            CrashPath::of(&other).unwrap().key
        );
    }

    #[test]
    fn library_calls_alone_are_a_path() {
        let path = CrashPath::of(&calls(&[("main", "memcpy")])).unwrap();
        assert_eq!(path.text, "main → memcpy");
        assert_eq!(CrashPath::of(&[]), None);
    }

    #[test]
    fn crashes_are_counted_by_way() {
        let (one, two) = (calls(&[("a", "b")]), calls(&[("c", "b")]));
        let crashes = ["1", "2", "3", "4", "5", "6", "7"];
        let of = |crash: &&str| match *crash {
            "3" => &two[..],
            "7" => &[][..],
            _ => &one[..],
        };
        let counts = count(crashes.iter().map(|crash| (*crash, of(crash))));
        let summary: Vec<(&str, u64)> = counts
            .paths
            .iter()
            .map(|path| (&*path.path.text, path.crashes))
            .collect();
        assert_eq!(summary, [("a → b", 5), ("c → b", 1)]);
        assert_eq!(counts.paths[0].examples, ["1", "2", "4"]);
        assert_eq!((counts.unknown, counts.others), (1, 0));
    }

    #[test]
    fn number_of_ways_is_bounded() {
        let all: Vec<Vec<CallEdge>> = (0..1500).map(|at| calls(&[("a", &format!("b{at}"))])).collect();
        let counts = count(all.iter().map(|calls| ("x", &calls[..])));
        assert_eq!((counts.paths.len(), counts.others), (MAX_WAYS, 500));
    }
}
