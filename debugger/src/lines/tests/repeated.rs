//! Loops on one line, which are passed by a search.

use super::*;

/// Iterations of a loop: more instructions than are walked over.
const MANY: usize = 5000;

/// Returns a history with long loops on the line of 0x107. A call on the same line is in the middle
/// of one of them.
fn loops() -> ExpectedTrace {
    let again: [(u64, u32, u32); 2] = [(0x107, 0, 3), (0x10f, 0, 3)];
    let mut executed = vec![MAIN_ENTRY];
    executed.extend(again.repeat(MANY));
    executed.push((0x110, 0, 4));
    executed.extend(again.repeat(MANY));
    executed.extend([(0x101, 0, 3), (0x200, 0, 3), (0x201, 0, 3), (0x106, 0, 3)]);
    executed.extend(again.repeat(MANY));
    executed.push((0x111, 0, 5));
    trace(&executed)
}

#[test]
fn long_loops_on_one_line_are_one_start() {
    let trace = loops();
    let starts = trace.starts();
    let first = 2 * MANY as u64;
    // The call is a start, and the line goes on after it.
    assert_eq!(starts, [0, 1, first + 1, first + 2, 2 * first + 3, 3 * first + 6]);
    trace.with(|lines| {
        let len = lines.history.len();
        for from in [
            len,
            len - 1,
            len - 2,
            2 * first + 5,
            2 * first + 3,
            first + 2,
            first + 1,
            9,
            1,
            0,
        ] {
            let before = starts.iter().rev().copied().find(|&start| start < from);
            assert_eq!(lines.previous_start(from, 0).unwrap(), before, "before {from}");
        }
        // A gap ends in the middle of the first loop: the line begins there.
        let limit = first / 2;
        let found = lines.previous_start(first, limit).unwrap();
        assert_eq!(found, lines.is_start(limit).unwrap().then_some(limit));
    });
}
