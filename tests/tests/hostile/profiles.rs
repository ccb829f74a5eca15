//! The readers of profiles, and what is computed from them.

use crate::harness::fuzz;
use crate::mutate;
use crate::seeds::{self, CODE, CODE_AT};
use backtrail_profile::format::{self, firefox, folded, otlp, perf_data, perf_script, pprof, speedscope};
use backtrail_profile::{CallTree, FunctionProfile, top};
use backtrail_tests::perf_data::elf;
use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;

const FOLDED: &str = "main;parse;memcpy 30\nmain;parse 20\nmain;idle 50\n";
const SCRIPT: &str = "\
PERF_RECORD_MMAP2 28/29: [0x400000(0x1000) @ 0x2000 00:1d 12 52]: r-xp /home/a b
\t          40067e
\t5541f689495641d7
 0x4006c8/0x40067e/P/-/-/0  0x40069b/0x400670/-/-/-/3

  400691 0x400691/0x400669/P/-/-/4  0x400677/0x400650/M/-/-/1
";

/// Reads a profile, and computes and writes everything from it.
fn is_usable(bytes: &[u8]) -> bool {
    let Ok(profile) = format::read(bytes) else {
        return false;
    };
    let Ok(functions) = FunctionProfile::new(&profile) else {
        return false;
    };
    let tree = CallTree::<1>::new(&functions, |sample| Some((0, sample.weight)));
    let _ = top(&tree);
    let mut written = Vec::new();
    pprof::write(&profile, &mut written).unwrap();
    assert!(format::read(&written).is_ok(), "what is written is read");
    written.clear();
    otlp::write(&profile, &mut written).unwrap();
    assert!(otlp::read(&written).is_ok(), "what is written is read");
    written.clear();
    speedscope::write(&profile, &functions, "case", &mut written).unwrap();
    if let Some((event, _)) = profile.events.iter().last() {
        folded::write(&functions, event, &mut written).unwrap();
        // A weight may exceed the format's limit.
        let _ = firefox::write(&profile, &functions, event, "case", &mut written);
    }
    true
}

#[test]
fn profiles() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, elf(32, CODE_AT, CODE)).unwrap();
    let mut packed = Vec::new();
    pprof::write(&format::read(FOLDED.as_bytes()).unwrap(), &mut packed).unwrap();
    let mut request = Vec::new();
    otlp::write(&format::read(FOLDED.as_bytes()).unwrap(), &mut request).unwrap();
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
    let seeds = [
        FOLDED.as_bytes().to_vec(),
        packed,
        unpacked,
        request,
        seeds::perf_data(&program).into_file(),
        seeds::perf_data(&program).into_pipe(),
    ];
    fuzz("profiles", &seeds, mutate::bytes, is_usable);
}

#[test]
fn branch_records() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, elf(32, CODE_AT, CODE)).unwrap();
    let seeds = [SCRIPT.as_bytes().to_vec(), seeds::perf_data(&program).into_file()];
    fuzz("branch_records", &seeds, mutate::bytes, |bytes| {
        if perf_data::is_perf_data(bytes) {
            return perf_data::read_branches(bytes, &mut |_, _| {}).is_ok();
        }
        perf_script::read(bytes).is_ok_and(|script| !script.samples.is_empty())
    });
}
