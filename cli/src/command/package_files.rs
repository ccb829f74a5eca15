//! `backtrail package-files`: writes the files that a package has in addition to the binary.

use crate::args::{CommandLine, PackageFiles};
use crate::exit::Failure;
use backtrail_collector::config::{Config, DEFAULT_FILE};
use backtrail_collector::unit::{self, Installer, TargetMachine};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The path of the installed binary.
const BINARY: &str = "/usr/bin/backtrail";
/// The directory of a package's units.
const UNITS: &str = "usr/lib/systemd/system";
/// The directory of manual pages of commands.
const MANUAL: &str = "usr/share/man/man1";
/// The completion scripts that shells load by themselves.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "usr/share/bash-completion/completions/backtrail"),
    (Shell::Zsh, "usr/share/zsh/vendor-completions/_backtrail"),
    (Shell::Fish, "usr/share/fish/vendor_completions.d/backtrail.fish"),
];
/// A package does not know its machine, so its unit suits all: many processors, Intel PT, and a
/// kernel that restricts events. `backtrail install` writes a unit with tighter limits.
const ANY_MACHINE: TargetMachine = TargetMachine {
    processors: 256,
    intel_pt: true,
    restricted: true,
};

/// Writes the files below the root directory of the package.
pub fn run(args: &PackageFiles) -> Result<(), Failure> {
    for (path, text) in texts()? {
        write(&args.root.join(path), &text)?;
    }
    let manual = args.root.join(MANUAL);
    fs::create_dir_all(&manual)
        .and_then(|()| clap_mangen::generate_to(CommandLine::command(), &manual))
        .map_err(|error| cannot_write(&manual, &error))
}

/// Returns the configuration, the units and the completion scripts, by path.
fn texts() -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
    let config = Config::default();
    let units = Path::new(UNITS);
    let daemon = unit::collector(
        Path::new(BINARY),
        Path::new(DEFAULT_FILE),
        &config,
        ANY_MACHINE,
        Installer::Package,
    )?;
    let mut texts = vec![
        (
            DEFAULT_FILE.trim_start_matches('/').into(),
            unit::example().into_bytes(),
        ),
        (units.join(unit::NAME), daemon.into_bytes()),
        (
            units.join(unit::DIRECTORIES),
            unit::directories(&config, Installer::Package)?.into_bytes(),
        ),
    ];
    for (shell, path) in COMPLETIONS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut CommandLine::command(), "backtrail", &mut script);
        texts.push((path.into(), script));
    }
    Ok(texts)
}

fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_has_units_completions_and_a_page_for_each_command() {
        let root = tempfile::tempdir().unwrap();
        let args = PackageFiles {
            root: root.path().to_owned(),
        };
        run(&args).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        let unit = read("usr/lib/systemd/system/backtrail-collect.service");
        assert!(
            unit.contains("\nExecStart=/usr/bin/backtrail collect --config /etc/backtrail/collect.toml\n")
        );
        let directories = read("usr/lib/systemd/system/backtrail-directories.service");
        assert!(directories.contains("/var/spool/backtrail"));
        for unit in [unit, directories] {
            assert!(
                unit.starts_with("# Installed by the package `backtrail`"),
                "{unit}"
            );
        }
        assert_eq!(read("etc/backtrail/collect.toml"), unit::example());
        for (_, path) in COMPLETIONS {
            assert!(read(path).contains("print-config"), "{path}");
        }
        let mut command = CommandLine::command();
        command.build();
        for command in command
            .get_subcommands()
            .filter(|command| command.get_name() != "help")
        {
            let page = root
                .path()
                .join(MANUAL)
                .join(format!("backtrail-{}.1", command.get_name()));
            assert_eq!(page.exists(), !command.is_hide_set(), "{}", page.display());
        }
        assert!(read("usr/share/man/man1/backtrail-crashes-list.1").contains("\\-\\-spool"));
    }
}
