//! The arguments of `cargo xtask bench record` and `bench programs`.

use super::typed;
use crate::Failure;
use backtrail_tests::real::{History, RealProgram, Recorder, find};
use std::path::Path;

/// Options of the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Small work, one run each: shows that the benchmark works, no figures.
    pub quick: bool,
    /// One JSON object a program instead of the table.
    pub json: bool,
    /// Only the table of values, of `bench record`.
    pub values: bool,
    /// Runs of each kind.
    runs: Option<u32>,
    /// The recorder's engine, if not its own choice.
    pub engine: Option<String>,
    /// MiB of ring a thread.
    ring: Option<u32>,
    /// Names of rows; empty is all.
    names: Vec<String>,
}

impl Options {
    /// Reads them.
    pub fn parse(arguments: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        options.names = typed::read(
            arguments,
            |name| find(name).is_some(),
            |word| {
                match word.name {
                    "--quick" => options.quick = true,
                    "--json" => options.json = true,
                    "--values" => options.values = true,
                    "--runs" => options.runs = Some(word.number()?),
                    "--ring" => options.ring = Some(word.number()?),
                    "--engine" => options.engine = Some(word.value()?.to_owned()),
                    _ => return Ok(false),
                }
                Ok(true)
            },
        )?;
        Ok(options)
    }

    /// Runs of each kind, of which the fastest counts: what else runs on a machine only adds.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    /// Whether the row is wanted.
    pub fn wants(&self, program: &RealProgram) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == program.name)
    }

    /// The size of a program's work.
    pub fn size(&self, program: &RealProgram) -> u32 {
        if self.quick {
            program.size.small
        } else {
            program.size.full
        }
    }

    /// The recorder with the ring, 4 MiB a thread unless given: so much decodes in seconds.
    pub fn recorder(&self, binary: &Path) -> Recorder {
        Recorder {
            binary: binary.to_path_buf(),
            engine: self.engine.clone(),
            history: History::Ring(self.ring.unwrap_or(4)),
        }
    }

    /// The options as one would type them.
    pub fn shown(&self) -> String {
        typed::shown(
            &[
                (self.quick, "--quick"),
                (self.json, "--json"),
                (self.values, "--values"),
            ],
            [
                ("--runs", self.runs.map(|runs| runs.to_string())),
                ("--ring", self.ring.map(|ring| ring.to_string())),
                ("--engine", self.engine.clone()),
            ],
            &self.names,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_read_back_as_typed() {
        let typed = [
            "--quick", "--values", "--runs", "2", "--engine", "step", "gzip", "lua",
        ];
        let options = Options::parse(&typed).unwrap();
        assert_eq!(options.shown(), typed.join(" "));
        assert_eq!(options.runs(), 2);
        assert!(Options::parse(&["no-such-program"]).is_err());
        assert!(Options::parse(&["--runs"]).is_err());
    }
}
