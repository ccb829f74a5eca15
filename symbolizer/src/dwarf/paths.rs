//! Joins source paths, and matches paths that a user types.

/// The longest accepted path (`PATH_MAX`).
pub(crate) const MAX_PATH: usize = 4096;

/// Joins directory and name as the compiler does. An absolute name is not joined.
pub(crate) fn join(directory: &str, name: &str) -> String {
    if name.starts_with('/') || directory.is_empty() {
        return name.to_owned();
    }
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// Returns whether `path` ends with the components of `wanted`. If `wanted` is absolute, it must
/// match entirely. `.` is ignored, and `..` removes the component before it.
pub(crate) fn ends_with(path: &str, wanted: &str) -> bool {
    let (path_parts, wanted_parts) = (components(path), components(wanted));
    if wanted.starts_with('/') {
        return path_parts == wanted_parts;
    }
    !wanted_parts.is_empty() && path_parts.ends_with(&wanted_parts)
}

/// Returns the last component of a path, if there is one.
pub(crate) fn name(path: &str) -> Option<&str> {
    components(path).pop()
}

fn components(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_by_whole_components_from_the_end() {
        for (path, wanted, matches) in [
            ("/src/a/b.c", "b.c", true),
            ("/src/a/b.c", "a/b.c", true),
            ("/src/a/b.c", "./b.c", true),
            ("/src/x/../a/b.c", "src/a/b.c", true),
            ("/src/a/b.c", "/src/a/b.c", true),
            ("/src/a/b.c", "/a/b.c", false),
            ("/src/a/bb.c", "b.c", false),
            ("/src/a/b.c", "a", false),
            ("/src/a/b.c", "", false),
            ("../lib/b.c", "lib/b.c", true),
        ] {
            assert_eq!(ends_with(path, wanted), matches, "{wanted} in {path}");
        }
    }

    #[test]
    fn joined_paths_match_those_of_the_compiler() {
        assert_eq!(join("/src", "a.c"), "/src/a.c");
        assert_eq!(join("/src/", "../a.c"), "/src/../a.c");
        assert_eq!(join("/src", "/usr/include/x.h"), "/usr/include/x.h");
        assert_eq!(join("", "a.c"), "a.c");
    }
}
