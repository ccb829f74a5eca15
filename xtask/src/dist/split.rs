//! The stripped binary, and its debug information in a file of its own.

use super::output_of;
use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Both files.
pub struct Split {
    /// The stripped binary.
    pub binary: PathBuf,
    /// Its debug information.
    pub debug: PathBuf,
    /// The build id of both, as hexadecimal digits.
    pub build_id: String,
}

/// Splits a binary into two files in a folder, NAME and NAME.debug. The first has the name of the
/// second in `.gnu_debuglink`.
pub fn split(binary: &Path, folder: &Path, name: &str) -> Result<Split, Failure> {
    let (stripped, debug) = (folder.join(name), folder.join(format!("{name}.debug")));
    output_of(
        Command::new("objcopy")
            .args(["--only-keep-debug", "--compress-debug-sections=zlib"])
            .args([binary, &debug]),
    )?;
    strip(binary, &stripped)?;
    // The link has a checksum of the debug file.
    let link = format!("--add-gnu-debuglink={}", debug.display());
    output_of(Command::new("objcopy").arg(link).arg(&stripped))?;
    let build_id = build_id(&stripped)?;
    let split = Split {
        binary: stripped,
        debug,
        build_id,
    };
    check(&split)?;
    Ok(split)
}

/// Writes a copy of a binary without its symbols and debug information.
pub fn strip(binary: &Path, stripped: &Path) -> Result<(), Failure> {
    output_of(Command::new("strip").arg("-o").args([stripped, binary])).map(drop)
}

/// Fails if the binary still has debug information, or the other file has none of this binary.
fn check(split: &Split) -> Result<(), Failure> {
    let sections = |file: &Path| output_of(Command::new("readelf").args(["-SW"]).arg(file));
    let (binary, debug) = (sections(&split.binary)?, sections(&split.debug)?);
    let is_split = binary.contains(" .gnu_debuglink ")
        && [" .debug_info ", " .debug_line ", " .symtab "]
            .iter()
            .all(|name| !binary.contains(name))
        && [" .debug_line ", " .symtab "]
            .iter()
            .all(|name| debug.contains(name))
        && build_id(&split.debug)? == split.build_id;
    match is_split {
        true => Ok(()),
        false => Err(format!(
            "{} is not stripped as it must be",
            split.binary.display()
        )),
    }
}

fn build_id(file: &Path) -> Result<String, Failure> {
    let notes = output_of(Command::new("readelf").args(["-n"]).arg(file))?;
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    id.filter(|id| id.len() > 2)
        .map(str::to_owned)
        .ok_or_else(|| format!("{} has no build id", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_program_names_its_debug_file() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.c");
        std::fs::write(&source, "int main(void) { return 7; }\n").unwrap();
        let program = folder.path().join("a");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-g", "-Wl,--build-id=sha1", "-o"])
            .args([&program, &source]);
        output_of(&mut compiler).unwrap();
        let split = super::split(&program, folder.path(), "program").unwrap();
        assert_eq!(split.build_id, build_id(&program).unwrap());
        assert_eq!(Command::new(&split.binary).status().unwrap().code(), Some(7));
        // A file that still has symbols is refused.
        let whole = Split {
            binary: program,
            ..split
        };
        assert!(check(&whole).is_err());
    }
}
