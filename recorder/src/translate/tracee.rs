//! System calls that a stopped thread of the program makes for the recorder.

use super::layout;
use crate::error::{Error, Result};
use crate::ptrace::{self, RawTid, Stop, SyscallDispatch};
use crate::signal_state::TRAP_FLAG;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_process::maps::{self, Map};
use backtrail_process::memory;
use std::fs::File;
use std::io;

/// `memfd_create(2)`: close on exec.
const MFD_CLOEXEC: u64 = 1;
/// The length of SYSCALL.
const SYSCALL_LEN: u64 = 2;

/// The maximum amount of code that is searched for a SYSCALL instruction.
const MAX_SEARCHED: u64 = 256 << 20;

/// Addresses that system calls of the recorder need: a SYSCALL instruction and an empty string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gadget {
    /// The address of a SYSCALL instruction.
    pub(crate) syscall: u64,
    /// The address of a zero byte.
    name: u64,
}

impl Gadget {
    /// Returns the gadget of the recorder at this address ([`layout::GADGET_CODE`]).
    pub(super) fn at(page: u64) -> Self {
        Self {
            syscall: page,
            name: page + layout::GADGET_NAME,
        }
    }

    /// Returns the system call instruction before `next`. It has no string.
    pub(super) fn before(next: u64) -> Self {
        Self {
            syscall: next.wrapping_sub(SYSCALL_LEN),
            name: 0,
        }
    }

    /// Finds a gadget in the code of a process, usually in the vdso. Returns `None` if no code
    /// contains a SYSCALL instruction.
    ///
    /// The program may unmap it. The first region has a gadget of its own.
    pub(crate) fn find(pid: RawTid) -> Option<Self> {
        let mut maps = maps::maps(pid);
        maps.retain(|map| map.executable && map.path != "[vsyscall]");
        maps.sort_by_key(|map| map.path != "[vdso]");
        let mut searched = 0;
        maps.iter().find_map(|map| {
            searched += map.size();
            (searched <= MAX_SEARCHED)
                .then(|| Self::find_in(pid, map))
                .flatten()
        })
    }

    fn find_in(pid: RawTid, map: &Map) -> Option<Self> {
        /// The number of bytes that are read at once.
        const PIECE: u64 = 1 << 20;
        (map.start..map.end).step_by(PIECE as usize).find_map(|start| {
            let mut code = vec![0; (map.end - start).min(PIECE) as usize];
            let read = memory::read(pid, start, &mut code);
            code.truncate(read);
            let at = code.windows(2).position(|bytes| bytes == [0x0f, 0x05])?;
            let name = code.iter().position(|byte| *byte == 0)?;
            Some(Self {
                syscall: start + at as u64,
                name: start + name as u64,
            })
        })
    }

    /// Returns the address after the SYSCALL instruction.
    pub(crate) fn after_syscall(self) -> u64 {
        self.syscall + SYSCALL_LEN
    }
}

/// A stopped thread that makes system calls for the recorder.
pub(crate) struct Tracee<'a> {
    pub(crate) tid: RawTid,
    pub(crate) gadget: Gadget,
    /// The saved registers. A call overwrites the general-purpose registers of the thread.
    pub(crate) registers: Registers,
    /// Signals that arrived in the meantime, to be delivered later.
    pub(crate) held: &'a mut Vec<SigInfo>,
}

impl Tracee<'_> {
    /// Makes a system call that does not block.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: self.gadget.syscall,
            rflags: self.registers.rflags & !TRAP_FLAG,
            rax: number as u64,
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        ptrace::set_registers(self.tid, &registers)?;
        self.finish_call(&registers)
    }

    /// Waits for the end of a system call.
    ///
    /// Stops at system calls are not signals. The trap of a step would reset a SIGTRAP that is
    /// blocked or ignored.
    fn finish_call(&mut self, registers: &Registers) -> Result<u64> {
        let mut has_entered = false;
        loop {
            ptrace::resume_to_syscall(self.tid)?;
            match ptrace::wait_for(self.tid)? {
                stop @ (Stop::Exited(_) | Stop::Killed(_) | Stop::Event(libc::PTRACE_EVENT_EXIT)) => {
                    // The main loop must handle this report too.
                    ptrace::put_back(self.tid, stop);
                    return Err(self.error(libc::ESRCH));
                }
                Stop::Syscall => {
                    let now = ptrace::registers(self.tid)?;
                    // The thread may first return from a call of its own.
                    if now.rip == self.gadget.after_syscall() && std::mem::replace(&mut has_entered, true) {
                        return self.answer(now.rax);
                    }
                }
                Stop::Signal(libc::SIGSYS) if self.is_dispatched() => {
                    let dispatch = SyscallDispatch::disable(self.tid)?;
                    ptrace::set_registers(self.tid, registers)?;
                    let result = self.finish_call(registers);
                    dispatch.restore(self.tid);
                    return result;
                }
                Stop::Signal(_) => self.held.extend(ptrace::siginfo(self.tid).ok()),
                Stop::Event(_) | Stop::Group(_) | Stop::Interrupted => {}
            }
        }
    }

    /// Returns whether system call dispatch has refused the call, so that it was not made.
    fn is_dispatched(&self) -> bool {
        /// `si_code` (`asm-generic/siginfo.h`).
        const SYS_USER_DISPATCH: i32 = 2;
        ptrace::siginfo(self.tid).is_ok_and(|info| info.code() == SYS_USER_DISPATCH)
    }

    fn answer(&self, rax: u64) -> Result<u64> {
        let code = (rax as i64).wrapping_neg();
        if (1..4096).contains(&code) {
            return Err(self.error(code as i32));
        }
        Ok(rax)
    }

    fn error(&self, code: i32) -> Error {
        Error::Ptrace {
            action: "prepare",
            tid: self.tid as u32,
            source: io::Error::from_raw_os_error(code),
        }
    }

    /// Creates a memory file, and opens it in the thread and in the recorder.
    pub(crate) fn memory_file(&mut self) -> Result<(File, u64)> {
        let name = self.gadget.name;
        let descriptor = self.call(libc::SYS_memfd_create, [name, MFD_CLOEXEC, 0, 0, 0, 0])?;
        let path = format!("/proc/{}/fd/{descriptor}", self.tid);
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(Error::system("open memory shared with the program"))?;
        Ok((file, descriptor))
    }

    pub(crate) fn close(&mut self, descriptor: u64) -> Result<()> {
        self.call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]).map(drop)
    }

    /// Maps a part of a shared file at a reserved address.
    pub(crate) fn map(&mut self, at: u64, len: u64, protection: i32, file: (u64, u64)) -> Result<()> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let (descriptor, offset) = file;
        self.call(
            libc::SYS_mmap,
            [at, len, protection as u64, flags as u64, descriptor, offset],
        )
        .map(drop)
    }

    /// Reserves unused address space.
    pub(crate) fn reserve(&mut self, at: u64, len: u64) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let nobody = u64::MAX;
        let got = self.call(
            libc::SYS_mmap,
            [at, len, libc::PROT_NONE as u64, flags as u64, nobody, 0],
        )?;
        // Kernels before 4.17 treat the address as a hint.
        if got != at {
            return Err(self.error(libc::EEXIST));
        }
        Ok(())
    }

    /// Returns the address that the kernel chooses for a mapping of `len` bytes.
    pub(crate) fn mapped_by_kernel(&mut self, len: u64) -> Result<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let nobody = u64::MAX;
        let at = self.call(
            libc::SYS_mmap,
            [0, len, libc::PROT_NONE as u64, flags as u64, nobody, 0],
        )?;
        self.unmap(at, len)?;
        Ok(at)
    }

    /// Excludes memory from core dumps.
    pub(crate) fn hide(&mut self, at: u64, len: u64) -> Result<()> {
        self.call(libc::SYS_madvise, [at, len, libc::MADV_DONTDUMP as u64, 0, 0, 0])
            .map(drop)
    }

    /// Maps the shared memory at `from` a second time, at `to`.
    pub(crate) fn map_again(&mut self, from: u64, len: u64, to: u64) -> Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        self.call(libc::SYS_mremap, [from, 0, len, flags as u64, to, 0])
            .map(drop)
    }

    /// Moves a mapping to a reserved address.
    pub(crate) fn move_mapping(&mut self, from: u64, len: u64, to: u64) -> Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        self.call(libc::SYS_mremap, [from, len, len, flags as u64, to, 0])
            .map(drop)
    }

    pub(crate) fn protect(&mut self, at: u64, len: u64, protection: i32) -> Result<()> {
        self.call(libc::SYS_mprotect, [at, len, protection as u64, 0, 0, 0])
            .map(drop)
    }

    pub(crate) fn unmap(&mut self, at: u64, len: u64) -> Result<()> {
        self.call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]).map(drop)
    }
}
