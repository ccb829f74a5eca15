//! Source paths: joining their parts, and matching what a person types.

/// A genuine path is shorter (`PATH_MAX`).
pub(crate) const MAX_PATH: usize = 4096;

/// Joins directory and name, as the compiler found the file; an absolute name stands alone.
pub(crate) fn join(directory: &str, name: &str) -> String {
    if name.starts_with('/') || directory.is_empty() {
        return name.to_owned();
    }
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// Whether the last components of `path` are those of `wanted`; all of them, if `wanted` is absolute.
/// `.` counts for nothing and `..` takes the component before it away.
pub(crate) fn ends_with(path: &str, wanted: &str) -> bool {
    let (path_parts, wanted_parts) = (components(path), components(wanted));
    if wanted.starts_with('/') {
        return path_parts == wanted_parts;
    }
    !wanted_parts.is_empty() && path_parts.ends_with(&wanted_parts)
}

/// The last component of a path; `None`: it has none.
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
    fn joined_paths_keep_what_the_compiler_wrote() {
        assert_eq!(join("/src", "a.c"), "/src/a.c");
        assert_eq!(join("/src/", "../a.c"), "/src/../a.c");
        assert_eq!(join("/src", "/usr/include/x.h"), "/usr/include/x.h");
        assert_eq!(join("", "a.c"), "a.c");
    }
}
