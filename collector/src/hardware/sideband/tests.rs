//! Tests the sideband on this machine's kernel.

use super::*;
use backtrail_pt::{Pid, Tid};
use std::process::Command;
use std::thread;

/// Starts the sideband. `None`, with a message: this user may not open events.
fn start(limit: usize) -> Option<Sideband> {
    let cpus = backtrail_perf::cpu_list::online(Path::new("/sys")).unwrap();
    match Sideband::start(&cpus, limit) {
        Ok(mut sideband) => {
            sideband.begin(Path::new("/proc"), || None);
            Some(sideband)
        }
        Err(error) if error.to_string().contains("permission denied") => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn drain(sideband: &mut Sideband) {
    sideband.drain(&mut BTreeMap::new(), Path::new("/proc"), || None);
}

#[test]
fn child_is_recorded_from_fork_to_exit() {
    let Some(mut sideband) = start(64 << 20) else {
        return;
    };
    let mut child = Command::new("/bin/sh")
        .args(["-c", "exec sleep 0.01"])
        .spawn()
        .unwrap();
    let pid = Pid(child.id());
    child.wait().unwrap();
    drain(&mut sideband);
    let interval = sideband.history().interval(Nanos(0), Nanos(u64::MAX));
    let process = &interval.world.processes[&pid];
    assert!(process.ended.is_some());
    assert_eq!(process.parent, Some(Pid(std::process::id())));
    // The child executed twice, so the shell's mappings are gone.
    let paths: Vec<&str> = process.mappings.iter().map(|mapped| &*mapped.file.path).collect();
    assert!(paths.iter().any(|path| path.ends_with("/sleep")), "{paths:?}");
    assert!(!paths.iter().any(|path| path.ends_with("sh")), "{paths:?}");
    assert_eq!(&*process.threads[&Tid(pid.0)], "sleep");
    let build_ids = process
        .mappings
        .iter()
        .filter(|mapped| mapped.file.build_id.is_some());
    assert!(build_ids.count() >= 2, "{:?}", process.mappings);
    let switches: Vec<_> = interval
        .switches
        .values()
        .flatten()
        .filter(|switch| switch.pid == pid)
        .collect();
    assert!(switches.len() >= 2, "{switches:?}");
    for switches in interval.switches.values() {
        assert!(switches.is_sorted_by_key(|switch| switch.time));
        let bytes: Vec<u8> = switches.iter().flat_map(|switch| switch.to_bytes()).collect();
        assert_eq!(backtrail_perf::switch::parse(&bytes).unwrap(), *switches);
    }
    let counters = sideband.counters();
    assert_eq!((counters.lost, counters.malformed), (0, 0));
    assert!(counters.records > 10 && counters.history_bytes > 0);
}

#[test]
fn tsc_converts_to_perfs_clock() {
    use crate::hardware::clock;
    let Some(mut sideband) = start(64 << 20) else {
        return;
    };
    let Some(conversion) = sideband.conversion() else {
        println!("skipped: perf's clock is not the TSC here");
        return;
    };
    let before = clock::perf(&conversion);
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = Pid(child.id());
    let waited = clock::monotonic();
    child.wait().unwrap();
    let after = clock::perf(&conversion);
    drain(&mut sideband);
    let ended = sideband
        .history()
        .interval(Nanos(0), Nanos(u64::MAX))
        .world
        .processes[&pid]
        .ended
        .unwrap();
    assert!(before < ended && ended < after, "{before:?} {ended:?} {after:?}");
    let waited = clock::perf_of_monotonic(&conversion, waited);
    assert!(
        before < waited && waited < after,
        "{before:?} {waited:?} {after:?}"
    );
}

#[test]
fn own_code_and_new_threads_are_recorded() {
    let Some(mut sideband) = start(64 << 20) else {
        return;
    };
    let tid = thread::Builder::new()
        .name("new-thread".to_owned())
        // SAFETY: the call has no arguments and no effect.
        .spawn(|| Tid(unsafe { libc::gettid() } as u32))
        .unwrap()
        .join()
        .unwrap();
    drain(&mut sideband);
    let own = Pid(std::process::id());
    let ended = sideband.history.entries_for_test().any(
        |entry| matches!(&entry.event, HistoryEvent::Change(change) if **change == Change::Exit { pid: own, tid }),
    );
    let named = sideband.history.entries_for_test().any(|entry| {
        matches!(&entry.event, HistoryEvent::Change(change)
            if matches!(&**change, Change::Comm { pid, tid: named, name, exec: false }
                if (*pid, *named, &**name) == (own, tid, "new-thread")))
    });
    assert!(ended && named);
    let here = own_code_and_new_threads_are_recorded as *const () as u64;
    let world = sideband.history().interval(Nanos(0), Nanos(u64::MAX)).world;
    let holds = |mapped: &super::super::world::ExecutableMapping| {
        (mapped.start.0..mapped.start.0 + mapped.size).contains(&here)
    };
    assert!(world.processes[&own].mappings.iter().any(holds));
}

#[test]
fn empty_history_has_the_current_state() {
    let Some(mut sideband) = start(0) else { return };
    let mut child = Command::new("/bin/sleep").arg("5").spawn().unwrap();
    let pid = Pid(child.id());
    thread::sleep(Duration::from_millis(50));
    drain(&mut sideband);
    assert_eq!(sideband.history().len(), 0);
    let interval = sideband.history().interval(Nanos(u64::MAX), Nanos(u64::MAX));
    let process = &interval.world.processes[&pid];
    assert!(
        process
            .mappings
            .iter()
            .any(|mapped| mapped.file.path.ends_with("/sleep"))
    );
    child.kill().unwrap();
    child.wait().unwrap();
    drain(&mut sideband);
    let interval = sideband.history().interval(Nanos(u64::MAX), Nanos(u64::MAX));
    assert!(!interval.world.processes.contains_key(&pid));
}

#[test]
fn lost_records_cause_a_procfs_scan() {
    let Some(mut sideband) = start(64 << 20) else {
        return;
    };
    // Simulates a lost fork record of a child and a lost exit record of another process.
    let mut child = Command::new("/bin/sleep").arg("5").spawn().unwrap();
    let pid = Pid(child.id());
    thread::sleep(Duration::from_millis(50));
    drain(&mut sideband);
    let mut world = sideband
        .history()
        .interval(Nanos(u64::MAX), Nanos(u64::MAX))
        .world;
    let known = world.processes.remove(&pid).unwrap();
    let never = Pid(0x7fff_fff0);
    world.processes.insert(never, known.clone());
    sideband.history = SidebandHistory::new(64 << 20, world);
    sideband.has_lost_records = true;
    sideband.drain(&mut BTreeMap::new(), Path::new("/proc"), || {
        Some(Nanos(u64::MAX - 1))
    });
    assert!(!sideband.has_lost_records);
    let world = sideband
        .history()
        .interval(Nanos(u64::MAX), Nanos(u64::MAX))
        .world;
    assert!(!world.processes.contains_key(&never));
    let seen = &world.processes[&pid];
    assert_eq!(seen.threads, known.threads);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Makes two threads wake each other through pipes `rounds` times. Returns the time.
fn ping_pong(rounds: u32) -> Duration {
    use std::io::{Read, Write};
    let (mut there_out, mut there_in) = std::io::pipe().unwrap();
    let (mut back_out, mut back_in) = std::io::pipe().unwrap();
    let other = thread::spawn(move || {
        let mut byte = [0];
        while there_out.read_exact(&mut byte).is_ok() {
            back_in.write_all(&byte).unwrap();
        }
    });
    let begin = Instant::now();
    let mut byte = [0];
    for _ in 0..rounds {
        there_in.write_all(&byte).unwrap();
        back_out.read_exact(&mut byte).unwrap();
    }
    let took = begin.elapsed();
    drop(there_in);
    other.join().unwrap();
    took
}

/// Returns the CPU time of this thread.
fn own_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time`, which is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures the cost of the worst sideband load, context switches only, in pairs with and without
/// the sideband: `cargo test --release -p backtrail-collector the_cost_of -- --ignored --nocapture`
#[test]
#[ignore = "measures, and prints what it found"]
fn the_cost_of_context_switches() {
    const ROUNDS: u32 = 30_000;
    const PAIRS: usize = 10;
    let (mut without, mut with, mut reading) = (Vec::new(), Vec::new(), Duration::ZERO);
    let (mut records, mut lost) = (0, 0);
    ping_pong(ROUNDS);
    for _ in 0..PAIRS {
        without.push(ping_pong(ROUNDS));
        let Some(mut sideband) = start(16 << 20) else {
            return;
        };
        let player = thread::spawn(|| ping_pong(ROUNDS));
        while !player.is_finished() {
            thread::sleep(Duration::from_millis(20));
            let before = own_time();
            drain(&mut sideband);
            reading += own_time() - before;
        }
        with.push(player.join().unwrap());
        let counters = sideband.counters();
        records += counters.records;
        lost += counters.lost;
    }
    without.sort_unstable();
    with.sort_unstable();
    let round = |times: &[Duration]| times[PAIRS / 2].as_nanos() / u128::from(ROUNDS);
    println!(
        "a round takes {} ns without, {} ns with; reading takes {} ns a record, of {records}; {lost} were lost",
        round(&without),
        round(&with),
        reading.as_nanos() / u128::from(records)
    );
}
