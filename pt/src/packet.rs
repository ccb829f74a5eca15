//! The packets of Intel PT, one variant for each (SDM volume 3, "Packet Definitions").

use std::fmt;

/// A packet, with its fields as encoded. No field depends on an earlier packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Packet {
    /// Padding, one byte.
    Pad,
    /// Packet stream boundary: decoding can start here. Resets the last IP to zero.
    Psb,
    /// The end of the state packets after a [`Packet::Psb`] ("PSB+").
    PsbEnd,
    /// Taken / not taken: the outcomes of 1–6 branches in one byte.
    TntShort(Tnt),
    /// Taken / not taken: the outcomes of 1–47 branches in eight bytes.
    TntLong(Tnt),
    /// The target of an indirect branch, exception or interrupt.
    Tip(IpPayload),
    /// Packet generation enabled: tracing continues at this address.
    TipPge(IpPayload),
    /// Packet generation disabled. The target may be suppressed.
    TipPgd(IpPayload),
    /// Flow update: the source address of an asynchronous event, or the current address in PSB+.
    Fup(IpPayload),
    /// Paging information: the new value of CR3.
    Pip {
        /// CR3 bits 51:5, in place.
        cr3: u64,
        /// Whether the processor is in VMX non-root operation.
        non_root: bool,
    },
    /// Execution mode.
    ModeExec(ExecMode),
    /// Transactional state.
    ModeTsx {
        /// Whether a transaction is active.
        in_tx: bool,
        /// Whether the transaction was aborted.
        abort: bool,
    },
    /// Tracing stopped by a TraceStop address range.
    TraceStop,
    /// Core to bus ratio.
    Cbr(u8),
    /// The low 56 bits of the time-stamp counter.
    Tsc(u64),
    /// TSC/MTC alignment: the crystal clock and the remainder of the TSC at the last
    /// [`Packet::Tsc`].
    Tma {
        /// The low 16 bits of the crystal clock (CTC).
        ctc: u16,
        /// TSC ticks since the last CTC tick, 9 bits.
        fast: u16,
    },
    /// Mini time counter: bits N+7:N of the CTC.
    Mtc(u8),
    /// Core cycles since the last CYC packet, below 2^61. No counter is wider, and libipt accepts
    /// no more.
    Cyc(u64),
    /// The base address of a loaded VMCS, bits 51:12 in place.
    Vmcs(u64),
    /// Packets were lost inside the processor.
    Ovf,
    /// Maintenance, model specific.
    Mnt(u64),
    /// The operand of PTWRITE.
    Ptw {
        /// The value.
        value: Payload,
        /// Whether a [`Packet::Fup`] with the address of the instruction follows.
        ip: bool,
    },
    /// Execution stopped (sleep state or frequency change).
    Exstop {
        /// Whether a [`Packet::Fup`] follows.
        ip: bool,
    },
    /// MWAIT or UMWAIT requested a sleep state.
    Mwait {
        /// EAX bits 7:0.
        hints: u8,
        /// ECX bits 1:0.
        extensions: u8,
    },
    /// Power state entry.
    Pwre {
        /// Whether the hardware initiated the entry.
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
        /// The wake reason: bit 0 interrupt, bit 2 write to the monitored address, bit 3 hardware.
        wake: u8,
    },
    /// Block begin: items follow up to [`Packet::Bep`].
    Bbp {
        /// The type of the items, 5 bits.
        kind: u8,
        /// Whether items have 4 bytes instead of 8.
        short: bool,
    },
    /// Block item, only between [`Packet::Bbp`] and [`Packet::Bep`].
    Bip {
        /// The id of the item in the block, 5 bits.
        id: u8,
        /// The value.
        value: Payload,
    },
    /// Block end.
    Bep {
        /// Whether a [`Packet::Fup`] follows.
        ip: bool,
    },
    /// Control flow event (event trace).
    Cfe {
        /// Whether a [`Packet::Fup`] follows.
        ip: bool,
        /// The type of the event, 5 bits.
        kind: u8,
        /// The vector, for events that have one.
        vector: u8,
    },
    /// Event data that belongs to the next [`Packet::Cfe`].
    Evd {
        /// The type of the value, 6 bits.
        kind: u8,
        /// The value.
        value: u64,
    },
    /// Triggers fired (trigger tracing).
    Trig {
        /// The triggers that fired, one bit each.
        triggers: u8,
        /// The number of instructions from the last packet with an address or an outcome to the
        /// instruction of the trigger. `None`: unknown.
        instructions: Option<u16>,
        /// Whether other triggers fired that are not reported.
        multiple: bool,
        /// Whether a [`Packet::Fup`] with the address of the instruction follows.
        ip: bool,
    },
}

/// The outcomes of up to 47 conditional branches and compressed returns, oldest first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tnt {
    bits: u64,
    len: u8,
}

impl Tnt {
    /// The maximum number of outcomes in one packet.
    pub const MAX_LEN: u8 = 47;
    /// The maximum number of outcomes in the one-byte packet.
    pub const MAX_SHORT_LEN: u8 = 6;

    /// Builds `len` outcomes (1–47), the oldest in the highest of the `len` low bits of `bits`. A
    /// set bit means taken.
    #[must_use]
    pub fn new(bits: u64, len: u8) -> Option<Self> {
        let fits = (1..=Self::MAX_LEN).contains(&len) && bits >> len == 0;
        fits.then_some(Self { bits, len })
    }

    /// Reads a payload with the stop bit above the outcomes, as encoded.
    pub(crate) fn from_payload(payload: u64, max: u8) -> Option<Self> {
        let len = 63u32.checked_sub(payload.leading_zeros())? as u8;
        (len <= max)
            .then(|| Self::new(payload ^ (1 << len), len))
            .flatten()
    }

    pub(crate) fn payload(self) -> u64 {
        self.bits | 1 << self.len
    }

    /// Returns the outcomes, the oldest in the highest of [`Self::len`] bits.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// Returns the number of outcomes, 1–47.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(self) -> u8 {
        self.len
    }

    /// Returns the outcomes, oldest first; true means taken.
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

/// An instruction pointer in a packet, compressed against the last IP (SDM, "IP Compression").
/// [`crate::LastIp`] decompresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPayload {
    /// No IP: out of context or unknown.
    Suppressed,
    /// Bits 15:0; the rest comes from the last IP.
    Update16(u16),
    /// Bits 31:0; the rest comes from the last IP.
    Update32(u32),
    /// Bits 47:0, sign extended.
    Sext48(u64),
    /// Bits 47:0; the rest comes from the last IP.
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

/// The content of [`Packet::ModeExec`]: the mode of the code segment, and the interrupt flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecMode {
    /// CS.L and EFER.LMA: 64-bit code.
    pub long: bool,
    /// CS.D: 32-bit code if not `long`; 16-bit code if neither.
    pub default_32: bool,
    /// RFLAGS.IF; only reported with event trace.
    pub interrupts: bool,
}

impl ExecMode {
    /// 64-bit code, interrupt flag not reported.
    pub const LONG: Self = Self {
        long: true,
        default_32: false,
        interrupts: false,
    };
}
