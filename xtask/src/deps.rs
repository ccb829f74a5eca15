//! `cargo xtask deps`: sources, licenses, duplicates, advisories and minimum Rust version of crates
//! and npm packages, and the third-party notices of the binary.
//!
//! The check works without a network where possible, and reports what it could not check.

mod advisories;
mod crates;
mod minimum;
mod notices;
mod npm;

use crate::{Failure, shell};
use crates::Package;
use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

/// The notices, as they go with the binary.
const NOTICES: &str = "THIRD-PARTY.txt";
/// The package of the binary.
const PRODUCT: &str = "backtrail";
/// The target platform of the product.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// Where npm packages are named.
const LOCKS: &[&str] = &[
    "vscode-extension/package-lock.json",
    "web/package-lock.json",
    "dap-adapter/protocol/package-lock.json",
    "tests/dap/package-lock.json",
    "tests/readers/package-lock.json",
    "tests/tus/package-lock.json",
    "tests/vscode/package-lock.json",
];

/// Checks everything.
pub fn check() -> Result<(), Failure> {
    let (packages, notes) = packages()?;
    let mut problems = crates::check(&packages);
    let promised = minimum::promised(&metadata(&["--offline", "--no-deps"])?)?;
    problems.extend(minimum::check(&packages, &promised));
    problems.extend(advisories::check(&packages));
    for lock in LOCKS {
        let text = fs::read_to_string(lock).map_err(|error| format!("cannot read {lock}: {error}"))?;
        problems.extend(npm::check(lock, &text)?);
    }
    let made = notices_of(&[PRODUCT])?;
    if fs::read_to_string(NOTICES).ok().as_deref() != Some(&made) {
        problems.push(format!("{NOTICES} is outdated: run `cargo xtask notices`"));
    }
    for note in notes {
        println!("deps: {note}");
    }
    println!(
        "deps: {} crates, minimum Rust {promised}, {}",
        packages.len(),
        advisories::coverage()
    );
    problems.iter().for_each(|problem| println!("deps: {problem}"));
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("deps found {count} problems")),
    }
}

/// Writes the notices.
pub fn write_notices() -> Result<(), Failure> {
    let packages = shipped(&[PRODUCT])?;
    let text = notices::text(&packages)?;
    fs::write(NOTICES, &text).map_err(|error| format!("cannot write {NOTICES}: {error}"))?;
    println!(
        "{NOTICES} is written: {} packages, {} bytes.",
        packages.len(),
        text.len()
    );
    Ok(())
}

/// Returns the notices of everything that is linked into some packages of the workspace.
pub fn notices_of(roots: &[&str]) -> Result<String, Failure> {
    notices::text(&shipped(roots)?)
}

/// Returns all packages of `Cargo.lock`, and notes about unchecked ones.
fn packages() -> Result<(Vec<Package>, Vec<String>), Failure> {
    // Crates for other platforms are available only if they were fetched.
    let all = metadata(&["--offline"]).or_else(|_| metadata(&[]));
    if let Ok(all) = all {
        return Ok((Package::all(&all)?, Vec::new()));
    }
    let some = metadata(&["--offline", "--filter-platform", PLATFORM])?;
    let note = "without a network only the crates of this platform are checked";
    Ok((Package::all(&some)?, vec![note.to_owned()]))
}

/// Returns the packages that are linked into some packages of the workspace on their platform.
fn shipped(roots: &[&str]) -> Result<Vec<Package>, Failure> {
    let found = metadata(&["--offline", "--filter-platform", PLATFORM]);
    let found = found.or_else(|_| metadata(&["--filter-platform", PLATFORM]))?;
    let mut linked: BTreeSet<String> = BTreeSet::new();
    for root in roots {
        linked.extend(crates::linked_into(root, &found)?);
    }
    let mut packages = Package::all(&found)?;
    packages.retain(|package| linked.contains(&package.id));
    Ok(packages)
}

fn metadata(arguments: &[&str]) -> Result<serde_json::Value, Failure> {
    let mut cargo = shell::cargo();
    cargo.args(["metadata", "--locked", "--format-version", "1"]);
    let output = cargo
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err("cargo metadata failed: run `cargo fetch` first".to_owned());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cannot parse the output of cargo metadata: {error}"))
}
