//! The PMU `intel_pt`: the capabilities of the processor, and the configuration of a trace.
//!
//! Source: `arch/x86/events/intel/pt.c` in the kernel (`pt_caps`, `pt_event_valid`), perf's
//! defaults (`tools/perf/arch/x86/util/intel-pt.c`, `intel_pt_default_config`), SDM volume 3, CPUID
//! leaf 14H.

use crate::pmu::{Config, Pmu};
use crate::{Error, Pmu as AnyPmu};
use backtrail_pt::TimingParams;
use std::path::Path;

/// The name of the PMU.
pub const NAME: &str = "intel_pt";
/// perf's default if available: an `MTC` every 2^3 ticks of the crystal clock.
const MTC_PERIOD: u8 = 3;
/// perf's default: a `PSB` every 2^(11+3) bytes.
const PSB_PERIOD: u8 = 3;

/// The tracing capabilities of a processor: CPUID leaf 14H, as `caps/` reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// The highest sub-leaf.
    pub max_subleaf: u32,
    /// A trace can be limited to an address space.
    pub cr3_filtering: bool,
    /// The `PSB` period and `CYC` packets can be configured.
    pub psb_cyc: bool,
    /// A trace can be limited to address ranges.
    pub ip_filtering: bool,
    /// `MTC` packets are available.
    pub mtc: bool,
    /// `PTWRITE` can be traced.
    pub ptwrite: bool,
    /// Power events can be traced.
    pub power_event_trace: bool,
    /// Interrupts and faults can be traced as events.
    pub event_trace: bool,
    /// `TNT` packets can be disabled.
    pub tnt_disable: bool,
    /// Output can go to a table of physical areas (ToPA).
    pub topa_output: bool,
    /// The table may have several entries.
    pub topa_multiple_entries: bool,
    /// Output can go to one physical area.
    pub single_range_output: bool,
    /// Output can go to a trace subsystem.
    pub output_subsys: bool,
    /// Addresses in packets are linear, including the segment base.
    pub payloads_lip: bool,
    /// The number of address ranges.
    pub num_address_ranges: u32,
    /// Bit n: an `MTC` period of n is supported.
    pub mtc_periods: u32,
    /// Bit n: a `CYC` threshold of n is supported.
    pub cycle_thresholds: u32,
    /// Bit n: a `PSB` period of n is supported.
    pub psb_periods: u32,
}

/// The PMU with its configuration terms and capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelPt {
    /// The generic description of the PMU.
    pub pmu: Pmu,
    /// The tracing capabilities.
    pub caps: Caps,
}

/// The options that a user can set for a trace; `None` selects the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PtOptions {
    /// A `PSB` every 2^(11+n) bytes.
    pub psb_period: Option<u8>,
    /// An `MTC` every 2^n ticks of the crystal clock.
    pub mtc_period: Option<u8>,
    /// `CYC` packets, at most one every 2^(n-1) cycles; with 0, one with every packet that allows
    /// it. `None` disables them.
    pub cyc_threshold: Option<u8>,
    /// Compress returns whose call is known (RET compression). This saves a third of the trace and
    /// loses nothing.
    pub compress_returns: bool,
}

/// A valid configuration, and the parts of it that a decoder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtSetting {
    /// The configuration for `perf_event_attr`.
    pub config: Config,
    /// The `MTC` period, if there are `MTC` packets.
    pub mtc_period: Option<u8>,
    /// The `PSB` period in bytes.
    pub psb_bytes: u64,
}

impl IntelPt {
    /// Reads the PMU, or returns `None` if the kernel has none.
    ///
    /// # Errors
    /// The errors of [`Pmu::read`], or a capability that is not a number.
    pub fn read(sysfs: &Path) -> Result<Option<Self>, Error> {
        let Some(pmu) = AnyPmu::read(sysfs, NAME)? else {
            return Ok(None);
        };
        for (cap, text) in &pmu.caps {
            if hex(text).is_none() {
                return Err(Error::File {
                    path: Pmu::directory(sysfs, NAME).join("caps").join(cap),
                    problem: format!("{text:?} is not a hexadecimal number"),
                });
            }
        }
        let caps = Caps::new(&pmu);
        Ok(Some(Self { pmu, caps }))
    }

    /// Returns the configuration for some options, with perf's defaults for the others.
    ///
    /// # Errors
    /// Fails if the processor does not support an option. The error lists the supported values.
    pub fn setting(&self, options: &PtOptions) -> Result<PtSetting, Error> {
        let (pmu, caps) = (&self.pmu, &self.caps);
        let mut config = Config::default();
        // Threads cannot be separated without timestamps.
        pmu.put(&mut config, "tsc", 1)?;
        let mtc_periods = if caps.mtc { caps.mtc_periods } else { 0 };
        let mtc_period = match options.mtc_period {
            None => pick(mtc_periods, MTC_PERIOD),
            Some(period) => Some(allowed("MTC period", period, mtc_periods)?),
        };
        if let Some(period) = mtc_period {
            pmu.put(&mut config, "mtc", 1)?;
            pmu.put(&mut config, "mtc_period", period.into())?;
        }
        let psb_periods = if caps.psb_cyc { caps.psb_periods } else { 0 };
        let psb_period = match options.psb_period {
            // perf sets no period without MTC.
            None if mtc_periods == 0 => None,
            None => pick(psb_periods, PSB_PERIOD),
            Some(period) => Some(allowed("PSB period", period, psb_periods)?),
        };
        if let Some(period) = psb_period {
            pmu.put(&mut config, "psb_period", period.into())?;
        }
        if let Some(threshold) = options.cyc_threshold {
            if !caps.psb_cyc {
                return Err(Error::Setting(
                    "this processor has no CYC packets; remove the CYC threshold".to_owned(),
                ));
            }
            if threshold != 0 {
                allowed("CYC threshold", threshold, caps.cycle_thresholds)?;
            }
            pmu.put(&mut config, "cyc", 1)?;
            pmu.put(&mut config, "cyc_thresh", threshold.into())?;
        }
        if !options.compress_returns {
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
        Ok(PtSetting {
            config,
            mtc_period,
            psb_bytes,
        })
    }

    /// Returns the parameters that a decoder needs to refine time. Parameters that the kernel does
    /// not report are 0.
    #[must_use]
    pub fn timing(&self, setting: &PtSetting) -> TimingParams {
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
    /// Reads the capabilities. The processor lacks those that the kernel does not list.
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

/// Returns the target if supported, otherwise the largest supported value below it, otherwise the
/// smallest above it, as perf's `intel_pt_pick_bit` does.
fn pick(possible: u32, target: u8) -> Option<u8> {
    let bits = || (0..32u8).filter(|bit| possible >> bit & 1 != 0);
    bits().rfind(|bit| *bit <= target).or_else(|| bits().next())
}

/// Returns `value` if it is supported.
fn allowed(what: &str, value: u8, possible: u32) -> Result<u8, Error> {
    if possible.checked_shr(value.into()).unwrap_or(0) & 1 != 0 {
        return Ok(value);
    }
    let bits: Vec<String> = (0..32)
        .filter(|bit| possible >> bit & 1 != 0)
        .map(|bit: u32| bit.to_string())
        .collect();
    Err(Error::Setting(if bits.is_empty() {
        format!("this processor supports no {what}; remove the option")
    } else {
        let bits = bits.join(", ");
        format!("this processor does not support {what} {value}; use one of {bits}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_choice_matches_perf() {
        assert_eq!(pick(0x0249, 3), Some(3));
        assert_eq!(pick(0x0241, 3), Some(0));
        assert_eq!(pick(0x0240, 3), Some(6));
        assert_eq!(pick(0, 3), None);
    }

    #[test]
    fn unsupported_value_error_lists_supported_values() {
        let error = allowed("MTC period", 4, 0x0249).unwrap_err().to_string();
        assert_eq!(
            error,
            "this processor does not support MTC period 4; use one of 0, 3, 6, 9"
        );
        assert!(allowed("PSB period", 40, u32::MAX).is_err());
        assert_eq!(allowed("PSB period", 9, 0x0249), Ok(9));
    }
}
