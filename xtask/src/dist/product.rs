//! The programs that have packages, and the differences between these packages.

use super::{GLIBC, folder, glibc, split};
use crate::Failure;
use std::path::{Path, PathBuf};

/// A program with packages of its own.
#[derive(Debug)]
pub struct Product {
    /// The name of its cargo package, of its binary, and of its packages.
    pub name: &'static str,
    /// Its documents: files of the repository, and their names in the package.
    pub documents: &'static [(&'static str, &'static str)],
    /// The contents of its file `copyright`.
    pub copyright: &'static str,
    /// A program that the packages contain if it was built.
    pub optional: Option<OptionalProgram>,
    /// Fields of Debian's control file in addition to those of every package.
    pub fields: &'static str,
    /// Files that the administrator may change.
    pub configuration: &'static [&'static str],
    /// The scripts that run at the installation and removal of the Debian package.
    pub scripts: &'static [(&'static str, &'static str)],
}

/// A program that takes long to build, so that packages may lack it.
#[derive(Debug)]
pub struct OptionalProgram {
    /// The name of its cargo package and of its binary.
    pub name: &'static str,
    /// The environment variable that has the path of the binary.
    variable: &'static str,
}

/// All products.
pub const ALL: [&Product; 2] = [&BACKTRAIL, &HUB];

/// The debugger, the recorder and the collector.
pub const BACKTRAIL: Product = Product {
    name: "backtrail",
    documents: &[
        ("README.md", "README.md"),
        ("CHANGELOG.md", "changelog"),
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
    ],
    copyright: "\
Backtrail is licensed under MIT or Apache-2.0, at your choice. The texts are in LICENSE-MIT and
LICENSE-APACHE beside this file. The eBPF programs inside the binary are also licensed under
GPL-2.0. THIRD-PARTY.txt has the licenses of all libraries that are linked into the binary.
",
    optional: None,
    fields: "\
Section: devel
Suggests: backtrail-dbgsym
Description: reverse debugger for crashes
 Backtrail shows what a program did before it crashed. It records control flow in
 software or imports Intel PT traces, and steps backward through the recorded run
 on any machine. A daemon saves the state of every process that crashes.
",
    configuration: &["/etc/backtrail/collect.toml"],
    scripts: &[
        ("postinst", COLLECTOR_INSTALLED),
        ("prerm", BEFORE_COLLECTOR_REMOVAL),
        ("postrm", COLLECTOR_REMOVED),
    ],
};

/// The server of a team.
pub const HUB: Product = Product {
    name: "backtrail-hub",
    documents: &[
        ("docs/hub.md", "hub.md"),
        ("docs/hub-operations.md", "hub-operations.md"),
        ("CHANGELOG.md", "changelog"),
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
    ],
    copyright: "\
Backtrail is licensed under MIT or Apache-2.0, at your choice. The texts are in LICENSE-MIT and
LICENSE-APACHE beside this file. THIRD-PARTY.txt has the licenses of all libraries that are linked
into the programs of this package.
",
    optional: Some(OptionalProgram {
        name: "backtrail-query",
        variable: "BACKTRAIL_QUERY_BIN",
    }),
    fields: "\
Section: net
Recommends: ca-certificates
Suggests: backtrail-hub-dbgsym
Description: server for the crashes and profiles of a fleet
 The hub of Backtrail takes crash reports, recordings and profiles from many hosts.
 It groups crashes, shows them on pages with links into the debugger, sends alerts,
 and serves symbols. It needs no other service.
",
    configuration: &["/etc/backtrail-hub/hub.toml"],
    scripts: &[
        ("postinst", HUB_INSTALLED),
        ("prerm", BEFORE_HUB_REMOVAL),
        ("postrm", HUB_REMOVED),
    ],
};

/// Restarts a collector that runs the old binary. A new installation starts none.
const COLLECTOR_INSTALLED: &str = "\
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
const BEFORE_COLLECTOR_REMOVAL: &str = "\
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
const COLLECTOR_REMOVED: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ \"$1\" = purge ]; then
    rm -rf /var/spool/backtrail /run/backtrail
fi
";

/// Restarts a hub that runs the old binary. A new installation starts none.
const HUB_INSTALLED: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ -n \"$2\" ]; then
        systemctl try-restart backtrail-hub.service || true
    fi
fi
";

/// Ends the hub while its unit exists.
const BEFORE_HUB_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && command -v systemctl >/dev/null; then
    if [ -d /run/systemd/system ]; then
        systemctl stop backtrail-hub.service || true
    fi
    systemctl disable backtrail-hub.service >/dev/null 2>&1 || true
fi
";

/// Removes the configuration when the package is purged. A team's crashes and profiles have no
/// other copy, so they stay. For a user that exists while the hub runs, systemd keeps them in
/// `/var/lib/private`.
const HUB_REMOVED: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ \"$1\" = purge ]; then
    rm -rf /etc/backtrail-hub
    if [ -e /var/lib/backtrail-hub ] || [ -e /var/lib/private/backtrail-hub ]; then
        echo \"The crashes and profiles of the hub remain in /var/lib/backtrail-hub\" \\
            \"until you run: rm -rf /var/lib/backtrail-hub /var/lib/private/backtrail-hub\"
    fi
fi
";

impl OptionalProgram {
    /// Checks and strips the program, if the variable names a file. Returns the stripped one.
    pub fn find(&self) -> Result<Option<PathBuf>, Failure> {
        let named = std::env::var_os(self.variable).map(PathBuf::from);
        self.stripped(named.as_deref(), &folder()?)
    }

    /// Checks a program, and strips it into a folder. Returns `None` if there is no such file.
    fn stripped(&self, program: Option<&Path>, folder: &Path) -> Result<Option<PathBuf>, Failure> {
        let Some(program) = program.filter(|program| program.is_file()) else {
            println!(
                "dist: {} is left out, because {} names no file",
                self.name, self.variable
            );
            return Ok(None);
        };
        glibc::check(program, GLIBC)?;
        let stripped = folder.join(self.name);
        split::strip(program, &stripped)?;
        Ok(Some(stripped))
    }
}

#[cfg(test)]
mod tests {
    use super::super::output_of;
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn scripts_are_valid_for_the_shell() {
        for product in ALL {
            for (name, script) in product.scripts {
                let checked = Command::new("sh").args(["-n", "-c", script]).status().unwrap();
                assert!(checked.success(), "{} {name}", product.name);
            }
        }
    }

    #[test]
    fn documents_are_files_of_the_repository() {
        for product in ALL {
            for (file, _) in product.documents {
                assert!(Path::new("..").join(file).is_file(), "{file}");
            }
        }
    }

    /// Runs the script after the removal of the hub, below another root directory.
    fn hub_removed(root: &Path, action: &str) -> String {
        let script = ["/etc/", "/var/", "/run/"]
            .iter()
            .fold(HUB_REMOVED.to_owned(), |script, folder| {
                script.replace(&format!(" {folder}"), &format!(" $ROOT{folder}"))
            });
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "postrm", action]).env("ROOT", root);
        output_of(&mut shell).unwrap()
    }

    #[test]
    fn purging_the_hub_keeps_data_and_says_so() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let (config, data) = (at("etc/backtrail-hub"), at("var/lib/private/backtrail-hub"));
        for folder in [&config, &data] {
            fs::create_dir_all(folder).unwrap();
        }
        assert_eq!(hub_removed(root.path(), "remove"), "");
        assert!(config.exists());
        let said = hub_removed(root.path(), "purge");
        assert!(!config.exists() && data.exists());
        assert_eq!(said.lines().count(), 1, "{said}");
        let (_, command) = said.split_once(": ").unwrap();
        output_of(Command::new("sh").args(["-c", command])).unwrap();
        assert!(!data.exists());
        assert_eq!(hub_removed(root.path(), "purge"), "");
    }

    #[test]
    fn optional_program_is_left_out_stripped_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let optional = HUB.optional.as_ref().unwrap();
        let stripped = |program: Option<&Path>| optional.stripped(program, folder.path());
        assert_eq!(stripped(None), Ok(None));
        assert_eq!(stripped(Some(&folder.path().join("none"))), Ok(None));
        // The test's own program needs the glibc of this system.
        let own = std::env::current_exe().unwrap();
        match glibc::check(&own, GLIBC) {
            Err(problem) => assert_eq!(stripped(Some(&own)), Err(problem)),
            Ok(()) => assert_eq!(
                stripped(Some(&own)),
                Ok(Some(folder.path().join("backtrail-query")))
            ),
        }
    }
}
