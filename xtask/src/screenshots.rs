//! `cargo xtask screenshots`: makes the pictures of `docs/images` in the tests of VS Code, of the
//! page of profiles, and of the hub's pages.

use crate::node;
use crate::{Failure, packages, readers, shell, vscode};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the pictures are kept.
const KEPT: &str = "docs/images";
/// Pictures of the hub's pages begin with this, and are kept as PNG.
const HUB: &str = "hub-";
/// The largest size of such a picture in bytes.
const HUB_LIMIT: u64 = 250_000;
/// How long the animation shows each of its pictures, in milliseconds.
const PAUSE: &str = "1400";

/// Runs the test, and keeps what it leaves.
pub fn run() -> Result<(), Failure> {
    packages::ensure(&[
        packages::BUILD,
        packages::ORACLE,
        packages::READERS,
        packages::EDITORS,
        packages::PICTURES,
    ])?;
    let made = node::folder("vscode-images")?;
    let _ = fs::remove_dir_all(&made);
    let failed = |error| format!("cannot store the pictures of {}: {error}", made.display());
    fs::create_dir_all(&made).map_err(failed)?;
    shell::run(shell::cargo().args(["build", "--package", "backtrail", "--package", "backtrail-hub"]))?;
    let (readers, vscode) = (readers::install(), vscode::install()?);
    for (test, names) in [
        ("editors", &["vscode::", "profile_page::"][..]),
        ("hub", &["pages::"]),
    ] {
        let mut cargo = shell::cargo();
        cargo
            .args([
                "test",
                "--package",
                "backtrail-tests",
                "--test",
                test,
                "--",
                "--nocapture",
            ])
            .args(names)
            .env("BACKTRAIL_BIN", shell::target().join("debug/backtrail"))
            .env("BACKTRAIL_HUB_BIN", shell::target().join("debug/backtrail-hub"))
            .env("BACKTRAIL_IMAGES", &made)
            .envs(readers.variables())
            .envs(vscode.variables());
        shell::run(&mut cargo)?;
    }

    fs::create_dir_all(KEPT).map_err(failed)?;
    let mut frames = Vec::new();
    for entry in fs::read_dir(&made).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            continue;
        };
        if name.starts_with("frame-") {
            frames.push(path);
        } else if name.starts_with(HUB) {
            let size = fs::copy(&path, Path::new(KEPT).join(&name)).map_err(failed)?;
            if size > HUB_LIMIT {
                return Err(format!("{name} has {size} bytes; the limit is {HUB_LIMIT}"));
            }
        } else {
            let kept = Path::new(KEPT).join(name).with_extension("webp");
            shell::run(
                Command::new("cwebp")
                    .args(["-quiet", "-lossless", "-z", "9"])
                    .arg(&path)
                    .arg("-o")
                    .arg(kept),
            )?;
        }
    }
    if frames.is_empty() {
        return Err("the test made no pictures; it may have been skipped".to_owned());
    }
    frames.sort();
    shell::run(
        Command::new("img2webp")
            .args(["-loop", "0", "-lossless", "-m", "6", "-d", PAUSE])
            .args(frames)
            .arg("-o")
            .arg(Path::new(KEPT).join("walk.webp")),
    )
}
