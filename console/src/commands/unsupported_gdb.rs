//! What GDB has and a record of a program cannot have, or has under another name: each is answered by one sentence that
//! says what to use instead.

use backtrail_debugger::Error;

/// Commands of GDB by all their names, why they are not here, and what is.
const FOREIGN: &[(&[&str], &str)] = &[
    (
        &["watch", "wa", "rwatch", "awatch", "info watchpoints", "info wat"],
        "a trace records control flow, not what is in memory, so no change of a value can be waited for; `break` where the \
         program changes it and `reverse-continue` go to the last time that it did",
    ),
    (
        &["call"],
        "functions of a recorded program cannot be called; `print` shows values at the crash",
    ),
    (
        &["run", "r", "start", "starti"],
        "a record is not run again; `goto start` goes to its beginning, `goto crash` to the crash",
    ),
    (
        &["kill", "k"],
        "no program is running, this is its record; `quit` ends the session",
    ),
    (
        &[
            "attach",
            "target",
            "tar",
            "detach",
            "disconnect",
            "file",
            "exec-file",
            "core-file",
            "core",
            "symbol-file",
            "add-symbol-file",
            "load",
        ],
        "a session looks at the one record that it was opened with; `backtrail debug BUNDLE|CORE` opens another",
    ),
    (
        &[
            "jump",
            "j",
            "return",
            "ret",
            "signal",
            "queue-signal",
            "set var",
            "set variable",
        ],
        "what a program did cannot be changed; `goto POSITION` moves in it, `print` shows values at the crash",
    ),
    (
        &["handle", "info signals", "info handle", "info sig", "info signal"],
        "signals came when the program was recorded; `crash` shows the one that ended it",
    ),
    (
        &["catch", "tcatch", "cat"],
        "events are found by the functions that they run; `break __cxa_throw`, for one, stops where C++ throws",
    ),
    (
        &["record", "rec", "info record"],
        "all of this is a record; `goto start|end|POSITION` moves in it, `info gaps` lists what it lacks",
    ),
    (
        &["checkpoint", "restart", "info checkpoints"],
        "`bookmark NAME` names a position, and `goto NAME` comes back to it",
    ),
    (
        &["shell", "!", "make", "pipe", "|"],
        "commands of the system are not run from here; use another terminal",
    ),
    (
        &[
            "python",
            "py",
            "python-interactive",
            "pi",
            "guile",
            "gu",
            "compile",
            "maintenance",
            "mt",
        ],
        "there is no scripting language inside; `--batch --json -x FILE` gives answers to scripts outside",
    ),
    (
        &["define", "document", "source", "alias", "macro"],
        "`-x FILE` and `-e COMMAND` on the command line run commands; `commands` binds some to a breakpoint",
    ),
    (
        &["tui", "layout", "focus", "fs", "winheight", "refresh", "edit"],
        "there are no windows; `list` shows source, `disassemble /s` source and code",
    ),
    (
        &["generate-core-file", "gcore", "dump", "restore", "append"],
        "the bundle has the core of the crash as a file: BUNDLE/core",
    ),
    (
        &["info variables", "info var", "info types", "info scope"],
        "`print NAME` shows a variable, `ptype NAME` a type, `info locals` and `info args` those of the frame",
    ),
    (
        &[
            "info proc",
            "info inferiors",
            "info program",
            "info files",
            "info target",
            "inferior",
            "info auxv",
        ],
        "`crash` tells how the program ended, `info threads` and `info sharedlibrary` what it consisted of",
    ),
    (
        &["info float"],
        "the registers of the x87 unit are not shown; `info vector` shows those for vectors",
    ),
    (&["show"], "settings are few: `help` lists the `set` commands"),
    (
        &["forward-search", "fo", "reverse-search", "rev", "find"],
        "`search REGEX` finds functions and lines that ran; `x` shows memory",
    ),
    (
        &["skip", "info skip"],
        "no function is left out by `step`; `next`, `finish` and `advance LOCATION` pass calls",
    ),
    (
        &[
            "explore", "tstart", "tstop", "trace", "tp", "ftrace", "strace", "actions", "collect", "monitor",
            "mon",
        ],
        "nothing is traced live; `break` and `search` find what ran in the record",
    ),
];

/// What to say to a command of GDB; `None`: it is none of those. `second` is the word behind the first.
pub(super) fn instead(first: &str, second: &str, line: &str) -> Option<Error> {
    let both = format!("{first} {second}");
    let name = [first, &*both].into_iter().find_map(|name| {
        let row = FOREIGN.iter().find(|(names, _)| names.contains(&name))?;
        Some((name, row.1))
    });
    // `set x = 1` is an assignment.
    let assignment = || {
        let (_, what) = FOREIGN.iter().find(|(names, _)| names.contains(&"set var"))?;
        (first == "set" && line.contains('=')).then_some(("set", *what))
    };
    let (name, why) = name.or_else(assignment)?;
    Some(Error::Cannot(format!("no `{name}` here: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{commands, parse};

    #[test]
    fn none_of_them_is_a_command() {
        for (names, _) in FOREIGN {
            for name in *names {
                let known = commands().any(|command| command.name == *name || command.aliases.contains(name));
                assert!(!known, "{name}");
                let error = parse(name)
                    .map(|(command, _)| command.name)
                    .unwrap_err()
                    .to_string();
                assert!(error.starts_with("no `"), "{name}: {error}");
            }
        }
    }

    #[test]
    fn assignments_are_refused_and_settings_are_not() {
        assert!(parse("set x = 1").is_err_and(|error| error.to_string().contains("cannot be changed")));
        assert!(parse("set pagination off").is_ok());
        assert!(parse("set frobnicate").is_err());
    }
}
