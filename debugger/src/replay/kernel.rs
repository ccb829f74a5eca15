//! The memory that system calls write (`include/linux/syscalls.h`, and the manual pages).

use backtrail_semantics::State;

/// Memory that a system call writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelWrites {
    /// Addresses and sizes, perhaps none.
    Ranges(Vec<(u64, u64)>),
    /// The three identifiers of `clone3`, by its arguments in memory.
    Clone {
        /// The address of `struct clone_args`.
        arguments: u64,
    },
    /// Unknown addresses.
    Anywhere,
}

/// A system call before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    number: u64,
    arguments: [u64; 6],
}

/// `MADV_DONTNEED`, which makes memory zero (`asm-generic/mman-common.h`).
const MADV_DONTNEED: u64 = 4;
/// `ARCH_SET_FS`, which writes no memory (`asm/prctl.h`).
const ARCH_SET_FS: u64 = 0x1002;
/// `F_GETLK`, which writes a lock (`asm-generic/fcntl.h`).
const F_GETLK: u64 = 5;
/// `PR_SET_NAME` and `PR_SET_VMA`, which write no memory (`linux/prctl.h`).
const PR_SET_NAME: u64 = 15;
const PR_SET_VMA: u64 = 0x5356_4d41;
/// The highest errors are the lowest numbers (`MAX_ERRNO`).
const LEAST_ERROR: u64 = 0u64.wrapping_sub(4095);
/// `ENOSYS`: there is no such call.
const NO_CALL: u64 = 0u64.wrapping_sub(38);

impl Call {
    /// Returns the call of a thread at a `syscall` instruction.
    pub fn before(state: &State) -> Self {
        // rdi, rsi, rdx, r10, r8, r9
        Self {
            number: state.general[0],
            arguments: [7, 6, 2, 10, 8, 9].map(|register: usize| state.general[register]),
        }
    }

    /// Returns the number of the call.
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Returns whether it is the return from a signal handler, which writes no memory.
    pub const fn returns_from_handler(self) -> bool {
        self.number == 15
    }

    /// Returns its arguments.
    pub const fn arguments(self) -> [u64; 6] {
        self.arguments
    }

    /// Returns whether a result is an error.
    pub const fn is_error(result: u64) -> bool {
        result >= LEAST_ERROR
    }

    /// Returns the memory that the call has written. `after` has the registers after it.
    pub fn writes(self, after: &State) -> KernelWrites {
        let result = after.general[0];
        if result == NO_CALL || self.writes_nothing() {
            return KernelWrites::Ranges(Vec::new());
        }
        let is_error = Self::is_error(result);
        let [first, second, third, fourth, fifth, _] = self.arguments;
        let ranges = |ranges: &[(u64, u64)]| {
            let has_place = |range: &&(u64, u64)| range.0 != 0 && !is_error;
            KernelWrites::Ranges(ranges.iter().filter(has_place).copied().collect())
        };
        match self.number {
            // read, pread64, readlink, getdents64
            0 | 17 | 89 | 217 => ranges(&[(second, result)]),
            // recvfrom without an address
            45 if fifth == 0 => ranges(&[(second, result)]),
            // getcwd, getrandom; readlinkat, sched_getaffinity
            79 | 318 => ranges(&[(first, result)]),
            267 | 204 => ranges(&[(third, result)]),
            // epoll_wait: events of 12 bytes
            232 => ranges(&[(second, result.saturating_mul(12))]),
            // stat, fstat, lstat, newfstatat: struct stat; statx
            4..=6 => ranges(&[(second, 144)]),
            262 => ranges(&[(third, 144)]),
            332 => ranges(&[(fifth, 256)]),
            // mmap: the new memory
            9 => ranges(&[(result, second)]),
            // madvise
            28 if third != MADV_DONTNEED => ranges(&[]),
            28 => ranges(&[(first, second)]),
            // rt_sigaction: the old action; rt_sigprocmask: the old mask; sigaltstack
            13 => ranges(&[(third, 32)]),
            14 => ranges(&[(third, 8)]),
            131 => ranges(&[(second, 24)]),
            // clock_gettime, clock_getres; gettimeofday
            228 | 229 => ranges(&[(second, 16)]),
            96 => ranges(&[(first, 16), (second, 8)]),
            // nanosleep, clock_nanosleep: the rest, also after an interruption
            35 => KernelWrites::Ranges(vec![(second, 16)]),
            230 => KernelWrites::Ranges(vec![(fourth, 16)]),
            // poll: entries of 8 bytes
            7 => ranges(&[(first, second.saturating_mul(8))]),
            // uname, prlimit64, getrusage, sysinfo, pipe, pipe2, wait4
            63 => ranges(&[(first, 390)]),
            302 => ranges(&[(fourth, 16)]),
            98 => ranges(&[(second, 144)]),
            99 => ranges(&[(first, 112)]),
            22 | 293 => ranges(&[(first, 8)]),
            61 => ranges(&[(second, 4), (fourth, 144)]),
            // futex: both words
            202 => KernelWrites::Ranges(vec![(first, 4), (fifth, 4)]),
            // clone: thread ids
            56 => ranges(&[(third, 4), (fourth, 4)]),
            435 => KernelWrites::Clone { arguments: first },
            // accept, accept4 without an address
            43 | 288 if second == 0 => ranges(&[]),
            72 if second != F_GETLK => ranges(&[]),
            157 if matches!(first, PR_SET_NAME | PR_SET_VMA) => ranges(&[]),
            158 if first == ARCH_SET_FS => ranges(&[]),
            _ => KernelWrites::Anywhere,
        }
    }

    /// Returns the memory that the call may have written if it has not returned.
    pub fn unfinished_writes(self) -> KernelWrites {
        let [first, second, third, _, fifth, _] = self.arguments;
        match self.number {
            _ if self.writes_nothing() => KernelWrites::Ranges(Vec::new()),
            // read, pread64, getdents64, recvfrom: as many bytes as were asked for
            0 | 17 | 217 => KernelWrites::Ranges(vec![(second, third)]),
            45 if fifth == 0 => KernelWrites::Ranges(vec![(second, third)]),
            // poll: entries of 8 bytes; epoll_wait: events of 12 bytes
            7 => KernelWrites::Ranges(vec![(first, second.saturating_mul(8))]),
            232 => KernelWrites::Ranges(vec![(second, third.saturating_mul(12))]),
            35 | 202 | 230 => self.writes(&State::default()),
            _ => KernelWrites::Anywhere,
        }
    }

    /// Returns whether the call writes no memory of the process.
    const fn writes_nothing(self) -> bool {
        matches!(
            self.number,
            // write, open, close, lseek, mprotect, munmap, brk, pwrite64, writev, access
            1 | 2 | 3 | 8 | 10 | 11 | 12 | 18 | 20 | 21
            // sched_yield, dup, dup2, getpid, socket, connect, sendto, sendmsg, shutdown, bind
            | 24 | 32 | 33 | 39 | 41 | 42 | 44 | 46 | 48 | 49
            // listen, setsockopt, exit, kill, fsync, fdatasync, ftruncate, chdir, rename, mkdir
            | 50 | 54 | 60 | 62 | 74 | 75 | 77 | 80 | 82 | 83
            // rmdir, unlink, umask, getuid, getgid, geteuid, getegid, getppid, gettid, tkill
            | 84 | 87 | 95 | 102 | 104 | 107 | 108 | 110 | 186 | 200
            // sched_setaffinity, set_tid_address, fadvise64, exit_group, epoll_ctl, tgkill, openat
            | 203 | 218 | 221 | 231 | 233 | 234 | 257
            // unlinkat, faccessat, set_robust_list, eventfd2, epoll_create1, dup3, membarrier
            | 263 | 269 | 273 | 290 | 291 | 292 | 324
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> KernelWrites {
        KernelWrites::Ranges(Vec::new())
    }

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
    fn calls_without_a_result_write_nothing() {
        // An unknown number, as a call that the recorder refuses.
        assert_eq!(writes(u64::MAX, [1, 2, 3], NO_CALL), none());
    }

    #[test]
    fn unknown_calls_write_anywhere() {
        assert_eq!(writes(9999, [0; 3], 0), KernelWrites::Anywhere);
        assert_eq!(writes(16, [0; 3], 0), KernelWrites::Anywhere);
    }
}
