//! Determines whether a process runs 64-bit code.

use super::process::CodeMode;
use backtrail_bundle::manifest::Process;
use backtrail_bundle::{Bundle, Result, SharedBytes};
use backtrail_pt::packet::{ExecMode, Packet};
use backtrail_pt::parser::Parser;
use object::elf::{ELFCLASS32, EM_386};

/// The most packets that are read for the mode. A PSB+, which states it, comes first.
const MAX_PACKETS: usize = 1 << 12;

/// Returns the mode of a process's code, by its modules. Without a module, it is the first mode in
/// the trace of its first thread.
pub(super) fn of_bundle(bundle: &Bundle, process: &Process) -> Result<CodeMode> {
    let mut found = None;
    for file in process.modules.iter().filter_map(|module| module.file.as_ref()) {
        match of_elf(&bundle.bytes(file)?) {
            CodeMode::Bits64 => return Ok(CodeMode::Bits64),
            mode => found = Some(mode),
        }
    }
    let mut traces = process.threads.iter().filter_map(|thread| thread.trace.as_ref());
    match (found, traces.next()) {
        (Some(mode), _) => Ok(mode),
        (None, Some(trace)) => Ok(of_trace(&bundle.bytes(trace)?)),
        (None, None) => Ok(CodeMode::Bits64),
    }
}

/// Returns the sentence about a process whose code is not 64-bit code.
pub(super) fn note(process: &Process, mode: CodeMode) -> Option<String> {
    (mode != CodeMode::Bits64).then(|| {
        format!(
            "process {} runs {}-bit code: its flow and disassembly are shown; its symbols, registers and values are unknown",
            process.pid,
            mode.bits()
        )
    })
}

fn of_elf(bytes: &SharedBytes) -> CodeMode {
    let machine = bytes.get(18..20).and_then(|bytes| bytes.try_into().ok());
    let is_32_bit = bytes.get(4) == Some(&ELFCLASS32.0) && machine.map(u16::from_le_bytes) == Some(EM_386.0);
    if is_32_bit {
        CodeMode::Bits32
    } else {
        CodeMode::Bits64
    }
}

fn of_trace(trace: &[u8]) -> CodeMode {
    let mut parser = Parser::new(trace);
    if parser.sync_forward().is_none() {
        return CodeMode::Bits64;
    }
    let packets = parser.take(MAX_PACKETS).map_while(std::result::Result::ok);
    let mut modes = packets.filter_map(|(_, packet)| match packet {
        Packet::ModeExec(mode) => Some(mode),
        _ => None,
    });
    match modes.next() {
        None | Some(ExecMode { long: true, .. }) => CodeMode::Bits64,
        Some(ExecMode { default_32: true, .. }) => CodeMode::Bits32,
        Some(_) => CodeMode::Bits16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_mode_of_the_trace_counts() {
        let psb = [0x02, 0x82].repeat(8);
        let trace = |mode: u8| [&*psb, &[0x99, mode, 0x02, 0x23, 0x99, 0x01]].concat();
        assert_eq!(of_trace(&trace(0x01)), CodeMode::Bits64);
        assert_eq!(of_trace(&trace(0x02)), CodeMode::Bits32);
        assert_eq!(of_trace(&trace(0x00)), CodeMode::Bits16);
        assert_eq!(of_trace(&psb), CodeMode::Bits64);
        assert_eq!(of_trace(&[]), CodeMode::Bits64);
    }

    #[test]
    fn only_i386_files_have_32_bit_code() {
        let header = |class: u8, machine: u8| {
            let mut bytes = b"\x7fELF\x01\x01".to_vec();
            bytes.resize(20, 0);
            (bytes[4], bytes[18]) = (class, machine);
            of_elf(&bytes.into())
        };
        assert_eq!(header(1, 3), CodeMode::Bits32);
        // x32: 64-bit code with 32-bit pointers.
        assert_eq!(header(1, 62), CodeMode::Bits64);
        assert_eq!(header(2, 62), CodeMode::Bits64);
        assert_eq!(of_elf(&Vec::new().into()), CodeMode::Bits64);
    }
}
