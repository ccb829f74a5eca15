//! Every Rust file says at its top what it holds.

use super::{Problem, Source};

/// A `//!` before any code.
pub fn check(source: &Source) -> Vec<Problem> {
    let first = source.text.lines().map(str::trim).find(|line| !line.is_empty());
    if source.is_rust() && !first.is_some_and(|line| line.starts_with("//! ")) {
        return vec![Problem::new(
            source,
            1,
            "the file does not begin with a module doc (`//! …`)",
        )];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_starts_with_code_is_found() {
        assert_eq!(
            check(&Source::sample("pt/src/a.rs", "use std::fmt;\n//! late\n")).len(),
            1
        );
        assert_eq!(
            check(&Source::sample("pt/src/a.rs", "//!\nuse std::fmt;\n")).len(),
            1
        );
        assert_eq!(check(&Source::sample("pt/src/a.rs", "")).len(), 1);
        assert_eq!(check(&Source::sample("pt/src/a.rs", "//! Packets.\n")), []);
    }
}
