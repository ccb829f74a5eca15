//! Signals as a person wants to read them. Numbers are those of x86-64 Linux
//! (`asm/signal.h`, `asm-generic/siginfo.h`).

use backtrail_bundle::manifest::Crash;

/// The signal's name: `SIGSEGV`.
#[must_use]
pub fn name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// What the signal means, as `strsignal` says it.
#[must_use]
pub fn meaning(signal: i32) -> &'static str {
    match signal {
        4 => "illegal instruction",
        5 => "trace or breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "arithmetic exception",
        11 => "segmentation fault",
        13 => "broken pipe",
        31 => "bad system call",
        _ => "terminated",
    }
}

/// What `si_code` adds, of signals that the processor raised.
#[must_use]
pub fn cause(signal: i32, code: i32) -> Option<&'static str> {
    Some(match (signal, code) {
        (11, 1) => "no memory is mapped there",
        (11, 2) => "the mapping does not permit the access",
        (11, 0x80) => "a general protection fault, of which the address is not told",
        (7, 1) => "the address is not aligned",
        (7, 2) => "there is no such memory behind the mapping",
        (8, 1) => "integer division by zero",
        (8, 2) => "integer overflow",
        (4, _) => "the processor refuses the instruction",
        (_, -6) => "sent by the program itself (tgkill)",
        (_, 0) => "sent by kill",
        _ => return None,
    })
}

/// `SIGSEGV (segmentation fault)`, with the address when there is one.
#[must_use]
pub fn describe(crash: &Crash) -> String {
    let mut text = format!("{} ({})", name(crash.signal), meaning(crash.signal));
    if let Some(address) = crash.fault_address {
        text.push_str(&format!(" at address {address}"));
    }
    text
}
