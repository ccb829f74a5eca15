//! Whether a path is inside a folder.

/// Returns whether a path is one of the rows, or is inside a folder that a row names.
pub fn includes(rows: &[&str], path: &str) -> bool {
    rows.iter().any(|row| {
        path.strip_prefix(row)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_covers_its_folder_and_no_namesake() {
        assert!(includes(&["pt", "docs"], "docs/a.md"));
        assert!(includes(&["README.md"], "README.md"));
        assert!(!includes(&["pt"], "ptx/src/a.rs"));
        assert!(!includes(&["pt"], "decoder/pt"));
    }
}
