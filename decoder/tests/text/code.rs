//! Code: lines of hexadecimal bytes, with labels.

use crate::address::{Labels, number};
use backtrail_decoder::{Image, Section};
use backtrail_pt::Avma;
use backtrail_pt::instruction::{self, Mode};
use std::sync::Arc;

/// A stretch of code in the source.
pub struct Stretch<'a> {
    mode: Mode,
    start: u64,
    lines: Vec<Line<'a>>,
}

struct Line<'a> {
    /// The bytes are one instruction.
    instruction: bool,
    fields: Vec<Field<'a>>,
}

enum Field<'a> {
    Byte(u8),
    /// A number of bytes: the distance from the line's end to a label.
    Distance(usize, &'a str),
}

impl<'a> Stretch<'a> {
    /// Parses the words after `code`: `64 at 0x1000`.
    pub fn new(words: &str) -> Result<Self, String> {
        let (mode, start) = words.split_once(" at ").ok_or("`code` needs ` at `")?;
        let mode = match mode.trim() {
            "64" => Mode::Bits64,
            "32" => Mode::Bits32,
            "16" => Mode::Bits16,
            other => return Err(format!("no code has {other} bits")),
        };
        let start = number(start.trim())?;
        let lines = Vec::new();
        Ok(Self { mode, start, lines })
    }

    /// Adds a line, and defines a label on it.
    pub fn push(&mut self, line: &'a str, labels: &mut Labels) -> Result<(), String> {
        let mut words = line
            .split(';')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .peekable();
        if let Some(name) = words.peek().and_then(|word| word.strip_suffix(':')) {
            labels.define(name, self.end())?;
            words.next();
        }
        let instruction = words.next_if_eq(&"data").is_none();
        let fields: Vec<Field<'a>> = words.map(Field::parse).collect::<Result<_, _>>()?;
        if !fields.is_empty() {
            self.lines.push(Line { instruction, fields });
        }
        Ok(())
    }

    fn end(&self) -> u64 {
        let len: usize = self.lines.iter().map(Line::len).sum();
        self.start.wrapping_add(len as u64)
    }

    /// Adds the bytes to an image.
    pub fn add_to(&self, image: &mut Image, labels: &Labels) -> Result<(), String> {
        let mut all = Vec::new();
        for line in &self.lines {
            let at = self.start.wrapping_add(all.len() as u64);
            let bytes = line.bytes(at, labels)?;
            let found = instruction::decode(&bytes, Avma(at), self.mode);
            if line.instruction && found.map(|found| usize::from(found.len)) != Ok(bytes.len()) {
                return Err(format!("{bytes:02x?} at {at:#x} is not one instruction"));
            }
            all.extend(bytes);
        }
        image.add(Section {
            start: Avma(self.start),
            bytes: Arc::new(all),
        });
        Ok(())
    }
}

impl Line<'_> {
    fn len(&self) -> usize {
        let len = |field: &Field<'_>| match field {
            Field::Byte(_) => 1,
            Field::Distance(len, _) => *len,
        };
        self.fields.iter().map(len).sum()
    }

    fn bytes(&self, at: u64, labels: &Labels) -> Result<Vec<u8>, String> {
        let end = at.wrapping_add(self.len() as u64);
        let mut bytes = Vec::new();
        for field in &self.fields {
            match *field {
                Field::Byte(byte) => bytes.push(byte),
                Field::Distance(len, to) => {
                    let distance = labels.value(to)?.wrapping_sub(end).cast_signed();
                    let room = 8 * (8 - len);
                    if distance << room >> room != distance {
                        return Err(format!("`{to}` is too far away"));
                    }
                    bytes.extend(&distance.to_le_bytes()[..len]);
                }
            }
        }
        Ok(bytes)
    }
}

impl<'a> Field<'a> {
    fn parse(word: &'a str) -> Result<Self, String> {
        if let Some((kind, to)) = word.split_once(':') {
            let len = match kind {
                "rel8" => 1,
                "rel16" => 2,
                "rel32" => 4,
                _ => return Err(format!("`{word}` is no distance")),
            };
            return Ok(Self::Distance(len, to));
        }
        Ok(Self::Byte(byte(word)?))
    }
}

/// Parses two hexadecimal digits.
pub fn byte(word: &str) -> Result<u8, String> {
    let two = word.len() == 2;
    let byte = u8::from_str_radix(word, 16).ok().filter(|_| two);
    byte.ok_or(format!("`{word}` is no byte"))
}
