//! The builds of the matrix.

use backtrail_tests::backtrail::repository;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The compilers for C and C++, and the options that they need for C++.
const COMPILERS: [(&str, &str, &[&str]); 3] = [
    ("gcc", "g++", &[]),
    // Without the option, clang omits types of the library that GDB needs.
    ("clang-16", "clang++-16", &["-fstandalone-debug"]),
    ("clang-19", "clang++-19", &["-fstandalone-debug"]),
];
/// Checks that compilers build in.
const SANITIZERS: [&str; 3] = ["-fsanitize=address", "-fsanitize=thread", "-fsanitize=undefined"];

/// A program of `tests/fixtures/locals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    C,
    Cpp,
    Rust,
    Go,
}

impl Source {
    /// Returns the name of the file.
    pub fn file(self) -> &'static str {
        match self {
            Self::C => "parcels.c",
            Self::Cpp => "routes.cpp",
            Self::Rust => "meals.rs",
            Self::Go => "meters.go",
        }
    }

    /// Returns the name of the main function in GDB.
    pub fn entry(self) -> &'static str {
        match self {
            Self::C | Self::Cpp => "main",
            Self::Rust => "meals::main",
            Self::Go => "main.main",
        }
    }

    /// Returns the number of lines.
    pub fn lines(self) -> usize {
        fs::read_to_string(self.path()).unwrap().lines().count()
    }

    /// Returns the text of a line.
    pub fn line(self, number: u64) -> String {
        let text = fs::read_to_string(self.path()).unwrap();
        let lines = text.lines().nth(number.saturating_sub(1) as usize);
        lines.unwrap_or_default().to_owned()
    }

    fn path(self) -> PathBuf {
        folder().join(self.file())
    }
}

/// A program, its compiler, and the options.
#[derive(Clone, Debug)]
pub struct Build {
    pub source: Source,
    compiler: &'static str,
    flags: Vec<&'static str>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/locals")
}

/// Returns the build that every run of the tests compares.
pub fn small() -> Build {
    Build {
        source: Source::C,
        compiler: "cc",
        flags: vec!["-O1"],
    }
}

/// Returns all builds.
pub fn all() -> Vec<Build> {
    let mut builds = Vec::new();
    let mut add = |source, compiler, flags: &[&'static str]| {
        builds.push(Build {
            source,
            compiler,
            flags: flags.to_vec(),
        });
    };
    for (c, cpp, options) in COMPILERS {
        for level in ["-O0", "-O1", "-O2"] {
            for dwarf in ["-gdwarf-4", "-gdwarf-5"] {
                add(Source::C, c, &[level, dwarf]);
                add(Source::Cpp, cpp, &[&[level, dwarf], options].concat());
            }
        }
        for (source, compiler) in [(Source::C, c), (Source::Cpp, cpp)] {
            for sanitizer in SANITIZERS {
                add(source, compiler, &["-O1", sanitizer]);
            }
        }
    }
    for level in ["-Copt-level=0", "-Copt-level=1", "-Copt-level=2"] {
        add(Source::Rust, "rustc", &[level, "-Cdwarf-version=5"]);
    }
    add(Source::Go, "go", &["-gcflags=-N -l"]);
    add(Source::Go, "go", &[]);
    builds
}

impl Build {
    /// Returns the name in messages.
    pub fn name(&self) -> String {
        let mut words = vec![self.source.file(), self.compiler];
        words.extend(&self.flags);
        words.join(" ")
    }

    /// Returns the folder of the program and its cores.
    pub fn folder(&self) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (self.name(), fs::read(self.source.path()).unwrap(), folder()).hash(&mut hasher);
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
        target
            .join("test-programs/locals")
            .join(format!("{:016x}", hasher.finish()))
    }

    /// Builds the program unless it was built from this source; `None` with a message if the
    /// compiler is not installed.
    pub fn executable(&self) -> Option<PathBuf> {
        let folder = self.folder();
        let executable = folder.join("program");
        if executable.exists() {
            return Some(executable);
        }
        fs::create_dir_all(&folder).unwrap();
        let unfinished = folder.join(format!("{}.program", std::process::id()));
        let output = match self.command(&unfinished).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("skipped: no {} on this machine", self.compiler);
                return None;
            }
            output => output.unwrap(),
        };
        let text = String::from_utf8_lossy(&output.stderr);
        let missing = ["libclang_rt", "cannot find -l"];
        if missing.iter().any(|missing| text.contains(missing)) {
            eprintln!("skipped: {} has no runtime of sanitizers", self.compiler);
            return None;
        }
        assert!(output.status.success(), "{}: {text}", self.name());
        fs::rename(&unfinished, &executable).unwrap();
        Some(executable)
    }

    fn command(&self, output: &Path) -> Command {
        let mut command = Command::new(self.compiler);
        match self.source {
            Source::C => command.args(["-g", "-Wl,--build-id=sha1"]),
            Source::Cpp => command.args(["-g", "-std=c++17", "-Wl,--build-id=sha1"]),
            Source::Rust => command
                .args(["--edition=2024", "-g", "-Ccodegen-units=1"])
                .arg("-Clink-arg=-Wl,--build-id=sha1"),
            Source::Go => command
                .arg("build")
                .env("GO111MODULE", "off")
                .env("CGO_ENABLED", "0"),
        };
        command
            .current_dir(folder())
            .args(&self.flags)
            .arg("-o")
            .arg(output)
            .arg(self.source.file());
        command
    }
}
