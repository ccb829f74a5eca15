//! Debian's sources of real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command, and returns whether it succeeded. After a failure, prints the end of its output.
pub fn succeeds(command: &mut Command) -> bool {
    let Ok(output) = command.output() else {
        eprintln!("cannot run {:?}", command.get_program());
        return false;
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = text.lines().rev().take(8).collect();
        eprintln!("{command:?} failed: {end:#?}");
    }
    output.status.success()
}

/// Writes apt's package sources, with source packages in place of binary ones. The system's own
/// lists are unchanged.
fn source_lists(into: &Path) -> std::io::Result<()> {
    let changed = |text: &str| {
        let lines = text.lines().map(|line| match line.strip_prefix("deb ") {
            Some(rest) => format!("deb-src {rest}\n"),
            None if line.trim() == "Types: deb" => "Types: deb-src\n".to_owned(),
            None => format!("{line}\n"),
        });
        lines.collect::<String>()
    };
    let apt = Path::new("/etc/apt");
    let parts = fs::read_dir(apt.join("sources.list.d"))
        .into_iter()
        .flatten()
        .flatten();
    let files = parts.map(|part| part.path()).chain([apt.join("sources.list")]);
    for file in files {
        let kind = file.extension().and_then(|extension| extension.to_str());
        if let (Some("list" | "sources"), Ok(text)) = (kind, fs::read_to_string(&file)) {
            let name = file.file_name().unwrap_or_default();
            fs::write(into.join(name), changed(&text))?;
        }
    }
    Ok(())
}

/// Returns the unpacked source of a package below a folder. Returns `None` with a message on stderr
/// if it is unavailable.
pub fn unpacked(package: &str, below: &Path) -> Option<PathBuf> {
    let folder = below.join(package);
    let found = || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut folders = entries.map(|entry| entry.path()).filter(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            path.is_dir() && name.starts_with(package)
        });
        folders.next()
    };
    if let Some(found) = found() {
        return Some(found);
    }
    let (parts, lists) = (folder.join("parts"), folder.join("lists/partial"));
    let prepared = fs::create_dir_all(&parts)
        .and_then(|()| fs::create_dir_all(&lists))
        .and_then(|()| source_lists(&parts));
    if let Err(error) = prepared {
        eprintln!("skipped: cannot write below {}: {error}", folder.display());
        return None;
    }
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command
            .current_dir(&folder)
            .args(["-q", "-o", "Dir::Etc::sourcelist=/dev/null", "-o"])
            .arg(format!("Dir::Etc::sourceparts={}", parts.display()))
            .arg("-o")
            .arg(format!("Dir::State::lists={}", folder.join("lists").display()));
        command
    };
    // An unreachable source is not fatal: the packages are Debian's.
    succeeds(apt_get().arg("update"));
    if !succeeds(apt_get().args(["source", package])) {
        eprintln!("skipped: no source of {package} is to be had here");
        return None;
    }
    found()
}
