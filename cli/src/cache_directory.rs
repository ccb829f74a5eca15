//! The directory for data that can be had again.

use std::path::PathBuf;

/// Returns `$XDG_CACHE_HOME/backtrail/NAME`, by default below `~/.cache`. `None`: neither
/// XDG_CACHE_HOME nor HOME is set.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("backtrail").join(name))
}
