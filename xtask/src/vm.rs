//! `cargo xtask test-vm`: what this kind of machine cannot run, in virtual machines of Debian's packaged kernels.
//!
//! docs/vm.md says what it proves. A kernel is taken from its package, never installed; the machine is emulated in
//! software, so it needs no rights; its only disk is an archive in memory that is made here.

mod archive;
mod bundles;
mod initramfs;
mod kernel;
mod machine;
mod recordings;
mod report;
mod stand_in;
mod systemd;

use crate::{Failure, packages, shell};
use kernel::Kernel;
use recordings::Recording;
use report::Report;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
pub use systemd::NAME as SYSTEM;

/// The kernels to boot, by the beginning of their versions.
const SERIES: &[&str] = &["6.1", "6.12"];
/// A machine that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(240);

/// `cargo xtask test-vm [SERIES…]`: in these kernels, or in all; only tests whose names begin as one of `only`, or all.
/// `backtrail` is the program to try, which is built where none is given.
pub fn run(series: &[&str], only: &[&str], backtrail: Option<PathBuf>) -> Result<(), Failure> {
    let known = |name: &&&str| SERIES.contains(name) || **name == systemd::NAME;
    if let Some(unknown) = series.iter().find(|name| !known(name)) {
        return Err(format!(
            "no kernel '{unknown}' to test in; there are {}, and {} for a whole system",
            SERIES.join(" and "),
            systemd::NAME
        ));
    }
    // It takes longer than all else here, so it is run when it is named.
    let system = series.contains(&systemd::NAME);
    let kernels: Vec<&str> = match series {
        [] => SERIES.to_vec(),
        named => named
            .iter()
            .copied()
            .filter(|name| *name != systemd::NAME)
            .collect(),
    };
    packages::ensure(&[packages::BUILD, packages::VM])?;
    let folder = folder()?;
    let backtrail = product(backtrail)?;
    let mut failed = Vec::new();
    if system {
        failed.extend(systemd::run(&folder, &backtrail, only)?);
    }
    if kernels.is_empty() {
        return if failed.is_empty() {
            Ok(())
        } else {
            Err(failed.join("\n"))
        };
    }
    let programs = build(backtrail)?;
    let recordings = recordings::make(&folder, &programs.backtrail)?;
    for name in kernels {
        let begin = Instant::now();
        let kernel = kernel::prepare(name, &folder)?;
        let attempt = || -> Result<(Report, Vec<String>), Failure> {
            let report = boot(&kernel, &folder, &programs, &recordings, only)?;
            let bundles = folder.join(&kernel.release);
            let failures = bundles::judge(&report, &recordings, &programs.backtrail, &bundles)?;
            Ok((report, failures))
        };
        let (mut report, mut failures) = attempt()?;
        if !failures.is_empty() {
            // An emulated machine that stands still calibrates its clocks wrong: docs/vm.md.
            println!(
                "Linux {}, once more, for it failed: {}",
                kernel.release,
                failures.join("; ")
            );
            (report, failures) = attempt()?;
        }
        let release = &kernel.release;
        failed.extend(
            failures
                .iter()
                .map(|failure| format!("Linux {release}: {failure}")),
        );
        println!(
            "Linux {}: {} tests, {:.0} s",
            kernel.release,
            report.planned().len(),
            begin.elapsed().as_secs_f64()
        );
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}

/// What runs inside.
struct Programs {
    /// The first process of the machine, which runs the tests.
    init: PathBuf,
    backtrail: PathBuf,
    /// Tests of the collector that other kernels run in part only.
    suites: Vec<(String, PathBuf)>,
}

/// The collector's tests to run inside, by the names of their files.
const SUITES: &[&str] = &["probe"];

/// The program to try.
fn product(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given);
    }
    shell::run(shell::cargo().args(["build", "--quiet"]))?;
    Ok(shell::target().join("debug/backtrail"))
}

fn build(backtrail: PathBuf) -> Result<Programs, Failure> {
    shell::run(shell::cargo().args(["build", "--quiet", "--package", "backtrail-vm-init"]))?;
    let built = shell::target().join("debug");
    let suites = SUITES
        .iter()
        .map(|&name| Ok((format!("tests/{name}"), suite(name)?)))
        .collect::<Result<_, Failure>>()?;
    Ok(Programs {
        suites,
        init: built.join("vm-init"),
        backtrail,
    })
}

/// Builds tests of the collector, and finds where cargo has put them.
fn suite(name: &str) -> Result<PathBuf, Failure> {
    let text = output_of(
        shell::cargo()
            .args(["test", "--quiet", "--no-run", "--message-format=json"])
            .args(["--package", "backtrail-collector", "--test", name]),
    )?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| format!("cargo does not say where it has put the tests '{name}'"))
}

/// Where kernels, archives and what machines say are kept; as an absolute path.
fn folder() -> Result<PathBuf, Failure> {
    let folder = shell::target().join("vm");
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, &error))?;
    folder
        .canonicalize()
        .map_err(|error| cannot("find", &folder, &error))
}

fn boot(
    kernel: &Kernel,
    folder: &Path,
    programs: &Programs,
    recordings: &[Recording],
    only: &[&str],
) -> Result<Report, Failure> {
    let module = stand_in::build(kernel, folder)?;
    let disk = folder.join(format!("{}.cpio", kernel.release));
    let mut inside: Vec<(&str, &Path)> = vec![
        ("init", &programs.init),
        ("usr/bin/backtrail", &programs.backtrail),
        // What tests start.
        ("usr/bin/sleep", Path::new("/usr/bin/sleep")),
        ("usr/bin/unshare", Path::new("/usr/bin/unshare")),
        ("usr/bin/sh", Path::new("/usr/bin/sh")),
    ];
    inside.extend(
        programs
            .suites
            .iter()
            .map(|(name, path)| (name.as_str(), path.as_path())),
    );
    let contents = initramfs::Contents {
        programs: &inside,
        modules: &[("modules/intel_pt.ko", &module)],
        recordings,
        only,
    };
    initramfs::write(&contents, &disk)?;
    let report = machine::run(kernel, &disk, folder, LIMIT)?;
    for line in report.lines() {
        println!("    {line}");
    }
    Ok(report)
}

/// What the commands of a failed run printed belongs into the failure.
fn output_of(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{:?} failed: {}{}",
        command,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    format!("cannot {what} {}: {error}", path.display())
}
