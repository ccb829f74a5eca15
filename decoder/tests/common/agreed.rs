//! Decodes with all engines, which must agree.

use backtrail_decoder::{
    Call, Config, CpuReport, DecodeCachePool, Decoded, Decoder, Forest, Functions, Gap, History, Image,
    Input, MarkKind, Resync, Watch,
};
use backtrail_oracle::Libipt;
use backtrail_pt::{Avma, Pid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// Decodes with the native engine. Checks that libipt gives the same under its own rule for broken
/// traces, and that several threads give the same.
pub fn decode_agreed(inputs: &[Input], images: &BTreeMap<Pid, Arc<Image>>, config: &Config) -> Decoded {
    let comparable = Config {
        resync: Resync::NextPsb,
        ..config.clone()
    };
    let comparable = Decoder::new(&comparable);
    let ours = comparable.decode(inputs, images).unwrap();
    let oracle = comparable.engine(&Libipt).decode(inputs, images).unwrap();
    assert_same_as_libipt(&oracle, &ours);
    let decoder = Decoder::new(config);
    let first = decoder.decode(inputs, images).unwrap();
    if ours.threads.iter().all(|history| history.errors() == 0)
        && ours.cpus.iter().all(|report| report.errors == 0)
    {
        assert_same_as_libipt(&oracle, &first);
    }
    // Caches of an earlier decode change nothing.
    let knowledge = DecodeCachePool::default();
    for (jobs, segment) in [(3, 64), (3, 1 << 12), (1, Decoder::SEGMENT), (3, 64)] {
        let decoder = decoder
            .jobs(NonZeroUsize::new(jobs).unwrap())
            .segment(segment)
            .functions(&|_| Some(&Regular))
            .caches(&knowledge);
        let parts = decoder.decode(inputs, images).unwrap();
        assert_eq!(parts.cpus, first.cpus);
        assert_eq!(parts.threads.len(), first.threads.len());
        for (parts, whole) in parts.threads.iter().zip(&first.threads) {
            assert_same(parts, whole);
        }
        for whole in &first.threads {
            let made = Forest::build(whole, &Regular, &Watch::none()).unwrap();
            assert_eq!(calls(&parts.forests[&whole.tid()]), calls(&made));
        }
    }
    first
}

/// Checks that libipt and the native engine decoded the same.
fn assert_same_as_libipt(oracle: &Decoded, ours: &Decoded) {
    assert_eq!(oracle.threads.len(), ours.threads.len());
    for (theirs, ours) in oracle.threads.iter().zip(&ours.threads) {
        assert_eq!(of(theirs), of(ours));
    }
    assert_eq!(oracle.cpus.len(), ours.cpus.len());
    for (theirs, ours) in oracle.cpus.iter().zip(&ours.cpus) {
        assert_eq!(of_processor(theirs), of_processor(ours));
    }
}

/// Code with a function every 32 bytes.
struct Regular;

impl Functions for Regular {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = pc.0 & !31;
        Some(Avma(start)..Avma(start.saturating_add(32)))
    }
}

fn calls(forest: &Forest) -> Vec<Call> {
    forest.ids().map(|id| forest.call(id)).collect()
}

/// Checks that two histories of a thread are the same, apart from their blocks.
fn assert_same(one: &History, other: &History) {
    assert_eq!(one.tid(), other.tid());
    assert_eq!(one.marks(), other.marks());
    assert_eq!(
        (one.len(), one.digest(), one.errors(), one.lost_time_packets()),
        (
            other.len(),
            other.digest(),
            other.errors(),
            other.lost_time_packets()
        )
    );
    let step = (one.len() / 20_000).max(1) as usize;
    for index in (0..=one.len()).step_by(step) {
        let of = |history: &History| (history.time(index), history.cpu(index), history.version(index));
        assert_eq!(of(one), of(other), "at {index}");
    }
    assert_eq!(one.pc(one.len()), other.pc(other.len()));
}

/// Returns what engines must agree on in a history. Error messages, and the offsets of errors, are
/// an engine's own.
fn of(history: &History) -> (u64, u64, u64, Vec<(u64, String)>) {
    let mark = |mark: &backtrail_decoder::Mark| {
        let kind = match &mark.kind {
            MarkKind::Gap(gap) => cause(gap),
            MarkKind::LeftUser { resumed, .. } => format!("{resumed:?}"),
            MarkKind::Interrupted { from, .. } => format!("{from}"),
            MarkKind::Descheduled { .. } => "descheduled".to_owned(),
            MarkKind::Ptwrite(value) => format!("{value}"),
            other => format!("{other:?}"),
        };
        (mark.index, kind)
    };
    let marks = history.marks().iter().map(mark).collect();
    (history.len(), history.digest(), history.errors(), marks)
}

/// Returns what engines must agree on in a processor's report.
fn of_processor(report: &CpuReport) -> (CpuReport, Vec<String>) {
    let mut others = report.clone();
    let lost = std::mem::take(&mut others.lost);
    (others, lost.iter().map(cause).collect())
}

fn cause(gap: &Gap) -> String {
    let text = format!("{:?}", gap.cause);
    let end = text.find([' ', '{']).unwrap_or(text.len());
    text[..end].to_owned()
}
