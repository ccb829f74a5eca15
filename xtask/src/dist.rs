//! `cargo xtask dist`: the packages for users, in `target/dist`.
//!
//! Each product has a Debian package and an archive with the same files. Both exist again with the
//! debug information. The extension for VS Code contains the binary `backtrail`.

mod archive;
mod build;
mod debian;
mod glibc;
mod product;
mod root;
mod split;
mod tree;
mod vsix;

use crate::{Failure, extension, packages, shell};
use debian::DebianPackage;
use product::{OptionalProgram, Product};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tree::Tree;

pub use root::test;

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The newest glibc whose symbols a binary may need: that of RHEL 8. Ubuntu 20.04 has 2.31.
const GLIBC: (u32, u32) = (2, 28);

/// Makes all packages, and prints their paths.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD, packages::DIST])?;
    for path in make()?.into_iter().chain([vsix()?]) {
        println!("dist: {}, {} KiB", path.display(), size(&path)? / 1024);
    }
    Ok(())
}

/// Builds all products, and makes their Debian packages and archives.
fn make() -> Result<Vec<PathBuf>, Failure> {
    let built = build::binaries(&product::ALL.map(|product| product.name))?;
    let mut made = Vec::new();
    for product in product::ALL {
        made.extend(packages_of(product, &built.join(product.name))?);
    }
    Ok(made)
}

/// Makes the Debian packages and the archives of a product's binary.
fn packages_of(product: &Product, binary: &Path) -> Result<Vec<PathBuf>, Failure> {
    glibc::check(binary, GLIBC)?;
    let split = split::split(binary, &folder()?, product.name)?;
    let optional = product.optional.as_ref().map(OptionalProgram::find);
    let optional = optional.transpose()?.flatten();
    let time = time();
    let program = Tree::of_program(product, &split.binary, optional.as_deref())?;
    let debug = Tree::of_debug_information(&split)?;
    let mut made = Vec::new();
    for (package, tree) in [
        (DebianPackage::of_program(product), &program),
        (DebianPackage::of_debug_information(product), &debug),
    ] {
        let path = folder()?.join(package.file());
        write(&path, &debian::package(&package, tree, time)?)?;
        made.push(path);
    }
    for (suffix, tree) in [("", &program), ("-debug", &debug)] {
        let name = format!("{}-{VERSION}-x86_64-linux{suffix}", product.name);
        let path = folder()?.join(format!("{name}.tar.zst"));
        let bytes = archive::zstd(&archive::tar(tree, &format!("{name}/"), time)?)?;
        write(&path, &bytes)?;
        made.push(path);
    }
    Ok(made)
}

/// Makes the extension that contains the stripped binary.
fn vsix() -> Result<PathBuf, Failure> {
    let path = folder()?.join(format!("backtrail-{VERSION}-linux-x64.vsix"));
    extension::package_with(&folder()?.join(product::BACKTRAIL.name), &path)?;
    vsix::check(&read(&path)?)?;
    Ok(path)
}

/// Returns the folder of the packages, as an absolute path.
fn folder() -> Result<PathBuf, Failure> {
    let folder = shell::target().join("dist");
    fs::create_dir_all(&folder)
        .and_then(|()| folder.canonicalize())
        .map_err(|error| cannot("create", &folder, &error))
}

/// Returns the time of all files, so that packages of one commit are equal: `SOURCE_DATE_EPOCH`, or
/// the time of the commit.
fn time() -> u64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || shell::output("git", &["log", "-1", "--format=%ct"]);
    let time = given.or_else(commit).unwrap_or_default();
    time.trim().parse().unwrap_or_default()
}

fn size(path: &Path) -> Result<u64, Failure> {
    let found = fs::metadata(path).map_err(|error| cannot("read", path, &error))?;
    Ok(found.len())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| cannot("read", path, &error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| cannot("write", path, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    format!("cannot {what} {}: {error}", path.display())
}

/// Runs a command and returns its standard output. A failure has what the command printed.
fn output_of(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    Err(format!("{command:?} failed: {}\n{out}{err}", output.status))
}
