//! Tests the crash probe on real crashes, with every kind of attachment that this machine allows.
//!
//! Needs root, and a kernel that allows at least one kind. Otherwise each test prints a message and
//! is skipped. Other processes may crash at the same time, so each test checks only its own
//! children.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are tests

mod crasher;

use backtrail_collector::probe::{
    AttachKind, CrashSample, Frame, Probe, ProbeOptions, SiginfoDetail, SignalSet, try_kinds,
};
use backtrail_pt::{Avma, Pid};
use crasher::Crash;
use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The arguments that make the child crash: they run only the test with this name.
const TO_DEATH: [&str; 4] = ["die_if_told", "--exact", "--include-ignored", "--nocapture"];

#[test]
fn die_if_told() {
    crasher::die_if_told();
}

/// Tests run one at a time. The kernel gives build ids to only one program at each signal delivery,
/// and the crashes of one test would fill the ring of another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns the kinds that work here, and prints those that do not.
fn working() -> (MutexGuard<'static, ()>, Vec<AttachKind>) {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut working = Vec::new();
    for (kind, result) in try_kinds() {
        match result {
            Ok(()) => working.push(kind),
            Err(reason) => println!("skipped: {kind} does not work here: {reason}"),
        }
    }
    (guard, working)
}

fn options(kind: AttachKind) -> ProbeOptions {
    ProbeOptions {
        attach: Some(kind),
        ring: 1 << 22,
        ..ProbeOptions::default()
    }
}

/// Waits until the probe is idle for a while. Returns the events of these processes.
fn events(probe: &mut Probe, pids: &[u32]) -> Vec<CrashSample> {
    let mut seen = Vec::new();
    let quiet = Duration::from_millis(100);
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        let mut polled: Vec<libc::pollfd> = probe
            .descriptors()
            .iter()
            .map(|fd| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        // SAFETY: the descriptors are open and the slice lives through the call.
        let ready = unsafe {
            libc::poll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                quiet.as_millis() as i32,
            )
        };
        if ready == 0 {
            break;
        }
        probe.drain(&mut |event| seen.push(event));
    }
    seen.retain(|event| pids.contains(&event.pid.0));
    seen
}

/// Runs a crash, checks its signal and returns its process id.
fn run(crash: Crash) -> u32 {
    let mut child: Child = crash.command(&TO_DEATH).spawn().unwrap();
    let pid = child.id();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), crash.signal(), "{crash:?}: {status}");
    pid
}

#[test]
fn each_crash_gives_exactly_one_event() {
    let (_alone, kinds) = working();
    for kind in kinds {
        let mut probe = Probe::attach(&options(kind)).unwrap();
        assert_eq!(probe.kind(), kind);
        let mut crashes = Crash::CORE_DUMPING.to_vec();
        crashes.extend([Crash::Threads, Crash::Overflow, Crash::Blocked]);
        let runs: Vec<(u32, Crash)> = (0..3)
            .flat_map(|_| {
                crashes
                    .iter()
                    .map(|&crash| (run(crash), crash))
                    .collect::<Vec<_>>()
            })
            .collect();
        let pids: Vec<u32> = runs.iter().map(|(pid, _)| *pid).collect();
        let mut counts: HashMap<u32, Vec<CrashSample>> = HashMap::new();
        for event in events(&mut probe, &pids) {
            counts.entry(event.pid.0).or_default().push(event);
        }
        for (pid, crash) in runs {
            let found = counts.remove(&pid).unwrap_or_default();
            assert_eq!(found.len(), 1, "{kind}, {crash:?}");
            assert_eq!(Some(found[0].siginfo.signal()), crash.signal(), "{kind}");
        }
        assert_eq!(probe.lost(), 0);
    }
}

#[test]
fn no_crash_is_missed_in_a_storm() {
    let (_alone, kinds) = working();
    for kind in kinds {
        let mut probe = Probe::attach(&options(kind)).unwrap();
        let mut children: Vec<Child> = (0..100)
            .map(|_| Crash::Segv.command(&TO_DEATH).spawn().unwrap())
            .collect();
        let mut expected: Vec<u32> = children.iter().map(Child::id).collect();
        for child in &mut children {
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGSEGV));
        }
        let mut found: Vec<u32> = events(&mut probe, &expected)
            .iter()
            .map(|event| event.pid.0)
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{kind}: {} lost", probe.lost());
    }
}

#[test]
fn non_core_signals_cause_no_event() {
    let (_alone, kinds) = working();
    for kind in kinds {
        let mut probe = Probe::attach(&options(kind)).unwrap();
        let pids: Vec<u32> = [
            Crash::Caught,
            Crash::Ignored,
            Crash::Term,
            Crash::Kill,
            Crash::Exit,
        ]
        .map(run)
        .to_vec();
        let sign = run(Crash::Segv);
        let seen = events(&mut probe, &[pids, vec![sign]].concat());
        let found: Vec<u32> = seen.iter().map(|event| event.pid.0).collect();
        assert_eq!(found, [sign], "{kind}");
    }
}

#[test]
fn configured_signals_are_reported_once() {
    let wanted = SignalSet::new(&[libc::SIGTERM, libc::SIGKILL]).unwrap();
    let without = [AttachKind::Fentry, AttachKind::Kprobe, AttachKind::PerfTracepoint];
    let (_alone, kinds) = working();
    for kind in kinds.into_iter().filter(|kind| !without.contains(kind)) {
        let mut probe = Probe::attach(&ProbeOptions {
            signals: wanted,
            ..options(kind)
        })
        .unwrap();
        let runs = [Crash::Segv, Crash::Term, Crash::Kill, Crash::Exit].map(run);
        let seen = events(&mut probe, &runs);
        let found: Vec<(u32, i32, SiginfoDetail)> = seen
            .iter()
            .map(|event| (event.pid.0, event.siginfo.signal(), event.siginfo_detail))
            .collect();
        let expected = [
            (runs[1], 15, SiginfoDetail::Number),
            (runs[2], 9, SiginfoDetail::Number),
        ];
        assert_eq!(found, expected, "{kind}");
    }
}

#[test]
fn event_describes_the_process() {
    let (_alone, kinds) = working();
    for kind in kinds {
        let mut probe = Probe::attach(&options(kind)).unwrap();
        let before = now(libc::CLOCK_MONOTONIC);
        let pid = run(Crash::Segv);
        let seen = events(&mut probe, &[pid]);
        let [event] = seen.as_slice() else {
            panic!("{kind}: {} events", seen.len())
        };
        assert!((before..now(libc::CLOCK_MONOTONIC)).contains(&event.at), "{kind}");
        assert_eq!(event.registers.r13, 0x1122_3344_5566_7788, "{kind}");
        assert_eq!((event.registers.rcx, event.registers.cs), (0x10, 0x33), "{kind}");
        assert_eq!((event.siginfo.signal(), event.siginfo.code()), (11, 1), "{kind}");
        let stack_end = event.stack_at.0 + event.stack.len() as u64;
        assert!(
            (event.stack_at.0..stack_end).contains(&event.registers.rsp),
            "{kind}"
        );
        let secret = (event.registers.rdx - event.stack_at.0) as usize;
        assert_eq!(
            event.stack.get(secret..secret + 12),
            Some(&b"STACK-SECRET"[..]),
            "{kind}"
        );
        if kind == AttachKind::PerfTracepoint {
            assert_eq!(event.siginfo_detail, SiginfoDetail::Code);
            assert_eq!(event.frames.first(), Some(&Frame::At(event.registers.pc())));
            continue;
        }
        let told = if kind == AttachKind::Tracepoint {
            SiginfoDetail::Address
        } else {
            SiginfoDetail::All
        };
        assert_eq!(event.siginfo_detail, told, "{kind}");
        assert_eq!(event.fault_address(), Some(Avma(0x10)), "{kind}");
        assert_eq!(event.inner_pid, Some(Pid(pid)), "{kind}");
        assert_eq!(event.inner_tid.map(|tid| tid.0), Some(event.tid.0), "{kind}");
        assert_ne!(event.tid.0, pid, "a test runs in a thread of its own");
        assert_eq!(event.pid_namespace, namespace("pid"), "{kind}");
        assert_eq!(event.mount_namespace, namespace("mnt"), "{kind}");
        assert_eq!(event.comm, "die_if_told", "{kind}");
        assert!(event.cgroup.is_some(), "{kind}");
        let begun = event.started.unwrap();
        let boot = now(libc::CLOCK_BOOTTIME);
        assert!(
            begun < event.at_boot.unwrap() && event.at_boot.unwrap() < boot,
            "{kind}"
        );
        assert!(boot - begun < 60_000_000_000, "{kind}");
        assert_ne!(event.registers.fs_base, 0, "{kind}");
        let Some(Frame::InFile { build_id, .. }) = event.frames.first() else {
            panic!("{kind}: {:?}", event.frames)
        };
        assert_eq!(build_id.as_bytes().len(), 20, "{kind}");
    }
}

#[test]
fn event_has_users_of_the_initial_namespace() {
    const REAL: u32 = 4321;
    const EFFECTIVE: u32 = 1234;
    let (_alone, kinds) = working();
    for kind in kinds {
        let mut probe = Probe::attach(&options(kind)).unwrap();
        for namespace in [0, libc::CLONE_NEWUSER] {
            let become_others = move || {
                // SAFETY: the kernel gets only numbers.
                let changed = unsafe {
                    libc::setresuid(REAL, EFFECTIVE, EFFECTIVE) == 0
                        && (namespace == 0 || libc::unshare(namespace) == 0)
                };
                if changed {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            };
            let mut command = Crash::Segv.command(&TO_DEATH);
            // SAFETY: only system calls run between fork and exec.
            let started = unsafe { command.pre_exec(become_others) }.spawn();
            let mut child = match started {
                Ok(child) => child,
                Err(error) if namespace != 0 => {
                    println!("skipped: no user namespace for unprivileged users: {error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let pid = child.id();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGSEGV));
            let users: Vec<_> = events(&mut probe, &[pid])
                .iter()
                .map(|event| (event.user, event.effective_user))
                .collect();
            let expected = match kind {
                AttachKind::PerfTracepoint => (None, None),
                _ => (Some(REAL), Some(EFFECTIVE)),
            };
            assert_eq!(users, [expected], "{kind}, namespace {namespace:#x}");
        }
    }
}

#[test]
fn process_filters_are_applied() {
    let (_alone, kinds) = working();
    for kind in kinds {
        // A child that waits for a pipe to close dies only when the probe is attached.
        let child = |spare: bool| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", "ulimit -c 0; read line; kill -SEGV $$"])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pid = Pid(child.id());
            let options = ProbeOptions {
                only: (!spare).then_some(pid),
                excluded: if spare { vec![pid] } else { vec![] },
                ..options(kind)
            };
            let mut probe = Probe::attach(&options).unwrap();
            drop(child.stdin.take());
            assert_eq!(child.wait().unwrap().signal(), Some(11));
            let other = run(Crash::Segv);
            let seen = events(&mut probe, &[pid.0, other]);
            let found: Vec<u32> = seen.iter().map(|event| event.pid.0).collect();
            assert_eq!(found, [if spare { other } else { pid.0 }], "{kind}");
        };
        child(true);
        child(false);
    }
}

#[test]
fn lost_events_are_counted() {
    let (_alone, kinds) = working();
    for kind in kinds {
        let mut probe = Probe::attach(&ProbeOptions {
            ring: 0,
            ..options(kind)
        })
        .unwrap();
        let runs: Vec<u32> = (0..40).map(|_| run(Crash::Segv)).collect();
        let seen = events(&mut probe, &runs).len();
        // The perf ring reports a loss with the next event that fits.
        run(Crash::Segv);
        events(&mut probe, &[]);
        let lost = probe.lost() as usize;
        assert!(seen < runs.len(), "{kind}: {seen}");
        // Other processes may crash at the same time.
        assert!(seen + lost >= runs.len(), "{kind}: {seen} seen, {lost} lost");
    }
}

#[test]
fn init_of_a_namespace_survives_unhandled_signals() {
    let (_alone, kinds) = working();
    for kind in kinds
        .into_iter()
        .filter(|kind| *kind != AttachKind::PerfTracepoint)
    {
        let mut probe = Probe::attach(&options(kind)).unwrap();
        // A signal with its default action is not sent to process 1, unless the process blocks it.
        // Only a fault kills it.
        for (crash, code) in [
            (Crash::Blocked, Some(0)),
            (Crash::Segv, Some(128 + libc::SIGSEGV)),
        ] {
            let Some(status) = run_as_first(crash) else { return };
            assert_eq!(
                status.code().or(status.signal().map(|signal| 128 + signal)),
                code,
                "{kind}, {crash:?}"
            );
        }
        let mut all = Vec::new();
        std::thread::sleep(Duration::from_millis(50));
        probe.drain(&mut |event| all.push(event));
        all.retain(|event| event.inner_pid == Some(Pid(1)));
        let found: Vec<i32> = all.iter().map(|event| event.siginfo.signal()).collect();
        assert_eq!(found, [11], "{kind}");
        assert_ne!(all[0].pid, Pid(1), "{kind}");
        assert_ne!(all[0].pid_namespace, namespace("pid"), "{kind}");
    }
}

/// Runs a crash as the first process of a new pid namespace. `None`, with a message: this is not
/// possible.
fn run_as_first(crash: Crash) -> Option<std::process::ExitStatus> {
    let crash = crash.command(&TO_DEATH);
    let status = std::process::Command::new("unshare")
        .args(["--pid", "--fork"])
        .arg(crash.get_program())
        .args(crash.get_args())
        .envs(crash.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status
        .inspect_err(|_| println!("skipped: there is no unshare(1)"))
        .ok()
}

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct lives through the call.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the inode of this process's namespace of a kind, such as `pid:[4026531836]`.
fn namespace(kind: &str) -> Option<u32> {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    link.to_str()?.split(['[', ']']).nth(1)?.parse().ok()
}
