//! The packets of Intel PT, one variant each (SDM volume 3, "Packet Definitions").

use std::fmt;

/// One packet, its fields as the wire has them: nothing here depends on an earlier packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Padding, one byte.
    Pad,
    /// Packet stream boundary: a decoder may start here; last IP is zero from here on.
    Psb,
    /// End of the packets that give state after a [`Packet::Psb`] ("PSB+").
    PsbEnd,
    /// Taken / not taken, 1–6 branches in one byte.
    TntShort(Tnt),
    /// Taken / not taken, 1–47 branches in eight bytes.
    TntLong(Tnt),
    /// Target of an indirect branch, exception or interrupt.
    Tip(IpPayload),
    /// Packet generation enabled: tracing goes on at this address.
    TipPge(IpPayload),
    /// Packet generation disabled; the target, where it may be told.
    TipPgd(IpPayload),
    /// Flow update: the source address of an asynchronous event, or the current one in PSB+.
    Fup(IpPayload),
    /// Paging information: a new CR3.
    Pip {
        /// CR3 bits 51:5, in place.
        cr3: u64,
        /// In VMX non-root operation.
        non_root: bool,
    },
    /// Execution mode.
    ModeExec(ExecMode),
    /// Transactional state.
    ModeTsx {
        /// Within a transaction.
        in_tx: bool,
        /// The transaction was aborted.
        abort: bool,
    },
    /// Tracing stopped by a TraceStop address range.
    TraceStop,
    /// Core to bus ratio.
    Cbr(u8),
    /// Time-stamp counter, its low 56 bits.
    Tsc(u64),
    /// TSC/MTC alignment: the crystal clock and the rest of the TSC at the last [`Packet::Tsc`].
    Tma {
        /// Low 16 bits of the crystal clock (CTC).
        ctc: u16,
        /// TSC ticks since the CTC's last edge, 9 bits.
        fast: u16,
    },
    /// Mini time counter: bits N+7:N of the CTC.
    Mtc(u8),
    /// Core cycles since the last CYC packet, below 2^61: no counter is as wide, and libipt reads no more.
    Cyc(u64),
    /// A VMCS was loaded: its base address, bits 51:12 in place.
    Vmcs(u64),
    /// Packets were lost inside the processor.
    Ovf,
    /// Maintenance, model specific.
    Mnt(u64),
    /// The operand of PTWRITE.
    Ptw {
        /// The value.
        value: Payload,
        /// A [`Packet::Fup`] with the instruction's address follows.
        ip: bool,
    },
    /// Execution stopped (sleep state or frequency change).
    Exstop {
        /// A [`Packet::Fup`] follows.
        ip: bool,
    },
    /// MWAIT or UMWAIT asked for a sleep state.
    Mwait {
        /// EAX bits 7:0.
        hints: u8,
        /// ECX bits 1:0.
        extensions: u8,
    },
    /// Power state entry.
    Pwre {
        /// The hardware entered by itself.
        hardware: bool,
        /// Resolved thread C-state, 0–15.
        state: u8,
        /// Resolved thread sub C-state, 0–15.
        sub_state: u8,
    },
    /// Power state exit.
    Pwrx {
        /// Last core C-state, 0–15.
        last: u8,
        /// Deepest core C-state, 0–15.
        deepest: u8,
        /// Why: bit 0 interrupt, bit 2 monitored address written, bit 3 hardware.
        wake: u8,
    },
    /// Block begin: items follow up to [`Packet::Bep`].
    Bbp {
        /// What the items are, 5 bits.
        kind: u8,
        /// Items are 4 bytes instead of 8.
        short: bool,
    },
    /// Block item; only between [`Packet::Bbp`] and [`Packet::Bep`].
    Bip {
        /// Which item of the block, 5 bits.
        id: u8,
        /// Its value.
        value: Payload,
    },
    /// Block end.
    Bep {
        /// A [`Packet::Fup`] follows.
        ip: bool,
    },
    /// Control flow event (event trace).
    Cfe {
        /// A [`Packet::Fup`] follows.
        ip: bool,
        /// The kind of event, 5 bits.
        kind: u8,
        /// Its vector, where it has one.
        vector: u8,
    },
    /// Event data, belongs to the [`Packet::Cfe`] after it.
    Evd {
        /// What the value is, 6 bits.
        kind: u8,
        /// The value.
        value: u64,
    },
}

/// Outcomes of up to 47 conditional branches (and compressed returns), oldest first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tnt {
    bits: u64,
    len: u8,
}

impl Tnt {
    /// The most branches one packet holds.
    pub const MAX_LEN: u8 = 47;
    /// The most branches the one-byte packet holds.
    pub const MAX_SHORT_LEN: u8 = 6;

    /// `len` outcomes (1–47), the oldest in the highest of the `len` low bits of `bits`; 1 is taken.
    #[must_use]
    pub fn new(bits: u64, len: u8) -> Option<Self> {
        let fits = (1..=Self::MAX_LEN).contains(&len) && bits >> len == 0;
        fits.then_some(Self { bits, len })
    }

    /// Payload with the stop bit above the outcomes, as on the wire.
    pub(crate) fn from_stopped(payload: u64, max: u8) -> Option<Self> {
        let len = 63u32.checked_sub(payload.leading_zeros())? as u8;
        (len <= max)
            .then(|| Self::new(payload ^ (1 << len), len))
            .flatten()
    }

    pub(crate) fn stopped(self) -> u64 {
        self.bits | 1 << self.len
    }

    /// The outcomes, the oldest in the highest of [`Self::len`] bits.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// How many outcomes, 1–47.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(self) -> u8 {
        self.len
    }

    /// The outcomes, oldest first; true is taken.
    pub fn iter(self) -> impl Iterator<Item = bool> {
        (0..self.len).rev().map(move |bit| self.bits >> bit & 1 != 0)
    }
}

impl fmt::Debug for Tnt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter()
            .try_for_each(|taken| f.write_str(if taken { "T" } else { "N" }))
    }
}

/// An instruction pointer as a packet carries it: compressed against the last one
/// (SDM, "IP Compression"; [`crate::LastIp`] undoes it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPayload {
    /// Not told: out of context, or not known.
    Suppressed,
    /// Bits 15:0; the rest as the last IP.
    Update16(u16),
    /// Bits 31:0; the rest as the last IP.
    Update32(u32),
    /// Bits 47:0, sign extended.
    Sext48(u64),
    /// Bits 47:0; the rest as the last IP.
    Update48(u64),
    /// All 64 bits.
    Full(u64),
}

/// A value of four or eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Four bytes.
    Four(u32),
    /// Eight bytes.
    Eight(u64),
}

/// What [`Packet::ModeExec`] says: the code segment's mode, and the interrupt flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecMode {
    /// CS.L and EFER.LMA: 64-bit code.
    pub long: bool,
    /// CS.D: 32-bit code, when not `long`; 16-bit code when neither.
    pub default_32: bool,
    /// RFLAGS.IF; only told with event trace.
    pub interrupts: bool,
}

impl ExecMode {
    /// 64-bit code, interrupt flag not told.
    pub const LONG: Self = Self {
        long: true,
        default_32: false,
        interrupts: false,
    };
}
