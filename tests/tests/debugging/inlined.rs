//! Breakpoints on functions that exist only as inlined copies, in both directions.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;

/// Loads for three nodes of the first list and three of the second, before the crash at the fourth.
const LOADS: usize = 6;
/// One list of three nodes, and one of four.
const LISTS: usize = 2;
/// How often `continue` is typed, which is more often than there are hits.
const CONTINUES: usize = 30;

fn inlined() -> Bundle {
    Bundle::recorded(find("inlined").unwrap(), Variant::Static, &["--full"]).0
}

/// Returns the positions where `verb` stops at a breakpoint on `function`, each with its stack, and
/// the reason of the last stop.
fn hits(bundle: &Bundle, function: &str, from: &str, verb: &str) -> (Vec<(String, Value)>, Value) {
    let set = format!("break {function}");
    let mut commands = vec![&*set, from];
    commands.extend([verb, "backtrace"].repeat(CONTINUES));
    let answers = bundle.answers(&commands);
    let mut found = Vec::new();
    for pair in answers[2..].chunks(2) {
        let [stop, stack] = pair else { unreachable!() };
        let (stop, stack) = (&stop["result"], &stack["result"]);
        if stop["reason"] != "breakpoint" {
            return (found, stop["reason"].clone());
        }
        let position = stop["place"]["position"].as_str().unwrap();
        found.push((position.to_owned(), stack["frames"].clone()));
    }
    panic!("{function} is hit more than {CONTINUES} times");
}

#[test]
fn inlined_function_is_hit_the_same_in_both_directions() {
    let bundle = inlined();
    for (function, least) in [
        ("load", LOADS),
        ("visit", LOADS),
        ("walk", LISTS),
        ("total", LISTS),
    ] {
        let (forward, end) = hits(&bundle, function, "goto start", "continue");
        let (mut backward, start) = hits(&bundle, function, "goto end", "reverse-continue");
        backward.reverse();
        assert_eq!(forward, backward, "{function}");
        assert_eq!(
            (end.as_str(), start.as_str()),
            (Some("history_end"), Some("history_start"))
        );
        // The compiler may put other code inside a copy, which is then entered again.
        assert!(forward.len() >= least, "{function}: {}", forward.len());
        for (position, stack) in &forward {
            let frames = stack.as_array().unwrap();
            let copies = frames.iter().take_while(|frame| frame["inlined"] == true);
            let names: Vec<_> = copies.map(|frame| &frame["function"]).collect();
            assert!(
                names.iter().any(|name| *name == function),
                "{position}: {names:?}"
            );
        }
    }
}

/// The copy is a single instruction, so no other code can be inside.
#[test]
fn inlined_copy_of_one_instruction_is_hit_per_execution() {
    let (hits, _) = hits(&inlined(), "load", "goto start", "continue");
    assert_eq!(hits.len(), LOADS);
    for (position, stack) in hits {
        let inlined = ["load", "visit", "walk", "total"];
        for (number, name) in inlined.into_iter().enumerate() {
            assert_eq!(
                (&stack[number]["function"], &stack[number]["inlined"]),
                (&name.into(), &true.into())
            );
        }
        assert_eq!(stack[inlined.len()]["inlined"], false, "{position}");
    }
}
