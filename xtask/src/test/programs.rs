//! Test programs: built by one command of cargo, and run side by side.

use crate::{Failure, query, shell};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// Package and target, such as `backtrail-decoder/overlong`.
    pub name: String,
    /// The program; `None`: the examples of all documentation, which cargo runs.
    program: Option<PathBuf>,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
    /// Programs of its package that its tests may run.
    others: Vec<PathBuf>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// Whether all of its tests passed.
    pub passed: bool,
    /// The tests that failed; empty if it did not end by itself.
    pub failed: Vec<String>,
    /// How long it ran.
    pub time: Duration,
}

/// The package with tests of all other packages' programs.
const END_TO_END: &str = "backtrail-tests";

/// Builds the test programs of the workspace. End-to-end tests may run the `binaries`.
pub fn build(binaries: &[&Path]) -> Result<Vec<TestProgram>, Failure> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--workspace", "--exclude", query::PACKAGE, "--no-run"]);
    println!("$ cargo test --workspace --exclude {} --no-run", query::PACKAGE);
    let output = cargo
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("`cargo test --workspace --no-run` failed".to_owned());
    }
    let mut programs = parse(&String::from_utf8_lossy(&output.stdout));
    for program in &mut programs {
        if program.name.starts_with(END_TO_END) {
            program
                .others
                .extend(binaries.iter().map(|&path| path.to_owned()));
        }
    }
    programs.push(TestProgram {
        name: "examples in documentation".to_owned(),
        program: None,
        folder: ".".into(),
        others: Vec::new(),
    });
    Ok(programs)
}

/// Reads cargo's messages: an artifact with an executable of the test profile is a test program.
/// The other executables belong to the tests of their package, and to the end-to-end tests.
fn parse(messages: &str) -> Vec<TestProgram> {
    let executables: Vec<(String, bool, TestProgram)> = messages.lines().filter_map(executable).collect();
    let of = |package: &str| {
        let others = executables
            .iter()
            .filter(|(owner, is_test, _)| !is_test && (owner == package || package == END_TO_END));
        others.filter_map(|(_, _, other)| other.program.clone()).collect()
    };
    let tests = executables.iter().filter(|(_, is_test, _)| *is_test);
    tests
        .map(|(package, _, program)| TestProgram {
            others: of(package),
            ..program.clone()
        })
        .collect()
}

/// Reads a message of cargo. Returns the package of an executable, and whether it is a test.
fn executable(line: &str) -> Option<(String, bool, TestProgram)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let program = message["executable"].as_str()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = message["package_id"].as_str()?;
    // `path+file:///…/decoder#backtrail-decoder@0.1.0`; without a name that is the folder's.
    let package = package.rsplit_once('#').map_or(package, |(_, name)| name);
    let package = package.split('@').next().filter(|name| !name.contains('.'));
    let package = package.or_else(|| folder.file_name()?.to_str())?;
    let is_test = message["profile"]["test"] == true;
    let program = TestProgram {
        name: format!("{package}/{}", message["target"]["name"].as_str()?),
        program: Some(program.into()),
        folder: folder.to_owned(),
        others: Vec::new(),
    };
    Some((package.to_owned(), is_test, program))
}

impl TestProgram {
    /// Returns the program's file, and all programs that it may run. Documentation has none.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.program.iter().chain(&self.others).map(PathBuf::as_path)
    }

    /// A test program of a file alone.
    #[cfg(test)]
    pub fn of_file(name: &str, program: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: Some(program.into()),
            folder: "/".into(),
            others: Vec::new(),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => {
                let mut cargo = shell::cargo();
                cargo.args([
                    "test",
                    "--workspace",
                    "--exclude",
                    query::PACKAGE,
                    "--doc",
                    "--quiet",
                ]);
                return cargo;
            }
        };
        command.args(arguments).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Runs the programs, as many at a time as there are processors; those of `first` are begun first,
/// in that order. The output of each is printed when it has ended.
pub fn run(
    programs: Vec<TestProgram>,
    first: &[&str],
    arguments: &[&str],
    variables: &[(String, String)],
) -> Result<Vec<Ended>, Failure> {
    let rank = |program: &TestProgram| first.iter().position(|name| *name == program.name);
    let mut programs = programs;
    programs.sort_by_key(|program| rank(program).unwrap_or(first.len()));
    let waiting = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new(Vec::new());
    let printing = Mutex::new(());
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let work = || -> Result<(), Failure> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return Ok(()) };
            let began = Instant::now();
            let (passed, said) = run_one(&program, arguments, variables)?;
            let time = began.elapsed();
            let name = program.name;
            {
                let _printing = printing.lock().unwrap_or_else(PoisonError::into_inner);
                println!("     Running {name} ({:.1} s)\n{said}", time.as_secs_f64());
            }
            let failed = match passed {
                true => Vec::new(),
                false => failed_tests(&said),
            };
            let one = Ended {
                name,
                passed,
                failed,
                time,
            };
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            let lost = |_| Err("a test thread ended unexpectedly".to_owned());
            thread.join().unwrap_or_else(lost)
        })
    })?;
    Ok(ended.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a program. Returns whether it passed, and what it printed.
fn run_one(
    program: &TestProgram,
    arguments: &[&str],
    variables: &[(String, String)],
) -> Result<(bool, String), Failure> {
    let failed = |error: std::io::Error| format!("cannot run {}: {error}", program.name);
    let mut said = tempfile::tempfile().map_err(failed)?;
    let copy = |file: &File| file.try_clone().map_err(failed);
    let status = program
        .command(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(copy(&said)?)
        .stderr(copy(&said)?)
        .status()
        .map_err(failed)?;
    let mut text = Vec::new();
    said.rewind()
        .and_then(|()| said.read_to_end(&mut text))
        .map_err(failed)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    // A signal leaves no line of its own.
    if !status.success() {
        text.push_str(&format!("{} failed: {status}\n", program.name));
    }
    Ok((status.success(), text))
}

/// Returns the failed tests that a test program named in its list at the end of its output.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\ntest a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n\
        it said failures:\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed\n";

    #[test]
    fn failed_tests_are_those_of_the_last_list() {
        assert_eq!(failed_tests(OUTPUT), ["a::b", "c"]);
        assert!(failed_tests("test result: ok. 3 passed\n").is_empty());
        assert!(failed_tests("killed").is_empty());
    }

    #[test]
    fn test_programs_are_found_among_messages() {
        let messages = [
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/decoder#backtrail-decoder@0.1.0","manifest_path":"/x/decoder/Cargo.toml","target":{"name":"overlong"},"profile":{"test":true},"executable":"/x/target/overlong-1"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/xtask#0.1.0","manifest_path":"/x/xtask/Cargo.toml","target":{"name":"xtask"},"profile":{"test":true},"executable":"/x/target/xtask-1"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/decoder#backtrail-decoder@0.1.0","manifest_path":"/x/decoder/Cargo.toml","target":{"name":"decode"},"profile":{"test":false},"executable":"/x/target/decode"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/tests#backtrail-tests@0.1.0","manifest_path":"/x/tests/Cargo.toml","target":{"name":"traces"},"profile":{"test":true},"executable":"/x/target/traces-1"}"#,
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/cli#backtrail@0.1.0","manifest_path":"/x/cli/Cargo.toml","target":{"name":"backtrail"},"profile":{"test":false},"executable":"/x/target/backtrail"}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "no JSON",
        ];
        let found = parse(&messages.join("\n"));
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        let expected = [
            "backtrail-decoder/overlong",
            "xtask/xtask",
            "backtrail-tests/traces",
        ];
        assert_eq!(names, expected);
        assert_eq!(found[0].folder, Path::new("/x/decoder"));
        let files = |at: usize| -> Vec<&str> {
            let files = found[at].files();
            files.filter_map(Path::to_str).collect()
        };
        assert_eq!(files(0), ["/x/target/overlong-1", "/x/target/decode"]);
        assert_eq!(files(1), ["/x/target/xtask-1"]);
        assert_eq!(
            files(2),
            ["/x/target/traces-1", "/x/target/decode", "/x/target/backtrail"]
        );
    }

    #[test]
    fn failures_and_passes_are_distinguished() {
        let program = |name, program: &str| TestProgram::of_file(name, Path::new(program));
        let programs = vec![program("x/good", "/bin/true"), program("x/bad", "/bin/false")];
        let mut ended = run(programs, &["x/bad"], &[], &[]).unwrap();
        ended.sort_by(|one, other| one.name.cmp(&other.name));
        let results: Vec<_> = ended.iter().map(|one| (one.name.as_str(), one.passed)).collect();
        assert_eq!(results, [("x/bad", false), ("x/good", true)]);
        assert!(run(vec![program("x/none", "/no/such/file")], &[], &[], &[]).is_err());
    }
}
