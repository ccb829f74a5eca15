//! The crystal clock (CTC), of which MTC and TMA packets carry some bits.

use crate::engine::native::error::Error;
use backtrail_pt::TimingParams;

/// Bits of the crystal clock in MTC.
pub const MTC_BITS: u32 = 8;
/// Bits of the crystal clock in TMA.
pub const TMA_BITS: u32 = 16;
const TMA_MASK: u32 = (1 << TMA_BITS) - 1;

/// Returns MTC's bits at their position in the crystal clock.
pub fn position(bits: u8, params: &TimingParams) -> u32 {
    u32::from(bits)
        .checked_shl(u32::from(params.mtc_freq))
        .unwrap_or(0)
}

/// Returns the high clock bits that TMA lacks, by those of the MTC after it.
pub fn high_bits(tma: u32, mtc: u32, params: &TimingParams) -> u32 {
    let (low, high) = (mtc & TMA_MASK, mtc & !TMA_MASK);
    if low < tma {
        high.wrapping_sub(1 << TMA_BITS) & position(u8::MAX, params)
    } else {
        high
    }
}

/// Returns the crystal ticks from one reading to a later one; the clock wraps at most once.
pub fn ticks_between(now: u32, last: u32, params: &TimingParams) -> Result<u32, Error> {
    if now >= last {
        return Ok(now - last);
    }
    let period = 1u32
        .checked_shl(u32::from(params.mtc_freq) + MTC_BITS)
        .unwrap_or(0);
    let now = now.wrapping_add(period);
    now.checked_sub(last).ok_or(Error::BadPacket)
}

/// Converts crystal ticks to TSC ticks; `None`: the ratio is unknown.
pub fn tsc_ticks(crystal: u32, params: &TimingParams) -> Option<u64> {
    let (eax, ebx) = (params.cpuid_15h_eax, params.cpuid_15h_ebx);
    if eax == 0 || ebx == 0 {
        return None;
    }
    Some(u64::from(crystal).wrapping_mul(u64::from(ebx)) / u64::from(eax))
}
