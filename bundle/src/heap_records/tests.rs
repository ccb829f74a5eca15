//! Files of heap records round-trip, and damaged ones are refused.

use super::*;
use proptest::prelude::*;

fn record(at: u64, function: AllocatorFunction) -> HeapRecord {
    let mut stack = [0; STACK_WORDS];
    stack[1] = 0x4010;
    HeapRecord {
        began: at,
        ended: at + 5,
        argument: 0x5000,
        size: 7,
        result: 0x6000,
        caller: Avma(0x40_1000),
        sp: 0x7fff_0000,
        bp: 3,
        tid: Tid(12),
        function,
        words: 2,
        stack,
    }
}

fn interval() -> HeapInterval {
    HeapInterval {
        pid: Pid(11),
        since: 5,
        until: 1000,
        zero: 900,
        perf_offset: Some(-4),
        gaps: vec![
            HeapGap {
                from: 10,
                to: 20,
                lost: 3,
            },
            HeapGap {
                from: 20,
                to: 30,
                lost: 1,
            },
        ],
    }
}

fn encoded() -> Vec<u8> {
    let records = [
        record(40, AllocatorFunction::Malloc),
        record(50, AllocatorFunction::DeleteArray),
    ];
    HeapRecords::encode(&interval(), &records).unwrap()
}

fn parse(bytes: &[u8]) -> Result<HeapRecords> {
    HeapRecords::parse(&SharedBytes::from(bytes.to_vec()))
}

#[test]
fn records_round_trip() {
    let bytes = encoded();
    assert_eq!(bytes.len(), 64 + 2 * 24 + 2 * RECORD_SIZE);
    let found = parse(&bytes).unwrap();
    assert_eq!(found.interval, interval());
    let expected = [
        record(40, AllocatorFunction::Malloc),
        record(50, AllocatorFunction::DeleteArray),
    ];
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    assert_eq!((found.get(1), found.get(2)), (Some(expected[1]), None));
    assert_eq!(expected[0].stack(), [0, 0x4010]);
    let plain = parse(&found.without_stacks().unwrap()).unwrap();
    let first = plain.get(0).unwrap();
    assert_eq!(
        (first.words, first.stack, first.argument),
        (0, [0; STACK_WORDS], 0x5000)
    );
}

#[test]
fn damaged_files_are_refused() {
    let whole = encoded();
    for end in 0..whole.len() {
        assert!(parse(&whole[..end]).is_err(), "{end}");
    }
    let records_at = 64 + 2 * 24;
    for (at, value, problem) in [
        (0, 0, "no file of heap records"),
        (6, 9, "format 9; use a newer Backtrail"),
        (15, 1, "too many"),
        (23, 1, "too many"),
        (39, 0xff, ""),
        (64 + 7, 1, "gaps are not in order"),
        (records_at + 7, 1, "a record is malformed"),
        (records_at + 15, 1, "a record is malformed"),
        (records_at + 72, 13, "a record is malformed"),
        (records_at + 74, 23, "a record is malformed"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        match parse(&bytes) {
            Ok(_) => assert_eq!(problem, "", "{at}"),
            Err(error) => assert!(
                error.to_string().contains(problem) && !problem.is_empty(),
                "{at}: {error}"
            ),
        }
    }
}

#[test]
fn too_many_gaps_are_not_encoded() {
    let mut interval = interval();
    interval.gaps = vec![interval.gaps[0]; MAX_GAPS + 1];
    assert!(HeapRecords::encode(&interval, &[]).is_err());
}

proptest! {
    /// Any bytes give records or an error, and all parsed records can be read.
    #[test]
    fn mutated_files_do_not_panic(changes in prop::collection::vec((0..624_usize, any::<u8>()), 0..8)) {
        let mut bytes = encoded();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Ok(found) = parse(&bytes) {
            prop_assert_eq!(found.iter().count(), found.len());
        }
    }
}
