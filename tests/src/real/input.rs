//! Input files, which are the same on every machine: no downloads, nothing random.

use crate::backtrail::repository;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// A file in a program's folder.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// A copy of `tests/fixtures/workloads/NAME`, `PORT` in it replaced by the port.
    Workload(&'static str),
    /// `{n}` units of 64 KiB of text that compresses as prose does: `text`.
    Text,
    /// A C file of `{n}` functions: `functions.c`.
    Functions,
    /// Input of `git fast-import`: `{n}` commits to a few files: `commits`.
    Commits,
    /// A text file of 64 KiB for a web server: `page.txt`.
    Page,
}

impl Input {
    /// Writes the file to `folder`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn make(self, folder: &Path, size: u32, port: u16) -> io::Result<()> {
        match self {
            Self::Workload(name) => {
                let text = fs::read_to_string(repository().join("tests/fixtures/workloads").join(name))?;
                fs::write(folder.join(name), text.replace("PORT", &port.to_string()))
            }
            Self::Text => fs::write(folder.join("text"), text(size)),
            Self::Functions => fs::write(folder.join("functions.c"), functions(size)),
            Self::Commits => fs::write(folder.join("commits"), commits(size)),
            Self::Page => fs::write(folder.join("page.txt"), text(1)),
        }
    }
}

/// George Marsaglia's xorshift with 64 bits of state.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A vocabulary whose small indices are taken more often, as in prose.
fn text(units: u32) -> Vec<u8> {
    const UNIT: usize = 64 << 10;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let words: Vec<String> = (0..4096)
        .map(|_| {
            let length = 2 + numbers.below(9);
            (0..length)
                .map(|_| char::from(b'a' + (numbers.below(26) * numbers.below(26) / 26) as u8))
                .collect()
        })
        .collect();
    let length = UNIT * units as usize;
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let index = numbers.below(64) * numbers.below(64);
        let word = usize::try_from(index).ok().and_then(|index| words.get(index));
        text.extend_from_slice(word.map_or(b"the", |word| word.as_bytes()));
        text.push(if numbers.below(12) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(length);
    text
}

/// Functions that call each other, with loops and switches for the optimizer.
fn functions(count: u32) -> String {
    let mut source = String::from("/* Generated. */\n#include <stdio.h>\n#include <string.h>\n");
    for at in 0..count {
        let other = match at {
            0 => "x".to_owned(),
            _ => format!("f{}(x + {at}, text)", at * 7 % at),
        };
        let _ = write!(
            source,
            "int f{at}(int x, const char *text) {{\n    int sum = {at};\n    \
             for (int i = 0; text[i] && i < x; i++) {{\n        switch (text[i] % 5) {{\n        \
             case 0: sum += i * {at}; break;\n        case 1: sum ^= x << (i % 7); break;\n        \
             case 3: sum -= (int)strlen(text + i); break;\n        default: sum = sum * 31 + i;\n        }}\n    }}\n    \
             return x > {at} ? sum : sum + {other};\n}}\n"
        );
    }
    let last = count.saturating_sub(1);
    let _ = writeln!(
        source,
        "int main(void) {{ return printf(\"%d\\n\", f{last}(3, \"main\")) < 0; }}"
    );
    source
}

/// A linear history; see "INPUT FORMAT" in git-fast-import(1).
fn commits(count: u32) -> String {
    let mut stream = String::new();
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for at in 0..count {
        let message = format!("Change {at}\n");
        let content: String = (0..40)
            .map(|line| {
                format!(
                    "line {line} is {}\n",
                    if line % 5 == at % 5 {
                        numbers.below(1000)
                    } else {
                        0
                    }
                )
            })
            .collect();
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter A Tester <tester@localhost> {} +0000\ndata {}\n{message}\
             M 100644 inline file{}.txt\ndata {}\n{content}\n",
            1_700_000_000 + u64::from(at) * 60,
            message.len(),
            at % 10,
            content.len(),
        );
    }
    stream.push_str("done\n");
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_as_long_as_asked_and_the_same_each_time() {
        assert_eq!(text(2).len(), 128 << 10);
        assert_eq!(text(1), text(1));
        assert_eq!(commits(3).matches("commit refs/heads/main").count(), 3);
        assert!(functions(3).contains("int f2("));
    }
}
