//! The protocol of the tests in a machine over its second serial line.
//!
//! | line | meaning |
//! |---|---|
//! | `PLAN name` | a test, before the first one begins |
//! | `TEST name ok`, `TEST name failed: why` | the result of a test |
//! | `NOTE text` | a remark |
//! | `BUNDLE test file recording same\\|tail` | a bundle to be decoded here |
//! | `FILE name length` | a file; its bytes follow |
//! | `LEFT count` | number of unfinished bundles on the disk |
//! | `KEPT bundle digest` | a complete bundle on the disk |
//! | `SAVED bundle digest` | a new bundle |
//! | `HALF` | waits for the power loss with a half-written bundle |
//! | `DONE` | the end |

use std::collections::BTreeMap;

/// The report of a machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MachineReport {
    planned: Vec<String>,
    results: Vec<TestResult>,
    notes: Vec<String>,
    bundles: Vec<Bundle>,
    files: Vec<(String, Vec<u8>)>,
    spool: Spool,
    done: bool,
}

/// How a test ended.
#[derive(Debug, PartialEq, Eq)]
struct TestResult {
    name: String,
    /// Why it failed.
    failure: Option<String>,
}

/// A bundle that a test made, and what decoding it must give.
#[derive(Debug, PartialEq, Eq)]
pub struct Bundle {
    pub test: String,
    /// Its name among the files.
    pub file: String,
    /// The recording that was played.
    pub recording: String,
    /// The end of the recording is asked for, not the whole: the ring was smaller.
    pub tail: bool,
}

/// The bundles that a machine found in an earlier machine's spool, and those that it added.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spool {
    /// How many bundles were unfinished.
    pub left: Option<usize>,
    /// Bundles that were whole: what their content comes to, by name.
    pub kept: BTreeMap<String, String>,
    /// The same of those that were said to be saved.
    pub saved: BTreeMap<String, String>,
    /// The machine waits for its end, with a half-written bundle.
    pub half: bool,
}

impl MachineReport {
    /// Reads the lines. Unknown lines are ignored, because a test without a report has failed.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut report = Self::default();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let (kind, words) = line.split_once(' ').unwrap_or((&line, ""));
            match kind {
                "PLAN" => report.planned.push(words.to_owned()),
                "TEST" => report.results.extend(result(words)),
                "NOTE" => report.notes.push(words.to_owned()),
                "BUNDLE" => report.bundles.extend(bundle(words)),
                "FILE" => {
                    let file = words
                        .split_once(' ')
                        .and_then(|(name, length)| Some((name, length.parse::<usize>().ok()?)));
                    if let Some((name, length)) = file {
                        let Some((content, after)) = rest.split_at_checked(length) else {
                            break;
                        };
                        report.files.push((name.to_owned(), content.to_vec()));
                        rest = after;
                    }
                }
                "LEFT" => report.spool.left = words.parse().ok(),
                "KEPT" => report.spool.kept.extend(pair(words)),
                "SAVED" => report.spool.saved.extend(pair(words)),
                "HALF" => report.spool.half = true,
                "DONE" => report.done = true,
                _ => {}
            }
        }
        report
    }

    /// The tests that were to run.
    pub fn planned(&self) -> &[String] {
        &self.planned
    }

    /// The bundles to decode.
    pub fn bundles(&self) -> &[Bundle] {
        &self.bundles
    }

    /// A file that came.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|(file, _)| file == name)
            .map(|(_, content)| content.as_slice())
    }

    /// One line for each test, and the notes.
    pub fn lines(&self) -> Vec<String> {
        let results = self.results.iter().map(|result| match &result.failure {
            None => format!("{} ok", result.name),
            Some(why) => format!("{} failed: {why}", result.name),
        });
        results.chain(self.notes.iter().cloned()).collect()
    }

    /// Returns the report about a spool on a disk.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Everything was said, up to the end.
    pub fn complete(&self) -> Result<(), String> {
        if self.planned.is_empty() {
            Err("no test started".into())
        } else if self.done {
            Ok(())
        } else {
            Err("the machine ended before its tests".into())
        }
    }

    /// Returns failed and missing tests.
    pub fn failures(&self) -> Vec<String> {
        self.complete().err().into_iter().chain(self.failed()).collect()
    }

    /// Whether a test has failed so far.
    pub fn has_failed(&self) -> bool {
        self.results.iter().any(|result| result.failure.is_some())
    }

    /// The planned tests that failed, or gave no result.
    pub fn failed(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for name in &self.planned {
            match self.results.iter().find(|result| result.name == *name) {
                None => failures.push(format!("{name} has no result")),
                Some(TestResult {
                    failure: Some(why), ..
                }) => failures.push(format!("{name} failed: {why}")),
                Some(_) => {}
            }
        }
        failures
    }
}

fn result(words: &str) -> Option<TestResult> {
    let (name, verdict) = words.split_once(' ')?;
    let failure = match verdict {
        "ok" => None,
        _ => Some(verdict.strip_prefix("failed: ")?.to_owned()),
    };
    Some(TestResult {
        name: name.to_owned(),
        failure,
    })
}

fn pair(words: &str) -> Option<(String, String)> {
    let (name, value) = words.split_once(' ')?;
    Some((name.to_owned(), value.to_owned()))
}

fn bundle(words: &str) -> Option<Bundle> {
    let words: Vec<&str> = words.split(' ').collect();
    let &[test, file, recording, extent] = words.as_slice() else {
        return None;
    };
    let tail = match extent {
        "same" => false,
        "tail" => true,
        _ => return None,
    };
    Some(Bundle {
        test: test.to_owned(),
        file: file.to_owned(),
        recording: recording.to_owned(),
        tail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_report_is_read() {
        let report = MachineReport::parse(
            b"PLAN a\nPLAN b\nTEST a ok\nFILE x.btz 6\nTEST b\nBUNDLE b x.btz crash tail\nTEST b ok\nNOTE 3 s\nDONE\n",
        );
        assert_eq!(report.failures(), Vec::<String>::new());
        assert_eq!(report.file("x.btz"), Some(b"TEST b".as_slice()));
        assert_eq!(report.bundles().len(), 1);
        assert!(report.bundles()[0].tail);
        assert_eq!(report.lines(), ["a ok", "b ok", "3 s"]);
    }

    #[test]
    fn contents_of_a_disk_are_read() {
        let report = MachineReport::parse(
            b"PLAN a\nLEFT 1\nKEPT 1-x-2 aa\nTEST a ok\nSAVED 2-x-3 bb\nHALF\nSAVED 3-x-4 c",
        );
        let spool = report.spool();
        assert_eq!((spool.left, spool.half), (Some(1), true));
        assert_eq!(spool.kept, BTreeMap::from([("1-x-2".into(), "aa".into())]));
        assert_eq!(spool.saved, BTreeMap::from([("2-x-3".into(), "bb".into())]));
        assert_eq!(report.failed(), Vec::<String>::new());
    }

    #[test]
    fn failed_and_missing_tests_and_an_early_end_are_failures() {
        let report = MachineReport::parse(b"PLAN a\nPLAN b\nPLAN c\nTEST a ok\nTEST b failed: no\nTEST");
        assert_eq!(
            report.failures(),
            [
                "the machine ended before its tests",
                "b failed: no",
                "c has no result"
            ]
        );
        assert_eq!(MachineReport::parse(b"DONE\n").failures(), ["no test started"]);
        assert!(
            MachineReport::parse(b"PLAN a\nFILE x 999\nTEST a ok\nDONE\n")
                .complete()
                .is_err()
        );
    }
}
