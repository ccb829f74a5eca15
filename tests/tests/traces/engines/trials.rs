//! Many cases: each engine against the executed instructions and against the first engine.

use crate::engines::compare::{Level, Recording, image};
use crate::engines::encode::{self, Expected, Trace};
use crate::engines::report::REX2_NAME;
use crate::engines::watch::Watch;
use crate::engines::{mutate, report, run, units};
use backtrail_decoder::engine::native::Native;
use backtrail_decoder::{Config, Engine, UncompressedReturns};
use backtrail_oracle::Libipt;
use backtrail_pt::Packet;
use backtrail_tests::backtrail::binary;
use backtrail_tests::random::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{env, thread};

/// Returns the engines that must agree. The oldest is first.
pub fn engines() -> Vec<&'static dyn Engine> {
    vec![&Libipt, &Native]
}

/// The number of mutations of each trace.
const MUTATIONS: u64 = 2;

/// The number of kinds of failures that are reported in full. Others are reported by name only.
const TOLD: usize = 4;

/// A generated trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The seed of the program.
    pub program: u64,
    /// The index of the trace among those of the run.
    pub encoding: u64,
    /// The index of the mutation; 0 is none.
    pub mutation: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.program, self.encoding, self.mutation)
    }
}

impl FromStr for Case {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/').map(str::parse);
        let mut part = || parts.next().unwrap_or(Ok(0));
        Ok(Self {
            program: part()?,
            encoding: part()?,
            mutation: part()?,
        })
    }
}

impl Case {
    fn random(self) -> Random {
        let mut random = Random::new(self.program);
        for number in [self.encoding, self.mutation] {
            random = Random::new(random.next() ^ number.wrapping_mul(0x9e37_79b9));
        }
        random
    }

    /// Returns the trace, which is the same each time.
    pub fn trace(self) -> Trace {
        let whole = Self { mutation: 0, ..self };
        let mut trace = encode::random(&run::of(self.program), &mut whole.random());
        if self.mutation != 0 {
            let mut random = self.random();
            let other = Self {
                program: self.program ^ random.next() & 1,
                encoding: self.encoding + 1,
                mutation: 0,
            };
            mutate::random(&mut trace, &other.trace(), &mut random);
        }
        if let Ok(cpu) = env::var("BACKTRAIL_CPU") {
            trace.config.cpu = Some(cpu.parse().unwrap());
            trace.expected = Expected::Agreement;
        }
        trace
    }
}

/// The failure of a case.
#[derive(Debug)]
pub struct Failure {
    /// A short name, which is the same for similar cases.
    pub kind: String,
    /// The full report.
    pub text: Option<String>,
}

/// Checks a case. `told` returns whether a failure of this name needs no full report.
pub fn check(
    case: Case,
    engines: &[&dyn Engine],
    level: Level,
    told: impl Fn(&str) -> bool,
) -> Option<Failure> {
    let trace = case.trace();
    let executed = engines.iter().find_map(|engine| {
        let text = unexpected(*engine, &trace)?;
        Some((format!("{} decodes what was not executed", engine.name()), text))
    });
    let differ = engines.split_first().and_then(|(first, others)| {
        if is_beyond_libipt(&trace) {
            return None;
        }
        let mut differing = others.iter().filter_map(|&other| {
            let word = report::differ(*first, other, &trace, level)?;
            (!is_excused(&word, &trace)).then_some((other, word))
        });
        let (other, word) = differing.next()?;
        Some((*first, other, word))
    });
    let word = differ
        .as_ref()
        .map(|(first, other, word)| format!("{} and {} differ, {word}", first.name(), other.name()));
    let parts = [executed.as_ref().map(|(word, _)| word.clone()), word];
    let kind = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    if kind.is_empty() {
        return None;
    }
    let text = (!told(&kind)).then(|| {
        let executed = executed.map_or_else(String::new, |(_, text)| text + "\n");
        let differ = differ.and_then(|(first, other, _)| report::check(first, other, &trace, level));
        format!("{executed}{}\n{:?}", differ.unwrap_or_default(), trace.style)
    });
    Some(Failure { kind, text })
}

/// Returns whether libipt does not support the trace or decodes it wrongly, so that another engine
/// may be better:
/// - block packets (BBP and its successors) and trigger packets (TRIG), where it stops;
/// - EVD of a type above 31, because libipt reads five of its six bits (SDM volume 3, "EVD Packet
///   Definition");
fn is_beyond_libipt(trace: &Trace) -> bool {
    let beyond = |packet| match packet {
        Packet::Bbp { .. } | Packet::Bep { .. } | Packet::Trig { .. } => true,
        Packet::Evd { kind, .. } => kind > 31,
        _ => false,
    };
    units::cut(&trace.bytes)
        .iter()
        .any(|unit| unit.packet.is_some_and(beyond))
}

/// Returns whether libipt's failure is expected. Examples are its own internal errors (such as
/// MWAIT without a following EXSTOP), and code before a MODE packet, which libipt decodes anyway.
/// Another is a conditional branch out of a filter's range at the end of a trace. It writes TIP.PGD
/// alone (SDM volume 3, table "PT Packets from a PacketEn transition"), which libipt does not
/// associate with the branch. libipt 2.1 does not know the prefix REX2 either, and takes its
/// operands for the next instruction.
fn is_excused(word: &str, trace: &Trace) -> bool {
    word.starts_with("\"internal error\" for")
        || word.contains("unknown execution mode")
        || word == "the end for Disabled" && !trace.config.filters.is_empty()
        || word == format!("{REX2_NAME} for {REX2_NAME}")
}

/// Returns how the decode of a trace differs from the executed instructions.
pub fn unexpected(engine: &dyn Engine, trace: &Trace) -> Option<String> {
    if trace.expected == Expected::Agreement {
        return None;
    }
    // The rule of the SDM. The encoder forgets all calls where the two rules differ, so both give
    // the same result.
    let config = Config {
        uncompressed_returns: UncompressedReturns::Pop,
        ..trace.config.clone()
    };
    let recording = Recording::of_parts(engine, &trace.bytes, &image(&trace.code), &config);
    let decoded = recording.pcs();
    let (right, golden) = match &trace.expected {
        Expected::All(golden) => (decoded == *golden, golden),
        Expected::Beginning(golden) => (golden.starts_with(&decoded), golden),
        Expected::End(golden) => (golden.ends_with(&decoded), golden),
        Expected::Agreement => return None,
    };
    // A trace that ends within a packet may cause a decode error.
    let losses = match trace.expected {
        Expected::Beginning(_) => 0,
        _ => recording.losses(),
    };
    if right && losses == 0 {
        return None;
    }
    let skip = match trace.expected {
        Expected::End(_) => golden.len().saturating_sub(decoded.len()),
        _ => 0,
    };
    let same = decoded
        .iter()
        .zip(&golden[skip..])
        .take_while(|(left, right)| left == right);
    let same = same.count();
    let lost: Vec<_> = recording
        .items
        .iter()
        .filter(|item| {
            matches!(
                item,
                crate::engines::compare::Item::Event(backtrail_decoder::Event::Lost { .. })
            )
        })
        .take(3)
        .collect();
    Some(format!(
        "{} instructions of {}, {losses} losses {lost:x?}; the first {same} are right, then {:x?} for {:x?}",
        decoded.len(),
        golden.len(),
        decoded[same..].iter().take(4).collect::<Vec<_>>(),
        golden[skip + same..].iter().take(4).collect::<Vec<_>>(),
    ))
}

/// Checks `traces` traces and their mutations, on all processors.
///
/// # Panics
///
/// A case fails; the text is the report.
pub fn try_many(traces: u64, engines: &[&'static dyn Engine], level: Level) {
    // A build may take minutes, and must not count as a hanging case.
    binary().expect("the binary that records the programs");
    let started = Instant::now();
    let first = number("BACKTRAIL_SEED").unwrap_or(1) << 20;
    let programs = (traces / 50).clamp(traces.min(16), 200).max(1);
    let next = AtomicU64::new(0);
    let failures: Mutex<BTreeMap<Case, Failure>> = Mutex::default();
    let watch = Watch::default();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= traces {
                return watch.end();
            }
            for mutation in 0..=MUTATIONS {
                let case = Case {
                    program: first + at % programs,
                    encoding: at / programs,
                    mutation,
                };
                watch.begin(case);
                let told = |kind: &str| {
                    let failures = failures.lock().unwrap();
                    let mut told = failures.values().filter(|failure| failure.text.is_some());
                    told.clone().count() >= TOLD || told.any(|failure| failure.kind == kind)
                };
                if let Some(failure) = check(case, engines, level, told) {
                    failures.lock().unwrap().insert(case, failure);
                }
            }
        }
    };
    thread::scope(|scope| {
        watch.run(scope);
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        watch.finish();
        for result in results {
            result.unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let seconds = started.elapsed().as_secs_f32();
    let cases = traces * (MUTATIONS + 1);
    println!(
        "{traces} traces of {programs} programs and {} mutations in {seconds:.1} s, {:.0} a second",
        traces * MUTATIONS,
        cases as f32 / seconds
    );
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", summary(&failures, cases));
}

fn summary(failures: &BTreeMap<Case, Failure>, cases: u64) -> String {
    let mut text = format!("{} of {cases} cases fail\n", failures.len());
    let mut kinds: BTreeMap<(&str, bool), Vec<Case>> = BTreeMap::new();
    for (&case, failure) in failures {
        let mutated = case.mutation != 0;
        kinds.entry((&failure.kind, mutated)).or_default().push(case);
    }
    for ((kind, mutated), cases) in kinds {
        let traces = if mutated { "mutations" } else { "traces" };
        let some: Vec<String> = cases.iter().take(4).map(Case::to_string).collect();
        text += &format!("{kind}: {} {traces}, as {}\n", cases.len(), some.join(" "));
    }
    let told = failures
        .iter()
        .filter_map(|(case, failure)| Some((case, &failure.kind, failure.text.as_ref()?)));
    for (case, kind, full) in told.take(TOLD) {
        text += &format!("\nBACKTRAIL_CASE={case}: {kind}\n{full}\n");
    }
    text
}

/// Checks the case that `BACKTRAIL_CASE` names, and returns whether there is one.
pub fn try_named(engines: &[&'static dyn Engine], level: Level) -> bool {
    let Some(case) = env::var("BACKTRAIL_CASE").ok() else {
        return false;
    };
    let case = case.parse().unwrap();
    if let Some(Failure { kind, text }) = check(case, engines, level, |_| false) {
        panic!("{case}: {kind}\n{}", text.unwrap_or_default());
    }
    true
}

/// Returns the level of comparison that `BACKTRAIL_LEVEL` names, by default all events.
pub fn level() -> Level {
    let Some(name) = env::var("BACKTRAIL_LEVEL").ok() else {
        return Level::Events;
    };
    let found = Level::ALL
        .into_iter()
        .find(|level| format!("{level:?}").to_lowercase() == name);
    found.unwrap_or_else(|| panic!("BACKTRAIL_LEVEL is one of {:?}, in lower case", Level::ALL))
}

/// Returns the number in a variable.
pub fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}
