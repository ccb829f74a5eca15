//! Property tests of histories and forests of arbitrary instructions and events.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

use backtrail_decoder::{
    CallId, Event, Forest, Functions, GapCause, History, HistoryBuilder, PcSet, Sink, Stamp, Watch,
};
use backtrail_pt::{Avma, Cofi, Cpu, Tid, Tsc};
use proptest::prelude::*;
use std::ops::Range;

/// Sixteen functions of sixteen bytes, the first a linkage stub, the second the resolver.
struct Layout;

impl Functions for Layout {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = Avma(pc.0 & !0xf);
        (pc.0 < 0xe0).then(|| start..start + 0x10)
    }

    fn is_plt(&self, pc: Avma) -> bool {
        pc.0 < 0x10
    }

    fn is_resolver(&self, pc: Avma) -> bool {
        (0x10..0x20).contains(&pc.0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Instruction(Avma, u8, Cofi),
    Event(Event),
}

fn pc() -> impl Strategy<Value = Avma> {
    (0u64..0x100).prop_map(Avma)
}

fn cofi() -> impl Strategy<Value = Cofi> {
    prop_oneof![
        4 => Just(Cofi::Sequential),
        1 => pc().prop_map(|target| Cofi::Conditional { target }),
        2 => pc().prop_map(|target| Cofi::Jump { target }),
        3 => pc().prop_map(|target| Cofi::Call { target }),
        1 => Just(Cofi::IndirectJump),
        1 => Just(Cofi::IndirectCall),
        4 => Just(Cofi::Return),
        1 => Just(Cofi::FarTransfer),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let stamp = (0u64..10_000).prop_map(|tsc| {
        Event::Time(Stamp {
            tsc: Tsc(tsc),
            lost_mtc: 1,
            lost_cyc: 0,
        })
    });
    let lost = prop_oneof![
        Just(GapCause::Overflow),
        pc().prop_map(|at| GapCause::LostCode { at }),
        pc().prop_map(|at| GapCause::RunAway { at }),
        pc().prop_map(|at| GapCause::OtherInstruction { at }),
        pc().prop_map(|at| GapCause::UnknownCaller { at }),
    ];
    prop_oneof![
        3 => stamp,
        1 => (0u64..100).prop_map(|offset| Event::Sync { offset }),
        4 => (pc(), any::<bool>()).prop_map(|(at, status)| Event::Enabled { at, status }),
        4 => (proptest::option::of(pc()), proptest::option::of(pc()))
            .prop_map(|(from, to)| Event::Disabled { from, to }),
        1 => pc().prop_map(|from| Event::Branched { from }),
        1 => (0u64..100).prop_map(|offset| Event::Overflow { offset }),
        1 => any::<u64>().prop_map(|value| Event::Ptwrite { value }),
        1 => (0u32..4).prop_map(|cpu| Event::Cpu(Cpu(cpu))),
        1 => (lost, 0u64..100).prop_map(|(cause, offset)| Event::Lost { cause, offset }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let instruction = (pc(), 1u8..4, cofi()).prop_map(|(pc, len, cofi)| Step::Instruction(pc, len, cofi));
    let step = prop_oneof![8 => instruction, 1 => event().prop_map(Step::Event)];
    proptest::collection::vec(step, 0..400).prop_map(|mut steps| {
        // Half of the time, the flow falls through, so that there are blocks.
        let mut next = Avma(0);
        for (number, step) in steps.iter_mut().enumerate() {
            if let Step::Instruction(pc, len, _) = step {
                if number % 2 == 0 {
                    *pc = next;
                }
                next = Avma((pc.0 + u64::from(*len)) % 0x100);
            }
        }
        steps
    })
}

/// Generates consecutive loops with their iteration counts. They have thousands of executions, so
/// that the search index has several different spans.
fn loops() -> impl Strategy<Value = Vec<Step>> {
    let instruction = (pc(), 1u8..4, cofi()).prop_map(|(pc, len, cofi)| Step::Instruction(pc, len, cofi));
    let body = proptest::collection::vec(instruction, 1..12);
    let turns = prop_oneof![1usize..4, 200usize..1500];
    proptest::collection::vec((body, turns), 1..8).prop_map(|loops| {
        loops
            .iter()
            .flat_map(|(body, turns)| vec![body.clone(); *turns].concat())
            .collect()
    })
}

fn history(steps: &[Step]) -> (History, Vec<Avma>) {
    let mut builder = HistoryBuilder::new(Tid(7));
    let mut pcs = Vec::new();
    for step in steps {
        match step.clone() {
            Step::Instruction(pc, len, cofi) => {
                builder.instruction(pc, len, cofi);
                pcs.push(pc);
            }
            Step::Event(event) => builder.event(event),
        }
    }
    (builder.finish(), pcs)
}

fn check(forest: &Forest, len: u64) {
    let mut covered = 0;
    for root in forest.roots() {
        let call = forest.call(root);
        assert_eq!((call.first, forest.depth(root), call.parent), (covered, 0, None));
        covered = call.end;
    }
    assert_eq!(covered, len);
    let mut before: Option<CallId> = None;
    for id in forest.ids() {
        let call = forest.call(id);
        assert!(
            call.first <= call.end && before.is_none_or(|before| forest.call(before).first <= call.first)
        );
        before = Some(id);
        let mut last = call.first;
        for child in forest.children(id) {
            let inner = forest.call(child);
            assert!(last <= inner.first && inner.end <= call.end);
            assert_eq!(
                (inner.parent, forest.depth(child)),
                (Some(id), forest.depth(id) + 1)
            );
            last = inner.end;
        }
    }
    for index in 0..len {
        let id = forest.call_at(index).unwrap();
        let call = forest.call(id);
        assert!((call.first..call.end).contains(&index));
        for child in forest.children(id) {
            let inner = forest.call(child);
            assert!(!(inner.first..inner.end).contains(&index));
        }
        assert_eq!(forest.ancestors(id).count() as u32, forest.depth(id) + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// A history returns what was pushed, by index, forward and backward.
    #[test]
    fn history_is_what_was_pushed(steps in steps()) {
        let (history, pcs) = history(&steps);
        prop_assert_eq!(history.len(), pcs.len() as u64);
        prop_assert_eq!(history.walk(0).map(|found| found.pc).collect::<Vec<_>>(), pcs.clone());
        let mut walker = history.walk(history.len());
        let mut back: Vec<Avma> = std::iter::from_fn(|| walker.prev().map(|found| found.pc)).collect();
        prop_assert_eq!(walker.index(), 0);
        back.reverse();
        prop_assert_eq!(&back, &pcs);
        for (index, &pc) in pcs.iter().enumerate() {
            prop_assert_eq!(history.pc(index as u64), Some(pc));
        }
        prop_assert_eq!(history.instruction(history.len()), None);
        let executed: u64 = history.blocks().map(|(id, count)| history.block(id).count() as u64 * count).sum();
        prop_assert_eq!(executed, history.len());
        prop_assert!(history.marks().is_sorted_by_key(|mark| mark.index));
        for index in 0..=history.len() {
            if let (Some(now), Some(later)) = (history.time(index), history.time(index + 1)) {
                prop_assert!(now.tsc <= later.tsc);
                prop_assert!(now.latest().is_none_or(|latest| later.latest().is_none_or(|then| latest <= then)));
            }
        }
    }

    /// A search agrees with a walk.
    #[test]
    fn search_agrees_with_a_walk(steps in steps(), wanted in proptest::collection::vec(0u64..0x100, 0..6), from in 0u64..420) {
        let (history, pcs) = history(&steps);
        let set: PcSet = wanted.iter().copied().map(Avma).collect();
        let hits: Vec<u64> =
            (0..history.len()).filter(|&index| wanted.contains(&pcs[index as usize].0)).collect();
        prop_assert_eq!(history.next_at(from, &set), hits.iter().copied().find(|&hit| hit >= from));
        prop_assert_eq!(history.prev_at(from, &set), hits.iter().copied().rfind(|&hit| hit < from));
        let range = from / 2..from;
        let inside = hits.iter().filter(|hit| range.contains(hit)).count() as u64;
        prop_assert_eq!(history.count_at(range, &set), inside);
    }

    /// A search over several spans agrees with a walk.
    #[test]
    fn search_in_long_histories_agrees_with_a_walk(
        steps in loops(),
        wanted in proptest::collection::vec(0u64..0x100, 0..4),
        places in proptest::collection::vec(0.0..1.1, 12),
    ) {
        let (history, pcs) = history(&steps);
        let set: PcSet = wanted.iter().copied().map(Avma).collect();
        let hits: Vec<u64> =
            (0..history.len()).filter(|&index| wanted.contains(&pcs[index as usize].0)).collect();
        let mut places: Vec<u64> = places.iter().map(|place| (history.len() as f64 * place) as u64).collect();
        // Also around every isolated hit.
        let far = hits.windows(2).filter(|near| near[1] - near[0] > 1000).flatten();
        places.extend(far.take(8).flat_map(|&hit| [hit, hit + 1]));
        let before = |index: u64| hits.partition_point(|&hit| hit < index);
        for &from in &places {
            let at = before(from);
            prop_assert_eq!(history.next_at(from, &set), hits.get(at).copied());
            prop_assert_eq!(history.prev_at(from, &set), at.checked_sub(1).map(|last| hits[last]));
            for &end in &places {
                let inside = before(end).saturating_sub(at) as u64;
                prop_assert_eq!(history.count_at(from..end, &set), inside, "{}..{}", from, end);
            }
        }
    }

    /// The forest is valid for any input.
    #[test]
    fn forests_hold_together(steps in steps()) {
        let (history, _) = history(&steps);
        check(&Forest::build(&history, &Layout, &Watch::none()).unwrap(), history.len());
        check(&Forest::build(&history, &(), &Watch::none()).unwrap(), history.len());
    }
}
