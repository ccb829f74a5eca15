//! Registers and memory of a stopped thread, for the evaluation of its variables.

use super::stepped::Stopped;
use backtrail_pt::Avma;
use backtrail_symbolizer::{CfaRule, Symbolizer, Unknown};
use backtrail_values::ValueSource;
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, regset};
use std::os::unix::fs::FileExt;

/// The innermost frame of a stopped thread.
pub struct StoppedSource<'a> {
    pub stopped: &'a Stopped<'a>,
    pub symbols: &'a Symbolizer,
}

/// Returns a general register by its DWARF number (System V ABI AMD64, section 3.6.2).
fn by_dwarf(registers: &user_regs_struct, number: u16) -> Result<u64, Unknown> {
    Ok(match number {
        0 => registers.rax,
        1 => registers.rdx,
        2 => registers.rcx,
        3 => registers.rbx,
        4 => registers.rsi,
        5 => registers.rdi,
        6 => registers.rbp,
        7 => registers.rsp,
        8 => registers.r8,
        9 => registers.r9,
        10 => registers.r10,
        11 => registers.r11,
        12 => registers.r12,
        13 => registers.r13,
        14 => registers.r14,
        15 => registers.r15,
        16 => registers.rip,
        _ => return Err("there is no such register".into()),
    })
}

/// Returns a register by its name in GDB.
pub fn by_name(registers: &user_regs_struct, name: &str) -> Option<u64> {
    Some(match name {
        "rax" => registers.rax,
        "rbx" => registers.rbx,
        "rcx" => registers.rcx,
        "rdx" => registers.rdx,
        "rsi" => registers.rsi,
        "rdi" => registers.rdi,
        "rbp" => registers.rbp,
        "rsp" => registers.rsp,
        "r8" => registers.r8,
        "r9" => registers.r9,
        "r10" => registers.r10,
        "r11" => registers.r11,
        "r12" => registers.r12,
        "r13" => registers.r13,
        "r14" => registers.r14,
        "r15" => registers.r15,
        "rip" => registers.rip,
        "eflags" => registers.eflags,
        "fs_base" => registers.fs_base,
        "gs_base" => registers.gs_base,
        _ => return None,
    })
}

impl ValueSource for StoppedSource<'_> {
    fn register(&self, register: u16) -> Result<u64, Unknown> {
        by_dwarf(&self.stopped.registers, register)
    }

    fn vector(&self, number: u16) -> Result<[u8; 16], Unknown> {
        let state = ptrace::getregset::<regset::NT_PRFPREG>(self.stopped.tid)
            .map_err(|error| Unknown::Owned(error.to_string()))?;
        let words = &state.xmm_space[usize::from(number) * 4..][..4];
        let mut bytes = [0; 16];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    fn special(&self, name: &str) -> Result<u64, Unknown> {
        by_name(&self.stopped.registers, name).ok_or_else(|| "there is no such register".into())
    }

    fn memory(&self, at: u64, out: &mut [u8]) -> Result<(), Unknown> {
        self.stopped
            .memory
            .read_exact_at(out, at)
            .map_err(|_| "no memory is mapped there".into())
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        let row = self.symbols.unwind_row(Avma(self.stopped.registers.rip));
        match row.ok_or("there is no call frame information here")?.cfa {
            CfaRule::Register { register, offset } => {
                Ok(self.register(register)?.wrapping_add_signed(offset))
            }
            CfaRule::Expression(_) => Err("the frame's address is an expression".into()),
        }
    }

    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown> {
        Ok((self.stopped.registers.fs_base, None))
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        let cfa = self.cfa()?;
        let function = self.symbols.function_at(Avma(self.stopped.registers.rip));
        let function = function.ok_or("no function is known here")?.entry.0;
        let entries = self.stopped.entries.iter().rev();
        let mut found = entries.filter(|entry| (entry.cfa, entry.function) == (cfa, function));
        let entry = found.next().ok_or("the entry was not seen")?;
        by_dwarf(&entry.registers, register)
    }
}
