//! Tests coroutines: functions that switch to other stacks, and functions that resume there.

use crate::outline::{Call, JumpIndirect, Ret, Run, expect};

#[test]
fn stack_switch_keeps_suspended_calls_open() {
    // 0x1200 is swapcontext: it switches to the start of the function at 0x1300, and back to the
    // one at 0x1100.
    expect(
        &[
            Call(0x1000, 0x1100),
            Call(0x1100, 0x1200),
            Ret(0x1200),
            Call(0x1300, 0x1200),
            Ret(0x1200),
            Run(0x1101, 0x1101),
            Ret(0x1102),
            Run(0x1001, 0x1001),
        ],
        &[
            "0x1000 0..8 HistoryStart, HistoryEnd",
            "  0x1100 1..7 called by 0, Return",
            "    0x1200 2..5 called by 1, Return",
            "      0x1300 3..5 jumped to by 2, Unwound",
            "        0x1200 4..5 called by 3, Unwound",
        ],
    );
}

#[test]
fn suspended_function_resumes_inside_the_switching_call() {
    // 0x1200 switches: first to the coroutine at 0x1300, which calls 0x1400, which switches back;
    // later to 0x1400. Resumed, 0x1400 returns to 0x1300, which calls 0x1500 and switches back.
    expect(
        &[
            Call(0x1000, 0x1200),
            Ret(0x1200),
            Call(0x1300, 0x1400),
            Call(0x1400, 0x1200),
            Ret(0x1200),
            Call(0x1001, 0x1200),
            Ret(0x1200),
            Ret(0x1401),
            Call(0x1301, 0x1500),
            Ret(0x1500),
            Call(0x1302, 0x1200),
            Ret(0x1200),
            Run(0x1002, 0x1002),
        ],
        &[
            "0x1000 0..13 HistoryStart, HistoryEnd",
            "  0x1200 1..5 called by 0, Return",
            "    0x1300 2..5 jumped to by 1, Unwound",
            "      0x1400 3..5 called by 2, Unwound",
            "        0x1200 4..5 called by 3, Unwound",
            "  0x1200 6..12 called by 5, Return",
            "    0x1401 7..8 Resumed, Return",
            "    0x1301 8..12 Resumed, Unwound",
            "      0x1500 9..10 called by 8, Return",
            "      0x1200 11..12 called by 10, Unwound",
        ],
    );
}

#[test]
fn stack_can_be_switched_by_a_jump() {
    // 0x1200 loads the address from the other stack and jumps to it.
    expect(
        &[
            Call(0x1000, 0x1200),
            JumpIndirect(0x1200),
            Call(0x1300, 0x1200),
            JumpIndirect(0x1200),
            Call(0x1001, 0x1200),
            JumpIndirect(0x1200),
            Run(0x1301, 0x1301),
        ],
        &[
            "0x1000 0..7 HistoryStart, HistoryEnd",
            "  0x1200 1..4 called by 0, Return",
            "    0x1300 2..4 jumped to by 1, Unwound",
            "      0x1200 3..4 called by 2, Unwound",
            "  0x1200 5..7 called by 4, HistoryEnd",
            "    0x1301 6..7 Resumed, HistoryEnd",
        ],
    );
}

#[test]
fn only_suspended_functions_are_resumed() {
    expect(
        &[
            Call(0x1000, 0x1200),
            Ret(0x1200),
            Call(0x1300, 0x1400),
            Ret(0x1400),
            Run(0x1510, 0x1510),
        ],
        &[
            "0x1000 0..4 HistoryStart, Unknown",
            "  0x1200 1..4 called by 0, Unknown",
            "    0x1300 2..4 jumped to by 1, Unknown",
            "      0x1400 3..4 called by 2, Unknown",
            "0x1510 4..5 Unknown, HistoryEnd",
        ],
    );
}
