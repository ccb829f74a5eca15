//! The machine that figures are of.

use std::fs;

/// Its processor, number of cores and kernel, as one line.
pub fn line() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let virtual_machine = if processor.contains(" hypervisor ") {
        ", a virtual machine"
    } else {
        ""
    };
    format!(
        "{}, {cores} cores{virtual_machine}, {} of memory, Linux {}",
        model(&processor).unwrap_or("unknown processor"),
        memory_size(&memory),
        kernel.trim()
    )
}

/// How busy other work keeps the machine: figures of a busy one are too high.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(": ").map(|(_, name)| name)
}

fn memory_size(meminfo: &str) -> String {
    let kibibytes = meminfo
        .strip_prefix("MemTotal:")
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok());
    kibibytes.map_or_else(|| "unknown size".to_owned(), |size| format!("{} GiB", size >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        assert_eq!(model("a\t: b\nmodel name\t: Some CPU\n"), Some("Some CPU"));
        assert_eq!(memory_size("MemTotal:       24683520 kB\n"), "23 GiB");
    }
}
