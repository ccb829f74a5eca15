//! Folded stacks: lines `outer;inner WEIGHT`, as Brendan Gregg's `flamegraph.pl` reads them.

use crate::frame::Frame;
use crate::function_profile::FunctionProfile;
use crate::profile::Profile;
use crate::sample::EventId;
use crate::stacks::StackId;
use crate::{Error, ReadLimits, Result};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};

/// The text of a sample without frames, which a line of the format must have.
const NO_STACK: &str = "[no stack]";
/// The longest accepted line in bytes.
const MAX_LINE: usize = 1 << 24;

/// Reads folded stacks. The event is `samples`, and its unit `count`.
///
/// # Errors
///
/// [`Error::Malformed`] with the number of the first line that has no weight.
pub fn read(input: impl BufRead) -> Result<Profile> {
    read_within(input, &ReadLimits::FILE)
}

/// Reads folded stacks within limits.
///
/// # Errors
///
/// As [`read`], and those of the limits.
pub fn read_within(input: impl BufRead, limits: &ReadLimits) -> Result<Profile> {
    let mut profile = limits.profile();
    let event = profile.event("samples", "count", 1)?;
    let mut input = input;
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        number += 1;
        let read = (&mut input)
            .take(MAX_LINE as u64 + 1)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(profile);
        }
        if line.len() > MAX_LINE {
            return Err(malformed(number, "is longer than 16 MiB"));
        }
        let text = String::from_utf8_lossy(&line);
        // Editors of Windows begin a file with a mark.
        let text = text.trim_start_matches('\u{feff}').trim_end();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (frames, weight) = text
            .rsplit_once([' ', '\t'])
            .and_then(|(frames, weight)| Some((frames.trim_end(), weight.parse().ok()?)))
            .ok_or_else(|| malformed(number, "does not end with a space and a whole number"))?;
        add(&mut profile, event, frames, weight)?;
        limits.check(&profile)?;
    }
}

fn malformed(number: u64, problem: &str) -> Error {
    Error::Malformed {
        format: "folded stacks",
        problem: format!("line {number} {problem}"),
    }
}

fn add(profile: &mut Profile, event: EventId, frames: &str, weight: i64) -> Result<()> {
    let mut stack = StackId::EMPTY;
    if frames == NO_STACK {
        return profile.add(event, weight, stack);
    }
    for name in frames.split(';') {
        let function = profile.function(name)?;
        let frame = profile.frames.intern(Frame::Function { function, line: 0 })?;
        stack = profile.stacks.push(stack, frame)?;
    }
    profile.add(event, weight, stack)
}

/// Writes the weights of an event by stack, in the order of the texts.
///
/// `;` in a name becomes `:`, and a control character becomes a space.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &FunctionProfile, event: EventId, out: &mut dyn Write) -> Result<()> {
    let mut sums: BTreeMap<StackId, i64> = BTreeMap::new();
    for sample in profile.samples.iter().filter(|sample| sample.event == event) {
        let sum = sums.entry(sample.stack).or_default();
        *sum = sum.saturating_add(sample.weight);
    }
    // Stacks that differ in their lines have the same text.
    let mut lines: BTreeMap<String, i64> = BTreeMap::new();
    for (stack, weight) in sums {
        let text = match stack {
            StackId::EMPTY => NO_STACK.to_owned(),
            stack => profile.folded(stack),
        };
        let sum = lines.entry(text).or_default();
        *sum = sum.saturating_add(weight);
    }
    for (stack, weight) in lines.into_iter().filter(|(_, weight)| *weight != 0) {
        writeln!(out, "{stack} {weight}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        let profile = read(text.as_bytes()).unwrap();
        let (event, _) = profile.events.iter().next().unwrap();
        let functions = FunctionProfile::new(&profile).unwrap();
        let mut out = Vec::new();
        write(&functions, event, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_stacks_are_added_up() {
        let text = "main;f 2\r\n\n# a comment\nmain 1\nmain;f 3\nmain;operator new(unsigned long) 1\n";
        assert_eq!(
            round_trip(text),
            "main 1\nmain;f 5\nmain;operator new(unsigned long) 1\n"
        );
    }

    #[test]
    fn samples_without_stacks_are_kept() {
        let profile = read(&b"main 1\n[no stack] 4\n"[..]).unwrap();
        assert_eq!(profile.functions.len(), 1);
        assert_eq!(round_trip("main 1\n[no stack] 4\n"), "[no stack] 4\nmain 1\n");
    }

    #[test]
    fn line_without_weight_is_reported() {
        for (text, line) in [("main 1\nmain;f\n", 2), ("main 1.5\n", 1), ("7\n", 1)] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("folded stacks: line {line} does not end with a space and a whole number")
            );
        }
    }
}
