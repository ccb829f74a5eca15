//! Which signals count as a crash.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of signals that end a process when it does not handle them (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals(u64);

/// Those of x86-64 that can be told of; SIGKILL cannot: every thread of a dying process takes one.
const NAMES: [(&str, u32); 24] = [
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

/// The signals whose default action is to dump core.
const CORE: u64 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 24 | 1 << 25 | 1 << 31;

impl Default for Signals {
    /// Those that dump core.
    fn default() -> Self {
        Self(CORE)
    }
}

impl Signals {
    /// Bit n is signal n.
    #[must_use]
    pub fn mask(self) -> u64 {
        self.0
    }

    /// The signals' numbers.
    pub fn numbers(self) -> impl Iterator<Item = i32> {
        (1..64).filter(move |number| self.0 >> number & 1 == 1)
    }
}

/// `SIGSEGV` for 11; a number where there is no name.
#[must_use]
pub fn name(signal: i32) -> String {
    let known = NAMES
        .iter()
        .find(|(_, number)| i64::from(*number) == i64::from(signal));
    known.map_or_else(|| signal.to_string(), |(name, _)| format!("SIG{name}"))
}

impl Serialize for Signals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.numbers().map(name))
    }
}

impl<'de> Deserialize<'de> for Signals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut mask = 0;
        for written in Vec::<String>::deserialize(deserializer)? {
            let upper = written.to_ascii_uppercase();
            let plain = upper.strip_prefix("SIG").unwrap_or(&upper);
            let Some((_, number)) = NAMES.iter().find(|(name, _)| *name == plain) else {
                let hint = match plain {
                    "KILL" => {
                        "every thread of a process that ends takes SIGKILL: it tells of no crash".to_owned()
                    }
                    "STOP" | "TSTP" | "TTIN" | "TTOU" | "CHLD" | "CONT" | "URG" | "WINCH" => {
                        format!("SIG{plain} ends no process")
                    }
                    _ => format!("{written:?} is no signal: write for example \"SIGSEGV\""),
                };
                return Err(D::Error::custom(hint));
            };
            mask |= 1 << number;
        }
        Ok(Self(mask))
    }
}
