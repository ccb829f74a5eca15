//! The arguments of `cargo xtask bench decode`.

use super::streams::STREAMS;
use crate::Failure;
use crate::bench::typed;
use std::time::Duration;

/// DecodeOptions of the measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodeOptions {
    /// Small streams and short prefixes: shows that the benchmark works, no figures.
    pub quick: bool,
    /// One JSON object a program instead of the tables.
    pub json: bool,
    /// Records again even if a recording exists.
    pub fresh: bool,
    /// Reports processor time in place of wall clock, for one thread on a busy machine.
    pub cpu: bool,
    /// Counts machine instructions, and nothing else.
    pub instructions: bool,
    /// Searches in histories, and nothing else.
    pub searches: bool,
    /// One thread and two, and nothing else.
    pub threads: bool,
    /// Leaves the rows of `open` out.
    pub no_open: bool,
    /// Leaves the whole streams out.
    pub no_whole: bool,
    /// How long `pt_insn` decodes the prefix, about.
    seconds: Option<f64>,
    /// Warm runs after the cold one.
    runs: Option<u32>,
    /// Longer measurements, in seconds, are left out, except for the prefixes.
    limit: Option<u32>,
    /// Names of rows; empty is all.
    names: Vec<String>,
}

impl DecodeOptions {
    /// Reads them.
    pub fn parse(arguments: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        options.names = typed::read(
            arguments,
            |name| STREAMS.iter().any(|stream| stream.name == name),
            |word| {
                match word.name {
                    "--quick" => options.quick = true,
                    "--json" => options.json = true,
                    "--fresh" => options.fresh = true,
                    "--cpu" => options.cpu = true,
                    "--instructions" => options.instructions = true,
                    "--searches" => options.searches = true,
                    "--threads" => options.threads = true,
                    "--no-open" => options.no_open = true,
                    "--no-whole" => options.no_whole = true,
                    "--seconds" => options.seconds = Some(word.number()?),
                    "--runs" => options.runs = Some(word.number()?),
                    "--limit" => options.limit = Some(word.number()?),
                    _ => return Ok(false),
                }
                Ok(true)
            },
        )?;
        if !options.seconds().is_finite() || options.seconds() <= 0.0 {
            return Err("--seconds needs a positive number".to_owned());
        }
        Ok(options)
    }

    /// How long `pt_insn` decodes the prefix, about.
    pub fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.5 } else { 5.0 })
    }

    /// Runs in a process: the cold one, and then the warm ones.
    pub fn runs(&self) -> u32 {
        1 + self.runs.unwrap_or(if self.quick { 1 } else { 2 })
    }

    /// One thread and two are measured.
    pub fn measures_threads(&self) -> bool {
        self.threads || !(self.instructions || self.searches || self.no_whole)
    }

    /// Rounds over the streams in which one thread and two are measured.
    pub fn rounds(&self) -> u32 {
        if self.quick { 1 } else { 5 }
    }

    /// How many seconds each stream has for its turns of one thread and two in a round.
    pub fn round_seconds(&self) -> f64 {
        if self.quick { 0.5 } else { 40.0 }
    }

    /// Longer measurements are left out.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.limit.unwrap_or(120)))
    }

    /// Whether the row is wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }

    /// The options as one would type them.
    pub fn shown(&self) -> String {
        let flags = [
            (self.quick, "--quick"),
            (self.json, "--json"),
            (self.fresh, "--fresh"),
            (self.cpu, "--cpu"),
            (self.instructions, "--instructions"),
            (self.searches, "--searches"),
            (self.threads, "--threads"),
            (self.no_open, "--no-open"),
            (self.no_whole, "--no-whole"),
        ];
        let values = [
            ("--seconds", self.seconds.map(|seconds| seconds.to_string())),
            ("--runs", self.runs.map(|runs| runs.to_string())),
            ("--limit", self.limit.map(|limit| limit.to_string())),
        ];
        typed::shown(&flags, values, &self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_read_back_as_typed() {
        let typed = [
            "--quick",
            "--cpu",
            "--seconds",
            "2.5",
            "--runs",
            "4",
            "gzip",
            "lua",
        ];
        let options = DecodeOptions::parse(&typed).unwrap();
        assert_eq!(options.shown(), typed.join(" "));
        assert_eq!(options.runs(), 5);
        assert!(options.wants("lua") && !options.wants("python"));
        assert!(DecodeOptions::parse(&["xz"]).is_err());
        assert!(DecodeOptions::parse(&["--seconds", "0"]).is_err());
    }
}
