//! Estimates the time-stamp counter: TSC packets set it, MTC and CYC packets advance it.
//!
//! Source: SDM volume 3, "Tracing Time and Frequency". The crystal clock (CTC) ticks `eax` times
//! while the TSC ticks `ebx` times (CPUID leaf 15H). TMA relates the two clocks. MTC carries eight
//! bits of the CTC. CYC counts core cycles, whose length in TSC ticks is calibrated. Lost and
//! ambiguous packets are handled as in libipt's `pt_time.c`, so that times compare.

use super::calibration::Calibration;
use super::crystal::{MTC_BITS, TMA_BITS, high_bits, position, ticks_between, tsc_ticks};
use super::log::TimingRecord;
use crate::Stamp;
use crate::engine::native::error::Error;
use backtrail_pt::packet::Packet;
use backtrail_pt::{TimingParams, Tsc};

/// The state of the estimate.
#[derive(Clone, Debug)]
pub(in crate::engine::native) struct TscEstimator {
    params: TimingParams,
    calibration: Calibration,
    have_tsc: bool,
    have_tma: bool,
    have_mtc: bool,
    /// The best estimate.
    tsc: u64,
    /// The estimate at the last TSC or MTC.
    base: u64,
    /// TSC ticks since then, by CYC and TMA.
    fast: u64,
    /// The known bits of the crystal clock at the last MTC or TMA.
    ctc: u32,
    /// The known bits of the crystal clock from which CYC packets count.
    ctc_cyc: u32,
    lost_mtc: u32,
    lost_cyc: u32,
}

impl TscEstimator {
    pub fn new(params: TimingParams, skl168: bool) -> Self {
        Self {
            params,
            calibration: Calibration::new(skl168),
            have_tsc: false,
            have_tma: false,
            have_mtc: false,
            tsc: 0,
            base: 0,
            fast: 0,
            ctc: 0,
            ctc_cyc: 0,
            lost_mtc: 0,
            lost_cyc: 0,
        }
    }

    /// Resets everything: decoding starts again.
    pub fn reset(&mut self) {
        *self = Self::new(self.params, self.calibration.skl168());
    }

    /// Handles an overflow.
    pub fn overflow(&mut self) {
        self.calibration.reset();
    }

    /// Handles a PSB.
    pub fn psb(&mut self) {
        self.calibration.psb();
    }

    /// Returns the current time, if there was a TSC packet.
    pub fn stamp(&self) -> Option<Stamp> {
        self.have_tsc.then_some(Stamp {
            tsc: Tsc(self.tsc),
            lost_mtc: self.lost_mtc,
            lost_cyc: self.lost_cyc,
        })
    }

    /// Applies a packet; `header`: it is part of a PSB+. Returns whether it was a timing packet.
    pub fn apply_packet(&mut self, packet: &Packet, header: bool) -> Result<bool, Error> {
        TimingRecord::of(packet, header).map_or(Ok(false), |record| self.apply(record).map(|()| true))
    }

    /// Applies a timing record.
    pub fn apply(&mut self, record: TimingRecord) -> Result<(), Error> {
        match record {
            TimingRecord::Tsc { tsc, header } => {
                self.calibration.tsc(tsc, header)?;
                self.set(tsc);
            }
            TimingRecord::Cbr { ratio, header } => {
                if !header {
                    self.calibration.reset();
                }
                if ratio == 0 {
                    return Err(Error::BadPacket);
                }
                self.calibration.ratio(ratio, self.params.nom_freq);
            }
            TimingRecord::Tma { ctc, fast } => self.align(ctc, fast)?,
            TimingRecord::Mtc(ctc) => self.crystal(ctc)?,
            TimingRecord::Cyc(cycles) => self.cycles(cycles)?,
            TimingRecord::Psb(_) => self.psb(),
            TimingRecord::Overflow => self.overflow(),
            TimingRecord::Reset => self.reset(),
            TimingRecord::LookaheadStart | TimingRecord::LookaheadEnd => {}
        }
        Ok(())
    }

    /// Handles a TSC.
    fn set(&mut self, tsc: u64) {
        *self = Self {
            params: self.params,
            calibration: self.calibration.clone(),
            have_tsc: true,
            have_tma: false,
            have_mtc: false,
            tsc,
            base: tsc,
            fast: 0,
            ctc: 0,
            ctc_cyc: self.ctc_cyc,
            lost_mtc: 0,
            lost_cyc: 0,
        };
    }

    /// Handles a TMA.
    fn align(&mut self, ctc: u16, fast: u16) -> Result<(), Error> {
        if !self.have_tsc || self.have_tma {
            return Err(Error::BadContext);
        }
        let bits = u32::from(self.params.mtc_freq) + MTC_BITS;
        self.have_tma = true;
        self.base = self.base.wrapping_sub(u64::from(fast));
        self.fast = self.fast.wrapping_add(u64::from(fast));
        // If it has all bits of an MTC, it counts as one.
        self.have_mtc = bits <= TMA_BITS;
        self.ctc = u32::from(ctc) & 1u32.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
        self.ctc_cyc = self.ctc;
        Ok(())
    }

    /// Handles an MTC.
    fn crystal(&mut self, bits: u8) -> Result<(), Error> {
        self.calibration.crystal(bits, &self.params)?;
        // Between TSC and TMA it would look like a wrap of the clock.
        if self.have_tsc && !self.have_tma {
            return Ok(());
        }
        let ctc = position(bits, &self.params);
        let (mut last, first) = (self.ctc, !self.have_mtc);
        if self.fast != 0 || self.lost_cyc != 0 || first {
            self.ctc_cyc = ctc;
        }
        (self.have_mtc, self.fast, self.ctc, self.lost_cyc) = (true, 0, ctc, 0);
        if first {
            // Without a TMA, the start of the first period is unknown.
            if !self.have_tma {
                return Ok(());
            }
            last |= high_bits(last, ctc, &self.params);
        }
        let delta = match ticks_between(ctc, last, &self.params) {
            Ok(delta) => delta,
            Err(error) => {
                self.lost_mtc = self.lost_mtc.saturating_add(1);
                return Err(error);
            }
        };
        if let Some(ticks) = tsc_ticks(delta, &self.params) {
            self.base = self.base.wrapping_add(ticks);
            self.tsc = self.base;
        }
        Ok(())
    }

    /// Handles a CYC.
    fn cycles(&mut self, cycles: u64) -> Result<(), Error> {
        self.calibration.cycles(cycles);
        let Some(ratio) = self.calibration.ticks_per_cycle() else {
            self.lost_cyc = self.lost_cyc.saturating_add(1);
            return Ok(());
        };
        let mut current = cycles;
        if self.fast == 0 && self.ctc != self.ctc_cyc {
            // The CYC counts over more than the current MTC period: subtract the earlier part.
            let delta = ticks_between(self.ctc, self.ctc_cyc, &self.params)?;
            let Some(ticks) = tsc_ticks(delta, &self.params) else {
                return Ok(());
            };
            current = cycles.saturating_sub((ticks << Calibration::SHIFT) / ratio);
        }
        let ticks = current.wrapping_mul(ratio) >> Calibration::SHIFT;
        self.fast = self.fast.wrapping_add(ticks);
        self.tsc = self.base.wrapping_add(self.fast);
        Ok(())
    }
}
