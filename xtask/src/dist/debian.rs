//! Debian packages (deb(5)): an `ar` archive with the version, the control files and the files.

use super::tree::{Tree, gzip};
use super::{GLIBC, VERSION, archive};
use crate::Failure;

/// A binary package.
pub struct DebianPackage {
    /// Its name.
    pub name: &'static str,
    /// Fields of its control file in addition to those of every package.
    fields: &'static str,
    /// The other package of the same version that it needs; without one, it needs glibc.
    needs: Option<&'static str>,
    /// Files that the administrator may change.
    configuration: &'static [&'static str],
    /// The scripts that run at its installation and removal.
    scripts: &'static [(&'static str, &'static str)],
}

/// The product.
pub const PRODUCT: DebianPackage = DebianPackage {
    name: "backtrail",
    fields: "\
Section: devel
Suggests: backtrail-dbgsym
Description: reverse debugger for crashes
 Backtrail shows what a program did before it crashed. It records control flow in
 software or imports Intel PT traces, and steps backward through the recorded run
 on any machine. A daemon saves the state of every process that crashes.
",
    needs: None,
    configuration: &["/etc/backtrail/collect.toml"],
    scripts: &[
        ("postinst", INSTALLED),
        ("prerm", BEFORE_REMOVAL),
        ("postrm", REMOVED),
    ],
};

/// Its debug information.
pub const DEBUG: DebianPackage = DebianPackage {
    name: "backtrail-dbgsym",
    fields: "\
Section: debug
Auto-Built-Package: debug-symbols
Description: debug symbols for backtrail
",
    needs: Some("backtrail"),
    configuration: &[],
    scripts: &[],
};

/// Restarts a collector that runs the old binary. A new installation starts none.
const INSTALLED: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ -n \"$2\" ]; then
        systemctl try-restart backtrail-collect.service || true
    fi
fi
";

/// Ends the collector while its binary can still restore `core_pattern`.
const BEFORE_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && command -v systemctl >/dev/null; then
    if [ -d /run/systemd/system ]; then
        systemctl stop backtrail-collect.service || true
    fi
    systemctl disable backtrail-collect.service >/dev/null 2>&1 || true
fi
";

/// Removes saved crashes when the package is purged.
const REMOVED: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ \"$1\" = purge ]; then
    rm -rf /var/spool/backtrail /run/backtrail
fi
";

/// Returns the package with the files of a tree.
pub fn package(package: &DebianPackage, tree: &Tree, time: u64) -> Result<Vec<u8>, Failure> {
    let mut control = Tree::default();
    control.add("control".to_owned(), 0o644, fields(package, tree).into_bytes());
    if !package.configuration.is_empty() {
        let list = package.configuration.join("\n") + "\n";
        control.add("conffiles".to_owned(), 0o644, list.into_bytes());
    }
    for (name, script) in package.scripts {
        control.add((*name).to_owned(), 0o755, script.as_bytes().to_vec());
    }
    // Debian 11 and RHEL's tools cannot read zstd here.
    let control = gzip(&archive::tar(&control, "./", time)?)?;
    let data = gzip(&archive::tar(tree, "./", time)?)?;
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in [
        ("debian-binary", b"2.0\n".as_slice()),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ] {
        let size = member.len();
        bytes.extend(format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 100_644).bytes());
        bytes.extend(member);
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    Ok(bytes)
}

/// Returns the control file.
fn fields(package: &DebianPackage, tree: &Tree) -> String {
    let (major, minor) = GLIBC;
    let needs = match package.needs {
        Some(other) => format!("{other} (= {VERSION})"),
        None => format!("libc6 (>= {major}.{minor})"),
    };
    format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: Backtrail contributors\n\
         Installed-Size: {}\nDepends: {needs}\nPriority: optional\n{}",
        package.name,
        tree.size().div_ceil(1024),
        package.fields
    )
}

#[cfg(test)]
mod tests {
    use super::super::output_of;
    use super::*;
    use std::process::Command;

    /// `dpkg-deb` reads what this module writes.
    #[test]
    fn dpkg_reads_the_package() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            println!("skipped: dpkg-deb is absent");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.deb");
        let mut tree = Tree::default();
        tree.add("usr/bin/backtrail".to_owned(), 0o755, vec![7; 3000]);
        tree.add(
            "etc/backtrail/collect.toml".to_owned(),
            0o644,
            b"# none\n".to_vec(),
        );
        std::fs::write(&path, package(&PRODUCT, &tree, 1000).unwrap()).unwrap();
        let dpkg = |option: &str| output_of(Command::new("dpkg-deb").arg(option).arg(&path)).unwrap();
        let fields = dpkg("--field");
        for field in [
            "Package: backtrail",
            "Depends: libc6 (>= 2.28)",
            "Installed-Size: 3",
            "Architecture: amd64",
        ] {
            assert!(fields.lines().any(|line| line == field), "{field}: {fields}");
        }
        let listed = dpkg("--contents");
        assert!(listed.contains("-rwxr-xr-x root/root      3000"), "{listed}");
        assert!(listed.contains("./etc/backtrail/collect.toml"), "{listed}");
        let control = dpkg("--info");
        for script in ["postinst", "prerm", "postrm", "conffiles"] {
            assert!(control.contains(script), "{control}");
        }
        // Equal input gives an equal package.
        assert_eq!(
            package(&PRODUCT, &tree, 9).unwrap(),
            package(&PRODUCT, &tree, 9).unwrap()
        );
    }

    #[test]
    fn scripts_are_valid_for_the_shell() {
        for (name, script) in PRODUCT.scripts {
            let checked = Command::new("sh").args(["-n", "-c", script]).status().unwrap();
            assert!(checked.success(), "{name}");
        }
    }
}
