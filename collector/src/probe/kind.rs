//! The ways of hearing of a crash.

use super::Error;
use std::fmt;
use std::str::FromStr;

/// What in the kernel calls the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttachKind {
    /// eBPF on the tracepoint `signal_deliver`, its arguments typed by BTF.
    BtfTracepoint,
    /// eBPF in front of the kernel's function that dumps core, by a patched call.
    Fentry,
    /// eBPF in front of that function, by a breakpoint.
    Kprobe,
    /// eBPF on the tracepoint `signal_deliver`, its arguments as plain words.
    RawTracepoint,
    /// eBPF on that tracepoint's record, which has no siginfo: no address and no sender.
    Tracepoint,
    /// A perf event on that tracepoint, without eBPF: nothing but what perf samples.
    PerfTracepoint,
}

impl AttachKind {
    /// All of them, the best first.
    pub const ALL: [Self; 6] = [
        Self::BtfTracepoint,
        Self::Fentry,
        Self::Kprobe,
        Self::RawTracepoint,
        Self::Tracepoint,
        Self::PerfTracepoint,
    ];

    /// Its name, as it is written in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BtfTracepoint => "btf-tracepoint",
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
            Self::RawTracepoint => "raw-tracepoint",
            Self::Tracepoint => "tracepoint",
            Self::PerfTracepoint => "perf-tracepoint",
        }
    }

    pub(super) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for AttachKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AttachKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| Error::UnknownKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in AttachKind::ALL {
            assert_eq!(kind.to_string().parse::<AttachKind>().unwrap(), kind);
        }
        let refused = "lsm".parse::<AttachKind>().unwrap_err().to_string();
        assert!(refused.contains("btf-tracepoint, fentry"), "{refused}");
    }
}
