//! Valid inputs for mutations: generated ones, and captures where they exist.

use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Encoder, EncoderOptions, TimingParams, Tsc};
use backtrail_tests::captures;
use backtrail_tests::perf_data::{Bound, Origin, PerfData};
use std::fs;
use std::path::{Path, PathBuf};

/// A tiny program: a loop with a call, a return and an indirect jump, at [`CODE_AT`].
pub const CODE: &[u8] = &[
    0xe8, 0x07, 0x00, 0x00, 0x00, // call 0x100c
    0x75, 0xf9, // jne 0x1000
    0xff, 0xe0, // jmp rax
    0xeb, 0xf5, // jmp 0x1000
    0x90, // nop
    0x48, 0xff, 0xc8, // dec rax
    0xf3, 0xa4, // rep movsb
    0xc3, // ret
];

/// The address of [`CODE`].
pub const CODE_AT: u64 = 0x1000;

/// The clocks of [`timed`].
pub const TIMING: TimingParams = TimingParams {
    mtc_freq: 3,
    nom_freq: 1,
    cpuid_15h_eax: 1,
    cpuid_15h_ebx: 8,
};

/// Returns PT packets of a processor that switches between [`CODE`] and the kernel, with timing
/// packets in both.
pub fn timed() -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderOptions {
        timing: Some(TimingOptions {
            params: TIMING,
            mtc: true,
            cyc: false,
        }),
        ..EncoderOptions::default()
    });
    encoder.start();
    let mut ticks = (0..).step_by(16).map(Tsc);
    let mut pass =
        |encoder: &mut Encoder, count| ticks.by_ref().take(count).for_each(|at| encoder.set_time(at));
    for _ in 0..8 {
        pass(&mut encoder, 9);
        encoder.enable(Avma(CODE_AT));
        encoder.call(Avma(CODE_AT + 5), Avma(CODE_AT + 12), true);
        pass(&mut encoder, 3);
        encoder.near_return(Avma(CODE_AT + 5));
        encoder.disable_async(Avma(CODE_AT + 5));
    }
    encoder.take()
}

/// Returns PT packets of a run through [`CODE`] with timing packets and frequent PSBs.
pub fn cut() -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderOptions {
        psb_period: 128,
        timing: Some(TimingOptions {
            params: TIMING,
            mtc: true,
            cyc: true,
        }),
        ..EncoderOptions::default()
    });
    encoder.set_time(Tsc(1 << 30));
    encoder.start();
    encoder.enable(Avma(CODE_AT));
    for round in 0..200u64 {
        encoder.set_time(Tsc((1 << 30) + round * round % 40 + round * 40));
        encoder.call(Avma(CODE_AT + 5), Avma(CODE_AT + 12), true);
        encoder.near_return(Avma(CODE_AT + 5));
        if encoder.psb_due() {
            encoder.psb(Avma(CODE_AT + 5));
        }
        encoder.conditional(true);
    }
    encoder.disable_async(Avma(CODE_AT));
    encoder.take()
}

/// Returns PT packets of a run through [`CODE`], and of every capture.
pub fn packets() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(EncoderOptions::default());
    encoder.start();
    encoder.enable(Avma(CODE_AT));
    for round in 0..40 {
        encoder.call(Avma(CODE_AT + 5), Avma(CODE_AT + 12), true);
        encoder.near_return(Avma(CODE_AT + 5));
        let again = round % 7 != 6;
        encoder.conditional(again);
        if !again {
            encoder.indirect(Avma(CODE_AT + 9));
        }
        if round == 20 {
            encoder.disable_async(Avma(CODE_AT));
            encoder.enable(Avma(CODE_AT));
            encoder.psb(Avma(CODE_AT));
        }
    }
    encoder.disable();
    let mut seeds = vec![encoder.take()];
    seeds.extend(read_all(&[
        "pt/lldb/intelpt-trace/3842849.trace",
        "pt/lldb/intelpt-trace-multi-file/multi-file.trace",
        "pt/hase/20180404/loopy/x/aux-idx2.bin",
        "pt/hase/20180404/control_flow/x/aux-idx1.bin",
        "pt/dynamorio/raw_2022-07-08/pt.bin",
    ]));
    seeds
}

/// Reads the existing files of `../shared/data`.
pub fn read_all(paths: &[&str]) -> Vec<Vec<u8>> {
    let Some(folder) = captures::folder() else {
        return Vec::new();
    };
    paths
        .iter()
        .map(|path| fs::read(folder.join(path)).unwrap())
        .collect()
}

/// Writes a bundle of [`packets`]' first seed and [`CODE`] to `folder`.
pub fn bundle(folder: &Path) -> PathBuf {
    let (pt, code, bundle) = (folder.join("pt"), folder.join("code"), folder.join("bundle"));
    fs::write(&pt, &packets()[0]).unwrap();
    fs::write(&code, CODE).unwrap();
    let import = backtrail_bundle::import::RawImport {
        pt,
        images: vec![format!("{}@{CODE_AT:#x}", code.display()).parse().unwrap()],
        pages: Vec::new(),
        filters: Vec::new(),
        cpu: None,
        timing: backtrail_pt::TimingParams::default(),
        core: None,
    };
    backtrail_bundle::import::raw(
        &import,
        &bundle,
        backtrail_bundle::Overwrite::Never,
        &backtrail_bundle::CancelToken::default(),
    )
    .unwrap();
    bundle
}

/// A recording of perf: a process that maps two files at one place, executes a program, and has a
/// child, on two processors. `program`: the file of its code.
pub fn perf_data(program: &Path) -> PerfData {
    let path = program.display().to_string();
    let mut data = PerfData::new(Bound::Thread(1));
    let at = |time| Origin {
        pid: 1,
        tid: 1,
        time,
        cpu: 0,
    };
    let area = (CODE_AT & !0xfff, 0x1000, 0x1000);
    data.comm(at(1), "program", true);
    data.mmap(at(2), area, &path, 1);
    data.itrace_start(at(3));
    data.ran(1, 1, 0, 10..1000);
    data.mmap(at(500), area, "//anon", 0);
    data.comm(at(600), "other", true);
    data.mmap(at(601), area, &path, 2);
    data.fork(
        Origin {
            pid: 2,
            tid: 2,
            ..at(700)
        },
        1,
    );
    data.ran(2, 2, 1, 710..2000);
    data.lost(at(900), 1);
    let packets = timed();
    let half = packets.len() / 2;
    data.aux(at(1005), 0, half as u64);
    data.packets(0, 0, &packets[..half]);
    data.packets(1, 0, &packets);
    data.packets(0, half as u64, &packets[half..]);
    data
}

/// Builds a small core: two threads, one with a signal, three mapped files, two memory areas.
pub fn core() -> Vec<u8> {
    use backtrail_bundle::core::{CoreContents, CoreThread, MappedFile, ProcessInfo, Segment, write};
    let thread = |tid, signal| CoreThread {
        tid: backtrail_pt::Tid(tid),
        signal,
        fpregs: vec![0; 512],
        ..CoreThread::default()
    };
    let file = |start, path: &str| MappedFile {
        start: Avma(start),
        end: Avma(start + 0x1000),
        offset: backtrail_pt::FileOffset(0),
        path: path.to_owned(),
    };
    let segment = |start| Segment {
        start: Avma(start),
        size: 0x1000,
        saved: 0x1000,
        readable: true,
        writable: false,
        executable: true,
    };
    let contents = CoreContents {
        process: ProcessInfo {
            pid: 7,
            name: "small".to_owned(),
            ..ProcessInfo::default()
        },
        threads: vec![thread(7, 11), thread(8, 0)],
        auxv: vec![(6, 4096), (9, CODE_AT)],
        files: vec![
            file(CODE_AT, "/no/such/file"),
            file(0x3000, "/no/such/file"),
            file(0x5000, "/no/other"),
        ],
        segments: vec![segment(CODE_AT), segment(0x3000)],
    };
    let mut out = std::io::Cursor::new(Vec::new());
    let memory = |at: Avma, room: &mut [u8]| {
        room.fill(at.0 as u8);
        room.len()
    };
    write(&mut out, &contents, memory).unwrap();
    out.into_inner()
}

/// A core whose only saved memory is the first page of a mapped file.
pub fn core_with(base: Avma, page: &[u8]) -> Vec<u8> {
    use backtrail_bundle::core::{CoreContents, CoreThread, MappedFile, Segment, write};
    let size = page.len() as u64;
    let contents = CoreContents {
        threads: vec![CoreThread::default()],
        files: vec![MappedFile {
            start: base,
            end: base + size.next_multiple_of(0x1000),
            offset: backtrail_pt::FileOffset(0),
            path: "/no/such/file".to_owned(),
        }],
        segments: vec![Segment {
            start: base,
            size,
            saved: size,
            readable: true,
            ..Segment::default()
        }],
        ..CoreContents::default()
    };
    let mut out = std::io::Cursor::new(Vec::new());
    let memory = |at: Avma, room: &mut [u8]| {
        let rest = page.get((at - base) as usize..).unwrap_or_default();
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        count
    };
    write(&mut out, &contents, memory).unwrap();
    out.into_inner()
}
