//! The rule by which the flow resumes at the next address ([`Resync::NextAddress`]). libipt 2.1
//! does not have it, so results are compared with the executed instructions.

use crate::engines::assembler::Segment;
use crate::engines::compare::{Item, Recording, image};
use crate::engines::encode::{self, Cut, Expected, Style, Trace};
use crate::engines::run;
use crate::engines::trials::Case;
use backtrail_decoder::engine::native::Native;
use backtrail_decoder::{Config, Decoder, Event, GapCause, History, Input, Resync, UncompressedReturns};
use backtrail_pt::Tid;
use backtrail_tests::random::Random;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The default rules.
fn rules(trace: &Trace) -> Config {
    Config {
        uncompressed_returns: UncompressedReturns::Pop,
        resync: Resync::NextAddress,
        ..trace.config.clone()
    }
}

fn cases(programs: u64, encodings: u64, mutations: u64) -> impl Iterator<Item = Case> {
    let number = move |at: u64| Case {
        program: 1 + at % programs,
        encoding: at / programs % encodings,
        mutation: at / programs / encodings,
    };
    (0..programs * encodings * (mutations + 1)).map(number)
}

/// Returns the executed stretches between losses, and the causes of the losses.
fn stretches(recording: &Recording) -> (Vec<Vec<u64>>, Vec<&GapCause>) {
    let (mut stretches, mut causes) = (vec![Vec::new()], Vec::new());
    for item in &recording.items {
        match item {
            Item::Instruction { at, .. } => stretches.last_mut().unwrap().push(at.0),
            Item::Event(Event::Lost { cause, .. }) => {
                causes.push(cause);
                stretches.push(Vec::new());
            }
            Item::Event(_) => {}
            Item::Panic(panic) => panic!("{panic}"),
        }
    }
    (stretches, causes)
}

/// Returns whether the stretches occur in a list, each as a whole and in this order.
fn occur_in(stretches: &[Vec<u64>], mut golden: &[u64]) -> bool {
    stretches
        .iter()
        .filter(|stretch| !stretch.is_empty())
        .all(|stretch| {
            let found = golden.windows(stretch.len()).position(|window| window == stretch);
            golden = found.map_or(&[], |at| &golden[at + stretch.len()..]);
            found.is_some()
        })
}

/// Decodes by one thread, and in segments of `segment` bytes by several.
fn histories(trace: &Trace, segment: usize) -> [History; 2] {
    let config = rules(trace);
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace.bytes.clone()),
        image: Arc::new(image(&trace.code)),
    };
    let decoder = Decoder::new(&config);
    let whole = decoder.decode(std::slice::from_ref(&input), &BTreeMap::new());
    let jobs = NonZeroUsize::new(3).unwrap();
    let parts = decoder
        .jobs(jobs)
        .segment(segment)
        .decode(&[input], &BTreeMap::new());
    [whole, parts].map(|decoded| decoded.unwrap().threads.remove(0))
}

fn assert_threads_agree(case: impl std::fmt::Display, trace: &Trace) {
    for segment in [16, 100, 700] {
        let [whole, parts] = histories(trace, segment);
        let of = |history: &History| (history.len(), history.digest(), history.marks().to_vec());
        assert_eq!(of(&whole), of(&parts), "{case} in segments of {segment} bytes");
    }
}

#[test]
fn decoder_threads_agree_on_broken_traces() {
    for case in cases(8, 10, 3) {
        assert_threads_agree(case, &case.trace());
    }
}

/// Cuts a hole into the code.
fn cut_code(trace: &mut Trace, random: &mut Random) {
    let Some(Segment { start, bytes }) = trace.code.first_mut() else {
        return;
    };
    let from = random.below(bytes.len());
    let to = (from + 1 + random.below(120)).min(bytes.len());
    let after = Segment {
        start: *start + to as u64,
        bytes: bytes.split_off(to),
    };
    bytes.truncate(from);
    trace.code.push(after);
}

#[test]
fn flow_around_missing_code_was_executed() {
    let (mut resumed, mut at_psbs, mut gaps) = (0, 0, 0);
    for case in cases(8, 20, 0) {
        let mut trace = case.trace();
        let Expected::All(golden) = trace.expected.clone() else {
            continue;
        };
        cut_code(&mut trace, &mut Random::new(case.program << 8 | case.encoding));
        let code = image(&trace.code);
        let recording = Recording::of_parts(&Native, &trace.bytes, &code, &rules(&trace));
        let (stretches, causes) = stretches(&recording);
        assert!(occur_in(&stretches, &golden), "{case}: {causes:x?}");
        let expected = |cause: &&GapCause| match cause {
            GapCause::LostCode { .. } | GapCause::UnknownCaller { .. } => true,
            GapCause::Corrupt { error, .. } => error == "invalid instruction",
            _ => false,
        };
        assert!(causes.iter().all(expected), "{case}: {causes:x?}");
        gaps += causes.len();
        resumed += recording.pcs().len();
        let libipts_rule = Config {
            resync: Resync::NextPsb,
            ..rules(&trace)
        };
        at_psbs += Recording::of_parts(&Native, &trace.bytes, &code, &libipts_rule)
            .pcs()
            .len();
        assert_threads_agree(case, &trace);
    }
    assert!(
        gaps > 50 && resumed > at_psbs,
        "{gaps} gaps, {resumed} for {at_psbs}"
    );
}

#[test]
fn flow_around_breakpoints_is_complete() {
    let mut gaps = 0;
    for case in cases(8, 6, 0) {
        let mut random = Random::new(case.program << 8 | case.encoding);
        let style = Style {
            losses_every: 0,
            breakpoints_every: random.pick(&[3, 40, 300]),
            filtered: false,
            wild: false,
            dressed: false,
            cut: Cut::Nothing,
            ..Style::random(&mut random)
        };
        let trace = encode::encode(&run::of(case.program), style, &mut random);
        let Expected::All(golden) = &trace.expected else {
            panic!("{case}: the trace is whole");
        };
        let recording = Recording::of_parts(&Native, &trace.bytes, &image(&trace.code), &rules(&trace));
        let (_, causes) = stretches(&recording);
        let is_breakpoint = |cause: &&GapCause| matches!(cause, GapCause::OtherInstruction { .. });
        assert!(causes.iter().all(is_breakpoint), "{case}: {causes:x?}");
        assert!(recording.pcs() == *golden, "{case}");
        gaps += causes.len();
        assert_threads_agree(case, &trace);
    }
    assert!(gaps > 100, "{gaps} gaps");
}
