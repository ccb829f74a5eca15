//! A crew over made traces: whole, and one that cannot be cut.

use super::{Crew, Failed};
use crate::engine::native::Native;
use crate::meter::Meter;
use crate::trace::Tail;
use crate::{Config, Engine, History, HistoryBuilder, Image, Knowledge, Section, Watch};
use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{Avma, Encoder, EncoderOptions, Parser, Tid, TimingParams, Tsc};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const AT: Avma = Avma(0x1000);

/// A conditional jump to itself, and then to itself again.
const CODE: [u8; 4] = [0x75, 0xfe, 0xeb, 0xfc];

const TIMING: TimingParams = TimingParams {
    mtc_freq: 3,
    nom_freq: 30,
    cpuid_15h_eax: 1,
    cpuid_15h_ebx: 64,
};

/// So many rounds, with PSBs that tell the place `place`.
fn packets(rounds: u64, place: Avma) -> Vec<u8> {
    packets_with_time(rounds, place, None)
}

/// The same with time.
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

fn decode(trace: &[u8], jobs: usize) -> Result<History, Failed> {
    decode_as(trace, &Config::default(), jobs, 1000)
}

fn decode_as(trace: &[u8], config: &Config, jobs: usize, least: usize) -> Result<History, Failed> {
    decode_knowing(
        trace,
        &Arc::new(image()),
        config,
        jobs,
        least,
        &Knowledge::default(),
    )
}

fn decode_knowing(
    trace: &[u8],
    image: &Arc<Image>,
    config: &Config,
    jobs: usize,
    least: usize,
    knowledge: &Knowledge,
) -> Result<History, Failed> {
    let (watch, done) = (Watch::none(), AtomicU64::new(0));
    let crew = Crew {
        native: &Native,
        trace: Tail::new(trace, None),
        image,
        config,
        meter: &Meter::new(&watch, &done, trace.len() as u64),
    };
    let (history, _) = crew.decode(
        HistoryBuilder::new(Tid(1)),
        None,
        knowledge,
        NonZeroUsize::new(jobs).unwrap(),
        least,
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
fn what_was_learnt_by_some_is_good_for_more_and_for_other_traces() {
    let (image, knowledge) = (Arc::new(image()), Knowledge::default());
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
        // With cycles, the same flow is other packets, of which each engine learns some.
        let trace = packets_with_time(rounds, AT, Some(timing(true, cyc)));
        let wanted = decode_as(&trace, &config, 1, 5000).unwrap().digest();
        for _ in 0..3 {
            let history = decode_knowing(&trace, &image, &config, jobs, 2000, &knowledge).unwrap();
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
fn segments_begin_with_the_time_that_the_one_before_ends_with() {
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
fn packets_of_the_time_that_cannot_be_are_left_to_a_decode_in_order() {
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
    // The PSB+ before it had one.
    assert_eq!(with(&tma), Some(Failed::Apart));
}

#[test]
fn a_place_that_the_flow_does_not_come_to_is_no_seam() {
    let trace = packets(100_000, AT + 2);
    assert_eq!(decode(&trace, 2).err(), Some(Failed::Apart));
}

#[test]
fn flow_that_is_lost_at_a_seam_is_found_at_it_again() {
    // Each PSB tells a place in the middle of an instruction, and the code is lost behind it.
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
