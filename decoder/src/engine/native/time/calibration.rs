//! Calibrates TSC ticks per core cycle, by CBR, or by CYC between two MTC or two PSB+.

use super::crystal::{position, ticks_between, tsc_ticks};
use crate::engine::native::error::Error;
use backtrail_pt::TimingParams;

/// A calibrated ratio.
#[derive(Clone, Debug)]
pub(in crate::engine::native) struct Calibration {
    /// TSC ticks per cycle, times 2^[`Self::SHIFT`].
    ratio: Option<u64>,
    /// Cycles since the last TSC, and since the last MTC.
    cycles_tsc: u64,
    cycles_mtc: u64,
    /// The last TSC packet.
    tsc: u64,
    /// The crystal clock (CTC) at the last MTC.
    ctc: Option<u32>,
    /// Erratum SKL168 applies. `fresh`: no MTC since the last PSB.
    skl168: bool,
    fresh: bool,
}

impl Calibration {
    /// Fractional bits of the ratio.
    pub const SHIFT: u32 = 8;
    const MAX: u64 = u64::MAX >> Self::SHIFT;
    /// The CYC counter wraps after 4096 cycles on processors with SKL168. This is slightly less, to
    /// allow for variation.
    const SKL168_CYCLES: u64 = 0xf00;
    /// From this MTC frequency on (longer periods), a lost wrap cannot be distinguished from
    /// variation.
    const SKL168_FREQ: u8 = 10;

    pub fn new(skl168: bool) -> Self {
        Self {
            ratio: None,
            cycles_tsc: 0,
            cycles_mtc: 0,
            tsc: 0,
            ctc: None,
            skl168,
            fresh: false,
        }
    }

    /// Drops the ratio: the frequency has changed.
    pub fn reset(&mut self) {
        *self = Self::new(self.skl168);
    }

    pub fn skl168(&self) -> bool {
        self.skl168
    }

    /// Handles a PSB.
    pub fn psb(&mut self) {
        self.fresh = self.skl168;
    }

    /// Returns the ratio times 2^[`Self::SHIFT`], never 0; `None`: unknown.
    pub fn ticks_per_cycle(&self) -> Option<u64> {
        self.ratio.filter(|&ratio| ratio != 0)
    }

    /// Handles a TSC. Outside of a PSB+ it may mean that time was lost, so it does not calibrate.
    pub fn tsc(&mut self, tsc: u64, header: bool) -> Result<(), Error> {
        let (last, cycles) = (self.tsc, self.cycles_tsc);
        (self.tsc, self.cycles_tsc) = (tsc, 0);
        // MTC is more precise.
        if !header || last == 0 || cycles == 0 || self.ctc.is_some() {
            return Ok(());
        }
        // The packet has the low 56 bits.
        let ticks = if tsc < last { tsc + (1 << 56) } else { tsc }
            .checked_sub(last)
            .ok_or(Error::BadPacket)?;
        if ticks > Self::MAX {
            return Err(Error::BadPacket);
        }
        self.ratio = Some((ticks << Self::SHIFT) / cycles);
        Ok(())
    }

    /// Handles a CBR: the core's multiple of the bus clock, relative to the TSC's.
    pub fn ratio(&mut self, ratio: u8, nominal: u8) {
        if nominal != 0 && ratio != 0 {
            self.ratio = Some((u64::from(nominal) << Self::SHIFT) / u64::from(ratio));
        }
    }

    /// Handles a CYC.
    pub fn cycles(&mut self, cycles: u64) {
        self.cycles_tsc = self.cycles_tsc.wrapping_add(cycles);
        self.cycles_mtc = self.cycles_mtc.wrapping_add(cycles);
    }

    /// Handles an MTC.
    pub fn crystal(&mut self, bits: u8, params: &TimingParams) -> Result<(), Error> {
        let now = position(bits, params);
        let fresh = std::mem::take(&mut self.fresh);
        let Some(last) = self.ctc else {
            (self.ctc, self.cycles_mtc) = (Some(now), 0);
            return Ok(());
        };
        let cycles = self.cycles_mtc;
        if cycles == 0 {
            return Ok(());
        }
        (self.ctc, self.cycles_mtc) = (Some(now), 0);
        let delta = ticks_between(now, last, params)?;
        let Some(ticks) = tsc_ticks(delta, params) else {
            return Ok(());
        };
        if ticks > Self::MAX {
            return Err(Error::BadPacket);
        }
        if !(fresh && self.lost_cycles(delta, cycles, ticks, params)) {
            self.ratio = Some((ticks << Self::SHIFT) / cycles);
        }
        Ok(())
    }

    /// Erratum SKL168: returns whether CYC packets right before a PSB were dropped, so that the
    /// count is too low.
    fn lost_cycles(&self, delta: u32, cycles: u64, ticks: u64, params: &TimingParams) -> bool {
        if 1u32.checked_shl(u32::from(params.mtc_freq)).unwrap_or(0) < delta {
            return true;
        }
        let expected =
            |ratio: u64| ratio.wrapping_mul(cycles.wrapping_add(Self::SKL168_CYCLES)) >> Self::SHIFT;
        params.mtc_freq < Self::SKL168_FREQ && self.ratio.is_some_and(|ratio| expected(ratio) < ticks)
    }
}
