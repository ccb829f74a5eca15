//! A crew over made traces: whole, and one that cannot be cut.

use super::{Crew, Failed, Joiner};
use crate::engine::native::Native;
use crate::meter::Meter;
use crate::trace::Tail;
use crate::{Config, Engine, History, HistoryBuilder, Image, Knowledge, Section, Watch};
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const AT: Avma = Avma(0x1000);

/// A conditional jump to itself, and then to itself again.
const CODE: [u8; 4] = [0x75, 0xfe, 0xeb, 0xfc];

/// So many rounds, with PSBs that tell the place `place`.
fn packets(rounds: u64, place: Avma) -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderOptions {
        psb_period: 256,
        ..EncoderOptions::default()
    });
    encoder.start();
    encoder.enable(AT);
    for round in 0..rounds {
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
    let image = Arc::new(image());
    let (watch, done) = (Watch::none(), AtomicU64::new(0));
    let crew = Crew {
        native: &Native,
        trace: Tail::new(trace, None),
        image: &image,
        config: &Config::default(),
        meter: &Meter::new(&watch, &done, trace.len() as u64),
    };
    let joiner = Joiner::new(HistoryBuilder::new(Tid(1)), false);
    let (joiner, _) = crew.decode(
        joiner,
        None,
        &Knowledge::default(),
        NonZeroUsize::new(jobs).unwrap(),
        1000,
    )?;
    Ok(joiner.finish())
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
