//! From a running program to a bundle, and what the other commands say of it.
#![cfg(test)]

use backtrail_tests::backtrail::{Run, backtrail};
use backtrail_tests::built;
use backtrail_tests::programs::{Ending, PROGRAMS, Program, Variant};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Records `program` into `folder`, with the addresses it stepped through beside the bundle.
fn record(program: &Program, variant: Variant, folder: &Path) -> (Run, PathBuf, PathBuf) {
    let executable = backtrail_tests::build(program, variant).unwrap();
    let name = format!("{}-{}", program.name, variant.name());
    let (bundle, golden) = (folder.join(&name), folder.join(format!("{name}.golden")));
    std::fs::create_dir(&golden).unwrap();
    let run = backtrail([
        "record".as_ref(),
        "--full".as_ref(),
        "--no-follow".as_ref(),
        "--golden".as_ref(),
        golden.as_os_str(),
        "-o".as_ref(),
        bundle.as_os_str(),
        "--".as_ref(),
        executable.as_os_str(),
    ]);
    (run.unwrap(), bundle, golden)
}

/// What `info --digest` must say, from the lists of stepped addresses: `TID.ips`, 8 bytes each. The digest is FNV-1a,
/// from the start value of the reference digests.
fn expected_digests(golden: &Path) -> Vec<String> {
    let mut lines: Vec<(u32, String)> = std::fs::read_dir(golden)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let tid: u32 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let digest = bytes.iter().fold(1_469_598_103_934_665_603_u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            (
                tid,
                format!(
                    "thread {tid} instructions {} errors 0 digest {digest:016x}",
                    bytes.len() / 8
                ),
            )
        })
        .collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn digests(bundle: &Path) -> Vec<String> {
    let info = backtrail(["info".as_ref(), bundle.as_os_str(), "--digest".as_ref()])
        .unwrap()
        .exited(0);
    info.stdout.lines().map(str::to_owned).collect()
}

fn decodes_into_what_was_stepped(program: &Program, variant: Variant, folder: &Path) {
    let (run, bundle, golden) = record(program, variant, folder);
    let _ = run.exited(0);
    let expected = expected_digests(&golden);
    assert!(!expected.is_empty());
    assert_eq!(digests(&bundle), expected, "{} {}", program.name, variant.name());
}

#[test]
fn every_program_decodes_into_what_was_stepped() {
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        // The shortest variant: linked statically, it does not run the dynamic loader.
        let variant = *program.variants.last().unwrap();
        decodes_into_what_was_stepped(program, variant, folder.path());
    }
}

#[test]
#[ignore = "the whole matrix takes minutes: cargo xtask test-all"]
fn every_variant_decodes_into_what_was_stepped() {
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        for &variant in program.variants {
            decodes_into_what_was_stepped(program, variant, folder.path());
        }
    }
}

#[test]
fn a_crash_is_told_with_its_signal() {
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS.iter().filter(|program| program.crashes()) {
        let (run, bundle, _) = record(program, *program.variants.last().unwrap(), folder.path());
        let _ = run.exited(0);
        let info = backtrail(["info".as_ref(), bundle.as_os_str(), "--json".as_ref()])
            .unwrap()
            .exited(0);
        let info: serde_json::Value = serde_json::from_str(&info.stdout).unwrap();
        let Ending::Signal(signal) = program.ending else {
            continue;
        };
        assert_eq!(info["crash"]["signal"], signal, "{}", program.name);
    }
}

#[test]
fn a_bundle_packs_and_unpacks_to_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let program = PROGRAMS
        .iter()
        .find(|program| program.name == "crash_null")
        .unwrap();
    let (run, bundle, _) = record(program, Variant::Static, folder.path());
    let _ = run.exited(0);
    let (packed, unpacked) = (folder.path().join("crash.btz"), folder.path().join("unpacked"));
    let pack: [&OsStr; 4] = ["pack".as_ref(), bundle.as_ref(), "-o".as_ref(), packed.as_ref()];
    let _ = backtrail(pack).unwrap().exited(0);
    let unpack: [&OsStr; 4] = [
        "unpack".as_ref(),
        packed.as_ref(),
        "-o".as_ref(),
        unpacked.as_ref(),
    ];
    let _ = backtrail(unpack).unwrap().exited(0);
    assert_eq!(files(&unpacked), files(&bundle));
    assert_eq!(digests(&packed), digests(&bundle));
    for path in [&bundle, &packed, &unpacked] {
        let _ = backtrail(["check".as_ref(), path.as_os_str()]).unwrap().exited(0);
    }
}

/// Every file under a folder with its content, by relative path.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((
                    path.strip_prefix(root).unwrap().to_path_buf(),
                    std::fs::read(&path).unwrap(),
                ));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_program_that_ends_well_leaves_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let program = built("exits", Variant::Static).unwrap();
    let run = backtrail([
        "record".as_ref(),
        "-o".as_ref(),
        bundle.as_os_str(),
        "--".as_ref(),
        program.as_os_str(),
    ]);
    let run = run.unwrap().exited(0);
    assert!(
        run.stdout.contains("all is well"),
        "the program's own output is lost: {}",
        run.stdout
    );
    let info = backtrail(["info".as_ref(), bundle.as_os_str(), "--json".as_ref()])
        .unwrap()
        .exited(0);
    let info: serde_json::Value = serde_json::from_str(&info.stdout).unwrap();
    assert!(info["crash"].is_null(), "{info}");
}
