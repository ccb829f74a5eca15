//! Prose follows the style rules of CONTRIBUTING.md: word list, sentence length, line width.

pub mod sentences;

use super::comments::{self, Block};
use super::{Problem, Source};
use sentences::{CODE, Sentence};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Files that record experiments keep their own words.
const LOG: &str = "docs/log/";

/// The words of a sentence, at most.
const WORDS: usize = 25;

/// The columns of a line, at most.
const COLUMNS: usize = 100;

/// A word that cannot be wrapped excuses its line.
const UNBREAKABLE: usize = 70;

/// Words that are no subject of a statement.
const SUBJECTS: &[&str] = &["What", "Who", "Whoever", "Such"];

/// Checks Markdown files, and comments of source files.
pub fn check(source: &Source) -> Vec<Problem> {
    let blocks = if source.path.starts_with(LOG) {
        Vec::new()
    } else if source.path.ends_with(".md") {
        vec![Block {
            line: 1,
            text: source.text.clone(),
            is_alone: true,
        }]
    } else if comments::has_comments(source) {
        comments::blocks(source)
    } else {
        Vec::new()
    };
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for block in blocks {
        let prose = sentences::read(&block.text);
        for sentence in &prose.sentences {
            let number = block.line + sentence.line - 1;
            found.extend(
                messages(sentence)
                    .into_iter()
                    .map(|message| Problem::new(source, number, message)),
            );
        }
        for at in 0..block.text.lines().count() {
            let line = lines.get(block.line + at - 1).copied().unwrap_or_default();
            if block.is_alone && !prose.unwrapped.contains(&(at + 1)) && is_too_wide(line) {
                let message = format!("{} columns: wrap at {COLUMNS}", line.chars().count());
                found.push(Problem::new(source, block.line + at, message));
            }
        }
    }
    found
}

fn is_too_wide(line: &str) -> bool {
    let longest = line.split_whitespace().map(|word| word.chars().count()).max();
    line.chars().count() > COLUMNS && longest.is_none_or(|longest| longest < UNBREAKABLE)
}

/// Returns what the rules say against a sentence.
fn messages(sentence: &Sentence) -> Vec<String> {
    let mut found = Vec::new();
    let is_word = |word: &&str| word.contains(|letter: char| letter.is_alphanumeric() || letter == CODE);
    let words = sentence.text.split_whitespace().filter(is_word).count();
    let beginning: String = sentence.text.chars().take(40).collect();
    let beginning = beginning.replace(CODE, "`…`");
    if words > WORDS {
        found.push(format!("{words} words, at most {WORDS}: \"{beginning}…\""));
    }
    let first = sentence.text.split_whitespace().next().unwrap_or_default();
    let is_bare_it = sentence.is_first && first == "It";
    if !sentence.text.ends_with('?') && (SUBJECTS.contains(&first) || is_bare_it) {
        found.push(format!("the subject must be a noun: \"{beginning}…\""));
    }
    found.extend(
        banned(&sentence.text)
            .into_iter()
            .map(|(phrase, better)| format!("\"{phrase}\": better {better}")),
    );
    found
}

/// The word list, by the first word of each phrase.
type WordList = BTreeMap<&'static str, Vec<(Vec<&'static str>, &'static str, &'static str)>>;

fn word_list() -> &'static WordList {
    static LIST: OnceLock<WordList> = OnceLock::new();
    LIST.get_or_init(|| {
        let mut list = WordList::new();
        let lines = include_str!("prose/words.txt").lines();
        for (phrase, better) in lines
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(" = "))
        {
            let words = tokens(phrase);
            if let Some(first) = words.first() {
                list.entry(first).or_default().push((words, phrase, better));
            }
        }
        list
    })
}

/// Returns the phrases of the word list that a text contains.
fn banned(text: &str) -> Vec<(&'static str, &'static str)> {
    let lower = text.to_lowercase();
    let tokens = tokens(&lower);
    (0..tokens.len())
        .filter_map(|at| word_list().get(tokens[at]).map(|phrases| (at, phrases)))
        .flat_map(|(at, phrases)| phrases.iter().map(move |phrase| (at, phrase)))
        .filter(|(at, (words, _, _))| tokens[*at..].starts_with(words))
        .map(|(_, &(_, phrase, better))| (phrase, better))
        .collect()
}

/// Splits text into words and commas. A hyphen or apostrophe joins the parts of a word.
fn tokens(text: &str) -> Vec<&str> {
    let is_inner = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '\'' | '_');
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = rest.find(|letter: char| !is_inner(letter)).unwrap_or(rest.len());
        if length > 0 {
            found.push(rest[..length].trim_matches(['-', '\'']));
            rest = &rest[length..];
        } else {
            if letter == ',' {
                found.push(&rest[..1]);
            }
            rest = &rest[letter.len_utf8()..];
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Source::sample(path, text))
            .into_iter()
            .map(|problem| (problem.line, problem.message))
            .collect()
    }

    fn count(path: &str, text: &str) -> usize {
        found(path, text).len()
    }

    #[test]
    fn a_banned_word_is_found_where_it_is() {
        let problems = found("docs/a.md", "Fine.\n\nTimes are told\nhere, for it is late.\n");
        assert_eq!(
            problems,
            [
                (3, "\"told\": better reported, stored, recorded".to_owned()),
                (3, "\", for it\": better , because it".to_owned())
            ]
        );
    }

    #[test]
    fn code_and_hyphenated_words_are_not_banned() {
        assert_eq!(
            count("docs/a.md", "The `told` of a left-behind thing.\n\n    told\n"),
            0
        );
    }

    #[test]
    fn a_long_sentence_is_found() {
        let long = format!("{}end.\n", "so ".repeat(WORDS));
        assert_eq!(count("docs/a.md", &long), 1);
        let fine = format!("{}end.\n", "so ".repeat(WORDS - 1));
        assert_eq!(count("docs/a.md", &fine), 0);
    }

    #[test]
    fn a_subject_that_is_no_noun_is_found() {
        assert_eq!(count("docs/a.md", "What is missing is counted.\n"), 1);
        assert_eq!(count("docs/a.md", "It counts.\n"), 1);
        assert_eq!(count("docs/a.md", "What is missing? Nothing. It ends.\n"), 0);
    }

    #[test]
    fn a_wide_line_is_found_outside_tables_and_code() {
        let wide = "word ".repeat(21);
        assert_eq!(count("docs/a.md", &format!("Short. {wide}.\n")), 1);
        assert_eq!(count("docs/a.md", &format!("    {wide}\n")), 0);
        assert_eq!(
            count("docs/a.md", &format!("See <https://{}>.\n", "x".repeat(100))),
            0
        );
    }

    #[test]
    fn comments_are_checked_and_code_is_not() {
        assert_eq!(
            count("pt/src/a.rs", "/// Returns what was told.\nfn told() {}\n"),
            1
        );
        assert_eq!(count("bpf/src/a.c", "/* Anew. */\nint anew;\n"), 1);
        assert_eq!(
            count("vscode-extension/src/a.ts", "// Anew.\nlet anew = 'anew';\n"),
            1
        );
    }

    #[test]
    fn every_folder_is_checked_except_experiments() {
        for path in [
            "README.md",
            "tests/dap/a.js",
            "vscode-extension/src/a.ts",
            "new/src/a.rs",
        ] {
            assert_eq!(count(path, "// Anew.\n"), 1, "{path}");
        }
        assert_eq!(count("docs/log/2020-01-01-a.md", "Anew.\n"), 0);
    }
}
