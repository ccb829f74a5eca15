//! Checks that each capture decodes to the known number of instructions and errors, and to the
//! known digest.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

mod common;

use backtrail_decoder::{
    AddressFilter, Config, CpuReport, FilterKind, Forest, History, Image, Input, Resync, Switch, Watch,
};
use backtrail_pt::{Avma, Cpu, CpuModel, Nanos, Pid, Tid, TimingParams, Tsc, TscConversion};
use common::agreed::decode_agreed;
use common::{add_elf, capture};
use std::collections::BTreeMap;
use std::sync::Arc;

struct Case {
    trace: &'static str,
    /// ELF files with their load addresses.
    elves: &'static [(&'static str, Option<u64>)],
    cpu: &'static str,
    timing: TimingParams,
    filter: Option<(u64, u64)>,
    /// Instructions, errors and digest, if the flow resumes only at PSBs, as in libipt 2.1.
    expected: (u64, u64, &'static str),
    /// The same if the flow resumes after missing code, where that differs.
    resumed: Option<(u64, u64, &'static str)>,
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

fn history(case: &Case, resync: Resync) -> Option<History> {
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
        resync,
        ..Config::default()
    };
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace),
        image: Arc::new(image),
    };
    let decoded = decode_agreed(&[input], &BTreeMap::new(), &config);
    decoded.threads.into_iter().next()
}

/// Returns the history of a case, after checking it.
fn check(case: &Case) -> Option<History> {
    let mut last = None;
    for (resync, expected) in [
        (Resync::NextPsb, case.expected),
        (Resync::NextAddress, case.resumed.unwrap_or(case.expected)),
    ] {
        let history = history(case, resync)?;
        let digest = format!("{:016x}", history.digest());
        assert_eq!(
            (history.len(), history.errors(), &*digest),
            expected,
            "{} {resync:?}",
            case.trace
        );
        last = Some(history);
    }
    last
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
        resumed: None,
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
        resumed: Some((63, 2, "b49284a857babb1c")),
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
        resumed: None,
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
        resumed: Some((50003, 144, "2b1ce81349d21404")),
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
        resumed: None,
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
        resumed: None,
    });
}

#[test]
fn hase_loopy() {
    let history = check(&Case {
        trace: "pt/hase/20180404/loopy/x/aux-idx2.bin",
        elves: &[("../loopy", None)],
        cpu: "6/94/3",
        timing: HASE,
        filter: None,
        expected: (57, 0, "574bf011aedda8f4"),
        resumed: None,
    });
    // The core dump's rip is after the system call that raised the signal.
    if let Some(history) = history {
        assert_eq!(history.pc(history.len()), Some(Avma(0x40_0135)));
        assert_eq!(history.pc(history.len() - 1), Some(Avma(0x40_0133)));
    }
}

#[test]
fn hase_control_flow() {
    let history = check(&Case {
        trace: "pt/hase/20180404/control_flow/x/aux-idx1.bin",
        elves: &[("../control_flow", None)],
        cpu: "6/94/3",
        timing: HASE,
        filter: None,
        expected: (1092, 0, "59be03529a08eded"),
        resumed: None,
    });
    if let Some(history) = history {
        assert_eq!(history.pc(history.len()), Some(Avma(0x40_0a07)));
        assert_eq!(history.pc(history.len() - 1), Some(Avma(0x40_0a05)));
        // The trace has TSC, MTC and TMA, so each instruction has a time.
        assert!(history.time(0).is_some() && history.time(history.len()).is_some());
        let forest = Forest::build(&history, &(), &Watch::none()).unwrap();
        assert!(forest.len() > 10);
    }
}

/// Reads the `PERF_RECORD_SWITCH_CPU_WIDE` records of a file with nothing else: header (type, misc,
/// size), the other thread's pid and tid, then pid, tid and time.
fn switches(records: &[u8], conversion: TscConversion) -> Vec<Switch> {
    const SWITCH_OUT: u16 = 1 << 13;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    let mut rest = records;
    while !rest.is_empty() {
        let (misc, size) = (
            u16::from_le_bytes([rest[4], rest[5]]),
            u16::from_le_bytes([rest[6], rest[7]]),
        );
        let time = u64::from_le_bytes(rest[24..32].try_into().unwrap());
        found.push(Switch {
            at: conversion.tsc(Nanos(time)),
            pid: Pid(word(rest, 16)),
            tid: Tid(word(rest, 20)),
            out: misc & SWITCH_OUT != 0,
        });
        rest = &rest[usize::from(size)..];
    }
    found
}

#[test]
fn lldb_cores_split_into_threads() {
    const SET: &str = "pt/lldb/intelpt-multi-core-trace";
    let Some(elf) = capture(&format!("{SET}/modules/m.out")) else {
        return;
    };
    let mut image = Image::new();
    add_elf(&mut image, &elf, Some(0x40_0000));
    let conversion = TscConversion::new(31, 1_076_264_588, 18_433_473_881_008_870_804).unwrap();
    let inputs = [45, 51].map(|cpu| {
        let records = capture(&format!("{SET}/cores/{cpu}.perf_context_switch_trace")).unwrap();
        let trace = capture(&format!("{SET}/cores/{cpu}.intelpt_trace")).unwrap();
        Input::Cpu {
            cpu: Cpu(cpu),
            trace: Arc::new(trace),
            switches: switches(&records, conversion),
            aux_ends: Vec::new(),
        }
    });
    let images = BTreeMap::from([(Pid(3_497_234), Arc::new(image))]);
    let config = Config {
        cpu: Some("6/85/4".parse().unwrap()),
        ..Config::default()
    };
    let decoded = decode_agreed(&inputs, &images, &config);

    // LLDB 22's "thread trace dump info" reports 153 continuous executions and 5 PSB blocks. One
    // execution and one block are of thread 3497496, two and two of thread 3497497, none of thread
    // 3497234.
    assert_eq!(decoded.cpus.iter().map(CpuReport::executions).sum::<usize>(), 153);
    assert_eq!(decoded.cpus.iter().map(|cpu| cpu.psb_blocks).sum::<usize>(), 5);
    let of = |tid: Tid| {
        let executions: usize = decoded
            .cpus
            .iter()
            .filter_map(|cpu| cpu.executions_of.get(&tid))
            .sum();
        let blocks: usize = decoded
            .cpus
            .iter()
            .filter_map(|cpu| cpu.psb_blocks_of.get(&tid))
            .sum();
        (executions, blocks)
    };
    assert_eq!((of(Tid(3_497_496)), of(Tid(3_497_497))), ((1, 1), (2, 2)));

    let [foo, bar] = &*decoded.threads else {
        panic!("{} threads", decoded.threads.len())
    };
    assert_eq!((foo.tid(), bar.tid()), (Tid(3_497_496), Tid(3_497_497)));
    // The addresses of main.cpp's foo() and bar().
    assert_eq!((foo.len(), foo.pc(0)), (50_003, Some(Avma(0x40_0b99))));
    assert_eq!(
        (bar.len(), bar.pc(bar.len() - 1)),
        (61_825, Some(Avma(0x40_0bd7)))
    );
    assert_eq!((foo.cpu(0), bar.cpu(0)), (Some(Cpu(51)), Some(Cpu(45))));
    assert_eq!(
        foo.time(0).map(|time| time.tsc),
        Some(Tsc(40_450_075_477_621_505))
    );
    // Each thread fills its processor's whole capture.
    assert_eq!(
        (foo.digest(), bar.digest()),
        (0x2b1c_e813_49d2_1404, 0x3fe4_d1c4_bfa5_3614)
    );
    assert!(
        decoded
            .cpus
            .iter()
            .all(|cpu| cpu.attributed == cpu.instructions && cpu.unattributed.is_empty())
    );
}
