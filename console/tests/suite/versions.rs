//! Code that changed while it was traced is shown as it was at each position.

use crate::support::Imported;
use backtrail_bundle::manifest::{Manifest, Meta, Process, Thread};
use backtrail_bundle::versions::CodeVersions;
use backtrail_bundle::versions::{Boundary, Fragment};
use backtrail_bundle::{BundlePath, Overwrite, Writer};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, CpuModel, Encoder, EncoderOptions, Pid, Tid, TimingParams};
use std::path::Path;

const TID: Tid = Tid(7);
const START: Avma = Avma(0x1000);

/// A thread that runs `nop; jmp *%rax` in place, and then `xor %eax,%eax; jmp *%rax`.
fn write(target: &Path) {
    let mut encoder = Encoder::new(EncoderOptions::default());
    encoder.start();
    encoder.enable(START);
    encoder.indirect(START);
    encoder.disable_async(START);
    let offset = encoder.written();
    encoder.enable(START);
    encoder.indirect(START);
    encoder.disable_async(START);
    let fragment = |boundary, bytes: &[u8]| Fragment {
        address: START,
        boundary,
        bytes: bytes.to_vec().into(),
    };
    let versions = CodeVersions {
        fragments: vec![
            fragment(1, &[0x31, 0xc0, 0xff, 0xe0]),
            fragment(0, &[0x90, 0xff, 0xe0]),
        ],
        boundaries: [(TID, vec![Boundary { offset, number: 1 }])].into(),
    };
    let path = |text: &str| BundlePath::new(text).unwrap();
    let writer = Writer::create(target, Overwrite::Never).unwrap();
    writer.add_bytes(&path("traces/7.pt"), &encoder.take()).unwrap();
    writer.add_code_versions(&path("code/7"), &versions).unwrap();
    let thread = Thread {
        tid: TID,
        trace: Some(path("traces/7.pt")),
        ..Thread::default()
    };
    let process = Process {
        pid: Pid(7),
        threads: vec![thread],
        versions: Some(path("code/7")),
        ..Process::default()
    };
    let manifest = Manifest {
        cpu: CpuModel {
            vendor: Vendor::Other,
            family: 6,
            model: 0,
            stepping: 0,
        },
        timing: TimingParams::default(),
        tsc: None,
        filters: Vec::new(),
        processes: vec![process],
        cpus: Vec::new(),
        core: None,
        meta: Meta::default(),
    };
    writer.finish(&manifest).unwrap();
}

#[test]
fn disassembly_is_of_the_version_of_the_position() {
    let bundle = Imported::new(write);
    let session = bundle.session();
    let history = &session.thread(TID).unwrap().history;
    let pcs: Vec<u64> = history.walk(0).map(|found| found.pc.0).collect();
    assert_eq!(pcs, [0x1000, 0x1001, 0x1000, 0x1002]);
    assert!(backtrail_bundle::check(&bundle.path).unwrap().is_clean());
    let transcript = bundle.batch(&[
        "goto t7#1",
        "x/2i 0x1000",
        "goto t7#2",
        "disassemble 0x1000,+4",
        "goto end",
        "x/1i 0x1000",
        "goto start",
    ]);
    let text: Vec<&str> = transcript
        .lines()
        .filter_map(|line| line.split_once(":\t"))
        .map(|(_, text)| text.trim_end())
        .collect();
    let [nop, xor, jump] = ["nop", "xor    %eax,%eax", "jmp    *%rax"];
    assert_eq!(
        text,
        [jump, nop, jump, xor, xor, jump, xor, xor, nop],
        "{transcript}"
    );
}
