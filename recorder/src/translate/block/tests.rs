//! Tests with blocks of a few instructions.
use super::*;
use crate::translate::event;
use crate::translate::watched::WatchedFunction;
use backtrail_bundle::heap::AllocatorFunction;

const AT: u64 = 0x2000_0000;
const SUPERBLOCK: BlockOptions = BlockOptions {
    entries: true,
    calls: false,
    min_version: None,
    superblock: true,
    values: false,
};

fn block(start: u64, code: &[u8]) -> Block {
    block_with(start, code, BlockOptions::default())
}

fn block_with(start: u64, code: &[u8], options: BlockOptions) -> Block {
    watched_block(start, code, options, None)
}

fn watched_block(
    start: u64,
    code: &[u8],
    options: BlockOptions,
    watched: Option<&WatchedFunctions>,
) -> Block {
    let mut fetch = |from: u64, out: &mut [u8]| {
        let rest = from
            .checked_sub(start)
            .and_then(|offset| code.get(offset as usize..))
            .unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        len
    };
    translate(
        start,
        AT,
        BlockOptions {
            entries: true,
            ..options
        },
        watched,
        &mut fetch,
    )
}

fn logs(block: &Block, event: LogEvent) -> bool {
    block.entries.iter().any(
        |entry| matches!(entry.state, InstructionState::Done { event: Some(logged), .. } if logged == event),
    )
}

#[test]
fn packetless_loop_logs_each_iteration() {
    // inc edi; jmp back
    let turning = block(0x1000, &[0xff, 0xc7, 0xeb, 0xfc]);
    assert!(logs(&turning, LogEvent::LoopMarker(0x1002)));
    // sub rsp, 8; call itself
    let recursing = block(0x1000, &[0x48, 0x83, 0xec, 8, 0xe8, 0xf7, 0xff, 0xff, 0xff]);
    assert!(logs(&recursing, LogEvent::LoopMarker(0x1004)));
    // dec edi; jne back; ret
    let counting = block(0x1000, &[0xff, 0xcf, 0x75, 0xfc, 0xc3]);
    assert!(!logs(&counting, LogEvent::LoopMarker(0x1002)));
    assert!(logs(&counting, LogEvent::Outcomes(0b10)));
}

#[test]
fn short_loop_is_unrolled_until_outcome_byte_is_full() {
    // dec edi; jne back; ret
    let counting = block(0x1000, &[0xff, 0xcf, 0x75, 0xfc, 0xc3]);
    assert!(logs(&counting, LogEvent::Outcomes(0b111_1111)));
    assert!(logs(&counting, LogEvent::Outcomes(0b111_1110)));
    let source: Vec<_> = counting.source.runs().collect();
    assert_eq!(source, [(0x1000, &[0xff, 0xcf, 0x75, 0xfc][..])]);
}

#[test]
fn call_through_plt_is_one_event() {
    let calling = |code: &[u8]| {
        let options = BlockOptions {
            calls: true,
            ..BlockOptions::default()
        };
        block_with(0x1000, code, options)
    };
    let (outcomes, next, target) = (NO_OUTCOMES, 0x1005, 0);
    // call +0; endbr64; jmp [rip+0]
    let linked = calling(&[
        0xe8, 1, 0, 0, 0, 0x90, 0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0,
    ]);
    let both = LogEvent::IndirectCall {
        outcomes,
        next,
        target,
    };
    assert!(logs(&linked, both));
    assert!(
        !linked
            .code
            .windows(4)
            .any(|bytes| bytes == [0x66, 0xc7, 0x01, event::CALL])
    );
    // call +1; nop; ret
    let direct = calling(&[0xe8, 1, 0, 0, 0, 0x90, 0x90, 0xc3]);
    assert!(logs(&direct, LogEvent::Call { outcomes, next }));
}

#[test]
fn superblock_logs_side_exit_outcomes_with_next_event() {
    // test edi, edi; je +3; inc eax; ret; test esi, esi; je -4 (back at inc eax); ret
    let code = [
        0x85, 0xff, 0x74, 3, 0xff, 0xc0, 0xc3, 0x85, 0xf6, 0x74, 0xf9, 0xc3,
    ];
    let target = 0;
    let returning = |outcomes| LogEvent::Target { outcomes, target };
    let plain = block(0x1000, &code);
    assert!(logs(&plain, returning(0b10)) && logs(&plain, LogEvent::Outcomes(0b11)));
    let superblock = block_with(0x1000, &code, SUPERBLOCK);
    for outcomes in [0b10, 0b110, 0b111] {
        assert!(logs(&superblock, returning(outcomes)), "{outcomes:b}");
    }
    let alone = |entry: &TranslationEntry| {
        matches!(
            entry.state,
            InstructionState::Done {
                event: Some(LogEvent::Outcomes(_)),
                ..
            }
        )
    };
    assert!(!superblock.entries.iter().any(alone));
}

#[test]
fn superblock_size_is_bounded() {
    // je to the next instruction, many times
    let code = [0x74, 0].repeat(4000);
    let superblock = block_with(0x1000, &code, SUPERBLOCK);
    assert!(superblock.code.len() < 1 << 14, "{}", superblock.code.len());
}

#[test]
fn every_block_byte_has_a_translation_entry() {
    // push rbx; test edi, edi; je +2; mov ebx, eax; call [rip+0x10]; pop rbx; ret
    let code = [
        0x53, 0x85, 0xff, 0x74, 2, 0x89, 0xc3, 0xff, 0x15, 0x10, 0, 0, 0, 0x5b, 0xc3,
    ];
    let block = block(0x1fff_0000, &code);
    assert_eq!(block.entries[0].offset, 0);
    assert!(block.entries.is_sorted_by_key(|entry| entry.offset));
    let source: Vec<_> = block.source.runs().collect();
    assert_eq!(source, [(0x1fff_0000, &code[..13])]);
    assert_eq!(
        block.entry_at(0).map(|entry| entry.state),
        Some(InstructionState::Before(SpilledRegisters::NONE))
    );
}

#[test]
fn unreadable_or_unreachable_code_executes_natively() {
    let native = |block: &Block| {
        matches!(
            block.traps[..],
            [(
                _,
                BlockTrap::Native {
                    ip: 0x1000,
                    outcomes: NO_OUTCOMES
                }
            )]
        )
    };
    assert!(native(&block(0x1000, &[])));
    // mov rax, gs:[0]
    assert!(native(&block(0x1000, &[0x65, 0x48, 0x8b, 4, 0x25, 0, 0, 0, 0])));
    // int3
    assert!(native(&block(0x1000, &[0xcc])));
    // lea rax, [rip-0x80000000]: out of reach from the cache
    assert!(native(&block(0x1000, &[0x48, 0x8d, 5, 0, 0, 0, 0x80])));
}

#[test]
fn watched_function_begins_a_block_that_logs_its_call() {
    // nop; jmp +1; int3; ret
    let code = [0x90, 0xeb, 1, 0xcc, 0xc3];
    let mut watched = WatchedFunctions::default();
    watched.insert(0x1004, WatchedFunction::Allocator(AllocatorFunction::Free));
    let options = BlockOptions::default();
    let caller = watched_block(0x1000, &code, options, Some(&watched));
    let source: Vec<_> = caller.source.runs().collect();
    assert_eq!(source, [(0x1000, &code[..3])]);
    assert_eq!(caller.successors, [0x1004]);
    let call = [0x66, 0xc7, 0x01, event::HEAP_CALL, AllocatorFunction::Free as u8];
    let logs = |block: &Block| block.code.windows(5).any(|bytes| bytes == call);
    let function = watched_block(0x1004, &code[4..], options, Some(&watched));
    assert!(logs(&function) && !logs(&caller));
    assert!(function.entries.is_sorted_by_key(|entry| entry.offset));
    // All states before the return can be resumed at the function.
    let resumes = |entry: &&TranslationEntry| matches!(entry.state, InstructionState::Before(_));
    assert!(
        function
            .entries
            .iter()
            .filter(resumes)
            .all(|entry| entry.ip == 0x1004)
    );
    assert!(!logs(&block(0x1004, &code[4..])));
}

/// Returns the block of an instruction with values, and whether it is stepped natively.
fn valued(code: &[u8]) -> (Block, bool) {
    let mut code = code.to_vec();
    // ud2 ends the block.
    code.extend([0x0f, 0x0b]);
    let block = block_with(
        0x1000,
        &code,
        BlockOptions {
            values: true,
            entries: true,
            ..BlockOptions::default()
        },
    );
    let is_native = block
        .traps
        .iter()
        .any(|(_, trap)| matches!(trap, BlockTrap::Native { ip: 0x1000, .. }));
    (block, is_native)
}

#[test]
fn common_loads_are_logged_in_the_cache() {
    for (code, sizes, text) in [
        (&[0x80, 0x3a, 0x05][..], &[1][..], "cmp byte [rdx], 5"),
        (&[0x48, 0x83, 0x3d, 1, 0, 0, 0, 5], &[8], "cmp qword [rip+1], 5"),
        (&[0x44, 0x38, 0x54, 0x0a, 0x7f], &[1], "cmp [rdx+rcx+127], r10b"),
        (
            &[0x64, 0x48, 0x2b, 0x04, 0x25, 0x28, 0, 0, 0],
            &[8],
            "sub rax, fs:[28h]",
        ),
        (&[0x48, 0x03, 0x04, 0xc8], &[8], "add rax, [rax+rcx*8]"),
        (&[0x66, 0x0f, 0x74, 0x00], &[8, 8], "pcmpeqb xmm0, [rax]"),
        (&[0x48, 0x8b, 0x00], &[8], "mov rax, [rax]"),
        (&[0xff, 0x30], &[8], "push qword [rax]"),
        (&[0x66, 0x0f, 0x16, 0x00], &[8], "movhpd xmm0, [rax]"),
        (
            &[0x62, 0xf3, 0x7d, 0x20, 0x3f, 0x07, 0x00],
            &[8, 8, 8, 8],
            "vpcmpeqb k0, ymm16, [rdi]",
        ),
        (&[0x48, 0x89, 0x00], &[], "mov [rax], rax"),
    ] {
        let (block, is_native) = valued(code);
        assert!(!is_native, "{text}");
        let after = block.entries.iter().filter(|entry| entry.ip == 0x1000);
        let staged = block.entries.iter().map(|entry| entry.staged.values());
        let most = staged.max_by_key(|values| values.size_hint().0);
        let found: Vec<u32> = most.into_iter().flatten().map(|(_, size)| size).collect();
        assert!(after.count() > 0 && found == sizes, "{text}: {found:?}");
    }
}
