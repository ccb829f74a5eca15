//! Tests that times of records select the thread and the code: ends of parts of a trace, and
//! changes of the code at known times.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

#[path = "common/agreed.rs"]
mod agreed;

use agreed::decode_agreed;
use backtrail_decoder::{
    AuxEnd, Config, Decoded, Decoder, GapCause, History, Image, Input, NewCode, Section, Switch, TimedChange,
    UnattributedReason, Version,
};
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Cpu, Encoder, EncoderOptions, Pid, Tid, TimingParams, Tsc};
use std::collections::BTreeMap;
use std::sync::Arc;

const PID: Pid = Pid(10);
const CODE: Avma = Avma(0x1000);
/// Instructions of a byte each, of two bytes, and of four.
const ONE: [u8; 16] = [0x90; 16];
const TWO: [u8; 16] = *b"\x66\x90\x66\x90\x66\x90\x66\x90\x66\x90\x66\x90\x66\x90\x66\x90";
const FOUR: [u8; 16] = *b"\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00\x0f\x1f\x40\x00";

/// An encoder whose only stamps are those of PSBs, or without stamps.
fn encoder(stamps: bool) -> Encoder {
    let timing = stamps.then(|| TimingOptions {
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

/// Runs `bytes` bytes of the code.
fn burst(encoder: &mut Encoder, bytes: u64) {
    encoder.enable(CODE);
    encoder.disable_async(Avma(CODE.0 + bytes));
}

/// Like [`burst`], with a PSB and its stamp inside.
fn stamped_burst(encoder: &mut Encoder, time: u64, bytes: u64) {
    encoder.set_time(Tsc(time));
    encoder.enable(CODE);
    encoder.psb(CODE);
    encoder.disable_async(Avma(CODE.0 + bytes));
}

/// Start, end, thread.
fn switches(executions: &[(u64, u64, u32)]) -> Vec<Switch> {
    let both = |&(from, to, tid): &(u64, u64, u32)| {
        [(from, false), (to, true)].map(|(at, out)| Switch {
            at: Tsc(at),
            pid: PID,
            tid: Tid(tid),
            out,
        })
    };
    executions.iter().flat_map(both).collect()
}

fn section(bytes: &[u8]) -> Section {
    Section {
        start: CODE,
        bytes: Arc::new(bytes.to_vec()),
    }
}

fn image(changes: Vec<(u64, NewCode)>) -> Image {
    let mut image = Image::new();
    image.add(section(&ONE));
    let change = |(at, code)| TimedChange {
        at: Some(Tsc(at)),
        code,
    };
    image.set_timed_versions(changes.into_iter().map(change).collect());
    image
}

fn of_processor(mut encoder: Encoder, ends: Vec<AuxEnd>, ran: &[(u64, u64, u32)], image: Image) -> Decoded {
    let input = Input::Cpu {
        cpu: Cpu(0),
        trace: Arc::new(encoder.take()),
        switches: switches(ran),
        aux_ends: ends,
    };
    let images = BTreeMap::from([(PID, Arc::new(image))]);
    decode_agreed(&[input], &images, &Config::default())
}

fn of_thread(mut encoder: Encoder, image: Image) -> History {
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(encoder.take()),
        image: Arc::new(image),
    };
    let decoded = decode_agreed(&[input], &BTreeMap::new(), &Config::default());
    decoded.threads.into_iter().next().unwrap()
}

fn lens(decoded: &Decoded) -> Vec<(u32, u64)> {
    let len = |history: &History| (history.tid().0, history.len());
    decoded.threads.iter().map(len).collect()
}

/// The address and version of each instruction.
fn executed(history: &History) -> Vec<(u64, u32)> {
    let one = |index| (history.pc(index).unwrap().0 - CODE.0, history.version(index).0);
    (0..history.len()).map(one).collect()
}

fn causes(history: &History) -> Vec<GapCause> {
    let causes = history.gaps().map(|(_, gap)| gap.cause.clone());
    causes.filter(|cause| *cause != GapCause::Start).collect()
}

#[test]
fn ends_of_parts_separate_threads_without_stamps() {
    for stamps in [true, false] {
        let mut trace = encoder(stamps);
        let mut ends = Vec::new();
        for (bytes, time) in [(3, 1105), (4, 1205), (5, 1305)] {
            burst(&mut trace, bytes);
            ends.push(AuxEnd {
                offset: trace.written(),
                at: Tsc(time),
            });
        }
        burst(&mut trace, 6);
        let ran = [(1010, 1100, 1), (1110, 1200, 2), (1210, 1300, 1), (1310, 1400, 2)];
        let decoded = of_processor(trace, ends.clone(), &ran, image(Vec::new()));
        assert_eq!(lens(&decoded), [(1, 8), (2, 10)], "{stamps}");
        // Its time is bounded by the execution.
        let first = &decoded.threads[1];
        assert_eq!(first.time(0).map(|time| time.tsc), Some(Tsc(1110)));
        assert_eq!(first.time(3).and_then(|time| time.latest()), Some(Tsc(1200)));
    }
}

#[test]
fn a_part_with_two_executions_stays_unattributed() {
    let mut trace = encoder(true);
    burst(&mut trace, 3);
    burst(&mut trace, 4);
    let end = AuxEnd {
        offset: trace.written(),
        at: Tsc(1205),
    };
    burst(&mut trace, 5);
    let ran = [(1010, 1100, 1), (1110, 1200, 2), (1210, 1300, 1)];
    let decoded = of_processor(trace, vec![end], &ran, image(Vec::new()));
    assert_eq!(lens(&decoded), [(1, 5), (2, 0)]);
    let unattributed = &decoded.cpus[0].unattributed;
    assert_eq!(
        unattributed[&UnattributedReason::SwitchBetweenStamps].instructions,
        7
    );
}

/// The code of four bursts: of one byte, two, four and one byte an instruction.
fn changing() -> Image {
    image(vec![
        (1200, NewCode::Known(section(&TWO))),
        (1400, NewCode::Known(section(&FOUR))),
        (1600, NewCode::Known(section(&ONE))),
    ])
}

/// Returns the instructions that [`changing`] executes in four bursts of four bytes.
fn expected() -> Vec<(u64, u32)> {
    let one = |version| [0, 1, 2, 3].map(|at| (at, version));
    [&one(0)[..], &[(0, 1), (2, 1)], &[(0, 2)], &one(3)].concat()
}

#[test]
fn code_of_a_processor_is_that_of_the_time() {
    let mut trace = encoder(true);
    let mut ends = Vec::new();
    for time in [1100, 1300, 1500, 1700] {
        burst(&mut trace, 4);
        ends.push(AuxEnd {
            offset: trace.written(),
            at: Tsc(time + 5),
        });
    }
    let image = changing();
    let ran = [1050, 1250, 1450, 1650].map(|start| (start, start + 52, 1));
    let decoded = of_processor(trace, ends, &ran, image.clone());
    let [history] = &*decoded.threads else {
        panic!("{:?}", lens(&decoded))
    };
    assert_eq!(executed(history), expected());
    assert_eq!((causes(history), history.errors()), (vec![], 0));
    let mut bytes = [0; 4];
    assert_eq!(image.read_version(Version(2), CODE, &mut bytes), 4);
    assert_eq!(bytes, FOUR[..4]);
}

#[test]
fn code_of_a_thread_is_that_of_the_stamps_around() {
    let mut trace = encoder(true);
    for time in [1100, 1300, 1500, 1700] {
        burst(&mut trace, 4);
        // A stamp before and after each change, while tracing is off.
        for time in [time + 10, time + 190] {
            trace.set_time(Tsc(time));
            trace.enable(Avma(0x8000));
            trace.psb(Avma(0x8000));
            trace.disable_async(Avma(0x8000));
        }
    }
    let history = of_thread(trace, changing());
    assert_eq!(executed(&history), expected());
    assert_eq!(causes(&history), []);
}

#[test]
fn flow_that_may_be_of_two_versions_is_a_gap() {
    let mut trace = encoder(true);
    burst(&mut trace, 4);
    // From 1150 to 1350, either code may run.
    stamped_burst(&mut trace, 1150, 0);
    burst(&mut trace, 4);
    stamped_burst(&mut trace, 1350, 2);
    let changes = vec![(1250, NewCode::Known(section(&TWO)))];
    let history = of_thread(trace, image(changes));
    let one = [0, 1, 2, 3].map(|at| (at, 0));
    assert_eq!(executed(&history), [&one[..], &[(0, 1)]].concat());
    // The flow from the last TIP.PGE to the PSB is uncertain, too.
    let uncertain = GapCause::UncertainCode { at: CODE };
    assert_eq!(causes(&history), [uncertain.clone(), uncertain]);
    assert_eq!(history.errors(), 2);
}

#[test]
fn code_that_is_the_same_before_and_after_is_certain() {
    let mut trace = encoder(true);
    burst(&mut trace, 4);
    burst(&mut trace, 4);
    let elsewhere = Section {
        start: Avma(0x1008),
        bytes: Arc::new(TWO.to_vec()),
    };
    let history = of_thread(trace, image(vec![(1250, NewCode::Known(elsewhere))]));
    let one = [0, 1, 2, 3].map(|at| (at, 0));
    assert_eq!(
        (executed(&history), causes(&history)),
        ([one, one].concat(), vec![])
    );
}

#[test]
fn unknown_code_is_a_gap_from_its_time_on() {
    let mut trace = encoder(true);
    let mut ends = Vec::new();
    for time in [1100, 1300] {
        burst(&mut trace, 4);
        ends.push(AuxEnd {
            offset: trace.written(),
            at: Tsc(time),
        });
    }
    let changes = vec![(1200, NewCode::Unknown(CODE, Avma(0x100f)))];
    let ran = [(1050, 1090, 1), (1250, 1290, 1)];
    let decoded = of_processor(trace, ends, &ran, image(changes));
    let history = &decoded.threads[0];
    assert_eq!(executed(history), [0, 1, 2, 3].map(|at| (at, 0)));
    assert_eq!(causes(history), [GapCause::LostCode { at: CODE }]);
}

#[test]
fn change_at_an_unknown_time_leaves_all_flow_uncertain() {
    let mut trace = encoder(true);
    burst(&mut trace, 4);
    let mut image = Image::new();
    image.add(section(&ONE));
    image.set_timed_versions(vec![TimedChange {
        at: None,
        code: NewCode::Known(section(&TWO)),
    }]);
    let history = of_thread(trace, image);
    assert_eq!(history.len(), 0);
    assert_eq!(causes(&history), [GapCause::UncertainCode { at: CODE }]);
}

#[test]
fn cycles_do_not_bound_the_time_of_code() {
    let params = TimingParams {
        mtc_freq: 3,
        nom_freq: 10,
        cpuid_15h_eax: 1,
        cpuid_15h_ebx: 8,
    };
    let decoded = |mtc: bool| {
        let mut trace = Encoder::new(EncoderOptions {
            timing: Some(TimingOptions {
                params,
                mtc,
                cyc: true,
            }),
            ..EncoderOptions::default()
        });
        trace.set_time(Tsc(1024));
        trace.start();
        for tick in (1024..3072).step_by(16) {
            trace.set_time(Tsc(tick));
            if tick == 2048 {
                burst(&mut trace, 4);
            }
        }
        burst(&mut trace, 4);
        let input = Input::Thread {
            tid: Tid(1),
            trace: Arc::new(trace.take()),
            image: Arc::new(image(vec![(1500, NewCode::Known(section(&TWO)))])),
        };
        let config = Config {
            timing: params,
            ..Config::default()
        };
        let decoded = decode_agreed(&[input], &BTreeMap::new(), &config);
        decoded.threads.into_iter().next().unwrap()
    };
    let exact = decoded(true);
    assert_eq!(executed(&exact), [(0, 1), (2, 1), (0, 1), (2, 1)]);
    let estimated = decoded(false);
    assert_eq!(estimated.len(), 0);
    // Each flow is lost, also that after the first one.
    let uncertain = GapCause::UncertainCode { at: CODE };
    assert_eq!(causes(&estimated), [uncertain.clone(), uncertain]);
}

/// Decoding does not start again at the PSB at which it started.
#[test]
fn unknown_code_at_a_psb_is_passed() {
    let mut trace = encoder(true);
    stamped_burst(&mut trace, 1100, 4);
    stamped_burst(&mut trace, 1300, 4);
    let changes = vec![
        (500, NewCode::Unknown(CODE, Avma(0x100f))),
        (1200, NewCode::Known(section(&TWO))),
    ];
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace.take()),
        image: Arc::new(image(changes)),
    };
    let config = Config::default();
    let decoded = Decoder::new(&config).decode(&[input], &BTreeMap::new()).unwrap();
    let history = &decoded.threads[0];
    assert_eq!(executed(history), [(0, 2), (2, 2)]);
    assert!(
        causes(history)
            .iter()
            .all(|cause| matches!(cause, GapCause::LostCode { .. } | GapCause::UncertainCode { .. }))
    );
}
