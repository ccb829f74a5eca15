//! An example of each command, for `help COMMAND`.

/// Commands with an example, and what the example does.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("step", "step 3", "three line starts forward"),
    ("next", "next", "the next line, over its calls"),
    ("stepi", "stepi 10", "ten instructions forward"),
    ("nexti", "nexti", "one instruction, over a call"),
    ("finish", "finish", "after the return of this function"),
    ("continue", "continue 2", "the second hit from here"),
    ("until", "until 42", "line 42 of this function, or its return"),
    ("advance", "advance ledger.c:42", "the next execution of the line"),
    (
        "reverse-step",
        "reverse-step",
        "the line before, also in a callee",
    ),
    (
        "reverse-next",
        "reverse-next 5",
        "five lines back, over their calls",
    ),
    ("reverse-stepi", "reverse-stepi 10", "ten instructions back"),
    (
        "reverse-nexti",
        "reverse-nexti",
        "one instruction back, over a call",
    ),
    ("reverse-finish", "reverse-finish", "the call of this function"),
    (
        "reverse-continue",
        "reverse-continue",
        "the hit before this position",
    ),
    (
        "reverse-advance",
        "reverse-advance main",
        "the last execution of main before",
    ),
    (
        "goto",
        "goto #-1000",
        "a thousand instructions before the end of the thread",
    ),
    ("when", "when", "where the session is"),
    ("back", "back", "the position before the last move"),
    ("forward", "forward", "undoes `back`"),
    (
        "bookmark",
        "bookmark before",
        "then `goto before` returns to this place",
    ),
    (
        "thread",
        "thread apply all backtrace",
        "the stacks of all threads",
    ),
    ("first", "first main", "where main began"),
    (
        "last",
        "last accounts[7]",
        "where the value was written that it has here",
    ),
    ("origin", "origin account->balance", "from where its value came"),
    (
        "watch",
        "watch accounts[7]",
        "`continue` and `reverse-continue` stop where it changes",
    ),
    ("rwatch", "rwatch total", "stops where total is read"),
    ("awatch", "awatch total", "stops where total is read or written"),
    (
        "info watchpoints",
        "info watchpoints",
        "the numbers of all watchpoints",
    ),
    ("run-to-call", "run-to-call 3 post", "the third call of post"),
    (
        "break",
        "break post if $duration > 5ms",
        "stops at slow calls of post only",
    ),
    ("tbreak", "tbreak ledger.c:42", "stops there once"),
    (
        "rbreak",
        "rbreak ^post_",
        "a breakpoint at each function whose name begins so",
    ),
    ("delete", "delete 2", "removes breakpoint 2"),
    ("disable", "disable 2", "breakpoint 2 stops no more"),
    ("enable", "enable 2", "breakpoint 2 stops again"),
    (
        "condition",
        "condition 2 $hits == 100",
        "breakpoint 2 stops at its 100th hit only",
    ),
    (
        "ignore",
        "ignore 2 99",
        "passes over the next 99 hits of breakpoint 2",
    ),
    ("commands", "commands 2", "then type commands, and `end`"),
    ("skip", "skip -gfi */third_party/*", "steps pass over these files"),
    ("info skip", "info skip", "the rules of `skip`"),
    (
        "info breakpoints",
        "info breakpoints",
        "all breakpoints with their hits",
    ),
    ("backtrace", "backtrace 5", "the five innermost frames"),
    ("frame", "frame function main", "selects the frame of main"),
    ("up", "up 2", "the caller of the caller"),
    ("down", "down", "the called frame"),
    (
        "list",
        "list --counts post",
        "the source of post, with executions of each line",
    ),
    (
        "disassemble",
        "disassemble /s post",
        "instructions of post, with source lines",
    ),
    ("x", "x/4gx $rsp", "four words of 8 bytes at the stack pointer"),
    ("print", "print/x account->balance", "a member in hexadecimal"),
    ("output", "output count", "the value alone, for scripts"),
    (
        "printf",
        "printf \"%d of %d\\n\", done, total",
        "two values in a sentence",
    ),
    ("echo", "echo here\\n", "a line of text"),
    (
        "info locals",
        "info locals",
        "the variables of the selected frame",
    ),
    ("info args", "info args", "the arguments of the selected frame"),
    ("ptype", "ptype account", "the members of its type"),
    ("whatis", "whatis account", "the name of its type"),
    ("display", "display count", "shows count after each move"),
    ("undisplay", "undisplay 1", "removes display 1"),
    ("info display", "info display", "the displayed expressions"),
    ("info registers", "info registers rip rsp", "two registers"),
    (
        "info all-registers",
        "info all-registers",
        "also vector registers",
    ),
    ("info vector", "info vector", "vector registers only"),
    ("info frame", "info frame 1", "details of the caller"),
    (
        "info symbol",
        "info symbol 0x401136",
        "the function that has the address",
    ),
    ("info line", "info line ledger.c:42", "the addresses of the line"),
    ("info source", "info source", "the file of this position"),
    (
        "crash",
        "crash full",
        "the first screen with all frames and calls",
    ),
    ("history", "history 50", "the last 50 lines before this position"),
    ("calls", "calls --depth 2", "the callees of this call, and theirs"),
    ("callers", "callers post", "the lines that called post"),
    ("count", "count ledger.c:42", "executions of the line"),
    (
        "search",
        "search ^post_",
        "executed functions whose name begins so",
    ),
    ("latency", "latency post", "percentiles of its calls"),
    (
        "slowest",
        "slowest post 5",
        "the five slowest calls, with positions",
    ),
    (
        "timeline",
        "timeline post --columns 80",
        "all threads, and when post ran",
    ),
    (
        "compare",
        "compare c12 c40",
        "what call 12 did that call 40 did not",
    ),
    ("info threads", "info threads", "all threads"),
    (
        "info sharedlibrary",
        "info sharedlibrary",
        "the modules and their symbols",
    ),
    ("info gaps", "info gaps", "what is missing in the history"),
    ("info ptwrites", "info ptwrites 5", "the last five values"),
    (
        "info functions",
        "info functions ^post",
        "functions whose name begins so",
    ),
    ("info bookmarks", "info bookmarks", "all bookmarks"),
    (
        "set substitute-path",
        "set substitute-path /build /home/me/src",
        "finds moved sources",
    ),
    (
        "set disassembly-flavor",
        "set disassembly-flavor intel",
        "Intel syntax",
    ),
    (
        "set scheduler-locking",
        "set scheduler-locking on",
        "`continue` keeps to this thread",
    ),
    ("set print", "set print pretty on", "one line for each member"),
    (
        "info heap",
        "info heap ptr",
        "who allocated and freed what lay there",
    ),
    (
        "set just-my-code",
        "set just-my-code off",
        "steps stop in library code too",
    ),
    (
        "show",
        "show just-my-code",
        "whether steps pass over library code",
    ),
    ("set pager", "set pager off", "prints long output without a pager"),
    ("set confirm", "set confirm off", "accepted for scripts of GDB"),
    ("help", "help break", "describes a command"),
    ("quit", "quit", "ends the session"),
];

/// Returns an example of a command, and what the example does.
pub(super) fn example(command: &str) -> Option<(&'static str, &'static str)> {
    let found = EXAMPLES.iter().find(|(name, _, _)| *name == command)?;
    Some((found.1, found.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{commands, parse};

    #[test]
    fn each_command_has_an_example_that_calls_it() {
        for command in commands() {
            let (line, text) = example(command.name).unwrap_or_else(|| panic!("{}", command.name));
            let (called, _) = parse(line).unwrap();
            assert_eq!(called.name, command.name, "{line}");
            assert!(!text.ends_with('.') && line.len() < 60, "{line}");
        }
        for (name, _, _) in EXAMPLES {
            assert!(commands().any(|command| command.name == *name), "{name}");
        }
    }
}
