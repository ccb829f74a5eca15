//! Samples of eBPF programs, whose parts are from the memory of any process, and interpreters.

use crate::harness::fuzz;
use crate::mutate;
use backtrail_bpf::{CodeEvent, SampleEvent};
use backtrail_process::thread_context::record::{MAX_RECORD, Record};
use backtrail_profile::{Frame, Profile};
use backtrail_profiler::python::{PythonBuild, PythonCode};
use backtrail_pt::Pid;
use std::fs;
use std::process::Command;

/// The offsets of the code object's record (`bpf/src/sample_event.h`).
const PROGRAM: usize = 8;
const LENGTHS: usize = 24;
const QUALNAME: usize = 32;
const FILE: usize = QUALNAME + 256;
const LINES: usize = FILE + 512;
const SIZE: usize = LINES + 2048;

/// Returns the record of a code object, with characters of this many bytes and a table of lines.
fn code_object(kind: u8, lines: &[u8]) -> Vec<u8> {
    let wide = |text: &str| -> Vec<u8> {
        let characters = text.bytes();
        characters
            .flat_map(|byte| {
                let mut wide = vec![0; kind.into()];
                wide[0] = byte;
                wide
            })
            .collect()
    };
    let (name, file) = (wide("Server.handle"), wide("/srv/shop/server.py"));
    let mut record = vec![0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0x7f00_1234_5678_u64.to_le_bytes());
    put(PROGRAM, &u32::MAX.to_le_bytes());
    put(PROGRAM + 4, &[1, 2, 3, 4, 7, 0, 0, 0, 10, 0, 0, 0]);
    for (index, part) in [&*name, &file, lines].into_iter().enumerate() {
        put(LENGTHS + index * 2, &(part.len() as u16).to_le_bytes());
    }
    put(LENGTHS + 6, &[kind, kind]);
    put(QUALNAME, &name);
    put(FILE, &file);
    put(LINES, lines);
    record
}

/// A table with short, long and missing positions, as CPython writes it.
const LINE_TABLE: [u8; 15] = [
    0x80, 0, 0xe1, 0, 4, 0xf0, 3, 0, 4, 8, 0xeb, 0x7e, 0x3f, 0xf8, 0xd8,
];

#[test]
fn python_code() {
    let seeds = [1, 2, 4].map(|kind| code_object(kind, &LINE_TABLE));
    fuzz("python_code", &seeds, mutate::bytes, |bytes| {
        let Some(event) = CodeEvent::parse(bytes) else {
            return false;
        };
        let (mut code, mut profile) = (PythonCode::default(), Profile::default());
        code.add(&event);
        code.add(&event);
        let mut lines = 0;
        for offset in (0..64).chain([2048, i32::MAX as u32, u32::MAX - 1]) {
            let state = u64::from(event.hash) << 32 | u64::from(offset);
            let index = code.frame(Pid(event.pid), event.code, state);
            let frame = code.profile_frame(&mut profile, index).unwrap();
            let Frame::Function { function, line } = frame else {
                panic!("{frame:?}");
            };
            let name = profile.functions.get(function).map(|function| function.name);
            let name = profile.text(name.unwrap());
            assert!(!name.is_empty() && name.len() <= 3 * 256, "{name}");
            lines += usize::from(line > 0);
        }
        code.forget(Pid(event.pid));
        lines > 0
    });
}

/// A stack of three words, two of the kernel, and a request with two attributes.
fn sample() -> Vec<u8> {
    let context = [&[1; 24][..], &[1, 1, 14, 0], b"\0\x05/cart\x01\x05/shop"].concat();
    let mut sample = 10_101_010_u64.to_le_bytes().to_vec();
    sample.extend([0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 0, 0, context.len() as u8, 0, 0, 0]);
    for word in [
        0x0001_0000_0000_1234,
        0xffff_7f00_1234_5678,
        0x0102_0304_0000_0008,
    ] {
        sample.extend(u64::to_le_bytes(word));
    }
    sample.extend([0xff; 16]);
    sample.extend(context);
    sample
}

#[test]
fn sample_records() {
    let names = ["http.route", "user"].map(|name| Some(name.to_owned()));
    fuzz("sample_records", &[sample()], mutate::bytes, |bytes| {
        let Some(event) = SampleEvent::parse(bytes) else {
            return false;
        };
        let words = event.user.len() + event.kernel.len();
        assert!(words * 8 + event.context.len() <= bytes.len());
        let Some(record) = Record::parse(&event.context) else {
            return false;
        };
        assert!(record.attributes.len() <= MAX_RECORD);
        record.named(&names).len() == 2
    });
}

/// An interpreter of CPython 3.13, apart from its code.
const INTERPRETER: &str = "
__attribute__((section(\".PyRuntime\"))) unsigned long long _PyRuntime[80] = {
    [0] = 0x7970677562656478, [5] = 632, [8] = 7264, [9] = 7344, [21] = 8, [23] = 72, [24] = 152,
    [29] = 8, [31] = 56, [33] = 70, [35] = 112, [37] = 128, [38] = 136, [39] = 68, [43] = 200,
    [45] = 8, [65] = 16, [66] = 32, [68] = 32, [69] = 16, [70] = 40
};
const unsigned long Py_Version = VERSION;
char PyCode_Type[400];
int main(void) { return 0; }
";

#[test]
fn python_builds() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("python.c"), folder.path().join("python"));
    fs::write(&source, INTERPRETER).unwrap();
    let seeds = ["0x030b02f0", "0x030d00f0"].map(|version| {
        let status = Command::new("cc")
            .args(["-rdynamic", "-nostartfiles", "-Wl,-e,main", "-o"])
            .args([&program, &source])
            .arg(format!("-DVERSION={version}"))
            .status();
        assert!(status.unwrap().success());
        fs::read(&program).unwrap()
    });
    fuzz("python_builds", &seeds, mutate::bytes, |bytes| {
        let Some(build) = PythonBuild::of_elf(bytes) else {
            return false;
        };
        let interpreter = build.interpreter(0x7f00_0000_0000);
        assert_eq!(interpreter.is_none(), build.note().is_some());
        interpreter.is_some()
    });
}
