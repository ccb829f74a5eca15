//! Tests each rule of the call forest on synthetic histories.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

#[path = "forest/outline.rs"]
mod outline;
#[path = "forest/switches.rs"]
mod switches;

use backtrail_decoder::{Forest, Left, Watch};
use backtrail_pt::Avma;
use outline::{
    Back, Call, CallIndirect, Do, Gap, Interrupt, Jump, JumpIndirect, Layout, Ret, Run, Syscall, check,
    expect, history, outline,
};

#[test]
fn calls_and_returns_nest() {
    expect(
        &[
            Run(0x1000, 0x1001),
            Call(0x1002, 0x1100),
            Run(0x1100, 0x1101),
            Ret(0x1102),
            Run(0x1003, 0x1004),
        ],
        &[
            "0x1000 0..8 HistoryStart, HistoryEnd",
            "  0x1100 3..6 called by 2, Return",
        ],
    );
}

#[test]
fn return_below_the_root_adds_a_root() {
    expect(
        &[
            Run(0x1250, 0x1250),
            Ret(0x1251),
            Run(0x1110, 0x1110),
            Call(0x1111, 0x1200),
            Ret(0x1200),
            Ret(0x1112),
            Run(0x1010, 0x1011),
        ],
        &[
            "0x1010 0..8 Adopted, HistoryEnd",
            "  0x1110 0..6 Adopted, Return",
            "    0x1250 0..2 HistoryStart, Return",
            "    0x1200 4..5 called by 3, Return",
        ],
    );
}

#[test]
fn a_tail_call_shares_the_return() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Jump(0x1100, 0x1200),
            Run(0x1200, 0x1200),
            Ret(0x1201),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..5 HistoryStart, HistoryEnd",
            "  0x1100 1..4 called by 0, TailCall",
            "    0x1200 2..4 jumped to by 1, Return",
        ],
    );
}

#[test]
fn mutual_tail_calls_do_not_pile_up() {
    let mut steps = vec![Call(0x1000, 0x1100), Jump(0x1100, 0x1200)];
    for _ in 0..3 {
        steps.extend([Jump(0x1200, 0x1300), Jump(0x1300, 0x1200)]);
    }
    steps.extend([Ret(0x1200), Run(0x1001, 0x1001)]);
    let text = outline(&steps);
    let deepest = text
        .lines()
        .map(|line| line.len() - line.trim_start().len())
        .max();
    assert!(deepest <= Some(6), "{text}");
}

#[test]
fn cold_part_of_a_function_returns_to_it() {
    // 0x1200 is the cold part of 0x1100: a jump to it, and one back into the middle.
    expect(
        &[
            Call(0x1000, 0x1100),
            Jump(0x1100, 0x1200),
            Jump(0x1200, 0x1110),
            Ret(0x1110),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..5 HistoryStart, HistoryEnd",
            "  0x1100 1..4 called by 0, Return",
            "    0x1200 2..3 jumped to by 1, TailCall",
        ],
    );
}

#[test]
fn known_cold_part_is_no_call() {
    // 0x8200 is the cold part of 0x2200, which calls itself from there.
    let cold = [Jump(0x2200, 0x8210), Call(0x8210, 0x2200)];
    let back = [Ret(0x2210), Jump(0x8211, 0x2210)];
    let steps = [
        &[Call(0x1000, 0x2200)],
        &cold[..],
        &cold,
        &[Run(0x2200, 0x2201), Jump(0x2202, 0x2210)],
        &back,
        &back,
        &[Ret(0x2210), Run(0x1001, 0x1001)],
    ]
    .concat();
    expect(
        &steps,
        &[
            "0x1000 0..14 HistoryStart, HistoryEnd",
            "  0x2200 1..13 called by 0, Return",
            "    0x2200 3..11 called by 2, Return",
            "      0x2200 5..9 called by 4, Return",
        ],
    );
}

#[test]
fn a_direct_jump_ends_no_caller() {
    // 0x1200 is a part of 0x1100 without that information; the outer call of 0x1100 is in it.
    expect(
        &[
            Call(0x1000, 0x1100),
            Jump(0x1100, 0x1210),
            Call(0x1210, 0x1100),
            Jump(0x1100, 0x1220),
            Run(0x1220, 0x1220),
            Jump(0x1221, 0x1110),
            Ret(0x1110),
            Jump(0x1211, 0x1110),
            Ret(0x1110),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..10 HistoryStart, HistoryEnd",
            "  0x1100 1..9 called by 0, Return",
            "    0x1210 2..8 jumped to by 1, TailCall",
            "      0x1100 3..7 called by 2, Return",
            "        0x1220 4..6 jumped to by 3, TailCall",
        ],
    );
}

#[test]
fn linkage_stubs_become_the_function_they_jump_to() {
    expect(
        &[
            Call(0x1000, 0xf10),
            Run(0xf10, 0xf10),
            JumpIndirect(0xf11),
            Run(0x1100, 0x1100),
            Ret(0x1101),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..6 HistoryStart, HistoryEnd",
            "  0x1100 1..5 called by 0, Return",
        ],
    );
}

#[test]
fn lazy_resolver_becomes_the_resolved_function() {
    let resolve = [
        Call(0x1000, 0xf10),
        JumpIndirect(0xf10),
        Jump(0xf11, 0xf00),
        JumpIndirect(0xf00),
        Call(0xe00, 0x1500),
        Ret(0x1500),
    ];
    let rest = [Run(0x1100, 0x1100), Ret(0x1101), Run(0x1001, 0x1001)];
    for end in [JumpIndirect(0xe01), Ret(0xe01)] {
        let steps: Vec<Do> = resolve.into_iter().chain([end]).chain(rest).collect();
        expect(
            &steps,
            &[
                "0x1000 0..10 HistoryStart, HistoryEnd",
                "  0x1100 1..9 called by 0, Return",
                "    0x1500 5..6 called by 4, Return",
            ],
        );
    }
}

#[test]
fn a_signal_handler_is_a_call_of_the_kernel() {
    // The signal comes before 0x1001. The handler returns into the restorer, which calls
    // rt_sigreturn.
    expect(
        &[
            Run(0x1000, 0x1000),
            Interrupt(0x1001),
            Back(0x1700),
            Call(0x1700, 0x1800),
            Ret(0x1800),
            Ret(0x1701),
            Run(0x1900, 0x1900),
            Syscall(0x1901),
            Back(0x1001),
            Run(0x1001, 0x1002),
        ],
        &[
            "0x1000 0..8 HistoryStart, HistoryEnd",
            "  0x1700 1..6 signal at 0x1001, SignalReturn",
            "    0x1800 2..3 called by 1, Return",
        ],
    );
}

#[test]
fn signal_in_a_system_call_returns_after_or_onto_it() {
    for back in [0x1001, 0x1000] {
        expect(
            &[
                Syscall(0x1000),
                Back(0x1700),
                Ret(0x1700),
                Syscall(0x1900),
                Back(back),
                Run(back, 0x1001),
            ],
            &[
                &format!("0x1000 0..{} HistoryStart, HistoryEnd", 3 + 0x1002 - back),
                "  0x1700 1..3 signal at 0x1001, SignalReturn",
            ],
        );
    }
}

#[test]
fn resumed_interrupt_is_no_call() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Interrupt(0x1100),
            Back(0x1100),
            Ret(0x1100),
            Syscall(0x1001),
            Back(0x1002),
            Run(0x1002, 0x1002),
        ],
        &[
            "0x1000 0..4 HistoryStart, HistoryEnd",
            "  0x1100 1..2 called by 0, Return",
        ],
    );
}

#[test]
fn immediately_interrupted_handler_is_seen() {
    expect(
        &[
            Run(0x1000, 0x1000),
            Interrupt(0x1001),
            Back(0x1700),
            Interrupt(0x1700),
            Back(0x1700),
            Ret(0x1700),
            Syscall(0x1900),
            Back(0x1001),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..4 HistoryStart, HistoryEnd",
            "  0x1700 1..3 signal at 0x1001, SignalReturn",
        ],
    );
}

#[test]
fn history_starting_in_a_handler_returns_from_it() {
    // The handler itself is not in the history. It returns to the middle of a function, where no
    // handler starts.
    expect(
        &[
            Run(0x1700, 0x1700),
            Ret(0x1701),
            Syscall(0x1900),
            Back(0x1001),
            Run(0x1001, 0x1001),
            JumpIndirect(0x1002),
            Run(0x1110, 0x1110),
        ],
        &[
            "0x1900 0..3 Adopted, Unknown",
            "  0x1700 0..2 HistoryStart, Return",
            "0x1001 3..5 Unknown, Unknown",
            "0x1110 5..6 Unknown, HistoryEnd",
        ],
    );
}

#[test]
fn handler_returning_to_a_fault_has_ended() {
    let steps = [
        Call(0x1000, 0x1100),
        Interrupt(0x1100),
        Back(0x1700),
        Ret(0x1700),
        Syscall(0x1900),
        Back(0x1100),
        Interrupt(0x1100),
    ];
    expect(
        &steps,
        &[
            "0x1000 0..3 HistoryStart, HistoryEnd",
            "  0x1100 1..3 called by 0, HistoryEnd",
            "    0x1700 1..3 signal at 0x1100, SignalReturn",
        ],
    );
    let history = history(&steps);
    let forest = Forest::build(&history, &Layout, &Watch::none()).unwrap();
    let at = |index| forest.call_at(index).map(|call| forest.call(call).function);
    assert_eq!(at(2), Some(Avma(0x1700)));
    assert_eq!(at(3), Some(Avma(0x1100)));
}

#[test]
fn longjmp_unwinds_to_the_frame_of_its_target() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Call(0x1100, 0x1200),
            Call(0x1200, 0x1300),
            Run(0x1300, 0x1300),
            JumpIndirect(0x1301),
            Run(0x1120, 0x1120),
            Ret(0x1121),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..8 HistoryStart, HistoryEnd",
            "  0x1100 1..7 called by 0, Return",
            "    0x1200 2..5 called by 1, Unwound",
            "      0x1300 3..5 called by 2, Unwound",
        ],
    );
}

#[test]
fn an_exception_unwinds_to_the_frame_of_its_landing_pad() {
    // The unwinder reaches the landing pad by a return.
    expect(
        &[
            Call(0x1000, 0x1100),
            Call(0x1100, 0x1200),
            Call(0x1200, 0x1a00),
            Call(0x1a00, 0x1b00),
            Ret(0x1b00),
            Ret(0x1a01),
            Run(0x1140, 0x1140),
            Ret(0x1141),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..9 HistoryStart, HistoryEnd",
            "  0x1100 1..8 called by 0, Return",
            "    0x1200 2..6 called by 1, Unwound",
            "      0x1a00 3..6 called by 2, Unwound",
            "        0x1b00 4..5 called by 3, Return",
        ],
    );
}

#[test]
fn recursion_nests() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Call(0x1100, 0x1100),
            Call(0x1100, 0x1100),
            Ret(0x1100),
            Ret(0x1101),
            Ret(0x1101),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..7 HistoryStart, HistoryEnd",
            "  0x1100 1..6 called by 0, Return",
            "    0x1100 2..5 called by 1, Return",
            "      0x1100 3..4 called by 2, Return",
        ],
    );
}

#[test]
fn reading_the_own_address_is_no_call() {
    expect(
        &[
            Call(0x1000, 0x1001),
            Run(0x1001, 0x1001),
            Call(0x1002, 0x1100),
            Ret(0x1100),
            Run(0x1003, 0x1003),
        ],
        &[
            "0x1000 0..5 HistoryStart, HistoryEnd",
            "  0x1100 3..4 called by 2, Return",
        ],
    );
}

#[test]
fn retpoline_is_the_intended_call() {
    // 0x1400: call 0x1402; (capture); 0x1402: overwrite the return address; ret to 0x1100.
    expect(
        &[
            Call(0x1000, 0x1400),
            Call(0x1400, 0x1402),
            Run(0x1402, 0x1402),
            Ret(0x1403),
            Run(0x1100, 0x1100),
            Ret(0x1101),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..7 HistoryStart, HistoryEnd",
            "  0x1400 1..6 called by 0, TailCall",
            "    0x1402 2..4 called by 1, Return",
            "    0x1100 4..6 jumped to by 3, Return",
        ],
    );
}

#[test]
fn a_return_by_hand_is_a_return() {
    expect(
        &[
            CallIndirect(0x1000),
            Run(0x1100, 0x1100),
            JumpIndirect(0x1101),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..4 HistoryStart, HistoryEnd",
            "  0x1100 1..3 called by 0, Return",
        ],
    );
}

#[test]
fn missed_return_is_repaired_by_the_next() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Call(0x1100, 0x1200),
            Run(0x1200, 0x1200),
            Ret(0x1201),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..5 HistoryStart, HistoryEnd",
            "  0x1100 1..4 called by 0, Return",
            "    0x1200 2..4 called by 1, Unwound",
        ],
    );
}

#[test]
fn switch_to_an_unknown_stack_starts_a_root() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Ret(0x1100),
            Run(0x1310, 0x1310),
            Ret(0x1311),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..2 HistoryStart, Unknown",
            "  0x1100 1..2 called by 0, Unknown",
            "0x1001 2..5 Adopted, HistoryEnd",
            "  0x1310 2..4 Unknown, Return",
        ],
    );
}

#[test]
fn a_gap_starts_a_new_root() {
    expect(
        &[
            Call(0x1000, 0x1100),
            Run(0x1100, 0x1100),
            Gap,
            Back(0x1200),
            Run(0x1200, 0x1200),
            Ret(0x1201),
            Run(0x1005, 0x1005),
            Gap,
        ],
        &[
            "0x1000 0..2 HistoryStart, Gap",
            "  0x1100 1..2 called by 0, Gap",
            "0x1005 2..5 Adopted, Gap",
            "  0x1200 2..4 AfterGap, Return",
        ],
    );
}

#[test]
fn without_symbols_calls_and_returns_still_nest() {
    let history = history(&[
        Call(0x10, 0x100),
        Jump(0x100, 0x200),
        Run(0x200, 0x200),
        Ret(0x201),
        Run(0x11, 0x12),
    ]);
    let forest = Forest::build(&history, &(), &Watch::none()).unwrap();
    check(&forest, history.len());
    assert_eq!(forest.len(), 2);
    let call = forest.call(forest.call_at(2).unwrap());
    assert_eq!((call.first, call.end, call.left), (1, 4, Left::Return));
}

#[test]
fn an_empty_history_has_an_empty_forest() {
    let forest = Forest::build(&history(&[Gap]), &Layout, &Watch::none()).unwrap();
    assert!(forest.is_empty());
    assert_eq!((forest.call_at(0), forest.roots().count()), (None, 0));
}
