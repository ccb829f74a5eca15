//! Parses the samples of the probe's perf event.
//!
//! Format of a sample: `PERF_RECORD_SAMPLE` in `include/uapi/linux/perf_event.h`. Its registers:
//! `arch/x86/include/uapi/asm/perf_regs.h`. The tracepoint: `events/signal/signal_deliver/format`
//! in tracefs.

use super::{CrashSample, Frame, SiginfoDetail};
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_pt::{Avma, Cpu, Pid, Tid};

/// `PERF_SAMPLE_REGS_ABI_NONE`: there are no registers.
const ABI_NONE: u64 = 0;
/// Addresses from here up separate the parts of a call chain (`PERF_CONTEXT_MAX`).
const CONTEXT_MARKS: u64 = -4095_i64 as u64;

/// Reads fields from the front.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

/// Parses a sample with the fields of the probe's perf event. `None`: it is truncated.
pub(super) fn parse(record: &[u8]) -> Option<CrashSample> {
    let mut fields = Fields(record);
    let (pid, tid) = (Pid(fields.u32()?), Tid(fields.u32()?));
    let at = fields.u64()?;
    let (cpu, _) = (Cpu(fields.u32()?), fields.u32()?);
    let depth = usize::try_from(fields.u64()?).ok()?;
    let chain = fields.bytes(depth.checked_mul(8)?)?;
    let raw_len = fields.u32()? as usize;
    let (siginfo, siginfo_detail) = siginfo(fields.bytes(raw_len)?)?;
    let registers = registers(&mut fields)?;
    let stack = stack(&mut fields).unwrap_or_default();
    let address = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let frames = chain
        .chunks_exact(8)
        .filter_map(address)
        .filter(|address| *address < CONTEXT_MARKS)
        .map(|address| Frame::At(Avma(address)))
        .collect();
    Some(CrashSample {
        at,
        at_boot: None,
        cpu,
        pid,
        tid,
        inner_pid: None,
        inner_tid: None,
        pid_namespace: None,
        mount_namespace: None,
        user: None,
        effective_user: None,
        cgroup: None,
        started: None,
        comm: String::new(),
        siginfo,
        siginfo_detail,
        registers,
        bases_known: false,
        frames,
        stack_at: Avma(registers.rsp),
        stack: stack.to_vec(),
    })
}

/// Parses the tracepoint's fields: 8 common bytes, then `int sig, errno, code`.
fn siginfo(raw: &[u8]) -> Option<(SigInfo, SiginfoDetail)> {
    let mut bytes = [0; SigInfo::SIZE];
    bytes[..12].copy_from_slice(raw.get(8..20)?);
    Some((SigInfo(bytes), SiginfoDetail::Code))
}

/// Parses the registers in the order of `enum perf_event_x86_regs`.
fn registers(fields: &mut Fields<'_>) -> Option<Registers> {
    let mut registers = Registers::default();
    if fields.u64()? == ABI_NONE {
        return Some(registers);
    }
    let Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        rip,
        cs,
        rflags,
        rsp,
        ss,
        ..
    } = &mut registers;
    for register in [
        rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, rip, rflags, cs, ss, r8, r9, r10, r11, r12, r13, r14, r15,
    ] {
        *register = fields.u64()?;
    }
    Some(registers)
}

/// Parses the stack: its size, its bytes, and how many of them are valid.
fn stack<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let size = usize::try_from(fields.u64()?).ok()?;
    let bytes = fields.bytes(size)?;
    let true_size = if size == 0 {
        0
    } else {
        usize::try_from(fields.u64()?).ok()?
    };
    bytes.get(..true_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sample in the kernel's format.
    fn made() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend([7_u32, 8].map(u32::to_le_bytes).concat());
        bytes.extend(99_u64.to_le_bytes());
        bytes.extend([1_u32, 0].map(u32::to_le_bytes).concat());
        bytes.extend(
            [3, -512_i64 as u64, 0x1000, 0x2000]
                .map(u64::to_le_bytes)
                .concat(),
        );
        let raw = [
            &[0; 8][..],
            &[11_i32, 0, 1, 0].map(i32::to_le_bytes).concat(),
            &[0; 20],
        ]
        .concat();
        bytes.extend((raw.len() as u32).to_le_bytes());
        bytes.extend(&raw);
        bytes.extend(2_u64.to_le_bytes());
        bytes.extend((0..20_u64).flat_map(|index| (index + 100).to_le_bytes()));
        bytes.extend(16_u64.to_le_bytes());
        bytes.extend(*b"sixteen bytes!!!");
        bytes.extend(8_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn sample_is_parsed_in_the_kernels_format() {
        let seen = parse(&made()).unwrap();
        assert_eq!(
            (seen.pid, seen.tid, seen.at, seen.cpu),
            (Pid(7), Tid(8), 99, Cpu(1))
        );
        assert_eq!(seen.frames, [Frame::At(Avma(0x1000)), Frame::At(Avma(0x2000))]);
        assert_eq!((seen.siginfo.signal(), seen.siginfo.code()), (11, 1));
        assert_eq!(
            (seen.siginfo.address(), seen.fault_address()),
            (Some(Avma(0)), None)
        );
        assert_eq!(
            (seen.registers.rax, seen.registers.rip, seen.registers.r15),
            (100, 108, 119)
        );
        assert_eq!(
            (seen.stack_at, seen.stack.as_slice()),
            (Avma(107), &b"sixteen "[..])
        );
        assert_eq!((seen.inner_pid, seen.comm.as_str()), (None, ""));
    }

    #[test]
    fn sample_without_registers_is_invalid() {
        let bytes = made();
        let registers_end = bytes.len() - 32;
        assert!((0..registers_end).all(|end| parse(&bytes[..end]).is_none()));
        assert!(parse(&bytes[..registers_end]).unwrap().stack.is_empty());
    }
}
