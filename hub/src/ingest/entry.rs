//! The lines of the journal.

use backtrail_report::CrashReport;
use serde::{Deserialize, Serialize};

/// One line of the journal. The index can be computed again from all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// A crash.
    Report {
        /// The time at which the hub received it.
        received: i64,
        /// The report, without its modules.
        report: Box<CrashReport>,
    },
    /// The first crash of a build, whose report retention removed.
    FirstCrash {
        /// The service.
        service: String,
        /// The build.
        build: String,
        /// The time of the crash.
        time: i64,
    },
    /// A host that sends heartbeats.
    Host {
        /// The time.
        time: i64,
        /// The host.
        host: String,
        /// The version of its collector.
        collector: String,
    },
    /// A host that runs a build.
    Run {
        /// The time of the heartbeat.
        time: i64,
        /// The host.
        host: String,
        /// The service.
        service: String,
        /// The build.
        build: String,
        /// The time at which the host first ran it.
        since: i64,
    },
}

/// Returns entries as lines of JSON.
#[must_use]
pub fn to_lines(entries: &[Entry]) -> Vec<u8> {
    let mut lines = Vec::new();
    for entry in entries {
        // A map with text keys and no NaN always has a JSON form.
        if serde_json::to_writer(&mut lines, entry).is_ok() {
            lines.push(b'\n');
        }
    }
    lines
}

/// Returns the entries of lines, and the number of lines that are none.
#[must_use]
pub fn from_lines(lines: &[u8]) -> (Vec<Entry>, usize) {
    let mut damaged = 0;
    let mut entries = Vec::new();
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            Err(_) => damaged += 1,
        }
    }
    (entries, damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_again() {
        let entries = [
            Entry::Host {
                time: 1,
                host: "web\n17".to_owned(),
                collector: "0.2.0".to_owned(),
            },
            Entry::Run {
                time: 2,
                host: "web-17".to_owned(),
                service: "ledger".to_owned(),
                build: "b".to_owned(),
                since: 1,
            },
        ];
        let mut lines = to_lines(&entries);
        lines.extend(b"{\"kind\":\"rep");
        assert_eq!(from_lines(&lines), (entries.to_vec(), 1));
    }
}
