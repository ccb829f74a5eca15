//! The timing packets: TSC, TMA, CBR, MTC, CYC (SDM volume 3, "Timing Packets").
//!
//! All derive from the TSC. The crystal clock (CTC) ticks once every `ratio` TSC ticks. The core
//! cycles of CYC are TSC ticks, which CBR expresses by the nominal ratio. A decoder that adds CYC
//! to the last MTC, as libipt does, gets the exact TSC.

use crate::packet::Packet;
use crate::{TimingParams, Tsc};

/// More consecutive MTC packets than this cost more than a full TSC.
const MAX_CATCH_UP: u64 = 4;

/// While tracing is off, the full time is written after this fraction of the MTC period. CBR is the
/// only timing packet that is also an event then. From it the decoder learns the earlier time, at
/// which tracing was disabled.
const PAUSE_FRACTION: u64 = 16;

/// The timing packets to write, in addition to TSC at each PSB.
#[derive(Clone, Copy, Debug)]
pub struct TimingOptions {
    /// The clock parameters, which the decoder must be given too.
    ///
    /// The cycle counter runs at the TSC rate: CBR is `nom_freq`. The crystal clock is TSC ×
    /// `cpuid_15h_eax` / `cpuid_15h_ebx`, a whole number of ticks ≤ 512, or 0 without `mtc`.
    pub params: TimingParams,
    /// Write MTC and TMA, at least every 2^`mtc_freq` crystal clock ticks.
    pub mtc: bool,
    /// Write CYC with every packet.
    pub cyc: bool,
}

/// The last encoded time, and the current time.
#[derive(Debug)]
pub(super) struct PacketClock {
    /// TSC ticks between two CTC ticks.
    ratio: u64,
    /// TSC ticks between two MTC packets, or `None` without MTC.
    mtc_period: Option<u64>,
    mtc_freq: u32,
    cyc: bool,
    cbr: u8,
    now: u64,
    /// The time that the last CYC or MTC packet encoded, or the maximum before the first TSC.
    encoded_until: u64,
    /// The time of the next MTC packet.
    next_mtc: u64,
    /// Whether tracing is off.
    off: bool,
}

impl PacketClock {
    pub(super) fn new(options: TimingOptions) -> Self {
        let params = options.params;
        let ratio = u64::from(params.cpuid_15h_ebx / params.cpuid_15h_eax.max(1)).max(1);
        let mtc_freq = u32::from(params.mtc_freq.min(15));
        Self {
            ratio,
            mtc_period: options.mtc.then(|| ratio << mtc_freq),
            mtc_freq,
            cyc: options.cyc,
            cbr: params.nom_freq.max(1),
            now: 0,
            encoded_until: u64::MAX,
            next_mtc: u64::MAX,
            off: false,
        }
    }

    /// Returns whether [`Self::advance`] to this time will write an MTC.
    pub(super) fn mtc_due(&self, now: Tsc) -> bool {
        now.0 >= self.next_mtc
    }

    /// Sets the time, and writes the MTC packets that are due, or a TSC if they are many.
    pub(super) fn advance(&mut self, now: Tsc, out: &mut Vec<u8>) {
        self.now = self.now.max(now.0);
        let Some(period) = self.mtc_period else { return };
        let is_paused = self.off && self.now.saturating_sub(self.encoded_until) >= period / PAUSE_FRACTION;
        if is_paused || self.now.saturating_sub(self.next_mtc) / period >= MAX_CATCH_UP {
            return self.resync(out);
        }
        while self.now >= self.next_mtc {
            if self.cyc {
                self.cycles_to(self.next_mtc, out);
            }
            self.encoded_until = self.next_mtc;
            Packet::Mtc(((self.next_mtc / self.ratio) >> self.mtc_freq) as u8).write_to(out);
            self.next_mtc += period;
        }
    }

    /// Writes a CYC if time has passed.
    pub(super) fn stamp(&mut self, out: &mut Vec<u8>) {
        if self.cyc {
            self.cycles_to(self.now, out);
        }
    }

    /// Handles the start of tracing.
    pub(super) fn on(&mut self) {
        self.off = false;
    }

    /// Handles the end of tracing: always writes a CYC, of one cycle if no time has passed.
    pub(super) fn off(&mut self, out: &mut Vec<u8>) {
        self.off = true;
        if self.cyc {
            self.now = self.now.max(self.encoded_until.saturating_add(1));
            self.cycles_to(self.now, out);
        }
    }

    fn cycles_to(&mut self, time: u64, out: &mut Vec<u8>) {
        let cycles = time.saturating_sub(self.encoded_until);
        if cycles != 0 {
            Packet::Cyc(cycles).write_to(out);
            self.encoded_until = time;
        }
    }

    /// Writes the full time outside PSB+. CBR comes first: it resets the calibration of libipt,
    /// which missing MTC packets would distort.
    pub(super) fn resync(&mut self, out: &mut Vec<u8>) {
        Packet::Cbr(self.cbr).write_to(out);
        self.write_full_time(out);
    }

    /// Writes the timing packets of PSB+.
    pub(super) fn header(&mut self, out: &mut Vec<u8>) {
        self.write_full_time(out);
        Packet::Cbr(self.cbr).write_to(out);
    }

    fn write_full_time(&mut self, out: &mut Vec<u8>) {
        let now = self.now;
        Packet::Tsc(now).write_to(out);
        self.encoded_until = now;
        if let Some(period) = self.mtc_period {
            let (ctc, fast) = (now / self.ratio, now % self.ratio);
            Packet::Tma {
                ctc: ctc as u16,
                fast: fast as u16,
            }
            .write_to(out);
            self.next_mtc = (now / period + 1).saturating_mul(period);
        }
    }
}
