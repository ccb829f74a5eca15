//! Parses processor lists in the notation of sysfs: `0-3,8,10-11`.
//!
//! Source: the kernel's `lib/bitmap-str.c` (`bitmap_print_to_pagebuf`),
//! admin-guide/cputopology.rst.

use crate::Error;
use backtrail_pt::Cpu;
use std::fs;
use std::path::Path;

/// More than the processors of any kernel (`CONFIG_NR_CPUS` of x86 ends at 8192).
const MAX_CPUS: u32 = 1 << 16;

/// Parses a list. An empty text is an empty list.
///
/// # Errors
/// A message about the first part that is neither a number nor a range.
pub fn parse(text: &str) -> Result<Vec<Cpu>, String> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        let Some((first, last)) = range.filter(|(first, last)| first <= last && *last < MAX_CPUS) else {
            return Err(format!(
                "{part:?} is neither a processor nor a range of processors"
            ));
        };
        cpus.extend((first..=last).map(Cpu));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Reads a file that contains a list.
///
/// # Errors
/// Fails if it cannot be read or is not a list.
pub fn read(path: &Path) -> Result<Vec<Cpu>, Error> {
    let problem = |problem: String| Error::File {
        path: path.to_owned(),
        problem,
    };
    let text = fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    parse(&text).map_err(problem)
}

/// Returns the online processors, from `SYSFS/devices/system/cpu/online`.
///
/// # Errors
/// The errors of [`read`].
pub fn online(sysfs: &Path) -> Result<Vec<Cpu>, Error> {
    read(&sysfs.join("devices/system/cpu/online"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_numbers_are_read() {
        assert_eq!(parse("0-2,5,4-4\n"), Ok([0, 1, 2, 4, 5].map(Cpu).to_vec()));
        assert_eq!(parse("\n"), Ok(Vec::new()));
    }

    #[test]
    fn invalid_lists_are_refused() {
        for text in ["a", "3-1", "1-", "-1", "0-4294967295", "1;2"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
