//! Tests the engines on synthetic and damaged traces.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

mod common;

use backtrail_decoder::{
    Canceled, Config, Decoder, GapCause, History, Image, Input, MarkKind, Resumed, Section,
    UncompressedReturns, Watch,
};
use backtrail_oracle::ENGINES;
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Encoder, EncoderOptions, Packet, Tid, TimingParams, Tsc};
use common::agreed::decode_agreed;
use common::{add_elf, capture};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn image(code: &[u8]) -> Arc<Image> {
    let mut image = Image::new();
    image.add(Section {
        start: Avma(0x1000),
        bytes: Arc::new(code.to_vec()),
    });
    Arc::new(image)
}

fn run(trace: Vec<u8>, image: Arc<Image>, config: &Config) -> History {
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace),
        image,
    };
    let decoded = decode_agreed(&[input], &BTreeMap::new(), config);
    decoded.threads.into_iter().next().unwrap()
}

fn stream(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderOptions::default());
    encoder.start();
    encoder.enable(Avma(0x1000));
    write(&mut encoder);
    encoder.take()
}

fn pcs(history: &History) -> Vec<u64> {
    history.walk(0).map(|found| found.pc.0).collect()
}

fn causes(history: &History) -> Vec<&GapCause> {
    history.gaps().map(|(_, gap)| &gap.cause).collect()
}

/// nop; syscall; nop; nop.
const SYSCALL: [u8; 5] = [0x90, 0x0f, 0x05, 0x90, 0x90];

#[test]
fn system_call_is_no_gap() {
    let trace = stream(|encoder| {
        encoder.disable();
        encoder.enable(Avma(0x1003));
        encoder.disable_async(Avma(0x1004));
    });
    let history = run(trace, image(&SYSCALL), &Config::default());
    assert_eq!(pcs(&history), [0x1000, 0x1001, 0x1003]);
    assert_eq!((history.errors(), history.gaps().count()), (0, 0));
    assert_eq!(history.pc(3), Some(Avma(0x1004)));
    let [mark] = history.marks() else {
        panic!("{:?}", history.marks())
    };
    assert_eq!(
        (mark.index, &mark.kind),
        (
            2,
            &MarkKind::LeftUser {
                resumed: Resumed::After,
                back: None
            }
        )
    );
}

#[test]
fn a_signal_is_an_interruption() {
    let trace = stream(|encoder| {
        encoder.disable_async(Avma(0x1001));
        encoder.enable(Avma(0x1003));
        encoder.disable_async(Avma(0x1004));
    });
    let history = run(trace, image(&SYSCALL), &Config::default());
    assert_eq!(pcs(&history), [0x1000, 0x1003]);
    let interrupted = MarkKind::Interrupted {
        from: Avma(0x1001),
        back: None,
    };
    assert_eq!(
        history.marks().iter().map(|mark| &mark.kind).collect::<Vec<_>>(),
        [&interrupted]
    );
}

#[test]
fn an_overflow_is_a_gap_and_no_error() {
    let trace = stream(|encoder| {
        encoder.overflow(Some(Avma(0x1003)));
        encoder.disable_async(Avma(0x1004));
    });
    let history = run(trace, image(&SYSCALL), &Config::default());
    assert_eq!(pcs(&history).last(), Some(&0x1003));
    assert_eq!(
        (causes(&history), history.errors()),
        (vec![&GapCause::Overflow], 0)
    );
}

#[test]
fn lost_code_is_a_gap_and_decoding_resumes_at_the_next_psb() {
    // The jump leaves the image; after the PSB the flow is in it again.
    let code = [0x90, 0xe9, 0xfa, 0x0f, 0, 0];
    let trace = stream(|encoder| {
        encoder.conditional(true);
        // libipt has read up to the first PSB when it finds no code, and syncs at the second.
        encoder.psb(Avma(0x1000));
        encoder.psb(Avma(0x1000));
        encoder.disable_async(Avma(0x1001));
    });
    let history = run(trace, image(&code), &Config::default());
    assert_eq!(pcs(&history), [0x1000, 0x1001, 0x1000]);
    assert_eq!(causes(&history), [&GapCause::LostCode { at: Avma(0x2000) }]);
    assert_eq!(history.errors(), 1);
    let (index, gap) = history.gaps().next().unwrap();
    assert_eq!(index, 2);
    assert!(gap.resumed_offset.is_some());
}

#[test]
fn a_loop_without_packets_ends() {
    // An endless `jmp .`, then flow at another address after the PSB.
    let trace = stream(|encoder| {
        encoder.conditional(true);
        encoder.psb(Avma(0x1002));
        encoder.psb(Avma(0x1002));
        encoder.disable_async(Avma(0x1003));
    });
    let history = run(trace, image(&[0xeb, 0xfe, 0x90, 0x90]), &Config::default());
    assert_eq!(causes(&history), [&GapCause::RunAway { at: Avma(0x1000) }]);
    assert!(history.len() < 1 << 16);
    assert_eq!(pcs(&history).last(), Some(&0x1002));
}

#[test]
fn time_bounds_each_instruction() {
    let params = TimingParams {
        mtc_freq: 3,
        nom_freq: 20,
        cpuid_15h_eax: 1,
        cpuid_15h_ebx: 16,
    };
    let timing = Some(TimingOptions {
        params,
        mtc: true,
        cyc: true,
    });
    let mut encoder = Encoder::new(EncoderOptions {
        timing,
        ..EncoderOptions::default()
    });
    encoder.set_time(Tsc(1_000_000));
    encoder.start();
    encoder.enable(Avma(0x1000));
    // jmp *%rax, four times to itself, 10000 ticks apart.
    let times: Vec<u64> = (1..5).map(|step| 1_000_000 + 10_000 * step).collect();
    for &time in &times {
        encoder.set_time(Tsc(time));
        encoder.indirect(Avma(0x1000));
    }
    encoder.set_time(Tsc(1_090_000));
    encoder.disable_async(Avma(0x1000));
    let config = Config {
        timing: params,
        ..Config::default()
    };
    let history = run(encoder.take(), image(&[0xff, 0xe0]), &config);
    assert_eq!(history.len(), 4);
    for (index, &time) in times.iter().enumerate() {
        let estimate = history.time(index as u64).unwrap();
        // The jump retires at `time`; the crystal clock's period is 16 ticks.
        let latest = estimate.latest().unwrap().0;
        assert!(
            estimate.tsc.0 <= time && time <= latest + 16,
            "{index}: {estimate:?}, {time}"
        );
        assert!(estimate.uncertainty <= 10_032, "{index}: {estimate:?}");
    }
}

#[test]
fn buffers_of_a_thread_have_a_gap_between() {
    let input = || {
        let trace = Arc::new(stream(|encoder| encoder.disable_async(Avma(0x1001))));
        Input::Thread {
            tid: Tid(1),
            trace,
            image: image(&SYSCALL),
        }
    };
    let inputs = [input(), input()];
    let decoded = decode_agreed(&inputs, &BTreeMap::new(), &Config::default());
    let [history] = &*decoded.threads else {
        panic!("{} threads", decoded.threads.len())
    };
    assert_eq!(
        (pcs(history), causes(history)),
        (vec![0x1000, 0x1000], vec![&GapCause::NoTrace])
    );
}

#[test]
fn a_watch_cancels() {
    let Some(trace) = capture("pt/dynamorio/tracedir_2022-07-06/pt.bin") else {
        return;
    };
    let elf = capture("pt/dynamorio/tracedir_2022-07-06/hello").unwrap();
    let mut image = Image::new();
    add_elf(&mut image, &elf, None);
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace),
        image: Arc::new(image),
    };
    let watch = Watch {
        cancel: &AtomicBool::new(true),
        progress: &|_| {},
    };
    for engine in ENGINES {
        let config = Config::default();
        let decoder = Decoder::new(&config).engine(engine).watch(watch);
        let decoded = decoder.decode(std::slice::from_ref(&input), &BTreeMap::new());
        assert_eq!(decoded.err(), Some(Canceled), "{engine:?}");
    }
}

#[test]
fn no_trace_is_no_history() {
    for trace in [vec![], vec![0; 100], vec![0xff; 100]] {
        let history = run(trace, image(&[0x90]), &Config::default());
        assert_eq!(
            (history.len(), history.digest()),
            (0, backtrail_decoder::Digest::default().value())
        );
    }
}

/// Every packet that may have an address, at known code, at missing code, and in a circle: each gap
/// reads on.
#[test]
fn any_packets_over_missing_code_end() {
    let code = image(&[
        0x90, 0x75, 0xfd, 0xff, 0xd0, 0xf3, 0x0f, 0xae, 0xe0, 0x48, 0xcf, 0xeb, 0xfe, 0x0f, 0x01,
    ]);
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 20) % below.max(1) as u64) as usize
    };
    for round in 0..3000 {
        let mut trace = Vec::new();
        for _ in 0..3 {
            let at = |random: &mut dyn FnMut(usize) -> usize| {
                [0x1000, 0x1003, 0x1005, 0x1009, 0x100b, 0x100d, 0x9000, 0x9004][random(8)]
            };
            let header = format!("fup sext48:{:#x}", at(&mut random));
            let mut texts = vec!["psb".to_owned(), "mode.exec cs.l".to_owned()];
            texts.extend((random(3) > 0).then_some(header));
            texts.push("psbend".to_owned());
            for _ in 0..random(30) {
                let kind = random(24);
                let address = format!("sext48:{:#x}", at(&mut random));
                let bound = if random(2) == 0 { " ip" } else { "" };
                texts.push(match kind {
                    0..=2 => "tnt.short TN".to_owned(),
                    3..=5 => format!("tip {address}"),
                    6..=8 => format!("fup {address}"),
                    9 => "tip.pgd none".to_owned(),
                    10 => format!("tip.pgd {address}"),
                    11 | 12 => format!("tip.pge {address}"),
                    13 => format!("ptw u32:0x7{bound}"),
                    14..=16 => format!("cfe type:{:#x} vector:0x0{bound}", 1 + random(15)),
                    17 => format!("exstop{bound}"),
                    18 => "ovf".to_owned(),
                    19 => "mode.exec cs.l".to_owned(),
                    20 => format!("trig 0x1 icnt:{:#x}{bound}", random(3) * random(2)),
                    21 => "mode.tsx intx".to_owned(),
                    22 => "mode.tsx abrt".to_owned(),
                    _ => "pip 0x1000".to_owned(),
                });
            }
            for text in texts {
                text.parse::<Packet>().unwrap().write_to(&mut trace);
            }
        }
        let input = Input::Thread {
            tid: Tid(1),
            trace: Arc::new(trace.clone()),
            image: Arc::clone(&code),
        };
        let (config, inputs) = (Config::default(), [input]);
        let decoder = Decoder::new(&config);
        let whole = decoder.decode(&inputs, &BTreeMap::new()).unwrap();
        let jobs = std::num::NonZeroUsize::new(2).unwrap();
        let parts = decoder
            .jobs(jobs)
            .segment(16)
            .decode(&inputs, &BTreeMap::new())
            .unwrap();
        let of = |history: &History| (history.len(), history.digest(), history.marks().to_vec());
        assert_eq!(of(&parts.threads[0]), of(&whole.threads[0]), "round {round}");
        assert!(whole.threads[0].marks().len() <= trace.len(), "round {round}");
    }
}

/// Damaged captures give histories with gaps, in bounded time and memory.
#[test]
fn damaged_traces_never_panic_or_hang() {
    for (trace, elf) in [
        (
            "pt/hase/20180404/control_flow/x/aux-idx1.bin",
            "pt/hase/20180404/control_flow/control_flow",
        ),
        (
            "pt/dynamorio/tracedir_2022-07-06/pt.bin",
            "pt/dynamorio/tracedir_2022-07-06/hello",
        ),
        (
            "pt/lldb/intelpt-multi-core-trace/cores/51.intelpt_trace",
            "pt/lldb/intelpt-multi-core-trace/modules/m.out",
        ),
    ] {
        let Some(whole) = capture(trace) else { return };
        let mut code = Image::new();
        add_elf(&mut code, &capture(elf).unwrap(), None);
        let code = Arc::new(code);
        // A simple generator, the same in each run.
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below.max(1) as u64) as usize
        };
        for round in 0..60 {
            let mut bytes = whole.clone();
            bytes.truncate(if round % 3 == 0 {
                random(whole.len())
            } else {
                whole.len()
            });
            for _ in 0..random(12) {
                let at = random(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random(8);
                }
            }
            let len = bytes.len();
            // After a broken trace, the return stacks of libipt's rule and ours differ.
            let config = Config {
                uncompressed_returns: UncompressedReturns::Keep,
                ..Config::default()
            };
            let history = run(bytes, Arc::clone(&code), &config);
            assert!(
                history.memory() <= 1024 * (len + 1024),
                "{trace} round {round}: {}",
                history.memory()
            );
        }
    }
}
