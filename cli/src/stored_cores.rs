//! Finds the newest core that systemd-coredump stored, by `coredumpctl` or in its directory.

use crate::exit::Failure;
use backtrail_console::output::visible;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The most files of the directory that are read.
const MAX_FILES: usize = 100_000;
/// The longest time from a crash to the entry in the journal, in microseconds: half an hour.
const MAX_WRITING: u64 = 30 * 60 * 1_000_000;

/// A stored core.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredCore {
    /// Its file, if there is one that this user may see.
    pub path: Option<PathBuf>,
    /// The process.
    pub pid: u32,
    /// The program: its path, or its name.
    program: String,
    /// The signal, if it is known.
    signal: Option<i32>,
    /// The time of the crash in microseconds since 1970.
    time: u64,
}

impl StoredCore {
    /// Returns a description in a few words: program, process and signal.
    pub fn describe(&self) -> String {
        let signal = self.signal.map(|signal| format!(", signal {signal}"));
        let program = visible(&self.program);
        format!("{program} (process {}{})", self.pid, signal.unwrap_or_default())
    }
}

/// An entry of `coredumpctl --json=short list` (systemd 248 and later).
#[derive(Debug, Deserialize)]
struct Entry {
    time: u64,
    pid: u32,
    #[serde(default)]
    sig: Option<i32>,
    #[serde(default)]
    corefile: Option<String>,
    #[serde(default)]
    exe: Option<String>,
}

/// Returns the newest stored core. The directory is read if there is no `coredumpctl`.
pub fn newest(directory: &Path) -> Result<StoredCore, Failure> {
    let none = || {
        Failure::usage(format_args!(
            "no bundle or core is given, and {} has no core",
            directory.display()
        ))
    };
    let files = files_in(directory);
    match list_by_coredumpctl() {
        Some(list) => newest_entry(&list, files).ok_or_else(none),
        None => files.into_iter().max_by_key(|core| core.time).ok_or_else(none),
    }
}

/// Returns what `coredumpctl` prints, or `None` if it is missing or too old for JSON.
fn list_by_coredumpctl() -> Option<String> {
    let output = Command::new("coredumpctl")
        .args(["--json=short", "--no-pager", "list"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // Without any core, it fails and prints nothing.
    (output.status.success() && text.trim_start().starts_with('[')).then_some(text)
}

/// Returns the newest entry of a list whose core still exists, with its file.
fn newest_entry(list: &str, files: Vec<StoredCore>) -> Option<StoredCore> {
    let entries: Vec<Entry> = serde_json::from_str(list).ok()?;
    let is_stored = |entry: &Entry| !matches!(entry.corefile.as_deref(), Some("missing" | "none" | "error"));
    let entry = entries
        .into_iter()
        .filter(is_stored)
        .max_by_key(|entry| entry.time)?;
    // A file is named by the time of the crash, and the entry is written after the core. An older
    // file is that of another process with the same id. A core in the journal has no file.
    let written = entry.time.saturating_sub(MAX_WRITING)..=entry.time;
    let is_file = entry.corefile.as_deref() != Some("journal");
    let of_entry = files
        .into_iter()
        .filter(|file| is_file && file.pid == entry.pid && written.contains(&file.time));
    let file = of_entry.max_by_key(|file| file.time);
    let (path, name) = file.map_or((None, None), |file| (file.path, Some(file.program)));
    Some(StoredCore {
        path,
        pid: entry.pid,
        program: entry
            .exe
            .or(name)
            .unwrap_or_else(|| "an unknown program".to_owned()),
        signal: entry.sig,
        time: entry.time,
    })
}

/// Returns the cores in a directory.
fn files_in(directory: &Path) -> Vec<StoredCore> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.take(MAX_FILES).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let mut core = parse_name(&name)?;
        core.path = Some(entry.path());
        Some(core)
    });
    named.collect()
}

/// Parses a file name: `core.NAME.UID.BOOT.PID.TIME`, with the suffix of a compression format. The
/// name of the program may have dots.
fn parse_name(name: &str) -> Option<StoredCore> {
    let rest = name.strip_prefix("core.")?;
    let plain = [".zst", ".xz", ".lz4", ".gz"]
        .iter()
        .find_map(|suffix| rest.strip_suffix(suffix));
    let mut parts = plain.unwrap_or(rest).rsplitn(5, '.');
    let (time, pid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (_boot, _user, program) = (parts.next()?, parts.next()?, parts.next()?);
    Some(StoredCore {
        path: None,
        pid,
        program: program.to_owned(),
        signal: None,
        time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "0123456789abcdef0123456789abcdef";

    fn core(program: &str, pid: u32, time: u64) -> StoredCore {
        StoredCore {
            path: None,
            pid,
            program: program.to_owned(),
            signal: None,
            time,
        }
    }

    #[test]
    fn file_names_are_parsed() {
        for suffix in ["", ".zst", ".xz", ".lz4", ".gz"] {
            let name = format!("core.a.out.1000.{BOOT}.77.1700000000000000{suffix}");
            assert_eq!(
                parse_name(&name),
                Some(core("a.out", 77, 1_700_000_000_000_000)),
                "{name}"
            );
        }
        let boot_only = format!("core.x.{BOOT}.7.9");
        for wrong in [
            "core",
            "core.77",
            &boot_only,
            "other.a.0.b.1.2",
            "core.a.0.b.1.2.tmp",
        ] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn newest_entry_that_is_stored_is_chosen() {
        let list = r#"[
            {"time": 30, "pid": 7, "uid": 0, "gid": 0, "sig": 11, "corefile": "present", "exe": "/bin/a", "size": 9},
            {"time": 40, "pid": 8, "uid": 0, "gid": 0, "sig": 6, "corefile": "missing", "exe": "/bin/b", "size": null},
            {"time": 20, "pid": 9, "uid": 0, "gid": 0, "sig": 6, "corefile": "present", "exe": null, "size": 9}
        ]"#;
        let files = || {
            vec![
                core("a", 7, 5),
                core("a", 7, 29),
                core("later", 7, 31),
                core("b", 8, 40),
            ]
        };
        let found = newest_entry(list, files()).unwrap();
        assert_eq!((found.pid, found.time, found.signal), (7, 30, Some(11)));
        assert_eq!(found.describe(), "/bin/a (process 7, signal 11)");
        let with_path = |time: u64| {
            let path = Some(PathBuf::from(time.to_string()));
            vec![StoredCore {
                path,
                ..core("a", 7, time)
            }]
        };
        let path_of = |list: &str, time: u64| newest_entry(list, with_path(time)).unwrap().path;
        let late = list.replace("30", "7000000000");
        assert_eq!(path_of(list, 29), Some(PathBuf::from("29")));
        assert_eq!(path_of(&late, 6_000_000_000), Some(PathBuf::from("6000000000")));
        // Another process had the same id, or the core is in the journal.
        assert_eq!((path_of(list, 31), path_of(&late, 29)), (None, None));
        assert_eq!(path_of(&list.replacen("present", "journal", 1), 29), None);
        assert!(newest_entry("[]", files()).is_none());
        assert!(newest_entry("nonsense", files()).is_none());
    }
}
