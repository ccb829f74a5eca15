//! Compares decode engines with each other and with the executed instructions.
//!
//! Random programs run under the recorder's engine `step`, which stores the list of instructions.
//! Each run is encoded as many different traces, and the traces are corrupted. From a valid trace,
//! each engine must decode the list. From any trace, all engines must decode the same.
//!
//! A failure names its case: `BACKTRAIL_CASE=1048577/3/1` runs only that case. `BACKTRAIL_TRACES`
//! (10000) is the number of traces of the long test, and `BACKTRAIL_SEED` (1) selects them.
//! `BACKTRAIL_LEVEL` (`events`; `flow`, `offsets`, `times`, `all`) is the level of comparison.
//! `BACKTRAIL_CPU` (such as `6/78/3`) names a processor whose errata are worked around. The
//! executed instructions are not compared then.

mod assembler;
mod broken;
mod compare;
mod elf;
mod encode;
mod minimise;
mod mutate;
mod program;
mod report;
mod resync;
mod run;
mod trials;
mod units;
mod watch;

use backtrail_decoder::{Event, GapCause};
use backtrail_pt::Cofi;
use broken::Broken;
use compare::{Item, Level, Recording};
use encode::Expected;
use trials::{Case, check, engines, level, number, try_many, try_named};

/// The number of traces of the short test.
const USUAL: u64 = 240;

#[test]
fn engines_agree() {
    if !try_named(&engines(), level()) {
        try_many(USUAL, &engines(), level());
    }
}

#[test]
#[ignore = "tens of thousands of traces: cargo xtask test-all"]
fn engines_agree_on_many_traces() {
    try_many(number("BACKTRAIL_TRACES").unwrap_or(10_000), &engines(), level());
}

/// The generated traces cover every kind of packet and event.
#[test]
fn generated_traces_cover_every_case() {
    let mut missing: Vec<&str> = vec![
        "conditional",
        "jump",
        "call",
        "indirect jump",
        "indirect call",
        "return",
        "far transfer",
        "enabled",
        "disabled",
        "disabled to",
        "interrupted",
        "branched",
        "overflow",
        "ptwrite",
        "time",
        "lost",
        "no code",
        "all",
        "beginning",
        "end",
        "agreement",
    ];
    for case in some_cases() {
        let trace = case.trace();
        let mut seen: Vec<&str> = Recording::of(engines()[0], &trace)
            .items
            .iter()
            .map(kind)
            .collect();
        seen.push(match trace.expected {
            Expected::All(_) => "all",
            Expected::Beginning(_) => "beginning",
            Expected::End(_) => "end",
            Expected::Agreement => "agreement",
        });
        missing.retain(|kind| !seen.contains(kind));
    }
    assert_eq!(missing, [""; 0]);
}

fn kind(item: &Item) -> &'static str {
    match item {
        Item::Panic(_) => "panic",
        Item::Instruction { cofi, .. } => match cofi {
            Cofi::Sequential => "sequential",
            Cofi::Conditional { .. } => "conditional",
            Cofi::Jump { .. } => "jump",
            Cofi::Call { .. } => "call",
            Cofi::IndirectJump => "indirect jump",
            Cofi::IndirectCall => "indirect call",
            Cofi::Return => "return",
            Cofi::FarTransfer => "far transfer",
        },
        Item::Event(event) => match event {
            Event::Sync { .. } | Event::FlowBegins { .. } => "place",
            Event::Enabled { .. } => "enabled",
            Event::Disabled { from: Some(_), .. } => "interrupted",
            Event::Disabled { to: Some(_), .. } => "disabled to",
            Event::Disabled { .. } => "disabled",
            Event::Branched { .. } => "branched",
            Event::Overflow { .. } => "overflow",
            Event::Ptwrite { .. } => "ptwrite",
            Event::Cpu(_) => "cpu",
            Event::Time(_) => "time",
            Event::Lost {
                cause: GapCause::LostCode { .. },
                ..
            } => "no code",
            Event::Lost { .. } => "lost",
            _ => "other event",
        },
    }
}

/// Returns cases for the broken engines.
fn some_cases() -> impl Iterator<Item = Case> {
    (0..60).map(|at| Case {
        program: 1 + at % 4,
        encoding: at / 4,
        mutation: at % 3,
    })
}

#[test]
fn a_broken_engine_is_found() {
    for (broken, level, told) in [
        (&Broken::Instruction, Level::Flow, "instructions"),
        (&Broken::Outcome, Level::Flow, "tnt.short"),
        (&Broken::Place, Level::Flow, "Lost"),
        (&Broken::Ptwrite, Level::Events, "Ptwrite"),
        (&Broken::Time, Level::Times, "Time"),
        (&Broken::Panic, Level::Flow, "panic: as told"),
    ] {
        let case = some_cases().find(|case| {
            let trace = case.trace();
            let sound = trials::unexpected(engines()[0], &trace).is_none();
            assert!(sound, "{case}");
            report::differ(engines()[0], broken, &trace, level).is_some()
        });
        let trace = case.unwrap().trace();
        let text = report::check(engines()[0], broken, &trace, level).unwrap();
        assert!(text.contains(told), "{broken:?}: {text}");
        // A lower level does not see the error.
        if let Some(below) = Level::ALL.into_iter().filter(|&below| below < level).max() {
            let differ = report::differ(engines()[0], broken, &trace, below);
            assert_eq!(differ, None, "{broken:?}");
        }
    }
}

#[test]
fn unexecuted_instructions_are_detected() {
    let sound = |case: &Case| matches!(case.trace().expected, Expected::All(_));
    let cases: Vec<Case> = some_cases().filter(sound).take(5).collect();
    assert!(!cases.is_empty());
    for case in cases {
        let failure = check(case, &[&Broken::Instruction], Level::Flow, |_| false);
        assert!(failure.is_some(), "{case}");
    }
}
