//! Frames of code that compilers write, before each of its instructions.

use super::*;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

/// Returns the layout after all instructions of some code.
fn layout_after(code: &[u8]) -> Layout {
    let (mut layout, mut info) = (Layout::at_entry(), InstructionInfoFactory::new());
    for instruction in &mut Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE) {
        let operation = Operation::of(&instruction, &mut info);
        layout.step(&operation).unwrap();
    }
    layout
}

/// Register and offset that the frame's address is found by, and the rule for a register.
fn rules(layout: &Layout, register: u16) -> ((u16, i64), RegisterRule) {
    let row = layout.row().unwrap();
    let CfaRule::Register {
        register: from,
        offset,
    } = row.cfa.clone()
    else {
        panic!("an expression")
    };
    assert_eq!(row.rule(PC), Some(&RegisterRule::Offset(-8)));
    ((from, offset), row.rule(register).unwrap().clone())
}

const RBX: u16 = 3;
/// push %rbp; mov %rsp,%rbp
const FRAME: &[u8] = &[0x55, 0x48, 0x89, 0xe5];

#[test]
fn at_its_entry_a_function_has_changed_nothing() {
    assert_eq!(
        rules(&layout_after(&[]), RBX),
        ((RSP, 8), RegisterRule::SameValue)
    );
}

#[test]
fn pushed_registers_are_on_the_stack_until_they_are_popped() {
    // push %rbx; sub $16,%rsp
    let saved = [0x53, 0x48, 0x83, 0xec, 0x10];
    assert_eq!(
        rules(&layout_after(&saved), RBX),
        ((RSP, 32), RegisterRule::SameValue)
    );
    // mov %edi,%ebx
    let used = [&saved[..], &[0x89, 0xfb]].concat();
    assert_eq!(
        rules(&layout_after(&used), RBX),
        ((RSP, 32), RegisterRule::Offset(-16))
    );
    // add $16,%rsp; pop %rbx
    let back = [&used[..], &[0x48, 0x83, 0xc4, 0x10, 0x5b]].concat();
    assert_eq!(
        rules(&layout_after(&back), RBX),
        ((RSP, 8), RegisterRule::SameValue)
    );
}

#[test]
fn a_frame_pointer_finds_what_the_stack_pointer_does_not() {
    // and $-32,%rsp
    let aligned = [FRAME, &[0x48, 0x83, 0xe4, 0xe0]].concat();
    assert_eq!(
        rules(&layout_after(&aligned), RBP),
        ((RBP, 16), RegisterRule::Offset(-16))
    );
    // leave
    let left = [&aligned[..], &[0xc9]].concat();
    assert_eq!(
        rules(&layout_after(&left), RBP),
        ((RSP, 8), RegisterRule::SameValue)
    );
}

#[test]
fn a_register_saved_by_a_move_is_found_until_it_is_written_over() {
    // mov %rbx,-8(%rbp); xor %ebx,%ebx
    let saved = [FRAME, &[0x48, 0x89, 0x5d, 0xf8, 0x31, 0xdb]].concat();
    assert_eq!(rules(&layout_after(&saved), RBX).1, RegisterRule::Offset(-24));
    // movl $1,-4(%rbp), into its upper half
    let over = [&saved[..], &[0xc7, 0x45, 0xfc, 1, 0, 0, 0]].concat();
    assert_eq!(rules(&layout_after(&over), RBX).1, RegisterRule::Undefined);
    // movl $1,-12(%rbp), below it
    let below = [&saved[..], &[0xc7, 0x45, 0xf4, 1, 0, 0, 0]].concat();
    assert_eq!(rules(&layout_after(&below), RBX).1, RegisterRule::Offset(-24));
}

#[test]
fn a_register_copy_is_used_while_calls_preserve_it() {
    // mov %rbx,%r12; xor %ebx,%ebx
    let mut layout = layout_after(&[0x49, 0x89, 0xdc, 0x31, 0xdb]);
    layout.called();
    assert_eq!(rules(&layout, RBX).1, RegisterRule::Register(12));
    // mov %rbx,%rcx; xor %ebx,%ebx
    let mut layout = layout_after(&[0x48, 0x89, 0xd9, 0x31, 0xdb]);
    layout.called();
    assert_eq!(rules(&layout, RBX).1, RegisterRule::Undefined);
}

#[test]
fn no_rules_without_the_stack_pointer_or_a_copy() {
    // mov %rdi,%rsp: another stack
    assert_eq!(layout_after(&[0x48, 0x89, 0xfc]).row(), None);
    // pushfq; popfq; push $1; call next
    let pushed = [0x9c, 0x9d, 0x6a, 1, 0xe8, 0, 0, 0, 0];
    assert_eq!(rules(&layout_after(&pushed), RBX).0, (RSP, 24));
    // push %bx, of 16 bits
    assert_eq!(rules(&layout_after(&[0x66, 0x53]), RBX).0, (RSP, 10));
}
