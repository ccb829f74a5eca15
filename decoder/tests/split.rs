//! Tests the split of a processor's trace: certain flow is attributed, the rest is counted.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

#[path = "common/agreed.rs"]
mod agreed;

use agreed::decode_agreed;
use backtrail_decoder::engine::native::Native;
use backtrail_decoder::{
    Config, CpuReport, Decoded, Decoder, Engine, GapCause, Image, Input, MarkKind, Section, Switch,
    UnattributedReason,
};
use backtrail_oracle::Libipt;
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Cpu, Encoder, EncoderOptions, Pid, Tid, TimingParams, Tsc};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const OURS: Pid = Pid(10);
const FOREIGN: Pid = Pid(20);

fn encoder() -> Encoder {
    // A stamp at each PSB, and no other.
    let timing = Some(TimingOptions {
        params: TimingParams::default(),
        mtc: false,
        cyc: false,
    });
    let mut encoder = Encoder::new(EncoderOptions {
        timing,
        ..EncoderOptions::default()
    });
    encoder.set_time(Tsc(1000));
    encoder.start();
    encoder
}

/// Runs `count` instructions at 0x1000, with tracing disabled around them.
fn burst(encoder: &mut Encoder, count: u64) {
    encoder.enable(Avma(0x1000));
    encoder.disable_async(Avma(0x1000 + count));
}

/// Like [`burst`], with a PSB and its stamp inside.
fn stamped_burst(encoder: &mut Encoder, time: u64, count: u64) {
    encoder.set_time(Tsc(time));
    encoder.enable(Avma(0x1000));
    encoder.psb(Avma(0x1000));
    encoder.disable_async(Avma(0x1000 + count));
}

/// Runs code that is not in the image.
fn unknown_burst(encoder: &mut Encoder, time: u64) {
    encoder.set_time(Tsc(time));
    encoder.enable(Avma(0x9000));
    encoder.psb(Avma(0x9000));
    encoder.disable_async(Avma(0x9001));
}

/// Start, end, process, thread.
fn switches(executions: &[(u64, u64, Pid, u32)]) -> Vec<Switch> {
    let both = |&(from, to, pid, tid): &(u64, u64, Pid, u32)| {
        [(from, false), (to, true)].map(|(at, out)| Switch {
            at: Tsc(at),
            pid,
            tid: Tid(tid),
            out,
        })
    };
    executions.iter().flat_map(both).collect()
}

fn split(traces: Vec<(Encoder, Vec<Switch>)>) -> Decoded {
    split_by(traces, &Config::default())
}

fn split_by(traces: Vec<(Encoder, Vec<Switch>)>, config: &Config) -> Decoded {
    let mut image = Image::new();
    image.add(Section {
        start: Avma(0x1000),
        bytes: Arc::new(vec![0x90; 64]),
    });
    let inputs: Vec<Input> = traces
        .into_iter()
        .enumerate()
        .map(|(cpu, (mut encoder, switches))| {
            let trace = Arc::new(encoder.take());
            Input::Cpu {
                cpu: Cpu(cpu as u32),
                trace,
                switches,
                aux_ends: Vec::new(),
            }
        })
        .collect();
    let images = BTreeMap::from([(OURS, Arc::new(image))]);
    decode_agreed(&inputs, &images, config)
}

fn lens(decoded: &Decoded) -> Vec<(u32, u64)> {
    decoded
        .threads
        .iter()
        .map(|history| (history.tid().0, history.len()))
        .collect()
}

fn unattributed(report: &CpuReport) -> Vec<(UnattributedReason, u64)> {
    report
        .unattributed
        .iter()
        .map(|(&reason, sum)| (reason, sum.instructions))
        .collect()
}

#[test]
fn stamp_in_an_execution_attributes_flow() {
    let mut trace = encoder();
    stamped_burst(&mut trace, 1200, 3);
    stamped_burst(&mut trace, 1700, 5);
    stamped_burst(&mut trace, 2200, 7);
    let ran = switches(&[
        (1100, 1500, OURS, 1),
        (1600, 2000, OURS, 2),
        (2100, 2500, OURS, 1),
    ]);
    let decoded = split(vec![(trace, ran)]);
    assert_eq!(lens(&decoded), [(1, 10), (2, 5)]);
    assert!(decoded.cpus[0].unattributed.is_empty());
    let first = &decoded.threads[0];
    let deschedule = first
        .marks()
        .iter()
        .find(|mark| matches!(mark.kind, MarkKind::Descheduled { .. }));
    assert_eq!(deschedule.map(|mark| mark.index), Some(3));
    // Its time is bounded by the switches.
    assert_eq!(first.time(0).map(|time| time.tsc), Some(Tsc(1200)));
    assert_eq!(first.time(2).and_then(|time| time.latest()), Some(Tsc(1500)));
    assert_eq!(first.time(9).and_then(|time| time.latest()), Some(Tsc(2500)));
}

#[test]
fn flow_between_stamps_of_one_execution_is_attributed() {
    let mut trace = encoder();
    stamped_burst(&mut trace, 1200, 3);
    burst(&mut trace, 4);
    stamped_burst(&mut trace, 1400, 5);
    let decoded = split(vec![(trace, switches(&[(1100, 1500, OURS, 1)]))]);
    assert_eq!(lens(&decoded), [(1, 12)]);
    assert_eq!(
        decoded.threads[0]
            .gaps()
            .filter(|(_, gap)| gap.cause != GapCause::Start)
            .count(),
        0
    );
}

#[test]
fn flow_with_a_switch_between_stamps_is_unattributed() {
    let mut trace = encoder();
    stamped_burst(&mut trace, 1200, 3);
    burst(&mut trace, 4);
    stamped_burst(&mut trace, 1700, 5);
    let decoded = split(vec![(
        trace,
        switches(&[(1100, 1500, OURS, 1), (1600, 2000, OURS, 2)]),
    )]);
    assert_eq!(lens(&decoded), [(1, 3), (2, 5)]);
    assert_eq!(
        unattributed(&decoded.cpus[0]),
        [(UnattributedReason::SwitchBetweenStamps, 4)]
    );
    assert_eq!(decoded.cpus[0].attributed, 8);
    let gap = decoded.threads[0]
        .gaps()
        .find(|(_, gap)| gap.cause == GapCause::UnattributedSwitch);
    assert_eq!(gap.map(|(index, _)| index), Some(3));
}

/// Returns an encoder with an MTC packet every 64 ticks of the TSC.
fn ticking() -> (Encoder, Config) {
    let params = TimingParams {
        mtc_freq: 3,
        nom_freq: 1,
        cpuid_15h_eax: 1,
        cpuid_15h_ebx: 8,
    };
    let mut encoder = Encoder::new(EncoderOptions {
        timing: Some(TimingOptions {
            params,
            mtc: true,
            cyc: false,
        }),
        ..EncoderOptions::default()
    });
    encoder.set_time(Tsc(1024));
    encoder.start();
    let config = Config {
        timing: params,
        ..Config::default()
    };
    (encoder, config)
}

/// Lets time pass, a few ticks at a time.
fn pass(encoder: &mut Encoder, ticks: Range<u64>) {
    ticks.step_by(16).for_each(|tick| encoder.set_time(Tsc(tick)));
}

#[test]
fn timing_packets_while_disabled_attribute_earlier_flow() {
    let (mut trace, config) = ticking();
    // Thread 1 ran for the last 40 ticks before the next stamp. Thread 2 follows, with several
    // stamps before its code.
    pass(&mut trace, 1024..1300);
    burst(&mut trace, 4);
    pass(&mut trace, 1360..1600);
    burst(&mut trace, 5);
    pass(&mut trace, 1600..1900);
    trace.enable(Avma(0x1000));
    trace.psb(Avma(0x1000));
    trace.disable_async(Avma(0x1007));
    let ran = switches(&[(1100, 1400, OURS, 1), (1450, 2500, OURS, 2)]);
    let decoded = split_by(vec![(trace, ran)], &config);
    assert_eq!(lens(&decoded), [(1, 4), (2, 12)]);
    assert!(decoded.cpus[0].unattributed.is_empty(), "{:?}", decoded.cpus[0]);
    let latest = decoded.threads[0].time(3).and_then(|time| time.latest());
    assert_eq!(
        latest,
        Some(Tsc(1360)),
        "the stamp after it, not that of its return"
    );
}

#[test]
fn switch_before_disabled_stamp_leaves_flow_unattributed() {
    let (mut trace, config) = ticking();
    pass(&mut trace, 1024..1300);
    burst(&mut trace, 4);
    pass(&mut trace, 1360..1600);
    burst(&mut trace, 5);
    pass(&mut trace, 1600..1900);
    trace.enable(Avma(0x1000));
    trace.psb(Avma(0x1000));
    trace.disable_async(Avma(0x1007));
    let ran = switches(&[(1100, 1320, OURS, 1), (1330, 2500, OURS, 2)]);
    let decoded = split_by(vec![(trace, ran)], &config);
    assert_eq!(lens(&decoded), [(1, 0), (2, 12)]);
    assert_eq!(
        unattributed(&decoded.cpus[0]),
        [(UnattributedReason::SwitchBetweenStamps, 4)]
    );
}

#[test]
fn the_idle_task_takes_nothing() {
    let mut trace = encoder();
    stamped_burst(&mut trace, 1200, 3);
    burst(&mut trace, 4);
    stamped_burst(&mut trace, 1700, 5);
    let ran = [
        (1100, 1300, OURS, 1),
        (1310, 1590, Pid(0), 0),
        (1600, 2000, OURS, 1),
    ];
    let decoded = split(vec![(trace, switches(&ran))]);
    assert_eq!(lens(&decoded), [(1, 12)]);
}

#[test]
fn a_foreign_process_is_counted() {
    let mut trace = encoder();
    stamped_burst(&mut trace, 1200, 3);
    stamped_burst(&mut trace, 1700, 5);
    let decoded = split(vec![(
        trace,
        switches(&[(1100, 1500, OURS, 1), (1600, 2000, FOREIGN, 2)]),
    )]);
    assert_eq!(lens(&decoded), [(1, 3)]);
    // Its code is not in the image, so nothing of it decodes.
    assert_eq!((decoded.cpus[0].instructions, decoded.cpus[0].errors), (3, 1));
    assert_eq!(decoded.threads[0].errors(), 0);
}

#[test]
fn loss_of_a_certain_thread_is_a_gap_in_it() {
    // Thread 3 has only the loss; thread 1 has it before its first instruction, and after.
    let mut encoder = encoder();
    unknown_burst(&mut encoder, 1010);
    stamped_burst(&mut encoder, 1020, 5);
    unknown_burst(&mut encoder, 1040);
    stamped_burst(&mut encoder, 1060, 5);
    unknown_burst(&mut encoder, 1110);
    stamped_burst(&mut encoder, 1160, 0);
    let on = switches(&[(1005, 1100, OURS, 1), (1105, 1150, OURS, 3)]);
    let decoded = split(vec![(encoder, on)]);
    assert_eq!(lens(&decoded), [(1, 10), (3, 0)]);
    let gaps: Vec<Vec<(u64, &GapCause)>> = decoded
        .threads
        .iter()
        .map(|history| history.gaps().map(|(index, gap)| (index, &gap.cause)).collect())
        .collect();
    let lost = &GapCause::LostCode { at: Avma(0x9000) };
    let start = &GapCause::Start;
    assert_eq!(
        gaps,
        [
            vec![(0, start), (0, lost), (5, lost)],
            vec![(0, start), (0, lost)]
        ]
    );
    assert_eq!(decoded.cpus[0].lost, []);
}

#[test]
fn loss_of_no_certain_thread_is_reported_by_cpu() {
    let mut encoder = encoder();
    stamped_burst(&mut encoder, 1010, 5);
    unknown_burst(&mut encoder, 1050);
    stamped_burst(&mut encoder, 1060, 5);
    stamped_burst(&mut encoder, 1160, 5);
    let on = switches(&[(1005, 1100, FOREIGN, 3), (1155, 1200, OURS, 1)]);
    let decoded = split(vec![(encoder, on)]);
    assert_eq!(lens(&decoded), [(1, 5)]);
    assert_eq!(decoded.threads[0].gaps().count(), 1, "its beginning");
    assert_eq!(decoded.cpus[0].lost.len() as u64, decoded.cpus[0].errors);
    assert!(!decoded.cpus[0].lost.is_empty());
}

/// Two processes alternate three times on one processor, with only one PSB. The code of the second
/// is not in the image.
fn taking_turns(engine: &dyn Engine) -> Decoded {
    let (mut trace, config) = ticking();
    let mut ran = Vec::new();
    for turn in 0..3 {
        let begin = 1024 + turn * 2048;
        for (pid, tid, from) in [(OURS, 1, begin), (FOREIGN, 2, begin + 1024)] {
            ran.push((from + 80, from + 940, pid, tid));
            pass(&mut trace, from..from + 400);
            trace.enable(Avma(0x1000));
            trace.conditional(true);
            trace.conditional(pid == OURS);
            pass(&mut trace, from + 400..from + 600);
            trace.disable_async(Avma(0x1004));
            // A system call, which returns to another address.
            pass(&mut trace, from + 600..from + 800);
            trace.enable(Avma(0x1005));
            trace.disable_async(Avma(0x1008));
            pass(&mut trace, from + 800..from + 1024);
        }
    }
    // Two branches over nothing: each uses an outcome.
    let mut image = Image::new();
    image.add(Section {
        start: Avma(0x1000),
        bytes: Arc::new([&[0x75, 0x00, 0x75, 0x00], &*vec![0x90; 60]].concat()),
    });
    let input = Input::Cpu {
        cpu: Cpu(0),
        trace: Arc::new(trace.take()),
        switches: switches(&ran),
        aux_ends: Vec::new(),
    };
    let images = BTreeMap::from([(OURS, Arc::new(image))]);
    Decoder::new(&config)
        .engine(engine)
        .decode(&[input], &images)
        .unwrap()
}

#[test]
fn flow_after_foreign_code_resumes_before_the_next_psb() {
    let decoded = taking_turns(&Native);
    let [history] = &*decoded.threads else {
        panic!("{:?}", lens(&decoded))
    };
    // In each turn: two branches, and three instructions after the system call.
    assert_eq!((history.tid(), history.len()), (Tid(1), 3 * 5));
    let turn = [0x1000, 0x1002, 0x1005, 0x1006, 0x1007].map(Avma);
    let all: Vec<Avma> = (0..15).filter_map(|index| history.pc(index)).collect();
    assert_eq!(all, turn.repeat(3));
    // Nothing of it is missing, and that is certain.
    let gaps: Vec<&GapCause> = history.gaps().map(|(_, gap)| &gap.cause).collect();
    assert_eq!((gaps, history.errors()), (vec![&GapCause::Start], 0));
    let away = |mark: &&backtrail_decoder::Mark| matches!(mark.kind, MarkKind::Descheduled { .. });
    assert_eq!(history.marks().iter().filter(away).count(), 2);
    // Each execution of the other process is lost once.
    let [report] = &*decoded.cpus else {
        panic!("one processor")
    };
    assert_eq!((report.attributed, report.lost.len(), report.errors), (15, 3, 3));
}

/// libipt resumes only at a PSB.
#[test]
fn libipt_loses_flow_after_foreign_code() {
    let decoded = taking_turns(&Libipt);
    assert_eq!(lens(&decoded), [(1, 5)]);
}

#[test]
fn migrating_thread_is_merged_in_time_order() {
    let (mut one, mut other) = (encoder(), encoder());
    stamped_burst(&mut one, 1200, 3);
    stamped_burst(&mut one, 3200, 7);
    stamped_burst(&mut other, 2200, 5);
    let here = switches(&[(1100, 1500, OURS, 1), (3100, 3500, OURS, 1)]);
    let decoded = split(vec![(one, here), (other, switches(&[(2100, 2500, OURS, 1)]))]);
    let [history] = &*decoded.threads else {
        panic!("{:?}", lens(&decoded))
    };
    let cpus: Vec<u32> = [0, 3, 8].iter().map(|&at| history.cpu(at).unwrap().0).collect();
    assert_eq!((history.len(), cpus), (15, vec![0, 1, 0]));
}

#[test]
fn without_switches_flow_is_unattributed() {
    let mut trace = encoder();
    stamped_burst(&mut trace, 1200, 3);
    let decoded = split(vec![(trace, vec![])]);
    assert!(decoded.threads.is_empty());
    assert_eq!(decoded.cpus[0].attributed, 0);
}

/// A stretch of flow of one process.
#[derive(Clone, Debug)]
struct Stretch {
    ours: bool,
    /// The outcome of each branch.
    outcomes: Vec<bool>,
    /// Whether the stretch has a PSB after its first branch.
    psb: bool,
    /// Ticks before, in and after it.
    ticks: [u64; 3],
}

fn stretch() -> impl Strategy<Value = Stretch> {
    let ticks = || 0..300u64;
    let outcomes = vec(any::<bool>(), 1..20);
    (
        any::<bool>(),
        outcomes,
        any::<bool>(),
        [ticks(), ticks(), ticks()],
    )
        .prop_map(|(ours, outcomes, psb, ticks)| Stretch {
            ours,
            outcomes,
            psb,
            ticks,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Our flow is the same with and without the code of the others.
    #[test]
    fn the_code_of_others_is_not_needed(stretches in vec(stretch(), 1..12)) {
        let (mut trace, config) = ticking();
        let mut now = 1024;
        let mut on = Vec::new();
        for stretch in &stretches {
            let [before, inside, after] = stretch.ticks;
            let begin = now;
            let mut go = |trace: &mut Encoder, ticks: u64| {
                pass(trace, now..now + ticks);
                now += ticks;
            };
            go(&mut trace, before);
            trace.enable(Avma(0x1000));
            for (number, &taken) in stretch.outcomes.iter().enumerate() {
                trace.conditional(taken);
                if number == 0 && stretch.psb {
                    trace.psb(Avma(0x1002));
                }
            }
            go(&mut trace, inside);
            trace.disable_async(Avma(0x1000 + 2 * stretch.outcomes.len() as u64));
            go(&mut trace, after);
            let (pid, tid) = if stretch.ours { (OURS, 1) } else { (FOREIGN, 2) };
            // There is no execution between two switches at the same time.
            on.push((begin + 1, now.max(begin + 2), pid, tid));
        }
        let bytes = trace.take();
        let section = Section { start: Avma(0x1000), bytes: Arc::new([0x75, 0x00].repeat(32)) };
        let mut image = Image::new();
        image.add(section);
        let image = Arc::new(image);
        let decoded = |images: &BTreeMap<Pid, Arc<Image>>| {
            let input = Input::Cpu { cpu: Cpu(0), trace: Arc::new(bytes.clone()), switches: switches(&on), aux_ends: Vec::new() };
            Decoder::new(&config).decode(&[input], images).unwrap()
        };
        let with = decoded(&BTreeMap::from([(OURS, Arc::clone(&image)), (FOREIGN, Arc::clone(&image))]));
        let without = decoded(&BTreeMap::from([(OURS, image)]));
        let ours = |decoded: &Decoded| {
            let history = decoded.threads.iter().find(|history| history.tid() == Tid(1));
            history.map(|history| (history.len(), history.digest()))
        };
        prop_assert_eq!(ours(&with), ours(&without));
    }
}
