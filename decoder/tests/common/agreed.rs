//! Decoding with all engines that there are, which must find the same.

use backtrail_decoder::{Config, Decoded, EngineKind, History, Image, Input, MarkKind, Watch, decode};
use backtrail_pt::Pid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the default engine decodes, and every other too.
pub fn decode_agreed(inputs: &[Input], images: &BTreeMap<Pid, Arc<Image>>, config: &Config) -> Decoded {
    let by = |kind: &EngineKind| decode(inputs, images, config, kind.engine(), &Watch::none()).unwrap();
    let mut all = EngineKind::ALL.iter().map(|kind| (kind, by(kind)));
    let (_, first) = all.next().unwrap();
    for (kind, other) in all {
        assert_eq!(other.threads.len(), first.threads.len(), "{kind}");
        for (theirs, ours) in other.threads.iter().zip(&first.threads) {
            assert_eq!(of(theirs), of(ours), "{kind}");
        }
        assert_eq!(other.cpus, first.cpus, "{kind}");
    }
    first
}

/// What must be the same of a history. The wording of errors, and where in the bytes they are noticed, is
/// an engine's own.
fn of(history: &History) -> (u64, u64, u64, Vec<(u64, String)>) {
    let mark = |mark: &backtrail_decoder::Mark| {
        let kind = match &mark.kind {
            MarkKind::Gap(gap) => {
                let text = format!("{:?}", gap.cause);
                let end = text.find([' ', '{']).unwrap_or(text.len());
                text[..end].to_owned()
            }
            MarkKind::LeftUser { resumed, .. } => format!("{resumed:?}"),
            MarkKind::Interrupted { from, .. } => format!("{from}"),
            MarkKind::Descheduled { .. } => "descheduled".to_owned(),
            MarkKind::Ptwrite(value) => format!("{value}"),
        };
        (mark.index, kind)
    };
    let marks = history.marks().iter().map(mark).collect();
    (history.len(), history.digest(), history.errors(), marks)
}
