//! The release build for distribution.
//!
//! Zig links it: its description of every glibc lets the binary run on systems that are older than
//! the one that builds. Zig and `cargo-zigbuild` are Python packages in our own folder.

use super::{GLIBC, folder};
use crate::{Failure, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python packages, each with a file that shows its presence.
const TOOLS: [(&str, &str); 2] = [
    ("ziglang==0.15.2", "ziglang/zig"),
    ("cargo-zigbuild==0.24.1", "bin/cargo-zigbuild"),
];
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the binaries of packages, and returns their folder. They have symbols and line numbers.
pub fn binaries(names: &[&str]) -> Result<PathBuf, Failure> {
    let folder = folder()?;
    let tools = install(&folder.join("python"))?;
    let target = folder.join("build");
    let (major, minor) = GLIBC;
    let mut cargo = shell::cargo();
    cargo
        .args(["zigbuild", "--release", "--locked"])
        .args(names.iter().flat_map(|name| ["--package", name]))
        .arg("--target")
        .arg(format!("{TARGET}.{major}.{minor}"))
        .arg("--target-dir")
        .arg(&target)
        .env("PATH", first_in_path(&tools.join("bin"))?)
        .env("CARGO_ZIGBUILD_ZIG_PATH", tools.join("ziglang/zig"))
        .env("CARGO_ZIGBUILD_CACHE_DIR", folder.join("zigbuild"))
        .env("ZIG_GLOBAL_CACHE_DIR", folder.join("zig-cache"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?);
    shell::run(&mut cargo)?;
    Ok(target.join(TARGET).join("release"))
}

/// Installs missing tools in the folder, and returns it.
fn install(tools: &Path) -> Result<PathBuf, Failure> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(_, sign)| !tools.join(sign).is_file())
        .map(|&(package, _)| package)
        .collect();
    if !missing.is_empty() {
        println!("Installing {} in {}.", missing.join(", "), tools.display());
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .arg("--target")
            .arg(tools)
            .args(missing);
        shell::run(&mut pip)?;
    }
    Ok(tools.to_owned())
}

/// Returns the compiler's flags: a build id, by which debug information is found, and no paths of
/// this machine.
fn flags() -> Result<String, Failure> {
    let here = std::env::current_dir().map_err(|error| format!("no current directory: {error}"))?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut flags = vec!["-C".to_owned(), "link-arg=-Wl,--build-id=sha1".to_owned()];
    for (path, name) in [(Some(here), "backtrail"), (home, "cargo")] {
        if let Some(path) = path {
            flags.push(format!("--remap-path-prefix={}=/usr/src/{name}", path.display()));
        }
    }
    Ok(flags.join("\x1f"))
}

fn first_in_path(first: &Path) -> Result<std::ffi::OsString, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).map_err(|error| format!("cannot extend PATH: {error}"))
}
