//! Tests of the stack walker on made-up stacks.

use super::*;

/// A stack of words from an address.
fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const BASE: u64 = 0x7ff0_0000;

fn walk(
    registers: Registers,
    words: &[u64],
    code_at: impl FnMut(u64) -> CodeAt,
) -> (Vec<(u64, bool)>, StackEnd) {
    let bytes = bytes(words);
    let stack = StackBytes {
        start: BASE,
        bytes: &bytes,
    };
    let mut addresses = Vec::new();
    let end = unwind(registers, stack, code_at, &mut addresses);
    let seen = addresses
        .iter()
        .map(|address| (address.inside(), address.is_return));
    (seen.collect(), end)
}

fn frame(cfa: Cfa, bp: SavedBp) -> CodeAt {
    CodeAt::Rule(UnwindRule::Frame { cfa, bp })
}

#[test]
fn rules_lead_to_the_start_of_the_thread() {
    // A leaf that moved the stack pointer by 8, a function with a frame pointer, and the start.
    let code = |address| match address {
        0x1000..0x1100 => frame(Cfa::Sp(16), SavedBp::Unchanged),
        0x2000..0x2100 => frame(Cfa::Bp(16), SavedBp::AtCfa(-16)),
        0x3000..0x3100 => CodeAt::Rule(UnwindRule::Outermost),
        _ => CodeAt::Unmapped,
    };
    let registers = Registers {
        pc: 0x1010,
        sp: BASE,
        bp: BASE + 24,
    };
    let stack = [7, 0x2021, 8, 0, 0x3011];
    let (seen, end) = walk(registers, &stack, code);
    assert_eq!(seen, [(0x1010, false), (0x2020, true), (0x3010, true)]);
    assert_eq!(end, StackEnd::Complete);
    // With fewer bytes, the walk ends where they do.
    let (seen, end) = walk(registers, &stack[..4], code);
    assert_eq!((seen.len(), end), (2, StackEnd::NoBytes));
}

#[test]
fn return_to_a_function_end_belongs_to_the_caller() {
    // A call of a function that never returns is the last instruction of its function.
    let code = |address| match address {
        0x1000..0x1100 => frame(Cfa::Sp(8), SavedBp::Unchanged),
        0x2000..0x2100 => CodeAt::Rule(UnwindRule::Outermost),
        _ => CodeAt::Rule(UnwindRule::Unknown),
    };
    let registers = Registers {
        pc: 0x1000,
        sp: BASE,
        bp: 0,
    };
    let (seen, end) = walk(registers, &[0x2100], code);
    assert_eq!((seen.len(), end), (2, StackEnd::Complete));
}

#[test]
fn code_without_a_table_needs_frame_pointers() {
    let code = |address| match address {
        0x9000..0xa000 => CodeAt::NoTable,
        0x3000..0x3100 => CodeAt::Rule(UnwindRule::Outermost),
        _ => CodeAt::Unmapped,
    };
    let registers = |bp| Registers {
        pc: 0x9010,
        sp: BASE,
        bp,
    };
    let stack = [0, BASE + 24, 0x9100, 1, 0x5555, 2, 3];
    let (seen, end) = walk(registers(BASE + 8), &stack, code);
    assert_eq!(seen, [(0x9010, false), (0x90ff, true)]);
    // The next frame pointer leads to a return address of no code.
    assert_eq!(end, StackEnd::NoTable);
    let stack = [0, BASE + 32, 0x9100, 1, 0, 0x3011];
    let (seen, end) = walk(registers(BASE + 8), &stack, code);
    assert_eq!((seen.len(), end), (3, StackEnd::Complete));
    for bp in [BASE - 8, BASE + 4096, 1, u64::MAX] {
        let (seen, end) = walk(registers(bp), &stack, code);
        assert_eq!((seen.len(), end), (1, StackEnd::NoTable), "{bp:#x}");
    }
}

#[test]
fn signal_frame_leads_to_the_interrupted_instruction() {
    let code = |address| match address {
        0x1000..0x1100 => frame(Cfa::Sp(8), SavedBp::Unchanged),
        0x4fff..0x5010 => CodeAt::Rule(UnwindRule::Signal),
        0x2000..0x2100 => CodeAt::Rule(UnwindRule::Outermost),
        _ => CodeAt::Unmapped,
    };
    let mut stack = vec![0; 40];
    stack[0] = 0x5000; // the return address of the handler
    let mcontext = 1 + 5;
    (stack[mcontext + 10], stack[mcontext + 15], stack[mcontext + 16]) = (1, BASE - 4096, 0x2000);
    let registers = Registers {
        pc: 0x1000,
        sp: BASE,
        bp: 0,
    };
    let (seen, end) = walk(registers, &stack, code);
    assert_eq!(seen, [(0x1000, false), (0x4fff, true), (0x2000, false)]);
    assert_eq!(end, StackEnd::Complete);
}

#[test]
fn linkage_table_entry_has_pushed_a_word_or_not() {
    let code = |address| match address {
        0x1000..0x1100 => frame(Cfa::Plt(11), SavedBp::Unchanged),
        0x2000..0x2100 => CodeAt::Rule(UnwindRule::Outermost),
        _ => CodeAt::Unmapped,
    };
    for (pc, stack) in [(0x1010, vec![0x2001]), (0x101b, vec![3, 0x2001])] {
        let registers = Registers { pc, sp: BASE, bp: 0 };
        let (seen, end) = walk(registers, &stack, code);
        assert_eq!((seen[1].0, end), (0x2000, StackEnd::Complete));
    }
}

#[test]
fn loops_end() {
    let registers = Registers {
        pc: 0x1000,
        sp: BASE,
        bp: BASE,
    };
    let stack = [BASE, 0x1001, BASE, 0x1001];
    let up = |_| frame(Cfa::Bp(16), SavedBp::AtCfa(-16));
    assert_eq!(walk(registers, &stack, up).1, StackEnd::Invalid);
    let deep: Vec<u64> = vec![0x1001; MAX_FRAMES + 10];
    let (seen, end) = walk(registers, &deep, |_| frame(Cfa::Sp(8), SavedBp::Unchanged));
    assert_eq!((seen.len(), end), (MAX_FRAMES, StackEnd::TooDeep));
}

proptest::proptest! {
    /// Any bytes and rules end in bounded time, and nothing outside the bytes is read.
    #[test]
    fn any_stack_ends(
        words in proptest::collection::vec(proptest::num::u64::ANY, 0..60),
        near in proptest::collection::vec(0u64..60, 0..60),
        kinds in proptest::collection::vec(0usize..7, 8),
        sp in 0u64..600,
    ) {
        let rules = [
            frame(Cfa::Sp(8), SavedBp::Unchanged),
            frame(Cfa::Bp(16), SavedBp::AtCfa(-16)),
            frame(Cfa::AtBp(-8), SavedBp::AtBp(0)),
            CodeAt::Rule(UnwindRule::Signal),
            CodeAt::NoTable,
            CodeAt::Unmapped,
            frame(Cfa::Plt(11), SavedBp::AtCfa(i64::MIN)),
        ];
        let words: Vec<u64> = words.into_iter().chain(near.iter().map(|word| BASE + word * 8)).collect();
        let registers = Registers { pc: 1, sp: BASE + sp, bp: BASE };
        let (seen, _) = walk(registers, &words, |address| rules[kinds[address as usize % 8]]);
        proptest::prop_assert!(seen.len() <= MAX_FRAMES);
    }
}
