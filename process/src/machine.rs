//! Describes the machine that a process runs on.

use backtrail_pt::CpuModel;
use backtrail_pt::cpu::Vendor;
use std::fs;
use std::path::Path;

/// Returns the content of `/proc/sys/kernel/NAME`.
#[must_use]
pub fn kernel_setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns family, model and stepping of the first processor in `PROCFS/cpuinfo`, or `None` if they
/// are not listed.
#[must_use]
pub fn processor(procfs: &Path) -> Option<CpuModel> {
    parse(&fs::read_to_string(procfs.join("cpuinfo")).ok()?)
}

/// Returns the processor of this machine, with zeros if unknown. The vendor is `Other`, because
/// hardware errata do not apply to software-encoded packets.
#[must_use]
pub fn cpu_model() -> CpuModel {
    processor(Path::new("/proc")).map_or(CpuModel::UNKNOWN, |known| CpuModel {
        vendor: Vendor::Other,
        ..known
    })
}

fn parse(text: &str) -> Option<CpuModel> {
    let field = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim())
        })
    };
    Some(CpuModel {
        vendor: if field("vendor_id")? == "GenuineIntel" {
            Vendor::Intel
        } else {
            Vendor::Other
        },
        family: field("cpu family")?.parse().ok()?,
        model: field("model")?.parse().ok()?,
        stepping: field("stepping")?
            .parse()
            .ok()
            .filter(|stepping| *stepping < 16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_not_confused_with_model_name() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon(R)\nmodel\t\t: 85\nstepping\t: 4\n";
        assert_eq!(parse(text), "6/85/4".parse().ok());
        assert_eq!(parse("vendor_id : GenuineIntel\n"), None);
    }

    #[test]
    fn this_machine_has_a_cpu_model() {
        assert!(processor(Path::new("/proc")).is_some());
        assert_eq!(cpu_model().vendor, Vendor::Other);
    }
}
