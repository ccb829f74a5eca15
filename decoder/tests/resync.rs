//! Broken traces as they were reported: where the flow resumes, by one thread and by several.
#![cfg(test)]

use backtrail_decoder::{Config, Decoder, Gap, GapCause, History, Image, Input, Section};
use backtrail_pt::{Avma, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The address of the code.
const CODE: u64 = 0x1000;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .map(|digit| (digit as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[high, low]| high << 4 | low)
        .collect()
}

/// Decodes packets with code at [`CODE`], and checks that segments and threads change nothing.
fn history(code: &str, packets: &str) -> History {
    let mut image = Image::new();
    image.add(Section {
        start: Avma(CODE),
        bytes: Arc::new(bytes(code)),
    });
    let inputs = [Input::Thread {
        tid: Tid(1),
        trace: Arc::new(bytes(packets)),
        image: Arc::new(image),
    }];
    let config = Config::default();
    let decoder = Decoder::new(&config);
    let mut decoded = decoder.decode(&inputs, &BTreeMap::new()).unwrap();
    let history = decoded.threads.remove(0);
    for segment in [1, 16, 64] {
        let jobs = NonZeroUsize::new(2).unwrap();
        let parts = Decoder::new(&config).jobs(jobs).segment(segment);
        let decoded = parts.decode(&inputs, &BTreeMap::new()).unwrap();
        let [part] = &*decoded.threads else {
            panic!("one thread");
        };
        assert_eq!((part.len(), part.errors()), (history.len(), history.errors()));
        assert_eq!((part.digest(), part.marks()), (history.digest(), history.marks()));
    }
    history
}

fn pcs(history: &History) -> Vec<u64> {
    history
        .walk(0)
        .map(|instruction| instruction.pc.0 - CODE)
        .collect()
}

fn gaps(history: &History) -> Vec<(u64, &Gap)> {
    history
        .gaps()
        .filter(|(_, gap)| gap.cause != GapCause::Start)
        .collect()
}

const PSB: &str = "02820282028202820282028202820282";

#[test]
fn breakpoint_at_indirect_call_is_a_gap_until_tip_pge() {
    // The code `nop; call rax; hlt; nop; hlt`; mode.exec, psbend, tip.pge 0x1000, tip.pgd without
    // an address, mode.exec, tip.pge 0x1000, tip 0x1004, fup 0x1005, tip.pgd.
    let packets = format!("{PSB}9901022371001000000000019901710010000000002d04103d051001");
    let history = history("90ffd0f490f4", &packets);
    assert_eq!((history.len(), history.errors()), (5, 0));
    assert_eq!(pcs(&history), [0, 1, 0, 1, 4]);
    let [(2, gap)] = *gaps(&history) else {
        panic!("{:?}", gaps(&history));
    };
    assert_eq!(gap.cause, GapCause::OtherInstruction { at: Avma(CODE + 1) });
    assert_eq!(gap.resumed_offset, Some(0x1e));
}

#[test]
fn psb_right_after_an_error_is_not_skipped() {
    // Three `nop`; tip.pge to missing code, fup and tip.pgd there; then another PSB, and the code.
    let packets = format!("{PSB}99010223710000100000007d10001000000001{PSB}99010223710010000000003d021001");
    let history = history("909090", &packets);
    assert_eq!((history.len(), history.errors()), (2, 1));
    assert_eq!(pcs(&history), [0, 1]);
}
