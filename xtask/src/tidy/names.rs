//! Type names are words of the field, not invented nouns or function words.

use super::{Problem, Source};

/// Keywords that introduce the name of a type.
const KEYWORDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// The two lists of `names.txt`, which this file does not repeat.
struct Lists {
    /// Names that may not occur at all.
    banned: Vec<&'static str>,
    /// Names that no type may have.
    function_words: Vec<&'static str>,
}

fn lists() -> Lists {
    let mut paragraphs = include_str!("names.txt").split("\n\n").map(|paragraph| {
        paragraph
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(str::split_whitespace)
            .collect()
    });
    Lists {
        banned: paragraphs.next().unwrap_or_default(),
        function_words: paragraphs.next().unwrap_or_default(),
    }
}

/// Checks a Rust file.
pub fn check(source: &Source) -> Vec<Problem> {
    if !source.is_rust() {
        return Vec::new();
    }
    let lists = lists();
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        let words: Vec<&str> = line
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .filter(|word| !word.is_empty())
            .collect();
        for word in words.iter().filter(|word| lists.banned.contains(word)) {
            let message = format!("`{word}` is an invented name: use the field's term");
            found.push(Problem::new(source, number, message));
        }
        let is_code = !line.trim_start().starts_with("//");
        for pair in words.windows(2).filter(|_| is_code) {
            if KEYWORDS.contains(&pair[0]) && lists.function_words.contains(&pair[1]) {
                let message = format!("`{}` is a function word: name the type by a noun", pair[1]);
                found.push(Problem::new(source, number, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Source::sample("pt/src/a.rs", text)).len()
    }

    #[test]
    fn an_invented_name_is_found_anywhere() {
        let lists = lists();
        assert_eq!((lists.banned.len(), lists.function_words.len()), (20, 12));
        for name in lists.banned {
            assert_eq!(count(&format!("pub struct {name};\n")), 1, "{name}");
            assert_eq!(
                count(&format!("/// See [`{name}`].\nlet x = {name}::new();\n")),
                2
            );
            assert_eq!(count(&format!("struct {name}Cache; let {name}_x = 1;\n")), 0);
        }
    }

    #[test]
    fn a_function_word_is_found_as_type_only() {
        for name in lists().function_words {
            for keyword in KEYWORDS {
                assert_eq!(
                    count(&format!("pub(crate) {keyword} {name}<T> {{}}\n")),
                    1,
                    "{name}"
                );
            }
            assert_eq!(
                count(&format!("// {name} the type {name} comes, and\nSome({name});\n")),
                0
            );
        }
    }

    #[test]
    fn every_folder_is_checked() {
        let text = format!(
            "struct {};
",
            lists().banned[0]
        );
        assert_eq!(check(&Source::sample("nowhere/src/a.rs", &text)).len(), 1);
        assert_eq!(check(&Source::sample("nowhere/a.txt", &text)), []);
    }
}
