//! Tests of the encoder's packets, in the text notation.

use super::*;
use crate::{Parser, TimingParams};

fn packets(bytes: &[u8]) -> Vec<String> {
    Parser::new(bytes)
        .map(|packet| packet.unwrap().1.to_string())
        .collect()
}

fn plain() -> Encoder {
    Encoder::new(EncoderOptions::default())
}

#[test]
fn system_call_and_signal_are_encoded() {
    let mut encoder = plain();
    encoder.start();
    encoder.enable(Avma(0x40_1000));
    encoder.conditional(true);
    encoder.conditional(false);
    encoder.indirect(Avma(0x40_2000));
    encoder.disable();
    encoder.enable(Avma(0x40_2002));
    encoder.disable_async(Avma(0x40_2010));
    let expected = [
        "psb",
        "mode.exec cs.l",
        "psbend",
        "mode.exec cs.l",
        "tip.pge upd32:0x401000",
        "tnt.short TN",
        "tip upd16:0x2000",
        "tip.pgd none",
        "mode.exec cs.l",
        "tip.pge upd16:0x2002",
        "fup upd16:0x2010",
        "tip.pgd none",
    ];
    assert_eq!(packets(&encoder.take()), expected);
}

#[test]
fn outcomes_are_grouped_by_six_or_forty_seven() {
    let mut encoder = plain();
    (0..13).for_each(|branch| encoder.conditional(branch % 2 == 0));
    assert_eq!(
        packets(&encoder.take()),
        ["tnt.short TNTNTN", "tnt.short TNTNTN", "tnt.short T"]
    );
    let mut encoder = Encoder::new(EncoderOptions {
        long_tnt: true,
        ..EncoderOptions::default()
    });
    (0..48).for_each(|branch| encoder.conditional(branch % 2 == 0));
    let text = packets(&encoder.take());
    assert_eq!(text[0], format!("tnt.long {}T", "TN".repeat(23)));
    assert_eq!(text[1], "tnt.short N");
    (0..7).for_each(|_| encoder.conditional(false));
    assert_eq!(packets(&encoder.take()), ["tnt.long NNNNNNN"]);
}

proptest::proptest! {
    #[test]
    fn grouped_outcomes_match_single_outcomes(
        groups in proptest::collection::vec((0u64..1 << 48, 0u8..49, proptest::bool::ANY), 0..20),
        long_tnt in proptest::bool::ANY,
    ) {
        let options = EncoderOptions { long_tnt, ..EncoderOptions::default() };
        let (mut single, mut grouped) = (Encoder::new(options), Encoder::new(options));
        for (outcomes, count, many) in groups {
            let outcomes = outcomes & !(u64::MAX << count);
            (0..count).rev().for_each(|bit| single.conditional(outcomes >> bit & 1 != 0));
            if many || count == 48 {
                grouped.branch(|branches| branches.many_conditionals(outcomes, count));
            } else {
                grouped.conditionals(outcomes, count);
            }
        }
        proptest::prop_assert_eq!(single.take(), grouped.take());
    }
}

#[test]
fn matching_return_is_one_bit_until_a_psb() {
    let mut encoder = plain();
    encoder.call(Avma(0x1005), Avma(0x2000), true);
    encoder.near_return(Avma(0x1005));
    encoder.call(Avma(0x1006), Avma(0x1006), true);
    encoder.near_return(Avma(0x1006));
    encoder.call(Avma(0x1007), Avma(0x2000), true);
    encoder.psb(Avma(0x2000));
    encoder.near_return(Avma(0x1007));
    let text = packets(&encoder.take());
    assert_eq!(text[..2], ["tnt.short T", "tip upd16:0x1006"]);
    assert_eq!(text.last().map(String::as_str), Some("tip upd16:0x1007"));
}

#[test]
fn overflow_drops_pending_outcomes_and_writes_full_ip() {
    let mut encoder = plain();
    encoder.conditional(true);
    encoder.overflow(Some(Avma(0x1000)));
    encoder.indirect(Avma(0x1010));
    assert_eq!(
        packets(&encoder.take()),
        ["ovf", "fup full:0x1000", "tip upd16:0x1010"]
    );
}

#[test]
fn psb_period_counts_all_bytes() {
    let mut encoder = plain();
    encoder.start();
    while !encoder.psb_due() {
        encoder.indirect(Avma(0x1000));
        encoder.take();
    }
    assert!(encoder.written() >= 2048 && encoder.written() < 2060);
    encoder.psb(Avma(0x1000));
    assert!(!encoder.psb_due());
}

fn timed() -> Encoder {
    let params = TimingParams {
        mtc_freq: 3,
        nom_freq: 25,
        cpuid_15h_eax: 1,
        cpuid_15h_ebx: 100,
    };
    let timing = Some(TimingOptions {
        params,
        mtc: true,
        cyc: true,
    });
    Encoder::new(EncoderOptions {
        timing,
        ..EncoderOptions::default()
    })
}

#[test]
fn mtc_and_cyc_sum_to_the_tsc() {
    let mut encoder = timed();
    encoder.set_time(Tsc(1_000_050));
    encoder.start();
    encoder.set_time(Tsc(1_000_060));
    encoder.conditional(true);
    encoder.set_time(Tsc(1_001_700));
    encoder.indirect(Avma(0x1000));
    let expected = [
        "psb",
        "tsc 0xf4272",
        "tma ctc:0x2710 fast:0x32", // 10000 edges, 50 ticks
        "cbr 0x19",
        "mode.exec cs.l",
        "psbend",
        "cyc 0xa",
        "tnt.short T",
        "cyc 0x2e4", // to the edge at 1,000,800
        "mtc 0xe3",
        "cyc 0x320", // to the edge at 1,001,600
        "mtc 0xe4",
        "cyc 0x64",
        "tip upd16:0x1000",
    ];
    assert_eq!(packets(&encoder.take()), expected);
}

#[test]
fn long_pause_writes_the_full_time() {
    let mut encoder = timed();
    encoder.set_time(Tsc(1_000_000));
    encoder.start();
    encoder.take();
    encoder.set_time(Tsc(9_000_000));
    assert_eq!(
        packets(&encoder.take()),
        ["cbr 0x19", "tsc 0x895440", "tma ctc:0x5f90 fast:0x0"]
    );
    encoder.set_time(Tsc(8_000_000));
    encoder.set_time(Tsc(9_000_010));
    encoder.disable();
    assert_eq!(packets(&encoder.take()), ["cyc 0xa", "tip.pgd none", "cyc 0x1"]);
}
