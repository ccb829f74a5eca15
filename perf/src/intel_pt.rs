//! The PMU `intel_pt`: what the processor can trace, and the configuration of a trace.
//!
//! Source: the kernel's `arch/x86/events/intel/pt.c` (`pt_caps`, `pt_event_valid`), how perf chooses
//! (`tools/perf/arch/x86/util/intel-pt.c`, `intel_pt_default_config`), SDM volume 3, CPUID leaf 14H.

use crate::pmu::{Config, Pmu};
use crate::{Error, Pmu as AnyPmu};
use backtrail_pt::TimingParams;
use std::path::Path;

/// The PMU's name.
pub const NAME: &str = "intel_pt";
/// perf's choice where the processor offers it: `MTC` every 2^3 ticks of the crystal clock.
const MTC_PERIOD: u8 = 3;
/// perf's choice: a `PSB` every 2^(11+3) bytes.
const PSB_PERIOD: u8 = 3;

/// What a processor can trace: CPUID leaf 14H as `caps/` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// The highest sub-leaf.
    pub max_subleaf: u32,
    /// Trace can be limited to an address space.
    pub cr3_filtering: bool,
    /// `PSB` period and `CYC` packets can be configured.
    pub psb_cyc: bool,
    /// Trace can be limited to address ranges.
    pub ip_filtering: bool,
    /// `MTC` packets can be had.
    pub mtc: bool,
    /// `PTWRITE` can be traced.
    pub ptwrite: bool,
    /// Power events can be traced.
    pub power_event_trace: bool,
    /// Interrupts and faults can be traced by name.
    pub event_trace: bool,
    /// `TNT` packets can be left out.
    pub tnt_disable: bool,
    /// Output goes to a table of physical areas.
    pub topa_output: bool,
    /// The table may have many entries.
    pub topa_multiple_entries: bool,
    /// Output may go to one physical area.
    pub single_range_output: bool,
    /// Output may go to a trace subsystem.
    pub output_subsys: bool,
    /// Addresses in packets are linear, with the base of their segment.
    pub payloads_lip: bool,
    /// How many address ranges there are.
    pub num_address_ranges: u32,
    /// Bit n: an `MTC` period of n is possible.
    pub mtc_periods: u32,
    /// Bit n: a `CYC` threshold of n is possible.
    pub cycle_thresholds: u32,
    /// Bit n: a `PSB` period of n is possible.
    pub psb_periods: u32,
}

/// The PMU with its terms and what the processor can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelPt {
    /// As any PMU.
    pub pmu: Pmu,
    /// What the processor can trace.
    pub caps: Caps,
}

/// What the user asks of a trace; `None`: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `PSB` every 2^(11+n) bytes.
    pub psb_period: Option<u8>,
    /// `MTC` every 2^n ticks of the crystal clock.
    pub mtc_period: Option<u8>,
    /// `CYC` packets, at most one every 2^(n-1) cycles, 0: with every packet that can have one. `None`: none.
    pub cyc_threshold: Option<u8>,
    /// Leave `TIP` packets of returns out whose call is known: smaller by a third, and nothing is lost.
    pub compress_returns: bool,
}

/// A configuration that the processor takes, and what of it a decoder must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// For `perf_event_attr`.
    pub config: Config,
    /// The `MTC` period, when there are `MTC` packets.
    pub mtc_period: Option<u8>,
    /// The `PSB` period in bytes.
    pub psb_bytes: u64,
}

impl IntelPt {
    /// Reads the PMU; `None`, when the kernel shows none.
    ///
    /// # Errors
    /// As [`Pmu::read`], or a capability is no number.
    pub fn read(sysfs: &Path) -> Result<Option<Self>, Error> {
        let Some(pmu) = AnyPmu::read(sysfs, NAME)? else {
            return Ok(None);
        };
        for (cap, text) in &pmu.caps {
            if hex(text).is_none() {
                return Err(Error::File {
                    path: Pmu::directory(sysfs, NAME).join("caps").join(cap),
                    problem: format!("{text:?} is no hexadecimal number"),
                });
            }
        }
        let caps = Caps::new(&pmu);
        Ok(Some(Self { pmu, caps }))
    }

    /// The configuration for a wish, perf's choice where nothing is wished.
    ///
    /// # Errors
    /// When the processor cannot do what is wished: the sentence tells what it can.
    pub fn setting(&self, wish: &Wish) -> Result<Setting, Error> {
        let (pmu, caps) = (&self.pmu, &self.caps);
        let mut config = Config::default();
        // Without time stamps nothing can be told apart.
        pmu.put(&mut config, "tsc", 1)?;
        let mtc_periods = if caps.mtc { caps.mtc_periods } else { 0 };
        let mtc_period = match wish.mtc_period {
            None => pick(mtc_periods, MTC_PERIOD),
            Some(period) => Some(allowed("MTC period", period, mtc_periods)?),
        };
        if let Some(period) = mtc_period {
            pmu.put(&mut config, "mtc", 1)?;
            pmu.put(&mut config, "mtc_period", period.into())?;
        }
        let psb_periods = if caps.psb_cyc { caps.psb_periods } else { 0 };
        let psb_period = match wish.psb_period {
            // perf asks for no period where there is no MTC.
            None if mtc_periods == 0 => None,
            None => pick(psb_periods, PSB_PERIOD),
            Some(period) => Some(allowed("PSB period", period, psb_periods)?),
        };
        if let Some(period) = psb_period {
            pmu.put(&mut config, "psb_period", period.into())?;
        }
        if let Some(threshold) = wish.cyc_threshold {
            if !caps.psb_cyc {
                return Err(Error::Setting(
                    "this processor has no CYC packets: leave the CYC threshold out".to_owned(),
                ));
            }
            if threshold != 0 {
                allowed("CYC threshold", threshold, caps.cycle_thresholds)?;
            }
            pmu.put(&mut config, "cyc", 1)?;
            pmu.put(&mut config, "cyc_thresh", threshold.into())?;
        }
        if !wish.compress_returns {
            pmu.put(&mut config, "noretcomp", 1)?;
        }
        if pmu.formats.contains_key("pt") && pmu.formats.contains_key("branch") {
            pmu.put(&mut config, "pt", 1)?;
            pmu.put(&mut config, "branch", 1)?;
        }
        // The first processors with PT write a PSB every 256 bytes.
        let psb_bytes = if caps.topa_multiple_entries {
            2048 << psb_period.unwrap_or(0)
        } else {
            256
        };
        Ok(Setting {
            config,
            mtc_period,
            psb_bytes,
        })
    }

    /// What a decoder needs to refine time; what the kernel does not tell is 0.
    #[must_use]
    pub fn timing(&self, setting: &Setting) -> TimingParams {
        let text = |name: &str| self.pmu.other.get(name).map(|text| text.trim());
        let (ebx, eax) = text("tsc_art_ratio")
            .and_then(|text| text.split_once(':'))
            .and_then(|(ebx, eax)| Some((ebx.parse().ok()?, eax.parse().ok()?)))
            .unwrap_or((0, 0));
        TimingParams {
            mtc_freq: setting.mtc_period.unwrap_or(0),
            nom_freq: text("max_nonturbo_ratio")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            cpuid_15h_eax: eax,
            cpuid_15h_ebx: ebx,
        }
    }
}

impl Caps {
    /// A capability that the kernel does not name is one that the processor has not.
    fn new(pmu: &Pmu) -> Self {
        let number = |name: &str| pmu.caps.get(name).and_then(|text| hex(text)).unwrap_or(0);
        let has = |name| number(name) != 0;
        Self {
            max_subleaf: number("max_subleaf"),
            cr3_filtering: has("cr3_filtering"),
            psb_cyc: has("psb_cyc"),
            ip_filtering: has("ip_filtering"),
            mtc: has("mtc"),
            ptwrite: has("ptwrite"),
            power_event_trace: has("power_event_trace"),
            event_trace: has("event_trace"),
            tnt_disable: has("tnt_disable"),
            topa_output: has("topa_output"),
            topa_multiple_entries: has("topa_multiple_entries"),
            single_range_output: has("single_range_output"),
            output_subsys: has("output_subsys"),
            payloads_lip: has("payloads_lip"),
            num_address_ranges: number("num_address_ranges"),
            mtc_periods: number("mtc_periods"),
            cycle_thresholds: number("cycle_thresholds"),
            psb_periods: number("psb_periods"),
        }
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// The target where it is possible, else the largest possible below it, else the smallest above it: perf's
/// `intel_pt_pick_bit`.
fn pick(possible: u32, target: u8) -> Option<u8> {
    let bits = || (0..32u8).filter(|bit| possible >> bit & 1 != 0);
    bits().rfind(|bit| *bit <= target).or_else(|| bits().next())
}

/// `value`, when it is possible.
fn allowed(what: &str, value: u8, possible: u32) -> Result<u8, Error> {
    if possible.checked_shr(value.into()).unwrap_or(0) & 1 != 0 {
        return Ok(value);
    }
    let bits: Vec<String> = (0..32)
        .filter(|bit| possible >> bit & 1 != 0)
        .map(|bit: u32| bit.to_string())
        .collect();
    Err(Error::Setting(if bits.is_empty() {
        format!("this processor takes no {what}: leave it out")
    } else {
        let bits = bits.join(", ");
        format!("this processor has no {what} {value}: use one of {bits}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_perfs() {
        assert_eq!(pick(0x0249, 3), Some(3));
        assert_eq!(pick(0x0241, 3), Some(0));
        assert_eq!(pick(0x0240, 3), Some(6));
        assert_eq!(pick(0, 3), None);
    }

    #[test]
    fn what_the_processor_cannot_do_is_said_with_what_it_can() {
        let error = allowed("MTC period", 4, 0x0249).unwrap_err().to_string();
        assert_eq!(error, "this processor has no MTC period 4: use one of 0, 3, 6, 9");
        assert!(allowed("PSB period", 40, u32::MAX).is_err());
        assert_eq!(allowed("PSB period", 9, 0x0249), Ok(9));
    }
}
