//! Detects system call filters and dispatch that depend on the address of the instruction.

use crate::ptrace::{self, RawTid};
use backtrail_bundle::core::Registers;
use backtrail_process::{memory, status};

/// `prctl(2)`: turns system call dispatch on (`linux/prctl.h`).
const PR_SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`: a supervisor gets the address of each call that the filter
/// forwards (`linux/seccomp.h`).
const NEW_LISTENER: u64 = 8;
/// The maximum number of instructions in a filter (`linux/bpf_common.h`, `BPF_MAXINSNS`).
const MAX_INSTRUCTIONS: usize = 4096;
/// The size of an instruction (`struct sock_filter`).
const INSTRUCTION_SIZE: usize = 8;
/// `BPF_LD | BPF_W | BPF_ABS`: loads a word of `struct seccomp_data`. The constant is its offset.
const LOAD: u16 = 0x20;
/// `instruction_pointer` in `struct seccomp_data`.
const INSTRUCTION_POINTER: std::ops::Range<u32> = 8..16;

/// Returns whether a successful call makes the kernel treat system calls by their address.
/// `registers` are those before the call.
pub(crate) fn depends_on_addresses(pid: RawTid, registers: &Registers) -> bool {
    // The kernel ignores the upper half of the first argument.
    let operation = registers.rdi as libc::c_int;
    let program = match registers.rax as libc::c_long {
        libc::SYS_prctl if operation == PR_SET_SYSCALL_USER_DISPATCH => return registers.rsi != 0,
        libc::SYS_prctl
            if operation == libc::PR_SET_SECCOMP && registers.rsi == u64::from(libc::SECCOMP_MODE_FILTER) =>
        {
            registers.rdx
        }
        libc::SYS_seccomp if operation == libc::SECCOMP_SET_MODE_FILTER as libc::c_int => {
            if registers.rsi & NEW_LISTENER != 0 {
                return true;
            }
            registers.rdx
        }
        _ => return false,
    };
    // A filter that cannot be read any more may depend on addresses.
    filter(pid, program).is_none_or(|filter| reads_address(&filter))
}

/// Returns whether a filter that a thread already has depends on addresses. Filters can be read
/// only with CAP_SYS_ADMIN, so without it the answer is no.
pub(crate) fn has_filter_of_addresses(tid: RawTid) -> bool {
    status::seccomp_filters(tid) > 0
        && (0..)
            .map_while(|index| ptrace::seccomp_filter(tid, index, MAX_INSTRUCTIONS))
            .any(|filter| reads_address(&filter))
}

/// Reads a filter (`struct sock_fprog`).
fn filter(pid: RawTid, program: u64) -> Option<Vec<u8>> {
    let mut head = [0; 16];
    (memory::read(pid, program, &mut head) == head.len()).then_some(())?;
    let [len_low, len_high, .., a, b, c, d, e, f, g, h] = head;
    let len = usize::from(u16::from_le_bytes([len_low, len_high])).min(MAX_INSTRUCTIONS);
    let mut filter = vec![0; len * INSTRUCTION_SIZE];
    let at = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    (memory::read(pid, at, &mut filter) == filter.len()).then_some(filter)
}

/// Returns whether a filter loads a part of the instruction pointer.
fn reads_address(filter: &[u8]) -> bool {
    filter.chunks_exact(INSTRUCTION_SIZE).any(|instruction| {
        let [code_low, code_high, _, _, a, b, c, d] = *instruction else {
            return false;
        };
        let offset = u32::from_le_bytes([a, b, c, d]);
        u16::from_le_bytes([code_low, code_high]) == LOAD && INSTRUCTION_POINTER.contains(&offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, constant: u32) -> Vec<u8> {
        let [low, high] = code.to_le_bytes();
        [&[low, high, 0, 0][..], &constant.to_le_bytes()].concat()
    }

    #[test]
    fn only_loads_of_the_instruction_pointer_count() {
        let returns = instruction(6, 8);
        let number = instruction(LOAD, 0);
        assert!(!reads_address(&[number.clone(), returns.clone()].concat()));
        for offset in [8, 12] {
            let address = instruction(LOAD, offset);
            assert!(reads_address(&[&number[..], &address, &returns].concat()));
        }
        assert!(!reads_address(&instruction(LOAD, 16)));
    }

    #[test]
    fn filter_is_read_from_memory() {
        let pid = std::process::id() as RawTid;
        let code = instruction(LOAD, 12);
        let program = [1u64, code.as_ptr() as u64];
        let registers = |at: u64| Registers {
            rax: libc::SYS_seccomp as u64,
            rdi: u64::from(libc::SECCOMP_SET_MODE_FILTER),
            rdx: at,
            ..Registers::default()
        };
        assert!(depends_on_addresses(pid, &registers(program.as_ptr() as u64)));
        let number = instruction(LOAD, 0);
        let program = [1u64, number.as_ptr() as u64];
        assert!(!depends_on_addresses(pid, &registers(program.as_ptr() as u64)));
        let with_listener = Registers {
            rsi: NEW_LISTENER,
            ..registers(program.as_ptr() as u64)
        };
        assert!(depends_on_addresses(pid, &with_listener));
        assert!(depends_on_addresses(pid, &registers(8)), "unreadable");
    }
}
