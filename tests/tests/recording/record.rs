//! From a running program to a bundle, and the output of other commands for it.

use crate::{decoders, matrix};
use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Ending, PROGRAMS, Program, Variant, find};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the expected lines of `info --digest`, from the lists of stepped addresses: `TID.ips`, 8
/// bytes each. The digest is FNV-1a, from the start value of the reference digests.
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

fn decodes_into_what_was_stepped(program: &Program, variant: Variant) {
    let golden = tempfile::tempdir().unwrap();
    let options: [&OsStr; 4] = [
        "--full".as_ref(),
        "--no-follow".as_ref(),
        "--golden".as_ref(),
        golden.path().as_ref(),
    ];
    let (bundle, _) = Bundle::recorded(program, variant, &options);
    let expected = expected_digests(golden.path());
    assert!(!expected.is_empty());
    assert_eq!(digests(&bundle.path), expected);
    decoders::assert_agree(&bundle.path);
}

/// Returns the variant that runs the fewest instructions.
fn shortest(program: &Program) -> Variant {
    *program.variants.last().unwrap()
}

#[test]
fn every_program_decodes_to_its_stepped_instructions() {
    let shortest = PROGRAMS.iter().map(|program| (program, shortest(program)));
    matrix::check(shortest, decodes_into_what_was_stepped);
}

#[test]
#[ignore = "the whole matrix takes minutes: cargo xtask test-all"]
fn every_variant_decodes_to_its_stepped_instructions() {
    matrix::check(matrix::every_variant(), decodes_into_what_was_stepped);
}

#[test]
fn crash_event_has_its_signal() {
    for program in PROGRAMS {
        let Ending::Signal(signal) = program.ending else {
            continue;
        };
        let (bundle, _) = Bundle::recorded(program, shortest(program), &["--no-follow"]);
        assert_eq!(bundle.info()["crash"]["signal"], signal, "{}", program.name);
    }
}

#[test]
fn a_bundle_packs_and_unpacks_to_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let program = find("crash_null").unwrap();
    let (Bundle { path: bundle, .. }, _) = &Bundle::recorded(program, Variant::Static, &["--full"]);
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
    assert_eq!(files(&unpacked), files(bundle));
    assert_eq!(digests(&packed), digests(bundle));
    for path in [bundle, &packed, &unpacked] {
        let _ = backtrail(["check".as_ref(), path.as_os_str()]).unwrap().exited(0);
    }
}

/// Returns every file under a folder with its content, by relative path.
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
fn successful_program_writes_no_crash() {
    let (bundle, _) = Bundle::recorded(find("exits").unwrap(), Variant::Static, &[""; 0]);
    let info = bundle.info();
    assert!(info["crash"].is_null(), "{info}");
}

#[test]
fn standard_output_is_the_programs() {
    let program: [&OsStr; 4] = [
        "--".as_ref(),
        "sh".as_ref(),
        "-c".as_ref(),
        "echo one; echo two".as_ref(),
    ];
    let (_bundle, run) = Bundle::made(&["record"], &program);
    assert_eq!(run.stdout, "one\ntwo\n");
    assert!(run.stderr.contains("exited with status 0"), "{run:?}");
    assert!(run.stderr.contains("next: backtrail debug "), "{run:?}");
}

#[test]
fn json_follows_the_programs_output() {
    let program: [&OsStr; 3] = ["--".as_ref(), "echo".as_ref(), "one".as_ref()];
    let (bundle, run) = Bundle::made(&["record", "--json"], &program);
    let (first, last) = run.stdout.trim_end().split_once('\n').unwrap();
    let said: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((first, run.stderr.as_str()), ("one", ""));
    assert_eq!(said["bundle"], bundle.path.to_str().unwrap());
    assert_eq!(said["status"], 0);
}

#[test]
fn hint_is_a_valid_command_for_any_bundle_name() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("two $words");
    let record: [&OsStr; 5] = [
        "record".as_ref(),
        "-o".as_ref(),
        bundle.as_ref(),
        "--".as_ref(),
        "true".as_ref(),
    ];
    let run = backtrail(record).unwrap().exited(0);
    let hint = format!("next: backtrail debug '{}'\n", bundle.display());
    assert!(run.stderr.ends_with(&hint), "{run:?}");
}

/// Records a shell that runs a script, and returns the bundle with its `crash` and `ending` from
/// `info`.
#[track_caller]
fn end_of(script: &str) -> (Bundle, serde_json::Value, serde_json::Value) {
    let program: [&OsStr; 4] = ["--".as_ref(), "sh".as_ref(), "-c".as_ref(), script.as_ref()];
    let (bundle, _) = Bundle::made(&["record"], &program);
    let info = bundle.info();
    (bundle, info["crash"]["signal"].clone(), info["ending"].clone())
}

#[test]
fn termination_signal_is_not_a_crash() {
    let none = serde_json::Value::Null;
    for signal in [1, 2, 13, 15] {
        let (bundle, crash, ending) = end_of(&format!("kill -{signal} $$"));
        assert_eq!((crash, ending), (none.clone(), json!({ "killed": signal })));
        let said = bundle.run(&["info"], &[]).stdout;
        assert!(
            said.contains(&format!("ending    killed by signal {signal}\n")),
            "{said}"
        );
        // The state at the end is available.
        let said = bundle.debug(&["crash", "info registers rip"]);
        assert!(said.contains("does not end in a crash: SIG"), "{said}");
        assert!(said.contains("(sent by "), "{said}");
        assert!(said.contains("rip            0x"), "{said}");
    }
    // No other signal precedes SIGKILL.
    let (_, crash, ending) = end_of("kill -9 $$");
    assert_eq!((crash, ending), (none.clone(), json!({ "killed": 9 })));
    let (bundle, crash, ending) = end_of("exit 4");
    assert_eq!((crash, ending), (none.clone(), json!({ "exited": 4 })));
    let said = bundle.run(&["info"], &[]).stdout;
    assert!(said.contains("ending    exited with status 4\n"), "{said}");
    let (_, crash, ending) = end_of("kill -6 $$");
    assert_eq!((crash, ending), (json!(6), json!({ "killed": 6 })));
}

#[test]
fn crash_of_a_child_survives_the_end_of_others() {
    let ended = "sh -c 'kill -15 $$'";
    let crashed = "sh -c 'kill -11 $$'";
    for script in [
        format!("{ended}; {crashed}; {ended}; kill -2 $$"),
        format!("{ended}; {ended}; {crashed}; exit 3"),
    ] {
        let (bundle, crash, _) = end_of(&script);
        assert_eq!(crash, 11, "{script}");
        let _ = backtrail(["check".as_ref(), bundle.path.as_os_str()])
            .unwrap()
            .exited(0);
    }
    let (bundle, crash, ending) = end_of(&format!("{ended}; exit 3"));
    assert_eq!((crash, ending), (serde_json::Value::Null, json!({ "exited": 3 })));
    let _ = backtrail(["check".as_ref(), bundle.path.as_os_str()])
        .unwrap()
        .exited(0);
}

/// A terminal sends the signal to the recorder and to the program.
#[test]
fn ctrl_c_is_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (bundle, begun) = (folder.path().join("bundle"), folder.path().join("begun"));
    let script = format!("echo > {}; while :; do :; done", begun.display());
    let mut recorder = command()
        .unwrap()
        .args(["record", "-o"])
        .arg(&bundle)
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !begun.exists() && start.elapsed().as_secs() < 30 {
        thread::sleep(Duration::from_millis(10));
    }
    killpg(Pid::from_raw(recorder.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let bundle = Bundle::in_folder(folder, bundle);
    assert!(bundle.info()["crash"].is_null(), "{}", bundle.info());
}
