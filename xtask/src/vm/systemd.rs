//! A complete system with Debian's systemd, for the units that `backtrail install` writes.
//!
//! Its files are Debian's packages, fetched with apt and unpacked into the target directory. They
//! are never installed, and no script of a package runs.

use super::archive::Archive;
use super::machine::{Machine, Start};
use super::{cannot, initramfs, kernel, output_of};
use crate::{Failure, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Its name on the command line, next to the kernels.
pub const NAME: &str = "systemd";
/// The kernel: that of the Debian whose systemd is tried first of all.
const SERIES: &str = "6.1";
/// A machine that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(480);
const SOURCES: &str = "tests/vm/systemd";

/// Its packages, without their dependencies.
const PACKAGES: &[&str] = &[
    "systemd",
    "systemd-coredump",
    "coreutils",
    "dash",
    "procps",
    "util-linux",
];
/// Needed by scripts of packages alone.
const LEFT_OUT: &[&str] = &["perl", "usrmerge", "debconf"];
/// Needed by people alone.
const UNREAD: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
];
/// Directories that are links into `usr`.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// Boots the system and runs the tests in it that begin as one of `only`; what failed.
pub fn run(folder: &Path, backtrail: &Path, only: &[&str]) -> Result<Vec<String>, Failure> {
    let begin = Instant::now();
    let folder = folder.join(NAME);
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, &error))?;
    shell::run(shell::cargo().args([
        "build",
        "--quiet",
        "--package",
        "backtrail-vm-systemd",
        "--package",
        "backtrail-hub",
    ]))?;
    let above = folder.parent().unwrap_or(&folder);
    let kernel = kernel::prepare(SERIES, above)?;
    let system = packages(&folder)?;
    let teller = folder.join("teller");
    output_of(
        Command::new("cc")
            .args(["-O1", "-g", "-fno-optimize-sibling-calls", "-o"])
            .arg(&teller)
            .arg(Path::new(SOURCES).join("teller.c")),
    )?;
    let disk = folder.join("system.cpio");
    let mut archive = Archive::new();
    settings(&mut archive, only);
    for (name, program) in [
        ("usr/bin/backtrail", backtrail),
        ("usr/bin/vm-systemd", &shell::target().join("debug/vm-systemd")),
        (
            "usr/bin/backtrail-hub",
            &shell::target().join("debug/backtrail-hub"),
        ),
    ] {
        archive.file(name, &initramfs::stripped(program, &disk)?);
    }
    archive.file("usr/bin/teller", &read(&teller)?);
    copy(&mut archive, &system, "")?;
    fs::write(&disk, archive.finish()).map_err(|error| cannot("write", &disk, &error))?;

    let machine = Machine::start(&Start {
        kernel: &kernel,
        archive: &disk,
        folder: &folder,
        name: NAME,
        words: &[],
        disk: None,
    })?;
    let report = machine.finish(LIMIT)?;
    for line in report.lines() {
        println!("    {line}");
    }
    println!(
        "systemd: {} tests, {:.0} s",
        report.planned().len(),
        begin.elapsed().as_secs_f64()
    );
    let failures = report.failures();
    Ok(failures
        .iter()
        .map(|failure| format!("systemd: {failure}"))
        .collect())
}

/// Adds the files of an installed system: its users, and the units that start at boot.
fn settings(archive: &mut Archive, only: &[&str]) {
    for folder in ["dev", "proc", "sys", "tmp", "run", "var/tmp", "root"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    for name in MERGED {
        archive.folder(&format!("usr/{name}"));
        archive.link(name, &format!("usr/{name}"));
    }
    archive.link("init", "usr/lib/systemd/systemd");
    for (path, text) in [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\n\
             backtrail:x:998:998::/nonexistent:/usr/sbin/nologin\n\
             bank:x:1001:1001::/nonexistent:/usr/sbin/nologin\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        ),
        (
            "etc/group",
            "root:x:0:\ntty:x:5:\nbacktrail:x:998:\nbank:x:1001:\nnogroup:x:65534:\n",
        ),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("etc/hostname", "machine\n"),
        ("etc/fstab", ""),
        ("only", &only.join("\n")),
        (
            "etc/systemd/system/tests.service",
            "[Unit]\nDescription=The tests\nFailureAction=reboot-force\n[Service]\nExecStart=/usr/bin/vm-systemd\n\
             StandardOutput=journal+console\nStandardError=journal+console\n",
        ),
    ] {
        archive.text(path, text.as_bytes());
    }
    let system = "etc/systemd/system";
    archive.link(
        &format!("{system}/multi-user.target.wants/tests.service"),
        "../tests.service",
    );
    // There is no login, and the serial lines have no device units, because udev makes them.
    archive.link(&format!("{system}/getty.target"), "/dev/null");
    archive.link(&format!("{system}/serial-getty@ttyS0.service"), "/dev/null");
}

/// The packages, unpacked: fetched once, as for a machine that has nothing yet.
fn packages(folder: &Path) -> Result<PathBuf, Failure> {
    let root = folder.join("system");
    if root.exists() {
        return Ok(root);
    }
    println!("systemd: fetching its packages.");
    let unfinished = folder.join("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(|error| cannot("remove", &unfinished, &error))?;
    }
    let (archives, status) = (unfinished.join("archives"), unfinished.join("status"));
    let partial = archives.join("partial");
    fs::create_dir_all(&partial).map_err(|error| cannot("make", &partial, &error))?;
    fs::write(&status, "").map_err(|error| cannot("write", &status, &error))?;
    shell::run(
        Command::new("apt-get")
            .args([
                "install",
                "--download-only",
                "--yes",
                "-qq",
                "--no-install-recommends",
            ])
            .args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"])
            .arg("-o")
            .arg(format!("Dir::State::status={}", status.display()))
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", archives.display()))
            .args(PACKAGES),
    )?;
    let tree = unfinished.join("tree");
    fs::create_dir_all(&tree).map_err(|error| cannot("make", &tree, &error))?;
    let entries = fs::read_dir(&archives).map_err(|error| cannot("read", &archives, &error))?;
    for package in entries.flatten() {
        let name = package.file_name().to_string_lossy().into_owned();
        if name.ends_with(".deb") && !LEFT_OUT.iter().any(|part| name.contains(part)) {
            output_of(Command::new("dpkg").arg("-x").arg(package.path()).arg(&tree))?;
        }
    }
    for name in UNREAD {
        // A package may have none.
        fs::remove_dir_all(tree.join(name)).ok();
    }
    fs::rename(&tree, &root).map_err(|error| cannot("make", &root, &error))?;
    fs::remove_dir_all(&unfinished).map_err(|error| cannot("remove", &unfinished, &error))?;
    Ok(root)
}

/// Adds the contents of `folder` in the tree `root`.
fn copy(archive: &mut Archive, root: &Path, folder: &str) -> Result<(), Failure> {
    let place = root.join(folder);
    let entries = fs::read_dir(&place).map_err(|error| cannot("read", &place, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| cannot("read", &place, &error))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = if folder.is_empty() {
            name
        } else {
            format!("{folder}/{name}")
        };
        let kind = entry
            .file_type()
            .map_err(|error| cannot("read", &entry.path(), &error))?;
        let inside = merged(&path);
        if kind.is_dir() {
            archive.folder(&inside);
            copy(archive, root, &path)?;
        } else if kind.is_symlink() {
            let target =
                fs::read_link(entry.path()).map_err(|error| cannot("read", &entry.path(), &error))?;
            if !MERGED.contains(&path.as_str()) {
                archive.link(&inside, &target.to_string_lossy());
            }
        } else if kind.is_file() {
            let content = read(&entry.path())?;
            if is_executable(&entry) {
                archive.file(&inside, &content);
            } else {
                archive.text(&inside, &content);
            }
        }
    }
    Ok(())
}

fn is_executable(entry: &fs::DirEntry) -> bool {
    use std::os::unix::fs::PermissionsExt;
    entry
        .metadata()
        .is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

/// Where a package's file is in a system whose `/bin` is `/usr/bin`.
fn merged(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    if MERGED.contains(&first) {
        format!("usr/{path}")
    } else {
        path.to_owned()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| cannot("read", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_root_directories_are_moved_to_usr() {
        assert_eq!(merged("bin/kill"), "usr/bin/kill");
        assert_eq!(merged("lib"), "usr/lib");
        assert_eq!(merged("libexec/x"), "libexec/x");
        assert_eq!(merged("usr/bin/x"), "usr/bin/x");
    }
}
