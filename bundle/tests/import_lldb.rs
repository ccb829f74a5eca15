//! LLDB's own test bundles: valid ones are imported; errors for the others state the position.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bundle::manifest::Manifest;
use backtrail_bundle::{Bundle, CancelToken, Error, Overwrite, check, import, pack, unpack};
use backtrail_pt::{Avma, Pid, Tid};
use std::path::PathBuf;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt/lldb");

/// Imports a description. Returns `None` if the captures are absent.
fn import(json: &str) -> Option<Result<(Manifest, tempfile::TempDir), Error>> {
    let json = PathBuf::from(CAPTURES).join(json);
    if !json.exists() {
        println!("skipped: {} is absent", json.display());
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let imported = import::lldb(
        &json,
        &dir.path().join("bundle"),
        Overwrite::Never,
        &CancelToken::default(),
    );
    assert_eq!(
        dir.path().join("bundle").exists(),
        imported.is_ok(),
        "nothing half-made is left"
    );
    Some(imported.map(|manifest| (manifest, dir)))
}

#[test]
fn trace_by_thread_imports() {
    let Some(imported) = import("intelpt-trace-multi-file/multi-file-no-ld.json") else {
        return;
    };
    let (manifest, dir) = imported.unwrap();
    let bundle = Bundle::open(&dir.path().join("bundle")).unwrap();
    assert_eq!(bundle.manifest(), &manifest);
    assert!(check(bundle.root()).unwrap().is_clean());
    let code = bundle.code(Pid(815_455)).unwrap();
    let starts: Vec<Avma> = code.iter().map(|section| section.start).collect();
    assert!(
        starts.contains(&Avma(0x40_0000)) && starts.contains(&Avma(0x7fff_f7bd_9000)),
        "{starts:?}"
    );
    let trace = manifest.processes[0].threads[0].trace.clone().unwrap();
    assert_eq!(bundle.bytes(&trace).unwrap().len(), 4096);
}

#[test]
fn trace_by_processor_imports_with_switches_and_packs() {
    let Some(imported) = import("intelpt-multi-core-trace/trace_with_string_numbers.json") else {
        return;
    };
    let (manifest, dir) = imported.unwrap();
    assert_eq!(manifest.tsc.unwrap().zero, 18_433_473_881_008_870_804);
    let packed = dir.path().join("bundle.btz");
    pack(&dir.path().join("bundle"), &packed, &CancelToken::default()).unwrap();
    let bundle = Bundle::open(&packed).unwrap();
    assert_eq!(bundle.manifest(), &manifest);
    let switches: Vec<usize> = manifest
        .cpus
        .iter()
        .map(|cpu| bundle.switches(cpu).unwrap().len())
        .collect();
    assert_eq!(switches, [76, 226]);
    unpack(&packed, &dir.path().join("again"), &CancelToken::default()).unwrap();
    assert_eq!(
        Bundle::open(&dir.path().join("again")).unwrap().manifest(),
        &manifest
    );
    assert!(
        unpack(&packed, &dir.path().join("again"), &CancelToken::default()).is_err(),
        "a target that is taken"
    );
}

#[test]
fn threads_missing_from_the_list_come_from_the_switches() {
    let Some(imported) = import("intelpt-multi-core-trace/trace_missing_threads.json") else {
        return;
    };
    let (manifest, _dir) = imported.unwrap();
    let mut tids: Vec<Tid> = manifest.processes[0]
        .threads
        .iter()
        .map(|thread| thread.tid)
        .collect();
    tids.sort();
    assert_eq!(tids, [Tid(3_497_234), Tid(3_497_496), Tid(3_497_497)]);
    assert_eq!(manifest.meta.notes.len(), 2, "with a note each");
}

#[test]
fn kernel_trace_has_a_thread_for_each_processor() {
    let Some(imported) = import("intelpt-kernel-trace/trace_with_loadAddress.json") else {
        return;
    };
    let (manifest, _dir) = imported.unwrap();
    let process = &manifest.processes[0];
    assert!(manifest.cpus.is_empty());
    assert_eq!(
        process
            .threads
            .iter()
            .map(|thread| thread.tid.0)
            .collect::<Vec<_>>(),
        [45, 51]
    );
    assert_eq!(process.modules[0].base, Avma(0x40_0000));
}

#[test]
fn malformed_descriptions_are_refused_with_their_position() {
    let cases = [
        (
            "intelpt-trace/trace_bad.json",
            "trace_bad.json: processes[0]: this must be an object, not 123",
        ),
        (
            "intelpt-trace/trace_bad2.json",
            "cpuInfo.family: this must be a whole number, not \"123\"",
        ),
        (
            "intelpt-trace/trace_bad3.json",
            "processes[1].pid: a whole number is missing here",
        ),
        (
            "intelpt-trace/trace_bad4.json",
            "cpuInfo.family: a whole number is missing here",
        ),
        (
            "intelpt-trace/trace_bad5.json",
            "processes[1].pid: a whole number is missing here",
        ),
        (
            "intelpt-trace/trace_bad_image.json",
            "its load address 0xfffff0 is not page-aligned",
        ),
        (
            "intelpt-trace/trace_wrong_cpu.json",
            "cpuInfo.family: 2123123 is too large; the maximum is 65535",
        ),
        (
            "intelpt-kernel-trace/trace_kernel_with_process.json",
            "\"processes\" must be empty when \"kernel\" is given",
        ),
        (
            "intelpt-kernel-trace/trace_kernel_wo_cpus.json",
            "\"cpus\" is required when \"kernel\" is given",
        ),
    ];
    for (json, expected) in cases {
        let Some(imported) = import(json) else { return };
        let error = imported.map(drop).unwrap_err();
        assert!(error.is_malformed(), "{json}: {error}");
        assert!(error.to_string().contains(expected), "{json}: {error}");
    }
}
