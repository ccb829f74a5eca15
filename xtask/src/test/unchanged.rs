//! Test results that need no repetition: the inputs are those of a run that passed.
//!
//! A changed crate is linked into some test programs only. The others would repeat their results.
//! A first run in a clone, and `cargo xtask test-all`, run everything.

use super::programs::TestProgram;
use crate::{Failure, shell};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

/// The tests that passed, by name, with a hash of their inputs.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    file: PathBuf,
    inputs: BTreeMap<String, u64>,
}

impl Passed {
    /// Reads what earlier runs wrote to a file, in which each line has a hash and a name.
    pub fn read(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let parsed = |line: &str| {
            let (inputs, name) = line.split_once(' ')?;
            Some((name.to_owned(), u64::from_str_radix(inputs, 16).ok()?))
        };
        let inputs = text.lines().filter_map(parsed).collect();
        Self { file, inputs }
    }

    /// Returns whether a test passed with these inputs.
    pub fn contains(&self, name: &str, inputs: u64) -> bool {
        self.inputs.get(name) == Some(&inputs)
    }

    /// Notes how a test ended, and writes the file.
    pub fn note(&mut self, name: &str, inputs: u64, passed: bool) -> Result<(), Failure> {
        match passed {
            true => self.inputs.insert(name.to_owned(), inputs),
            false => self.inputs.remove(name),
        };
        let line = |(name, inputs): (&String, &u64)| format!("{inputs:016x} {name}\n");
        let text: String = self.inputs.iter().map(line).collect();
        fs::write(&self.file, text).map_err(|error| format!("cannot write {}: {error}", self.file.display()))
    }
}

/// The inputs of tests.
pub struct Inputs {
    /// Every file that is not compiled, and the system.
    surroundings: u64,
    /// The files of the repository, relative to its root.
    files: Vec<PathBuf>,
    packages: Packages,
}

impl Inputs {
    /// Reads the repository and the system.
    ///
    /// # Errors
    ///
    /// If git or cargo do not list the repository's files and packages.
    pub fn find() -> Result<Self, Failure> {
        let list = shell::output(
            "git",
            &["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        );
        let list = list.ok_or("git lists no files")?;
        let files: Vec<PathBuf> = list.split_terminator('\0').map(PathBuf::from).collect();
        let mut hasher = DefaultHasher::new();
        for file in files
            .iter()
            .filter(|file| !is_compiled(file) && !is_history(file))
        {
            hash_contents(&mut hasher, file);
        }
        // The versions of compilers, debuggers, libraries and the kernel.
        hash_contents(&mut hasher, Path::new("/var/lib/dpkg/status"));
        hash_contents(&mut hasher, Path::new("/proc/sys/kernel/osrelease"));
        Ok(Self {
            surroundings: hasher.finish(),
            files,
            packages: Packages::find()?,
        })
    }

    /// Hashes the inputs of a test program: itself, and the programs that it may run. The examples
    /// in documentation depend on all sources.
    pub fn of_program(&self, program: &TestProgram) -> u64 {
        if program.files().next().is_none() {
            let packages = self.packages.0.values();
            return self.of_folders(&packages.map(|package| package.folder.clone()).collect());
        }
        let mut hasher = self.hasher();
        program.files().for_each(|path| hash_state(&mut hasher, path));
        hasher.finish()
    }

    /// Hashes the sources of these packages and of all packages that they depend on, and of more
    /// folders.
    pub fn of_packages(&self, names: &[&str], more: &[&str]) -> u64 {
        let mut folders = self.packages.folders_below(names);
        folders.extend(more.iter().map(PathBuf::from));
        self.of_folders(&folders)
    }

    fn of_folders(&self, folders: &BTreeSet<PathBuf>) -> u64 {
        let mut hasher = self.hasher();
        let inside = |file: &&PathBuf| folders.iter().any(|folder| file.starts_with(folder));
        for file in self.files.iter().filter(inside) {
            hash_contents(&mut hasher, file);
        }
        hasher.finish()
    }

    fn hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        self.surroundings.hash(&mut hasher);
        hasher
    }
}

/// Returns whether cargo compiles a file into programs, whose states show a change.
fn is_compiled(file: &Path) -> bool {
    let folders = || {
        file.components()
            .filter_map(|component| component.as_os_str().to_str())
    };
    let fixture = folders().any(|folder| folder == "fixtures");
    let sources = folders().any(|folder| matches!(folder, "src" | "tests" | "examples"));
    file.extension().is_some_and(|extension| extension == "rs") && sources && !fixture
}

/// Returns whether a file only says what was done.
fn is_history(file: &Path) -> bool {
    file.starts_with("docs/log") || file == Path::new("CHANGELOG.md")
}

fn hash_contents(hasher: &mut DefaultHasher, file: &Path) {
    file.hash(hasher);
    fs::read(file).ok().hash(hasher);
}

/// A program that is built again has another time.
fn hash_state(hasher: &mut DefaultHasher, program: &Path) {
    program.hash(hasher);
    let state = fs::metadata(program).ok();
    state
        .map(|state| (state.len(), state.modified().ok()))
        .hash(hasher);
}

/// The packages of the workspace, by name.
struct Packages(BTreeMap<String, Package>);

struct Package {
    /// Relative to the repository's root.
    folder: PathBuf,
    /// The packages of the workspace that it depends on, except for its own tests.
    below: Vec<String>,
}

impl Packages {
    fn find() -> Result<Self, Failure> {
        let mut cargo = shell::cargo();
        cargo.args(["metadata", "--offline", "--no-deps", "--format-version", "1"]);
        let output = cargo
            .output()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        let metadata = serde_json::from_slice(&output.stdout);
        Ok(Self::parse(&metadata.map_err(|_| "cargo lists no packages")?))
    }

    fn parse(metadata: &Value) -> Self {
        let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default());
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let read = |package: &Value| {
            let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
            let below = list(&package["dependencies"])
                .iter()
                .filter(|one| one["path"].is_string() && one["kind"] != "dev")
                .filter_map(|one| one["name"].as_str().map(str::to_owned))
                .collect();
            let folder = folder.strip_prefix(root).unwrap_or(folder).to_owned();
            Some((package["name"].as_str()?.to_owned(), Package { folder, below }))
        };
        Self(list(&metadata["packages"]).iter().filter_map(read).collect())
    }

    fn folders_below(&self, names: &[&str]) -> BTreeSet<PathBuf> {
        let mut waiting: Vec<&str> = names.to_vec();
        let mut folders = BTreeSet::new();
        while let Some(package) = waiting.pop().and_then(|name| self.0.get(name)) {
            if folders.insert(package.folder.clone()) {
                waiting.extend(package.below.iter().map(String::as_str));
            }
        }
        folders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failed_test_has_not_passed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passed");
        let mut passed = Passed::read(file.clone());
        passed.note("examples in documentation", 7, true).unwrap();
        passed.note("pt/pt", u64::MAX, true).unwrap();
        let mut read = Passed::read(file.clone());
        assert_eq!(read, passed);
        assert!(read.contains("examples in documentation", 7));
        assert!(!read.contains("pt/pt", 7));
        read.note("pt/pt", 7, false).unwrap();
        assert!(!Passed::read(file.clone()).contains("pt/pt", u64::MAX));
        fs::write(&file, "no number\n\n1\n").unwrap();
        assert_eq!(Passed::read(file).inputs, BTreeMap::new());
    }

    #[test]
    fn sources_are_found_by_their_folders() {
        for compiled in [
            "pt/src/lib.rs",
            "tests/tests/debugging.rs",
            "pt/examples/decode.rs",
        ] {
            assert!(is_compiled(Path::new(compiled)), "{compiled}");
        }
        for read in [
            "tests/fixtures/programs/lets.rs",
            "docs/vm.md",
            "bpf/src/probe.bpf.c",
        ] {
            assert!(!is_compiled(Path::new(read)), "{read}");
        }
    }

    #[test]
    fn packages_below_a_package_are_its_inputs() {
        let package = |name: &str, below: &[&str]| {
            let below = below.iter().map(|name| json!({"name": name, "path": "/"}));
            let mut below: Vec<Value> = below.collect();
            below.push(json!({"name": "serde"}));
            below.push(json!({"name": "cli", "path": "/", "kind": "dev"}));
            json!({
                "name": name,
                "manifest_path": format!("/r/{name}/Cargo.toml"),
                "dependencies": below,
            })
        };
        let metadata = json!({
            "workspace_root": "/r",
            "packages": [package("cli", &["bundle"]), package("bundle", &["pt"]), package("pt", &[])],
        });
        let packages = Packages::parse(&metadata);
        let folders =
            |names: &[&str]| -> Vec<PathBuf> { packages.folders_below(names).into_iter().collect() };
        assert_eq!(folders(&["bundle"]), [Path::new("bundle"), Path::new("pt")]);
        assert_eq!(folders(&["pt"]), [Path::new("pt")]);
    }

    #[test]
    fn changed_programs_have_other_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let inputs = || {
            let mut hasher = DefaultHasher::new();
            hash_state(&mut hasher, &program);
            hasher.finish()
        };
        let missing = inputs();
        fs::write(&program, "1").unwrap();
        let first = inputs();
        assert_eq!(inputs(), first);
        fs::write(&program, "22").unwrap();
        assert!(inputs() != first && first != missing);
    }
}
