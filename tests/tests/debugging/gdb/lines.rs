//! Command lines that users of GDB type. Answers are compared with GDB's on the same core where GDB
//! has one. The other answers are checked for their contents, or for the command to use instead.

use crate::gdb::judge;
use Check::{Gdb, Instead, Says};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use std::path::Path;
use std::process::Command;

/// The mark before each answer in GDB's output.
const MARK: &str = ">>> ";

/// How an answer is checked.
#[derive(Clone, Copy)]
enum Check {
    /// The answer equals GDB's.
    Gdb,
    /// The answer contains these texts.
    Says(&'static [&'static str]),
    /// The answer is an error that contains this text.
    Instead(&'static str),
}

/// Lines to type in this order, at the crash of `values`.
const LINES: &[(&str, Check)] = &[
    // Values, types and memory.
    ("p inner", Gdb),
    ("p/x counter", Gdb),
    ("p *list", Gdb),
    ("p list->at[0]@2", Gdb),
    ("p *list->at@2", Gdb),
    ("p*list->next", Gdb),
    ("p &list->at[1]", Gdb),
    ("p $rip", Gdb),
    ("p/x $sp", Gdb),
    ("p $", Gdb),
    ("p $_siginfo", Instead("$_siginfo")),
    ("p counter = 5", Instead("assignment is not possible")),
    ("p add(1, 2)", Instead("cannot be called")),
    ("output inner", Gdb),
    ("output/x counter", Gdb),
    (
        "printf \"%d %s|%5d|%-4x|%c%%\\n\", inner, list->name, counter, 255, 65",
        Gdb,
    ),
    ("printf \"%05d %u %#x %lu\\n\", -42, 7, 255, sizeof(table)", Gdb),
    ("echo hello\\n", Gdb),
    ("whatis list", Gdb),
    ("ptype struct point", Gdb),
    ("ptype list->at", Gdb),
    ("x/4xg $sp", Gdb),
    ("x/s buffer", Gdb),
    ("x/2dw table", Gdb),
    ("x/3i $pc", Gdb),
    ("set print pretty on", Says(&["one line for each member"])),
    ("p *list", Gdb),
    ("p list->at", Gdb),
    ("info locals", Gdb),
    ("set print pretty off", Says(&["one line"])),
    ("set print frame-arguments all", Says(&["all arguments"])),
    ("set print frame-arguments scalars", Says(&["scalar arguments"])),
    ("set print elements 4", Says(&["4 elements"])),
    ("p list->name", Gdb),
    ("p table", Gdb),
    ("set print elements 200", Says(&["200 elements"])),
    ("set print union off", Instead("`pretty on|off`")),
    ("p/x $xmm0", Says(&["$"])),
    ("p $xmm99", Instead("not a register")),
    ("info symbol main", Says(&["main of ", "values"])),
    ("info symbol $pc", Says(&["fall + ", " of "])),
    ("info symbol 8", Instead("no symbol covers 0x8")),
    ("i r rip", Says(&["rip            0x"])),
    ("info registers rip rsp", Says(&["rip  ", "rsp  "])),
    ("i r pc $xmm2", Says(&["rip            0x", "xmm2           0x"])),
    ("i r rip nosuch", Instead("no register nosuch")),
    ("info all-registers", Says(&["rax  ", "gs_base", "xmm15"])),
    ("info vector", Says(&["xmm0           0x"])),
    // The stack.
    ("bt", Says(&["#0  fall (", "#1  0x", " in enter (", " in main ("])),
    ("bt 1", Says(&["#0  fall ("])),
    ("bt -1", Says(&["_start"])),
    ("bt full 1", Says(&["#0  fall (", "        inner = 3"])),
    ("bt -full 1", Says(&["        inner = 3"])),
    ("where 2", Says(&["#1  0x"])),
    ("f 2", Says(&["#2  0x", " in main (", "return enter("])),
    ("info args", Gdb),
    ("i locals", Gdb),
    ("down", Says(&["#1  0x", " in enter ("])),
    ("i args", Gdb),
    ("i r rbp rbx", Says(&["rbp            0x", "rbx            0x"])),
    ("i r rax", Says(&["rax            <unknown: "])),
    ("up 1", Says(&["#2  0x"])),
    ("frame function enter", Says(&["#1  0x"])),
    (
        "frame function nobody",
        Instead("no frame of function \"nobody\""),
    ),
    ("frame level 0", Says(&["#0  fall ("])),
    ("info frame", Says(&["#0  fall ("])),
    ("f", Says(&["#0  fall ("])),
    // Source and code.
    ("l 10,12", Says(&["10\tstruct point {", "12\t"])),
    ("l values.c:40,", Says(&["40\t", "48\t"])),
    ("l ,20", Says(&["11\t", "20\t"])),
    ("l 12,10", Instead("is not a range")),
    ("l fall", Says(&["fall(node_t *list"])),
    ("l", Says(&["\t"])),
    ("l values.c:60", Says(&["55\t", "64\t"])),
    ("info line fall", Says(&["in fall at values.c:"])),
    ("info source", Says(&["values.c"])),
    ("disas", Says(&["Code of fall:", "=> 0x"])),
    (
        "disassemble /s add",
        Says(&["values.c:", "return a + b;", "<add+"]),
    ),
    ("disassemble /r add", Says(&["55 ", "push   %rbp"])),
    ("disas /q add", Instead("disassemble takes /s")),
    ("i functions ^fall$", Says(&["fall  values.c:"])),
    ("i sharedlibrary", Says(&["libc.so.6"])),
    // Displays and settings.
    ("display/i $pc", Says(&["1: x/i $pc", "=> 0x"])),
    ("display counter", Says(&["2: counter = "])),
    ("rsi", Says(&["1: x/i $pc", "2: counter = <unknown: "])),
    ("si", Says(&["The crash: SIGSEGV"])),
    ("undisplay 1", Says(&["1 expression is displayed"])),
    ("undisplay 2", Says(&["0 expressions are displayed"])),
    ("set pagination off", Says(&["without a pager"])),
    ("set confirm off", Says(&["has no effect"])),
    ("set width 0", Says(&["has no effect"])),
    ("set disassembly-flavor intel", Says(&["intel"])),
    ("x/i main", Says(&["push   rbp"])),
    ("set disassembly-flavor att", Says(&["att"])),
    // Breakpoints, back and forth.
    ("b fall", Says(&["Breakpoint 1: 0x", " in fall at values.c:"])),
    ("tb main", Says(&["Temporary breakpoint 2: 0x"])),
    (
        "b values.c:47",
        Says(&["Breakpoint 3: 0x", " in add at values.c:47"]),
    ),
    (
        "b fall if depth == 1",
        Says(&["Breakpoint 4: 0x", " in fall at values.c:57"]),
    ),
    ("condition 1 $hits > 0", Says(&["Breakpoint 1"])),
    ("condition 1", Says(&["Breakpoint 1"])),
    ("ignore 3 1", Says(&["Breakpoint 3"])),
    ("ignore 3 0", Says(&["Breakpoint 3"])),
    ("disable 1", Says(&["fall (disabled)"])),
    (
        "i b",
        Says(&["1   fall (disabled)", "2   main (temporary)", "3   values.c:47"]),
    ),
    ("rc", Says(&["Breakpoint 3, add ("])),
    ("fin", Says(&[" in fall ("])),
    ("rc", Says(&["Breakpoint 3, add ("])),
    ("enable", Says(&["1   fall  hit"])),
    ("reverse-continue", Says(&["Breakpoint 1, fall ("])),
    ("n 3", Says(&["fall ("])),
    ("rn", Says(&["fall ("])),
    ("until", Says(&["fall ("])),
    ("u", Says(&["fall ("])),
    ("s", Says(&["values.c:"])),
    ("rs 2", Says(&["values.c:"])),
    ("ni", Says(&["0x"])),
    ("rsi 5", Says(&["=> 0x"])),
    ("delete 3", Says(&["Deleted 3"])),
    ("c", Says(&["The crash: SIGSEGV"])),
    ("c 3", Says(&["The crash: SIGSEGV"])),
    ("rc", Says(&["Breakpoint 1, fall ("])),
    ("commands 1", Says(&[])),
    ("silent", Says(&[])),
    ("bt 1", Says(&[])),
    ("end", Says(&[])),
    ("goto crash", Says(&["fall ("])),
    ("rc", Says(&["#0  fall ("])),
    ("d", Says(&["Deleted all breakpoints"])),
    ("reverse-finish", Says(&[" in enter (", "call "])),
    ("advance fall", Says(&["fall ("])),
    ("until 65", Says(&["fall ("])),
    ("rbreak ^fall$", Says(&["fall  hit 0 times"])),
    ("tbreak", Says(&["Temporary breakpoint"])),
    ("delete breakpoints", Says(&["Deleted all breakpoints"])),
    // Threads.
    ("i threads", Says(&["* ", "\"values\""])),
    ("t 1", Says(&["fall ("])),
    ("t 2", Instead("no thread 2")),
    ("thread apply all bt 1", Says(&["Thread ", "#0  fall ("])),
    ("thread apply 1 bt 1", Says(&["Thread ", "#0  fall ("])),
    // Commands that a recording cannot support name an alternative.
    ("watch counter", Instead("record --values")),
    ("rwatch counter", Instead("record --values")),
    ("call add(1, 2)", Instead("`print`")),
    ("run", Instead("`goto start`")),
    ("r", Instead("`goto start`")),
    ("start", Instead("`goto start`")),
    ("kill", Instead("`quit`")),
    ("attach 1", Instead("`backtrail debug BUNDLE|CORE`")),
    ("jump 10", Instead("`goto POSITION`")),
    ("return", Instead("`goto POSITION`")),
    ("set var counter = 1", Instead("cannot be changed")),
    ("set counter = 1", Instead("cannot be changed")),
    ("handle SIGSEGV nostop", Instead("`crash`")),
    ("info signals", Instead("`crash`")),
    ("catch throw", Instead("__cxa_throw")),
    ("record full", Instead("record")),
    ("checkpoint", Instead("`bookmark NAME`")),
    ("shell ls", Instead("another terminal")),
    ("!ls", Instead("another terminal")),
    ("python print(1)", Instead("--json")),
    ("source file", Instead("`-x FILE`")),
    ("layout src", Instead("`list`")),
    ("info variables", Instead("`print NAME`")),
    ("info proc", Instead("`crash`")),
    ("show version", Instead("is not a setting")),
    ("frobnicate", Instead("undefined command")),
    ("help watch", Says(&["watch [-l] EXPR"])),
    ("help x", Says(&["x /[N]"])),
    ("help", Says(&["Forward", "Breakpoints"])),
    ("q", Says(&[])),
];

/// Returns the lines after each mark, without the numbers of values.
fn answers(transcript: &str, mark: &str) -> Vec<Vec<String>> {
    let mut answers: Vec<Vec<String>> = Vec::new();
    for line in transcript.lines() {
        let numbered = line.strip_prefix('$').and_then(|rest| rest.split_once(" = "));
        match (line.strip_prefix(mark), answers.last_mut(), numbered) {
            (Some(_), _, _) => answers.push(Vec::new()),
            (_, Some(lines), Some((number, value))) if number.parse::<u32>().is_ok() => {
                lines.push(format!("$ = {value}"));
            }
            (_, Some(lines), _) if !line.is_empty() => lines.push(line.trim_end().to_owned()),
            _ => {}
        }
    }
    answers
}

/// Returns GDB's answers. Frames are selected as in the whole list.
fn by_gdb(executable: &Path, core: &Path, asked: &[&str]) -> Vec<Vec<String>> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-iex", "set debuginfod enabled off"])
        .args(["-iex", "set auto-load safe-path /", "-ex"])
        .arg(format!("file {}", executable.display()))
        .arg("-ex")
        .arg(format!("core-file {}", core.display()));
    for command in asked {
        gdb.args(["-ex", &format!("echo \\n{MARK}\\n"), "-ex", command]);
    }
    answers(&String::from_utf8_lossy(&gdb.output().unwrap().stdout), MARK)
}

#[test]
fn lines_of_gdb_users_work() {
    if !judge::is_there() {
        return;
    }
    let (bundle, _) = Bundle::recorded(find("values").unwrap(), Variant::Pie, &["--full"]);
    let executable = backtrail_tests::built("values", Variant::Pie).unwrap();
    let asked: Vec<&str> = LINES.iter().map(|(command, _)| *command).collect();
    let mut options = vec!["--batch"];
    options.extend(asked.iter().flat_map(|command| ["-e", command]));
    let mut arguments = vec!["debug".as_ref(), bundle.path.as_os_str()];
    arguments.extend(options.iter().map(std::ffi::OsStr::new));
    // Refused lines make GDB exit with 1.
    let run = backtrail_tests::backtrail::backtrail(arguments)
        .unwrap()
        .exited(1);
    let ours = answers(&run.stdout, "(backtrail) ");
    assert_eq!(ours.len(), LINES.len(), "{}", run.stdout);
    let of_core: Vec<usize> = (0..LINES.len())
        .filter(|&at| matches!(LINES[at].1, Gdb) || selects_frame(LINES[at].0))
        .collect();
    let commands: Vec<&str> = of_core.iter().map(|&at| asked[at]).collect();
    let theirs = by_gdb(&executable, &bundle.path.join("core"), &commands);
    assert_eq!(theirs.len(), of_core.len());
    let mut wrong = Vec::new();
    for (at, (command, check)) in LINES.iter().enumerate() {
        let answer = &ours[at];
        let text = answer.join("\n");
        let right = match check {
            Gdb => {
                let their = &theirs[of_core.iter().position(|&other| other == at).unwrap()];
                if answer != their {
                    wrong.push(format!("{command}\n  ours:  {answer:?}\n  GDB's: {their:?}"));
                }
                continue;
            }
            Says(texts) => !text.starts_with("error: ") && texts.iter().all(|part| text.contains(part)),
            Instead(part) => text.starts_with("error: ") && text.contains(part) && answer.len() == 1,
        };
        if !right {
            wrong.push(format!("{command}\n  ours:  {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns whether GDB must run the command too.
fn selects_frame(command: &str) -> bool {
    let first = command.split(' ').next();
    let frame = matches!(first, Some("f" | "frame" | "up" | "down")) && !command.ends_with("nobody");
    frame || command.starts_with("set print pretty") || command.starts_with("set print elements")
}

#[test]
fn gdb_commands_support_json() {
    let (bundle, _) = Bundle::recorded(find("values").unwrap(), Variant::Pie, &["--full"]);
    let commands = [
        "bt full 1",
        "bt -1",
        "disassemble /s add",
        "b fall",
        "disable 1",
        "info symbol main",
        "printf \"%d\\n\", inner",
        "l 10,12",
        "display/i $pc",
    ];
    let mut options = vec!["--batch", "--json"];
    options.extend(commands.iter().flat_map(|command| ["-e", command]));
    let text = bundle.run(&["debug"], &options).stdout;
    let lines = text.lines().skip(1);
    let results: Vec<serde_json::Value> = lines
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["result"].take())
        .collect();
    let [
        full,
        outermost,
        code,
        _,
        disabled,
        symbol,
        printed,
        source,
        display,
    ] = &results[..]
    else {
        panic!("{text}")
    };
    assert_eq!(full["kind"], "full_backtrace");
    assert_eq!(full["frames"][0]["function"], "fall");
    assert_eq!(full["locals"][0][0]["name"], "inner");
    assert_eq!(full["locals"][0][0]["text"], "3");
    assert!(outermost["frames"][0]["number"].as_u64().unwrap() > 2);
    assert_eq!(outermost["frames"].as_array().unwrap().len(), 1);
    assert_eq!(code["lines"][0]["source"]["lines"][0], "{");
    assert_eq!(disabled["breakpoints"][0]["enabled"], false);
    assert!(symbol["text"].as_str().unwrap().starts_with("main of "));
    assert_eq!(printed["text"], "3\n");
    assert_eq!(source["lines"].as_array().unwrap().len(), 3);
    assert!(
        display["displays"][0]["value"]["text"]
            .as_str()
            .unwrap()
            .starts_with("=> 0x")
    );
}
