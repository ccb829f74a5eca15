//! The packets that tell the time: TSC, TMA, CBR, MTC, CYC (SDM volume 3, "Timing Packets").
//!
//! All come of one clock, the TSC: the crystal clock (CTC) ticks once every `ratio` TSC ticks, and the
//! "core cycles" of CYC are TSC ticks, which CBR says by naming the nominal ratio. So a decoder that adds
//! CYC to the last MTC, as libipt does, gets the exact TSC back.

use super::TimingOptions;
use crate::Tsc;
use crate::packet::Packet;

/// More MTC packets than this in a row cost more than telling the whole TSC anew.
const MAX_CATCH_UP: u64 = 4;

/// While tracing is off, the whole time is told anew after this part of the MTC period: CBR is the one time packet that is an
/// event there, by which a decoder learns the time before it, when tracing had just gone off.
const PAUSE: u64 = 16;

/// What was told last, and the time now.
#[derive(Debug)]
pub(super) struct PacketClock {
    /// TSC ticks between two edges of the CTC.
    ratio: u64,
    /// TSC ticks between two MTC packets; `None` without MTC.
    mtc_period: Option<u64>,
    mtc_freq: u32,
    cyc: bool,
    cbr: u8,
    now: u64,
    /// The time up to which CYC and MTC have told; the end of time before the first TSC.
    told: u64,
    /// When the next MTC is due.
    next_mtc: u64,
    /// Tracing has gone off.
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
            told: u64::MAX,
            next_mtc: u64::MAX,
            off: false,
        }
    }

    /// Whether [`Self::advance`] to this time will write an MTC.
    pub(super) fn mtc_due(&self, now: Tsc) -> bool {
        now.0 >= self.next_mtc
    }

    /// Sets the time and writes the MTC packets that are due, or the TSC when they are many.
    pub(super) fn advance(&mut self, now: Tsc, out: &mut Vec<u8>) {
        self.now = self.now.max(now.0);
        let Some(period) = self.mtc_period else { return };
        let paused = self.off && self.now.saturating_sub(self.told) >= period / PAUSE;
        if paused || self.now.saturating_sub(self.next_mtc) / period >= MAX_CATCH_UP {
            return self.resync(out);
        }
        while self.now >= self.next_mtc {
            if self.cyc {
                self.cycles_to(self.next_mtc, out);
            }
            self.told = self.next_mtc;
            Packet::Mtc(((self.next_mtc / self.ratio) >> self.mtc_freq) as u8).write_to(out);
            self.next_mtc += period;
        }
    }

    /// CYC, where there is something to tell.
    pub(super) fn stamp(&mut self, out: &mut Vec<u8>) {
        if self.cyc {
            self.cycles_to(self.now, out);
        }
    }

    /// Tracing is on.
    pub(super) fn on(&mut self) {
        self.off = false;
    }

    /// Tracing has gone off: CYC, also where there is nothing to tell; a cycle passes then.
    pub(super) fn off(&mut self, out: &mut Vec<u8>) {
        self.off = true;
        if self.cyc {
            self.now = self.now.max(self.told.saturating_add(1));
            self.cycles_to(self.now, out);
        }
    }

    fn cycles_to(&mut self, time: u64, out: &mut Vec<u8>) {
        let cycles = time.saturating_sub(self.told);
        if cycles != 0 {
            Packet::Cyc(cycles).write_to(out);
            self.told = time;
        }
    }

    /// The whole time, outside PSB+. CBR comes first: it makes libipt forget its calibration, which the
    /// MTC packets left out would spoil.
    pub(super) fn resync(&mut self, out: &mut Vec<u8>) {
        Packet::Cbr(self.cbr).write_to(out);
        self.whole(out);
    }

    /// The time packets of PSB+.
    pub(super) fn header(&mut self, out: &mut Vec<u8>) {
        self.whole(out);
        Packet::Cbr(self.cbr).write_to(out);
    }

    fn whole(&mut self, out: &mut Vec<u8>) {
        let now = self.now;
        Packet::Tsc(now).write_to(out);
        self.told = now;
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
