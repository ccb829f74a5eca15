//! Parses captures of real processors: every byte belongs to a packet.

#![allow(clippy::unwrap_used, clippy::panic)]

use backtrail_pt::{Packet, Parser};
use std::fs;
use std::path::{Path, PathBuf};

fn capture(path: &str) -> Option<Vec<u8>> {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt"));
    if !data.is_dir() {
        println!("skipped: no captures at ../shared/data");
        return None;
    }
    let path: PathBuf = data.join(path);
    Some(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn packets(bytes: &[u8]) -> usize {
    let mut parser = Parser::new(bytes);
    parser.sync_forward().unwrap();
    parser
        .map(Result::unwrap)
        .filter(|(_, packet)| *packet != Packet::Pad)
        .count()
}

#[test]
fn every_capture_parses_to_its_end() {
    for path in [
        "lldb/intelpt-trace/3842849.trace",
        "lldb/intelpt-trace-multi-file/multi-file.trace",
        "lldb/intelpt-multi-core-trace/cores/45.intelpt_trace",
        "lldb/intelpt-multi-core-trace/cores/51.intelpt_trace",
        "dynamorio/raw_2022-07-08/pt.bin",
        "dynamorio/tracedir_2022-07-06/pt.bin",
        "hase/20180404/loopy/x/aux-idx2.bin",
        "hase/20180404/control_flow/x/aux-idx1.bin",
    ] {
        let Some(bytes) = capture(path) else { return };
        assert!(packets(&bytes) > 0, "{path}");
    }
}

/// AUX data follows each `PERF_RECORD_AUXTRACE` (type 71), whose first field is its size.
#[test]
fn quipper_packet_counts_match_readme() {
    let Some(file) = capture("quipper/perf.data.intel_pt-4.14") else {
        return;
    };
    let header = [71u32.to_le_bytes(), [0, 0, 48, 0]].concat();
    let counts: Vec<(usize, usize)> = file
        .windows(header.len())
        .enumerate()
        .filter(|(_, window)| *window == header)
        .map(|(at, _)| {
            let size = u64::from_le_bytes(file[at + 8..at + 16].try_into().unwrap()) as usize;
            (size, packets(&file[at + 48..at + 48 + size]))
        })
        .collect();
    assert_eq!(counts, [(12_240, 9_106), (137_728, 75_987)]);
}
