//! Tests that valid files round-trip and that malformed ones are refused.

use super::*;
use crate::manifest::Thread;
use proptest::prelude::*;

fn fragment(address: u64, boundary: u32, bytes: &[u8]) -> Fragment {
    Fragment {
        address: Avma(address),
        boundary,
        bytes: bytes.to_vec().into(),
    }
}

fn boundary(offset: u64, number: u32) -> Boundary {
    Boundary { offset, number }
}

fn sample() -> CodeVersions {
    CodeVersions {
        fragments: vec![
            fragment(0x1000, 0, b"ab"),
            fragment(0x1000, 1, b"c"),
            fragment(0x1001, 2, b"def"),
        ],
        boundaries: [
            (Tid(7), vec![boundary(0, 1), boundary(40, 2)]),
            (Tid(9), vec![boundary(30, 2), boundary(30, 2)]),
        ]
        .into(),
    }
}

fn refusal(bytes: Vec<u8>) -> String {
    let error = CodeVersions::parse(&bytes.into(), "v").unwrap_err();
    assert!(error.is_malformed());
    error.to_string()
}

#[test]
fn versions_round_trip_and_fragments_come_by_boundary() {
    let mut versions = sample();
    let encoded = versions.encode("v").unwrap();
    assert_eq!(encoded.len(), 16 + 3 * 16 + 2 * (8 + 2 * 12) + 6);
    assert_eq!(CodeVersions::parse(&encoded.into(), "v").unwrap(), versions);
    // Code that is new, rather than changed, holds from the beginning even if it appears late.
    versions.fragments.push(fragment(0x2000, 0, b"late"));
    let encoded = versions.encode("v").unwrap();
    let order: Vec<Avma> = CodeVersions::parse(&encoded.into(), "v")
        .unwrap()
        .fragments
        .iter()
        .map(|fragment| fragment.address)
        .collect();
    assert_eq!(order, [0x1000, 0x2000, 0x1000, 0x1001].map(Avma));
    let none = CodeVersions::default();
    assert_eq!(
        CodeVersions::parse(&none.encode("v").unwrap().into(), "v").unwrap(),
        none
    );
}

#[test]
fn writer_refuses_files_that_a_reader_would_refuse() {
    let with = |fragment| CodeVersions {
        fragments: vec![fragment],
        ..CodeVersions::default()
    };
    for (bad, expected) in [
        (with(fragment(1, 0, b"")), "not 0"),
        (with(fragment(1, 0, &[0; 4097])), "not 4097"),
        (with(fragment(u64::MAX - 1, 0, b"ab")), "beyond the address space"),
    ] {
        let error = bad.encode("v").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for wrong in [
        vec![boundary(2, 1), boundary(1, 2)],
        vec![boundary(1, 2), boundary(2, 1)],
    ] {
        let versions = CodeVersions {
            boundaries: [(Tid(1), wrong)].into(),
            ..CodeVersions::default()
        };
        assert!(versions.encode("v").unwrap_err().to_string().contains("in order"));
    }
    assert!(with(fragment(u64::MAX - 2, 0, b"ab")).encode("v").is_ok());
}

#[test]
fn truncated_file_is_refused() {
    let whole = sample().encode("v").unwrap();
    for end in 0..whole.len() {
        refusal(whole[..end].to_vec());
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(refusal(longer).contains("after the last fragment"));
    let mut newer = whole;
    newer[7] = 2;
    assert!(refusal(newer).contains("another format version"));
}

#[test]
fn impossible_counts_are_refused() {
    for at in [8, 12] {
        let mut bytes = sample().encode("v").unwrap();
        bytes[at..at + 4].fill(0xff);
        refusal(bytes);
    }
    let mut bytes = sample().encode("v").unwrap();
    bytes[16 + 3 * 16 + 4..][..4].fill(0xff);
    assert!(refusal(bytes).contains("too short for"));
}

#[test]
fn unordered_entries_are_refused() {
    let mut bytes = sample().encode("v").unwrap();
    bytes[16 + 8] = 9;
    assert!(refusal(bytes).contains("order of their boundaries"));
    let mut bytes = sample().encode("v").unwrap();
    bytes[16 + 3 * 16] = 9;
    assert!(refusal(bytes).contains("order of their ids"));
}

#[test]
fn boundaries_outside_of_their_trace_are_refused() {
    let path = |text: &str| BundlePath::new(text).unwrap();
    let thread = |tid, trace: Option<&str>| Thread {
        tid: Tid(tid),
        trace: trace.map(path),
        values: None,
        ..Thread::default()
    };
    let process = |threads| Process {
        threads,
        versions: Some(path("v")),
        ..Process::default()
    };
    let load = |process: &Process, trace: usize| {
        CodeVersions::load(process, |path| {
            Ok(match path.as_str() {
                "v" => sample().encode("v")?.into(),
                _ => vec![0; trace].into(),
            })
        })
    };
    let both = process(vec![thread(7, Some("t7")), thread(9, Some("t9"))]);
    assert_eq!(load(&both, 40).unwrap(), sample());
    assert!(load(&both, 39).unwrap_err().to_string().contains("at 0x28"));
    for threads in [
        vec![thread(7, Some("t7"))],
        vec![thread(7, Some("t7")), thread(9, None)],
    ] {
        let error = load(&process(threads), 40).unwrap_err();
        assert!(error.is_malformed() && error.to_string().contains("thread 9"));
    }
    assert_eq!(load(&Process::default(), 0).unwrap(), CodeVersions::default());
}

proptest! {
    /// A file with changed bytes is read or refused, within the memory of the original.
    #[test]
    fn a_changed_file_is_read_or_refused(changes in prop::collection::vec((0usize..134, any::<u8>()), 1..6)) {
        let mut bytes = sample().encode("v").unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        match CodeVersions::parse(&bytes.into(), "v") {
            Ok(versions) => {
                let size: usize = versions.fragments.iter().map(|found| found.bytes.len()).sum();
                prop_assert!(size < 134);
                versions.encode("v").unwrap();
            }
            Err(error) => prop_assert!(error.is_malformed()),
        }
    }
}
