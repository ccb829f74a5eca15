//! The same program in `backtrail debug`, with its whole recording.

use crate::gdb::judge::{TUNABLES, Trial};
use backtrail_tests::backtrail::command;
use backtrail_tests::bundle::Bundle;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A frame of our stack.
#[derive(Clone, Debug)]
pub struct Frame {
    pub pc: u64,
    /// The name without parameters.
    pub function: Option<String>,
    pub line: Option<u32>,
    pub inlined: bool,
    pub tail_caller: bool,
}

/// Our answer to a trial.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The index in the history, counted from the breakpoint in main.
    pub at: i64,
    /// The first error of its commands.
    pub error: Option<String>,
    pub frames: Vec<Frame>,
}

/// A recorded program.
pub struct Recording {
    bundle: Bundle,
    /// The index of the breakpoint in main within the history.
    main: i64,
    /// The address of every instruction after that, and the end of the history.
    pub path: Vec<u64>,
}

impl Recording {
    /// Records without address randomization, as GDB runs programs. `options` are those of
    /// `record`.
    pub fn of(executable: &Path, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle");
        let run = command()
            .unwrap()
            .args(["record", "--full", "--no-aslr"])
            .args(options)
            .arg("-o")
            .arg(&path)
            .arg("--")
            .arg(executable)
            .env(TUNABLES.0, TUNABLES.1)
            .output()
            .unwrap();
        assert!(path.join("trace.json").exists(), "{run:?}");
        let bundle = Bundle::in_folder(folder, path);
        let main = debug(&bundle, "first main\nx/i $pc\nwhen\n");
        let at = index(&main[0]).unwrap();
        let mut path = bundle.addresses().split_off(usize::try_from(at).unwrap());
        let end = debug(&bundle, "goto end\n");
        path.extend(end[0]["result"]["place"]["frame"]["pc"].as_u64());
        Self {
            bundle,
            main: at,
            path,
        }
    }

    /// Returns an answer for each trial. The start of a trial is an index counted from the
    /// breakpoint in main.
    pub fn answers(&self, plan: &[Trial]) -> Vec<Answer> {
        let mut script = String::new();
        for trial in plan {
            if let Some(from) = trial.from {
                script.push_str(&format!("delete\ngoto #{}\n", self.main + from as i64));
            }
            for command in &trial.commands {
                script.push_str(&format!("{command}\n"));
            }
            script.push_str("when\nbacktrace 300\n");
        }
        let mut results = debug(&self.bundle, &script).into_iter();
        let mut answers = Vec::new();
        for trial in plan {
            let before = if trial.from.is_some() { 2 } else { 0 };
            let mut results = results.by_ref().skip(before);
            let done: Vec<Value> = results.by_ref().take(trial.commands.len()).collect();
            let (when, stack) = (results.next().unwrap(), results.next().unwrap());
            let error = done.iter().find_map(|answer| answer["error"].as_str());
            answers.push(Answer {
                at: index(&when).unwrap() - self.main,
                error: error.map(str::to_owned),
                frames: stack["result"]["frames"]
                    .as_array()
                    .map(|frames| frames.iter().map(frame).collect())
                    .unwrap_or_default(),
            });
        }
        answers
    }

    /// Returns the known registers at positions, counted from the breakpoint in main.
    pub fn registers(&self, places: &[i64]) -> Vec<BTreeMap<String, u64>> {
        let asked = |place: &i64| format!("goto #{}\ninfo registers\n", self.main + place);
        let results = debug(&self.bundle, &places.iter().map(asked).collect::<String>());
        let of_place = |answers: &[Value]| {
            let registers = answers[1]["result"]["registers"].as_array().unwrap().iter();
            let known = registers.filter_map(|register| {
                Some((register["name"].as_str()?.to_owned(), register["value"].as_u64()?))
            });
            known.collect()
        };
        results.chunks(2).map(of_place).collect()
    }
}

fn frame(frame: &Value) -> Frame {
    Frame {
        pc: frame["pc"].as_u64().unwrap_or_default(),
        function: frame["function"].as_str().map(str::to_owned),
        line: frame["line"].as_u64().map(|line| line as u32),
        inlined: frame["inlined"] == true,
        tail_caller: frame["tail_caller"] == true,
    }
}

/// Returns the position after a move, or the answer of `when`.
fn index(answer: &Value) -> Option<i64> {
    let result = &answer["result"];
    let position = result["place"]["position"]
        .as_str()
        .or(result["position"].as_str())?;
    position.split_once('#')?.1.parse().ok()
}

fn debug(bundle: &Bundle, script: &str) -> Vec<Value> {
    let file = bundle.path.with_extension("commands");
    // GDB steps through libraries, too.
    std::fs::write(&file, format!("set just-my-code off\n{script}")).unwrap();
    let run = bundle.run(&["debug"], &["--batch", "--json", "-x", file.to_str().unwrap()]);
    let lines = run.stdout.lines().skip(2);
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}
