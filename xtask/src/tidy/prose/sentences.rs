//! Sentences of Markdown text, with the lines on which they begin.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeSet;

/// Represents a code span, so that code is one word and no word of the list.
pub const CODE: char = '\u{e000}';

/// A sentence, a heading, a list item or a table cell.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The line of the text on which the sentence begins, from 1.
    pub line: usize,
    /// The words, separated by single spaces; each code span is [`CODE`].
    pub text: String,
    /// Whether the sentence begins a paragraph, heading, list item or table cell.
    pub is_first: bool,
}

/// The prose of a Markdown text.
#[derive(Debug, Default)]
pub struct Prose {
    /// All sentences, in order.
    pub sentences: Vec<Sentence>,
    /// Lines that belong to code blocks, tables and HTML, from 1.
    pub unwrapped: BTreeSet<usize>,
}

/// Words that end with a period inside a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "etc.", "vs.", "cf.", "no.", "vol.", "approx."];

/// Reads Markdown text.
pub fn read(text: &str) -> Prose {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let line_at = |offset: usize| starts.partition_point(|&start| start <= offset).max(1);
    let mut prose = Prose::default();
    let mut unit = Unit::default();
    let mut skipped = 0_usize;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_) | Tag::HtmlBlock) => {
                unit.flush(&mut prose.sentences);
                skipped += 1;
                prose
                    .unwrapped
                    .extend(line_at(range.start)..=line_at(range.end.saturating_sub(1)));
            }
            Event::End(TagEnd::CodeBlock | TagEnd::HtmlBlock) => skipped = skipped.saturating_sub(1),
            Event::Start(Tag::Table(_)) => {
                prose
                    .unwrapped
                    .extend(line_at(range.start)..=line_at(range.end.saturating_sub(1)));
            }
            Event::Start(tag) if is_block(&tag) => unit.flush(&mut prose.sentences),
            Event::End(tag) if ends_block(tag) => unit.flush(&mut prose.sentences),
            Event::Text(part) if skipped == 0 => unit.push(&part, line_at(range.start)),
            Event::Code(_) if skipped == 0 => unit.push(CODE.encode_utf8(&mut [0; 4]), line_at(range.start)),
            Event::SoftBreak | Event::HardBreak => unit.push(" ", line_at(range.start)),
            _ => {}
        }
    }
    unit.flush(&mut prose.sentences);
    prose
}

fn is_block(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Paragraph | Tag::Heading { .. } | Tag::Item | Tag::TableCell | Tag::BlockQuote(_) | Tag::List(_)
    )
}

fn ends_block(tag: TagEnd) -> bool {
    matches!(
        tag,
        TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item | TagEnd::TableCell | TagEnd::BlockQuote(_)
    )
}

/// The text of one paragraph, heading, list item or table cell, and the line of each part.
#[derive(Default)]
struct Unit {
    text: String,
    lines: Vec<(usize, usize)>,
}

impl Unit {
    fn push(&mut self, part: &str, line: usize) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(part);
    }

    fn line_at(&self, offset: usize) -> usize {
        let after = self.lines.partition_point(|&(start, _)| start <= offset);
        self.lines
            .get(after.saturating_sub(1))
            .map_or(1, |&(_, line)| line)
    }

    /// Splits the text into sentences and empties the unit.
    fn flush(&mut self, sentences: &mut Vec<Sentence>) {
        let mut words: Vec<&str> = Vec::new();
        let mut line = None;
        let mut is_first = true;
        let mut all = self.text.split_whitespace().peekable();
        while let Some(word) = all.next() {
            let offset = word.as_ptr() as usize - self.text.as_ptr() as usize;
            line.get_or_insert_with(|| self.line_at(offset));
            words.push(word);
            let ends = all.peek().is_none() || ends_sentence(word);
            if let Some(line) = line.take_if(|_| ends) {
                sentences.push(Sentence {
                    line,
                    text: words.join(" "),
                    is_first,
                });
                words.clear();
                is_first = false;
            }
        }
        self.text.clear();
        self.lines.clear();
    }
}

/// Returns whether a sentence ends with this word.
fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_end_matches([')', '"', '\'', '”', '’', ']']);
    let ends = bare.ends_with(['.', '!', '?']) && !bare.ends_with("...");
    let is_abbreviation = ABBREVIATIONS
        .iter()
        .any(|known| word.trim_start_matches('(').eq_ignore_ascii_case(known));
    ends && !is_abbreviation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(text: &str) -> Vec<(usize, String)> {
        read(text)
            .sentences
            .into_iter()
            .map(|sentence| (sentence.line, sentence.text))
            .collect()
    }

    #[test]
    fn sentences_end_at_periods_and_blocks() {
        let text = "# Head\n\nOne two.\nThree (e.g. four)\nfive. `Code` six?\n\n- item\n- other. Last.\n";
        let expected = [
            (1, "Head"),
            (3, "One two."),
            (4, "Three (e.g. four) five."),
            (5, "\u{e000} six?"),
            (7, "item"),
            (8, "other."),
            (8, "Last."),
        ];
        assert_eq!(
            sentences(text),
            expected.map(|(line, text)| (line, text.to_owned()))
        );
    }

    #[test]
    fn code_blocks_are_no_prose_and_are_not_wrapped() {
        let text = "Run:\n\n    cargo test\n\n```sh\nls\n```\n\n| a | b |\n|---|---|\n| c d | e |\n";
        let prose = read(text);
        let texts: Vec<&str> = prose
            .sentences
            .iter()
            .map(|sentence| sentence.text.as_str())
            .collect();
        assert_eq!(texts, ["Run:", "a", "b", "c d", "e"]);
        assert!(
            [3, 5, 6, 7, 9, 11]
                .iter()
                .all(|line| prose.unwrapped.contains(line))
        );
        assert!(!prose.unwrapped.contains(&1));
    }
}
