//! Recordings of perf and raw packets, made here: each instruction belongs to the thread, and is
//! of the code, that the records prove.

mod replaced_names;

use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Encoder, EncoderOptions, TimingParams, Tsc};
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::perf_data::{Bound, Origin, PerfData, elf, page_list};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The process, its second thread, and a process that is not traced.
const PID: u32 = 50;
const SECOND: u32 = 51;
const FOREIGN: u32 = 77;
/// The address of all code.
const CODE: u64 = 0x40_1000;
/// An area of a page at [`CODE`], from file offset 0x1000.
const AREA: (u64, u64, u64) = (CODE, 0x1000, 0x1000);

/// A recording whose files are in a folder.
struct Recording {
    folder: TempDir,
    data: PerfData,
    encoder: Encoder,
    /// The end of the last part of the trace.
    end: u64,
}

impl Recording {
    /// A trace of one processor with a stamp at its start, at time 1000, and no other.
    fn new(bound: Bound) -> Self {
        let mut encoder = Encoder::new(EncoderOptions {
            timing: Some(TimingOptions {
                params: TimingParams::default(),
                mtc: false,
                cyc: false,
            }),
            ..EncoderOptions::default()
        });
        encoder.set_time(Tsc(1000));
        encoder.start();
        Self {
            folder: tempfile::tempdir().unwrap(),
            data: PerfData::new(bound),
            encoder,
            end: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes an ELF file with this code at [`CODE`].
    fn program(&self, name: &str, code: &[u8]) {
        fs::write(self.path(name), elf(64, CODE, code)).unwrap();
    }

    fn maps(&mut self, pid: u32, time: u64, name: &str, inode: u64) {
        let path = self.path(name).display().to_string();
        self.data.mmap(at(pid, time), AREA, &path, inode);
    }

    /// The thread runs `bytes` bytes of code from [`CODE`] on.
    fn burst(&mut self, bytes: u64) {
        self.encoder.enable(Avma(CODE));
        self.encoder.disable_async(Avma(CODE + bytes));
    }

    /// A part of the trace is complete.
    fn aux(&mut self, tid: u32, time: u64) {
        let end = self.encoder.written();
        self.data.aux(at(tid, time), self.end, end - self.end);
        self.end = end;
    }

    /// The thread runs from 10 ticks after a time to 100 after it, and its part of the trace is
    /// complete 5 ticks later.
    fn turn(&mut self, pid: u32, tid: u32, time: u64, bytes: u64) {
        self.data.ran(pid, tid, 0, time + 10..time + 100);
        self.burst(bytes);
        self.aux(tid, time + 105);
    }

    fn write(&mut self, pipe: bool) -> PathBuf {
        let packets = self.encoder.take();
        let mut data = self.data.clone();
        data.packets(0, 0, &packets);
        let file = self.path("perf.data");
        let bytes = if pipe { data.into_pipe() } else { data.into_file() };
        fs::write(&file, bytes).unwrap();
        file
    }

    fn import(&mut self) -> Bundle {
        let file = self.write(false);
        perf(&file)
    }
}

fn at(tid: u32, time: u64) -> Origin {
    let pid = if tid == SECOND { PID } else { tid };
    Origin {
        pid,
        tid,
        time,
        cpu: 0,
    }
}

fn perf(file: &Path) -> Bundle {
    Bundle::made(&["import".as_ref(), "perf".as_ref(), file.as_os_str()], &[]).0
}

/// Thread and number of instructions, which do not depend on the number of decoder threads.
fn lengths(bundle: &Bundle) -> Vec<(u32, u64)> {
    let [digest, other] = ["1", "4"].map(|jobs| {
        let run = bundle.run(&["info"], &["--digest", "--jobs", jobs]);
        run.stdout
    });
    assert_eq!(digest, other);
    let row = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Some((words.get(1)?.parse().ok()?, words.get(3)?.parse().ok()?))
    };
    digest.lines().filter_map(row).collect()
}

fn meta(bundle: &Bundle) -> Value {
    serde_json::from_slice(&fs::read(bundle.path.join("meta.json")).unwrap()).unwrap()
}

fn gaps(bundle: &Bundle) -> String {
    bundle.run(&["check"], &[]).stdout
}

/// A process with two threads, between which another process runs.
fn two_threads(bound: Bound) -> Recording {
    let mut recording = Recording::new(bound);
    recording.program("program", &[0x90; 64]);
    recording.data.comm(at(PID, 900), "program", true);
    recording.maps(PID, 901, "program", 1);
    recording.data.itrace_start(at(PID, 902));
    recording.data.fork(at(SECOND, 903), PID);
    recording.turn(PID, PID, 1000, 3);
    recording.data.ran(FOREIGN, FOREIGN, 0, 1110..1200);
    recording.turn(PID, PID, 1200, 4);
    recording.turn(PID, SECOND, 1300, 5);
    recording.data.ran(FOREIGN, FOREIGN, 0, 1410..1490);
    recording.turn(PID, PID, 1500, 6);
    recording.data.ran(FOREIGN, FOREIGN, 0, 1610..5000);
    recording
}

#[test]
fn untraced_processes_cost_a_bound_trace_nothing() {
    let bundle = two_threads(Bound::Thread(PID)).import();
    assert_eq!(lengths(&bundle), [(PID, 13), (SECOND, 5)]);
    assert_eq!(bundle.info()["cpus"][0]["attributed"], 18);
}

#[test]
fn ends_of_parts_attribute_a_trace_of_processors() {
    // The thread of a part is certain where only one ran.
    let bundle = two_threads(Bound::Processors).import();
    assert_eq!(lengths(&bundle), [(PID, 3), (SECOND, 5)]);
}

#[test]
fn one_bound_thread_needs_no_ends_of_parts() {
    let mut recording = Recording::new(Bound::Thread(PID));
    recording.program("program", &[0x90; 64]);
    recording.maps(PID, 901, "program", 1);
    recording.data.itrace_start(at(PID, 902));
    for turn in 0..4 {
        let time = 1000 + turn * 200;
        recording.data.ran(PID, PID, 0, time + 10..time + 100);
        recording.burst(10 + turn);
        recording.data.ran(FOREIGN, FOREIGN, 0, time + 110..time + 190);
    }
    // The crash: the thread has no id in its last switch.
    recording.data.switch(at(PID, 1900), false);
    recording.burst(20);
    let exited = Origin {
        pid: u32::MAX,
        tid: u32::MAX,
        ..at(PID, 1950)
    };
    recording.data.switch(exited, true);
    recording.data.ran(FOREIGN, FOREIGN, 0, 2000..3000);
    let bundle = recording.import();
    assert_eq!(lengths(&bundle), [(PID, 66)]);
}

#[test]
fn lost_records_leave_flow_unattributed() {
    let mut recording = two_threads(Bound::Thread(PID));
    recording.data.lost(at(PID, 1250), 7);
    let bundle = recording.import();
    assert_eq!(lengths(&bundle), [(PID, 3), (SECOND, 5)]);
}

#[test]
fn no_switches_attribute_only_a_single_bound_thread() {
    let only = |bound, second: bool| {
        let mut recording = Recording::new(bound);
        recording.program("program", &[0x90; 64]);
        recording.data.comm(at(PID, 900), "program", true);
        recording.maps(PID, 901, "program", 1);
        recording.data.itrace_start(at(PID, 902));
        if second {
            recording.data.fork(at(SECOND, 903), PID);
        }
        recording.burst(7);
        recording.import()
    };
    assert_eq!(lengths(&only(Bound::Thread(PID), false)), [(PID, 7)]);
    for (bound, second) in [(Bound::Thread(PID), true), (Bound::Processors, false)] {
        let bundle = only(bound, second);
        let info = [OsStr::new("info"), bundle.path.as_ref()];
        let run = backtrail(info).unwrap().exited(1);
        assert!(run.sentence().contains("has no thread"), "{}", run.stderr);
        let notes = meta(&bundle)["notes"].to_string();
        assert!(notes.contains("its trace belongs to no thread"), "{notes}");
    }
}

/// A process that maps one file over another between its two turns.
fn replaced(first: &[u8], second: &[u8], bytes: u64) -> Recording {
    let mut recording = Recording::new(Bound::Thread(PID));
    recording.program("one.so", first);
    recording.program("two.so", second);
    recording.data.comm(at(PID, 900), "program", true);
    recording.maps(PID, 901, "one.so", 1);
    recording.turn(PID, PID, 1000, bytes);
    recording.maps(PID, 1150, "two.so", 2);
    recording.turn(PID, PID, 1200, bytes);
    recording
}

/// Four instructions of a byte each, and one of four.
const SHORT: [u8; 64] = [0x90; 64];
const LONG: [u8; 64] = *b"\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00";

#[test]
fn replaced_mapping_holds_until_its_replacement() {
    let bundle = replaced(&SHORT, &LONG, 8).import();
    let expected: Vec<u64> = (0..8).map(|at| CODE + at).chain([CODE, CODE + 4]).collect();
    assert_eq!(bundle.addresses(), expected);
    let back = replaced(&LONG, &SHORT, 8).import();
    let expected: Vec<u64> = [CODE, CODE + 4]
        .into_iter()
        .chain((0..8).map(|at| CODE + at))
        .collect();
    assert_eq!(back.addresses(), expected);
}

#[test]
fn code_of_an_uncertain_time_is_a_gap() {
    let mut recording = Recording::new(Bound::Thread(PID));
    recording.program("one.so", &SHORT);
    recording.program("two.so", &LONG);
    recording.maps(PID, 901, "one.so", 1);
    recording.turn(PID, PID, 1000, 8);
    // Both runs are in one part of the trace.
    recording.data.ran(PID, PID, 0, 1210..1300);
    recording.burst(8);
    recording.maps(PID, 1250, "two.so", 2);
    recording.burst(8);
    recording.aux(PID, 1305);
    recording.turn(PID, PID, 1400, 8);
    let bundle = recording.import();
    // The packets of the last turn come before the next PSB.
    let run = bundle.addresses();
    assert_eq!(run[..8], std::array::from_fn::<_, 8, _>(|at| CODE + at as u64));
    let gaps = gaps(&bundle);
    assert!(
        gaps.contains("the code at 0x401000 changed at about this time; the version that ran is unknown"),
        "{gaps}"
    );
}

#[test]
fn code_before_an_exec_is_that_of_the_first_program() {
    let mut recording = Recording::new(Bound::Thread(PID));
    recording.program("first", &SHORT);
    recording.program("second", &LONG);
    recording.data.comm(at(PID, 900), "first", true);
    recording.maps(PID, 901, "first", 1);
    recording.turn(PID, PID, 1000, 4);
    recording.data.comm(at(PID, 1150), "second", true);
    recording.maps(PID, 1151, "second", 2);
    recording.turn(PID, PID, 1200, 4);
    // A child starts with the second program, and executes the first one.
    recording.data.fork(at(60, 1310), PID);
    recording.turn(60, 60, 1320, 4);
    recording.data.comm(at(60, 1450), "first", true);
    recording.maps(60, 1451, "first", 1);
    recording.turn(60, 60, 1500, 4);
    let bundle = recording.import();
    let four: Vec<u64> = (0..4).map(|at| CODE + at).collect();
    let expected = [&*four, &[CODE], &[CODE], &four].concat();
    assert_eq!(bundle.addresses(), expected);
    assert_eq!(lengths(&bundle), [(PID, 5), (60, 5)]);
    let program = meta(&bundle)["program"].to_string();
    assert!(program.contains("second"), "{program}");
}

#[test]
fn a_rebuilt_file_is_not_taken_for_the_old_one() {
    let mut recording = Recording::new(Bound::Thread(PID));
    // The plugin was built again, and loaded at the same place.
    recording.program("plugin.so", &LONG);
    recording.maps(PID, 901, "plugin.so", 1);
    recording.turn(PID, PID, 1000, 4);
    recording.maps(PID, 1150, "plugin.so", 2);
    recording.encoder.set_time(Tsc(1210));
    recording.data.ran(PID, PID, 0, 1210..1300);
    recording.encoder.enable(Avma(CODE));
    recording.encoder.psb(Avma(CODE));
    recording.encoder.disable_async(Avma(CODE + 4));
    recording.aux(PID, 1305);
    let bundle = recording.import();
    assert_eq!(bundle.addresses(), [CODE]);
    let gaps = gaps(&bundle);
    assert!(gaps.contains("no code bytes for 0x401000"), "{gaps}");
    let notes = bundle.info()["notes"].to_string();
    assert!(
        notes.contains("was replaced by another file of that name"),
        "{notes}"
    );
}

#[test]
fn a_program_rebuilt_between_two_processes_is_not_mixed_up() {
    let mut recording = Recording::new(Bound::Thread(PID));
    // `make` ran it, built it again, and ran it again.
    recording.program("program", &LONG);
    for (pid, inode) in [(60, 1), (61, 2)] {
        let time = u64::from(pid) * 100 - 5000;
        recording.data.fork(at(pid, time), PID);
        recording.data.comm(at(pid, time + 1), "program", true);
        recording.maps(pid, time + 2, "program", inode);
        recording.encoder.set_time(Tsc(time + 11));
        recording.data.ran(pid, pid, 0, time + 10..time + 60);
        recording.encoder.enable(Avma(CODE));
        recording.encoder.psb(Avma(CODE));
        recording.encoder.disable_async(Avma(CODE + 8));
        recording.aux(pid, time + 65);
    }
    let bundle = recording.import();
    assert_eq!(lengths(&bundle), [(60, 0), (61, 2)]);
    let gaps = gaps(&bundle);
    assert!(gaps.contains("no code bytes for 0x401000"), "{gaps}");
}

#[test]
fn anonymous_code_over_a_file_is_unknown() {
    let mut recording = Recording::new(Bound::Thread(PID));
    recording.program("one.so", &SHORT);
    recording.maps(PID, 901, "one.so", 1);
    recording.turn(PID, PID, 1000, 4);
    recording.data.mmap(at(PID, 1150), AREA, "//anon", 0);
    recording.turn(PID, PID, 1200, 4);
    let bundle = recording.import();
    assert_eq!(lengths(&bundle), [(PID, 4)]);
    let gaps = gaps(&bundle);
    assert!(gaps.contains("no code bytes for 0x401000"), "{gaps}");
}

#[test]
fn pipe_reads_as_the_file_does() {
    let mut recording = two_threads(Bound::Thread(PID));
    let file = recording.write(false);
    let expected = perf(&file).run(&["info"], &["--digest"]).stdout;
    let mut recording = two_threads(Bound::Thread(PID));
    let pipe = recording.write(true);
    let bundle = perf(&pipe);
    assert_eq!(bundle.run(&["info"], &["--digest"]).stdout, expected);
    assert_eq!(meta(&bundle)["host"], "piped");
    assert_eq!(lengths(&bundle), [(PID, 13), (SECOND, 5)]);
    let whole = fs::read(&pipe).unwrap();
    for size in [16, 17, 200, whole.len() - 1] {
        fs::write(&pipe, &whole[..size]).unwrap();
        let target = recording.path("refused");
        let arguments: [&OsStr; 5] = [
            "import".as_ref(),
            "perf".as_ref(),
            pipe.as_ref(),
            "-o".as_ref(),
            target.as_ref(),
        ];
        let run = backtrail(arguments).unwrap().exited(3);
        assert!(run.sentence().contains("perf.data"), "{}", run.stderr);
        assert!(!target.exists());
    }
}

/// Packets of a run of 32-bit code from one address to another.
fn packets_32(from: u64, to: u64) -> Vec<u8> {
    let mut packets = [0x02, 0x82].repeat(8);
    packets.extend([0x99, 0x02, 0x02, 0x23, 0x99, 0x02, 0x71]);
    packets.extend(&from.to_le_bytes()[..6]);
    packets.push(0x7d);
    packets.extend(&to.to_le_bytes()[..6]);
    packets.push(0x01);
    packets
}

/// Three instructions in 32-bit code: inc %eax; inc %eax; nop. In 64-bit code they are one.
const INCREMENT: [u8; 16] = *b"\x40\x40\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90";
const CODE_32: u64 = 0x0804_9000;

fn shows_32_bit_code(bundle: &Bundle) {
    assert_eq!(bundle.addresses(), [CODE_32, CODE_32 + 1, CODE_32 + 2]);
    let debug = bundle.run(&["debug"], &["--batch", "-e", "goto start", "-e", "x/3i $pc"]);
    let text = debug.stdout + &debug.stderr;
    // Where it stops, and in the list.
    assert_eq!(text.matches("inc    %eax").count(), 3, "{text}");
    let notes = bundle.info()["notes"].to_string() + &bundle.run(&["info"], &[]).stdout;
    assert!(notes.contains("runs 32-bit code"), "{notes}");
}

#[test]
fn flow_of_32_bit_programs_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (pt, program) = (folder.path().join("pt"), folder.path().join("program"));
    fs::write(&pt, packets_32(CODE_32, CODE_32 + 3)).unwrap();
    fs::write(&program, elf(32, CODE_32, &INCREMENT)).unwrap();
    let raw: [&OsStr; 6] = [
        "import".as_ref(),
        "raw".as_ref(),
        "--pt".as_ref(),
        pt.as_ref(),
        "--image".as_ref(),
        program.as_ref(),
    ];
    shows_32_bit_code(&Bundle::made(&raw, &[]).0);

    let pages = folder.path().join("pages");
    fs::write(&pages, page_list(&[(CODE_32, &INCREMENT)])).unwrap();
    let raw: [&OsStr; 6] = [raw[0], raw[1], raw[2], raw[3], "--pages".as_ref(), pages.as_ref()];
    shows_32_bit_code(&Bundle::made(&raw, &[]).0);

    let mut recording = Recording::new(Bound::Thread(PID));
    fs::write(recording.path("program"), elf(32, CODE_32, &INCREMENT)).unwrap();
    let path = recording.path("program").display().to_string();
    let area = (CODE_32, 0x1000, 0x1000);
    recording.data.mmap(at(PID, 901), area, &path, 1);
    recording.data.ran(PID, PID, 0, 1000..2000);
    let packets = packets_32(CODE_32, CODE_32 + 3);
    recording.data.aux(at(PID, 2005), 0, packets.len() as u64);
    recording.data.packets(0, 0, &packets);
    let file = recording.path("perf.data");
    fs::write(&file, recording.data.clone().into_file()).unwrap();
    let bundle = perf(&file);
    assert_eq!(bundle.addresses(), [CODE_32, CODE_32 + 1, CODE_32 + 2]);
}

#[test]
fn page_lists_give_the_flow_that_images_give() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let mut encoder = Encoder::new(EncoderOptions::default());
    encoder.start();
    encoder.enable(Avma(CODE));
    encoder.disable_async(Avma(CODE + 60));
    fs::write(file("pt"), encoder.take()).unwrap();
    fs::write(file("code"), LONG).unwrap();
    let import = |option: &str, value: &OsStr| {
        let pt = file("pt");
        let arguments: [&OsStr; 6] = [
            "import".as_ref(),
            "raw".as_ref(),
            "--pt".as_ref(),
            pt.as_ref(),
            option.as_ref(),
            value,
        ];
        Bundle::made(&arguments, &[]).0
    };
    let mut image = file("code").into_os_string();
    image.push(format!("@{CODE}"));
    let expected = import("--image", &image).run(&["info"], &["--digest"]).stdout;
    assert!(expected.contains("instructions 15 errors 0"), "{expected}");
    // The pages are in no order, and overlap.
    let list = page_list(&[(CODE + 30, &LONG[30..]), (CODE, &LONG[..32])]);
    fs::write(file("pages"), list).unwrap();
    let digest = |bundle: &Bundle| bundle.run(&["info"], &["--digest"]).stdout;
    let bundle = import("--pages", file("pages").as_ref());
    assert_eq!(digest(&bundle), expected);
    // Where two pages differ, nothing is known.
    let list = page_list(&[(CODE, &LONG), (CODE + 16, &SHORT[..4])]);
    fs::write(file("pages"), list).unwrap();
    let bundle = import("--pages", file("pages").as_ref());
    assert!(
        digest(&bundle).contains("instructions 4 errors 1"),
        "{}",
        digest(&bundle)
    );
    let gaps = gaps(&bundle);
    assert!(gaps.contains("no code bytes for 0x401010"), "{gaps}");
    let notes = bundle.info()["notes"].to_string();
    assert!(notes.contains("two different bytes for 4 addresses"), "{notes}");

    fs::write(file("pages"), "0x401000 90 9\n").unwrap();
    let (pt, pages, target) = (file("pt"), file("pages"), file("refused"));
    let arguments: [&OsStr; 8] = [
        "import".as_ref(),
        "raw".as_ref(),
        "--pt".as_ref(),
        pt.as_ref(),
        "--pages".as_ref(),
        pages.as_ref(),
        "-o".as_ref(),
        target.as_ref(),
    ];
    let run = backtrail(arguments).unwrap().exited(3);
    assert!(
        run.sentence().contains("line 1: the bytes of a page are pairs"),
        "{}",
        run.stderr
    );
    assert!(!target.exists());
}
