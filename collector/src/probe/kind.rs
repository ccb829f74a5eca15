//! The kinds of attachment of the crash probe.

use std::fmt;
use std::str::FromStr;

/// The kernel's mechanism that calls the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttachKind {
    /// eBPF on the tracepoint `signal_deliver`, with BTF-typed arguments.
    BtfTracepoint,
    /// eBPF at the entry of the kernel function that dumps core, by a patched call.
    Fentry,
    /// eBPF at the entry of that function, by a breakpoint.
    Kprobe,
    /// eBPF on the tracepoint `signal_deliver`, with untyped arguments.
    RawTracepoint,
    /// eBPF on that tracepoint's record, which lacks the siginfo: no address and no sender.
    Tracepoint,
    /// A perf event on that tracepoint, without eBPF: only the data that perf samples.
    PerfTracepoint,
}

/// A text that is not a kind of attachment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an attach type of the crash probe; use one of {names}", names = AttachKind::names())]
pub struct UnknownKind(String);

impl AttachKind {
    /// All kinds, the best first.
    pub const ALL: [Self; 6] = [
        Self::BtfTracepoint,
        Self::Fentry,
        Self::Kprobe,
        Self::RawTracepoint,
        Self::Tracepoint,
        Self::PerfTracepoint,
    ];

    /// Returns the name that configurations use.
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

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for AttachKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AttachKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownKind(text.to_owned()))
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
