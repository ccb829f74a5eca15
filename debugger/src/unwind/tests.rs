//! Every way in which a stack goes on and ends, on a stack and rules made by hand.

use super::*;
use backtrail_bundle::core::{Core, CoreContents, CoreThread, Segment, write};
use backtrail_decoder::Image;
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

const CODE: Range<u64> = 0x1000..0x4000;
const STACK: Range<u64> = 0x7000..0x1_7000;

/// A history of which it is only known whether it ends with a return.
struct Returned(bool);

impl FrameHistory for Returned {
    fn has_returned(&self) -> bool {
        self.0
    }

    fn rules(&self, _number: usize, _pc: Avma) -> Option<(Vec<UnwindRow>, Avma)> {
        None
    }
}

/// Call frame instructions for a range of code.
type Rules<'a> = (Range<u32>, &'a [u8]);

fn padded(mut entry: Vec<u8>) -> Vec<u8> {
    entry.resize(entry.len().next_multiple_of(4), 0);
    [(entry.len() as u32).to_le_bytes().to_vec(), entry].concat()
}

/// An ELF file without sections, of which `.eh_frame` is found by its program header. The caller's
/// stack pointer is 8 above, its return address just below that, unless the instructions say else.
fn elf(rules: &[Rules<'_>]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 2 * 56;
    let segment = |kind: u32, flags: u32, fields: [u64; 5]| {
        let words = fields.into_iter().flat_map(u64::to_le_bytes);
        let head = [kind.to_le_bytes(), flags.to_le_bytes()];
        head.into_iter()
            .flatten()
            .chain(words)
            .chain(8u64.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    // Version 1; where `.eh_frame` is, relative to this word; no table.
    let mut tables = vec![1, 0x1b, 0xff, 0xff, 4, 0, 0, 0];
    // CIE: version 1, "zR", factors 1 and -8, return address 16; DW_CFA_def_cfa rsp 8;
    // DW_CFA_offset 16 1.
    let common = padded(b"\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01".to_vec());
    let start = tables.len();
    tables.extend(common);
    for (code, instructions) in rules {
        let at = tables.len() as u32;
        let mut entry = (at + 4 - start as u32).to_le_bytes().to_vec();
        let here = HEADERS as u32 + at + 8;
        entry.extend(code.start.wrapping_sub(here).to_le_bytes());
        entry.extend((code.end - code.start).to_le_bytes());
        entry.push(0);
        entry.extend(*instructions);
        tables.extend(padded(entry));
    }
    tables.extend([0; 4]);
    let size = HEADERS + tables.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    file.extend([0u64, 64, 0].into_iter().flat_map(u64::to_le_bytes));
    file.extend([0, 0, 64, 56, 2, 64, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    file.truncate(64);
    file.extend(segment(1, 5, [0, 0, 0, size, CODE.end]));
    let size = tables.len() as u64;
    file.extend(segment(0x6474_e550, 4, [HEADERS, HEADERS, HEADERS, size, size]));
    file.extend(tables);
    file
}

/// A process at its crash; `words` of memory by address.
fn run(rules: &[Rules<'_>], words: &[(u64, u64)], registers: Registers, returned: bool) -> Unwound {
    let words: BTreeMap<u64, u64> = words.iter().copied().collect();
    let segment = |range: Range<u64>, executable: bool| Segment {
        start: Avma(range.start),
        size: range.end - range.start,
        saved: range.end - range.start,
        readable: true,
        writable: !executable,
        executable,
    };
    let contents = CoreContents {
        threads: vec![CoreThread {
            registers,
            ..CoreThread::default()
        }],
        segments: vec![segment(CODE, true), segment(STACK, false)],
        ..CoreContents::default()
    };
    let mut file = Cursor::new(Vec::new());
    let memory = |at: Avma, out: &mut [u8]| {
        out.fill(0);
        for (&address, word) in words.range(at.0.saturating_sub(7)..at.0 + out.len() as u64) {
            for (byte, at) in word.to_le_bytes().into_iter().zip((address.wrapping_sub(at.0))..) {
                if let Some(to) = out.get_mut(at as usize) {
                    *to = byte;
                }
            }
        }
        out.len()
    };
    write(&mut file, &contents, memory).unwrap();
    let core = Core::parse(file.into_inner().into(), "core").unwrap();
    let mut symbols = Symbolizer::new();
    let module = SymbolFile::from_bytes(Arc::new(elf(rules)), &DebugSearch::none()).unwrap();
    symbols.add_module(
        Avma(CODE.start)..Avma(CODE.end),
        0,
        "module",
        Some(Arc::new(module)),
    );
    let image = Image::new();
    unwind(
        &registers,
        &symbols,
        &Memory::new(&core, &image),
        &Returned(returned),
    )
}

fn at(rip: u64) -> Registers {
    Registers {
        rip,
        rsp: STACK.start,
        ..Registers::default()
    }
}

fn pcs(unwound: &Unwound) -> Vec<u64> {
    unwound.frames.iter().map(|frame| frame.pc.0).collect()
}

/// `call *%rax` ends there.
const BEHIND_CALL: u64 = 0x1100;
const CALL: (u64, u64) = (BEHIND_CALL - 8, 0xd0ff_0000_0000_0000);
/// Has the rules of every function that saved nothing.
const LEAF: Rules<'static> = (0x1000..0x2000, &[]);
/// DW_CFA_undefined 16: there is no caller.
const START: Rules<'static> = (0x2000..0x2100, &[0x07, 16]);

#[test]
fn it_goes_to_the_outermost_frame() {
    let words = [(0x7000, 0x1200), (0x7008, 0x2010)];
    let unwound = run(&[LEAF, START], &words, at(0x1010), false);
    assert_eq!(
        (pcs(&unwound), unwound.end),
        (vec![0x1010, 0x1200, 0x2010], UnwindEnd::Outermost)
    );
    assert_eq!(unwound.frames[1].cfa, Some(Avma(0x7010)));
    assert_eq!(unwound.frames[1].look_up(), Avma(0x11ff));
    assert_eq!(unwound.end.why(), None);
    let zero = run(&[LEAF], &[(0x7000, 0x1200), (0x7008, 0)], at(0x1010), false);
    assert_eq!(
        (pcs(&zero), zero.end),
        (vec![0x1010, 0x1200], UnwindEnd::Outermost)
    );
}

#[test]
fn registers_are_as_far_known_as_they_were_saved() {
    // DW_CFA_def_cfa_offset 16; DW_CFA_offset rbx 2.
    let saves: Rules<'_> = (0x1000..0x2000, &[0x0e, 16, 0x83, 2]);
    // DW_CFA_def_cfa rbx 0: the caller's frame is found by it.
    let uses: Rules<'_> = (0x2000..0x2100, &[0x0c, 3, 0]);
    let words = [(0x7000, 0x7100), (0x7008, 0x2010), (0x70f8, 0x3000)];
    let mut registers = at(0x1010);
    registers.rbp = 5;
    registers.rax = 6;
    let unwound = run(&[saves.clone(), uses], &words, registers, false);
    assert_eq!(
        (pcs(&unwound), unwound.end),
        (vec![0x1010, 0x2010, 0x3000], UnwindEnd::NoRules(Avma(0x3000)))
    );
    let known = unwound.frames[1].registers;
    assert_eq!(
        (known[3], known[6], known[7]),
        (Some(0x7100), Some(5), Some(0x7010))
    );
    assert_eq!(known[0], None, "a callee may change rax");
    // DW_CFA_def_cfa rax 0, in the caller.
    let lost: Rules<'_> = (0x2000..0x2100, &[0x0c, 0, 0]);
    let unwound = run(&[saves, lost], &words, registers, false);
    assert_eq!((pcs(&unwound).len(), unwound.end), (2, UnwindEnd::Lost));
}

#[test]
fn a_damaged_stack_ends_it() {
    // DW_CFA_def_cfa rsp 0; DW_CFA_offset 16 is below the stack pointer.
    let shrinks: Rules<'_> = (0x2000..0x2100, &[0x0c, 7, 0]);
    let words = [(0x7000, 0x2010)];
    let unwound = run(&[LEAF, shrinks], &words, at(0x1010), false);
    assert_eq!((pcs(&unwound).len(), unwound.end), (2, UnwindEnd::NotGrowing));
    let unwound = run(&[LEAF], &[(0x7000, 0x4141_4141_4141_4141)], at(0x1010), false);
    assert_eq!(
        (pcs(&unwound).len(), unwound.end),
        (1, UnwindEnd::NoCode(Avma(0x4141_4141_4141_4141)))
    );
    let mut registers = at(0x1010);
    registers.rsp = STACK.end - 4;
    let unwound = run(&[LEAF], &[], registers, false);
    assert_eq!(
        (pcs(&unwound).len(), unwound.end),
        (1, UnwindEnd::Memory(Avma(STACK.end - 4)))
    );
    registers.rsp = u64::MAX - 3;
    assert_eq!(run(&[LEAF], &[], registers, false).frames.len(), 1);
}

#[test]
fn there_is_a_bound() {
    let words: Vec<(u64, u64)> = STACK.step_by(8).map(|at| (at, 0x1200)).collect();
    let unwound = run(&[LEAF], &words, at(0x1010), false);
    assert_eq!(
        (unwound.frames.len(), unwound.end),
        (MAX_FRAMES, UnwindEnd::TooMany)
    );
}

#[test]
fn a_call_through_a_bad_pointer_has_its_caller_on_the_stack() {
    let words = [CALL, (0x7000, BEHIND_CALL), (0x7008, 0x2010)];
    for pc in [0, 0x7100, 0xffff_ffff_ffff_ffff] {
        let unwound = run(&[LEAF, START], &words, at(pc), false);
        assert_eq!(
            (pcs(&unwound), unwound.end),
            (vec![pc, BEHIND_CALL, 0x2010], UnwindEnd::Outermost)
        );
        assert!(unwound.frames[0].bad_pointer && !unwound.frames[1].bad_pointer);
        let returned = run(&[LEAF, START], &words, at(pc), true);
        assert_eq!(
            (pcs(&returned), returned.end),
            (vec![pc], UnwindEnd::NoCode(Avma(pc)))
        );
    }
    let not_behind_a_call = [CALL, (0x7000, BEHIND_CALL + 1)];
    let unwound = run(&[LEAF, START], &not_behind_a_call, at(0), false);
    assert_eq!(
        (pcs(&unwound), unwound.end),
        (vec![0], UnwindEnd::NoCode(Avma(0)))
    );
}

#[test]
fn a_signal_frame_is_known_by_its_code() {
    // mov $15, %rax; syscall: nothing has rules for it.
    let code = [(0x3000, 0x0f00_0000_0fc0_c748), (0x3008, 0x05)];
    let context = 0x7008 + 40;
    let words = [
        (0x7000, 0x3000),
        // r8, rsp and rip of the interrupted code, at the start of its function.
        (context, 8),
        (context + 8 * 15, 0x9000),
        (context + 8 * 16, 0x2000),
    ];
    let unwound = run(&[LEAF, START], &[&code[..], &words].concat(), at(0x1010), false);
    assert_eq!(
        (pcs(&unwound), unwound.end),
        (vec![0x1010, 0x3000, 0x2000], UnwindEnd::Outermost)
    );
    assert!(unwound.frames[1].signal_frame);
    let interrupted = &unwound.frames[2];
    assert_eq!(interrupted.look_up(), Avma(0x2000), "it did not call");
    assert_eq!(
        (interrupted.registers[8], interrupted.registers[7]),
        (Some(8), Some(0x9000))
    );
}
