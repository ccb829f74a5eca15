//! Parses `perf.data` files truncated at every length and mutated at random: they are read or
//! refused without a panic.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_perf::data::{DataItem, PerfData};
use backtrail_perf::record::RecordEvent;
use backtrail_perf::{Error, switch};
use std::path::PathBuf;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt");

fn capture(path: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(CAPTURES).join(path);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
    }
    std::fs::read(path).ok()
}

/// Reads all items, and counts items, switch records and bytes of AUX data.
fn read(bytes: &[u8]) -> Result<[usize; 3], Error> {
    let data = PerfData::parse(bytes)?;
    let (_, _, _, _) = (
        data.cpu_model(),
        data.host(),
        data.build_ids(),
        data.command_line(),
    );
    let mut counts = [0; 3];
    for item in data.items() {
        counts[0] += 1;
        match item? {
            DataItem::Record(record) => {
                counts[1] += usize::from(matches!(record.event, RecordEvent::Switch(_)))
            }
            DataItem::Aux(piece) => counts[2] += piece.bytes.len(),
            _ => {}
        }
    }
    Ok(counts)
}

#[test]
fn captures_are_read_completely() {
    let Some(loopy) = capture("hase/20180404/loopy/loopy-20180404T162955.perf") else {
        return;
    };
    assert_eq!(read(&loopy).unwrap()[2], 1392);
    let quipper = capture("quipper/perf.data.intel_pt-4.14").unwrap();
    assert_eq!(read(&quipper).unwrap()[2], 12_240 + 137_728);
    let data = PerfData::parse(&quipper).unwrap();
    assert_eq!(data.cpu_model().unwrap().to_string(), "6/78/3");
    assert_eq!(data.build_ids().first().unwrap().0, "[kernel.kallsyms]");
    assert_eq!(data.command_line()[1], "record");
}

#[test]
fn truncated_file_is_refused_unless_only_features_are_missing() {
    let Some(bytes) = capture("hase/20180404/loopy/loopy-20180404T162955.perf") else {
        return;
    };
    let data_end = 14_488;
    for end in 0..data_end {
        assert!(read(&bytes[..end]).unwrap_err().is_malformed(), "{end}");
    }
    let whole = read(&bytes).unwrap();
    for end in (data_end..bytes.len()).step_by(13) {
        if let Ok(counts) = read(&bytes[..end]) {
            assert_eq!(counts, whole, "{end}");
        }
    }
}

#[test]
fn mutated_file_is_read_or_refused() {
    let Some(bytes) = capture("hase/20180404/control_flow/control_flow-20180404T163033.perf") else {
        return;
    };
    // xorshift64*: pseudo-random and reproducible.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    };
    let mut refused = 0;
    for round in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..=below(4) {
            let at = below(if round % 4 == 0 { changed.len() } else { 2000 });
            let end = changed.len().min(at + 1 + below(8));
            let value = [below(256) as u8, 0, 0xff, 0x7f][below(4)];
            changed[at..end].fill(value);
        }
        refused += usize::from(read(&changed).is_err());
    }
    assert!((1000..19_999).contains(&refused), "{refused}");
}

#[test]
fn switch_trace_of_a_real_machine_is_read() {
    let Some(bytes) = capture("lldb/intelpt-multi-core-trace/cores/51.perf_context_switch_trace") else {
        return;
    };
    assert_eq!(switch::parse(&bytes).unwrap().len(), 226);
    for end in 0..bytes.len() {
        assert_eq!(switch::parse(&bytes[..end]).is_ok(), end % 32 == 0, "{end}");
    }
}
