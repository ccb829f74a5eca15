//! Tests the decode of only the last part of a trace.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

use backtrail_decoder::{Config, Decoder, Engine, GapCause, History, Image, Input, MarkKind, Section};
use backtrail_oracle::Libipt;
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

const AT: Avma = Avma(0x1000);
/// A conditional jump to itself, and a jump back to it.
const CODE: [u8; 4] = [0x75, 0xfe, 0xeb, 0xfc];

fn packets() -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderOptions {
        psb_period: 256,
        ..EncoderOptions::default()
    });
    encoder.start();
    encoder.enable(AT);
    for round in 0..50_000u64 {
        if encoder.psb_due() {
            encoder.psb(AT);
        }
        encoder.conditional(round * round % 7 < 3);
    }
    encoder.disable_async(AT);
    encoder.take()
}

fn history(last: Option<u64>, engine: Option<&dyn Engine>, jobs: usize) -> History {
    let mut image = Image::new();
    image.add(Section {
        start: AT,
        bytes: Arc::new(CODE),
    });
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(packets()),
        image: Arc::new(image),
    };
    let config = Config::default();
    let decoder = Decoder::new(&config)
        .jobs(NonZeroUsize::new(jobs).unwrap())
        .segment(500)
        .last(last);
    let decoder = match engine {
        Some(engine) => decoder.engine(engine),
        None => decoder,
    };
    let decoded = decoder.decode(&[input], &BTreeMap::new()).unwrap();
    decoded.threads.into_iter().next().unwrap()
}

#[test]
fn tail_of_a_trace_gives_the_end_of_the_history() {
    let whole = history(None, None, 1);
    let bytes = packets().len() as u64;
    let ways: [(Option<&dyn Engine>, usize); 3] = [(None, 1), (None, 3), (Some(&Libipt), 1)];
    for (engine, jobs) in ways {
        let last = history(Some(3000), engine, jobs);
        assert!(
            last.len() > 3000 && last.len() < whole.len() / 2,
            "{}",
            last.len()
        );
        let end: Vec<_> = whole.walk(whole.len() - last.len()).collect();
        assert_eq!(last.walk(0).collect::<Vec<_>>(), end, "{engine:?} {jobs}");
        let MarkKind::Gap(gap) = &last.marks()[0].kind else {
            panic!("{:?}", last.marks());
        };
        assert_eq!((last.marks()[0].index, &gap.cause), (0, &GapCause::Start));
        // The offset is relative to the whole trace.
        let resumed = gap.resumed_offset.unwrap();
        assert!((bytes - 3000..bytes - 2000).contains(&resumed), "{resumed}");
    }
}
