//! The arguments of `cargo xtask bench`.

use crate::Failure;
use backtrail_tests::real::{History, RealProgram, Recorder, find};
use std::path::Path;

/// What is measured, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Small work, one run each: shows that the benchmark works, no figures.
    pub quick: bool,
    /// One JSON object a program instead of the table.
    pub json: bool,
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
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            let mut value = || {
                rest.next()
                    .copied()
                    .ok_or_else(|| format!("{argument} wants a value"))
            };
            match argument {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--runs" => options.runs = Some(number(value()?)?),
                "--ring" => options.ring = Some(number(value()?)?),
                "--engine" => options.engine = Some(value()?.to_owned()),
                name if find(name).is_some() => options.names.push(name.to_owned()),
                other => {
                    return Err(format!(
                        "'{other}' is neither an option nor a program of the table"
                    ));
                }
            }
        }
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
        let mut words = Vec::new();
        let mut flag = |set: bool, name: &str| {
            if set {
                words.push(name.to_owned());
            }
        };
        flag(self.quick, "--quick");
        flag(self.json, "--json");
        let values = [
            ("--runs", self.runs.map(|runs| runs.to_string())),
            ("--ring", self.ring.map(|ring| ring.to_string())),
            ("--engine", self.engine.clone()),
        ];
        for (name, value) in values {
            words.extend(value.map(|value| format!("{name} {value}")));
        }
        words.extend(self.names.iter().cloned());
        words.join(" ")
    }
}

fn number(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_read_back_as_typed() {
        let typed = ["--quick", "--runs", "2", "--engine", "step", "gzip", "lua"];
        let options = Options::parse(&typed).unwrap();
        assert_eq!(options.shown(), typed.join(" "));
        assert_eq!(options.runs(), 2);
        assert!(Options::parse(&["no-such-program"]).is_err());
        assert!(Options::parse(&["--runs"]).is_err());
    }
}
