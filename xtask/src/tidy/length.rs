//! Files stay short: one concept each.

use super::{Problem, Source};

/// The longest a file may be without a reason.
const LIMIT: usize = 700;

/// The beginning of the reason, anywhere in the file.
const REASON: &str = concat!("// tidy", ": long because ");

/// No Rust file over the limit, unless it says why.
pub fn check(source: &Source) -> Vec<Problem> {
    let length = source.text.lines().count();
    if !source.is_rust() || length <= LIMIT || source.text.contains(REASON) {
        return Vec::new();
    }
    vec![Problem::new(
        source,
        LIMIT,
        format!("{length} lines: split the file, or give the reason after `{REASON}`"),
    )]
}

/// One sentence on how long files are.
pub fn report(sources: &[Source]) -> String {
    let mut lengths: Vec<(usize, &str)> = sources
        .iter()
        .filter(|source| source.is_rust())
        .map(|source| (source.text.lines().count(), &*source.path))
        .collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).map_or(0, |&(length, _)| length);
    let (longest, path) = lengths.last().copied().unwrap_or_default();
    format!(
        "{} Rust files, median {median} lines, longest {longest} ({path})",
        lengths.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = "//! Long.\n".repeat(LIMIT + 1);
        assert_eq!(check(&Source::sample("pt/src/a.rs", &long)).len(), 1);
        assert_eq!(
            check(&Source::sample(
                "pt/src/a.rs",
                &format!("{long}{REASON}it is a table\n")
            )),
            []
        );
        assert_eq!(
            check(&Source::sample("pt/src/a.rs", &"//! Long.\n".repeat(LIMIT))),
            []
        );
    }

    #[test]
    fn report_has_the_median_and_the_longest_file() {
        let files = [
            Source::sample("a.rs", "1\n"),
            Source::sample("b.rs", "1\n2\n3\n"),
            Source::sample("c.rs", "1\n2\n"),
        ];
        assert_eq!(report(&files), "3 Rust files, median 2 lines, longest 3 (b.rs)");
    }
}
