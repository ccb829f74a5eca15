//! Manifests round-trip. Changed JSON is read or refused.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bundle::context::{Attributes, PublishedContext, SpanContext, ThreadContext};
use backtrail_bundle::manifest::*;
use backtrail_bundle::{Bundle, BundlePath, Error, Overwrite, Writer, core};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, BuildId, Cpu, CpuModel, FileOffset, Nanos, Pid, Tid, TimingParams, TscConversion};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

fn path(text: &str) -> BundlePath {
    BundlePath::new(text).unwrap()
}

/// Builds a manifest that uses every field, by processor or by thread.
fn full(by_cpu: bool, number: u64, text: &str) -> Manifest {
    let thread = |tid| Thread {
        tid: Tid(tid),
        name: Some(text.to_owned()),
        trace: (!by_cpu).then(|| path(if tid == 1 { "traces/t" } else { "traces/u" })),
        values: None,
    };
    let small = number >> 1;
    let mapping = Mapping {
        start: Avma(small),
        offset: FileOffset(small / 2),
        size: small / 4,
        from: number.is_multiple_of(2).then_some(Nanos(small)),
        until: number.is_multiple_of(3).then_some(Nanos(number)),
    };
    let module = |file: Option<BundlePath>| Module {
        path: format!("/{text}"),
        file,
        build_id: BuildId::new(&[number as u8; 20]),
        base: Avma(number),
        mappings: vec![mapping],
        mapped_from: 2,
        mapped_until: Some(3),
    };
    Manifest {
        cpu: CpuModel {
            vendor: Vendor::Other,
            family: number as u16,
            model: number as u8,
            stepping: 15,
        },
        timing: TimingParams {
            mtc_freq: 3,
            nom_freq: number as u8,
            cpuid_15h_eax: 2,
            cpuid_15h_ebx: number as u32,
        },
        tsc: Some(TscConversion {
            shift: 31,
            mult: 1 + number as u32 / 2,
            zero: number,
        }),
        filters: vec![AddressFilter {
            from: Avma(small),
            to: Avma(number),
        }],
        processes: vec![Process {
            pid: Pid(number as u32),
            threads: vec![thread(1), thread(2)],
            modules: vec![module(Some(path("modules/m"))), module(None)],
            images: vec![RawImage {
                start: Avma(small),
                file: path("images/i"),
                offset: FileOffset(0),
                size: 4,
            }],
            // Code changes by boundaries or by times.
            versions: (!number.is_multiple_of(2) && !number.is_multiple_of(3)).then(|| path("code/v")),
            shared_memory: (!number.is_multiple_of(5)).then(|| {
                vec![SharedMemory {
                    start: Avma(number),
                    size: small,
                    is_unseen: by_cpu,
                }]
            }),
        }],
        cpus: if by_cpu {
            vec![CpuTrace {
                cpu: Cpu(number as u32),
                trace: path("traces/t"),
                switches: path("sideband/s"),
            }]
        } else {
            Vec::new()
        },
        core: Some(path("core")),
        meta: full_meta(by_cpu, number, text),
    }
}

/// Builds metadata that uses every field.
fn full_meta(by_cpu: bool, number: u64, text: &str) -> Meta {
    Meta {
        source: Source::Software,
        created_by: Some(text.to_owned()),
        created_at: Some(number),
        program: Some(text.to_owned()),
        command_line: vec![text.to_owned(), String::new()],
        crash: Some(Crash {
            pid: Pid(1),
            tid: Tid(2),
            signal: 11,
            code: -6,
            fault_address: Some(Avma(number)),
            pc: Avma(number >> 1),
        }),
        ending: Some(match by_cpu {
            true => Ending::Exited(number as i32),
            false => Ending::Killed(11),
        }),
        host: Some(text.to_owned()),
        kernel: Some(text.to_owned()),
        overhead: Some(Overhead {
            wall: 5_000_000_000,
            program_cpu: Some(3_000_000_000),
            recorder_cpu: 4_000_000_000,
            stops: 77,
        }),
        heap_events: Some(number),
        standard_error: Some(text.to_owned()),
        collected: Some(Collected {
            trigger: text.to_owned(),
            time: Some(number),
            probe: Some(text.to_owned()),
            crash_to_reader: Some(1),
            crash_to_stop: None,
            overwritten: Some(number),
            crash_to_held: Some(2),
            held: Some(3),
            history: number,
            user: Some(1000),
            deposited_by: Some(1001),
            service: Some("ledger".to_owned()),
            missing: vec![text.to_owned()],
        }),
        context: Some(PublishedContext {
            resource: Attributes::from([("service.name".to_owned(), text.to_owned())]),
            threads: vec![ThreadContext {
                tid: Tid(2),
                span: by_cpu.then(|| SpanContext {
                    trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".parse().unwrap(),
                    span_id: "00f067aa0ba902b7".parse().unwrap(),
                    flags: number as u8,
                }),
                attributes: Attributes::from([("http.route".to_owned(), text.to_owned())]),
            }],
        }),
        notes: vec![text.to_owned()],
    }
}

fn write(manifest: &Manifest, target: &Path) {
    try_write(manifest, target).unwrap();
}

fn try_write(manifest: &Manifest, target: &Path) -> Result<(), Error> {
    let writer = Writer::create(target, Overwrite::Bundle).unwrap();
    for name in [
        "traces/t",
        "traces/u",
        "sideband/s",
        "modules/m",
        "images/i",
        "code/v",
        "core",
    ] {
        writer.add_bytes(&path(name), b"\x7fELF").unwrap();
    }
    writer.finish(manifest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn manifest_round_trips(by_cpu: bool, number: u64, text in "[^\0]{0,12}") {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("bundle");
        let manifest = full(by_cpu, number, &text);
        write(&manifest, &target);
        let bundle = Bundle::open(&target).unwrap();
        prop_assert_eq!(bundle.manifest(), &manifest);
    }

    /// Replaces or removes one value of the JSON.
    #[test]
    fn mutated_manifest_is_read_or_refused(by_cpu: bool, which in 0usize..120, choice in 0usize..12) {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("bundle");
        write(&full(by_cpu, 0x1234_5678_9abc, "x"), &target);
        let file = target.join("trace.json");
        let mut value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let mut left = which;
        mutate(&mut value, &mut left, choice);
        std::fs::write(&file, value.to_string()).unwrap();
        if let Err(error) = Bundle::open(&target) {
            prop_assert!(error.is_malformed() || is_newer(&error), "{}", error);
            prop_assert!(!error.to_string().contains('\n'), "one sentence: {}", error);
        }
        // `check` reports every fault and never panics.
        let report = backtrail_bundle::check(&target).unwrap();
        prop_assert!(report.findings.iter().all(|finding| finding.is_malformed() || is_newer(finding)));
    }
}

/// Returns whether a large number replaced the version.
fn is_newer(error: &Error) -> bool {
    matches!(error, Error::Unsupported { problem, .. } if problem.contains("newer"))
}

/// Puts value number `choice` at the `left`-th position of the document.
fn mutate(value: &mut Value, left: &mut usize, choice: usize) {
    if *left == 0 {
        *value = [
            Value::Null,
            Value::from(-1),
            Value::from(u64::MAX),
            Value::from(1.5),
            Value::from(""),
            Value::from("../../etc/passwd"),
            Value::from("/etc/passwd"),
            Value::from("0xffffffffffffffff"),
            Value::from("traces"),
            Value::from(vec![0; 3]),
            serde_json::json!({}),
            Value::from(true),
        ][choice]
            .clone();
        *left = usize::MAX;
        return;
    }
    let children: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(map) => map.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        if *left == usize::MAX {
            return;
        }
        *left -= 1;
        mutate(child, left, choice);
    }
}

/// Code that changes by boundaries, and by times.
#[test]
fn version_is_the_lowest_whose_readers_understand() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let plain = Mapping {
        from: None,
        until: None,
        ..full(true, 6, "x").processes[0].modules[0].mappings[0]
    };
    let with = |versions: bool, from: Option<u64>, until: Option<u64>| {
        let mut manifest = full(true, 6, "x");
        let process = &mut manifest.processes[0];
        process.versions = versions.then(|| path("code/v"));
        process.modules.truncate(1);
        process.modules[0].mappings = vec![Mapping {
            from: from.map(Nanos),
            until: until.map(Nanos),
            ..plain
        }];
        manifest
    };
    let cases = [
        (with(false, None, None), 1),
        (with(true, None, None), 2),
        (with(false, Some(7), None), 3),
        (with(false, None, Some(7)), 3),
        (with(false, Some(7), Some(7)), 3),
    ];
    for (manifest, version) in cases {
        write(&manifest, &target);
        let file = std::fs::read(target.join("trace.json")).unwrap();
        let json: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(json["backtrail"]["version"], version);
        assert_eq!(Bundle::open(&target).unwrap().manifest(), &manifest);
    }
    let refused = [
        (with(true, Some(7), None), "not both"),
        (with(false, Some(8), Some(7)), "cannot end before it starts"),
    ];
    for (manifest, problem) in refused {
        let error = try_write(&manifest, &target).unwrap_err();
        assert!(
            error.is_malformed() && error.to_string().contains(problem),
            "{error}"
        );
    }
}

#[test]
fn existing_target_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    std::fs::create_dir(&target).unwrap();
    write(&full(true, 1, "x"), &target);
    assert!(Writer::create(&target, Overwrite::Never).is_err(), "a bundle");
    write(&full(true, 2, "x"), &target);
    assert_eq!(
        Bundle::open(&target).unwrap().manifest(),
        &full(true, 2, "x"),
        "replaced when asked"
    );
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("precious"), "x").unwrap();
    assert!(Writer::create(&other, Overwrite::Bundle).is_err(), "not a bundle");
    drop(Writer::create(&dir.path().join("given up"), Overwrite::Never).unwrap());
    let mut left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["bundle", "other"], "nothing half-made is left");
}

#[test]
fn core_without_crash_belongs_to_the_process_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let segment = core::Segment {
        start: Avma(0x1000),
        size: 4096,
        saved: 4096,
        readable: true,
        executable: true,
        ..core::Segment::default()
    };
    let contents = core::CoreContents {
        process: core::ProcessInfo {
            pid: 7,
            ..core::ProcessInfo::default()
        },
        threads: vec![core::CoreThread::default()],
        segments: vec![segment],
        ..core::CoreContents::default()
    };
    let process = |pid| Process {
        pid: Pid(pid),
        ..Process::default()
    };
    let mut manifest = Manifest {
        processes: vec![process(6), process(7)],
        ..full(false, 1, "x")
    };
    (manifest.meta.crash, manifest.cpus) = (None, Vec::new());
    let writer = Writer::create(&target, Overwrite::Never).unwrap();
    let mut file = writer.create_file(&path("core")).unwrap();
    let memory = |_: Avma, out: &mut [u8]| out.len();
    core::write(&mut file, &contents, memory).unwrap();
    writer.finish(&manifest).unwrap();
    let bundle = Bundle::open(&target).unwrap();
    let sections = |pid| bundle.code(Pid(pid)).unwrap().len();
    assert_eq!((sections(6), sections(7)), (0, 1));
}
