//! Counts machine instructions with valgrind's cachegrind, independently of the machine's load.

use crate::Failure;
use std::fs;
use std::path::Path;

/// The command line prefix that counts a command's instructions into a file.
pub fn words(counts: &Path) -> Vec<String> {
    let file = format!("--cachegrind-out-file={}", counts.display());
    ["valgrind", "-q", "--tool=cachegrind", "--cache-sim=no", &file]
        .map(str::to_owned)
        .to_vec()
}

/// Returns the sum in such a file.
pub fn total(counts: &Path) -> Result<u64, Failure> {
    let text =
        fs::read_to_string(counts).map_err(|error| format!("cannot read cachegrind's output: {error}"))?;
    sum(&text).ok_or_else(|| "cachegrind reported no sum".to_owned())
}

/// The sum of the first event: instructions.
fn sum(counts: &str) -> Option<u64> {
    let line = counts.lines().find_map(|line| line.strip_prefix("summary:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_instructions_is_read() {
        assert_eq!(sum("events: Ir\nfn=a\n1 2\nsummary: 1234\n"), Some(1234));
        assert_eq!(sum("events: Ir\n"), None);
    }
}
