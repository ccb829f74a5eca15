//! The same program once more, single-stepped by ptrace: the oracle of registers and memory.
//!
//! This module uses no code of the recorder and of the replay.

use super::programs::ENVIRONMENT;
use nix::libc::user_regs_struct;
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of the system call `getrandom`.
const GETRANDOM: u64 = 318;
/// The type of the auxiliary vector's entry with the address of 16 random bytes.
const AT_RANDOM: u64 = 25;
/// The instruction `int3`.
const BREAKPOINT: u8 = 0xcc;
/// The trap flag, which single steps set.
pub const TRAP_FLAG: u64 = 1 << 8;

/// Which instructions are counted.
pub struct Counted {
    /// Their addresses.
    pub addresses: HashSet<u64>,
    /// Instructions are counted from the first execution of this one on.
    pub from: u64,
    /// Whether all threads are counted as one.
    pub is_merged: bool,
    /// The entries of functions.
    pub entries: HashSet<u64>,
}

/// The registers at the entry of a function.
pub struct Entry {
    /// The address of the function.
    pub function: u64,
    /// The canonical frame address of its frame.
    pub cfa: u64,
    pub registers: user_regs_struct,
}

/// A thread that is stopped before an instruction.
pub struct Stopped<'a> {
    pub tid: Pid,
    pub registers: user_regs_struct,
    /// The entries of the functions that it is in, outermost first, and of some that it has left.
    pub entries: &'a [Entry],
    pub memory: &'a File,
}

/// The place of an instruction in its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Visit {
    /// The number of the thread in the order of creation.
    pub thread: usize,
    pub address: u64,
    /// How often the thread executed the instruction before.
    pub earlier: u32,
}

#[derive(Default)]
struct Thread {
    number: usize,
    last: Option<user_regs_struct>,
    /// The counts of instructions.
    executed: HashMap<u64, u32>,
    entries: Vec<Entry>,
    /// The visit of the current instruction.
    visit: Option<Visit>,
}

/// Runs a program in single steps. `random` copies the recording's bytes for memory that the kernel
/// fills with random ones. `at_visit` is called before each counted instruction. Returns the number
/// of instructions.
pub fn run(
    (program, arguments): (&Path, &[String]),
    counted: &Counted,
    random: &dyn Fn(u64, &mut [u8]),
    at_visit: &mut dyn FnMut(Visit, &Stopped<'_>),
) -> u64 {
    let first = start(program, arguments);
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{first}/mem"))
        .unwrap();
    let copy_random = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        memory.read_exact_at(&mut bytes, at).unwrap();
        random(at, &mut bytes);
        memory.write_all_at(&bytes, at).unwrap();
    };
    copy_random(address_of_random_bytes(first), 16);
    let mut stepper = Stepper {
        counted,
        memory: &memory,
        threads: HashMap::new(),
        created: 0,
        steps: 0,
    };
    let starts = run_to(first, counted.from, &memory, &copy_random);
    stepper.add(starts);
    stepper.step(starts, at_visit);
    ptrace::step(starts, None).unwrap();
    // The other threads of a merged program stop at their next system call. They would preempt it.
    let is_left_stopped = |status: &WaitStatus| counted.is_merged && status.pid() != Some(starts);
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
        if is_left_stopped(&status) {
            continue;
        }
        let (tid, signal) = match status {
            WaitStatus::Stopped(tid, Signal::SIGTRAP) => {
                if let Some((at, len)) = stepper.step(tid, at_visit) {
                    copy_random(at, len);
                }
                (tid, None)
            }
            WaitStatus::Stopped(tid, Signal::SIGSTOP) if !stepper.threads.contains_key(&tid) => {
                stepper.add(tid);
                stepper.step(tid, at_visit);
                (tid, None)
            }
            WaitStatus::Stopped(tid, signal) => {
                stepper.interrupt(tid);
                (tid, Some(signal))
            }
            WaitStatus::PtraceEvent(tid, ..) => (tid, None),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => continue,
            other => panic!("{other:?}"),
        };
        // The other threads of a process that exits are gone.
        let _ = ptrace::step(tid, signal);
    }
    stepper.steps
}

/// Starts a program that stops at its first instruction, without address randomization.
fn start(program: &Path, arguments: &[String]) -> Pid {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(ENVIRONMENT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: the closure makes two system calls, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            personality::set(Persona::ADDR_NO_RANDOMIZE)?;
            ptrace::traceme()?;
            Ok(())
        });
    }
    #[expect(clippy::zombie_processes, reason = "the tracer waits for all threads")]
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let stop = waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
    assert_eq!(stop, WaitStatus::Stopped(pid, Signal::SIGTRAP));
    let options = Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(pid, options).unwrap();
    pid
}

/// Runs a program to an instruction, and returns the thread that comes there.
fn run_to(first: Pid, address: u64, memory: &File, copy_random: &dyn Fn(u64, usize)) -> Pid {
    let mut code = [0];
    memory.read_exact_at(&mut code, address).unwrap();
    memory.write_all_at(&[BREAKPOINT], address).unwrap();
    ptrace::syscall(first, None).unwrap();
    loop {
        let status = waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap();
        let (tid, signal) = match status {
            WaitStatus::PtraceSyscall(tid) => {
                let registers = ptrace::getregs(tid).unwrap();
                // At the entry of a call, its result is an error.
                if registers.orig_rax == GETRANDOM && registers.rax.cast_signed() > 0 {
                    copy_random(registers.rdi, usize::try_from(registers.rax).unwrap());
                }
                (tid, None)
            }
            WaitStatus::Stopped(tid, Signal::SIGTRAP) => {
                let mut registers = ptrace::getregs(tid).unwrap();
                assert_eq!(registers.rip, address + 1);
                registers.rip = address;
                ptrace::setregs(tid, registers).unwrap();
                memory.write_all_at(&code, address).unwrap();
                return tid;
            }
            WaitStatus::Stopped(tid, Signal::SIGSTOP) | WaitStatus::PtraceEvent(tid, ..) => (tid, None),
            WaitStatus::Stopped(tid, signal) => (tid, Some(signal)),
            other => panic!("{other:?}"),
        };
        ptrace::syscall(tid, signal).unwrap();
    }
}

fn address_of_random_bytes(pid: Pid) -> u64 {
    let vector = fs::read(format!("/proc/{pid}/auxv")).unwrap();
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let entry = words.chunks_exact(2).find(|entry| entry[0] == AT_RANDOM);
    entry.unwrap()[1]
}

struct Stepper<'a> {
    counted: &'a Counted,
    memory: &'a File,
    threads: HashMap<Pid, Thread>,
    created: usize,
    steps: u64,
}

impl Stepper<'_> {
    fn add(&mut self, tid: Pid) {
        let number = if self.counted.is_merged { 0 } else { self.created };
        self.created += 1;
        let thread = Thread {
            number,
            ..Thread::default()
        };
        self.threads.insert(tid, thread);
    }

    /// Counts the instruction before which a thread stopped. Returns the memory that the last one
    /// filled with random bytes.
    fn step(&mut self, tid: Pid, at_visit: &mut dyn FnMut(Visit, &Stopped<'_>)) -> Option<(u64, usize)> {
        self.steps += 1;
        let registers = ptrace::getregs(tid).unwrap();
        let memory = self.memory;
        let has = |at: u64, bytes: &[&[u8]]| {
            let mut found = [0; 2];
            memory
                .read_at(&mut found, at)
                .is_ok_and(|_| bytes.iter().any(|bytes| found.starts_with(bytes)))
        };
        let thread = self.threads.get_mut(&tid).unwrap();
        let last = thread.last.replace(registers);
        // Each repetition of a string instruction is a step.
        let repeats =
            last.is_some_and(|last| last.rip == registers.rip) && has(registers.rip, &[&[0xf2], &[0xf3]]);
        if repeats {
            return None;
        }
        if self.counted.entries.contains(&registers.rip) {
            let cfa = registers.rsp + 8;
            thread.entries.retain(|entry| entry.cfa >= cfa);
            thread.entries.push(Entry {
                function: registers.rip,
                cfa,
                registers,
            });
        }
        thread.visit = None;
        if self.counted.addresses.contains(&registers.rip) {
            let executed = thread.executed.entry(registers.rip).or_default();
            let visit = Visit {
                thread: thread.number,
                address: registers.rip,
                earlier: *executed,
            };
            *executed += 1;
            thread.visit = Some(visit);
            let stopped = Stopped {
                tid,
                registers,
                entries: &thread.entries,
                memory: self.memory,
            };
            at_visit(visit, &stopped);
        }
        let last = last.filter(|last| last.rax == GETRANDOM && has(last.rip, &[&[0x0f, 0x05]]))?;
        Some((last.rdi, usize::try_from(registers.rax).ok()?))
    }

    /// Forgets the visit of an instruction that a signal interrupts before it executes.
    fn interrupt(&mut self, tid: Pid) {
        if let Some(thread) = self.threads.get_mut(&tid)
            && let Some(visit) = thread.visit.take()
            && let Some(executed) = thread.executed.get_mut(&visit.address)
        {
            *executed -= 1;
        }
    }
}
