//! Runs every command once on a crash that perf recorded with Intel PT, and prints a transcript.

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use std::ffi::OsStr;

/// Each command, at a position where it makes sense.
pub const COMMANDS: &[&str] = &[
    "crash",
    "when",
    "info threads",
    "info sharedlibrary",
    "info gaps",
    "info ptwrites",
    "info registers rip rsp rax",
    "info all-registers cs xmm2",
    "info vector",
    "backtrace",
    "up 2",
    "frame",
    "down",
    "info frame",
    "frame 2",
    "info locals",
    "info args",
    "print argc",
    "print $rsp",
    "whatis argc",
    "ptype struct __pthread",
    "x/2xg $rsp",
    "info line",
    "info source",
    "set substitute-path /nowhere /elsewhere",
    "reverse-finish",
    "display/i $pc",
    "info display",
    "reverse-stepi",
    "stepi",
    "undisplay 1",
    "reverse-step",
    "step",
    "reverse-next",
    "next",
    "reverse-nexti",
    "nexti",
    "bookmark before",
    "info bookmarks",
    "finish",
    "back",
    "forward",
    "goto before",
    "history 4",
    "break raise",
    "tbreak memcpy",
    "rbreak ^__block_",
    "condition 1 $hits > 0",
    "ignore 3 1",
    "commands 1",
    "silent",
    "calls --depth 2",
    "end",
    "info breakpoints",
    "goto start",
    "continue",
    "continue",
    "reverse-continue",
    "delete 3",
    "advance __syscall_ret",
    "reverse-advance raise",
    "first main",
    "last __syscall_ret",
    "run-to-call 1 of memcpy",
    "thread apply all when",
    "calls",
    "callers __syscall_ret",
    "count memcpy",
    "search ^__",
    "latency /^__/",
    "slowest /./ 3",
    "compare c7 c8",
    "timeline",
    "timeline memcpy --to crash --columns 40",
    "tbreak memcpy",
    "disable",
    "enable",
    "goto start",
    "until memcpy",
    "info symbol $pc",
    "set confirm off",
    "set pager off",
    "set print pretty on",
    "echo and\\n",
    "printf \"%d of %d\\n\", sizeof(int), sizeof(long)",
    "output sizeof(char)",
    "set scheduler-locking on",
    "skip -gfi *.h",
    "info skip",
    "set just-my-code off",
    "show",
    "set disassembly-flavor intel",
    "disassemble raise",
    "info functions ^__block",
    "help reverse-step",
    "quit",
];

/// Commands that need what the capture does not have: sources, and heap events.
pub const REFUSED: [&str; 2] = ["list", "info heap"];

#[test]
fn every_command_matches_the_transcript() {
    let Some(bundle) = Bundle::of_hase("control_flow", "control_flow-20180404T163033") else {
        return;
    };
    let transcript = bundle.debug(COMMANDS);
    let refused = REFUSED.map(|command| {
        let arguments = [
            OsStr::new("debug"),
            bundle.path.as_ref(),
            "--batch".as_ref(),
            "-e".as_ref(),
            command.as_ref(),
        ];
        backtrail(arguments).unwrap().exited(1).stdout
    });
    let transcript = transcript + &refused.concat();
    // The transcript hides the folders of the recording machine.
    let shown = |line: &str| match line.split_once("/home/") {
        Some((before, path)) => format!("{before}…/{}", path.rsplit('/').next().unwrap_or_default()),
        None => line.to_owned(),
    };
    insta::assert_snapshot!(transcript.lines().map(shown).collect::<Vec<_>>().join("\n"));
}
