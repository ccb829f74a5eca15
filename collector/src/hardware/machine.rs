//! The processor, as procfs tells of it.

use crate::{Error, Result};
use backtrail_pt::CpuModel;
use backtrail_pt::cpu::Vendor;
use std::fs;
use std::path::Path;

/// Family, model and stepping of the first processor of `PROCFS/cpuinfo`.
pub(super) fn cpu_model(procfs: &Path) -> Result<CpuModel> {
    let path = procfs.join("cpuinfo");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    parse(&text).ok_or_else(|| {
        Error::Unable(format!(
            "{} tells no family, model and stepping of the processor",
            path.display()
        ))
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
    fn the_model_is_read_and_not_taken_for_the_model_name() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon(R)\nmodel\t\t: 85\nstepping\t: 4\n";
        assert_eq!(parse(text), "6/85/4".parse().ok());
        assert_eq!(parse("vendor_id : GenuineIntel\n"), None);
    }

    #[test]
    fn this_machine_has_a_model() {
        assert!(cpu_model(Path::new("/proc")).is_ok());
    }
}
