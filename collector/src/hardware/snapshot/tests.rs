//! Tests a bundle of this process with fake traces.

use super::*;
use crate::hardware::freeze::FrozenCpu;
use crate::hardware::history::{HistoryEntry, HistoryEvent, SidebandHistory};
use crate::hardware::procfs_snapshot;
use crate::hardware::records::FileTable;
use crate::hardware::world::{ProcessState, World};
use backtrail_bundle::BundlePath;
use backtrail_bundle::manifest::{Manifest, Meta, Source};
use backtrail_bundle::{Bundle, Overwrite};
use backtrail_perf::ContextSwitch;
use backtrail_perf::record::AuxFlags;
use backtrail_perf::switch::Direction;
use backtrail_pt::{Packet, Tid, TimingParams};
use std::path::Path;

fn trace(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    packets.iter().for_each(|packet| packet.write_to(&mut bytes));
    bytes
}

fn psb(time: u64) -> [Packet; 3] {
    [Packet::Psb, Packet::Tsc(time), Packet::PsbEnd]
}

fn switch(time: u64, pid: u32, direction: Direction) -> HistoryEntry {
    HistoryEntry {
        time: Nanos(time),
        cpu: Cpu(0),
        event: HistoryEvent::Switch(ContextSwitch {
            time: Nanos(time),
            pid: Pid(pid),
            tid: Tid(pid),
            direction,
            next_prev_pid: Pid(0),
            next_prev_tid: Tid(0),
        }),
    }
}

fn ours() -> (Pid, ProcessState) {
    let pid = std::process::id();
    let state = procfs_snapshot::process(pid as i32, &mut FileTable::default(), Nanos(1)).unwrap();
    (Pid(pid), state)
}

/// Returns a history with two switches of the process, a loss and a partial trace.
fn history_with_losses(pid: Pid, state: ProcessState) -> SidebandHistory {
    let mut history = SidebandHistory::new(
        usize::MAX,
        World {
            processes: [(pid, state)].into(),
        },
    );
    let lost = HistoryEntry {
        event: HistoryEvent::Change(Box::new(Change::Lost(3))),
        ..switch(60, 0, Direction::In)
    };
    let partial = HistoryEntry {
        event: HistoryEvent::Change(Box::new(Change::Trace(AuxFlags(4)))),
        ..switch(61, 0, Direction::In)
    };
    history.add(vec![
        switch(40, pid.0, Direction::In),
        switch(70, pid.0, Direction::Out { preempted: true }),
        lost,
        partial,
    ]);
    history
}

#[test]
fn bundle_has_traces_switches_and_modules() {
    let (pid, state) = ours();
    let history = history_with_losses(pid, state);
    // One tick is one nanosecond.
    let tsc = TscConversion::new(0, 1, 0).unwrap();
    let now = Tsc(1000);
    let traces = [trace(&psb(50)), trace(&psb(55)), trace(&psb(90))];
    let frozen = Frozen {
        cpus: vec![
            FrozenCpu::for_test(Cpu(0), &traces[2], 95, false),
            FrozenCpu::for_test(Cpu(1), &traces[1], 80, false),
            // The same processor, before it went offline and online again.
            FrozenCpu::for_test(Cpu(0), &traces[0], 52, true),
        ],
        began_at: 0,
        crash_at: None,
    };
    let (from, until) = TraceSnapshot::span(&frozen, &tsc, now);
    assert_eq!((from, until), (Nanos(50), Nanos(95)));
    let cpu = backtrail_process::machine::processor(Path::new("/proc")).unwrap();
    let timing = TimingParams::default();
    let snapshot = TraceSnapshot {
        frozen: &frozen,
        interval: history.interval(from, until),
        pid: Some(pid),
        machine: TracedMachine { tsc, timing, cpu },
        procfs: "/proc".into(),
        filters: Vec::new(),
    };
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("bundle");
    let writer = Writer::create(&target, Overwrite::Never).unwrap();
    let written = snapshot.write(&writer).unwrap();
    let notes = written.notes.join("\n");
    assert!(
        notes.contains("3 records were lost") && notes.contains("has gaps"),
        "{notes}"
    );
    assert!(notes.contains("processor 0 went offline"), "{notes}");
    let manifest = Manifest {
        cpu: written.machine.cpu,
        timing: written.machine.timing,
        tsc: Some(written.machine.tsc),
        filters: Vec::new(),
        processes: written.processes,
        cpus: written.cpus,
        core: None,
        meta: Meta {
            source: Source::Hardware,
            notes: written.notes,
            ..Meta::default()
        },
    };
    let cost = written.costs[0];
    assert_eq!(
        (cost.cpu, cost.bytes, cost.paused_for),
        (Cpu(0), traces[2].len(), Some(1))
    );
    assert_eq!((written.costs[2].paused_for, cost.crash_to_pause), (None, None));
    writer.finish(&manifest).unwrap();
    assert!(backtrail_bundle::check(&target).unwrap().findings.is_empty());

    let bundle = Bundle::open(&target).unwrap();
    let manifest = bundle.manifest();
    let file = |path: &BundlePath| std::fs::read(target.join(path.as_str())).unwrap();
    assert_eq!(manifest.cpus.len(), 2);
    assert_eq!(
        file(&manifest.cpus[0].trace),
        [&traces[0][..], &traces[2][..]].concat()
    );
    let switches = backtrail_perf::switch::parse(&file(&manifest.cpus[0].switches)).unwrap();
    // The switch before shows the thread that ran when the trace starts.
    assert_eq!(
        switches.iter().map(|switch| switch.time.0).collect::<Vec<_>>(),
        [40, 70]
    );
    assert!(file(&manifest.cpus[1].switches).is_empty());
    let process = &manifest.processes[0];
    let program = std::env::current_exe().unwrap();
    let module = process
        .modules
        .iter()
        .find(|module| Path::new(&module.path) == program)
        .unwrap();
    assert!(module.file.is_some());
    let lowest = backtrail_process::maps::maps(pid.0 as i32)
        .into_iter()
        .find(|map| map.path == module.path)
        .unwrap();
    assert_eq!(module.base.0, lowest.start);
    let here = bundle_has_traces_switches_and_modules as *const () as u64;
    let holds = |mapping: &backtrail_bundle::manifest::Mapping| {
        (mapping.start.0..mapping.start.0 + mapping.size).contains(&here)
    };
    assert!(module.mappings.iter().any(holds));
    assert!(process.threads.iter().any(|thread| thread.tid == Tid(pid.0)));
}

#[test]
fn without_pid_all_running_processes_are_included() {
    let (pid, state) = ours();
    let mut history = SidebandHistory::new(
        usize::MAX,
        World {
            processes: [(pid, state)].into(),
        },
    );
    history.add(vec![
        switch(40, pid.0, Direction::In),
        switch(41, 0x7fff_fff0, Direction::In),
        switch(42, 0, Direction::In),
    ]);
    let frozen = Frozen {
        cpus: Vec::new(),
        began_at: 0,
        crash_at: None,
    };
    let snapshot = TraceSnapshot {
        frozen: &frozen,
        interval: history.interval(Nanos(0), Nanos(100)),
        pid: None,
        machine: TracedMachine {
            tsc: TscConversion::new(0, 1, 0).unwrap(),
            timing: TimingParams::default(),
            cpu: "6/85/4".parse().unwrap(),
        },
        procfs: "/proc".into(),
        filters: Vec::new(),
    };
    let directory = tempfile::tempdir().unwrap();
    let writer = Writer::create(&directory.path().join("bundle"), Overwrite::Never).unwrap();
    let written = snapshot.write(&writer).unwrap();
    assert_eq!(
        written
            .processes
            .iter()
            .map(|process| process.pid)
            .collect::<Vec<_>>(),
        [pid]
    );
    assert!(
        written
            .notes
            .iter()
            .any(|note| note.contains("process 2147483632 is unknown"))
    );
}

#[test]
fn filters_become_addresses_where_their_file_is_mapped() {
    let (pid, state) = ours();
    let program = std::env::current_exe().unwrap();
    let code = state
        .mappings
        .iter()
        .find(|mapped| Path::new(&mapped.file.path) == program)
        .cloned()
        .unwrap();
    let world = World {
        processes: [(pid, state)].into(),
    };
    let frozen = Frozen {
        cpus: Vec::new(),
        began_at: 0,
        crash_at: None,
    };
    let filter = |file: Option<&Path>, start, size| Filter {
        file: file.map(Path::to_owned),
        start,
        size,
    };
    let snapshot = TraceSnapshot {
        frozen: &frozen,
        interval: SidebandHistory::new(0, world).interval(Nanos(5), Nanos(6)),
        pid: Some(pid),
        machine: TracedMachine {
            tsc: TscConversion::new(0, 1, 0).unwrap(),
            timing: TimingParams::default(),
            cpu: "6/85/4".parse().unwrap(),
        },
        procfs: "/proc".into(),
        filters: vec![
            filter(Some(&program), code.offset.0 + 0x100, 0x10),
            filter(Some(Path::new("/no/such/file")), 0, 0x10),
            filter(None, 0xffff_ffff_8100_0000, 0x1000),
        ],
    };
    let mut notes = Vec::new();
    let found = snapshot.address_filters(&mut notes);
    let range = |from, to| AddressFilter {
        from: Avma(from),
        to: Avma(to),
    };
    let start = code.start.0 + 0x100;
    assert_eq!(
        found,
        [
            range(start, start + 0xf),
            range(0xffff_ffff_8100_0000, 0xffff_ffff_8100_0fff)
        ]
    );
    assert_eq!(
        notes,
        ["/no/such/file has a filter but is not mapped, so it was not traced"]
    );
}
