//! Programs that are recorded here and run again in the machines, where their packets are played.

use super::{cannot, output_of};
use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "tests/vm/programs";

/// A program, and what its recording holds.
pub struct Recording {
    pub name: &'static str,
    pub program: PathBuf,
    /// The packets of its only thread.
    pub packets: PathBuf,
    /// Where it was recorded.
    pub bundle: PathBuf,
    /// The result of decoding.
    pub decoded: Decoded,
}

/// A line of `backtrail info --digest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub thread: u64,
    pub instructions: u64,
    pub errors: u64,
    pub digest: String,
}

/// Programs by name, with their source and compiler options.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("crash", "crash.c", &[]),
    ("long", "crash.c", &["-DTURNS=40", "-DROUNDS=20000"]),
    ("migrate", "migrate.c", &[]),
];

/// Builds and records all of them each time, which takes a second.
pub fn make(folder: &Path, backtrail: &Path) -> Result<Vec<Recording>, Failure> {
    let folder = folder.join("recordings");
    fs::create_dir_all(&folder).map_err(|error| cannot("make", &folder, &error))?;
    PROGRAMS
        .iter()
        .map(|&(name, source, flags)| {
            let program = folder.join(name);
            // No C library and fixed addresses: nothing that it executes depends on the machine.
            output_of(
                Command::new("cc")
                    .args(["-O1", "-g", "-static", "-nostdlib", "-no-pie"])
                    .args(["-fno-stack-protector", "-fcf-protection=none"])
                    .args(flags)
                    .arg("-o")
                    .arg(&program)
                    .arg(Path::new(SOURCES).join(source)),
            )?;
            record(name, program, &folder, backtrail)
        })
        .collect()
}

fn record(
    name: &'static str,
    program: PathBuf,
    folder: &Path,
    backtrail: &Path,
) -> Result<Recording, Failure> {
    let bundle = folder.join(format!("{name}.bundle"));
    if bundle.exists() {
        fs::remove_dir_all(&bundle).map_err(|error| cannot("remove", &bundle, &error))?;
    }
    output_of(
        Command::new(backtrail)
            .args(["record", "--exit-zero", "--source", "software", "--full", "-o"])
            .arg(&bundle)
            .arg("--")
            .arg(&program),
    )?;
    let threads = digests(backtrail, &bundle)?;
    let [decoded] = threads.as_slice() else {
        return Err(format!("the recording of {name} has {} threads", threads.len()));
    };
    if decoded.instructions == 0 || decoded.errors != 0 {
        return Err(format!(
            "the recording of {name} does not decode without errors: {decoded:?}"
        ));
    }
    Ok(Recording {
        name,
        program,
        packets: bundle.join("traces").join(format!("{}.pt", decoded.thread)),
        bundle,
        decoded: decoded.clone(),
    })
}

/// Decodes a bundle, packed or not.
pub fn digests(backtrail: &Path, bundle: &Path) -> Result<Vec<Decoded>, Failure> {
    let text = output_of(Command::new(backtrail).args(["info", "--digest"]).arg(bundle))?;
    text.lines()
        .map(|line| {
            decoded(line).ok_or_else(|| format!("`backtrail info --digest` printed an unknown line: {line}"))
        })
        .collect()
}

/// Reads `thread TID instructions N errors M digest HEX`.
fn decoded(line: &str) -> Option<Decoded> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[
        "thread",
        thread,
        "instructions",
        instructions,
        "errors",
        errors,
        "digest",
        digest,
        ..,
    ] = words.as_slice()
    else {
        return None;
    };
    Some(Decoded {
        thread: thread.parse().ok()?,
        instructions: instructions.parse().ok()?,
        errors: errors.parse().ok()?,
        digest: digest.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read() {
        let read = decoded("thread 27386 instructions 106135 errors 0 digest 59357653cd4a5236").unwrap();
        assert_eq!((read.thread, read.instructions, read.errors), (27386, 106_135, 0));
        assert_eq!(decoded("thread 1 instructions"), None);
    }
}
