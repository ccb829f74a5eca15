//! Tests long code without packets: it is followed while the trace is long enough, and becomes a
//! gap beyond that.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

#[path = "common/agreed.rs"]
mod agreed;

use agreed::decode_agreed;
use backtrail_decoder::{Config, Decoder, GapCause, History, Image, Input, Section};
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

const AT: u64 = 0x1000;

/// Returns `body` with a `jne` back to its start.
fn looped(mut body: Vec<u8>) -> Vec<u8> {
    let back = -(body.len() as i32 + 6);
    body.extend([0x0f, 0x85]);
    body.extend(back.to_le_bytes());
    body
}

/// Returns a number of `inc rax`.
fn straight(instructions: usize) -> Vec<u8> {
    looped([0x48, 0xff, 0xc0].repeat(instructions))
}

/// Returns direct jumps, each to the next.
fn jumps(count: usize) -> Vec<u8> {
    looped([0xeb, 0x00].repeat(count))
}

fn input(code: Vec<u8>, trace: Vec<u8>) -> Input {
    let mut image = Image::new();
    image.add(Section {
        start: Avma(AT),
        bytes: Arc::new(code),
    });
    Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace),
        image: Arc::new(image),
    }
}

fn history(input: &Input, jobs: usize, segment: u64) -> History {
    let config = Config::default();
    let decoder = Decoder::new(&config)
        .jobs(NonZeroUsize::new(jobs).unwrap())
        .segment(segment.try_into().unwrap());
    let decoded = decoder
        .decode(std::slice::from_ref(input), &BTreeMap::new())
        .unwrap();
    decoded.threads.into_iter().next().unwrap()
}

/// Returns a PSB+ at the start of the loop, then short TNT packets of taken branches, repeatedly.
fn branches(headers: usize, packets: usize) -> Vec<u8> {
    let mut trace = Vec::new();
    for _ in 0..headers {
        trace.extend([0x02, 0x82].repeat(8));
        trace.extend([0x99, 0x01, 0x7d, 0x00, 0x10, 0, 0, 0, 0, 0x02, 0x23]);
        trace.extend(vec![0xfe; packets]);
    }
    trace
}

fn overlong(history: &History) -> usize {
    let gaps = history.gaps().map(|(_, gap)| &gap.cause);
    gaps.filter(|cause| matches!(cause, GapCause::Overlong { .. }))
        .count()
}

#[test]
fn long_code_without_packets_is_followed_as_libipt_follows_it() {
    // The blocks include calls that do not return, and a target in the middle.
    let mut body = Vec::new();
    for number in 0..120 {
        match number % 4 {
            0 => body.extend([0xe8, 1, 0, 0, 0, 0x90]),
            1 => body.extend([0xeb, 0]),
            2 => body.extend([0x48, 0xff, 0xc0].repeat(100)),
            _ => body.extend([0xe8, 0, 0, 0, 0]),
        }
    }
    let code = looped(body);
    let mut encoder = Encoder::new(EncoderOptions::default());
    encoder.start();
    encoder.enable(Avma(AT));
    for round in 0..300 {
        encoder.conditional(true);
        if round % 50 == 49 {
            encoder.psb(Avma(AT));
        }
        if round % 70 == 69 {
            encoder.disable_async(Avma(AT + 700));
            encoder.enable(Avma(AT + 700));
        }
    }
    encoder.disable_async(Avma(AT));
    let input = input(code, encoder.take());
    let decoded = decode_agreed(&[input], &BTreeMap::new(), &Config::default());
    let history = &decoded.threads[0];
    assert_eq!((history.errors(), overlong(history)), (0, 0));
    assert!(history.len() > 300 * 3000, "{}", history.len());
}

#[test]
fn loops_of_thousands_of_instructions_are_never_cut() {
    for code in [straight(15_000), jumps(300)] {
        let per_branch = (code.len() as u64 - 6) / if code[0] == 0x48 { 3 } else { 2 } + 1;
        let history = history(&input(code, branches(4, 4096)), 1, Decoder::SEGMENT as u64);
        assert_eq!(overlong(&history), 0);
        assert!(history.len() >= 4 * 4096 * 6 * per_branch, "{}", history.len());
    }
}

#[test]
fn straight_code_is_bounded_by_packets_and_not_by_its_length() {
    for (instructions, packets) in [(65_000, 10), (66_000, 10), (200_000, 3), (1_000_000, 1)] {
        let history = history(
            &input(straight(instructions), branches(1, packets)),
            1,
            Decoder::SEGMENT as u64,
        );
        assert!(causes(&history).is_empty());
        // The code after the last outcome is not proven.
        let passes = packets as u64 * 6;
        assert_eq!(history.len(), passes * (instructions as u64 + 1));
    }
}

#[test]
fn ten_million_instructions_may_run_at_a_psb() {
    let trace = [branches(1, 0), vec![0x06]].concat();
    let history = history(&input(looped(vec![0x90; 10_000_000]), trace), 2, 64);
    assert_eq!((causes(&history).len(), history.len()), (0, 10_000_001));
}

#[test]
fn many_direct_jumps_are_no_circle() {
    // Each jump goes to the next; then calls that do not return.
    for code in [jumps(10_000), looped([0xe8, 1, 0, 0, 0, 0x90].repeat(10_000))] {
        let history = history(&input(code, branches(1, 1)), 1, Decoder::SEGMENT as u64);
        assert_eq!((causes(&history).len(), history.len()), (0, 6 * 10_001));
    }
}

#[test]
fn circles_of_any_length_are_found_in_time() {
    for jumps in [1, 2, 40, 100, 5000, 60_000] {
        // The last jump goes back to the first.
        let mut code = [0xeb, 0x00].repeat(jumps);
        code.push(0xe9);
        code.extend((-(code.len() as i32 + 4)).to_le_bytes());
        let began = Instant::now();
        let history = history(&input(code, branches(20, 100)), 1, Decoder::SEGMENT as u64);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(!causes(&history).is_empty());
        for cause in causes(&history) {
            assert!(matches!(
                cause,
                GapCause::RunAway { .. } | GapCause::Overlong { .. }
            ));
        }
        assert!(
            history.len() <= 20 * (5 * jumps as u64 + 5),
            "{jumps}: {}",
            history.len()
        );
    }
}

fn causes(history: &History) -> Vec<&GapCause> {
    let causes = history.gaps().map(|(_, gap)| &gap.cause);
    causes.filter(|cause| **cause != GapCause::Start).collect()
}

/// Without the bound, there was no result within 40 seconds, and a gigabyte of memory was used per
/// 80 KiB of trace.
#[test]
fn overlong_trace_is_cut_in_time() {
    for code in [straight(30_000), jumps(4000)] {
        let began = Instant::now();
        let history = history(&input(code, branches(1, 1 << 20)), 1, Decoder::SEGMENT as u64);
        assert_eq!(overlong(&history), 1);
        assert!(history.len() > 1 << 16, "{}", history.len());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn segment_bounds_do_not_depend_on_threads() {
    for code in [straight(30_000), jumps(4000), jumps(40), straight(2040)] {
        let input = input(code, branches(6, 60));
        let one = history(&input, 1, Decoder::SEGMENT as u64);
        for (jobs, segment) in [(2, 64), (3, 200)] {
            let other = history(&input, jobs, segment);
            let summary = |history: &History| (history.len(), history.digest(), history.marks().to_vec());
            assert_eq!(summary(&other), summary(&one), "{jobs} {segment}");
        }
    }
}
