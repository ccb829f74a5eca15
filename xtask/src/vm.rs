//! `cargo xtask test-vm`: tests in virtual machines with Debian's packaged kernels.
//!
//! docs/vm.md describes the tests. A kernel is unpacked from its package, and never installed. The
//! machine is emulated in software, so it needs no privileges. Its first file system is an archive
//! in memory, and only machines that lose their power have a disk.

mod archive;
mod bundles;
mod initramfs;
mod kernel;
mod machine;
mod power;
mod recordings;
mod report;
mod stand_in;
mod systemd;

use crate::{Failure, packages, shell};
use kernel::Kernel;
use machine::{Machine, Start};
use recordings::Recording;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The kernels to boot, by the beginning of their versions.
const SERIES: &[&str] = &["6.1", "6.12"];
/// Modules that a kernel needs for a file system on a virtual disk.
const DISK: &[&str] = &["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];
/// A machine that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(360);

/// The power goes so often, once in the midst of a bundle and else at random moments.
const LOSSES: usize = 2;
/// The same, where time is no matter.
const MANY_LOSSES: usize = 12;

/// Options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmOptions<'a> {
    /// Kernels, by the beginning of their versions.
    pub series: Vec<&'a str>,
    /// A whole system under systemd too, which takes longer than all else here.
    pub system: bool,
    /// Only tests with this prefix.
    pub only: Option<&'a str>,
    /// How often the power goes.
    pub losses: usize,
}

impl<'a> VmOptions<'a> {
    /// All of it; with more of what is left to chance where `long`.
    pub fn all(long: bool) -> Self {
        Self {
            series: SERIES.to_vec(),
            system: long,
            only: None,
            losses: if long { MANY_LOSSES } else { LOSSES },
        }
    }

    /// `[SERIES…|systemd] [--only TEST] [--power-losses N]`.
    pub fn parse(words: &[&'a str]) -> Result<Self, Failure> {
        let mut options = Self::all(false);
        let mut series = Vec::new();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--only" => {
                    let test = words.next().ok_or("--only needs the prefix of test names")?;
                    options.only = Some(test);
                }
                "--power-losses" => {
                    let count = words.next().and_then(|count| count.parse().ok());
                    options.losses = count.ok_or("--power-losses needs a number")?;
                }
                systemd::NAME => options.system = true,
                name if SERIES.contains(&name) => series.push(name),
                unknown => {
                    return Err(format!(
                        "no kernel series '{unknown}': choose {}, or {}",
                        SERIES.join(" and "),
                        systemd::NAME
                    ));
                }
            }
        }
        if options.system || !series.is_empty() {
            options.series = series;
        }
        Ok(options)
    }

    /// Whether any test may run whose name begins with `group`.
    fn wants(&self, group: &str) -> bool {
        self.only
            .is_none_or(|only| only.starts_with(group) || group.starts_with(only))
    }
}

/// `cargo xtask test-vm`. `backtrail` is the program to try, which is built where none is given.
pub fn run(options: &VmOptions<'_>, backtrail: Option<PathBuf>) -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD, packages::VM])?;
    let folder = folder()?;
    let backtrail = product(backtrail)?;
    let mut failed = Vec::new();
    if options.system {
        failed.extend(systemd::run(&folder, &backtrail, options.only.as_slice())?);
    }
    if !options.series.is_empty() {
        failed.extend(in_kernels(options, &folder, backtrail)?);
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("\n"))
    }
}

/// The tests in each kernel; what failed.
fn in_kernels(options: &VmOptions<'_>, folder: &Path, backtrail: PathBuf) -> Result<Vec<String>, Failure> {
    let programs = build(backtrail)?;
    let recordings = recordings::make(folder, &programs.backtrail)?;
    let mut failed = Vec::new();
    for name in &options.series {
        let begin = Instant::now();
        let kernel = kernel::prepare(name, folder)?;
        let world = World {
            archive: archive(&kernel, folder, &programs, &recordings, options.only)?,
            kernel: &kernel,
            folder,
            programs: &programs,
            recordings: &recordings,
        };
        let mut failures = Vec::new();
        if options.only.is_none_or(|only| !only.starts_with(power::NAME)) {
            failures.extend(world.tests()?);
        }
        if options.wants(power::NAME) {
            failures.extend(world.power_losses(options.losses)?);
        }
        let (release, took) = (&kernel.release, begin.elapsed().as_secs_f64());
        println!("Linux {release}: {} failures, {took:.0} s", failures.len());
        failed.extend(
            failures
                .iter()
                .map(|failure| format!("Linux {release}: {failure}")),
        );
    }
    Ok(failed)
}

/// A kernel, and what it is booted with.
struct World<'a> {
    kernel: &'a Kernel,
    archive: PathBuf,
    folder: &'a Path,
    programs: &'a MachinePrograms,
    recordings: &'a [Recording],
}

impl World<'_> {
    /// Runs the tests in one machine; what failed.
    fn tests(&self) -> Result<Vec<String>, Failure> {
        let machine = Machine::start(&Start {
            kernel: self.kernel,
            archive: &self.archive,
            folder: self.folder,
            name: &self.kernel.release,
            words: &[],
            disk: None,
        })?;
        let report = machine.finish(LIMIT)?;
        for line in report.lines() {
            println!("    {line}");
        }
        let mut failures = report.failures();
        failures.extend(bundles::decode(
            &report,
            self.recordings,
            &self.programs.backtrail,
            &self.folder.join(&self.kernel.release),
        )?);
        Ok(failures)
    }

    /// Takes the power of some machines; what failed.
    fn power_losses(&self, losses: usize) -> Result<Vec<String>, Failure> {
        power::run(&power::Scene {
            kernel: self.kernel,
            archive: &self.archive,
            folder: self.folder,
            recordings: self.recordings,
            backtrail: &self.programs.backtrail,
            losses,
        })
    }
}

/// The contents of a machine.
struct MachinePrograms {
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

fn build(backtrail: PathBuf) -> Result<MachinePrograms, Failure> {
    shell::run(shell::cargo().args(["build", "--quiet", "--package", "backtrail-vm-init"]))?;
    let built = shell::target().join("debug");
    let suites = SUITES
        .iter()
        .map(|&name| Ok((format!("tests/{name}"), suite(name)?)))
        .collect::<Result<_, Failure>>()?;
    Ok(MachinePrograms {
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
        .ok_or_else(|| format!("cargo printed no path for the test program '{name}'"))
}

/// Where kernels, archives and what machines say are kept; as an absolute path.
fn folder() -> Result<PathBuf, Failure> {
    let folder = shell::target().join("vm");
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, &error))?;
    folder
        .canonicalize()
        .map_err(|error| cannot("find", &folder, &error))
}

/// Makes the archive that the machines of a kernel begin with.
fn archive(
    kernel: &Kernel,
    folder: &Path,
    programs: &MachinePrograms,
    recordings: &[Recording],
    only: Option<&str>,
) -> Result<PathBuf, Failure> {
    let stand_in = stand_in::build(kernel, folder)?;
    let stand_in = fs::read(&stand_in).map_err(|error| cannot("read", &stand_in, &error))?;
    let mut modules = vec![("modules/intel_pt.ko".to_owned(), stand_in)];
    // They are loaded in the order of their names.
    let disk = kernel.modules(DISK)?.into_iter().enumerate();
    modules.extend(disk.map(|(index, module)| (format!("modules/disk/{index:02}.ko"), module)));
    let mut inside: Vec<(&str, &Path)> = vec![
        ("init", &programs.init),
        ("usr/bin/backtrail", &programs.backtrail),
        // Programs that the tests start.
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
        modules: &modules,
        recordings,
        only,
    };
    let path = folder.join(format!("{}.cpio", kernel.release));
    initramfs::write(&contents, &path)?;
    Ok(path)
}

/// Adds the output of a failed run's commands to the failure.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        let all = VmOptions::parse(&[]).unwrap();
        assert_eq!(all, VmOptions::all(false));
        assert!(all.wants(power::NAME));
        let some = VmOptions::parse(&["6.12", "--only", "daemon/", "--power-losses", "9"]).unwrap();
        assert_eq!((some.series.as_slice(), some.losses), (["6.12"].as_slice(), 9));
        assert!(!some.wants(power::NAME));
        for wrong in [&["5.10"][..], &["--only"], &["--power-losses", "many"]] {
            assert!(VmOptions::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
