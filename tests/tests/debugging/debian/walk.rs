//! A crashed program, and a walk through its recording.

use crate::gdb_answers::{by_gdb, ours};
use backtrail_tests::bundle::Bundle;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A command, and the texts that its answer must contain.
pub type Step = (&'static str, &'static [&'static str]);

/// The number and function of a frame.
pub type Frame = (String, String);

/// A recorded crash.
pub struct Crash {
    /// The recording.
    pub bundle: Bundle,
    /// The program, for GDB.
    pub executable: PathBuf,
}

impl Crash {
    /// Returns each command with its answer, from one session.
    #[track_caller]
    pub fn answers(&self, commands: &[&str]) -> Vec<String> {
        let transcript = self.bundle.debug(commands);
        let mut answers: Vec<String> = Vec::new();
        for line in transcript.split_inclusive('\n') {
            match (line.starts_with("(backtrail) "), answers.last_mut()) {
                (false, Some(answer)) => answer.push_str(line),
                _ => answers.push(line.to_owned()),
            }
        }
        assert_eq!(answers.len(), commands.len(), "{transcript}");
        answers
    }

    /// Runs the commands of a walk. Each answer must match, and none may fail.
    #[track_caller]
    pub fn walk(&self, steps: &[Step]) {
        // Other tests check the arguments of functions.
        let mut commands = vec!["set print frame-arguments none"];
        commands.extend(steps.iter().map(|(command, _)| *command));
        let answers = self.answers(&commands);
        let mut wrong = String::new();
        for ((_, wanted), answer) in steps.iter().zip(&answers[1..]) {
            let missing: Vec<&&str> = wanted.iter().filter(|part| !answer.contains(**part)).collect();
            if !missing.is_empty() {
                wrong += &format!("{answer}is without {missing:?}\n\n");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }

    /// Returns the results of commands, in order.
    #[track_caller]
    pub fn ask(&self, commands: &[&str]) -> Vec<Value> {
        let mut options = vec!["--batch", "--json"];
        options.extend(commands.iter().flat_map(|command| ["-e", command]));
        let text = self.bundle.run(&["debug"], &options).stdout;
        let answers = text.lines().skip(1).map(|line| {
            let mut answer: Value = serde_json::from_str(line).unwrap();
            assert_eq!(answer["ok"], true, "{line}");
            answer["result"].take()
        });
        answers.collect()
    }

    /// Checks that `back`, `count` times, and then `forth` pass the same positions, starting at
    /// `from`.
    #[track_caller]
    pub fn comes_back(&self, from: &str, back: &str, forth: &str, count: usize) {
        let mut commands = vec!["set just-my-code off", from];
        commands.extend(std::iter::repeat_n(back, count));
        commands.extend(std::iter::repeat_n(forth, count));
        let answers = self.ask(&commands);
        let positions: Vec<&str> = answers[1..]
            .iter()
            .map(|stop| stop["place"]["position"].as_str().unwrap())
            .collect();
        let (there, here) = positions.split_at(count + 1);
        let returned: Vec<&str> = there.iter().rev().skip(1).copied().collect();
        assert_eq!(here, returned, "{back} and {forth} from {from}: {there:?}");
        let different = there.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(different, "{back} stands still: {there:?}");
    }

    /// Checks the same with `reverse-next` and `next`, in the function of the last call of
    /// `callee`.
    #[track_caller]
    pub fn comes_back_over_calls(&self, callee: &str) {
        let last = format!("last {callee}");
        // The call is in the middle of its line.
        let moves = ["set just-my-code off", &last, "reverse-finish", "reverse-next"];
        let line = &self.ask(&moves)[3];
        let position = line["place"]["position"].as_str().unwrap();
        self.comes_back(&format!("goto {position}"), "reverse-next", "next", 10);
    }

    /// Returns the numbers and functions of the stack at the crash, innermost first. Frames that
    /// jumped to their callees are omitted, because they are not on the program's stack, which is
    /// all that GDB has. A function without a name is empty.
    #[track_caller]
    pub fn frames(&self) -> Vec<Frame> {
        let stack = &self.ask(&["backtrace"])[0];
        let named = |frame: &Value| {
            let function = frame["function"].as_str().unwrap_or_default();
            (frame["number"].to_string(), function.to_owned())
        };
        on_stack(stack).map(named).collect()
    }

    /// Returns GDB's frames on the same core, without the mark of a signal.
    pub fn gdb_frames(&self) -> Vec<Frame> {
        let stack = &by_gdb(&self.executable, &self.bundle, &["backtrace"])[0].1;
        let named = |line: &String| {
            let (number, frame) = line.strip_prefix('#')?.split_once(' ')?;
            let frame = frame.trim_start();
            let address = frame
                .starts_with("0x")
                .then(|| frame.split_once(" in "))
                .flatten();
            let frame = address.map_or(frame, |(_, name)| name);
            let function = frame.split(" (").next().filter(|name| *name != "??");
            Some((number.to_owned(), function.unwrap_or_default().to_owned()))
        };
        let frames = stack.iter().filter_map(named);
        frames
            .filter(|(_, function)| function != "<signal handler called>")
            .collect()
    }

    /// Checks that our stack agrees with GDB's, as far as GDB's goes.
    #[track_caller]
    pub fn stack_is_gdbs(&self) {
        let functions = |frames: Vec<Frame>| -> Vec<String> {
            frames.into_iter().map(|(_, function)| function).collect()
        };
        let (ours, theirs) = (functions(self.frames()), functions(self.gdb_frames()));
        assert!(theirs.len() > 3, "{theirs:?}");
        assert_eq!(ours.get(..theirs.len()), Some(&theirs[..]), "{ours:?}");
    }

    /// Checks the known arguments of our frames against GDB's.
    #[track_caller]
    pub fn arguments_are_gdbs(&self) {
        let stack = &self.ask(&["backtrace"])[0];
        let commands = ["disable pretty-printer", "backtrace"];
        let theirs = &by_gdb(&self.executable, &self.bundle, &commands)[1].1;
        let theirs: Vec<&String> = theirs
            .iter()
            .filter(|line| line.starts_with('#') && !line.contains("<signal handler called>"))
            .collect();
        let mut compared = 0;
        for (frame, theirs) in on_stack(stack).zip(theirs) {
            for argument in frame["arguments"].as_array().into_iter().flatten() {
                let Some(value) = argument["value"].as_str() else {
                    continue;
                };
                let name = argument["name"].as_str().unwrap();
                let is = |at_entry: &str, value: &str| theirs.contains(&format!("{name}{at_entry}={value}"));
                // GDB does not always find what the caller's call site states.
                if is("", "<optimized out>") {
                    continue;
                }
                assert!(
                    is("", value) || is("@entry", value),
                    "{name}={value} is in GDB: {theirs}"
                );
                compared += 1;
            }
        }
        assert!(compared > 5, "only {compared} arguments were compared");
    }

    /// Checks the known arguments and variables of the inner frames against GDB's.
    #[track_caller]
    pub fn variables_are_gdbs(&self, frames: usize) {
        let commands = |all: Vec<Frame>| -> Vec<String> {
            let numbers = all.into_iter().take(frames).map(|(number, _)| number);
            let each = |number| {
                [
                    format!("frame {number}"),
                    "info args".to_owned(),
                    "info locals".to_owned(),
                ]
            };
            numbers.flat_map(each).collect()
        };
        let (here, there) = (commands(self.frames()), commands(self.gdb_frames()));
        let here: Vec<&str> = here.iter().map(String::as_str).collect();
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        let ours = ours(&self.bundle, &here);
        let theirs = by_gdb(&self.executable, &self.bundle, &there);
        let mut compared = 0;
        for (at, ((command, ours), (_, theirs))) in ours.iter().zip(&theirs).enumerate() {
            let known =
                |line: &&String| line.contains(" = ") && !line.contains("<unknown") && !line.contains("= ?");
            for line in ours.iter().filter(known).filter(|_| command.starts_with("info")) {
                compared += 1;
                let name = ours_frame(&here, at);
                assert!(
                    theirs.contains(line),
                    "{command} of {name}: {line}\nof GDB: {theirs:#?}"
                );
            }
        }
        assert!(compared > frames, "only {compared} values were compared");
    }
}

/// Returns the frames of a stack, except those that jumped to their callees.
fn on_stack(stack: &Value) -> impl Iterator<Item = &Value> {
    let frames = stack["frames"].as_array().unwrap();
    // Inlined copies precede the function that contains them.
    let functions = frames.split_inclusive(|frame| frame["inlined"] == false);
    let real = functions.filter(|frames| frames.last().is_some_and(|frame| frame["tail_caller"] == false));
    real.flatten()
}

/// Returns the last `frame` command.
fn ours_frame<'a>(commands: &[&'a str], at: usize) -> &'a str {
    commands[at - at % 3]
}

/// Returns the path of a program or file if it exists, or prints that it is missing.
pub fn present(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    if !path.exists() {
        eprintln!("skipped: no {} on this machine", path.display());
    }
    path.exists().then_some(path)
}

/// Returns the folder of this test.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debugging/debian")
}
