//! The machine that a process runs on.

use backtrail_pt::CpuModel;
use backtrail_pt::cpu::Vendor;
use std::fs;

/// What `/proc/sys/kernel/NAME` says.
#[must_use]
pub fn says(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// This machine's processor. Its vendor is not told: the errata of none are those of a stream of ours.
#[must_use]
pub fn cpu_model() -> CpuModel {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let number = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        line.split(':').nth(1)?.trim().parse::<u16>().ok()
    };
    CpuModel {
        vendor: Vendor::Other,
        family: number("cpu family").unwrap_or(0),
        model: number("model")
            .and_then(|model| u8::try_from(model).ok())
            .unwrap_or(0),
        stepping: number("stepping").map_or(0, |stepping| stepping.min(15) as u8),
    }
}
