//! Parses bytes as packets (SDM volume 3, "Packet Definitions"). Arbitrary input never causes a
//! panic.

use crate::packet::{ExecMode, IpPayload, Packet, Payload, Tnt};
use crate::wire::{self, PSB, opcode};
use std::fmt;

/// The position and kind of a parse error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the packets {kind}")]
pub struct ParseError {
    /// The offset of the first byte of the packet.
    pub offset: usize,
    /// The kind of error.
    pub kind: ParseErrorKind,
}

/// The kind of a parse error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The packet exceeds the end of the data.
    Truncated,
    /// No packet begins with these bytes.
    UnknownOpcode,
    /// The packet is known, but its payload is invalid.
    BadPayload,
}

impl fmt::Display for ParseErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "begins a packet that exceeds the end of the data",
            Self::UnknownOpcode => "begins no known packet",
            Self::BadPayload => "begins a packet with an invalid payload",
        })
    }
}

/// Returns the offset of the next PSB at or after `from`.
#[must_use]
pub fn find_psb(data: &[u8], from: usize) -> Option<usize> {
    let mut start = from;
    while let Some(window) = data.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        start += match window {
            &PSB => return Some(start),
            // The last byte of the window shows whether a PSB may overlap the window.
            [.., 0x02 | 0x82] => 1,
            _ => 16,
        };
    }
    None
}

/// An iterator over packets and their offsets.
///
/// The iterator ends after an error, because the next packet boundary is unknown.
/// [`Self::sync_forward`] continues at the next PSB.
#[derive(Clone, Debug)]
pub struct Parser<'a> {
    data: &'a [u8],
    offset: usize,
    block: Option<ItemSize>,
    failed: bool,
    /// The start of the last packet, unless it is a PSB.
    last: Option<usize>,
}

/// The size of the items in the current block. Inside a block, a byte that ends in 100 is an item
/// and not a TNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemSize {
    Four,
    Eight,
}

impl<'a> Parser<'a> {
    /// Starts at the first byte, which must begin a packet (or call [`Self::sync_forward`] first).
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            offset: 0,
            block: None,
            failed: false,
            last: None,
        }
    }

    /// Starts at the byte at `offset`, which must begin a packet. Offsets still count from the
    /// first byte of `data`.
    #[must_use]
    pub fn at(data: &'a [u8], offset: usize) -> Self {
        Self {
            offset,
            ..Self::new(data)
        }
    }

    /// Returns the offset of the next packet.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Moves to the next PSB at or after this position, and returns its offset. After an error it
    /// starts past the first byte of the bad packet. Returns `None` if there is no PSB, and the
    /// parser is at its end.
    pub fn sync_forward(&mut self) -> Option<usize> {
        self.sync_from(self.offset + usize::from(self.failed))
    }

    /// Does the same as [`Self::sync_forward`], but after an error it also finds a PSB whose first
    /// bytes the last packet took. A loss that cut this packet leaves that.
    pub fn resync_forward(&mut self) -> Option<usize> {
        match self.last.filter(|_| self.failed) {
            Some(last) => self.sync_from(last + 1),
            None => self.sync_forward(),
        }
    }

    fn sync_from(&mut self, from: usize) -> Option<usize> {
        let found = find_psb(self.data, from);
        self.offset = found.unwrap_or(self.data.len());
        (self.block, self.failed, self.last) = (None, false, None);
        found
    }

    /// Tracks the current block. As in perf's decoder, only some packets end a block.
    fn track_block(&mut self, packet: &Packet) {
        match packet {
            Packet::Bbp { short, .. } => {
                self.block = Some(if *short { ItemSize::Four } else { ItemSize::Eight });
            }
            Packet::Pad
            | Packet::Bip { .. }
            | Packet::Tsc(_)
            | Packet::Tma { .. }
            | Packet::Mtc(_)
            | Packet::Cyc(_)
            | Packet::Cbr(_)
            | Packet::Fup(_)
            | Packet::Mnt(_)
            | Packet::Exstop { .. }
            | Packet::Pwre { .. }
            | Packet::Pwrx { .. } => {}
            _ => self.block = None,
        }
    }
}

impl Iterator for Parser<'_> {
    type Item = Result<(usize, Packet), ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let rest = self.data.get(offset..)?;
        if self.failed || rest.is_empty() {
            return None;
        }
        let mut bytes = Bytes(rest);
        match bytes.packet(self.block) {
            Ok(packet) => {
                self.track_block(&packet);
                self.last = (packet != Packet::Psb).then_some(offset);
                self.offset += rest.len() - bytes.0.len();
                Some(Ok((offset, packet)))
            }
            Err(kind) => {
                self.failed = true;
                Some(Err(ParseError { offset, kind }))
            }
        }
    }
}

/// The remaining bytes.
struct Bytes<'a>(&'a [u8]);

type ParseResult<T> = Result<T, ParseErrorKind>;

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> ParseResult<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ParseErrorKind::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> ParseResult<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> ParseResult<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> ParseResult<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a little-endian number of `N` bytes, at most 8.
    fn wide<const N: usize>(&mut self) -> ParseResult<u64> {
        let bytes: [u8; N] = self.take()?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn packet(&mut self, block: Option<ItemSize>) -> ParseResult<Packet> {
        let first = self.byte()?;
        if let Some(size) = block
            && first & 7 == opcode::BIP
        {
            let value = match size {
                ItemSize::Four => Payload::Four(self.u32()?),
                ItemSize::Eight => Payload::Eight(self.u64()?),
            };
            return Ok(Packet::Bip {
                id: first >> 3,
                value,
            });
        }
        match first {
            opcode::PAD => Ok(Packet::Pad),
            opcode::EXTENDED => self.extended(),
            opcode::TSC => Ok(Packet::Tsc(self.wide::<7>()?)),
            opcode::MTC => Ok(Packet::Mtc(self.byte()?)),
            opcode::MODE => self.mode(),
            opcode::TRIG => self.trig(),
            even if even & 1 == 0 => Tnt::from_payload(u64::from(even >> 1), Tnt::MAX_SHORT_LEN)
                .map(Packet::TntShort)
                .ok_or(ParseErrorKind::BadPayload),
            cyc if cyc & 3 == opcode::CYC => self.cyc(cyc),
            _ => {
                let packet = match first & 0x1f {
                    opcode::TIP => Packet::Tip,
                    opcode::TIP_PGE => Packet::TipPge,
                    opcode::TIP_PGD => Packet::TipPgd,
                    opcode::FUP => Packet::Fup,
                    _ => return Err(ParseErrorKind::UnknownOpcode),
                };
                self.ip(first >> 5).map(packet)
            }
        }
    }

    fn extended(&mut self) -> ParseResult<Packet> {
        use wire::extended as ext;
        let second = self.byte()?;
        let ip = second & ext::IP != 0;
        Ok(match second {
            ext::PSB => {
                let rest: [u8; 14] = self.take()?;
                if PSB.get(2..) != Some(&rest[..]) {
                    return Err(ParseErrorKind::BadPayload);
                }
                Packet::Psb
            }
            ext::PSBEND => Packet::PsbEnd,
            ext::TNT_LONG => {
                let tnt = Tnt::from_payload(self.wide::<6>()?, Tnt::MAX_LEN);
                Packet::TntLong(tnt.ok_or(ParseErrorKind::BadPayload)?)
            }
            ext::PIP => {
                let payload = self.wide::<6>()?;
                Packet::Pip {
                    cr3: (payload >> 1) << 5,
                    non_root: payload & 1 != 0,
                }
            }
            ext::TRACE_STOP => Packet::TraceStop,
            ext::CBR => {
                let [ratio, _] = self.take()?;
                Packet::Cbr(ratio)
            }
            ext::TMA => {
                let [ctc0, ctc1, reserved, fast0, fast1] = self.take()?;
                if reserved != 0 || fast1 > 1 {
                    return Err(ParseErrorKind::BadPayload);
                }
                Packet::Tma {
                    ctc: u16::from_le_bytes([ctc0, ctc1]),
                    fast: u16::from_le_bytes([fast0, fast1]),
                }
            }
            ext::VMCS => Packet::Vmcs(self.wide::<5>()? << 12),
            ext::OVF => Packet::Ovf,
            ext::MNT if self.byte()? == ext::MNT_THIRD => Packet::Mnt(self.u64()?),
            ext::MWAIT => {
                let [hints, _, _, _, extensions, _, _, _] = self.take()?;
                Packet::Mwait {
                    hints,
                    extensions: extensions & 3,
                }
            }
            ext::PWRE => {
                let [flags, states] = self.take()?;
                Packet::Pwre {
                    hardware: flags & (wire::pwre::HARDWARE | wire::pwre::HARDWARE_LIBIPT) != 0,
                    state: states >> 4,
                    sub_state: states & 0xf,
                }
            }
            ext::PWRX => {
                let [states, wake, _, _, _] = self.take()?;
                Packet::Pwrx {
                    last: states >> 4,
                    deepest: states & 0xf,
                    wake: wake & 0xf,
                }
            }
            ext::BBP => {
                let flags = self.byte()?;
                Packet::Bbp {
                    kind: flags & 0x1f,
                    short: flags & 0x80 != 0,
                }
            }
            ext::CFE => {
                let [flags, vector] = self.take()?;
                Packet::Cfe {
                    ip: flags & ext::IP != 0,
                    kind: flags & 0x1f,
                    vector,
                }
            }
            ext::EVD => Packet::Evd {
                kind: self.byte()? & 0x3f,
                value: self.u64()?,
            },
            _ => match second & !ext::IP {
                ext::EXSTOP => Packet::Exstop { ip },
                ext::BEP => Packet::Bep { ip },
                _ if second & 0x1f == ext::PTW => Packet::Ptw {
                    value: self.ptw_value(second >> 5 & 3)?,
                    ip,
                },
                _ => return Err(ParseErrorKind::UnknownOpcode),
            },
        })
    }

    /// Reads the operand of PTWRITE, whose size is coded in two bits.
    fn ptw_value(&mut self, size: u8) -> ParseResult<Payload> {
        match size {
            0 => Ok(Payload::Four(self.u32()?)),
            1 => Ok(Payload::Eight(self.u64()?)),
            _ => Err(ParseErrorKind::BadPayload),
        }
    }

    fn mode(&mut self) -> ParseResult<Packet> {
        let payload = self.byte()?;
        let bit = |bit: u8| payload >> bit & 1 != 0;
        match payload >> 5 {
            0 => Ok(Packet::ModeExec(ExecMode {
                long: bit(0),
                default_32: bit(1),
                interrupts: bit(2),
            })),
            1 => Ok(Packet::ModeTsx {
                in_tx: bit(0),
                abort: bit(1),
            }),
            _ => Err(ParseErrorKind::BadPayload),
        }
    }

    fn trig(&mut self) -> ParseResult<Packet> {
        use wire::trig;
        let [bits, triggers] = self.take()?;
        let instructions = match bits & trig::INSTRUCTIONS {
            0 => None,
            _ => Some(self.take().map(u16::from_le_bytes)?),
        };
        Ok(Packet::Trig {
            triggers,
            instructions,
            multiple: bits & trig::MULTIPLE != 0,
            ip: bits & trig::IP != 0,
        })
    }

    fn cyc(&mut self, first: u8) -> ParseResult<Packet> {
        let mut cycles = u64::from(first >> 3);
        let (mut more, mut shift) = (first & 4 != 0, 5u32);
        while more {
            let byte = self.byte()?;
            let bits = u64::from(byte >> 1);
            if shift + 7 > 64 {
                return Err(ParseErrorKind::BadPayload);
            }
            cycles |= bits << shift;
            (more, shift) = (byte & 1 != 0, shift + 7);
        }
        Ok(Packet::Cyc(cycles))
    }

    fn ip(&mut self, code: u8) -> ParseResult<IpPayload> {
        Ok(match code {
            0 => IpPayload::Suppressed,
            1 => IpPayload::Update16(self.take().map(u16::from_le_bytes)?),
            2 => IpPayload::Update32(self.u32()?),
            3 => IpPayload::Sext48(self.wide::<6>()?),
            4 => IpPayload::Update48(self.wide::<6>()?),
            6 => IpPayload::Full(self.u64()?),
            _ => return Err(ParseErrorKind::BadPayload),
        })
    }
}
