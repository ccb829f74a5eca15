//! Compressed cores open as they are; damaged and foreign ones are refused in one sentence.

use super::{CRASH, Place, debug};
use crate::gdb_answers::have_gdb;
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The programs of each format, and the suffix that they write.
const TOOLS: [(&str, &str); 4] = [("zstd", "zst"), ("xz", "xz"), ("gzip", "gz"), ("lz4", "lz4")];

/// Other layouts of each format: long windows, several blocks, linked blocks, old formats,
/// checksums.
const OPTIONS: [(&str, &[&str]); 10] = [
    ("zstd", &["-19", "--long=27"]),
    ("zstd", &["-T2", "-B512K", "--no-check"]),
    ("xz", &["-0", "-T2", "--block-size=64KiB"]),
    ("xz", &["--check=sha256", "--x86", "--lzma2=preset=1"]),
    ("gzip", &["-1"]),
    ("lz4", &["-B4", "-BD"]),
    ("lz4", &["-B5", "-BX", "-9"]),
    ("lz4", &["-l"]),
    ("lz4", &["--no-frame-crc"]),
    ("lz4", &["--content-size"]),
];

/// A crash with a MiB that does not compress: formats have an incomplete block at most.
const NOISE: &str = "
volatile unsigned noise[1 << 18];
int main(int argc, char **argv)
{
    unsigned state = 1;
    for (int i = 0; i < 1 << 18; i++) noise[i] = (state = state * 1664525 + 1013904223) ^ state >> 15;
    return *(volatile int *)(argc > 5 ? argv : 0);
}
";

/// Compresses by a tool, if it is installed.
fn compress(tool: &str, options: &[&str], file: &Path) -> Option<Vec<u8>> {
    let output = Command::new(tool)
        .args(options)
        .arg("-c")
        .stdin(fs::File::open(file).ok()?)
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Some(output.stdout),
        _ => {
            eprintln!("skipped: no {tool}");
            None
        }
    }
}

#[test]
fn compressed_cores_open_as_they_are() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", CRASH, &[]);
    let core = place.crash(&program, &[]);
    let commands = ["bt 3", "info registers", "x/4xg $sp"];
    let plain = debug(&core, &[], &commands).exited(0);
    for (tool, suffix) in TOOLS {
        let Some(bytes) = compress(tool, &[], &core) else {
            continue;
        };
        // The name does not matter, and frames may follow each other.
        let half = fs::read(&core).unwrap();
        let (first, second) = half.split_at(half.len() / 2);
        fs::write(place.at("first"), first).unwrap();
        fs::write(place.at("second"), second).unwrap();
        let mut parts = compress(tool, &[], &place.at("first")).unwrap();
        parts.extend(compress(tool, &[], &place.at("second")).unwrap());
        let mut files = vec![
            (format!("core.{suffix}"), bytes),
            (format!("{tool}-parts"), parts),
        ];
        for (number, options) in OPTIONS.iter().filter(|(of, _)| *of == tool).enumerate() {
            files.extend(compress(tool, options.1, &core).map(|bytes| (format!("{tool}{number}"), bytes)));
        }
        for (name, bytes) in &files {
            let file = place.at(name);
            fs::write(&file, bytes).unwrap();
            let run = debug(&file, &[], &commands).exited(0);
            let same = run.stdout.replace(&file.display().to_string(), "")
                == plain.stdout.replace(&core.display().to_string(), "");
            assert!(same, "{name}: {}\n{}", run.stdout, plain.stdout);
        }
    }
}

#[test]
fn truncated_and_damaged_cores_are_read_or_refused() {
    let place = Place::new();
    let program = place.compile("noise", NOISE, &[]);
    // Its core has the notes first, as the kernel's has.
    let (bundle, _) = Bundle::made(&["record"], &["--".as_ref(), program.as_ref()]);
    let core = bundle.path.join("core");
    let cut = place.at("cut");
    for (tool, _) in TOOLS {
        // Small blocks of lz4: an incomplete one has no data.
        let options: &[&str] = if tool == "lz4" { &["-B4"] } else { &[] };
        let Some(bytes) = compress(tool, options, &core) else {
            continue;
        };
        fs::write(&cut, &bytes[..bytes.len() / 10 * 9]).unwrap();
        let run = debug(&cut, &[], &["info registers rip", "crash"]).exited(0);
        assert!(run.stdout.contains("ends early"), "{tool}: {}", run.stdout);
        assert!(run.stdout.contains("crashed: SIGSEGV"), "{tool}: {}", run.stdout);
        fs::write(&cut, &bytes[..20]).unwrap();
        let run = debug(&cut, &[], &["crash"]).exited(3);
        assert!(run.sentence().contains("cut"), "{tool}: {}", run.stderr);
        let mut damaged = bytes.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0x5a);
        fs::write(&cut, &damaged).unwrap();
        let run = debug(&cut, &[], &["bt"]).exited(3);
        assert!(run.sentence().contains("damaged"), "{tool}: {}", run.stderr);
    }
}

#[test]
fn other_compressed_files_are_refused_in_one_sentence() {
    let place = Place::new();
    let text = place.at("text");
    fs::write(&text, "no core at all\n".repeat(1000)).unwrap();
    for (tool, _) in TOOLS {
        let Some(bytes) = compress(tool, &[], &text) else {
            continue;
        };
        let file = place.at(tool);
        fs::write(&file, bytes).unwrap();
        let run = debug(&file, &[], &["bt"]).exited(3);
        assert!(!run.sentence().is_empty(), "{tool}");
    }
    for (contents, command) in [
        (&b"BZh91AY&SY"[..], "bzip2 -dc"),
        (b"ProblemType: Crash\nCoreDump: base64\n", "apport-unpack"),
    ] {
        let file = place.at("unsupported");
        fs::write(&file, contents).unwrap();
        let run = debug(&file, &[], &["bt"]).exited(3);
        assert!(run.sentence().contains(command), "{}", run.stderr);
    }
}

#[test]
fn raw_import_reads_a_compressed_core() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", CRASH, &[]);
    let core = place.crash(&program, &[]);
    let Some(bytes) = compress("zstd", &[], &core) else {
        return;
    };
    let (packed, packets, bundle) = (place.at("core.zst"), place.at("packets"), place.at("bundle"));
    fs::write(&packed, bytes).unwrap();
    fs::write(&packets, backtrail_pt_psb()).unwrap();
    let arguments: [&OsStr; 11] = [
        "import".as_ref(),
        "raw".as_ref(),
        "--pt".as_ref(),
        packets.as_ref(),
        "--image".as_ref(),
        program.as_ref(),
        "--core".as_ref(),
        packed.as_ref(),
        "-o".as_ref(),
        bundle.as_ref(),
        "--json".as_ref(),
    ];
    let _ = backtrail(arguments).unwrap().exited(0);
    assert!(fs::read(bundle.join("core")).unwrap() == fs::read(&core).unwrap());
}

/// A PSB and its end.
fn backtrail_pt_psb() -> Vec<u8> {
    let mut packets = [0x02, 0x82].repeat(8);
    packets.extend([0x02, 0x23]);
    packets
}
