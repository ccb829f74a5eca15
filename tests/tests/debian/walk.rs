//! A program that crashed, and a walk through what was recorded of it.

use crate::support::Bundle;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A command, and what its answer must contain, each of these.
pub type Step = (&'static str, &'static [&'static str]);

/// A recorded crash.
pub struct Crash {
    /// What was recorded.
    pub bundle: Bundle,
    /// The program, for GDB.
    pub executable: PathBuf,
}

impl Crash {
    /// The answers to commands, each with its command, in one session.
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

    /// Each command of a walk is answered with what it must be, and none fails.
    #[track_caller]
    pub fn walk(&self, steps: &[Step]) {
        let commands: Vec<&str> = steps.iter().map(|(command, _)| *command).collect();
        let answers = self.answers(&commands);
        let mut wrong = String::new();
        for ((_, wanted), answer) in steps.iter().zip(&answers) {
            let missing: Vec<&&str> = wanted.iter().filter(|part| !answer.contains(**part)).collect();
            if !missing.is_empty() {
                wrong += &format!("{answer}is without {missing:?}\n\n");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }

    /// The results of commands, in order.
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

    /// From where `from` leads, `back` and then `forth` come through the same positions, so many of them.
    #[track_caller]
    pub fn comes_back(&self, from: &str, back: &str, forth: &str, count: usize) {
        let mut commands = vec![from];
        commands.extend(std::iter::repeat_n(back, count));
        commands.extend(std::iter::repeat_n(forth, count));
        let answers = self.ask(&commands);
        let positions: Vec<&str> = answers
            .iter()
            .map(|stop| stop["place"]["position"].as_str().unwrap())
            .collect();
        let (there, here) = positions.split_at(count + 1);
        let returned: Vec<&str> = there.iter().rev().skip(1).copied().collect();
        assert_eq!(here, returned, "{back} and {forth} from {from}: {there:?}");
        let different = there.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(different, "{back} stands still: {there:?}");
    }

    /// The functions of the stack at the crash, innermost first, without those that jumped to their callees: their frames
    /// are gone from the program's stack, which is all that GDB has. One without a name is empty.
    #[track_caller]
    pub fn functions(&self) -> Vec<String> {
        let stack = &self.ask(&["backtrace"])[0];
        let frames = stack["frames"].as_array().unwrap();
        // Inlined copies stand before the function that they are in.
        let functions = frames.split_inclusive(|frame| frame["inlined"] == false);
        let real =
            functions.filter(|frames| frames.last().is_some_and(|frame| frame["tail_caller"] == false));
        let name = |frame: &Value| frame["function"].as_str().unwrap_or_default().to_owned();
        real.flatten().map(name).collect()
    }
}

/// The path of a program or file, if it is there; says so if not.
pub fn present(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    if !path.exists() {
        eprintln!("skipped: no {} on this machine", path.display());
    }
    path.exists().then_some(path)
}

/// The folder of this test.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debian")
}
