//! Tests the order of operations on fake traces that log all calls.

use super::*;
use backtrail_perf::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

impl FrozenCpu {
    /// Creates a fake trace. `paused` is the time on both clocks.
    pub(in crate::hardware) fn for_test(cpu: Cpu, bytes: &[u8], paused: u64, off: bool) -> Self {
        let mut memory = LockedMemory::new(bytes.len(), false).unwrap();
        memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Self {
            cpu,
            wrapped: false,
            paused_at: paused,
            paused: Tsc(paused),
            resumed_at: (!off).then_some(paused + 1),
            paused_by_kernel: false,
            off,
            had_buffer: true,
            copy: AuxCopy {
                range: 0..bytes.len(),
                wrapped: false,
            },
            memory: PooledBuffer {
                memory: Some(memory),
                pool: Arc::new(BufferPool {
                    free: Mutex::default(),
                    size: AtomicUsize::new(0),
                    lent: AtomicUsize::new(1),
                    lock: false,
                }),
            },
        }
    }
}

type Log = Arc<Mutex<Vec<(&'static str, u32)>>>;

/// A trace that contains its number of pauses, and refuses to be copied while it runs.
#[derive(Debug)]
struct Fake {
    cpu: Cpu,
    log: Log,
    running: AtomicBool,
    paused: AtomicU64,
    offline_at: AtomicU64,
    by_kernel: bool,
    stale: AtomicBool,
}

const SIZE: usize = 4096;

impl Fake {
    fn new(cpu: u32, log: &Log) -> Arc<Self> {
        Arc::new(Self {
            cpu: Cpu(cpu),
            log: log.clone(),
            running: AtomicBool::new(true),
            paused: AtomicU64::new(0),
            offline_at: AtomicU64::new(0),
            by_kernel: cpu == 2,
            stale: AtomicBool::new(false),
        })
    }

    fn note(&self, what: &'static str) {
        locked(&self.log).push((what, self.cpu.0));
    }
}

impl FreezableTrace for Fake {
    fn cpu(&self) -> Cpu {
        self.cpu
    }

    fn size(&self) -> usize {
        SIZE
    }

    fn pauses_in_kernel(&self) -> bool {
        self.by_kernel
    }

    fn mark_offline(&self) {
        self.offline_at.store(clock::monotonic(), Ordering::SeqCst);
    }

    fn offline_since(&self) -> Option<u64> {
        Some(self.offline_at.load(Ordering::SeqCst)).filter(|offline_at| *offline_at != 0)
    }

    fn pause(&self) -> bool {
        self.note("pause");
        self.paused.fetch_add(1, Ordering::SeqCst);
        self.running.swap(false, Ordering::SeqCst) && self.offline_since().is_none()
    }

    fn paused_by_kernel(&self) -> bool {
        self.by_kernel
    }

    fn pause_is_stale(&self) -> bool {
        self.stale.swap(false, Ordering::SeqCst)
    }

    fn copy(&self, buffer: &mut [u8]) -> std::result::Result<AuxCopy, Error> {
        self.note("copy");
        assert!(!self.running.load(Ordering::SeqCst));
        let freezes = self.paused.load(Ordering::SeqCst) as u8;
        buffer[..SIZE].fill(freezes);
        Ok(AuxCopy {
            range: 100..SIZE,
            wrapped: true,
        })
    }

    fn resume(&self, by_kernel: bool) -> bool {
        self.note("resume");
        assert_eq!(by_kernel, self.by_kernel);
        !self.running.swap(true, Ordering::SeqCst)
    }
}

fn freezer(count: u32) -> (Freezer, Vec<Arc<Fake>>, Log) {
    let log = Log::default();
    let fakes: Vec<Arc<Fake>> = (0..count).map(|cpu| Fake::new(cpu, &log)).collect();
    let traces = fakes
        .iter()
        .map(|fake| fake.clone() as Arc<dyn FreezableTrace>)
        .collect();
    let conversion = TscConversion::new(0, 1, 0).unwrap();
    (
        Freezer(FreezerState::new(traces, conversion, false).unwrap()),
        fakes,
        log,
    )
}

#[test]
fn all_traces_pause_before_copying_crashed_first() {
    for count in [1, 2, 7] {
        let (freezer, _, log) = freezer(count);
        assert_eq!(freezer.threads().len(), (count as usize - 1).min(MAX_WORKERS));
        let first = count - 1;
        let frozen = freezer.freeze(Some(Cpu(first)), Some(5));
        let log = locked(&log).clone();
        let (pauses, rest) = log.split_at(count as usize);
        assert!(pauses.iter().all(|(what, _)| *what == "pause"), "{log:?}");
        assert_eq!(pauses[0].1, first);
        for cpu in 0..count {
            let position = |what| rest.iter().position(|entry| *entry == (what, cpu)).unwrap();
            assert!(
                position("copy") < position("resume"),
                "each goes on when it is copied: {log:?}"
            );
        }
        assert_eq!(frozen.cpus[0].cpu, Cpu(first));
        assert_eq!((frozen.cpus.len(), frozen.crash_at), (count as usize, Some(5)));
        for cpu in &frozen.cpus {
            assert_eq!(cpu.bytes(), [1; SIZE - 100]);
            assert!(cpu.wrapped && !cpu.off);
            assert!(cpu.paused_at >= frozen.began_at && cpu.resumed_at.unwrap() >= cpu.paused_at);
            assert_eq!(cpu.paused_by_kernel, cpu.cpu == Cpu(2));
        }
        freezer.0.close();
    }
}

#[test]
fn missing_buffers_are_allocated_and_counted() {
    let (freezer, ..) = freezer(3);
    let counted = || freezer.0.counters.buffers_missing.load(Ordering::Relaxed);
    drop(freezer.freeze(None, None));
    let one = freezer.freeze(None, None);
    assert_eq!(counted(), 0);
    let two = freezer.freeze(None, None);
    assert_eq!(counted(), 3);
    let three = freezer.freeze(None, None);
    assert!(three.cpus.is_empty(), "twice as many as processors are the most");
    // The first copy keeps its own content.
    assert_eq!((one.cpus[0].bytes()[0], two.cpus[0].bytes()[0]), (2, 3));
    drop((one, two));
    assert_eq!(
        locked(&freezer.0.pool.free).len(),
        3,
        "what was made besides is given back"
    );
    assert_eq!(freezer.0.counters.freezes.load(Ordering::Relaxed), 4);
    assert_eq!(freezer.0.counters.paused_by_kernel.load(Ordering::Relaxed), 4);
    assert_eq!(
        freezer.freeze(None, None).cpus.len(),
        3,
        "what was given back can be had again"
    );
    freezer.0.close();
}

#[test]
fn offline_processor_is_copied_but_not_resumed() {
    let (freezer, fakes, log) = freezer(2);
    fakes[1].mark_offline();
    let offline_at = fakes[1].offline_since().unwrap();
    let frozen = freezer.freeze(Some(Cpu(1)), None);
    assert_eq!(
        frozen.cpus[0].cpu,
        Cpu(0),
        "the one asked for is gone, and does not come first"
    );
    let off = &frozen.cpus[1];
    assert!(off.off && off.resumed_at.is_none());
    assert_eq!(off.paused_at, offline_at);
    assert!(!locked(&log).contains(&("resume", 1)));
    assert_eq!(freezer.0.counters.resume_failures.load(Ordering::Relaxed), 0);
    freezer.0.close();
}

#[test]
fn concurrent_freezes_wait_for_each_other() {
    let (freezer, fakes, _) = freezer(3);
    // Buffers for all copies, because a thread may be preempted before it drops its copy.
    (0..8 * 3).for_each(|_| freezer.0.grow(SIZE).unwrap());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let frozen = freezer.freeze(Some(Cpu(1)), None);
                    assert_eq!(frozen.cpus.len(), 3);
                    assert!(frozen.cpus.iter().all(|cpu| cpu.resumed_at.is_some()));
                }
            });
        }
    });
    assert!(fakes.iter().all(|fake| fake.paused.load(Ordering::SeqCst) == 160));
    freezer.0.close();
}

#[test]
fn trace_stopped_by_kernel_is_resumed() {
    let (freezer, fakes, log) = freezer(2);
    fakes[1].running.store(false, Ordering::SeqCst);
    freezer.0.restart(Cpu(1));
    assert!(fakes[1].running.load(Ordering::SeqCst));
    assert_eq!(*locked(&log), [("resume", 1)]);
    fakes[0].mark_offline();
    freezer.0.restart(Cpu(0));
    assert_eq!(locked(&log).len(), 1, "one that is gone is not touched");
    freezer.0.close();
}

#[test]
fn stale_pause_is_ended() {
    let (freezer, fakes, log) = freezer(3);
    freezer.0.end_stale_pauses();
    assert!(locked(&log).is_empty());
    fakes[2].running.store(false, Ordering::SeqCst);
    fakes[2].stale.store(true, Ordering::SeqCst);
    freezer.0.end_stale_pauses();
    assert_eq!(*locked(&log), [("resume", 2)]);
    assert_eq!(freezer.0.counters.paused_by_kernel.load(Ordering::Relaxed), 1);
    freezer.0.close();
}

#[test]
fn unstoppable_trace_is_left_out_and_resumed() {
    let (freezer, fakes, log) = freezer(2);
    // The trace was not running, so `pause` reports that it did not stop.
    fakes[1].running.store(false, Ordering::SeqCst);
    let frozen = freezer.freeze(None, None);
    assert_eq!(
        frozen.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(),
        [Cpu(0)]
    );
    assert!(!locked(&log).contains(&("copy", 1)) && locked(&log).contains(&("resume", 1)));
    assert!(fakes[1].running.load(Ordering::SeqCst));
    freezer.0.close();
}
