//! `cargo xtask portable`: compiles the crates that an engineer's laptop needs for macOS and
//! Windows.
//!
//! Nothing is linked, so no system of the target is needed: the Rust compiler's own libraries
//! suffice. C code of dependencies is not compiled.

use crate::tidy::PORTABLE;
use crate::{Failure, shell};
use std::path::Path;
use std::process::Command;

/// The targets.
const TARGETS: [&str; 2] = ["x86_64-apple-darwin", "x86_64-pc-windows-gnu"];

/// Checks the crates for each target whose libraries are there, or can be installed.
pub fn check() -> Result<(), Failure> {
    for target in TARGETS {
        if !is_installed(target) && shell::in_path("rustup") {
            // Without a network, the check is skipped below.
            let _ = shell::run(Command::new("rustup").args(["target", "add", target]));
        }
        if is_installed(target) {
            shell::run(&mut command(target))?;
        } else {
            println!("portable: {target} is not checked: `rustup target add {target}`");
        }
    }
    Ok(())
}

/// Returns whether the compiler has the standard library of a target.
fn is_installed(target: &str) -> bool {
    let found = shell::output("rustc", &["--print", "target-libdir", "--target", target]);
    found.is_some_and(|folder| Path::new(folder.trim()).is_dir())
}

/// Returns the command that checks the crates for a target.
fn command(target: &str) -> Command {
    let mut cargo = shell::cargo();
    cargo.args(["check", "--quiet", "--target", target]);
    for part in PORTABLE {
        let name = if *part == "dap-adapter" { "dap" } else { part };
        cargo.arg("--package").arg(format!("backtrail-{name}"));
    }
    // Build scripts compile C code, for which this machine has no compiler. Nothing is linked, so
    // the program `true`, which does nothing, is called in its place.
    let suffix = target.replace('-', "_");
    for variable in ["CC", "AR"] {
        cargo.env(format!("{variable}_{suffix}"), "true");
    }
    // Where `cc` would ask Apple's tools for the headers.
    cargo.env("SDKROOT", "/");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_portable_crate_is_checked_by_its_name() {
        let command = command("x86_64-apple-darwin");
        let words: Vec<&str> = command.get_args().filter_map(|word| word.to_str()).collect();
        let packages: Vec<&str> = words
            .iter()
            .copied()
            .filter(|word| word.starts_with("backtrail-"))
            .collect();
        assert_eq!(packages.len(), PORTABLE.len());
        for package in packages {
            let part = package
                .trim_start_matches("backtrail-")
                .replace("dap", "dap-adapter");
            let manifest = format!("{}/../{part}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&manifest).unwrap();
            assert!(text.contains(&format!("name = \"{package}\"\n")), "{manifest}");
        }
    }

    #[test]
    fn unknown_target_is_not_installed() {
        assert!(!is_installed("x86_64-none-of-them"));
        assert!(is_installed("x86_64-unknown-linux-gnu"));
    }
}
