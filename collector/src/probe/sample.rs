//! A crash as the probe reports it.

use backtrail_bpf::{CrashEvent, NO_USER, SIGINFO_WORDS, StackFrame, siginfo_parts};
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_pt::{Avma, BuildId, Cpu, FileOffset, Pid, Tid};

/// A process that a signal kills, at the delivery of the signal.
///
/// Ids are those of the initial pid namespace. With the perf tracepoint, they are those of the
/// namespace in which the probe was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashSample {
    /// The time by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// The time by `CLOCK_BOOTTIME`, in nanoseconds.
    pub at_boot: Option<u64>,
    /// The processor that it ran on.
    pub cpu: Cpu,
    /// The process.
    pub pid: Pid,
    /// The thread that takes the signal.
    pub tid: Tid,
    /// The process in its own pid namespace.
    pub inner_pid: Option<Pid>,
    /// The thread in its own pid namespace.
    pub inner_tid: Option<Tid>,
    /// The inode of its pid namespace.
    pub pid_namespace: Option<u32>,
    /// The inode of its mount namespace.
    pub mount_namespace: Option<u32>,
    /// The thread's real user id, in the initial user namespace.
    pub user: Option<u32>,
    /// The thread's effective user id, in the initial user namespace.
    pub effective_user: Option<u32>,
    /// The id of its cgroup (version 2), which is the inode of its directory.
    pub cgroup: Option<u64>,
    /// The start time of the process, by `CLOCK_BOOTTIME` in nanoseconds. Field 22 of
    /// `/proc/PID/stat` has it in a coarser unit.
    pub started: Option<u64>,
    /// The thread's name, at most 15 bytes. Empty if the probe does not report it.
    pub comm: String,
    /// The siginfo of the signal, as far as [`Self::siginfo_detail`] says.
    pub siginfo: SigInfo,
    /// How much of `siginfo` is known.
    pub siginfo_detail: SiginfoDetail,
    /// The general registers. All zero if they are unknown.
    pub registers: Registers,
    /// Whether `orig_rax`, the segment bases and `ds`, `es`, `fs`, `gs` are known. Otherwise they
    /// are zero. The kernel saved the bases earlier, so later writes by `wrfsbase` are missing.
    pub bases_known: bool,
    /// The call chain by frame pointers, innermost first, starting with the current instruction.
    pub frames: Vec<Frame>,
    /// The address of the first byte of `stack`, at most 512 below the stack pointer.
    pub stack_at: Avma,
    /// The top of the stack, as far as it was in memory.
    pub stack: Vec<u8>,
}

/// How much of a siginfo is known. The rest is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiginfoDetail {
    /// The signal number.
    Number,
    /// The signal number, `si_errno` and `si_code`.
    Code,
    /// These, and the fault address from the thread's state.
    Address,
    /// All fields, including the sender's ids.
    All,
}

/// A stack frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// In a file with a build id.
    InFile {
        /// The build id of the file.
        build_id: BuildId,
        /// The offset in the file.
        offset: FileOffset,
    },
    /// A frame with its address only.
    At(Avma),
}

impl CrashSample {
    /// Returns the address of the fault, if the signal is a fault and the probe reports the
    /// address. Unlike the one in `siginfo`, it is never a zero that means unknown.
    #[must_use]
    pub fn fault_address(&self) -> Option<Avma> {
        self.siginfo
            .address()
            .filter(|_| self.siginfo_detail >= SiginfoDetail::Address)
    }

    /// Parses a record of the eBPF probe. `None`: it is invalid.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (event, stack) = CrashEvent::parse(bytes)?;
        let id = |number: u32| (number != 0).then_some(number);
        let name = event.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let registers = registers(&event);
        let (siginfo, siginfo_detail) = siginfo(&event, &registers);
        Some(Self {
            at: event.at,
            at_boot: Some(event.at_boot),
            cpu: Cpu(event.cpu),
            pid: Pid(event.pid),
            tid: Tid(event.tid),
            inner_pid: id(event.inner_pid).map(Pid),
            inner_tid: id(event.inner_tid).map(Tid),
            pid_namespace: id(event.pid_namespace),
            mount_namespace: id(event.mount_namespace),
            user: known_user(event.user),
            effective_user: known_user(event.effective_user),
            cgroup: (event.cgroup != 0).then_some(event.cgroup),
            started: (event.started != 0).then_some(event.started),
            comm: String::from_utf8_lossy(name).into_owned(),
            siginfo,
            siginfo_detail,
            registers,
            bases_known: true,
            frames: event.frames().iter().filter_map(frame).collect(),
            stack_at: Avma(event.stack_at),
            stack: stack.to_vec(),
        })
    }
}

/// Returns a user id of a record. `None`: the probe could not read it.
pub(super) fn known_user(id: u32) -> Option<u32> {
    (id != NO_USER).then_some(id)
}

/// Converts the registers. `struct pt_regs` has the order of the first fields of `struct
/// user_regs_struct`.
fn registers(event: &CrashEvent) -> Registers {
    let mut words = [0; Registers::NAMES.len()];
    words[..event.registers.len()].copy_from_slice(&event.registers);
    let mut registers = Registers::from_array(words);
    // Kernels with FRED store other data in the upper bits (arch/x86/include/asm/ptrace.h).
    registers.cs &= 0xffff;
    registers.ss &= 0xffff;
    registers.fs_base = event.fs_base;
    registers.gs_base = event.gs_base;
    registers.ds = event.ds.into();
    registers.es = event.es.into();
    registers.fs = event.fs.into();
    registers.gs = event.gs.into();
    registers
}

fn siginfo(event: &CrashEvent, registers: &Registers) -> (SigInfo, SiginfoDetail) {
    let mut bytes = [0; SigInfo::SIZE];
    for (index, word) in event.siginfo.iter().enumerate().take(SIGINFO_WORDS) {
        bytes[4 * index..4 * index + 4].copy_from_slice(&word.to_le_bytes());
    }
    let siginfo = SigInfo(bytes);
    match event.siginfo_parts {
        siginfo_parts::ALL => (siginfo, SiginfoDetail::All),
        siginfo_parts::CODE => {
            let [signal, code] = [siginfo.signal(), siginfo.code()];
            match fault_address(signal, code, event.fault_trap, event.fault_address, registers) {
                Some(address) => {
                    bytes[16..24].copy_from_slice(&address.0.to_le_bytes());
                    (SigInfo(bytes), SiginfoDetail::Address)
                }
                None => (siginfo, SiginfoDetail::Code),
            }
        }
        _ => (siginfo, SiginfoDetail::Number),
    }
}

/// Returns `si_addr` as the kernel's fault handlers set it (`arch/x86/mm/fault.c`,
/// `arch/x86/kernel/traps.c`).
fn fault_address(signal: i32, code: i32, trap: u64, cr2: u64, registers: &Registers) -> Option<Avma> {
    const SIGILL: i32 = 4;
    const SIGTRAP: i32 = 5;
    const SIGBUS: i32 = 7;
    const SIGFPE: i32 = 8;
    const SIGSEGV: i32 = 11;
    const SI_KERNEL: i32 = 0x80;
    const PAGE_FAULT: u64 = 14;
    if code <= 0 || code == SI_KERNEL {
        return None;
    }
    match (signal, trap) {
        (SIGSEGV | SIGBUS, PAGE_FAULT) => Some(Avma(cr2)),
        // Divide error, invalid opcode, x87 and SSE errors: the instruction.
        (SIGFPE, 0 | 16 | 19) | (SIGILL, 6) => Some(registers.pc()),
        // Debug exceptions (TRAP_BRKPT, TRAP_TRACE): the next instruction.
        (SIGTRAP, 1) if code <= 2 => Some(registers.pc()),
        _ => None,
    }
}

fn frame(frame: &StackFrame) -> Option<Frame> {
    match frame.status {
        StackFrame::VALID => Some(Frame::InFile {
            build_id: BuildId::new(without_filling(&frame.build_id))?,
            offset: FileOffset(frame.offset),
        }),
        StackFrame::ADDRESS => Some(Frame::At(Avma(frame.offset))),
        _ => None,
    }
}

/// Removes the padding of a build id. The kernel pads it to 20 bytes with zeros. Linkers write 8,
/// 16 or 20.
fn without_filling(id: &[u8; 20]) -> &[u8] {
    let zero = |from: usize| id[from..].iter().all(|byte| *byte == 0);
    match () {
        () if zero(8) => &id[..8],
        () if zero(16) => &id[..16],
        () => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_padding_is_removed() {
        let id = |len: usize| std::array::from_fn(|index| if index < len { index as u8 + 1 } else { 0 });
        for len in [8, 16, 20] {
            assert_eq!(without_filling(&id(len)).len(), len);
        }
        assert_eq!(without_filling(&id(19)).len(), 20, "a zero at its end is its own");
    }

    #[test]
    fn address_is_reported_only_for_the_fatal_fault() {
        let registers = Registers {
            rip: 0x40_1000,
            ..Registers::default()
        };
        let address = |signal, code, trap| fault_address(signal, code, trap, 0xdead, &registers);
        assert_eq!(address(11, 1, 14), Some(Avma(0xdead)));
        assert_eq!(
            address(11, 0x80, 14),
            None,
            "general protection after an older page fault"
        );
        assert_eq!(address(11, -6, 14), None, "sent");
        assert_eq!(address(7, 1, 17), None, "alignment check");
        assert_eq!(address(8, 1, 0), Some(Avma(0x40_1000)));
        assert_eq!(address(8, 1, 14), None);
        assert_eq!(address(5, 6, 1), None, "a perf event's trap");
    }

    #[test]
    fn truncated_record_is_invalid() {
        assert_eq!(CrashSample::parse(&[0; 100]), None);
    }
}
