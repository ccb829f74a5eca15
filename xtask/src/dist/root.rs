//! `cargo xtask test-package`: installs the Debian package in a bare Debian, runs the README's
//! example there, and removes the package without a trace.

use super::{build, cannot, folder, output_of, packages_of};
use crate::{Failure, packages, shell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest Debian that archives still have. Its glibc 2.31 is also that of Ubuntu 20.04.
const OLD: &str = "bullseye";
/// The folder of the test in the root directory.
const WORK: &str = "package-test";
/// dpkg's own records, which every installation and removal of any package changes.
const RECORDS: &[&str] = &[
    "var/lib/dpkg/available",
    "var/lib/dpkg/lock",
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/status",
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/triggers/Lock",
    "var/lib/dpkg/triggers/Unincorp",
    "var/log/dpkg.log",
];
/// Lines of the README's example. Addresses and times differ from run to run.
const EXPECTED: &[&str] = &[
    "#0  post (account=0x0, amount=-10) at ledger.c:64",
    " in end_of_day () at ledger.c:120",
    " in close_account at ledger.c:44",
    "Breakpoint 1, close_account (number=?) at ledger.c:44",
    " in settle () at ledger.c:75",
    "settle () at ledger.c:74",
    "22× →74\t    if (account->balance <= account->minimum)",
    " 2× 75\t        close_account(number);",
];

/// Makes the packages, and tests the Debian package.
pub fn test() -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD, packages::DIST, packages::ROOT])?;
    let made = packages_of(&build::binary()?)?;
    let package = made.first().ok_or("no package was made")?;
    if shell::output("id", &["-u"]).as_deref() != Some("0\n") || !shell::in_path("debootstrap") {
        println!("skipped: a bare Debian needs root and debootstrap");
        return Ok(());
    }
    let root = Root::create()?;
    root.prepare(package)?;
    let before = files(&root.0)?;
    root.run(&["dpkg", "--install", "/package-test/backtrail.deb"])?;
    let installed = root.use_it();
    root.run(&["dpkg", "--remove", "backtrail"])?;
    let removed = files(&root.0)?;
    root.run(&["dpkg", "--purge", "backtrail"])?;
    let purged = files(&root.0)?;
    installed?;
    let kept = differences(&before, &removed);
    let is_kept =
        |path: &str| path.starts_with("etc/backtrail") || path.starts_with("var/lib/dpkg/info/backtrail.");
    if let Some(other) = kept.iter().find(|path| !is_kept(path)) {
        return Err(format!("removal leaves {other}"));
    }
    let left = differences(&before, &purged);
    if !left.is_empty() {
        return Err(format!("purging leaves or changes {}", left.join(", ")));
    }
    println!(
        "package: installed, used and removed; {} files are as before",
        before.len()
    );
    root.remove()
}

/// The root directory of a bare Debian.
struct Root(PathBuf);

impl Root {
    /// Copies a bare Debian, which is fetched once.
    fn create() -> Result<Self, Failure> {
        let template = template()?;
        let root = Self(folder()?.join("root"));
        root.remove()?;
        output_of(Command::new("cp").arg("-a").args([&template, &root.0]))?;
        Ok(root)
    }

    fn remove(&self) -> Result<(), Failure> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(cannot("remove", &self.0, &error))
            }
            _ => Ok(()),
        }
    }

    /// Puts the package and the README's program into the root directory.
    ///
    /// The program is static: the bare Debian has no compiler, and its glibc may be older than the
    /// one here.
    fn prepare(&self, package: &Path) -> Result<(), Failure> {
        let work = self.0.join(WORK);
        fs::create_dir_all(&work).map_err(|error| cannot("create", &work, &error))?;
        for (from, name) in [
            (package, "backtrail.deb"),
            (Path::new("tests/fixtures/programs/ledger.c"), "ledger.c"),
        ] {
            fs::copy(from, work.join(name)).map_err(|error| cannot("copy", from, &error))?;
        }
        let map = format!("-ffile-prefix-map={}=/{WORK}", work.display());
        output_of(
            Command::new("cc")
                .args(["-g", "-Og", "-static", "-o", "ledger", "ledger.c", &map])
                .current_dir(&work),
        )?;
        Ok(())
    }

    /// Runs the README's example, and checks files that the package brings.
    fn use_it(&self) -> Result<(), Failure> {
        let version = self.run(&["backtrail", "--version"])?;
        let glibc = self.run(&["ldd", "--version"])?;
        println!(
            "package: {}on {}",
            version.replace('\n', " "),
            glibc.lines().next().unwrap_or_default()
        );
        for path in [
            "usr/share/man/man1/backtrail-record.1.gz",
            "usr/share/bash-completion/completions/backtrail",
            "usr/lib/systemd/system/backtrail-collect.service",
            "etc/backtrail/collect.toml",
        ] {
            if !self.0.join(path).is_file() {
                return Err(format!("the package has no {path}"));
            }
        }
        // The daemon's own check of its configuration.
        self.run(&[
            "backtrail",
            "collect",
            "--config",
            "/etc/backtrail/collect.toml",
            "--print-config",
        ])?;
        let recorded = self.run(&[
            "sh",
            "-c",
            "cd /package-test && backtrail record -o ledger.bundle -- ./ledger 2>&1",
        ])?;
        let mut debug = vec!["backtrail", "debug", "/package-test/ledger.bundle", "--batch"];
        let readme = fs::read_to_string("README.md")
            .map_err(|error| cannot("read", Path::new("README.md"), &error))?;
        for command in commands(&readme) {
            debug.extend(["-e", command]);
        }
        let shown = self.run(&debug)?;
        let missing = EXPECTED.iter().find(|line| !shown.contains(**line));
        match missing {
            Some(line) => Err(format!("the example does not print '{line}':\n{recorded}{shown}")),
            None if !recorded.contains("SIGSEGV killed the program") => Err(format!("no crash: {recorded}")),
            None => Ok(()),
        }
    }

    /// Runs a command in the root directory, with `/proc`, and returns its output.
    fn run(&self, command: &[&str]) -> Result<String, Failure> {
        // The mount is gone with the command.
        let script = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";
        output_of(
            Command::new("unshare")
                .args(["--mount", "--propagation", "private", "sh", "-c", script])
                .arg(&self.0)
                .args(command)
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    }
}

/// Returns the folder of a bare Debian: the oldest that can be had, or the one of this machine.
fn template() -> Result<PathBuf, Failure> {
    let template = folder()?.join("debian");
    if template.is_dir() {
        return Ok(template);
    }
    let offered = output_of(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(ORIGIN) $(CODENAME) $(SITE)",
        "Created-By: Packages",
    ]))?;
    let (own, site) =
        source(&offered).ok_or("apt has no source of Debian's packages; run `apt-get update`")?;
    let mut problem = String::new();
    for suite in [OLD, own] {
        let unfinished = folder()?.join("debian-unfinished");
        // A failed attempt leaves parts.
        let _ = fs::remove_dir_all(&unfinished);
        println!("package: fetching a bare Debian, {suite}.");
        let fetched = output_of(
            Command::new("debootstrap")
                .args(["--variant=minbase", suite])
                .arg(&unfinished)
                .arg(site),
        );
        match fetched {
            Ok(_) => {
                fs::rename(&unfinished, &template).map_err(|error| cannot("rename", &unfinished, &error))?;
                return Ok(template);
            }
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Reads the sources of apt: the name of this Debian, and the server that has it.
fn source(offered: &str) -> Option<(&str, &str)> {
    offered.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (origin, name, site) = (words.next()?, words.next()?, words.next()?);
        // Names with a dash are updates of a release.
        (origin == "Debian" && !name.contains('-')).then_some((name, site))
    })
}

/// Returns the debugger's commands in the README's example.
fn commands(readme: &str) -> Vec<&str> {
    readme
        .lines()
        .filter_map(|line| line.strip_prefix("    (backtrail) "))
        .collect()
}

/// Returns what is known of each file, by its path.
fn files(root: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    add(root, "", &mut found)?;
    Ok(found)
}

fn add(root: &Path, folder: &str, found: &mut BTreeMap<String, String>) -> Result<(), Failure> {
    let place = root.join(folder);
    let entries = fs::read_dir(&place).map_err(|error| cannot("read", &place, &error))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = match folder {
            "" => name,
            _ => format!("{folder}/{name}"),
        };
        if path == WORK || RECORDS.contains(&path.as_str()) {
            continue;
        }
        let seen = entry
            .metadata()
            .map_err(|error| cannot("read", &entry.path(), &error))?;
        let owner = format!("{:o} {}:{}", seen.mode(), seen.uid(), seen.gid());
        let state = match seen.is_dir() {
            // Its size and time change with its entries.
            true => owner,
            false => format!("{owner} {} {}.{}", seen.len(), seen.mtime(), seen.mtime_nsec()),
        };
        found.insert(path.clone(), state);
        if seen.is_dir() {
            add(root, &path, found)?;
        }
    }
    Ok(())
}

/// Returns the paths that are in one list only, or differ.
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut paths: Vec<String> = before
        .iter()
        .filter(|(path, state)| after.get(*path) != Some(state))
        .map(|(path, _)| path.clone())
        .collect();
    paths.extend(after.keys().filter(|path| !before.contains_key(*path)).cloned());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_has_commands_of_the_debugger() {
        let readme = include_str!("../../../README.md");
        let commands = commands(readme);
        assert!(commands.contains(&"break close_account"), "{commands:?}");
        assert_eq!(commands.last(), Some(&"list"));
    }

    #[test]
    fn source_is_a_release_of_debian() {
        let offered = "Other main http://a\nDebian x-updates http://b/debian\nDebian x http://c/debian\n";
        assert_eq!(source(offered), Some(("x", "http://c/debian")));
        assert_eq!(source("Ubuntu focal http://d\n"), None);
    }

    #[test]
    fn added_removed_and_changed_files_are_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("var/log")).unwrap();
        for name in ["same", "changed", "removed"] {
            fs::write(at(name), name).unwrap();
        }
        let before = files(root.path()).unwrap();
        assert_eq!(differences(&before, &files(root.path()).unwrap()), [""; 0]);
        fs::write(at("changed"), "other contents").unwrap();
        fs::remove_file(at("removed")).unwrap();
        fs::write(at("added"), "").unwrap();
        fs::write(at("var/log/dpkg.log"), "").unwrap();
        let after = files(root.path()).unwrap();
        assert_eq!(differences(&before, &after), ["changed", "removed", "added"]);
    }
}
