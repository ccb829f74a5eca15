//! The opcodes of packets, and their encoding as bytes.
//!
//! Source: SDM volume 3, "Packet Definitions". [`crate::parser`] reads them.

use crate::packet::{IpPayload, Packet, Payload};

/// The 16 bytes of PSB.
pub(crate) const PSB: [u8; 16] = [
    2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
];

/// The first bytes of packets. For IP packets, the low five bits of the first byte.
pub(crate) mod opcode {
    pub const PAD: u8 = 0x00;
    pub const EXTENDED: u8 = 0x02;
    pub const TIP: u8 = 0x0d;
    pub const TIP_PGE: u8 = 0x11;
    pub const TIP_PGD: u8 = 0x01;
    pub const FUP: u8 = 0x1d;
    pub const TSC: u8 = 0x19;
    pub const MTC: u8 = 0x59;
    pub const MODE: u8 = 0x99;
    pub const TRIG: u8 = 0xd9;
    /// The low two bits of CYC.
    pub const CYC: u8 = 0b11;
    /// The low three bits of BIP, within a block.
    pub const BIP: u8 = 0b100;
}

/// The bits of the second byte of TRIG.
pub(crate) mod trig {
    /// A FUP follows.
    pub const IP: u8 = 0x80;
    /// Two bytes with the number of instructions follow.
    pub const INSTRUCTIONS: u8 = 0x40;
    /// Other triggers fired.
    pub const MULTIPLE: u8 = 0x20;
}

/// The bits of the third byte of PWRE.
pub(crate) mod pwre {
    /// The hardware initiated the entry.
    pub const HARDWARE: u8 = 0x80;
    /// The bit that libipt's encoder sets instead of [`HARDWARE`]. The SDM reserves it.
    pub const HARDWARE_LIBIPT: u8 = 0x08;
}

/// The second bytes after [`opcode::EXTENDED`].
pub(crate) mod extended {
    pub const PSB: u8 = 0x82;
    pub const PSBEND: u8 = 0x23;
    pub const TNT_LONG: u8 = 0xa3;
    pub const PIP: u8 = 0x43;
    pub const TRACE_STOP: u8 = 0x83;
    pub const CBR: u8 = 0x03;
    pub const TMA: u8 = 0x73;
    pub const VMCS: u8 = 0xc8;
    pub const OVF: u8 = 0xf3;
    pub const MNT: u8 = 0xc3;
    /// The third byte of MNT.
    pub const MNT_THIRD: u8 = 0x88;
    /// The low five bits of PTW. Bits 6:5 hold the size, and bit 7 says that a FUP follows.
    pub const PTW: u8 = 0x12;
    pub const EXSTOP: u8 = 0x62;
    pub const MWAIT: u8 = 0xc2;
    pub const PWRE: u8 = 0x22;
    pub const PWRX: u8 = 0xa2;
    pub const BBP: u8 = 0x63;
    pub const BEP: u8 = 0x33;
    pub const CFE: u8 = 0x13;
    pub const EVD: u8 = 0x53;
    /// The bit for "a FUP follows" in the second byte of EXSTOP, BEP and PTW, and in the third of
    /// CFE.
    pub const IP: u8 = 0x80;
}

impl Packet {
    /// Appends the bytes of the packet. Bits that exceed a field are dropped.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        use extended as ext;
        let mut ext = |second: u8, rest: &[u8]| {
            out.extend_from_slice(&[opcode::EXTENDED, second]);
            out.extend_from_slice(rest);
        };
        let flag = |ip: bool| if ip { ext::IP } else { 0 };
        match *self {
            Self::Pad => out.push(opcode::PAD),
            Self::Psb => out.extend_from_slice(&PSB),
            Self::PsbEnd => ext(ext::PSBEND, &[]),
            Self::TntShort(tnt) => out.push((tnt.payload() << 1) as u8),
            Self::TntLong(tnt) => ext(ext::TNT_LONG, low::<6>(tnt.payload()).as_slice()),
            Self::Tip(ip) => write_ip(out, opcode::TIP, ip),
            Self::TipPge(ip) => write_ip(out, opcode::TIP_PGE, ip),
            Self::TipPgd(ip) => write_ip(out, opcode::TIP_PGD, ip),
            Self::Fup(ip) => write_ip(out, opcode::FUP, ip),
            Self::Pip { cr3, non_root } => ext(ext::PIP, &low::<6>((cr3 >> 5) << 1 | u64::from(non_root))),
            Self::ModeExec(mode) => {
                let bits =
                    u8::from(mode.long) | u8::from(mode.default_32) << 1 | u8::from(mode.interrupts) << 2;
                out.extend_from_slice(&[opcode::MODE, bits]);
            }
            Self::ModeTsx { in_tx, abort } => {
                out.extend_from_slice(&[opcode::MODE, 0x20 | u8::from(in_tx) | u8::from(abort) << 1]);
            }
            Self::TraceStop => ext(ext::TRACE_STOP, &[]),
            Self::Cbr(ratio) => ext(ext::CBR, &[ratio, 0]),
            Self::Tsc(tsc) => {
                out.push(opcode::TSC);
                out.extend_from_slice(&low::<7>(tsc));
            }
            Self::Tma { ctc, fast } => {
                let ([ctc0, ctc1], [fast0, fast1]) = (ctc.to_le_bytes(), fast.to_le_bytes());
                ext(ext::TMA, &[ctc0, ctc1, 0, fast0, fast1 & 1]);
            }
            Self::Mtc(ctc) => out.extend_from_slice(&[opcode::MTC, ctc]),
            Self::Cyc(cycles) => write_cyc(out, cycles),
            Self::Vmcs(base) => ext(ext::VMCS, &low::<5>(base >> 12)),
            Self::Ovf => ext(ext::OVF, &[]),
            Self::Mnt(value) => {
                ext(ext::MNT, &[ext::MNT_THIRD]);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Ptw { value, ip } => match value {
                Payload::Four(value) => ext(ext::PTW | flag(ip), &value.to_le_bytes()),
                Payload::Eight(value) => ext(ext::PTW | 0x20 | flag(ip), &value.to_le_bytes()),
            },
            Self::Exstop { ip } => ext(ext::EXSTOP | flag(ip), &[]),
            Self::Mwait { hints, extensions } => ext(ext::MWAIT, &[hints, 0, 0, 0, extensions & 3, 0, 0, 0]),
            Self::Pwre {
                hardware,
                state,
                sub_state,
            } => {
                ext(
                    ext::PWRE,
                    &[
                        if hardware { pwre::HARDWARE } else { 0 },
                        state << 4 | sub_state & 0xf,
                    ],
                );
            }
            Self::Pwrx { last, deepest, wake } => {
                ext(ext::PWRX, &[last << 4 | deepest & 0xf, wake & 0xf, 0, 0, 0])
            }
            Self::Bbp { kind, short } => ext(ext::BBP, &[u8::from(short) << 7 | kind & 0x1f]),
            Self::Bip { id, value } => {
                out.push(id << 3 | opcode::BIP);
                match value {
                    Payload::Four(value) => out.extend_from_slice(&value.to_le_bytes()),
                    Payload::Eight(value) => out.extend_from_slice(&value.to_le_bytes()),
                }
            }
            Self::Bep { ip } => ext(ext::BEP | flag(ip), &[]),
            Self::Cfe { ip, kind, vector } => ext(ext::CFE, &[flag(ip) | kind & 0x1f, vector]),
            Self::Evd { kind, value } => {
                ext(ext::EVD, &[kind & 0x3f]);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Trig {
                triggers,
                instructions,
                multiple,
                ip,
            } => {
                let bit = |set: bool, bit: u8| if set { bit } else { 0 };
                let bits = bit(ip, trig::IP)
                    | bit(instructions.is_some(), trig::INSTRUCTIONS)
                    | bit(multiple, trig::MULTIPLE);
                out.extend_from_slice(&[opcode::TRIG, bits, triggers]);
                out.extend(instructions.into_iter().flat_map(u16::to_le_bytes));
            }
        }
    }
}

/// Returns the `N` low bytes of a value, `N` at most 8.
fn low<const N: usize>(value: u64) -> [u8; N] {
    let bytes = value.to_le_bytes();
    std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0))
}

fn write_ip(out: &mut Vec<u8>, opcode: u8, ip: IpPayload) {
    let (form, bytes, len) = ip_bytes(ip);
    out.push(form << 5 | opcode);
    out.extend_from_slice(bytes.get(..len).unwrap_or_default());
}

/// Returns a payload as the high three bits of the first byte, and the following bytes with their
/// number.
pub(crate) fn ip_bytes(ip: IpPayload) -> (u8, [u8; 8], usize) {
    match ip {
        IpPayload::Suppressed => (0, [0; 8], 0),
        IpPayload::Update16(ip) => (1, u64::from(ip).to_le_bytes(), 2),
        IpPayload::Update32(ip) => (2, u64::from(ip).to_le_bytes(), 4),
        IpPayload::Sext48(ip) => (3, ip.to_le_bytes(), 6),
        IpPayload::Update48(ip) => (4, ip.to_le_bytes(), 6),
        IpPayload::Full(ip) => (6, ip.to_le_bytes(), 8),
    }
}

/// Writes a CYC: five bits in the first byte and seven in each other one. A bit in each byte says
/// that another follows.
fn write_cyc(out: &mut Vec<u8>, cycles: u64) {
    let mut rest = cycles >> 5;
    out.push(opcode::CYC | u8::from(rest != 0) << 2 | ((cycles & 0x1f) as u8) << 3);
    while rest != 0 {
        let byte = ((rest & 0x7f) as u8) << 1;
        rest >>= 7;
        out.push(byte | u8::from(rest != 0));
    }
}
