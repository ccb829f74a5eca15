//! GDB commands that a recording does not support, each with a sentence that names the alternative.

use super::error::LineError;

/// GDB commands by all their names, with the reason and the alternative.
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (
        &["call"],
        "functions cannot be called in a recorded program; `print` shows values at the crash",
    ),
    (
        &["run", "r", "start", "starti"],
        "a recording cannot be run again; `goto start` goes to its beginning, `goto crash` to the crash",
    ),
    (
        &["kill", "k"],
        "this is a recording, and no program is running; `quit` ends the session",
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
        "a session has one recording; `backtrail debug BUNDLE|CORE` opens another",
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
        "a recorded program cannot be changed; `goto POSITION` moves in it, `print` shows values at the crash",
    ),
    (
        &["handle", "info signals", "info handle", "info sig", "info signal"],
        "signals were handled while recording; `crash` shows the signal that ended the program",
    ),
    (
        &["catch", "tcatch", "cat"],
        "break at the function instead, such as `break __cxa_throw` for C++ exceptions",
    ),
    (
        &["record", "rec", "info record"],
        "the whole session is a recording; `goto start|end|POSITION` moves in it, `info gaps` lists its gaps",
    ),
    (
        &["checkpoint", "restart", "info checkpoints"],
        "`bookmark NAME` names a position, and `goto NAME` returns to it",
    ),
    (
        &["shell", "!", "make", "pipe", "|"],
        "use another terminal for shell commands",
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
        "there is no scripting language; `--batch --json -x FILE` prints answers for scripts",
    ),
    (
        &["define", "document", "source", "alias", "macro"],
        "`-x FILE` and `-e COMMAND` on the command line run commands; `commands` binds some to a breakpoint",
    ),
    (
        &["tui", "layout", "focus", "fs", "winheight", "refresh", "edit"],
        "there is no text interface; `list` shows source, `disassemble /s` source and code",
    ),
    (
        &["generate-core-file", "gcore", "dump", "restore", "append"],
        "the core of the crash is the file BUNDLE/core",
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
        "`crash` shows how the program ended, `info threads` and `info sharedlibrary` list its threads and modules",
    ),
    (
        &["info float"],
        "x87 registers are not shown; `info vector` shows the vector registers",
    ),
    (
        &["forward-search", "fo", "reverse-search", "rev", "find"],
        "`search REGEX` finds functions and lines that ran; `x` shows memory",
    ),
    (
        &[
            "explore", "tstart", "tstop", "trace", "tp", "ftrace", "strace", "actions", "collect", "monitor",
            "mon",
        ],
        "`break` and `search` find executed code",
    ),
];

/// Returns the error for an unsupported GDB command; `None` if `first` is not one.
///
/// `second` is the word after `first`.
pub(super) fn instead(first: &str, second: &str, line: &str) -> Option<LineError> {
    let both = format!("{first} {second}");
    let name = [first, &*both].into_iter().find_map(|name| {
        let row = UNSUPPORTED.iter().find(|(names, _)| names.contains(&name))?;
        Some((name, row.1))
    });
    // `set x = 1` is an assignment.
    let assignment = || {
        let (_, what) = UNSUPPORTED.iter().find(|(names, _)| names.contains(&"set var"))?;
        (first == "set" && line.contains('=')).then_some(("set", *what))
    };
    let (name, why) = name.or_else(assignment)?;
    Some(LineError::Unsupported {
        name: name.to_owned(),
        reason: why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{commands, parse};

    #[test]
    fn none_of_them_is_a_command() {
        for (names, _) in UNSUPPORTED {
            for name in *names {
                let known = commands().any(|command| command.name == *name || command.aliases.contains(name));
                assert!(!known, "{name}");
                let error = parse(name)
                    .map(|(command, _)| command.name)
                    .unwrap_err()
                    .to_string();
                assert!(error.contains("` is not supported: "), "{name}: {error}");
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
