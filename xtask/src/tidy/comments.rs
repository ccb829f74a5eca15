//! Comments of Rust, TypeScript, JavaScript and C sources, as blocks of text.

use super::Source;

/// Consecutive comment lines that form one text.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of the file on which the block begins, from 1.
    pub line: usize,
    /// The text without comment markers; each line is one line of the file.
    pub text: String,
    /// Whether no code precedes the comment on its line.
    pub is_alone: bool,
}

/// File name endings of the languages whose comments are read.
const ENDINGS: &[&str] = &[".rs", ".ts", ".tsx", ".js", ".mjs", ".c", ".h", ".cpp", ".cc"];

/// Returns whether the comments of this file can be read.
pub fn has_comments(source: &Source) -> bool {
    ENDINGS.iter().any(|ending| source.path.ends_with(ending))
}

/// Returns the comments of a source file, in order.
pub fn blocks(source: &Source) -> Vec<Block> {
    let mut lines = Lexer::new(source).comment_lines();
    lines.dedup_by_key(|line| line.number);
    let mut found: Vec<Block> = Vec::new();
    let mut last_marker = "";
    for line in lines {
        let next = found
            .last()
            .map(|block| block.line + block.text.lines().count().max(1));
        match found.last_mut() {
            Some(block)
                if line.is_alone
                    && block.is_alone
                    && next == Some(line.number)
                    && line.marker == last_marker =>
            {
                block.text.push_str(&line.text);
                block.text.push('\n');
            }
            _ => found.push(Block {
                line: line.number,
                text: format!("{}\n", line.text),
                is_alone: line.is_alone,
            }),
        }
        last_marker = line.marker;
    }
    found
}

/// One line of a comment.
struct Line {
    number: usize,
    text: String,
    marker: &'static str,
    is_alone: bool,
}

/// Markers of line comments, the longest first.
const MARKERS: &[&str] = &["//!", "///", "//"];

/// Separates comments from code and string literals.
struct Lexer<'a> {
    rest: &'a str,
    number: usize,
    /// Whether code precedes the current place on its line.
    has_code: bool,
    /// The last byte of code, which distinguishes a JavaScript regular expression from a division.
    previous: u8,
    is_rust: bool,
    has_templates: bool,
}

impl<'a> Lexer<'a> {
    fn new(source: &'a Source) -> Self {
        let is_script = [".ts", ".tsx", ".js", ".mjs"]
            .iter()
            .any(|ending| source.path.ends_with(ending));
        Self {
            rest: &source.text,
            number: 1,
            has_code: false,
            previous: b';',
            is_rust: source.is_rust(),
            has_templates: is_script,
        }
    }

    fn comment_lines(mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        while let Some(first) = self.rest.bytes().next() {
            if self.rest.starts_with("//") {
                lines.push(self.line_comment());
            } else if self.rest.starts_with("/*") {
                self.block_comment(&mut lines);
            } else if let Some(length) = self.literal() {
                self.has_code = true;
                self.previous = b'"';
                self.skip(length);
            } else {
                if !first.is_ascii_whitespace() {
                    self.has_code = true;
                    self.previous = first;
                }
                let length = self.rest.chars().next().map_or(1, char::len_utf8);
                self.skip(length);
            }
        }
        lines
    }

    /// Moves past bytes of the text and counts their lines.
    fn skip(&mut self, length: usize) {
        let (passed, rest) = self.rest.split_at(length.min(self.rest.len()));
        let newlines = passed.matches('\n').count();
        self.number += newlines;
        if newlines > 0 {
            self.has_code = false;
        }
        self.rest = rest;
    }

    fn line_comment(&mut self) -> Line {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        let marker = MARKERS
            .iter()
            .copied()
            .find(|marker| text.starts_with(marker))
            .unwrap_or("//");
        let body = text.strip_prefix(marker).unwrap_or_default();
        let line = Line {
            number: self.number,
            text: body.strip_prefix(' ').unwrap_or(body).to_owned(),
            marker,
            is_alone: !self.has_code,
        };
        self.skip(end);
        line
    }

    fn block_comment(&mut self, lines: &mut Vec<Line>) {
        let end = self.rest.find("*/").map_or(self.rest.len(), |at| at + 2);
        let text = self.rest[..end].trim_end_matches("*/").trim_start_matches("/*");
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let line = line.strip_prefix('*').unwrap_or(line);
            lines.push(Line {
                number: self.number + at,
                text: line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned(),
                marker: "/*",
                is_alone: !self.has_code,
            });
        }
        self.skip(end);
    }

    /// Returns the length of the string or character literal that begins here.
    fn literal(&self) -> Option<usize> {
        let bytes = self.rest.as_bytes();
        match bytes[0] {
            b'"' => Some(quoted(bytes, b'"')),
            b'`' if self.has_templates => Some(quoted(bytes, b'`')),
            b'\'' if self.is_rust => character(self.rest),
            b'\'' => Some(quoted(bytes, b'\'')),
            b'r' if self.is_rust && !is_word(self.previous) => raw_string(self.rest),
            b'/' if self.has_templates && b"(,=:[!&|?{};>".contains(&self.previous) => {
                Some(quoted(bytes, b'/'))
            }
            _ => None,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of a literal that ends at the next unescaped quote.
fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the length of a Rust character literal, and nothing for a lifetime.
fn character(text: &str) -> Option<usize> {
    if text.as_bytes().get(1) == Some(&b'\\') {
        return Some(quoted(text.as_bytes(), b'\''));
    }
    let end = 1 + text[1..].chars().next()?.len_utf8();
    text[end..].starts_with('\'').then_some(end + 1)
}

/// Returns the length of a Rust raw string literal.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    text[1 + hashes..].starts_with('"').then(|| {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = 2 + hashes;
        text[body..]
            .find(&end)
            .map_or(text.len(), |at| body + at + end.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<(usize, String, bool)> {
        blocks(&Source::sample(path, text))
            .into_iter()
            .map(|block| (block.line, block.text, block.is_alone))
            .collect()
    }

    #[test]
    fn adjacent_rust_comment_lines_form_a_block() {
        let text = "//! Front.\n//! More.\n\n/// Doc.\nfn f() {} // behind\n";
        assert_eq!(
            texts("pt/src/a.rs", text),
            [
                (1, "Front.\nMore.\n".to_owned(), true),
                (4, "Doc.\n".to_owned(), true),
                (5, "behind\n".to_owned(), false),
            ]
        );
    }

    #[test]
    fn literals_hold_no_comments() {
        let text = "let a = \"// no\"; let b = '\"'; let c = r#\"// \" no\"#; // yes\nfn f<'a>() {} // too\n";
        let found: Vec<_> = texts("pt/src/a.rs", text)
            .into_iter()
            .map(|(_, text, _)| text)
            .collect();
        assert_eq!(found, ["yes\n", "too\n"]);
    }

    #[test]
    fn script_templates_and_regular_expressions_hold_no_comments() {
        let text = "const a = `// no`;\nconst b = x.replace(/\\/\\/no/g, '');\n/**\n * Yes.\n */\n";
        assert_eq!(
            texts("vscode-extension/src/a.ts", text),
            [(3, "\nYes.\n\n".to_owned(), true)]
        );
    }
}
