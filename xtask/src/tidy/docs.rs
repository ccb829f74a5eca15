//! Pages outside docs/log/ describe the product, not when something was tried.

use super::prose::sentences;
use super::{Problem, Source, coverage};

/// Pages that say nothing about times.
const HOLDS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".github",
    "docs",
    "vscode-extension/README.md",
];

/// The folder of pages with a date.
const LOG: &str = "docs/log/";

/// Phrases that date a statement.
const PHRASES: &[&str] = &[
    "today",
    "yesterday",
    "tonight",
    "last session",
    "this session",
    "earlier session",
    "this morning",
    "last night",
    "the night before",
    "last week",
    "this week",
    "last month",
    "this year",
    "hours ago",
    "days ago",
    "minutes ago",
    "weeks ago",
    "hour before",
    "hours before",
    "hours later",
    "of that day",
    "so far",
    "an earlier run",
    "one earlier run",
    "was tried",
    "were tried",
    "was first measured",
    "recently",
    "currently",
    "used to be",
];

/// Months, which date a statement before a number.
const MONTHS: &[&str] = &[
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Checks the prose of a Markdown page.
pub fn check(source: &Source) -> Vec<Problem> {
    let is_page = source.path.ends_with(".md") && !source.path.starts_with(LOG);
    if !is_page || !coverage::includes(HOLDS, &source.path) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for sentence in sentences::read(&source.text).sentences {
        for what in dates(&sentence.text) {
            let message = format!("\"{what}\" dates the page: move it to {LOG}DATE-subject.md");
            problems.push(Problem::new(source, sentence.line, message));
        }
    }
    problems
}

/// Returns the parts of a sentence that name a time.
fn dates(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split_whitespace()
        .map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()))
        .collect();
    let joined = format!(" {} ", words.join(" "));
    let mut found: Vec<String> = PHRASES
        .iter()
        .filter(|phrase| joined.contains(&format!(" {phrase} ")))
        .map(|&phrase| phrase.to_owned())
        .collect();
    found.extend(
        words
            .iter()
            .filter(|word| is_shaped(word, "dddd-dd-dd") || is_shaped(word, "dd:dd"))
            .map(|&word| word.to_owned()),
    );
    found.extend(
        words
            .windows(2)
            .filter(|pair| MONTHS.contains(&pair[0]) && pair[1].bytes().all(|byte| byte.is_ascii_digit()))
            .map(|pair| pair.join(" ")),
    );
    found
}

/// Returns whether a word has this shape, in which `d` is a digit.
fn is_shaped(word: &str, shape: &str) -> bool {
    word.len() == shape.len()
        && word
            .bytes()
            .zip(shape.bytes())
            .all(|(byte, wanted)| match wanted {
                b'd' => byte.is_ascii_digit(),
                wanted => byte == wanted,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::sample(path, text)).len()
    }

    #[test]
    fn a_page_that_dates_a_statement_is_found() {
        for text in [
            "Measured on 2026-11-26.\n",
            "At 03:54 it took 2 s.\n",
            "Half an hour before, it was faster.\n",
            "What works today\n",
            "Two ways were tried.\n",
            "Since March 2025 it holds.\n",
        ] {
            assert_eq!(count("README.md", text), 1, "{text}");
        }
    }

    #[test]
    fn logs_code_and_plain_statements_are_fine() {
        assert_eq!(count("docs/log/2026-11-26-a.md", "Measured on 2026-11-26.\n"), 0);
        assert_eq!(
            count(
                "README.md",
                "Prints `2026-11-26`:\n\n    2026-11-26T01:28 crash\n"
            ),
            0
        );
        assert_eq!(count("README.md", "It may 2 times fail. A ratio is 1:2.\n"), 0);
        assert_eq!(count("CHANGELOG.md", "## 0.2.0 (2026-11-26)\n"), 0);
    }
}
