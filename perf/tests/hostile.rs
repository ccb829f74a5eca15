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

/// Returns what `perf record -o -` writes for a file: its events and host name as records.
fn piped(file: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (attr_size, attrs, attrs_size, data, data_size) = (word(16), word(24), word(32), word(40), word(48));
    let mut pipe = [&b"PERFILE2"[..], &16u64.to_le_bytes()].concat();
    let mut record = |kind: u32, body: &[u8]| {
        pipe.extend(kind.to_le_bytes());
        pipe.extend([0, 0]);
        pipe.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
        pipe.extend(body);
    };
    for entry in file[attrs..attrs + attrs_size].chunks_exact(attr_size) {
        let (attr, ids) = entry.split_at(attr_size - 16);
        let range = |at: usize| u64::from_le_bytes(ids[at..at + 8].try_into().unwrap()) as usize;
        let ids = &file[range(0)..range(0) + range(8)];
        record(64, &[attr, ids].concat());
    }
    record(
        80,
        &[&3u64.to_le_bytes()[..], &8u32.to_le_bytes(), b"piped\0\0\0"].concat(),
    );
    // A build id of 20 bytes, padded to 24.
    record(67, &[&[0; 4][..], &[7; 24], b"/bin/a\0\0"].concat());
    pipe.extend(&file[data..data + data_size]);
    pipe
}

#[test]
fn pipe_has_the_records_of_the_file() {
    let Some(file) = capture("hase/20180404/loopy/loopy-20180404T162955.perf") else {
        return;
    };
    let pipe = piped(&file);
    assert_eq!(read(&pipe).unwrap(), read(&file).unwrap());
    let (data, other) = (PerfData::parse(&pipe).unwrap(), PerfData::parse(&file).unwrap());
    assert_eq!(format!("{:?}", data.events), format!("{:?}", other.events));
    assert_eq!(data.host().as_deref(), Some("piped"));
    let ids = data.build_ids();
    assert_eq!(
        (ids.len(), &*ids[0].0, ids[0].1.as_bytes()),
        (1, "/bin/a", &[7; 20][..])
    );
    assert!(other.events[0].enable_on_exec && !other.events[1].enable_on_exec);
    assert_eq!(other.event_of(153).map(|event| event.kind), Some(6));
    for end in 0..pipe.len() {
        assert!(
            read(&pipe[..end]).is_err() || is_cut_between_records(&pipe, end),
            "{end}"
        );
    }
}

/// Returns whether a pipe is cut where a record ends, so that the rest seems complete.
fn is_cut_between_records(pipe: &[u8], end: usize) -> bool {
    let mut at = 16;
    while at < end {
        let field = |from: usize, len: usize| {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&pipe[at + from..at + from + len]);
            u64::from_le_bytes(bytes) as usize
        };
        let following = if field(0, 4) == 71 { field(8, 8) } else { 0 };
        at += field(6, 2) + following;
    }
    at == end
}

#[test]
fn mutated_pipe_is_read_or_refused() {
    let Some(file) = capture("hase/20180404/control_flow/control_flow-20180404T163033.perf") else {
        return;
    };
    let pipe = piped(&file);
    let mut state = 0xdead_beef_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % bound
    };
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut changed = pipe.clone();
        for _ in 0..=below(4) {
            let at = below(2000);
            changed[at] = [below(256) as u8, 0, 0xff][below(3)];
        }
        refused += usize::from(read(&changed).is_err());
    }
    assert!((1000..19_999).contains(&refused), "{refused}");
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
