//! Properties of signatures that hold for every stack.

use super::tests::{abort, null_read, overflow, stack};
use super::*;
use crate::grouping::printable::is_printable;
use proptest::prelude::*;

/// Names of functions of libraries and of a program.
fn name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "raise",
        "abort",
        "__assert_fail",
        "rust_panic",
        "core::panicking::panic_fmt",
        "memcpy",
        "malloc",
        "_int_malloc",
        "std::vector<int>::at(unsigned long)",
        "core::option::Option<T>::unwrap",
        "<signal handler called>",
        "ledger::post(int)",
        "ledger::settle",
        "app::run",
        "main",
        "libgl.so+16",
        "libgl.so+32",
        "ledger.c#12",
    ])
}

fn cause() -> impl Strategy<Value = CrashCause> {
    proptest::sample::select(vec![
        null_read(),
        abort(None),
        abort(Some("panicked at a.rs:1:1:\nno 7")),
        overflow(),
    ])
}

fn frame() -> impl Strategy<Value = Frame> {
    let text = proptest::option::of("\\PC{0,40}|[\\x00-\\x7f]{0,300}|\\p{Cf}{0,9}");
    (
        text.clone(),
        text.clone(),
        text,
        any::<Option<u64>>(),
        any::<Option<u32>>(),
    )
        .prop_map(|(function, file, module, offset, line)| Frame {
            function,
            file,
            line,
            module,
            offset,
            ..Frame::default()
        })
}

proptest! {
    #[test]
    fn signature_is_deterministic(cause in cause(), names in proptest::collection::vec(name(), 0..60)) {
        let frames = stack(&names);
        let one = group(&cause, &frames, &RuleSet::default());
        prop_assert_eq!(&one, &group(&cause, &frames, &RuleSet::default()));
        prop_assert_eq!(one.decisions.len(), frames.len());
    }

    #[test]
    fn signature_is_short_and_printable(cause in cause(), frames in proptest::collection::vec(frame(), 0..50)) {
        let grouping = group(&cause, &frames, &RuleSet::default());
        prop_assert!(!grouping.signature.is_empty() && grouping.signature.len() <= MAX_SIGNATURE);
        prop_assert!(grouping.title.len() <= MAX_TITLE);
        prop_assert!(grouping.signature.chars().chain(grouping.title.chars()).all(is_printable));
        prop_assert!(grouping.decisions.iter().all(|frame| !frame.decision.sentence().is_empty()));
    }

    #[test]
    fn callers_of_the_end_do_not_matter(
        names in proptest::collection::vec(name(), 0..20),
        callers in proptest::collection::vec(name(), 0..60),
    ) {
        // Faults of the processor have no sentinel, which callers could move.
        let mut frames = stack(&names);
        frames.extend(stack(&["the_end"]));
        let short = group(&null_read(), &frames, &RuleSet::default());
        frames.extend(stack(&callers));
        let long = group(&null_read(), &frames, &RuleSet::default());
        prop_assert_eq!(short.signature, long.signature);
    }

    #[test]
    fn depth_of_a_recursion_does_not_matter(
        cause in cause(),
        leaf in proptest::collection::vec(name(), 0..4),
        cycle in proptest::collection::vec(name(), 1..5),
        times in 4..20_usize,
    ) {
        let build = |times: usize| {
            let mut names = leaf.clone();
            names.extend(cycle.repeat(times));
            names.push("outermost");
            group(&cause, &stack(&names), &RuleSet::default()).signature
        };
        prop_assert_eq!(build(times), build(times + 7));
    }

    #[test]
    fn phase_of_an_overflow_does_not_matter(period in 1..6_usize, phase in 0..6_usize) {
        let cycle: Vec<String> = (0..period).map(|at| format!("walk{}", char::from(b'a' + at as u8))).collect();
        let names: Vec<&str> = cycle.iter().map(String::as_str).cycle().skip(phase).take(120).collect();
        let grouping = group(&overflow(), &stack(&names), &RuleSet::default());
        let expected = format!("stack overflow | {}", cycle.join(" | "));
        prop_assert_eq!(grouping.signature, expected);
    }
}
