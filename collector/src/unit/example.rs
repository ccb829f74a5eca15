//! An example configuration: every key with its description, and its default as a comment.

use crate::config::Config;

/// The descriptions of the keys, as `table.key`.
const KEYS: [(&str, &str); 26] = [
    ("spool", "Where bundles of crashes go."),
    ("spool_limit", "All bundles together; beyond, the oldest go."),
    ("spool_free", "So much of the file system stays free for others."),
    (
        "runtime",
        "Sockets, the lock, and the handler that the kernel starts.",
    ),
    ("log", "error, warn, info or debug."),
    ("log_json", "Log lines as JSON."),
    ("crash.signals", "What counts as a crash when nobody handles it."),
    (
        "crash.attach",
        "How the kernel tells of crashes: auto, or one way that `backtrail doctor` names.",
    ),
    (
        "crash.hold",
        "How a process is kept until it is read: auto, pipe, socket (Linux 6.17), none.",
    ),
    ("crash.hold_limit", "It is kept no longer than this."),
    ("crash.core", "What is kept of its memory: full, stacks, none."),
    ("crash.core_limit", "If it has more, stacks alone are kept."),
    ("crash.chain", "Whether the core also goes where it went before."),
    (
        "crash.priority",
        "Real-time priority of the thread that reads crashes, 1 to 99; 0: none.",
    ),
    (
        "limit.burst",
        "So many bundles of one user, and of one executable of that user, at once ...",
    ),
    ("limit.per_second", "... and so many a second beyond these."),
    (
        "trace.source",
        "Intel PT: auto, hardware (or do not start), none.",
    ),
    ("trace.ring", "Of each processor; a power of two."),
    ("trace.kernel", "The kernel's own code too."),
    (
        "trace.compress_returns",
        "One bit for a return to where its call said.",
    ),
    (
        "trace.sideband",
        "What is remembered of who ran and what was mapped.",
    ),
    // Keys without a default.
    (
        "user",
        "Whom the daemon becomes; not given: it stays root, with seven capabilities.",
    ),
    ("trace.cgroup", "Only the processes of this cgroup."),
    ("trace.filters", "Only this code: offset and size in a file."),
    (
        "function",
        "Functions whose calls make a bundle: each call, or those that take longer.",
    ),
    (
        "trace.psb_period",
        "Bytes between points where decoding can begin: 2^(n+11).",
    ),
];

/// Keys without a default: the key before which each is listed, and an example.
const OPTIONAL: [(&str, &str, &str); 4] = [
    ("log", "user", "user = \"backtrail\""),
    (
        "trace.compress_returns",
        "trace.cgroup",
        "cgroup = \"/sys/fs/cgroup/system.slice\"",
    ),
    (
        "trace.compress_returns",
        "trace.filters",
        "filters = [\"0x1000/0x200@/usr/bin/server\"]",
    ),
    ("trace.compress_returns", "trace.psb_period", "psb_period = 3"),
];

const FUNCTION: &str =
    "[[function]]\nbinary = \"/usr/bin/server\"\nsymbol = \"handle\"\nlonger_than = \"50ms\"\n";

/// Returns a configuration that changes nothing until a line is uncommented.
#[must_use]
pub fn example() -> String {
    let mut text = "\
# The collector's configuration. What is commented out is the default, or an example where it says so.
# `backtrail collect --print-config` prints what holds; `systemctl reload backtrail-collect` has it read again.

"
    .to_owned();
    let mut table = String::new();
    for line in Config::default().to_toml().lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // Tables are not commented out, so that an uncommented key is in its table.
            table = format!("{name}.");
            text += &format!("{line}\n");
            continue;
        }
        let key = line.split_once(" = ").map(|(key, _)| format!("{table}{key}"));
        for (before, optional, example) in OPTIONAL {
            if key.as_deref() == Some(before) {
                explain(&mut text, optional, " An example:");
                text += &format!("#{example}\n");
            }
        }
        if let Some(key) = key {
            explain(&mut text, &key, "");
        }
        text += &if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("#{line}\n")
        };
    }
    text += "\n";
    explain(&mut text, "function", " An example:");
    for line in FUNCTION.lines() {
        text += &format!("#{line}\n");
    }
    text
}

fn explain(text: &mut String, key: &str, more: &str) {
    if let Some((_, what)) = KEYS.iter().find(|(known, _)| *known == key) {
        *text += &format!("# {what}{more}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Config {
        Config::parse(text, Path::new("example")).unwrap()
    }

    #[test]
    fn it_changes_nothing_as_it_is() {
        assert_eq!(parse(&example()), Config::default());
    }

    #[test]
    fn each_key_holds_once_its_sign_is_taken_away() {
        let text: String = example()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') || rest.starts_with("    ") => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let config = parse(&text);
        assert_eq!(config.user.as_deref(), Some("backtrail"));
        assert_eq!(config.trace.filters.len(), 1);
        assert_eq!(config.trace.psb_period, Some(3));
        assert_eq!(config.function.len(), 1);
        assert_eq!(config.crash, Config::default().crash);
    }

    #[test]
    fn every_key_is_explained_and_no_other() {
        let text = example();
        for (key, what) in KEYS {
            assert_eq!(text.matches(what).count(), 1, "{key}");
        }
        let mut before = "";
        for line in text.lines() {
            if line.starts_with('#')
                && line.contains(" = ")
                && !line.starts_with("# ")
                && !before.starts_with("#[[")
            {
                let explained = before.starts_with("# ") || FUNCTION.contains(&line[1..]);
                assert!(explained, "{line}");
            }
            before = line;
        }
    }
}
