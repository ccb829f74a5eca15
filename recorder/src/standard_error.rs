//! The last lines that a process writes to standard error, out of its system calls.
//!
//! The program keeps its own descriptor, so that it sees the terminal, file or pipe that it would
//! see without the recorder.

use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;
use backtrail_bundle::manifest::MAX_STANDARD_ERROR;
use backtrail_process::memory;
use std::collections::VecDeque;

/// The system calls that write to a descriptor.
pub(crate) const WRITES: [libc::c_long; 2] = [libc::SYS_write, libc::SYS_writev];
/// The size of an element of the second argument of `writev(2)` (`struct iovec`).
const VECTOR_SIZE: usize = 16;
/// The maximum number of elements (`UIO_MAXIOV`).
const MAX_VECTORS: usize = 1024;

/// The last bytes of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputTail {
    bytes: VecDeque<u8>,
    /// Whether earlier bytes were dropped.
    is_cut: bool,
}

impl OutputTail {
    /// Adds what a completed system call wrote, if it was a write to standard error. `call` has the
    /// registers before the call, and `written` is its result.
    pub(crate) fn add_write(&mut self, pid: RawTid, call: &Registers, written: u64) {
        // The kernel ignores the upper half of a descriptor.
        if call.rdi as libc::c_int != libc::STDERR_FILENO {
            return;
        }
        match call.rax as libc::c_long {
            libc::SYS_write => self.add_memory(pid, call.rsi, written),
            libc::SYS_writev => {
                let mut left = written;
                for (start, len) in vectors(pid, call.rsi, call.rdx) {
                    let len = len.min(left);
                    self.add_memory(pid, start, len);
                    left -= len;
                }
            }
            _ => {}
        }
    }

    /// Adds the last bytes of a buffer.
    fn add_memory(&mut self, pid: RawTid, start: u64, len: u64) {
        let kept = len.min(MAX_STANDARD_ERROR as u64);
        let mut bytes = vec![0; kept as usize];
        let read = memory::read(pid, start.wrapping_add(len - kept), &mut bytes);
        bytes.truncate(read);
        self.is_cut |= kept < len;
        self.add(&bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(MAX_STANDARD_ERROR);
        self.bytes.drain(..surplus);
        self.is_cut |= surplus > 0;
    }

    /// Returns the text, without a first line that is not complete. Returns `None` if nothing was
    /// written.
    pub(crate) fn text(&self) -> Option<String> {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let cut = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) if self.is_cut && end + 1 < bytes.len() => end + 1,
            _ => 0,
        };
        let mut text = String::from_utf8_lossy(bytes.get(cut..)?).into_owned();
        // Replacement characters are longer than what they replace.
        let surplus = text.len().saturating_sub(MAX_STANDARD_ERROR);
        text.drain(..text.ceil_char_boundary(surplus));
        (!text.trim().is_empty()).then_some(text)
    }
}

/// Returns the buffers of `writev(2)`.
fn vectors(pid: RawTid, at: u64, count: u64) -> Vec<(u64, u64)> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_VECTORS);
    let mut bytes = vec![0; count * VECTOR_SIZE];
    let read = memory::read(pid, at, &mut bytes);
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let vectors = bytes.get(..read).unwrap_or_default().chunks_exact(VECTOR_SIZE);
    vectors
        .map(|vector| {
            let (start, len) = vector.split_at(VECTOR_SIZE / 2);
            (word(start), word(len))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: libc::c_long, descriptor: u64, buffer: u64, len: u64) -> Registers {
        Registers {
            rax: number as u64,
            rdi: descriptor,
            rsi: buffer,
            rdx: len,
            ..Registers::default()
        }
    }

    #[test]
    fn only_writes_to_standard_error_are_kept() {
        let pid = std::process::id() as RawTid;
        let text = *b"first\nsecond\n";
        let at = text.as_ptr() as u64;
        let mut tail = OutputTail::default();
        tail.add_write(pid, &call(libc::SYS_write, 1, at, 13), 13);
        tail.add_write(pid, &call(libc::SYS_read, 2, at, 13), 13);
        assert_eq!(tail.text(), None);
        // Only a part was written, and the kernel ignores the upper half of the descriptor.
        tail.add_write(pid, &call(libc::SYS_write, 2 | 1 << 32, at, 13), 6);
        assert_eq!(tail.text().as_deref(), Some("first\n"));
        let vectors = [at, 6, at + 6, 7];
        tail.add_write(pid, &call(libc::SYS_writev, 2, vectors.as_ptr() as u64, 2), 10);
        assert_eq!(tail.text().as_deref(), Some("first\nfirst\nseco"));
        // Memory that cannot be read adds nothing.
        tail.add_write(pid, &call(libc::SYS_write, 2, 8, 13), 13);
        assert_eq!(tail.text().as_deref(), Some("first\nfirst\nseco"));
    }

    #[test]
    fn newest_complete_lines_are_kept_within_the_limit() {
        let mut tail = OutputTail::default();
        for number in 0..2000 {
            tail.add(format!("line {number}\n").as_bytes());
        }
        let text = tail.text().unwrap();
        assert!(text.len() <= MAX_STANDARD_ERROR && text.len() > MAX_STANDARD_ERROR - 20);
        assert!(
            text.starts_with("line ") && text.ends_with("line 1999\n"),
            "{text}"
        );
        let mut tail = OutputTail::default();
        tail.add(&[0xff; 3 * MAX_STANDARD_ERROR]);
        let text = tail.text().unwrap();
        assert!(text.len() <= MAX_STANDARD_ERROR && !text.is_empty());
    }
}
