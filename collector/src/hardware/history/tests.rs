//! Compares a bounded history with one that keeps everything.

use super::*;
use crate::hardware::world::{ExecutableMapping, MappedFile};
use backtrail_perf::switch::Direction;
use backtrail_pt::{Avma, FileOffset, Pid, Tid};
use proptest::prelude::*;
use std::sync::Arc;

fn mapped(start: u64, size: u64, path: &str) -> ExecutableMapping {
    ExecutableMapping {
        start: Avma(start),
        size,
        offset: FileOffset(start / 2),
        file: Arc::new(MappedFile {
            path: path.to_owned(),
            build_id: None,
            id: None,
        }),
    }
}

fn change(time: u64, change: Change) -> HistoryEntry {
    HistoryEntry {
        time: Nanos(time),
        cpu: Cpu(0),
        event: HistoryEvent::Change(Box::new(change)),
    }
}

fn switch(time: u64, cpu: u32, pid: u32) -> HistoryEntry {
    HistoryEntry {
        time: Nanos(time),
        cpu: Cpu(cpu),
        event: HistoryEvent::Switch(ContextSwitch {
            time: Nanos(time),
            pid: Pid(pid),
            tid: Tid(pid),
            direction: Direction::In,
            next_prev_pid: Pid(0),
            next_prev_tid: Tid(0),
        }),
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    let pid = || (1u32..6).prop_map(Pid);
    let tid = || (1u32..9).prop_map(Tid);
    prop_oneof![
        (pid(), 0u64..12, 1u64..6)
            .prop_map(|(pid, start, pages)| { Change::Map(pid, mapped(start << 12, pages << 12, "/lib/a")) }),
        (pid(), tid(), "[a-c]", any::<bool>()).prop_map(|(pid, tid, name, exec)| Change::Comm {
            pid,
            tid,
            name: name.into(),
            exec
        }),
        (pid(), tid(), pid(), tid()).prop_map(|(pid, tid, parent, by)| Change::Fork { pid, tid, parent, by }),
        (pid(), tid()).prop_map(|(pid, tid)| Change::Exit { pid, tid }),
    ]
}

fn any_entries() -> impl Strategy<Value = Vec<HistoryEntry>> {
    let one = prop_oneof![
        any_change().prop_map(|event| change(0, event)),
        (0u32..3, 1u32..6).prop_map(|(cpu, pid)| switch(0, cpu, pid)),
    ];
    prop::collection::vec(one, 0..80).prop_map(|mut entries| {
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.time = Nanos(10 + index as u64);
            if let HistoryEvent::Switch(switch) = &mut entry.event {
                switch.time = entry.time;
            }
        }
        entries
    })
}

proptest! {
    /// For any limit and any batches, every remaining moment is reported as if nothing was removed.
    #[test]
    fn removed_entries_stay_in_the_base(
        entries in any_entries(),
        batch in 1usize..20,
        limit in 0usize..4000,
        after in 0u64..100,
    ) {
        let mut all = SidebandHistory::new(usize::MAX, World::default());
        all.add(entries.clone());
        let mut few = SidebandHistory::new(limit, World::default());
        for batch in entries.chunks(batch) {
            // Processors are read one after another, so a batch is in any order.
            few.add(batch.iter().rev().cloned().collect());
        }
        prop_assert!(few.used() <= limit);
        prop_assert_eq!(few.used(), few.entries.iter().map(HistoryEntry::bytes).sum::<usize>());
        let from = Nanos(few.folded.0 + 1 + after);
        for until in [from, Nanos(from.0 + 5), Nanos(u64::MAX)] {
            prop_assert_eq!(few.interval(from, until), all.interval(from, until));
        }
    }

    /// Mappings never overlap, and the remaining parts of older mappings keep their file offsets.
    #[test]
    fn mappings_never_overlap(changes in prop::collection::vec((0u64..24, 1u64..8), 1..30)) {
        let mut world = World::default();
        let mut model = [None; 40];
        for (number, (start, pages)) in changes.iter().enumerate() {
            let path = format!("/lib/{number}");
            world.apply(Nanos(5), &Change::Map(Pid(1), mapped(start << 12, pages << 12, &path)), false);
            for page in *start..start + pages {
                model[page as usize] = Some((number, (start << 12) / 2 + ((page - start) << 12)));
            }
        }
        let mappings = &world.processes[&Pid(1)].mappings;
        for (page, expected) in model.iter().enumerate() {
            let address = (page as u64) << 12;
            let here: Vec<_> = mappings
                .iter()
                .filter(|mapped| (mapped.start.0..mapped.start.0 + mapped.size).contains(&address))
                .map(|mapped| (mapped.file.path.clone(), mapped.offset.0 + address - mapped.start.0))
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(number, offset)| (format!("/lib/{number}"), *offset))
                .collect();
            prop_assert_eq!(here, expected);
        }
    }
}

fn fork(time: u64, pid: u32, parent: u32) -> HistoryEntry {
    change(
        time,
        Change::Fork {
            pid: Pid(pid),
            tid: Tid(pid),
            parent: Pid(parent),
            by: Tid(parent),
        },
    )
}

fn exit(time: u64, pid: u32) -> HistoryEntry {
    change(
        time,
        Change::Exit {
            pid: Pid(pid),
            tid: Tid(pid),
        },
    )
}

#[test]
fn processes_that_ended_before_are_not_included() {
    let mut history = SidebandHistory::new(usize::MAX, World::default());
    let map = change(12, Change::Map(Pid(1), mapped(0x1000, 0x1000, "/bin/a")));
    history.add(vec![
        fork(10, 1, 7),
        map,
        fork(20, 2, 1),
        exit(30, 1),
        exit(40, 2),
    ]);
    let interval = history.interval(Nanos(35), Nanos(50));
    assert_eq!(interval.world.processes.keys().collect::<Vec<_>>(), [&Pid(2)]);
    let child = &interval.world.processes[&Pid(2)];
    assert_eq!((child.ended, child.parent), (Some(Nanos(40)), Some(Pid(1))));
    assert_eq!(
        child.mappings[0].file.path, "/bin/a",
        "a child begins with what its parent had mapped"
    );
    let interval = history.interval(Nanos(25), Nanos(50));
    assert_eq!(interval.world.processes[&Pid(1)].ended, Some(Nanos(30)));
    assert!(!interval.cut);
}

#[test]
fn reused_id_is_another_process() {
    let mut history = SidebandHistory::new(usize::MAX, World::default());
    let map = change(11, Change::Map(Pid(1), mapped(0x1000, 0x1000, "/bin/old")));
    history.add(vec![fork(10, 1, 7), map, exit(20, 1), fork(30, 1, 8)]);
    let interval = history.interval(Nanos(0), Nanos(50));
    let process = &interval.world.processes[&Pid(1)];
    assert_eq!(
        (process.ended, process.parent, process.mappings.len()),
        (None, Some(Pid(8)), 0)
    );
}

#[test]
fn older_records_do_not_change_procfs_state() {
    let seen = crate::hardware::world::ProcessState {
        mappings: Arc::new(vec![mapped(0x1000, 0x1000, "/bin/new")]),
        threads: [(Tid(1), Arc::from("new"))].into(),
        as_of: Nanos(100),
        ..Default::default()
    };
    let world = World {
        processes: [(Pid(1), seen.clone())].into(),
    };
    let mut history = SidebandHistory::new(usize::MAX, world);
    let name = |time, name: &str, exec| {
        let (pid, tid) = (Pid(1), Tid(1));
        let name = name.into();
        change(time, Change::Comm { pid, tid, name, exec })
    };
    let old = change(90, Change::Map(Pid(1), mapped(0x1000, 0x1000, "/bin/old")));
    history.add(vec![old, name(95, "old", true)]);
    assert_eq!(
        history.interval(Nanos(0), Nanos(100)).world.processes[&Pid(1)],
        seen
    );
    history.add(vec![name(101, "newer", true)]);
    let after = history.interval(Nanos(0), Nanos(110)).world.processes[&Pid(1)].clone();
    assert_eq!((after.mappings.len(), &*after.threads[&Tid(1)]), (0, "newer"));
}

#[test]
fn running_thread_at_start_survives_removal() {
    let entries: Vec<HistoryEntry> = (0..50)
        .map(|index| switch(index, (index % 2) as u32, index as u32 + 1))
        .collect();
    let mut history = SidebandHistory::new(10 * size_of::<HistoryEntry>(), World::default());
    history.add(entries);
    assert_eq!(history.len(), 10);
    let interval = history.interval(Nanos(45), Nanos(47));
    let times = |cpu| {
        interval.switches[&Cpu(cpu)]
            .iter()
            .map(|switch| switch.time.0)
            .collect::<Vec<_>>()
    };
    // For each processor: the last switch before the interval, and those in it.
    assert_eq!((times(0), times(1)), (vec![44, 46], vec![43, 45, 47]));
    assert!(!interval.cut);
    assert!(history.interval(Nanos(10), Nanos(47)).cut);
}

/// Returns a switch of thread -1 off a processor.
fn nobody_leaves(time: u64, cpu: u32) -> HistoryEntry {
    let mut entry = switch(time, cpu, u32::MAX);
    if let HistoryEvent::Switch(switch) = &mut entry.event {
        switch.direction = Direction::Out { preempted: false };
    }
    entry
}

#[test]
fn reaped_thread_is_identified_at_switch_out() {
    let found = |entries: Vec<HistoryEntry>, limit: usize| -> Vec<u32> {
        let mut history = SidebandHistory::new(limit, World::default());
        history.add(entries);
        let interval = history.interval(Nanos(0), Nanos(100));
        interval.switches[&Cpu(1)]
            .iter()
            .map(|switch| switch.tid.0)
            .collect()
    };
    let entries = vec![switch(10, 1, 94), switch(11, 0, 7), nobody_leaves(20, 1)];
    assert_eq!(found(entries.clone(), 1 << 20), [94, 94]);
    // The earlier switch is already in the base state.
    assert_eq!(found(entries, 2 * size_of::<HistoryEntry>()), [94, 94]);
    let lost = |cpu| HistoryEntry {
        cpu: Cpu(cpu),
        ..change(15, Change::Lost(3))
    };
    let with = |lost: HistoryEntry| vec![switch(10, 1, 94), lost, nobody_leaves(20, 1)];
    assert_eq!(
        found(with(lost(1)), 1 << 20),
        [94, u32::MAX],
        "another may have come"
    );
    assert_eq!(found(with(lost(0)), 1 << 20), [94, 94]);
    assert_eq!(found(vec![nobody_leaves(20, 1)], 1 << 20), [u32::MAX]);
}
