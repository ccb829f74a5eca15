//! Synthetic histories, and their call forests as text.

use backtrail_decoder::{
    CallId, Entered, Event, Forest, Functions, GapCause, History, HistoryBuilder, Sink, Watch,
};
use backtrail_pt::{Avma, Cofi, Tid};
use std::ops::Range;

/// A function every 0x100 bytes from 0x1000 on, linkage stubs at 0xf00, the resolver at 0xe00.
/// Addresses from 0x8000 on are cold parts of the functions 0x6000 before.
pub struct Layout;

impl Functions for Layout {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = Avma(pc.0 & !0xff);
        (pc.0 >= 0xe00).then(|| start..start + 0x100)
    }

    fn entry_of(&self, pc: Avma) -> Option<Avma> {
        let start = self.range_of(pc)?.start;
        Some(if pc.0 >= 0x8000 {
            Avma(start.0 - 0x6000)
        } else {
            start
        })
    }

    fn is_plt(&self, pc: Avma) -> bool {
        (0xf00..0x1000).contains(&pc.0)
    }

    fn is_resolver(&self, pc: Avma) -> bool {
        (0xe00..0xf00).contains(&pc.0)
    }
}

/// A step of a history. Every instruction is one byte.
#[derive(Clone, Copy)]
pub enum Do {
    /// Runs sequential instructions (first, last) inclusive.
    Run(u64, u64),
    Call(u64, u64),
    CallIndirect(u64),
    Ret(u64),
    Jump(u64, u64),
    JumpIndirect(u64),
    Syscall(u64),
    /// Returns from the last system call to this address.
    Back(u64),
    /// Interrupts the flow before this instruction.
    Interrupt(u64),
    Gap,
}
pub use Do::*;

/// Returns the history of these steps.
pub fn history(steps: &[Do]) -> History {
    let mut builder = HistoryBuilder::new(Tid(1));
    for &step in steps {
        match step {
            Run(from, to) => (from..=to).for_each(|pc| builder.instruction(Avma(pc), 1, Cofi::Sequential)),
            Call(pc, to) => builder.instruction(Avma(pc), 1, Cofi::Call { target: Avma(to) }),
            CallIndirect(pc) => builder.instruction(Avma(pc), 1, Cofi::IndirectCall),
            Ret(pc) => builder.instruction(Avma(pc), 1, Cofi::Return),
            Jump(pc, to) => builder.instruction(Avma(pc), 1, Cofi::Jump { target: Avma(to) }),
            JumpIndirect(pc) => builder.instruction(Avma(pc), 1, Cofi::IndirectJump),
            Syscall(pc) => {
                builder.instruction(Avma(pc), 1, Cofi::FarTransfer);
                builder.event(Event::Disabled { from: None, to: None });
            }
            Back(at) => builder.event(Event::Enabled {
                at: Avma(at),
                status: false,
            }),
            Interrupt(from) => builder.event(Event::Disabled {
                from: Some(Avma(from)),
                to: None,
            }),
            Gap => builder.event(Event::Lost {
                cause: GapCause::Overflow,
                offset: 0,
            }),
        }
    }
    builder.finish()
}

/// Returns a line per call: indentation by depth, function, interval, entry, exit.
pub fn outline(steps: &[Do]) -> String {
    let history = history(steps);
    let forest = Forest::build(&history, &Layout, &Watch::none()).unwrap();
    check(&forest, history.len());
    let mut text = String::new();
    let mut stack: Vec<CallId> = forest.roots().collect();
    stack.reverse();
    while let Some(id) = stack.pop() {
        let call = forest.call(id);
        let entered = match call.entered {
            Entered::Call { site } => format!("called by {site}"),
            Entered::TailCall { site } => format!("jumped to by {site}"),
            Entered::Signal { interrupted } => format!("signal at {interrupted}"),
            other => format!("{other:?}"),
        };
        text += &format!(
            "{}{} {}..{} {entered}, {:?}\n",
            "  ".repeat(forest.depth(id) as usize),
            call.function,
            call.first,
            call.end,
            call.left
        );
        let mut children: Vec<CallId> = forest.children(id).collect();
        children.reverse();
        stack.append(&mut children);
    }
    text
}

/// Checks the invariants of every forest.
pub fn check(forest: &Forest, len: u64) {
    let mut covered = 0;
    for root in forest.roots() {
        let call = forest.call(root);
        assert_eq!((call.first, forest.depth(root), call.parent), (covered, 0, None));
        covered = call.end;
    }
    assert_eq!(covered, len);
    for id in forest.ids() {
        let call = forest.call(id);
        assert!(call.first <= call.end);
        let mut last = call.first;
        for child in forest.children(id) {
            let inner = forest.call(child);
            assert!(last <= inner.first && inner.end <= call.end, "{call:?} {inner:?}");
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
        assert!((call.first..call.end).contains(&index), "{index} {call:?}");
        let inner = forest.children(id).map(|child| forest.call(child));
        assert!(
            inner
                .into_iter()
                .all(|inner| !(inner.first..inner.end).contains(&index))
        );
    }
}

/// Checks the calls of a history.
pub fn expect(steps: &[Do], lines: &[&str]) {
    let text = outline(steps);
    assert_eq!(text.lines().collect::<Vec<_>>(), lines, "\n{text}");
}
