//! The measurement of one process.

use crate::Failure;
use backtrail_decoder::Engine;
use backtrail_decoder::engine::native::Native;
use std::path::PathBuf;
use std::time::Duration;

/// The kinds of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Measures nothing: lists our engines.
    Engines,
    /// Measures how much of a stream libipt's `pt_insn` decodes in some seconds.
    Prefix,
    /// Measures libipt's instruction flow decoder.
    Insn,
    /// Measures libipt's block decoder.
    Blk,
    /// Measures `iptr-edge-analyzer`.
    Edges,
    /// Measures one of our engines.
    Ours,
    /// Measures searches in the history of one of our engines.
    Search,
    /// Compares several threads of one of our engines with one.
    Threads,
}

/// The arguments of one process.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The kind of measurement.
    pub kind: Kind,
    /// The bundle, whose largest stream is measured.
    pub bundle: PathBuf,
    /// The number of leading bytes to use. `None` means all.
    pub bytes: Option<u64>,
    /// The number of runs after the first one.
    pub runs: u32,
    /// How long [`Kind::Prefix`] decodes, and the rounds of [`Kind::Threads`] take. 0 means none.
    pub seconds: f64,
    /// Our engine to measure.
    pub engine: &'static dyn Engine,
    /// The number of our threads.
    pub jobs: usize,
    /// Whether the call forest is built as well.
    pub forest: bool,
}

impl Arguments {
    /// Parses `KIND BUNDLE [--OPTION VALUE]…`.
    pub fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut words = words.iter().map(String::as_str);
        let kind = match words.next() {
            Some("engines") => Kind::Engines,
            Some("prefix") => Kind::Prefix,
            Some("insn") => Kind::Insn,
            Some("blk") => Kind::Blk,
            Some("edges") => Kind::Edges,
            Some("ours") => Kind::Ours,
            Some("search") => Kind::Search,
            Some("threads") => Kind::Threads,
            other => {
                return Err(format!(
                    "'{}' is not a measurement; see `cargo xtask bench decode`",
                    other.unwrap_or_default()
                ));
            }
        };
        let mut arguments = Self {
            kind,
            bundle: words.next().unwrap_or_default().into(),
            bytes: None,
            runs: 1,
            seconds: 10.0,
            engine: &Native,
            jobs: 1,
            forest: true,
        };
        while let Some(option) = words.next() {
            if option == "--no-forest" {
                arguments.forest = false;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{option} requires a value"))?;
            match option {
                "--bytes" => arguments.bytes = Some(number(value)?),
                "--runs" => arguments.runs = number(value)?,
                "--seconds" => arguments.seconds = number(value)?,
                "--jobs" => arguments.jobs = number(value)?,
                "--engine" => {
                    arguments.engine = backtrail_oracle::engine(value)
                        .ok_or_else(|| format!("no engine is called {value}"))?
                }
                other => return Err(format!("{other} is not an option")),
            }
        }
        if Duration::try_from_secs_f64(arguments.seconds).is_err() {
            return Err(format!("{} is not a duration", arguments.seconds));
        }
        Ok(arguments)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| format!("'{text}' is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let words = ["ours", "b", "--bytes", "9", "--no-forest", "--runs", "2"].map(str::to_owned);
        let arguments = Arguments::parse(&words).unwrap();
        assert_eq!((arguments.kind, arguments.bytes), (Kind::Ours, Some(9)));
        assert_eq!((arguments.runs, arguments.forest), (2, false));
        let words = ["edges", "b", "--engine", "other"].map(str::to_owned);
        assert!(Arguments::parse(&words).is_err());
        assert!(Arguments::parse(&["nothing".to_owned()]).is_err());
        assert!(Arguments::parse(&["threads", "b", "--seconds", "-1"].map(str::to_owned)).is_err());
        assert!(Arguments::parse(&["insn", "b", "--bytes"].map(str::to_owned)).is_err());
    }
}
