//! The text notation of packets, one per line, as `backtrail dump packets` prints it and tests use
//! it.
//!
//! The name comes first, in libipt's lower-case spelling, followed by the fields: `tip.pge
//! sext48:0x401000`, `tnt.short TNT`, `tma ctc:0x12 fast:0x3`. Flags are plain words. Parsing the
//! text returns the same packet.

use crate::packet::{ExecMode, IpPayload, Packet, Payload, Tnt};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set: bool, name: &'static str| if set { name } else { "" };
        match *self {
            Self::Pad => f.write_str("pad"),
            Self::Psb => f.write_str("psb"),
            Self::PsbEnd => f.write_str("psbend"),
            Self::TntShort(tnt) => write!(f, "tnt.short {tnt:?}"),
            Self::TntLong(tnt) => write!(f, "tnt.long {tnt:?}"),
            Self::Tip(ip) => write!(f, "tip {ip}"),
            Self::TipPge(ip) => write!(f, "tip.pge {ip}"),
            Self::TipPgd(ip) => write!(f, "tip.pgd {ip}"),
            Self::Fup(ip) => write!(f, "fup {ip}"),
            Self::Pip { cr3, non_root } => write!(f, "pip {cr3:#x}{}", flag(non_root, " nr")),
            Self::ModeExec(mode) => {
                f.write_str("mode.exec")?;
                f.write_str(flag(mode.long, " cs.l"))?;
                f.write_str(flag(mode.default_32, " cs.d"))?;
                f.write_str(flag(mode.interrupts, " if"))
            }
            Self::ModeTsx { in_tx, abort } => {
                write!(f, "mode.tsx{}{}", flag(in_tx, " intx"), flag(abort, " abrt"))
            }
            Self::TraceStop => f.write_str("stop"),
            Self::Cbr(ratio) => write!(f, "cbr {ratio:#x}"),
            Self::Tsc(tsc) => write!(f, "tsc {tsc:#x}"),
            Self::Tma { ctc, fast } => write!(f, "tma ctc:{ctc:#x} fast:{fast:#x}"),
            Self::Mtc(ctc) => write!(f, "mtc {ctc:#x}"),
            Self::Cyc(cycles) => write!(f, "cyc {cycles:#x}"),
            Self::Vmcs(base) => write!(f, "vmcs {base:#x}"),
            Self::Ovf => f.write_str("ovf"),
            Self::Mnt(value) => write!(f, "mnt {value:#x}"),
            Self::Ptw { value, ip } => write!(f, "ptw {value}{}", flag(ip, " ip")),
            Self::Exstop { ip } => write!(f, "exstop{}", flag(ip, " ip")),
            Self::Mwait { hints, extensions } => write!(f, "mwait hints:{hints:#x} ext:{extensions:#x}"),
            Self::Pwre {
                hardware,
                state,
                sub_state,
            } => {
                write!(
                    f,
                    "pwre state:{state:#x} sub:{sub_state:#x}{}",
                    flag(hardware, " hw")
                )
            }
            Self::Pwrx { last, deepest, wake } => {
                write!(f, "pwrx last:{last:#x} deepest:{deepest:#x} wake:{wake:#x}")
            }
            Self::Bbp { kind, short } => write!(f, "bbp type:{kind:#x}{}", flag(short, " short")),
            Self::Bip { id, value } => write!(f, "bip id:{id:#x} {value}"),
            Self::Bep { ip } => write!(f, "bep{}", flag(ip, " ip")),
            Self::Cfe { ip, kind, vector } => {
                write!(f, "cfe type:{kind:#x} vector:{vector:#x}{}", flag(ip, " ip"))
            }
            Self::Evd { kind, value } => write!(f, "evd type:{kind:#x} {value:#x}"),
            Self::Trig {
                triggers,
                instructions,
                multiple,
                ip,
            } => {
                write!(f, "trig {triggers:#x}")?;
                if let Some(instructions) = instructions {
                    write!(f, " icnt:{instructions:#x}")?;
                }
                write!(f, "{}{}", flag(multiple, " mult"), flag(ip, " ip"))
            }
        }
    }
}

impl fmt::Display for IpPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suppressed => f.write_str("none"),
            Self::Update16(ip) => write!(f, "upd16:{ip:#x}"),
            Self::Update32(ip) => write!(f, "upd32:{ip:#x}"),
            Self::Sext48(ip) => write!(f, "sext48:{ip:#x}"),
            Self::Update48(ip) => write!(f, "upd48:{ip:#x}"),
            Self::Full(ip) => write!(f, "full:{ip:#x}"),
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Four(value) => write!(f, "u32:{value:#x}"),
            Self::Eight(value) => write!(f, "u64:{value:#x}"),
        }
    }
}

/// The text is not a packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a packet; use the notation of `backtrail dump packets`, for example `tip upd16:0x1000`"
)]
pub struct ParsePacketError(String);

impl FromStr for Packet {
    type Err = ParsePacketError;

    fn from_str(text: &str) -> Result<Self, ParsePacketError> {
        let mut fields = Fields(text.split_whitespace());
        fields
            .packet()
            .filter(|_| fields.0.next().is_none())
            .ok_or_else(|| ParsePacketError(text.chars().take(80).collect()))
    }
}

/// The remaining words. All methods return `None` if the text is not a packet.
struct Fields<'a>(std::str::SplitWhitespace<'a>);

impl Fields<'_> {
    fn packet(&mut self) -> Option<Packet> {
        Some(match self.0.next()? {
            "pad" => Packet::Pad,
            "psb" => Packet::Psb,
            "psbend" => Packet::PsbEnd,
            "tnt.short" => Packet::TntShort(self.tnt().filter(|tnt| tnt.len() <= Tnt::MAX_SHORT_LEN)?),
            "tnt.long" => Packet::TntLong(self.tnt()?),
            "tip" => Packet::Tip(self.ip()?),
            "tip.pge" => Packet::TipPge(self.ip()?),
            "tip.pgd" => Packet::TipPgd(self.ip()?),
            "fup" => Packet::Fup(self.ip()?),
            "pip" => Packet::Pip {
                cr3: self
                    .number()
                    .filter(|cr3: &u64| cr3 & 0x1f == 0 && cr3 >> 52 == 0)?,
                non_root: self.flag("nr"),
            },
            "mode.exec" => Packet::ModeExec(ExecMode {
                long: self.flag("cs.l"),
                default_32: self.flag("cs.d"),
                interrupts: self.flag("if"),
            }),
            "mode.tsx" => Packet::ModeTsx {
                in_tx: self.flag("intx"),
                abort: self.flag("abrt"),
            },
            "stop" => Packet::TraceStop,
            "cbr" => Packet::Cbr(self.number()?),
            "tsc" => Packet::Tsc(self.number().filter(|tsc: &u64| tsc >> 56 == 0)?),
            "tma" => Packet::Tma {
                ctc: self.named("ctc", 16)?,
                fast: self.named("fast", 9)?,
            },
            "mtc" => Packet::Mtc(self.number()?),
            "cyc" => Packet::Cyc(self.number()?),
            "vmcs" => Packet::Vmcs(
                self.number()
                    .filter(|base: &u64| base & 0xfff == 0 && base >> 52 == 0)?,
            ),
            "ovf" => Packet::Ovf,
            "mnt" => Packet::Mnt(self.number()?),
            "ptw" => Packet::Ptw {
                value: self.payload()?,
                ip: self.flag("ip"),
            },
            "exstop" => Packet::Exstop { ip: self.flag("ip") },
            "mwait" => Packet::Mwait {
                hints: self.named("hints", 8)?,
                extensions: self.named("ext", 2)?,
            },
            "pwre" => Packet::Pwre {
                state: self.named("state", 4)?,
                sub_state: self.named("sub", 4)?,
                hardware: self.flag("hw"),
            },
            "pwrx" => Packet::Pwrx {
                last: self.named("last", 4)?,
                deepest: self.named("deepest", 4)?,
                wake: self.named("wake", 4)?,
            },
            "bbp" => Packet::Bbp {
                kind: self.named("type", 5)?,
                short: self.flag("short"),
            },
            "bip" => Packet::Bip {
                id: self.named("id", 5)?,
                value: self.payload()?,
            },
            "bep" => Packet::Bep { ip: self.flag("ip") },
            "cfe" => Packet::Cfe {
                kind: self.named("type", 5)?,
                vector: self.named("vector", 8)?,
                ip: self.flag("ip"),
            },
            "evd" => Packet::Evd {
                kind: self.named("type", 6)?,
                value: self.number()?,
            },
            "trig" => Packet::Trig {
                triggers: self.number()?,
                instructions: self.optional("icnt", 16)?,
                multiple: self.flag("mult"),
                ip: self.flag("ip"),
            },
            _ => return None,
        })
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        number(self.0.next()?)
    }

    /// Parses `name:NUMBER` with at most `bits` bits.
    fn named<T: TryFrom<u64>>(&mut self, name: &str, bits: u32) -> Option<T> {
        let text = self.0.next()?.strip_prefix(name)?.strip_prefix(':')?;
        let value = number::<u64>(text).filter(|value| value >> bits == 0)?;
        T::try_from(value).ok()
    }

    /// Parses `name:NUMBER` as [`Self::named`] does, if the next word has this name.
    fn optional<T: TryFrom<u64>>(&mut self, name: &str, bits: u32) -> Option<Option<T>> {
        let next = self.0.clone().next().and_then(|word| word.split_once(':'));
        match next.is_some_and(|(found, _)| found == name) {
            true => self.named(name, bits).map(Some),
            false => Some(None),
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        let mut ahead = self.0.clone();
        let set = ahead.next() == Some(name);
        if set {
            self.0 = ahead;
        }
        set
    }

    fn ip(&mut self) -> Option<IpPayload> {
        let word = self.0.next()?;
        if word == "none" {
            return Some(IpPayload::Suppressed);
        }
        let (kind, ip) = word.split_once(':')?;
        Some(match kind {
            "upd16" => IpPayload::Update16(number(ip)?),
            "upd32" => IpPayload::Update32(number(ip)?),
            "sext48" => IpPayload::Sext48(number(ip).filter(|ip: &u64| ip >> 48 == 0)?),
            "upd48" => IpPayload::Update48(number(ip).filter(|ip: &u64| ip >> 48 == 0)?),
            "full" => IpPayload::Full(number(ip)?),
            _ => return None,
        })
    }

    fn payload(&mut self) -> Option<Payload> {
        let (size, value) = self.0.next()?.split_once(':')?;
        match size {
            "u32" => number(value).map(Payload::Four),
            "u64" => number(value).map(Payload::Eight),
            _ => None,
        }
    }

    fn tnt(&mut self) -> Option<Tnt> {
        let word = self.0.next()?;
        let len = u8::try_from(word.len()).ok().filter(|len| *len <= Tnt::MAX_LEN)?;
        let bits = word.bytes().try_fold(0u64, |bits, letter| match letter {
            b'T' => Some(bits << 1 | 1),
            b'N' => Some(bits << 1),
            _ => None,
        })?;
        Tnt::new(bits, len)
    }
}

/// Parses hexadecimal with `0x`, otherwise decimal.
fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    T::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_as_documented() {
        assert_eq!(
            Packet::TipPge(IpPayload::Sext48(0x40_1000)).to_string(),
            "tip.pge sext48:0x401000"
        );
        assert_eq!(
            "tnt.short TNT".parse(),
            Ok(Packet::TntShort(Tnt::new(0b101, 3).unwrap()))
        );
        assert_eq!("mode.exec cs.l".parse(), Ok(Packet::ModeExec(ExecMode::LONG)));
    }

    #[test]
    fn invalid_text_is_refused() {
        let long = format!("tnt.long {}", "T".repeat(48));
        for text in [
            "",
            "tip",
            "tip 0x1",
            "tnt.short TNTNTNT",
            &long,
            "cbr 256",
            "psb psb",
            "mtc upd16:1",
            "tma ctc:1 fast:512",
        ] {
            assert!(text.parse::<Packet>().is_err(), "{text}");
        }
    }
}
