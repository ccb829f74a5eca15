//! How many TSC ticks a core cycle takes: out of CBR, or of CYC between two MTC or two PSB+.

use super::error::Error;
use super::time::{position, tsc_ticks, turn};
use backtrail_pt::TimingParams;

/// A ratio that is learnt.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    /// TSC ticks a cycle, times 2^[`Self::SHIFT`].
    ratio: Option<u64>,
    /// Cycles since the last TSC, and since the last MTC.
    cycles_tsc: u64,
    cycles_mtc: u64,
    /// The last TSC packet.
    tsc: u64,
    /// The crystal clock at the last MTC.
    ctc: Option<u32>,
    /// Erratum SKL168 applies; `fresh`: no MTC since the last PSB.
    skl168: bool,
    fresh: bool,
}

impl Calibration {
    /// Binary places of the ratio.
    pub const SHIFT: u32 = 8;
    const MAX: u64 = u64::MAX >> Self::SHIFT;
    /// A CYC counter of the processors that SKL168 is about turns after 4096 cycles; somewhat less, for
    /// what varies.
    const SKL168_CYCLES: u64 = 0xf00;
    /// From this frequency on (a longer period) a lost turn is not to be told from what varies.
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

    /// Forgets all it learnt: the frequency has changed.
    pub fn reset(&mut self) {
        *self = Self::new(self.skl168);
    }

    pub fn skl168(&self) -> bool {
        self.skl168
    }

    /// A PSB was passed.
    pub fn psb(&mut self) {
        self.fresh = self.skl168;
    }

    /// Times 2^[`Self::SHIFT`], never 0; `None`: it is not known.
    pub fn ticks_per_cycle(&self) -> Option<u64> {
        self.ratio.filter(|&ratio| ratio != 0)
    }

    /// TSC. One outside of a PSB+ may mean that time was lost: nothing is learnt of it.
    pub fn tsc(&mut self, tsc: u64, header: bool) -> Result<(), Error> {
        let (last, cycles) = (self.tsc, self.cycles_tsc);
        (self.tsc, self.cycles_tsc) = (tsc, 0);
        // MTC tells better.
        if !header || last == 0 || cycles == 0 || self.ctc.is_some() {
            return Ok(());
        }
        // The packet has 56 bits of it.
        let ticks = if tsc < last { tsc + (1 << 56) } else { tsc }
            .checked_sub(last)
            .ok_or(Error::BadPacket)?;
        if ticks > Self::MAX {
            return Err(Error::BadPacket);
        }
        self.ratio = Some((ticks << Self::SHIFT) / cycles);
        Ok(())
    }

    /// CBR: the core's multiple of the bus clock, against the TSC's.
    pub fn ratio(&mut self, ratio: u8, nominal: u8) {
        if nominal != 0 && ratio != 0 {
            self.ratio = Some((u64::from(nominal) << Self::SHIFT) / u64::from(ratio));
        }
    }

    /// CYC.
    pub fn cycles(&mut self, cycles: u64) {
        self.cycles_tsc = self.cycles_tsc.wrapping_add(cycles);
        self.cycles_mtc = self.cycles_mtc.wrapping_add(cycles);
    }

    /// MTC.
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
        let delta = turn(now, last, params)?;
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

    /// Erratum SKL168: CYC packets right before a PSB may be dropped, and then the cycles are too few.
    fn lost_cycles(&self, delta: u32, cycles: u64, ticks: u64, params: &TimingParams) -> bool {
        if 1u32.checked_shl(u32::from(params.mtc_freq)).unwrap_or(0) < delta {
            return true;
        }
        let expected =
            |ratio: u64| ratio.wrapping_mul(cycles.wrapping_add(Self::SKL168_CYCLES)) >> Self::SHIFT;
        params.mtc_freq < Self::SKL168_FREQ && self.ratio.is_some_and(|ratio| expected(ratio) < ticks)
    }
}
