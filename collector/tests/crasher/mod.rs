//! Crashes for the tests and the benchmark of the probe: the program starts itself again, and the
//! environment selects how it dies.

use std::arch::asm;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Barrier;

/// The environment variable with the kind of crash.
const HOW: &str = "BACKTRAIL_CRASH";

/// A kind of crash or normal end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// A write to address 0x10.
    Segv,
    /// `abort(3)`.
    Abort,
    /// The instruction `ud2`.
    Ill,
    /// A division by zero.
    Fpe,
    /// The instruction `int3`.
    Trap,
    /// A write to address 0x10 while all other threads do the same.
    Threads,
    /// Endless recursion on the main thread. Rust's handler reports it and aborts.
    Overflow,
    /// SIGSEGV with a handler that returns, then exit.
    Caught,
    /// Ignored SIGSEGV, then exit.
    Ignored,
    /// SIGABRT that is blocked and then unblocked. Exits if that does not kill the process.
    Blocked,
    /// SIGTERM, which kills without a core.
    Term,
    /// SIGKILL.
    Kill,
    /// Normal exit.
    Exit,
}

impl Crash {
    /// The kinds that dump core, with one event each.
    pub const CORE_DUMPING: [Self; 5] = [Self::Segv, Self::Abort, Self::Ill, Self::Fpe, Self::Trap];

    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::Segv,
        Self::Abort,
        Self::Ill,
        Self::Fpe,
        Self::Trap,
        Self::Threads,
        Self::Overflow,
        Self::Caught,
        Self::Ignored,
        Self::Blocked,
        Self::Term,
        Self::Kill,
        Self::Exit,
    ];

    /// Returns the signal that kills the process.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Segv | Self::Threads => Some(libc::SIGSEGV),
            Self::Abort | Self::Overflow | Self::Blocked => Some(libc::SIGABRT),
            Self::Ill => Some(libc::SIGILL),
            Self::Fpe => Some(libc::SIGFPE),
            Self::Trap => Some(libc::SIGTRAP),
            Self::Term => Some(libc::SIGTERM),
            Self::Kill => Some(libc::SIGKILL),
            Self::Caught | Self::Ignored | Self::Exit => None,
        }
    }

    /// Returns a command that starts this program again and crashes it. `arguments` must lead to
    /// [`die_if_told`]. The process leaves no core.
    pub fn command(self, arguments: &[&str]) -> Command {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(HOW, format!("{self:?}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: setrlimit(2) is safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let none = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                libc::setrlimit(libc::RLIMIT_CORE, &none);
                Ok(())
            })
        };
        command
    }
}

/// Crashes as the environment variable says. Returns if it is not set.
pub fn die_if_told() {
    let Ok(how) = std::env::var(HOW) else { return };
    let found = Crash::ALL.into_iter().find(|crash| format!("{crash:?}") == how);
    die(found.expect("a known way to die"));
}

fn die(crash: Crash) -> ! {
    // SAFETY: this process exists to crash, and does nothing else.
    unsafe {
        match crash {
            Crash::Segv => {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                write_to_nowhere();
            }
            Crash::Abort => libc::abort(),
            Crash::Ill => asm!("ud2", in("r12") now()),
            Crash::Fpe => asm!(
                "div {zero}",
                zero = in(reg) 0_u64,
                in("r12") now(),
                inout("rax") 1_u64 => _,
                inout("rdx") 0_u64 => _,
            ),
            Crash::Trap => asm!("int3", in("r12") now()),
            Crash::Threads => {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                let barrier = Barrier::new(8);
                std::thread::scope(|scope| {
                    for _ in 0..8 {
                        scope.spawn(|| {
                            barrier.wait();
                            write_to_nowhere();
                        });
                    }
                });
            }
            Crash::Overflow => {
                recurse(1);
            }
            Crash::Caught => {
                libc::signal(libc::SIGSEGV, survive as *const () as libc::sighandler_t);
                libc::raise(libc::SIGSEGV);
            }
            Crash::Ignored => {
                libc::signal(libc::SIGSEGV, libc::SIG_IGN);
                libc::raise(libc::SIGSEGV);
            }
            Crash::Blocked => {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGABRT);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                libc::raise(libc::SIGABRT);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            }
            Crash::Term => {
                libc::raise(libc::SIGTERM);
            }
            Crash::Kill => {
                libc::raise(libc::SIGKILL);
            }
            Crash::Exit => {}
        }
    }
    std::process::exit(0)
}

extern "C" fn survive(_: libc::c_int) {}

/// Returns `CLOCK_MONOTONIC` in nanoseconds. Crashes have it in `r12`, except those that abort.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct lives through the call, and the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Writes to address 0x10, with known values in a register and on the stack.
fn write_to_nowhere() {
    let secret = *b"STACK-SECRET";
    let secret = std::hint::black_box(&secret);
    // SAFETY: the write is invalid on purpose, and the process ends here.
    unsafe {
        asm!(
            "mov r13, 0x1122334455667788",
            "mov byte ptr [rcx], 1",
            in("rcx") 0x10_u64,
            in("rdx") secret.as_ptr(),
            in("r12") now(),
            out("r13") _,
        );
    }
}

#[allow(unconditional_recursion, reason = "it is to overflow the stack")]
fn recurse(depth: u64) -> u64 {
    let pad = std::hint::black_box([depth; 64]);
    recurse(depth + 1) + pad[depth as usize % 64]
}
