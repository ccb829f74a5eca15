//! Reads and writes words of the memory of a traced process.

use crate::ptrace::RawTid;
use backtrail_process::{memory, status};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reads words, or returns `None` if some cannot be read.
pub(crate) fn words<const N: usize>(pid: RawTid, address: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; N * 8];
    (memory::read(pid, address, &mut bytes) == bytes.len()).then_some(())?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// Writes bytes, regardless of page protection. Returns whether all were written.
pub(crate) fn write(pid: RawTid, address: u64, bytes: &[u8]) -> bool {
    let path = format!("/proc/{}/mem", status::thread_with_memory(pid));
    let memory = File::options().write(true).open(path);
    memory.is_ok_and(|memory| memory.write_all_at(bytes, address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_words_are_read_back() {
        let pid = std::process::id() as RawTid;
        let place = Box::new([0u64; 2]);
        let at = place.as_ptr() as u64;
        assert!(write(pid, at, &[1, 0, 0, 0, 0, 0, 0, 0, 2]));
        assert_eq!(words(pid, at), Some([1, 2]));
        assert!(!write(pid, 8, &[1]));
        assert_eq!(words::<1>(pid, 8), None);
    }
}
