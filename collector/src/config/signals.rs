//! The names of the signals that can count as a crash.

use crate::probe::SignalSet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The signals of x86-64 that the probe can report. SIGKILL is not among them, because every thread
/// of an exiting process takes one.
const NAMES: [(&str, i32); 24] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
    ("IOT", 6),
    ("POLL", 29),
];

/// Returns the name of a signal, such as `SIGSEGV` for 11, or its number if it has no name.
#[must_use]
pub fn name(signal: i32) -> String {
    let known = NAMES.iter().find(|(_, number)| *number == signal);
    known.map_or_else(|| signal.to_string(), |(name, _)| format!("SIG{name}"))
}

impl Serialize for SignalSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(name))
    }
}

impl<'de> Deserialize<'de> for SignalSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut signals = Vec::new();
        for written in Vec::<String>::deserialize(deserializer)? {
            let upper = written.to_ascii_uppercase();
            let plain = upper.strip_prefix("SIG").unwrap_or(&upper);
            let Some((_, number)) = NAMES.iter().find(|(name, _)| *name == plain) else {
                let hint = match plain {
                    "KILL" => "SIGKILL is not a crash signal: every thread of an exiting process takes it"
                        .to_owned(),
                    "STOP" | "TSTP" | "TTIN" | "TTOU" | "CHLD" | "CONT" | "URG" | "WINCH" => {
                        format!("SIG{plain} does not end a process")
                    }
                    _ => format!("{written:?} is not a signal; write for example \"SIGSEGV\""),
                };
                return Err(D::Error::custom(hint));
            };
            signals.push(*number);
        }
        Self::new(&signals).map_err(D::Error::custom)
    }
}
