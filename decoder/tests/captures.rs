//! Every capture decodes to the known number of instructions and errors, and to the known digest.

mod common;

use backtrail_decoder::{
    AddressFilter, Config, EngineKind, FilterKind, History, Image, Input, Watch, decode,
};
use backtrail_pt::{Avma, CpuModel, Tid, TimingParams};
use common::{add_elf, capture};
use std::collections::BTreeMap;
use std::sync::Arc;

struct Case {
    trace: &'static str,
    /// ELF files beside the trace, each with its load address.
    elves: &'static [(&'static str, Option<u64>)],
    cpu: &'static str,
    timing: TimingParams,
    filter: Option<(u64, u64)>,
    expected: (u64, u64, &'static str),
}

const NO_TIMING: TimingParams = TimingParams {
    mtc_freq: 0,
    nom_freq: 0,
    cpuid_15h_eax: 0,
    cpuid_15h_ebx: 0,
};
const HASE: TimingParams = TimingParams {
    mtc_freq: 3,
    nom_freq: 32,
    cpuid_15h_eax: 2,
    cpuid_15h_ebx: 266,
};
const DYNAMORIO: TimingParams = TimingParams {
    mtc_freq: 3,
    nom_freq: 37,
    cpuid_15h_eax: 2,
    cpuid_15h_ebx: 308,
};

fn history(case: &Case) -> Option<History> {
    let trace = capture(case.trace)?;
    let folder = case.trace.rsplit_once('/').unwrap().0;
    let mut image = Image::new();
    for (elf, base) in case.elves {
        let bytes = capture(&format!("{folder}/{elf}")).unwrap();
        add_elf(&mut image, &bytes, *base);
    }
    let filters = case.filter.iter().map(|&(from, to)| AddressFilter {
        range: Avma(from)..Avma(to),
        kind: FilterKind::Filter,
    });
    let cpu: CpuModel = case.cpu.parse().unwrap();
    let config = Config {
        cpu: Some(cpu),
        timing: case.timing,
        filters: filters.collect(),
    };
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace),
        image: Arc::new(image),
    };
    let engine = EngineKind::Libipt.engine();
    let decoded = decode(&[input], &BTreeMap::new(), &config, engine, &Watch::none()).unwrap();
    decoded.threads.into_iter().next()
}

fn check(case: &Case) {
    let Some(history) = history(case) else { return };
    let digest = format!("{:016x}", history.digest());
    for (index, gap) in history.gaps() {
        eprintln!(
            "{}: gap before {index}: {} at {}",
            case.trace, gap.cause, gap.trace_offset
        );
    }
    eprintln!("{} bytes for {} instructions", history.memory(), history.len());
    assert_eq!(
        (history.len(), history.errors(), &*digest),
        case.expected,
        "{}",
        case.trace
    );
}

#[test]
fn lldb_single_thread() {
    check(&Case {
        trace: "pt/lldb/intelpt-trace/3842849.trace",
        elves: &[("a.out", Some(0x40_0000))],
        cpu: "6/79/1",
        timing: NO_TIMING,
        filter: None,
        expected: (21, 0, "a9fe0721b4730d26"),
    });
}

#[test]
fn lldb_several_files() {
    check(&Case {
        trace: "pt/lldb/intelpt-trace-multi-file/multi-file.trace",
        elves: &[
            ("a.out", Some(0x40_0000)),
            ("libfoo.so", Some(0x7fff_f7bd_9000)),
            ("libbar.so", Some(0x7fff_f79d_7000)),
        ],
        cpu: "6/79/1",
        timing: NO_TIMING,
        filter: None,
        expected: (45, 1, "8dd26683a0914e89"),
    });
}

#[test]
fn lldb_core_45() {
    check(&Case {
        trace: "pt/lldb/intelpt-multi-core-trace/cores/45.intelpt_trace",
        elves: &[("../modules/m.out", Some(0x40_0000))],
        cpu: "6/85/4",
        timing: NO_TIMING,
        filter: None,
        expected: (61825, 1, "3fe4d1c4bfa53614"),
    });
}

#[test]
fn lldb_core_51() {
    check(&Case {
        trace: "pt/lldb/intelpt-multi-core-trace/cores/51.intelpt_trace",
        elves: &[("../modules/m.out", Some(0x40_0000))],
        cpu: "6/85/4",
        timing: NO_TIMING,
        filter: None,
        expected: (19521, 3, "703ae443b15ef89d"),
    });
}

#[test]
fn dynamorio_raw() {
    check(&Case {
        trace: "pt/dynamorio/raw_2022-07-08/pt.bin",
        elves: &[("hello", None)],
        cpu: "6/85/4",
        timing: DYNAMORIO,
        filter: None,
        expected: (8, 0, "7931620037f53a9f"),
    });
}

#[test]
fn dynamorio_trace() {
    check(&Case {
        trace: "pt/dynamorio/tracedir_2022-07-06/pt.bin",
        elves: &[("hello", None)],
        cpu: "6/85/4",
        timing: DYNAMORIO,
        filter: None,
        expected: (59234, 0, "167a7c4d385a2cdc"),
    });
}

#[test]
fn hase_loopy() {
    check(&Case {
        trace: "pt/hase/20180404/loopy/x/aux-idx2.bin",
        elves: &[("../loopy", None)],
        cpu: "6/94/3",
        timing: HASE,
        filter: None,
        expected: (57, 0, "574bf011aedda8f4"),
    });
}

#[test]
fn hase_control_flow() {
    check(&Case {
        trace: "pt/hase/20180404/control_flow/x/aux-idx1.bin",
        elves: &[("../control_flow", None)],
        cpu: "6/94/3",
        timing: HASE,
        filter: None,
        expected: (1092, 0, "59be03529a08eded"),
    });
}
