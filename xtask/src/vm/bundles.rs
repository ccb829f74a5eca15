//! The bundles that machines made, decoded here: they must hold what was recorded.

use super::recordings::{Decoded, Recording, digests};
use super::report::{Bundle, MachineReport};
use super::{cannot, output_of};
use crate::Failure;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns each bundle of a machine that does not decode to its recording. Bundles stay in
/// `folder`.
pub fn decode(
    report: &MachineReport,
    recordings: &[Recording],
    backtrail: &Path,
    folder: &Path,
) -> Result<Vec<String>, Failure> {
    fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
    let mut failures = Vec::new();
    for bundle in report.bundles() {
        let Some(content) = report.file(&bundle.file) else {
            failures.push(format!("{}: its bundle was not received", bundle.test));
            continue;
        };
        let path = folder.join(&bundle.file);
        fs::write(&path, content).map_err(|error| cannot("write", &path, &error))?;
        let Some(recording) = recordings.iter().find(|one| one.name == bundle.recording) else {
            failures.push(format!(
                "{}: there is no recording {}",
                bundle.test, bundle.recording
            ));
            continue;
        };
        match compare(bundle, &path, recording, backtrail) {
            Ok(said) => println!("    {} decodes: {said}", bundle.test),
            Err(why) => failures.push(format!("{}: its bundle {}: {why}", bundle.test, path.display())),
        }
    }
    Ok(failures)
}

fn compare(bundle: &Bundle, path: &Path, recording: &Recording, backtrail: &Path) -> Result<String, Failure> {
    let threads = digests(backtrail, path)?;
    let [decoded] = threads.as_slice() else {
        return Err(format!(
            "its decode has {} threads; only the crashed one is expected",
            threads.len()
        ));
    };
    if bundle.tail {
        return compare_tail(decoded, path, recording, backtrail);
    }
    let expected = Decoded {
        thread: decoded.thread,
        ..recording.decoded.clone()
    };
    if *decoded == expected {
        Ok(format!(
            "{} instructions, digest {}, as recorded",
            decoded.instructions, decoded.digest
        ))
    } else {
        Err(format!(
            "its decode is {decoded:?}, and the recording {:?}",
            recording.decoded
        ))
    }
}

/// Compares the end of an overwritten ring: both have the same last instructions.
fn compare_tail(
    decoded: &Decoded,
    path: &Path,
    recording: &Recording,
    backtrail: &Path,
) -> Result<String, Failure> {
    let whole = recording.decoded.instructions;
    if decoded.instructions == 0 || decoded.instructions >= whole || decoded.errors != 0 {
        return Err(format!(
            "its decode is {decoded:?}, which is not the end of {whole} instructions"
        ));
    }
    // Enough of them to be sure, and not all: text of ten million lines takes its time.
    let count = decoded.instructions.min(200_000);
    let of = |bundle: &Path, decoded: &Decoded| -> Result<Vec<String>, Failure> {
        let from = format!("t{}#{}", decoded.thread, decoded.instructions - count);
        let text = output_of(
            Command::new(backtrail)
                .args(["dump", "instructions"])
                .arg(bundle)
                .args(["--from", &from, "--count", &count.to_string()]),
        )?;
        Ok(addresses(&text))
    };
    let (found, expected) = (of(path, decoded)?, of(&recording.bundle, &recording.decoded)?);
    if found.len() as u64 != count || found != expected {
        return Err(format!(
            "its last {count} instructions differ from the recording ({} and {} read)",
            found.len(),
            expected.len()
        ));
    }
    Ok(format!(
        "{} instructions, the end of {whole}; the last {count} compared",
        decoded.instructions
    ))
}

/// The addresses in what `backtrail dump instructions` prints: positions differ.
fn addresses(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("0x")))
        .map(str::to_owned)
        .collect()
}
