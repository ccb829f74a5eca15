//! What tells the time, in the order in which it is read.

use backtrail_pt::packet::Packet;

/// A packet of the time, or what changes what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// `header`: it stands in a PSB+.
    Tsc {
        tsc: u64,
        header: bool,
    },
    Cbr {
        ratio: u8,
        header: bool,
    },
    Tma {
        ctc: u16,
        fast: u16,
    },
    Mtc(u8),
    Cyc(u64),
    /// The PSB at this offset was passed.
    Psb(usize),
    /// An overflow was met.
    Overflow,
    /// Decoding begins anew.
    Reset,
}

impl Note {
    /// What a packet tells; `header`: it stands in a PSB+. `None`: it is none of the time.
    pub fn of(packet: &Packet, header: bool) -> Option<Self> {
        Some(match *packet {
            Packet::Tsc(tsc) => Self::Tsc { tsc, header },
            Packet::Cbr(ratio) => Self::Cbr { ratio, header },
            Packet::Tma { ctc, fast } => Self::Tma { ctc, fast },
            Packet::Mtc(ctc) => Self::Mtc(ctc),
            Packet::Cyc(cycles) => Self::Cyc(cycles),
            _ => return None,
        })
    }
}
