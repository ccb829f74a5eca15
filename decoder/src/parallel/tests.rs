//! A parallel decoder on synthetic traces, some of which cannot be split.

use super::{ParallelDecoder, ParallelError};
use crate::engine::native::Native;
use crate::meter::Meter;
use crate::trace_tail::TraceTail;
use crate::{Config, DecodeCachePool, Engine, History, HistoryBuilder, Image, Resync, Section, Watch};
use backtrail_pt::cpu::Vendor;
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, CpuModel, Encoder, EncoderOptions, Packet, Parser, Tid, TimingParams, Tsc};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const AT: Avma = Avma(0x1000);

/// A conditional jump to itself, and a jump back to it.
const CODE: [u8; 4] = [0x75, 0xfe, 0xeb, 0xfc];

const TIMING: TimingParams = TimingParams {
    mtc_freq: 3,
    nom_freq: 30,
    cpuid_15h_eax: 1,
    cpuid_15h_ebx: 64,
};

/// Returns a trace of `rounds` branches, with PSBs that report the address `place`.
fn packets(rounds: u64, place: Avma) -> Vec<u8> {
    packets_with_time(rounds, place, None)
}

/// Like [`packets`], with timing packets.
fn packets_with_time(rounds: u64, place: Avma, timing: Option<TimingOptions>) -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderOptions {
        psb_period: 256,
        timing,
        ..EncoderOptions::default()
    });
    encoder.set_time(Tsc(1 << 40));
    encoder.start();
    encoder.enable(AT);
    for round in 0..rounds {
        encoder.set_time(Tsc((1 << 40) + round * 37 % 1000 + round * 1000));
        if encoder.psb_due() {
            encoder.psb(place);
        }
        encoder.conditional(round % 7 < 3);
    }
    encoder.disable_async(AT);
    encoder.take()
}

fn image() -> Image {
    let mut image = Image::new();
    image.add(Section {
        start: AT,
        bytes: Arc::new(CODE),
    });
    image
}

fn decode(trace: &[u8], jobs: usize) -> Result<History, ParallelError> {
    decode_as(trace, &Config::default(), jobs, 1000)
}

fn decode_as(trace: &[u8], config: &Config, jobs: usize, min_len: usize) -> Result<History, ParallelError> {
    decode_with_pool(
        trace,
        &Arc::new(image()),
        config,
        jobs,
        min_len,
        &DecodeCachePool::default(),
    )
}

fn decode_with_pool(
    trace: &[u8],
    image: &Arc<Image>,
    config: &Config,
    jobs: usize,
    min_len: usize,
    pool: &DecodeCachePool,
) -> Result<History, ParallelError> {
    let (watch, done) = (Watch::none(), AtomicU64::new(0));
    let decoder = ParallelDecoder {
        trace: TraceTail::new(trace, None),
        image,
        config,
        meter: &Meter::new(&watch, &done, trace.len() as u64),
    };
    let (history, _) = decoder.decode(
        HistoryBuilder::new(Tid(1)),
        None,
        pool,
        NonZeroUsize::new(jobs).unwrap(),
        min_len,
    )?;
    Ok(history)
}

#[test]
fn segments_are_put_together_in_order() {
    let trace = packets(100_000, AT);
    assert!(trace.len() > 10_000);
    let wanted = (0..100_000u64).map(|round| 1 + u64::from(round % 7 >= 3)).sum();
    for jobs in [1, 2, 5] {
        let history = decode(&trace, jobs).unwrap();
        assert_eq!((history.len(), history.errors()), (wanted, 0), "{jobs}");
        assert_eq!(history.marks().len(), 0, "{jobs}");
    }
}

#[test]
fn caches_serve_more_threads_and_other_traces() {
    let (image, pool) = (Arc::new(image()), DecodeCachePool::default());
    let config = Config {
        timing: TIMING,
        ..Config::default()
    };
    for (jobs, rounds, cyc) in [
        (3, 100_000, true),
        (1, 9_000, false),
        (5, 100_000, false),
        (3, 70_000, true),
    ] {
        // With CYC packets, the same flow has other packets, which each engine caches.
        let trace = packets_with_time(rounds, AT, Some(timing(true, cyc)));
        let wanted = decode_as(&trace, &config, 1, 5000).unwrap().digest();
        for _ in 0..3 {
            let history = decode_with_pool(&trace, &image, &config, jobs, 2000, &pool).unwrap();
            assert_eq!(history.digest(), wanted, "{jobs} {rounds}");
        }
    }
}

fn timing(mtc: bool, cyc: bool) -> TimingOptions {
    TimingOptions {
        params: TIMING,
        mtc,
        cyc,
    }
}

#[test]
fn segments_start_with_the_end_time_of_the_previous() {
    let config = Config {
        timing: TIMING,
        ..Config::default()
    };
    for (mtc, cyc) in [(false, false), (true, false), (true, true)] {
        let trace = packets_with_time(100_000, AT, Some(timing(mtc, cyc)));
        let mut builder = HistoryBuilder::new(Tid(1));
        Native.decode(&trace, &image(), &config, &mut builder).unwrap();
        let wanted = builder.finish();
        assert!(wanted.time(0).is_some());
        for jobs in [1, 3] {
            let history = decode_as(&trace, &config, jobs, 5000).unwrap();
            assert_eq!(history.digest(), wanted.digest());
            for index in (0..wanted.len()).step_by(9973) {
                assert_eq!(
                    history.time(index),
                    wanted.time(index),
                    "{mtc} {cyc} {jobs} {index}"
                );
            }
        }
    }
}

#[test]
fn impossible_timing_packets_force_sequential_decode() {
    let config = Config {
        timing: TIMING,
        ..Config::default()
    };
    let trace = packets_with_time(100_000, AT, Some(timing(true, false)));
    let mut packets = Parser::new(&trace).map(|packet| packet.unwrap().0);
    let half = packets.find(|&begin| begin >= trace.len() / 2).unwrap();
    let with = |packet: &[u8]| {
        let trace = [&trace[..half], packet, &trace[half..]].concat();
        decode_as(&trace, &config, 2, 5000).err()
    };
    let (padding, tma) = ([0; 7], [0x02, 0x73, 0, 0, 0, 0, 0]);
    assert_eq!(with(&padding), None);
    // The preceding PSB+ had a TMA.
    assert_eq!(with(&tma), Some(ParallelError::Discontinuous));
}

/// Checks that two threads find what one does, or leave the trace to one.
fn check_as_in_order(trace: &[u8], config: &Config, image: &Arc<Image>) {
    let mut builder = HistoryBuilder::new(Tid(1));
    Native.decode(trace, &**image, config, &mut builder).unwrap();
    let in_order = builder.finish();
    assert!(in_order.errors() > 0);
    match decode_with_pool(trace, image, config, 2, 1000, &DecodeCachePool::default()) {
        Ok(by_two) => {
            let result = |history: &History| (history.digest(), history.marks().to_vec());
            assert_eq!(result(&by_two), result(&in_order));
        }
        Err(error) => assert_eq!(error, ParallelError::Discontinuous),
    }
}

/// Returns the configuration for a model of Intel's family 6.
fn of_model(model: u8) -> Config {
    Config {
        timing: TIMING,
        cpu: Some(CpuModel {
            vendor: Vendor::Intel,
            family: 6,
            model,
            stepping: 0,
        }),
        ..Config::default()
    }
}

/// Returns a trace with its first TIP.PGE replaced.
fn with_start(start: &[u8]) -> Vec<u8> {
    let trace = packets_with_time(100_000, AT, Some(timing(true, false)));
    let mut packets = Parser::new(&trace).map(|packet| packet.unwrap());
    let enabled = packets.find(|(_, packet)| matches!(packet, Packet::TipPge(_)));
    let (before, after) = (enabled.unwrap().0, packets.next().unwrap().0);
    [&trace[..before], start, &trace[after..]].concat()
}

/// A TMA, although the PSB+ had one.
const TMA: [u8; 7] = [0x02, 0x73, 0, 0, 0, 0, 0];

/// A TIP.PGE with the address 0x2000.
const ENABLED: [u8; 7] = [0x71, 0x00, 0x20, 0, 0, 0, 0];

const OVERFLOW: [u8; 2] = [0x02, 0xf3];

#[test]
fn impossible_time_before_the_flow_is_found() {
    // A decode that starts at the PSB reads up to the unknown packet, and drops what it read.
    let trace = with_start(&[&TMA[..], &[0x02, 0x0f]].concat());
    check_as_in_order(&trace, &of_model(0x9a), &Arc::new(image()));
}

#[test]
fn impossible_time_after_an_overflow_is_found() {
    let mut image = image();
    // A jump to lost code, which leaves an outcome over.
    image.add(Section {
        start: Avma(0x2000),
        bytes: Arc::new([0x75, 0x40]),
    });
    let image = Arc::new(image);
    let (outcomes, mwait) = ([0b1110], [0x02, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Under SKD010, the packets after the overflow decide whether it has an address.
    let trace = with_start(&[&ENABLED[..], &outcomes, &OVERFLOW, &TMA, &mwait].concat());
    let config = Config {
        resync: Resync::NextPsb,
        ..of_model(0x5e)
    };
    check_as_in_order(&trace, &config, &image);
    // Under APL11, they decide whether tracing is disabled. No ratio of clocks is 0.
    let cbr = [0x02, 0x03, 0, 0];
    let trace = with_start(&[&ENABLED[..], &outcomes[..], &OVERFLOW, &cbr, &outcomes].concat());
    check_as_in_order(&trace, &of_model(0x9a), &image);
}

/// Packets that are errors in some places, most of them because of the time there.
const DISTURBANCES: [&[u8]; 14] = [
    &TMA,
    // No ratio of clocks is 0.
    &[0x02, 0x03, 0, 0],
    &[0x02, 0x03, 7, 0],
    // TSC.
    &[0x19, 1, 0, 0, 0, 0, 1, 0],
    &[0x19, 0, 0, 0, 0, 0, 0, 0],
    // MTC and CYC.
    &[0x59, 0x80],
    &[0x59, 0x00],
    &[0x83],
    // An unknown packet.
    &[0x02, 0x0f],
    &OVERFLOW,
    &ENABLED,
    // TIP.PGD without an address.
    &[0x01],
    // PSBEND.
    &[0x02, 0x23],
    // TNT.
    &[0b1110],
];

#[test]
fn two_threads_find_what_one_does_in_damaged_traces() {
    let trace = packets_with_time(1500, AT, Some(timing(true, true)));
    let packets: Vec<_> = Parser::new(&trace).map(|packet| packet.unwrap()).collect();
    let is_start = |(_, packet): &&(usize, Packet)| matches!(packet, Packet::TipPge(_));
    let start = packets.iter().find(is_start).unwrap().0;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        // xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    let image = Arc::new(image());
    let (mut parallel, mut discontinuous) = (0, 0);
    for _ in 0..1500 {
        let mut damaged = trace.clone();
        // Half of the cases are damaged where the flow begins, and read ahead for its address.
        let random = packets[below(packets.len())].0;
        let at = [start, random][below(2)];
        for _ in 0..=below(3) {
            let packet = DISTURBANCES[below(DISTURBANCES.len())];
            damaged.splice(at..at, packet.iter().copied());
        }
        let model = [0x9a, 0x5e, 0x5c, 0x55][below(4)];
        let config = Config {
            resync: [Resync::NextAddress, Resync::NextPsb][below(2)],
            ..of_model(model)
        };
        let mut builder = HistoryBuilder::new(Tid(1));
        Native.decode(&damaged, &*image, &config, &mut builder).unwrap();
        let in_order = builder.finish();
        match decode_with_pool(&damaged, &image, &config, 2, 64, &DecodeCachePool::default()) {
            Ok(by_two) => {
                let result = |history: &History| {
                    let times: Vec<_> = (0..=history.len()).map(|at| history.time(at)).collect();
                    (history.digest(), history.marks().to_vec(), times)
                };
                assert_eq!(result(&by_two), result(&in_order), "{model:#x} {damaged:02x?}");
                parallel += 1;
            }
            Err(error) => {
                assert_eq!(error, ParallelError::Discontinuous);
                discontinuous += 1;
            }
        }
    }
    assert!(parallel > 50 && discontinuous > 50, "{parallel} {discontinuous}");
}

#[test]
fn psb_off_the_flow_is_no_boundary() {
    let trace = packets(100_000, AT + 2);
    assert_eq!(decode(&trace, 2).err(), Some(ParallelError::Discontinuous));
}

#[test]
fn flow_lost_at_a_boundary_resumes_there() {
    // Each PSB reports an address inside an instruction, and the code is lost after it.
    let trace = packets(100_000, AT + 1);
    let mut builder = HistoryBuilder::new(Tid(1));
    Native
        .decode(&trace, &image(), &Config::default(), &mut builder)
        .unwrap();
    let (in_order, by_two) = (builder.finish(), decode(&trace, 2).unwrap());
    assert!(in_order.errors() > 50);
    assert_eq!(
        (by_two.errors(), by_two.digest(), by_two.marks()),
        (in_order.errors(), in_order.digest(), in_order.marks())
    );
}
