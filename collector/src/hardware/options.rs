//! The options of the Intel PT source.

use crate::{Error, Result};
use backtrail_pt::Pid;
use std::fmt::Write;
use std::path::PathBuf;

/// The kernel accepts filter texts of up to a page. This limit is far below.
const MAX_FILTERS: usize = 16;

/// The options of the Intel PT source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareOptions {
    /// Whether to trace kernel code too.
    pub kernel: bool,
    /// The processes to trace.
    pub scope: Scope,
    /// The code ranges to trace. Empty: all code. The processor limits their number.
    pub filters: Vec<Filter>,
    /// A `PSB` packet every 2^(11+n) bytes. `None`: every 16 KiB, where the processor supports the
    /// choice.
    pub psb_period: Option<u8>,
    /// An `MTC` packet every 2^n ticks of the crystal clock. `None`: 2^3, where the processor
    /// supports MTC.
    pub mtc_period: Option<u8>,
    /// `CYC` packets, at most one every 2^(n-1) cycles. `None`: no CYC packets.
    pub cyc_threshold: Option<u8>,
    /// Whether to compress returns (RET compression). Traces become smaller without loss.
    pub compress_returns: bool,
    /// Trace bytes of each processor: a power of two, at least 4096. Copies need as much memory
    /// again.
    pub ring: usize,
    /// Maximum bytes of the sideband history.
    pub history: usize,
    /// Whether to lock the copy buffers in memory, so that a copy has no page faults.
    pub lock_memory: bool,
    /// Whether the kernel itself pauses a processor's trace at a fatal signal, if it can (Linux
    /// 6.13).
    pub pause_in_kernel: bool,
    /// The mount point of sysfs.
    pub sysfs: PathBuf,
    /// The mount point of procfs.
    pub procfs: PathBuf,
}

impl Default for HardwareOptions {
    fn default() -> Self {
        Self {
            kernel: false,
            scope: Scope::System,
            filters: Vec::new(),
            psb_period: None,
            mtc_period: None,
            cyc_threshold: None,
            compress_returns: true,
            ring: 4 << 20,
            history: 16 << 20,
            lock_memory: true,
            pause_in_kernel: true,
            sysfs: "/sys".into(),
            procfs: "/proc".into(),
        }
    }
}

/// The processes to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All processes.
    #[default]
    System,
    /// The processes of a cgroup, by its directory.
    Cgroup(PathBuf),
    /// These processes, and their future children.
    Processes(Vec<Pid>),
}

/// A code range to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The file of the code. `None`: kernel code, and `start` is an address.
    pub file: Option<PathBuf>,
    /// The first byte: an offset in the file.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
}

impl std::str::FromStr for Filter {
    type Err = Error;

    /// Parses `START/SIZE@FILE`, or `START/SIZE` for kernel code.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Unable(format!(
                "{text:?} is not an address filter; write for example \"0x1000/0x200@/usr/bin/server\", an offset and a size"
            ))
        };
        let (range, file) = match text.split_once('@') {
            Some((range, file)) if file.starts_with('/') => (range, Some(file.into())),
            Some(_) => return Err(wrong()),
            None => (text, None),
        };
        let number = |text: &str| match text.trim().strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.trim().parse().ok(),
        };
        let (start, size) = range.split_once('/').ok_or_else(wrong)?;
        Ok(Self {
            file,
            start: number(start).ok_or_else(wrong)?,
            size: number(size).filter(|size| *size != 0).ok_or_else(wrong)?,
        })
    }
}

/// Returns the filters in the kernel's syntax. `None`: there are no filters.
///
/// Source: `perf_event_parse_addr_filter` in `kernel/events/core.c`.
pub(super) fn filter_text(options: &HardwareOptions, ranges: u32) -> Result<Option<String>> {
    let filters = &options.filters;
    if filters.is_empty() {
        return Ok(None);
    }
    if filters.len() > MAX_FILTERS.min(ranges as usize) {
        return Err(Error::Unable(format!(
            "{} address filters are set, but this processor supports {ranges}; set fewer",
            filters.len()
        )));
    }
    let mut text = String::new();
    for filter in filters {
        let (start, size) = (filter.start, filter.size);
        if size == 0 {
            return Err(Error::Unable(
                "an address filter has size 0; set a size".to_owned(),
            ));
        }
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}filter {start:#x}/{size:#x}");
        match &filter.file {
            None if options.kernel => {}
            None => {
                return Err(Error::Unable(
                    "an address filter for kernel code requires kernel tracing; set `kernel`, or name a file"
                        .to_owned(),
                ));
            }
            Some(file) => {
                if !matches!(options.scope, Scope::Processes(_)) {
                    return Err(Error::Unable(format!(
                        "Linux supports filters on a file ({}) only for selected processes; set the scope to processes",
                        file.display()
                    )));
                }
                let path = file.to_string_lossy();
                if path.contains(|char: char| char.is_whitespace() || char == ',') {
                    return Err(Error::Unable(format!(
                        "Linux supports no filter on a file with blanks or commas in its name ({path:?})"
                    )));
                }
                let _ = write!(text, "@{path}");
            }
        }
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_filters_are_refused() {
        let found: Filter = "0x1000/512@/usr/bin/a b".parse().unwrap();
        assert_eq!((found.start, found.size), (0x1000, 512));
        assert_eq!(found.file, Some("/usr/bin/a b".into()));
        let kernel: Filter = "0xffffffff81000000/0x10".parse().unwrap();
        assert_eq!(kernel.file, None);
        for text in ["", "1", "1/0", "x/1@/a", "1/2@a"] {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }

    fn options(scope: Scope, file: Option<&str>) -> HardwareOptions {
        HardwareOptions {
            scope,
            filters: vec![Filter {
                file: file.map(PathBuf::from),
                start: 0x1000,
                size: 0x20,
            }],
            ..HardwareOptions::default()
        }
    }

    #[test]
    fn filters_are_written_as_the_kernel_reads_them() {
        let one = options(Scope::Processes(vec![Pid(1)]), Some("/bin/a"));
        assert_eq!(
            filter_text(&one, 2).unwrap().unwrap(),
            "filter 0x1000/0x20@/bin/a"
        );
        let mut two = options(Scope::System, None);
        two.kernel = true;
        two.filters.push(two.filters[0].clone());
        assert_eq!(
            filter_text(&two, 2).unwrap().unwrap(),
            "filter 0x1000/0x20,filter 0x1000/0x20"
        );
        assert_eq!(filter_text(&HardwareOptions::default(), 0).unwrap(), None);
    }

    #[test]
    fn unsupported_filters_are_refused_with_a_remedy() {
        let refused =
            |options: &HardwareOptions, ranges| filter_text(options, ranges).unwrap_err().to_string();
        let mut none = options(Scope::System, None);
        assert!(refused(&none, 2).contains("set `kernel`"));
        none.filters[0].size = 0;
        assert!(refused(&none, 2).contains("set a size"));
        let system = options(Scope::System, Some("/bin/a"));
        assert!(refused(&system, 2).contains("set the scope to processes"));
        assert!(refused(&system, 0).contains("set fewer"));
        let blank = options(Scope::Processes(Vec::new()), Some("/bin/a b"));
        assert!(refused(&blank, 2).contains("blanks"));
    }
}
