//! `bench fdo`: Debian's lua as `-O2` builds it, rebuilt with a sample profile of a recording, and
//! then laid out again by BOLT.

use super::{folder, machine, sentence};
use crate::{Failure, shell};
use backtrail_tests::debian_source;
use nix::sys::resource::{UsageWho, getrusage};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const COMPILER: &str = "clang-19";
/// The folder with LLVM's programs. `perf2bolt` and `llvm-bolt` are one program, and its name
/// decides what it does.
const LLVM: &str = "/usr/lib/llvm-19/bin";
/// The scripts: the training run, and a program that was not trained.
const SCRIPTS: [(&str, &str, &str); 2] = [
    ("train.lua", "120", "the trained program"),
    ("measure.lua", "120", "another program"),
];
/// The number of times that all builds run, one after the other.
const ROUNDS: usize = 11;

/// The builds of lua, all in one folder.
struct Builds {
    folder: PathBuf,
    source: PathBuf,
    backtrail: PathBuf,
}

/// Builds, records, rebuilds and measures.
pub fn run(backtrail: &Path) -> Result<(), Failure> {
    let folder = folder("bench/fdo")?;
    let source = debian_source::unpacked("lua5.4", &folder)
        .ok_or("Debian's source of lua5.4 is needed; is there a network?")?;
    let builds = Builds {
        source: source.join("src"),
        folder,
        backtrail: backtrail.to_path_buf(),
    };
    builds.make()?;
    println!("{}", builds.measure()?);
    Ok(())
}

impl Builds {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Builds `base`, then `autofdo` with the lines of its recording, then `bolt` with the branches
    /// of a recording of `autofdo`.
    fn make(&self) -> Result<(), Failure> {
        // Debian's own header, which its rules write.
        let header = "#define DEB_HOST_MULTIARCH \"x86_64-linux-gnu\"\n";
        std::fs::write(self.path("lua5.4-deb-multiarch.h"), header)
            .map_err(|error| sentence("the header", &error))?;
        self.compile("base", &[])?;
        self.record("base")?;
        self.branches("base", "autofdo", "lua.prof")?;
        let profile = format!("-fprofile-sample-use={}", self.path("lua.prof").display());
        self.compile("autofdo", &[&profile])?;
        self.record("autofdo")?;
        self.branches("autofdo", "preagg", "lua.preagg")?;
        self.lay_out()
    }

    fn compile(&self, name: &str, flags: &[&str]) -> Result<(), Failure> {
        let mut files = Vec::new();
        let entries = std::fs::read_dir(&self.source).map_err(|error| sentence("the source", &error))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let is_c = path.extension().is_some_and(|extension| extension == "c");
            if is_c && path.file_name().is_some_and(|name| name != "luac.c") {
                files.push(path);
            }
        }
        files.sort();
        let mut command = Command::new(COMPILER);
        command
            .args([
                "-O2",
                "-g",
                "-fdebug-info-for-profiling",
                "-fno-pie",
                "-no-pie",
                "-w",
            ])
            .args(["-std=gnu99", "-DLUA_USE_LINUX", "-DLUA_COMPAT_5_3"])
            .args(["-Wl,-E", "-Wl,--emit-relocs", "-I"])
            .arg(&self.folder)
            .args(flags)
            .arg("-o")
            .arg(self.path(name))
            .args(files)
            .args(["-lm", "-ldl"]);
        quietly(&mut command)
    }

    /// Records the training run of a build.
    fn record(&self, build: &str) -> Result<(), Failure> {
        let bundle = self.path(&format!("{build}.bundle"));
        if bundle.exists() {
            std::fs::remove_dir_all(&bundle).map_err(|error| sentence("the bundle", &error))?;
        }
        let mut command = Command::new(&self.backtrail);
        command.args(["record", "--full", "-o"]).arg(bundle).arg("--");
        command.arg(self.path(build)).arg(script("train.lua"));
        quietly(&mut command)
    }

    /// Writes the branches of the recording of a build.
    fn branches(&self, build: &str, format: &str, output: &str) -> Result<(), Failure> {
        let mut command = Command::new(&self.backtrail);
        command.args(["fdo", "--overwrite", "--format", format, "-o"]);
        command.arg(self.path(output)).arg(self.path(build));
        command.arg(self.path(&format!("{build}.bundle")));
        shell::run(&mut command)
    }

    fn lay_out(&self) -> Result<(), Failure> {
        let mut convert = Command::new(Path::new(LLVM).join("perf2bolt"));
        convert.args(["--pa", "-p"]).arg(self.path("lua.preagg"));
        convert
            .arg("-o")
            .arg(self.path("lua.fdata"))
            .arg(self.path("autofdo"));
        quietly(&mut convert)?;
        let mut bolt = Command::new(Path::new(LLVM).join("llvm-bolt"));
        bolt.arg(self.path("autofdo")).arg("-o").arg(self.path("bolt"));
        bolt.arg("-data").arg(self.path("lua.fdata"));
        bolt.args(["-reorder-blocks=ext-tsp", "-reorder-functions=hfsort+"]);
        bolt.args(["-split-functions", "-split-all-cold", "-icf=1"]);
        quietly(&mut bolt)
    }

    /// Runs the builds in turn, and returns a table with the medians of their processor times.
    fn measure(&self) -> Result<String, Failure> {
        let names = ["base", "autofdo", "bolt"];
        let mut text = format!(
            "`cargo xtask bench fdo` on {}; load at the end {}. Medians of {ROUNDS} rounds of user time; each round \
             runs all builds. In parentheses: the median of the ratios to `-O2` of the same round.\n\n\
             | script | -O2 s | AutoFDO s | AutoFDO and BOLT s |\n|---|---:|---:|---:|\n",
            machine::line(),
            machine::load()
        );
        for (name, rounds, what) in SCRIPTS {
            let mut times = vec![Vec::new(); names.len()];
            for _ in 0..ROUNDS {
                for (build, times) in names.iter().zip(&mut times) {
                    times.push(user_time(&self.path(build), &script(name), rounds)?);
                }
            }
            let base = times.first().cloned().unwrap_or_default();
            let cells: Vec<String> = times
                .iter()
                .map(|times| {
                    let ratios = times.iter().zip(&base).map(|(time, base)| time / base).collect();
                    format!("{:.3} ({:.3})", median(times.clone()), median(ratios))
                })
                .collect();
            text.push_str(&format!("| {what} | {} |\n", cells.join(" | ")));
        }
        Ok(text)
    }
}

/// The path of a script.
fn script(name: &str) -> PathBuf {
    Path::new("tests/fixtures/fdo").join(name)
}

/// Runs a command, and shows its output only if it fails.
fn quietly(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| sentence(&program, &error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program} failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Returns the user time of a run in seconds.
fn user_time(lua: &Path, script: &Path, rounds: &str) -> Result<f64, Failure> {
    let used = || -> Result<f64, Failure> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| format!("getrusage: {error}"))?;
        let time = usage.user_time();
        Ok(time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
    };
    let before = used()?;
    let status = Command::new(lua)
        .arg(script)
        .arg(rounds)
        .stdout(Stdio::null())
        .status();
    let status = status.map_err(|error| sentence("lua", &error))?;
    match status.success() {
        true => Ok(used()? - before),
        false => Err(format!("{} failed: {status}", lua.display())),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
