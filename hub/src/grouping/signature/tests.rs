//! Signatures of stacks of real programs.

use super::*;
use crate::grouping::cause::{Access, CrashFacts};
use std::str::FromStr;

/// Builds frames from names. `lib.so+12` is a frame without symbols, `file.c#3` has no function.
pub(super) fn stack(names: &[&str]) -> Vec<Frame> {
    names
        .iter()
        .map(|name| {
            let mut frame = Frame {
                module: Some("/srv/bank/ledger".to_owned()),
                build_id: Some("a1b2c3d4e5f6".to_owned()),
                ..Frame::default()
            };
            if let Some((module, offset)) = name.split_once(".so+") {
                frame.module = Some(format!("/usr/lib/{module}.so"));
                frame.offset = Some(u64::from_str(offset).unwrap());
            } else if let Some((file, line)) = name.split_once('#') {
                frame.file = Some(format!("/src/{file}"));
                frame.line = Some(u32::from_str(line).unwrap());
            } else {
                frame.function = Some((*name).to_owned());
            }
            frame
        })
        .collect()
}

pub(super) fn null_read() -> CrashCause {
    CrashCause::of(&CrashFacts {
        signal: 11,
        code: 1,
        fault_address: Some(0x18),
        access: Some(Access::Read),
        ..CrashFacts::default()
    })
}

pub(super) fn abort(message: Option<&str>) -> CrashCause {
    CrashCause::of(&CrashFacts {
        signal: 6,
        code: -6,
        message,
        ..CrashFacts::default()
    })
}

pub(super) fn overflow() -> CrashCause {
    CrashCause::of(&CrashFacts {
        signal: 11,
        code: 1,
        fault_address: Some(0x7ffd_0000_0ff8),
        stack_pointer: Some(0x7ffd_0000_1000),
        ..CrashFacts::default()
    })
}

fn signature(cause: &CrashCause, names: &[&str]) -> String {
    group(cause, &stack(names), &RuleSet::default()).signature
}

#[test]
fn function_of_the_program_ends_the_signature() {
    let names = ["ledger::post(Account*)", "ledger::run()", "main"];
    assert_eq!(
        signature(&null_read(), &names),
        "SIGSEGV null read | ledger::post"
    );
}

#[test]
fn library_functions_are_prefixes() {
    let names = ["__memcpy_avx_unaligned_erms", "ledger::copy(char*)", "main"];
    assert_eq!(
        signature(&null_read(), &names),
        "SIGSEGV null read | memcpy | ledger::copy"
    );
}

#[test]
fn only_the_outermost_function_of_a_library_counts() {
    let names = [
        "std::_Hashtable<int>::_M_find_before_node(unsigned long)",
        "std::_Hashtable<int>::find(int const&)",
        "std::unordered_map<int, int>::at(int const&)",
        "ledger::rate(int)",
    ];
    assert_eq!(
        signature(&null_read(), &names),
        "SIGSEGV null read | std::unordered_map<T>::at | ledger::rate"
    );
    let names = [
        "_int_malloc",
        "malloc",
        "operator new(unsigned long)",
        "ledger::open()",
    ];
    assert_eq!(
        signature(&null_read(), &names),
        "SIGSEGV null read | operator new | ledger::open"
    );
}

#[test]
fn assertion_starts_at_its_caller() {
    let names = [
        "__pthread_kill_implementation",
        "__GI_raise",
        "__GI_abort",
        "__assert_fail_base.cold",
        "__assert_fail",
        "post",
        "main",
    ];
    assert_eq!(signature(&abort(None), &names), "SIGABRT assert | post");
}

#[test]
fn rust_panic_starts_at_its_caller() {
    let message =
        "thread 'main' panicked at src/a.rs:3:5:\nindex out of bounds: the len is 3 but the index is 9";
    let names = [
        "__pthread_kill_implementation",
        "raise",
        "abort",
        "std::sys::pal::unix::abort_internal",
        "std::process::abort",
        "__rust_start_panic",
        "rust_panic",
        "std::panicking::rust_panic_with_hook",
        "std::panicking::begin_panic_handler::{{closure}}",
        "std::sys::backtrace::__rust_end_short_backtrace",
        "rust_begin_unwind",
        "core::panicking::panic_fmt",
        "core::panicking::panic_bounds_check",
        "<usize as core::slice::index::SliceIndex<[T]>>::index",
        "<alloc::vec::Vec<T,A> as core::ops::index::Index<I>>::index",
        "ledger::rate",
        "main",
    ];
    let grouping = group(&abort(Some(message)), &stack(&names), &RuleSet::default());
    assert_eq!(
        grouping.signature,
        "SIGABRT panic: index out of bounds: the len is <n> but the index is <n> | <alloc::vec::Vec<T> as core::ops::index::Index<T>>::index | ledger::rate"
    );
    assert!(grouping.title.ends_with(" in ledger::rate"), "{}", grouping.title);
}

#[test]
fn outermost_functions_of_a_rust_thread_are_no_sentinel() {
    let names = [
        "raise",
        "abort",
        "ledger_check",
        "std::panicking::try::do_call",
        "std::panicking::try",
        "start_thread",
    ];
    assert_eq!(signature(&abort(None), &names), "SIGABRT | ledger_check");
}

#[test]
fn exception_without_memory_is_out_of_memory() {
    let names = [
        "raise",
        "abort",
        "__gnu_cxx::__verbose_terminate_handler()",
        "__cxxabiv1::__terminate(void (*)())",
        "std::terminate()",
        "__cxa_throw",
        "std::__throw_bad_array_new_length()",
        "std::vector<int>::reserve(unsigned long)",
        "ledger::load()",
    ];
    assert_eq!(
        signature(&abort(None), &names),
        "out of memory | std::vector<T>::reserve | ledger::load"
    );
}

#[test]
fn handler_that_raises_again_is_dropped() {
    let names = [
        "raise",
        "app::on_crash(int)",
        "<signal handler called>",
        "ledger::post(int)",
        "main",
    ];
    assert_eq!(signature(&abort(None), &names), "SIGABRT | ledger::post");
    // A defect within a handler is the handler's.
    let names = [
        "app::on_alarm(int)",
        "<signal handler called>",
        "ledger::post(int)",
    ];
    assert_eq!(
        signature(&null_read(), &names),
        "SIGSEGV null read | app::on_alarm"
    );
}

#[test]
fn fault_while_a_panic_unwinds_is_no_panic() {
    let names = [
        "<ledger::Book as core::ops::drop::Drop>::drop",
        "core::ptr::drop_in_place<ledger::Book>",
        "rust_panic",
        "core::panicking::panic_fmt",
        "ledger::rate",
    ];
    assert_eq!(
        signature(&null_read(), &names),
        "SIGSEGV null read | <ledger::Book as core::ops::drop::Drop>::drop"
    );
}

#[test]
fn stack_overflow_is_named_by_its_recursion() {
    let expected = "stack overflow | parse_expr | parse_term";
    for leaf in [&[][..], &["memcpy"], &["parse_term"]] {
        let mut names = leaf.to_vec();
        names.extend(["parse_expr", "parse_term"].repeat(60));
        names.push("main");
        assert_eq!(signature(&overflow(), &names), expected, "{leaf:?}");
    }
    // A recursion without a period is named by the most frequent function.
    let mut names = Vec::new();
    let mut seed = 7_u32;
    for _ in 0..20 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        names.push("walk");
        names.extend(["left", "right"].iter().skip((seed >> 16) as usize % 3));
    }
    assert_eq!(signature(&overflow(), &names), "stack overflow | walk");
}

#[test]
fn stack_overflow_without_recursion_is_named_by_its_frame() {
    assert_eq!(
        signature(&overflow(), &["big_frame", "main"]),
        "stack overflow | big_frame"
    );
}

#[test]
fn modules_without_symbols_are_named_once() {
    let names = [
        "libgl.so+16",
        "libgl.so+32",
        "libx.so+8",
        "ledger::draw()",
        "main",
    ];
    let grouping = group(&null_read(), &stack(&names), &RuleSet::default());
    assert_eq!(
        grouping.signature,
        "SIGSEGV null read | libgl.so | libx.so | ledger::draw"
    );
    assert!(!grouping.provisional);
}

#[test]
fn stack_without_functions_is_provisional() {
    let names = ["memcpy", "ledger.so+4612", "ledger.so+5120", "__libc_start_main"];
    let grouping = group(&null_read(), &stack(&names), &RuleSet::default());
    assert_eq!(
        grouping.signature,
        "SIGSEGV null read | memcpy | ledger.so@a1b2c3d4+0x1204 | ledger.so@a1b2c3d4+0x1400"
    );
    assert_eq!(grouping.title, "SIGSEGV null read in ledger.so@a1b2c3d4+0x1204");
    assert!(grouping.provisional);
}

#[test]
fn line_names_a_frame_without_a_function() {
    assert_eq!(
        signature(&null_read(), &["ledger.c#42", "main"]),
        "SIGSEGV null read | ledger.c#42"
    );
}

#[test]
fn empty_and_trivial_stacks_have_a_signature() {
    let grouping = group(&abort(None), &[], &RuleSet::default());
    assert_eq!((&*grouping.signature, &*grouping.title), ("SIGABRT", "SIGABRT"));
    assert_eq!(signature(&abort(None), &["raise", "abort"]), "SIGABRT | raise");
    assert_eq!(
        signature(&abort(None), &["raise", "abort", "__assert_fail", "_start"]),
        "SIGABRT assert | __assert_fail"
    );
}

#[test]
fn rules_ignore_and_group_frames() {
    let rules = RuleSet::parse(
        "ignore app::check*\nignore-up-to app::fail\ngroup-by module:libgl.so as Graphics driver\n",
    )
    .unwrap();
    let names = [
        "app::log()",
        "app::fail()",
        "app::check_all()",
        "ledger::post()",
        "main",
    ];
    let grouping = group(&abort(None), &stack(&names), &rules);
    assert_eq!(grouping.signature, "SIGABRT | ledger::post");
    assert_eq!(grouping.decisions[0].decision, Decision::IgnoredUpTo { rule: 2 });
    assert_eq!(grouping.decisions[2].decision, Decision::Ignored { rule: 1 });
    let names = ["memcpy", "libgl.so+16", "ledger::draw()"];
    let grouping = group(&null_read(), &stack(&names), &rules);
    assert_eq!(
        (&*grouping.signature, &*grouping.title),
        ("Graphics driver", "Graphics driver")
    );
    assert_eq!(grouping.decisions[1].decision, Decision::GroupedBy { rule: 3 });
}

#[test]
fn group_by_without_a_name_keeps_the_cause() {
    let rules = RuleSet::parse("group-by ledger::run").unwrap();
    let names = ["ledger::post()", "ledger::run()", "main"];
    let grouping = group(&null_read(), &stack(&names), &rules);
    assert_eq!(grouping.signature, "SIGSEGV null read | ledger::run");
}

#[test]
fn every_frame_has_one_decision() {
    let names = ["raise", "abort", "__assert_fail", "memcpy", "post", "main"];
    let grouping = group(&abort(None), &stack(&names), &RuleSet::default());
    let labels: Vec<&str> = grouping
        .decisions
        .iter()
        .map(|frame| frame.decision.label())
        .collect();
    assert_eq!(
        labels,
        [
            "before start",
            "before start",
            "sentinel",
            "kept: prefix",
            "kept: end",
            "after end"
        ]
    );
    assert_eq!(grouping.kept().count(), 2);
}

#[test]
fn group_id_depends_on_service_and_signature() {
    let one = group(&null_read(), &stack(&["post"]), &RuleSet::default());
    let two = group(&null_read(), &stack(&["settle"]), &RuleSet::default());
    let id = group_id("ledger", &one);
    assert!(
        id.len() == 20 && id.bytes().all(|byte| DIGITS.contains(&byte)),
        "{id}"
    );
    assert_eq!(id, group_id("ledger", &one.clone()));
    assert_ne!(id, group_id("ledger", &two));
    assert_ne!(id, group_id("billing", &one));
    // The identifier is stored: another computation would split each group.
    for (version, expected) in [
        (Version::V1, "zcnzn90302xpfct5ngv7"),
        (Version::V2, "khd4fzy4zbyf1849chtw"),
    ] {
        let grouping = group_with(version, &null_read(), &stack(&["post"]), &RuleSet::default());
        assert_eq!(group_id("ledger", &grouping), expected);
    }
}

#[test]
fn grouping_survives_json_and_unknown_versions_are_refused() {
    let grouping = group(&null_read(), &stack(&["memcpy", "post"]), &RuleSet::default());
    let text = serde_json::to_string(&grouping).unwrap();
    assert_eq!(serde_json::from_str::<Grouping>(&text).unwrap(), grouping);
    assert_eq!(
        Version::try_from(7).unwrap_err().to_string(),
        "grouping version 7 is unknown to this hub: use a newer hub"
    );
}

#[test]
fn wild_pointer_has_one_cause_in_the_second_version() {
    let fault = |code, fault_address| {
        let cause = CrashCause::of(&CrashFacts {
            signal: 11,
            code,
            fault_address,
            ..CrashFacts::default()
        });
        let find = |version| group_with(version, &cause, &stack(&["post"]), &RuleSet::default()).signature;
        (find(Version::V1), find(Version::V2))
    };
    let unmapped = fault(1, Some(0x7000_0000_0000));
    let no_address = fault(128, None);
    assert_eq!(unmapped.0, unmapped.1);
    assert_eq!(no_address.0, "SIGSEGV general protection | post");
    assert_eq!(no_address.1, "SIGSEGV invalid access | post");
    assert_eq!(no_address.1, unmapped.1);
}

#[test]
fn reporter_is_kept_with_its_caller_in_the_second_version() {
    let find = |version, cause: &CrashCause, names: &[&str]| {
        let grouping = group_with(version, cause, &stack(names), &RuleSet::default());
        (grouping.signature, grouping.title)
    };
    let names = ["raise", "abort", "app::fail", "memcpy", "ledger::post", "main"];
    let (signature, title) = find(Version::V1, &abort(None), &names);
    assert_eq!(
        (&*signature, &*title),
        ("SIGABRT | app::fail", "SIGABRT in app::fail")
    );
    let (signature, title) = find(Version::V2, &abort(None), &names);
    assert_eq!(signature, "SIGABRT | app::fail | memcpy | ledger::post");
    assert_eq!(title, "SIGABRT in ledger::post");
    // The one that reports is not always the last one: what a sentinel reports ends at its caller.
    let asserted = ["raise", "abort", "__assert_fail", "ledger::post", "main"];
    assert_eq!(
        find(Version::V2, &abort(None), &asserted).0,
        "SIGABRT assert | ledger::post"
    );
    // A fault of the processor has no reporter.
    let fault = ["abort", "app::fail", "ledger::post"];
    assert_eq!(
        find(Version::V2, &null_read(), &fault),
        find(Version::V1, &null_read(), &fault)
    );
    // Nothing is known beyond the reporter.
    let (signature, _) = find(Version::V2, &abort(None), &["abort", "main", "__libc_start_main"]);
    assert_eq!(signature, "SIGABRT | main");
    let names = ["abort", "app::fail", "lib.so+12"];
    let grouping = group_with(Version::V2, &abort(None), &stack(&names), &RuleSet::default());
    assert_eq!(
        (&*grouping.signature, grouping.provisional),
        ("SIGABRT | app::fail | lib.so", false)
    );
}

#[test]
fn versions_have_numbers_and_differences() {
    for version in Version::ALL {
        assert_eq!(Version::try_from(version.number()), Ok(*version));
        assert_eq!(version.differences().is_empty(), *version == Version::V1);
    }
    assert!(Version::try_from(99).is_err());
}
