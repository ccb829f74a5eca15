//! `cargo xtask test-package`: installs the Debian packages in a bare Debian, runs the README's
//! example and a hub there, and removes the packages without a trace.

mod example;
mod hub;

use super::debian::DebianPackage;
use super::product::{self, Product};
use super::{cannot, folder, make, output_of};
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

/// Makes the packages, and tests the Debian packages.
pub fn test() -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD, packages::DIST, packages::ROOT])?;
    make()?;
    if shell::output("id", &["-u"]).as_deref() != Some("0\n") || !shell::in_path("debootstrap") {
        println!("skipped: a bare Debian needs root and debootstrap");
        return Ok(());
    }
    let root = Root::create()?;
    root.prepare()?;
    let before = files(&root.0)?;
    // Both at once, so that no file may be in both.
    root.dpkg("--install", |product| format!("/{WORK}/{}.deb", product.name))?;
    let used = root.use_them();
    root.dpkg("--remove", |product| product.name.to_owned())?;
    let removed = files(&root.0)?;
    let purging = root.dpkg("--purge", |product| product.name.to_owned())?;
    used?;
    hub::check_data(&root, &purging)?;
    let purged = files(&root.0)?;
    if let Some(other) = differences(&before, &removed).iter().find(|path| !is_kept(path)) {
        return Err(format!("removal leaves or changes {other}"));
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

/// Returns whether the removal of the packages may leave a path: configurations, dpkg's records of
/// them, and the data of the hub.
fn is_kept(path: &str) -> bool {
    let is_of = |product: &Product| {
        let name = product.name;
        is_in(&format!("etc/{name}"), path) || path.starts_with(&format!("var/lib/dpkg/info/{name}."))
    };
    is_in(hub::DATA, path) || product::ALL.into_iter().any(is_of)
}

/// Returns whether a path is a folder, or is inside of it.
fn is_in(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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

    /// Puts the packages and the README's program into the root directory.
    fn prepare(&self) -> Result<(), Failure> {
        let work = self.0.join(WORK);
        fs::create_dir_all(&work).map_err(|error| cannot("create", &work, &error))?;
        for product in product::ALL {
            let from = folder()?.join(DebianPackage::of_program(product).file());
            let to = work.join(format!("{}.deb", product.name));
            fs::copy(&from, to).map_err(|error| cannot("copy", &from, &error))?;
        }
        example::prepare(&work)
    }

    /// Runs dpkg with a word for each product, and returns its output.
    fn dpkg(&self, action: &str, word: impl Fn(&Product) -> String) -> Result<String, Failure> {
        let words = product::ALL.map(word);
        let mut command = vec!["dpkg", action];
        command.extend(words.iter().map(String::as_str));
        self.run(&command)
    }

    /// Checks the files of the packages, and runs the README's example and a hub.
    fn use_them(&self) -> Result<(), Failure> {
        let glibc = self.run(&["ldd", "--version"])?;
        let glibc = glibc.lines().next().unwrap_or_default();
        for product in product::ALL {
            let version = self.run(&[product.name, "--version"])?;
            println!("package: {} on {glibc}", version.trim());
        }
        for path in example::FILES.iter().chain(hub::FILES) {
            if !self.0.join(path).is_file() {
                return Err(format!("the packages have no {path}"));
            }
        }
        example::run(self)?;
        hub::run(self)
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
    fn source_is_a_release_of_debian() {
        let offered = "Other main http://a\nDebian x-updates http://b/debian\nDebian x http://c/debian\n";
        assert_eq!(source(offered), Some(("x", "http://c/debian")));
        assert_eq!(source("Ubuntu focal http://d\n"), None);
    }

    #[test]
    fn removal_keeps_configurations_and_data_only() {
        for path in [
            "etc/backtrail",
            "etc/backtrail/collect.toml",
            "etc/backtrail-hub/hub.toml",
            "var/lib/backtrail-hub/hub.db",
            "var/lib/dpkg/info/backtrail-hub.list",
        ] {
            assert!(is_kept(path), "{path}");
        }
        for path in [
            "etc/backtrail-other",
            "usr/bin/backtrail-hub",
            "var/lib/backtrail-hub-2",
            "var/spool/backtrail",
        ] {
            assert!(!is_kept(path), "{path}");
        }
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
