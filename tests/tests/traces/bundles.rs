//! Bundles as files: ownership, damage, and hostile names in a terminal.

use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

fn recorded(program: &Path) -> Bundle {
    Bundle::made(&["record"], &["--".as_ref(), program.as_os_str()]).0
}

#[test]
fn bundle_is_readable_by_its_owner_only() {
    let bundle = recorded(Path::new("true"));
    let mode = fs::metadata(&bundle.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "it has the memory of a process");
}

#[test]
fn damage_to_a_packed_bundle_is_detected() {
    let bundle = recorded(Path::new("true"));
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("whole.btz");
    let pack: [&OsStr; 4] = [
        "pack".as_ref(),
        bundle.path.as_ref(),
        "-o".as_ref(),
        packed.as_ref(),
    ];
    let _ = backtrail(pack).unwrap().exited(0);
    let _ = backtrail([OsStr::new("check"), packed.as_ref()])
        .unwrap()
        .exited(0);
    let whole = fs::read(&packed).unwrap();
    let damaged = folder.path().join("damaged.btz");
    for part in 0..16 {
        let at = whole.len() * part / 16;
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&damaged, &bytes).unwrap();
        let run = backtrail([OsStr::new("check"), damaged.as_ref()]).unwrap();
        assert_eq!(run.status, Some(3), "byte {at} of {}", whole.len());
    }
}

/// A digest goes through every instruction.
#[test]
fn info_computes_no_digest_unless_it_is_asked() {
    let bundle = recorded(Path::new("true"));
    let threads = |options: &[&str]| {
        let printed = bundle.run(&["info"], &[&["--json"], options].concat()).stdout;
        let info: serde_json::Value = serde_json::from_str(&printed).unwrap();
        info["threads"].as_array().unwrap().clone()
    };
    let (plain, asked) = (threads(&[]), threads(&["--digest"]));
    assert!(!plain.is_empty() && plain.len() == asked.len());
    assert!(plain.iter().all(|thread| thread["digest"].is_null()), "{plain:?}");
    let is_digest =
        |thread: &serde_json::Value| thread["digest"].as_str().is_some_and(|text| text.len() == 16);
    assert!(asked.iter().all(is_digest), "{asked:?}");
    assert!(!bundle.run(&["info"], &[]).stdout.contains("digest"));
}

#[test]
fn program_name_cannot_control_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("red\u{1b}[31m\u{7}name");
    fs::copy("/bin/true", &program).unwrap();
    let bundle = recorded(&program);
    let info = bundle.run(&["info"], &[]).stdout;
    let debug = bundle
        .run(
            &["debug"],
            &["--batch", "-e", "crash", "-e", "info sharedlibrary"],
        )
        .stdout;
    for shown in [info, debug] {
        assert!(shown.contains("[31m"), "the name is shown: {shown}");
        let control = shown.chars().find(|c| c.is_control() && !"\n\t".contains(*c));
        assert_eq!(control, None, "{shown:?}");
    }
}

#[test]
fn long_output_ends_at_once_by_a_signal() {
    let bundle = recorded(Path::new("true"));
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut child = command()
            .unwrap()
            .args([OsStr::new("dump"), "instructions".as_ref(), bundle.path.as_ref()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The program prints, and the test reads only this much.
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 64]).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status));
    }
}

#[test]
fn holes_of_files_stay_holes_in_unpacked_bundles() {
    const SIZE: u64 = 64 << 20;
    let bundle = recorded(Path::new("true"));
    let large = fs::File::create(bundle.path.join("large")).unwrap();
    large.set_len(SIZE).unwrap();
    large.write_all_at(&[7; 5000], 3 << 20).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [packed, unpacked] = ["packed.btz", "unpacked"].map(|name| folder.path().join(name));
    for words in [
        [
            "pack".as_ref(),
            bundle.path.as_os_str(),
            "-o".as_ref(),
            packed.as_os_str(),
        ],
        [
            "unpack".as_ref(),
            packed.as_os_str(),
            "-o".as_ref(),
            unpacked.as_os_str(),
        ],
    ] {
        let _ = backtrail(words).unwrap().exited(0);
    }
    let file = fs::File::open(unpacked.join("large")).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!(found.len(), SIZE);
    assert!(found.blocks() * 512 < 64 << 10, "{}", found.blocks());
    assert!(fs::read(unpacked.join("large")).unwrap() == fs::read(bundle.path.join("large")).unwrap());
    let core = |folder: &Path| fs::read(folder.join("trace.json")).unwrap();
    assert_eq!(core(&unpacked), core(&bundle.path));
}
