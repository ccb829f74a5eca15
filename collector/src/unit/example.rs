//! An example configuration: every key with its description, and its default as a comment.

use crate::config::Config;

/// The descriptions of the keys, as `table.key`.
const KEYS: [(&str, &str); 42] = [
    ("spool", "The directory of crash bundles."),
    (
        "spool_limit",
        "Maximum size of all bundles. The oldest are removed first.",
    ),
    ("spool_free", "Space of the file system that stays free."),
    (
        "runtime",
        "The directory of the sockets, the lock and the crash handler.",
    ),
    ("log", "The log level: error, warn, info or debug."),
    ("log_json", "Whether log lines are JSON."),
    (
        "crash.signals",
        "Signals that count as a crash if the process does not handle them.",
    ),
    (
        "crash.attach",
        "How the probe attaches: auto, or a type that `backtrail doctor` lists.",
    ),
    (
        "crash.hold",
        "How a crashing process is held while it is read: auto, pipe, socket (Linux 6.17), none.",
    ),
    ("crash.hold_limit", "The longest time that a process is held."),
    (
        "crash.core",
        "How much of its memory is saved: full, stacks, none.",
    ),
    (
        "crash.core_limit",
        "Maximum size of a full core. Larger processes are saved with their stacks only.",
    ),
    (
        "crash.chain",
        "Whether the core is also passed on to the previous core_pattern.",
    ),
    (
        "crash.priority",
        "Real-time priority of the thread that reads crashes, 1 to 99. 0: none.",
    ),
    (
        "limit.burst",
        "Bundles of one user, and of one executable of that user, that are allowed at once ...",
    ),
    ("limit.per_second", "... and per second after that."),
    (
        "trace.source",
        "Intel PT: auto, hardware (or do not start), none.",
    ),
    ("trace.ring", "Trace bytes of each processor, a power of two."),
    ("trace.kernel", "Whether kernel code is traced too."),
    (
        "trace.compress_returns",
        "Whether returns are compressed to one bit (RET compression).",
    ),
    (
        "trace.sideband",
        "Bytes of the history of mappings and context switches.",
    ),
    (
        "heap.ring",
        "Bytes of the newest allocator calls of each process.",
    ),
    (
        "hub.send",
        "What is sent: bundles (reports, and bundles if the hub asks), stacks (reports), none.",
    ),
    (
        "hub.insecure_http",
        "Whether HTTP to other machines is allowed. It shows the token and the crashes.",
    ),
    (
        "profile.enabled",
        "Whether all processes are sampled, and the profiles sent to the hub.",
    ),
    ("profile.frequency", "Samples a second of each busy processor."),
    (
        "profile.cpu_budget",
        "The most time of all processors, in percent: the rate is lowered to stay below it.",
    ),
    ("profile.interval", "The time between two profiles."),
    (
        "profile.spool_limit",
        "Maximum size of the profiles that wait for the hub. The oldest are removed first.",
    ),
    // Keys without a default.
    (
        "heap.services",
        "Services whose allocator calls are noted; * is any text. Each call costs microseconds.",
    ),
    (
        "hub.url",
        "The hub that gets crashes and heartbeats. Without it, nothing is sent.",
    ),
    (
        "hub.token_file",
        "The file with the hub's token, which root reads.",
    ),
    (
        "hub.build",
        "The build of all programs. Without it, each program's build id.",
    ),
    (
        "hub.service",
        "The service of all programs. Without it, the systemd service, or the program's file name.",
    ),
    (
        "hub.redact_environment",
        "Environment variables whose values are removed from sent bundles; * is any text.",
    ),
    (
        "hub.sources",
        "Directories whose source files are sent, if a crashed program executed lines of them.",
    ),
    ("profile.region", "The region of this host."),
    (
        "user",
        "The user whose primary group may open bundles. The daemon stays root.",
    ),
    ("trace.cgroup", "Trace only the processes of this cgroup."),
    (
        "trace.filters",
        "Trace only this code: offset and size in a file.",
    ),
    (
        "function",
        "Functions whose calls cause a bundle: each call, or those that take longer.",
    ),
    ("trace.psb_period", "Bytes between PSB packets: 2^(n+11)."),
];

/// Keys without a default: the key before which each is listed, and an example.
const OPTIONAL: [(&str, &str, &str); 12] = [
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
    ("heap.ring", "heap.services", "services = [\"web\"]"),
    ("hub.send", "hub.url", "url = \"https://hub.example.com\""),
    (
        "hub.send",
        "hub.token_file",
        "token_file = \"/etc/backtrail/token\"",
    ),
    ("hub.send", "hub.build", "build = \"2026.11.3\""),
    ("hub.send", "hub.service", "service = \"ledger\""),
    (
        "hub.send",
        "hub.redact_environment",
        "redact_environment = [\"*_TOKEN\", \"AWS_*\"]",
    ),
    ("hub.send", "hub.sources", "sources = [\"/usr/src\"]"),
    ("profile.enabled", "profile.region", "region = \"north\""),
];

const FUNCTION: &str =
    "[[function]]\nbinary = \"/usr/bin/server\"\nsymbol = \"handle\"\nlonger_than = \"50ms\"\n";

/// Returns a configuration that changes nothing until a line is uncommented.
#[must_use]
pub fn example() -> String {
    let mut text = "\
# The collector's configuration. Commented lines are defaults, or examples where marked.
# `backtrail collect --print-config` prints the current settings; `systemctl reload backtrail-collect` reloads them.

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
    fn example_changes_nothing() {
        assert_eq!(parse(&example()), Config::default());
    }

    #[test]
    fn uncommented_keys_are_valid() {
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
        assert_eq!(config.heap.services, ["web"]);
        assert_eq!(config.crash, Config::default().crash);
    }

    #[test]
    fn every_key_has_a_description() {
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
