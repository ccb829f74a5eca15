//! Blocks of a few instructions.
use super::*;
use crate::translate::event;

const AT: u64 = 0x2000_0000;
const WIDE: Style = Style {
    places: true,
    calls: false,
    since: 0,
    wide: true,
};

fn block(start: u64, code: &[u8]) -> Block {
    styled(start, code, Style::default())
}

fn styled(start: u64, code: &[u8], style: Style) -> Block {
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
        Style {
            places: true,
            ..style
        },
        &mut fetch,
    )
}

fn tells(block: &Block, event: Event) -> bool {
    block
        .places
        .iter()
        .any(|place| matches!(place.state, State::Done { event: Some(told), .. } if told == event))
}

#[test]
fn a_loop_without_packets_is_told_of_at_each_turn() {
    // inc edi; jmp back
    let turning = block(0x1000, &[0xff, 0xc7, 0xeb, 0xfc]);
    assert!(tells(&turning, Event::Turn(0x1002)));
    // sub rsp, 8; call itself
    let recursing = block(0x1000, &[0x48, 0x83, 0xec, 8, 0xe8, 0xf7, 0xff, 0xff, 0xff]);
    assert!(tells(&recursing, Event::Turn(0x1004)));
    // dec edi; jne back; ret
    let counting = block(0x1000, &[0xff, 0xcf, 0x75, 0xfc, 0xc3]);
    assert!(!tells(&counting, Event::Turn(0x1002)));
    assert!(tells(&counting, Event::Outcomes(0b10)));
}

#[test]
fn a_short_loop_is_unrolled_until_a_byte_is_full() {
    // dec edi; jne back; ret
    let counting = block(0x1000, &[0xff, 0xcf, 0x75, 0xfc, 0xc3]);
    assert!(tells(&counting, Event::Outcomes(0b111_1111)));
    assert!(tells(&counting, Event::Outcomes(0b111_1110)));
    let source: Vec<_> = counting.source.runs().collect();
    assert_eq!(source, [(0x1000, &[0xff, 0xcf, 0x75, 0xfc][..])]);
}

#[test]
fn a_call_by_way_of_a_jump_is_told_in_one() {
    let calling = |code: &[u8]| {
        let style = Style {
            calls: true,
            ..Style::default()
        };
        styled(0x1000, code, style)
    };
    let (outcomes, next, target) = (NO_OUTCOMES, 0x1005, 0);
    // call +0; endbr64; jmp [rip+0]
    let linked = calling(&[
        0xe8, 1, 0, 0, 0, 0x90, 0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0,
    ]);
    let both = Event::IndirectCall {
        outcomes,
        next,
        target,
    };
    assert!(tells(&linked, both));
    assert!(
        !linked
            .code
            .windows(4)
            .any(|bytes| bytes == [0x66, 0xc7, 0x01, event::CALL])
    );
    // call +1; nop; ret
    let direct = calling(&[0xe8, 1, 0, 0, 0, 0x90, 0x90, 0xc3]);
    assert!(tells(&direct, Event::Call { outcomes, next }));
}

#[test]
fn a_wide_block_tells_the_outcomes_of_a_side_with_what_comes_after() {
    // test edi, edi; je +3; inc eax; ret; test esi, esi; je -4 (back at inc eax); ret
    let code = [
        0x85, 0xff, 0x74, 3, 0xff, 0xc0, 0xc3, 0x85, 0xf6, 0x74, 0xf9, 0xc3,
    ];
    let target = 0;
    let returning = |outcomes| Event::Target { outcomes, target };
    let narrow = block(0x1000, &code);
    assert!(tells(&narrow, returning(0b10)) && tells(&narrow, Event::Outcomes(0b11)));
    let wide = styled(0x1000, &code, WIDE);
    for outcomes in [0b10, 0b110, 0b111] {
        assert!(tells(&wide, returning(outcomes)), "{outcomes:b}");
    }
    let alone = |place: &Place| {
        matches!(
            place.state,
            State::Done {
                event: Some(Event::Outcomes(_)),
                ..
            }
        )
    };
    assert!(!wide.places.iter().any(alone));
}

#[test]
fn however_a_program_branches_a_wide_block_has_an_end() {
    // je over itself, again and again
    let code = [0x74, 0].repeat(4000);
    let wide = styled(0x1000, &code, WIDE);
    assert!(wide.code.len() < 1 << 14, "{}", wide.code.len());
}

#[test]
fn every_byte_of_a_block_is_some_place() {
    // push rbx; test edi, edi; je +2; mov ebx, eax; call [rip+0x10]; pop rbx; ret
    let code = [
        0x53, 0x85, 0xff, 0x74, 2, 0x89, 0xc3, 0xff, 0x15, 0x10, 0, 0, 0, 0x5b, 0xc3,
    ];
    let block = block(0x1fff_0000, &code);
    assert_eq!(block.places[0].offset, 0);
    assert!(block.places.is_sorted_by_key(|place| place.offset));
    let source: Vec<_> = block.source.runs().collect();
    assert_eq!(source, [(0x1fff_0000, &code[..13])]);
    assert_eq!(
        block.place(0).map(|place| place.state),
        Some(State::Before(Saved::NONE))
    );
}

#[test]
fn what_cannot_be_read_or_reached_is_executed_where_it_stands() {
    let native = |block: &Block| {
        matches!(
            block.traps[..],
            [(
                _,
                Trap::Native {
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
