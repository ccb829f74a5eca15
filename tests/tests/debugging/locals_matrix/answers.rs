//! The variables of the frames of a core, in GDB and in Backtrail.

use super::builds::{Build, Source};
use super::cores::{Cores, run_gdb};
use backtrail_tests::backtrail::backtrail;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that runs inside GDB.
const SCRIPT: &str = include_str!("answers.py");
/// The number of frames that are compared of a core.
const FRAMES: usize = 6;

/// GDB's answers for a core.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// The thread that stopped.
    pub thread: u64,
    pub frames: Vec<GdbFrame>,
}

/// A frame of the program's source.
#[derive(Debug, Deserialize)]
pub struct GdbFrame {
    /// The number in the stack.
    pub number: usize,
    pub pc: u64,
    pub line: u64,
    pub function: String,
    /// The lines that begin where GDB's line of the instruction begins.
    pub beginning: Vec<u64>,
    /// The lines of declarations, by name.
    pub declared: BTreeMap<String, u64>,
    /// GDB's listing; `None` if it ended GDB.
    variables: Option<String>,
}

/// A variable, its value, and its type if it is known.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub text: String,
    pub ty: String,
}

/// A frame in Backtrail.
#[derive(Debug)]
pub struct OurFrame {
    pub pc: Option<u64>,
    pub line: Option<u64>,
    pub variables: Vec<Variable>,
}

impl GdbFrame {
    /// Returns the arguments and the locals, in order; `None` if they ended GDB.
    pub fn variables(&self) -> Option<Vec<Variable>> {
        let mut variables: Vec<Variable> = Vec::new();
        for line in self.variables.as_ref()?.lines() {
            match (line.split_once(" = "), variables.last_mut()) {
                _ if line.starts_with("No ") && line.ends_with('.') => {}
                (Some((name, text)), _) if !name.contains(['{', ' ']) => variables.push(Variable {
                    name: name.to_owned(),
                    text: text.to_owned(),
                    ty: String::new(),
                }),
                (_, Some(last)) => last.text = format!("{}\n{line}", last.text),
                (_, None) => panic!("{}: {line}", self.function),
            }
        }
        Some(variables)
    }
}

/// Returns the folder of the scripts that read values of Rust's standard library.
fn rust_scripts() -> PathBuf {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .unwrap();
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    sysroot.join("lib/rustlib/etc")
}

/// Returns the folder of Go's scripts for GDB.
fn go_scripts() -> PathBuf {
    let output = Command::new("go").args(["env", "GOROOT"]).output().unwrap();
    let root = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    root.join("src/runtime")
}

/// Returns GDB's answers for each core. GDB is started again after an internal error, and does not
/// list the variables of that frame.
pub fn by_gdb(build: &Build, executable: &Path, cores: &Cores) -> Vec<Answer> {
    let (path, current) = (cores.folder().join("answers"), cores.folder().join("current"));
    let read = || -> Vec<Answer> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    // Backtrail writes Go's structures as C's.
    let in_c: &[&str] = match build.source {
        Source::Go => &["language c"],
        _ => &[],
    };
    let scripts = match build.source {
        Source::Rust => Some(rust_scripts()),
        Source::Go => Some(go_scripts()),
        _ => None,
    };
    let mut failed: Vec<(usize, usize)> = Vec::new();
    loop {
        let answers = read();
        if answers.len() == cores.count {
            return answers;
        }
        let settings = json!({
            "source": build.source.file(),
            "first": answers.len(),
            "count": cores.count,
            "frames": FRAMES,
            "folder": cores.folder(),
            "answers": path,
            "current": current,
            "failed": failed,
            "settings": in_c,
            "language": format!("{:?}", build.source),
            "scripts": scripts,
        });
        let settings = ("LOCALS_ANSWERS", settings.to_string());
        let run = run_gdb(cores.folder(), "answers.py", SCRIPT, executable, settings);
        if read().len() < cores.count {
            let text = fs::read_to_string(&current).unwrap();
            let frame: (usize, usize) = serde_json::from_str(&text).unwrap();
            let again = failed.contains(&frame) || !run.contains("internal");
            assert!(!again, "{}: GDB failed: {run}", build.name());
            failed.push(frame);
        }
    }
}

/// Returns Backtrail's answers for the frames that GDB listed of a core.
pub fn ours(core: &Path, gdb: &Answer) -> Vec<OurFrame> {
    let mut commands = vec![format!("thread {}", gdb.thread)];
    for frame in &gdb.frames {
        commands.push(format!("frame {}", frame.number));
        commands.extend(["info args".to_owned(), "info locals".to_owned()]);
    }
    let mut arguments: Vec<OsString> = vec!["debug".into(), core.into(), "--batch".into(), "--json".into()];
    for command in &commands {
        arguments.extend(["-e".into(), command.into()]);
    }
    let run = backtrail(arguments).unwrap();
    let answers: Vec<Value> = run
        .stdout
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        answers.len(),
        commands.len(),
        "{}: {}",
        core.display(),
        run.stderr
    );
    answers[1..].chunks(3).map(our_frame).collect()
}

fn our_frame(answers: &[Value]) -> OurFrame {
    let [frame, parameters, locals] = answers else {
        panic!("{answers:?}")
    };
    let listed = |answer: &Value| {
        answer["result"]["variables"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let variables = [listed(parameters), listed(locals)].concat();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let variable = |variable: &Value| Variable {
        name: text(&variable["name"]),
        text: text(&variable["text"]),
        ty: text(&variable["type"]),
    };
    let frame = &frame["result"]["frame"];
    OurFrame {
        pc: frame["pc"].as_u64(),
        line: frame["line"].as_u64(),
        variables: variables.iter().map(variable).collect(),
    }
}
