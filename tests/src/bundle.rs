//! Bundles that the binary under test writes, each in a temporary folder.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use crate::backtrail::{Run, backtrail};
use crate::captures::folder;
use crate::programs::{Program, Variant};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use tempfile::TempDir;

/// A bundle.
pub struct Bundle {
    _folder: TempDir,
    /// The path of the bundle.
    pub path: PathBuf,
}

impl Bundle {
    /// Runs `backtrail COMMAND... -o BUNDLE REST...`, and returns the bundle and the run.
    #[track_caller]
    pub fn made<S: AsRef<OsStr>>(command: &[S], rest: &[&OsStr]) -> (Self, Run) {
        let bundle = Self::empty();
        let mut arguments: Vec<OsString> = command.iter().map(|argument| argument.into()).collect();
        if arguments.first().is_some_and(|command| command == "record") {
            arguments.insert(1, "--exit-zero".into());
        }
        arguments.extend(["-o".into(), bundle.path.clone().into()]);
        arguments.extend(rest.iter().map(OsString::from));
        let run = backtrail(arguments).unwrap().exited(0);
        (bundle, run)
    }

    /// Returns a path for a bundle that is created by other means.
    pub fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle");
        Self {
            _folder: folder,
            path,
        }
    }

    /// Returns the bundle at `path`, which is removed with its folder.
    pub fn in_folder(folder: TempDir, path: PathBuf) -> Self {
        Self {
            _folder: folder,
            path,
        }
    }

    /// Records one run of a program.
    #[track_caller]
    pub fn recorded<S: AsRef<OsStr>>(program: &Program, variant: Variant, options: &[S]) -> (Self, Run) {
        let executable = crate::build(program, variant).unwrap();
        let mut command: Vec<&OsStr> = vec!["record".as_ref()];
        command.extend(options.iter().map(AsRef::as_ref));
        Self::made(&command, &["--".as_ref(), executable.as_ref()])
    }

    /// Returns the crash of 2018-04-04 that hase recorded of a program, with its core. `recording`
    /// is the name of the files. Returns `None` without the captures.
    pub fn of_hase(program: &str, recording: &str) -> Option<Self> {
        let folder = folder()?.join("pt/hase/20180404").join(program);
        let file = |extension: &str| folder.join(recording).with_extension(extension);
        let (data, core) = (file("perf"), file("coredump"));
        let import: [&OsStr; 5] = [
            "import".as_ref(),
            "perf".as_ref(),
            data.as_ref(),
            "--core".as_ref(),
            core.as_ref(),
        ];
        Some(Self::made(&import, &[]).0)
    }

    /// Runs `backtrail COMMAND... BUNDLE OPTIONS...`.
    #[track_caller]
    pub fn run(&self, command: &[&str], options: &[&str]) -> Run {
        let mut arguments: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        arguments.push(self.path.as_ref());
        arguments.extend(options.iter().map(OsStr::new));
        backtrail(arguments).unwrap().exited(0)
    }

    /// Returns the address of every decoded instruction.
    #[track_caller]
    pub fn addresses(&self) -> Vec<u64> {
        let dump = self.run(&["dump", "instructions"], &["--json"]);
        let address = |line: &str| {
            let value: Value = serde_json::from_str(line).ok()?;
            u64::from_str_radix(value["pc"].as_str()?.trim_start_matches("0x"), 16).ok()
        };
        dump.stdout.lines().filter_map(address).collect()
    }

    /// Returns the output of `info`.
    #[track_caller]
    pub fn info(&self) -> Value {
        serde_json::from_str(&self.run(&["info"], &["--json"]).stdout).unwrap()
    }

    /// Returns the debugger's JSON answer to each command, in order.
    #[track_caller]
    pub fn answers(&self, commands: &[&str]) -> Vec<Value> {
        let mut options = vec!["--batch", "--json"];
        options.extend(commands.iter().flat_map(|command| ["-e", command]));
        let mut arguments: Vec<&OsStr> = vec!["debug".as_ref(), self.path.as_ref()];
        arguments.extend(options.iter().map(OsStr::new));
        let run = backtrail(arguments).unwrap();
        // The status is 1 if a command failed. Its answer says why.
        assert!(matches!(run.status, Some(0 | 1)), "{}", run.stderr);
        let output = run.stdout;
        // The first line names the schema.
        let lines = output.lines().skip(1);
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the result of each command, in order. Every command must succeed.
    #[track_caller]
    pub fn results(&self, commands: &[&str]) -> Vec<Value> {
        let mut answers = self.answers(commands);
        for answer in &mut answers {
            assert_eq!(answer["ok"], true, "{answer}");
            *answer = answer["result"].take();
        }
        answers
    }

    /// Returns the transcript of debugger commands.
    #[track_caller]
    pub fn debug(&self, commands: &[&str]) -> String {
        let mut options = vec!["--batch"];
        options.extend(commands.iter().flat_map(|command| ["-e", command]));
        self.run(&["debug"], &options).stdout
    }
}
