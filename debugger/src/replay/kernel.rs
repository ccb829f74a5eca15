//! The memory that system calls write (`include/linux/syscalls.h`, and the manual pages).

use backtrail_semantics::State;

/// Memory that a system call writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelWrites {
    /// Addresses and sizes, perhaps none.
    Ranges(Vec<(u64, u64)>),
    /// It is not known where.
    Anywhere,
}

/// A system call before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    number: u64,
    arguments: [u64; 6],
}

/// `MADV_DONTNEED`, which makes memory zero, and `PR_SET_NAME` and its like, which only read.
const MADV_DONTNEED: u64 = 4;
/// The highest errors are the lowest numbers (`MAX_ERRNO`).
const LEAST_ERROR: u64 = 0u64.wrapping_sub(4095);

impl Call {
    /// Returns the call of a thread at a `syscall` instruction.
    pub fn before(state: &State) -> Self {
        // rdi, rsi, rdx, r10, r8, r9
        Self {
            number: state.general[0],
            arguments: [7, 6, 2, 10, 8, 9].map(|register: usize| state.general[register]),
        }
    }

    /// Returns the memory that the call has written. `after` has the registers after it.
    pub fn writes(self, after: &State) -> KernelWrites {
        let result = after.general[0];
        let is_error = result >= LEAST_ERROR;
        let [first, second, third, fourth, ..] = self.arguments;
        let range = |address: u64, size: u64| {
            let is_none = address == 0 || is_error;
            KernelWrites::Ranges(if is_none {
                Vec::new()
            } else {
                vec![(address, size)]
            })
        };
        match self.number {
            // write, close, lseek, mprotect, brk, pwrite64, writev, access, sched_yield, dup, dup2
            1 | 3 | 8 | 10 | 12 | 18 | 20 | 21 | 24 | 32 | 33 => none(),
            // getpid, sendto, shutdown, bind, listen, exit, kill, fsync, ftruncate, chdir, rename
            39 | 44 | 48 | 49 | 50 | 60 | 62 | 74 | 77 | 80 | 82 => none(),
            // mkdir, rmdir, unlink, umask, getuid, getgid, geteuid, getegid, getppid, gettid
            83 | 84 | 87 | 95 | 102 | 104 | 107 | 108 | 110 | 186 => none(),
            // tkill, set_tid_address, exit_group, tgkill, openat, set_robust_list, open, socket
            200 | 218 | 231 | 234 | 257 | 273 | 2 | 41 => none(),
            // connect, futimesat, unlinkat, faccessat, dup3, fadvise64, munmap
            42 | 261 | 263 | 269 | 292 | 221 | 11 => none(),
            // read, pread64, readlink, getcwd, getdents64, getrandom, readlinkat
            0 | 17 | 89 | 217 => range(second, result),
            79 | 318 => range(first, result),
            267 => range(third, result),
            // stat, fstat, lstat, newfstatat: struct stat
            4..=6 => range(second, 144),
            262 => range(third, 144),
            // mmap: the new memory
            9 => range(result, second),
            // madvise
            28 if third != MADV_DONTNEED => none(),
            28 => range(first, second),
            // rt_sigaction: the old action; rt_sigprocmask: the old mask
            13 => range(third, 32),
            14 => range(third, 8),
            // nanosleep, clock_gettime, clock_getres, gettimeofday
            35 | 228 | 229 | 96 => range(second, 16),
            // uname, prlimit64, pipe, pipe2
            63 => range(first, 390),
            302 => range(fourth, 16),
            22 | 293 => range(first, 8),
            _ => KernelWrites::Anywhere,
        }
    }
}

fn none() -> KernelWrites {
    KernelWrites::Ranges(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(number: u64, arguments: [u64; 3], result: u64) -> KernelWrites {
        let mut state = State::default();
        state.general[0] = number;
        state.general[7] = arguments[0];
        state.general[6] = arguments[1];
        state.general[2] = arguments[2];
        let call = Call::before(&state);
        state.general[0] = result;
        call.writes(&state)
    }

    #[test]
    fn reads_write_as_many_bytes_as_they_return() {
        assert_eq!(
            writes(0, [3, 0x1000, 100], 7),
            KernelWrites::Ranges(vec![(0x1000, 7)])
        );
        assert_eq!(writes(0, [3, 0x1000, 100], -9_i64 as u64), none());
        assert_eq!(writes(1, [3, 0x1000, 100], 7), none());
    }

    #[test]
    fn unknown_calls_write_anywhere() {
        assert_eq!(writes(9999, [0; 3], 0), KernelWrites::Anywhere);
        assert_eq!(writes(16, [0; 3], 0), KernelWrites::Anywhere);
    }
}
