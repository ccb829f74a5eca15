//! Signals as a person wants to read them. Numbers are those of x86-64 Linux
//! (`asm/signal.h`, `asm-generic/siginfo.h`).

use backtrail_bundle::core::SigInfo;
use backtrail_bundle::manifest::{Crash, Ending};

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

/// Returns the meaning of the signal, as `strsignal` does.
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

/// Returns the meaning of `si_code`, for signals that the processor raised.
#[must_use]
pub fn cause(signal: i32, code: i32) -> Option<&'static str> {
    Some(match (signal, code) {
        (11, 1) => "no memory is mapped at the address",
        (11, 2) => "the mapping does not permit the access",
        (11, 0x80) => "general protection fault; the processor does not report the address",
        (7, 1) => "the address is not aligned",
        (7, 2) => "the mapped file or device has no such memory",
        (8, 1) => "integer division by zero",
        (8, 2) => "integer overflow",
        (4, _) => "the processor rejects the instruction",
        (_, -6) => "sent by the program itself (tgkill)",
        (_, 0) => "sent by kill",
        _ => return None,
    })
}

/// Describes the end of a program that did not crash: `SIGINT ended the program (sent by kill)`.
/// The cause is known if the core has it.
#[must_use]
pub fn describe_ending(ending: Ending, said: Option<SigInfo>) -> String {
    match ending {
        Ending::Exited(status) => format!("the program exited with status {status}"),
        Ending::Killed(signal) => {
            let said = said.filter(|said| said.signal() == signal);
            let cause = said.and_then(|said| cause(signal, said.code()));
            let cause = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
            format!("{} ended the program{cause}", name(signal))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Avma;

    #[test]
    fn an_ending_is_described_with_the_cause_of_its_signal() {
        let said = |signal| Some(SigInfo::new(signal, 0, Avma(0)));
        let killed = Ending::Killed(15);
        assert_eq!(describe_ending(killed, None), "SIGTERM ended the program");
        assert_eq!(describe_ending(killed, said(2)), "SIGTERM ended the program");
        let expected = "SIGTERM ended the program (sent by kill)";
        assert_eq!(describe_ending(killed, said(15)), expected);
        let expected = "the program exited with status 3";
        assert_eq!(describe_ending(Ending::Exited(3), said(15)), expected);
    }
}
