//! The time-stamp counter as the time packets tell it: TSC sets it, MTC and CYC carry it on.
//!
//! Source: SDM volume 3, "Tracing Time and Frequency": the crystal clock (CTC) ticks `eax` times while the
//! TSC ticks `ebx` times (CPUID leaf 15H); TMA ties the one to the other; MTC gives eight bits of the
//! CTC. How many TSC ticks a core cycle has, which CYC counts, is calibrated. The rules for what is
//! lost or ambiguous are libipt's (its `pt_time.c`), so that times compare.

use super::calibration::Calibration;
use super::error::Error;
use super::notes::Note;
use crate::Stamp;
use backtrail_pt::packet::Packet;
use backtrail_pt::{TimingParams, Tsc};

/// Bits of the crystal clock that MTC carries.
const MTC_BITS: u32 = 8;
/// Bits of the crystal clock that TMA carries.
const TMA_BITS: u32 = 16;
const TMA_MASK: u32 = (1 << TMA_BITS) - 1;

/// What the time packets so far tell.
#[derive(Clone, Debug)]
pub(super) struct Time {
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
    /// The crystal clock at the last MTC or TMA, as far as it is told.
    ctc: u32,
    /// The same at the last one that CYC packets count from.
    ctc_cyc: u32,
    lost_mtc: u32,
    lost_cyc: u32,
}

impl Time {
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

    /// Forgets all of it: decoding begins anew.
    pub fn reset(&mut self) {
        *self = Self::new(self.params, self.calibration.skl168());
    }

    /// What an overflow leaves.
    pub fn overflow(&mut self) {
        self.calibration.reset();
    }

    /// A PSB was passed.
    pub fn psb(&mut self) {
        self.calibration.psb();
    }

    /// The time now, when a TSC packet was there.
    pub fn stamp(&self) -> Option<Stamp> {
        self.have_tsc.then_some(Stamp {
            tsc: Tsc(self.tsc),
            lost_mtc: self.lost_mtc,
            lost_cyc: self.lost_cyc,
        })
    }

    /// Takes a packet; `header`: it stands in a PSB+. Says whether it was one of the time.
    pub fn take(&mut self, packet: &Packet, header: bool) -> Result<bool, Error> {
        Note::of(packet, header).map_or(Ok(false), |note| self.note(note).map(|()| true))
    }

    /// Takes what tells the time.
    pub fn note(&mut self, note: Note) -> Result<(), Error> {
        match note {
            Note::Tsc { tsc, header } => {
                self.calibration.tsc(tsc, header)?;
                self.set(tsc);
            }
            Note::Cbr { ratio, header } => {
                if !header {
                    self.calibration.reset();
                }
                if ratio == 0 {
                    return Err(Error::BadPacket);
                }
                self.calibration.ratio(ratio, self.params.nom_freq);
            }
            Note::Tma { ctc, fast } => self.align(ctc, fast)?,
            Note::Mtc(ctc) => self.crystal(ctc)?,
            Note::Cyc(cycles) => self.cycles(cycles)?,
            Note::Psb(_) => self.psb(),
            Note::Overflow => self.overflow(),
            Note::Reset => self.reset(),
        }
        Ok(())
    }

    /// TSC.
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

    /// TMA.
    fn align(&mut self, ctc: u16, fast: u16) -> Result<(), Error> {
        if !self.have_tsc || self.have_tma {
            return Err(Error::BadContext);
        }
        let bits = u32::from(self.params.mtc_freq) + MTC_BITS;
        self.have_tma = true;
        self.base = self.base.wrapping_sub(u64::from(fast));
        self.fast = self.fast.wrapping_add(u64::from(fast));
        // It has all bits that an MTC would have: it stands for one.
        self.have_mtc = bits <= TMA_BITS;
        self.ctc = u32::from(ctc) & 1u32.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
        self.ctc_cyc = self.ctc;
        Ok(())
    }

    /// MTC.
    fn crystal(&mut self, bits: u8) -> Result<(), Error> {
        self.calibration.crystal(bits, &self.params)?;
        // Between TSC and TMA it would be taken for a turn of the clock.
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
            // How long the first period was on is not known, but for a TMA.
            if !self.have_tma {
                return Ok(());
            }
            last |= high_bits(last, ctc, &self.params);
        }
        let delta = match turn(ctc, last, &self.params) {
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

    /// CYC.
    fn cycles(&mut self, cycles: u64) -> Result<(), Error> {
        self.calibration.cycles(cycles);
        let Some(ratio) = self.calibration.ticks_per_cycle() else {
            self.lost_cyc = self.lost_cyc.saturating_add(1);
            return Ok(());
        };
        let mut here = cycles;
        if self.fast == 0 && self.ctc != self.ctc_cyc {
            // It counts over more than the current MTC period: the part of the earlier ones goes off.
            let delta = turn(self.ctc, self.ctc_cyc, &self.params)?;
            let Some(ticks) = tsc_ticks(delta, &self.params) else {
                return Ok(());
            };
            here = cycles.saturating_sub((ticks << Calibration::SHIFT) / ratio);
        }
        let ticks = here.wrapping_mul(ratio) >> Calibration::SHIFT;
        self.fast = self.fast.wrapping_add(ticks);
        self.tsc = self.base.wrapping_add(self.fast);
        Ok(())
    }
}

/// MTC's bits at their place in the crystal clock.
pub(super) fn position(bits: u8, params: &TimingParams) -> u32 {
    u32::from(bits)
        .checked_shl(u32::from(params.mtc_freq))
        .unwrap_or(0)
}

/// Bits of the clock at TMA that TMA does not tell, by those of the MTC after it.
fn high_bits(tma: u32, mtc: u32, params: &TimingParams) -> u32 {
    let (low, high) = (mtc & TMA_MASK, mtc & !TMA_MASK);
    if low < tma {
        high.wrapping_sub(1 << TMA_BITS) & position(u8::MAX, params)
    } else {
        high
    }
}

/// Crystal ticks from one reading to a later one, over one turn of the clock at most.
pub(super) fn turn(now: u32, last: u32, params: &TimingParams) -> Result<u32, Error> {
    if now >= last {
        return Ok(now - last);
    }
    let period = 1u32
        .checked_shl(u32::from(params.mtc_freq) + MTC_BITS)
        .unwrap_or(0);
    let now = now.wrapping_add(period);
    now.checked_sub(last).ok_or(Error::BadPacket)
}

/// Crystal ticks as TSC ticks; `None`: the ratio is not known.
pub(super) fn tsc_ticks(crystal: u32, params: &TimingParams) -> Option<u64> {
    let (eax, ebx) = (params.cpuid_15h_eax, params.cpuid_15h_ebx);
    if eax == 0 || ebx == 0 {
        return None;
    }
    Some(u64::from(crystal).wrapping_mul(u64::from(ebx)) / u64::from(eax))
}
