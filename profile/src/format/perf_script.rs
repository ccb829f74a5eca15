//! The text of `perf script -F ip,brstack --show-mmap-events`: call chains and last branch records.

use crate::{Error, Result};
use std::io::{BufRead, Read};

/// The longest accepted line in bytes.
const MAX_LINE: u64 = 1 << 20;
/// The name of the format in messages.
const FORMAT: &str = "perf script";

/// The mappings and samples of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfScript {
    /// The executable mappings, in the order of the text.
    pub mappings: Vec<ScriptMapping>,
    /// The samples, in the order of the text.
    pub samples: Vec<ScriptSample>,
}

/// A `PERF_RECORD_MMAP2` record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptMapping {
    /// The process.
    pub pid: u32,
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
    /// The file offset of the first byte.
    pub offset: u64,
    /// The path of the file.
    pub path: String,
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptSample {
    /// The addresses of the call chain, the innermost first.
    pub chain: Vec<u64>,
    /// The branches, the newest first, as the processor reports them.
    pub branches: Vec<ScriptBranch>,
}

/// A last branch record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScriptBranch {
    /// The branch instruction.
    pub from: u64,
    /// The target.
    pub to: u64,
    /// Whether it was mispredicted. `None`: the processor does not report it.
    pub is_mispredicted: Option<bool>,
}

/// Reads the text. Lines that are neither a mapping, an address nor branches begin a new sample.
///
/// ```
/// use backtrail_profile::format::perf_script;
///
/// let text = "\t  40067e\n\t  5541f6\n 0x4006c8/0x40067e/P/-/-/0  0x40069b/0x400670/M/-/-/0\n";
/// let script = perf_script::read(text.as_bytes())?;
/// let sample = &script.samples[0];
/// assert_eq!(sample.chain, [0x40067e, 0x5541f6]);
/// assert_eq!(sample.branches[1].is_mispredicted, Some(true));
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Malformed`] with the number of the first line whose branches or mapping cannot be read.
pub fn read(input: impl BufRead) -> Result<PerfScript> {
    let mut input = input;
    let mut script = PerfScript::default();
    let mut sample = ScriptSample::default();
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        number += 1;
        let is_end = (&mut input).take(MAX_LINE + 1).read_until(b'\n', &mut line)? == 0;
        if line.len() as u64 > MAX_LINE {
            return Err(malformed(number, "is longer than 1 MiB"));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        let is_comment = text.starts_with("//") || text.starts_with('#');
        if is_end || text.is_empty() || text.starts_with("PERF_RECORD_") {
            script.add(&mut sample);
        }
        if is_end {
            return Ok(script);
        }
        if is_comment {
            continue;
        }
        if text.starts_with("PERF_RECORD_MMAP2") {
            let mapping =
                mapping(text).ok_or_else(|| malformed(number, "is not a mapping as perf prints it"))?;
            script.mappings.extend(mapping);
        } else if let Some(address) = address(text) {
            // The next call chain begins without an empty line.
            if !sample.branches.is_empty() {
                script.add(&mut sample);
            }
            sample.chain.push(address);
        } else if text.contains('/') && text.contains("0x") && !text.starts_with("PERF_RECORD_") {
            branches(text, &mut sample)
                .ok_or_else(|| malformed(number, "has branches that cannot be read"))?;
            script.add(&mut sample);
        } else {
            script.add(&mut sample);
        }
    }
}

fn malformed(number: u64, problem: &str) -> Error {
    Error::Malformed {
        format: FORMAT,
        problem: format!("line {number} {problem}"),
    }
}

impl PerfScript {
    fn add(&mut self, sample: &mut ScriptSample) {
        if *sample != ScriptSample::default() {
            self.samples.push(std::mem::take(sample));
        }
    }
}

/// Returns the address that is the only word of a line, with its symbol or not.
fn address(text: &str) -> Option<u64> {
    let word = text.split_whitespace().next()?;
    let rest = text.get(word.len()..)?.trim();
    let is_alone = rest.is_empty() || !rest.contains("0x");
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u64::from_str_radix(digits, 16).ok().filter(|_| is_alone)
}

/// Reads `[IP] 0xFROM/0xTO/P/… …` into a sample.
fn branches(text: &str, sample: &mut ScriptSample) -> Option<()> {
    for (index, word) in text.split_whitespace().enumerate() {
        let Some((from, rest)) = word.split_once('/') else {
            // The sample's address comes first.
            if index > 0 {
                return None;
            }
            sample.chain.push(hexadecimal(word)?);
            continue;
        };
        let mut parts = rest.split('/');
        let to = hexadecimal(parts.next()?)?;
        let is_mispredicted = match parts.next() {
            Some("M") => Some(true),
            Some("P") => Some(false),
            _ => None,
        };
        sample.branches.push(ScriptBranch {
            from: hexadecimal(from)?,
            to,
            is_mispredicted,
        });
    }
    Some(())
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Reads `PERF_RECORD_MMAP2 PID/TID: [0xSTART(0xSIZE) @ OFFSET …]: r-xp PATH`. The inner `None`
/// means a mapping that is not executable.
fn mapping(text: &str) -> Option<Option<ScriptMapping>> {
    let (head, rest) = text.split_once(": [")?;
    let (place, rest) = rest.split_once("]: ")?;
    let pid = head.split_whitespace().last()?.split('/').next()?;
    let (start, place) = place.split_once('(')?;
    let (size, place) = place.split_once(") @ ")?;
    let offset = place.split_whitespace().next()?;
    let (protection, path) = rest.split_once(' ')?;
    if !protection.contains('x') {
        return Some(None);
    }
    Some(Some(ScriptMapping {
        pid: pid.parse().ok()?,
        start: hexadecimal(start)?,
        size: hexadecimal(size)?,
        offset: hexadecimal(offset)?,
        path: path.trim().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
PERF_RECORD_MMAP2 28/29: [0x400000(0x1000) @ 0x2000 00:1d 12 52]: r-xp /home/a b
PERF_RECORD_MMAP2 28/29: [0x500000(0x1000) @ 0 00:1d 12 52]: rw-p /home/a b
PERF_RECORD_COMM: a:28/28

\t          40067e
\t5541f689495641d7
 0x4006c8/0x40067e/P/-/-/0  0x40069b/0x400670/-/-/-/3

\t          400680
 0x4006c8/0x40067e/M/-/-/0
";

    #[test]
    fn chains_and_branches_are_one_sample() {
        let script = read(HYBRID.as_bytes()).unwrap();
        let mapping = ScriptMapping {
            pid: 28,
            start: 0x40_0000,
            size: 0x1000,
            offset: 0x2000,
            path: "/home/a b".into(),
        };
        assert_eq!(script.mappings, [mapping]);
        let [first, second] = &script.samples[..] else {
            unreachable!()
        };
        assert_eq!(first.chain, [0x40_067e, 0x5541_f689_4956_41d7]);
        let flags: Vec<_> = first
            .branches
            .iter()
            .map(|branch| branch.is_mispredicted)
            .collect();
        assert_eq!(flags, [Some(false), None]);
        assert_eq!((second.chain.len(), second.branches.len()), (1, 1));
    }

    #[test]
    fn address_before_branches_is_the_samples() {
        let text =
            "  400691 0x400691/0x400669/P/-/-/4  0x400677/0x400650/P/-/-/1\n  400692 0x1/0x2/P/-/-/1\n";
        let script = read(text.as_bytes()).unwrap();
        let chains: Vec<_> = script.samples.iter().map(|sample| &sample.chain[..]).collect();
        assert_eq!(chains, [[0x40_0691], [0x40_0692]]);
        assert_eq!(script.samples[0].branches.len(), 2);
    }

    #[test]
    fn comments_are_skipped() {
        let text = "// 0x40062f/0x4005b0/P/-/-/0 | callq\n# 0x1/0x2\n 0x1/0x2/P/-/-/1\n";
        assert_eq!(read(text.as_bytes()).unwrap().samples.len(), 1);
    }

    #[test]
    fn unreadable_branches_name_their_line() {
        let error = read("\n 0x12/0xzz/P\n".as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "perf script: line 2 has branches that cannot be read");
    }
}
