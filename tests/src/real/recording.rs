//! `backtrail record` for a command, and `backtrail info` for its bundle.

use super::child::{Child, Ended, Limit};
use crate::programs::Ending;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// How programs are recorded.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The `backtrail` binary.
    pub binary: PathBuf,
    /// `--engine`; `None` is the binary's own choice.
    pub engine: Option<String>,
    /// The size of the kept history.
    pub history: History,
}

/// How much of a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// `--ring SIZE`, in MiB a thread.
    Ring(u32),
    /// `--full`.
    Full,
}

/// The last report of `backtrail record --json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the program ended; `None` while it still runs.
    pub ending: Option<Ending>,
    /// The number of threads of all processes.
    pub threads: u64,
    /// PT bytes in the bundle.
    pub kept: u64,
    /// Older PT bytes, dropped by the ring.
    pub dropped: u64,
    /// The number of gaps that the recorder reports.
    pub gaps: u64,
}

/// A program that ran under `backtrail record`.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The program's ending and outputs; the time includes writing the bundle.
    pub ended: Ended,
    /// The recorder's report.
    pub report: Report,
    /// The bundle.
    pub bundle: PathBuf,
}

/// The result of decoding a bundle, summed over threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The number of decoded instructions.
    pub instructions: u64,
    /// The number of decode errors.
    pub errors: u64,
    /// Gaps, except those at the beginning of a thread, where the ring begins: position and cause.
    pub gaps: Vec<String>,
}

impl Recorder {
    /// Returns the words of the command that records `command` to `bundle`.
    pub fn words(&self, bundle: &Path, command: Vec<OsString>) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            self.binary.clone().into(),
            "record".into(),
            "--json".into(),
            "--exit-zero".into(),
        ];
        if let Some(engine) = &self.engine {
            words.extend(["--engine".into(), engine.into()]);
        }
        match self.history {
            History::Ring(mebibytes) => words.extend(["--ring".into(), format!("{mebibytes}M").into()]),
            History::Full => words.push("--full".into()),
        }
        words.extend(["--overwrite".into(), "-o".into(), bundle.into(), "--".into()]);
        words.extend(command);
        words
    }

    /// Returns the message with which the recorder refuses `true`, if it cannot record on this
    /// machine.
    ///
    /// # Errors
    ///
    /// The recorder cannot be started, or hangs.
    pub fn refusal(&self, limit: Limit) -> io::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        let words = self.words(&folder.path().join("bundle"), vec!["/bin/true".into()]);
        let mut command = Command::new(&self.binary);
        command.args(words.into_iter().skip(1));
        let ended = Child::run(command, folder.path(), "refusal", limit)?;
        let first = ended.stderr.lines().next().unwrap_or_default().to_owned();
        Ok((ended.ending != Ending::Exit(0)).then_some(first))
    }

    /// Reads the results of a run of [`Self::words`].
    ///
    /// # Errors
    ///
    /// The recorder failed, or its report is unreadable.
    pub fn read(&self, mut ended: Ended, bundle: &Path) -> io::Result<Recorded> {
        if ended.ending != Ending::Exit(0) {
            return Err(io::Error::other(format!("record: {}", ended.told())));
        }
        let at = last(&ended.stdout, br#"{"schema":"backtrail-record/"#)
            .ok_or_else(|| io::Error::other(format!("record printed no report: {}", ended.told())))?;
        let report = ended.stdout.split_off(at);
        let report = report_of(&serde_json::from_slice(&report)?)?;
        if let Some(ending) = report.ending {
            ended.ending = ending;
        }
        Ok(Recorded {
            ended,
            report,
            bundle: bundle.to_path_buf(),
        })
    }

    /// Decodes a bundle.
    ///
    /// # Errors
    ///
    /// `backtrail info` fails, or takes longer than `limit`.
    pub fn decode(&self, bundle: &Path, limit: Limit) -> io::Result<Decoded> {
        let folder = bundle.parent().unwrap_or(Path::new("."));
        let ask = |question: &str| -> io::Result<Value> {
            let mut command = Command::new(&self.binary);
            command.args([question.as_ref(), "--json".as_ref(), bundle.as_os_str()]);
            let ended = Child::run(command, folder, question, limit)?.succeeded(question)?;
            Ok(serde_json::from_slice(&ended.stdout)?)
        };
        let info = ask("info")?;
        let threads = info["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
        let sum = |key: &str| {
            threads
                .iter()
                .filter_map(|thread| thread[key].as_u64())
                .sum::<u64>()
        };
        let gaps = match sum("gaps") {
            0 => Vec::new(),
            _ => ask("check")?["gaps"]
                .as_array()
                .map(|gaps| inner_gaps(gaps))
                .unwrap_or_default(),
        };
        Ok(Decoded {
            instructions: sum("instructions"),
            errors: sum("errors"),
            gaps,
        })
    }
}

impl Report {
    /// Returns the number of PT bytes written in total.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.kept.saturating_add(self.dropped)
    }
}

impl Recorded {
    /// Removes the bundle, because a full one is large.
    ///
    /// # Errors
    ///
    /// The bundle cannot be removed.
    pub fn discard(self) -> io::Result<()> {
        fs::remove_dir_all(self.bundle)
    }
}

/// Returns the gaps that are not at the beginning of a ring.
fn inner_gaps(gaps: &[Value]) -> Vec<String> {
    gaps.iter()
        .filter(|gap| {
            !gap["position"]
                .as_str()
                .is_some_and(|position| position.ends_with("#0"))
        })
        .map(|gap| {
            let word = |key: &str| gap[key].as_str().unwrap_or("?").to_owned();
            format!("{}: {}", word("position"), word("cause"))
        })
        .collect()
}

fn report_of(report: &Value) -> io::Result<Report> {
    let number = |key: &str| {
        report[key]
            .as_u64()
            .ok_or_else(|| io::Error::other(format!("record's report has no number \"{key}\"")))
    };
    let status = report["status"]
        .as_i64()
        .and_then(|status| i32::try_from(status).ok());
    let ending = match (report["ending"].as_str(), status) {
        (Some("exited"), Some(status)) => Some(Ending::Exit(status)),
        (Some("killed"), Some(signal)) => Some(Ending::Signal(signal)),
        _ => None,
    };
    Ok(Report {
        ending,
        threads: number("threads")?,
        kept: number("bytes")?,
        dropped: number("dropped")?,
        gaps: number("gaps")?,
    })
}

/// Returns the last position of `needle`.
fn last(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .rposition(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"schema":"backtrail-record/1","bundle":"b","ending":"exited","status":5,"threads":2,"instructions":9,"bytes":100,"dropped":40,"gaps":0}"#;

    fn ended(stdout: String) -> Ended {
        Ended {
            ending: Ending::Exit(0),
            stdout: stdout.into(),
            stderr: String::new(),
            seconds: 1.0,
        }
    }

    fn recorder() -> Recorder {
        Recorder {
            binary: "backtrail".into(),
            engine: Some("step".into()),
            history: History::Ring(8),
        }
    }

    #[test]
    fn the_program_s_output_ends_where_the_report_begins() {
        let stdout = format!("{REPORT}\nno line end{REPORT}\n");
        let recorded = recorder().read(ended(stdout), Path::new("b")).unwrap();
        assert_eq!(
            recorded.ended.stdout,
            format!("{REPORT}\nno line end").into_bytes()
        );
        assert_eq!(
            (recorded.ended.ending, recorded.report.made()),
            (Ending::Exit(5), 140)
        );
        assert!(recorder().read(ended("nothing".into()), Path::new("b")).is_err());
    }

    #[test]
    fn only_the_ring_s_beginning_may_be_a_gap() {
        let gaps = [
            serde_json::json!({"position": "t1#0", "cause": "the ring begins"}),
            serde_json::json!({"position": "t1#10", "cause": "overflow"}),
        ];
        assert_eq!(inner_gaps(&gaps), ["t1#10: overflow"]);
    }
}
