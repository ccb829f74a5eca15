//! The frames that the history determines for a thread in the core.

use super::callers::{CallerStep, Callers};
use crate::session::{Process, Session, Thread};
use crate::unwind::{FrameHistory, Layout, Operation};
use backtrail_decoder::{Call, CallId, Entered, Forest, Instruction, Version, Watch};
use backtrail_pt::{Avma, Cofi};
use backtrail_symbolizer::UnwindRow;
use iced_x86::InstructionInfoFactory;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// The limit of instructions that are read for a whole stack, and the cost of a callee that is
/// passed.
const MOST: u64 = 1 << 23;
const CALLEE: u64 = 16;

/// The limit of instructions that are read before the last described one, and the distance between
/// two tries.
const DESCRIBED_BACK: u32 = 16;
const DESCRIBED_STEP: u32 = 8;

/// Instructions decoded once each.
struct InstructionCache {
    known: FxHashMap<(Avma, Version), Operation>,
    info: InstructionInfoFactory,
}

/// A thread whose stack is unwound in the core.
pub(super) struct TraceFrames<'a> {
    session: &'a Session,
    thread: &'a Thread,
    process: &'a Process,
    /// The remaining number of instructions.
    left: Cell<u64>,
}

impl<'a> TraceFrames<'a> {
    pub fn new(session: &'a Session, thread: &'a Thread, process: &'a Process) -> Self {
        Self {
            session,
            thread,
            process,
            left: Cell::new(MOST),
        }
    }

    /// Counts instructions; `None` if the limit is reached.
    fn spend(&self, count: u64) -> Option<()> {
        self.left.set(self.left.get().checked_sub(count)?);
        Some(())
    }

    fn last(&self) -> Option<Instruction> {
        let last = self.thread.history.len().checked_sub(1)?;
        self.thread.history.instruction(last)
    }
}

impl FrameHistory for TraceFrames<'_> {
    fn has_returned(&self) -> bool {
        self.last().is_some_and(|last| last.cofi == Cofi::Return)
    }

    fn rules(&self, number: usize, pc: Avma) -> Option<(Vec<UnwindRow>, Avma)> {
        let history = &self.thread.history;
        let forest = self.session.forest(self.thread, &Watch::none()).ok()?;
        let steps = Callers::new(self.session, self.thread, forest, history.len());
        let PhysicalCall { step, inner, outer } = PhysicalCall::find(steps, number)?;
        if step.pc != Some(pc) {
            return None;
        }
        let Some(outer) = outer else {
            // The last instruction called it.
            let returns_to = self.last().filter(|last| last.cofi.is_call())?.next();
            return Some((vec![Layout::at_entry().row()?], returns_to));
        };
        let until = match inner {
            None => history.len(),
            Some(CallerStep { call: None, .. }) => history.len().checked_sub(1)?,
            Some(CallerStep {
                call: Some(inner), ..
            }) => match forest.call(inner).entered {
                Entered::Call { site } => site,
                Entered::Signal { .. } => forest.call(inner).first,
                _ => return None,
            },
        };
        let Entered::Call { site } = forest.call(outer).entered else {
            return None;
        };
        let returns_to = history.instruction(site)?.next();
        let frame = CallFrame {
            ran: self,
            forest,
            outer,
        };
        Some((frame.rows(until)?, returns_to))
    }
}

/// A frame on the program's stack.
struct PhysicalCall {
    step: CallerStep,
    /// The outermost of those that share the frame inside of it.
    inner: Option<CallerStep>,
    /// The call whose return it shares; `None`: it began with the last instruction.
    outer: Option<CallId>,
}

impl PhysicalCall {
    /// A frame by its number in the core: what handlers return to is counted there, what jumped to
    /// its callee is not.
    fn find(steps: Callers<'_>, number: usize) -> Option<Self> {
        let mut steps = steps.peekable();
        let (mut count, mut inner) = (0, None);
        while let Some(step) = steps.next() {
            if !step.tail_caller {
                if count == number {
                    let mut outer = step.call;
                    while let Some(jumped) = steps.next_if(|step| step.tail_caller) {
                        outer = jumped.call;
                    }
                    return Some(Self { step, inner, outer });
                }
                count += 1;
            }
            count += usize::from(step.signal_handler);
            inner = Some(step);
        }
        None
    }
}

/// A frame that a call has, and those that it jumped to.
struct CallFrame<'a> {
    ran: &'a TraceFrames<'a>,
    forest: &'a Forest,
    outer: CallId,
}

/// Instructions that a frame's functions executed themselves, none between them.
struct InstructionRun {
    own: Range<u64>,
    /// A callee returned just before it.
    after_callee: bool,
}

/// The instructions that the functions of a frame executed themselves, back to where unwind
/// information describes it.
struct ExecutedRange {
    /// The last first.
    stretches: Vec<InstructionRun>,
    /// Before which instructions it is described, and how; the last first.
    described: Vec<(u64, Layout)>,
}

impl CallFrame<'_> {
    /// Returns the possible unwind rules of a frame before instruction `until`, one for each
    /// description.
    ///
    /// The description of the preceding code may not include the effect of the jump to here.
    fn rows(&self, until: u64) -> Option<Vec<UnwindRow>> {
        let ExecutedRange { stretches, described } = self.back(until)?;
        let mut decoded = InstructionCache {
            known: FxHashMap::default(),
            info: InstructionInfoFactory::new(),
        };
        let rows = described.into_iter().filter_map(|(from, mut layout)| {
            for stretch in stretches.iter().rev().filter(|stretch| stretch.own.end > from) {
                self.run(&mut layout, stretch, from, &mut decoded)?;
            }
            layout.row()
        });
        Some(rows.collect())
    }

    /// Executes a stretch from instruction `from` on, or from its beginning.
    fn run(
        &self,
        layout: &mut Layout,
        stretch: &InstructionRun,
        from: u64,
        decoded: &mut InstructionCache,
    ) -> Option<()> {
        let TraceFrames { thread, process, .. } = self.ran;
        let own = stretch.own.start.max(from)..stretch.own.end;
        if stretch.after_callee && stretch.own.start > from {
            layout.called();
        }
        for (at, executed) in own.clone().zip(thread.history.walk(own.start)) {
            let version = thread.history.version(at);
            let operation = match decoded.known.entry((executed.pc, version)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let found = process.decoded_at(version, executed.pc, executed.len)?;
                    new.insert(Operation::of(&found, &mut decoded.info))
                }
            };
            layout.step(operation)?;
        }
        Some(())
    }

    /// Goes back from instruction `until` to where call frame information describes the frame, or
    /// to its entry.
    fn back(&self, until: u64) -> Option<ExecutedRange> {
        let TraceFrames { thread, process, .. } = self.ran;
        let history = &thread.history;
        let first = self.forest.call(self.outer).first;
        let symbols = process.symbols_at(history.version(first));
        let mut rows: FxHashMap<Avma, Option<Arc<UnwindRow>>> = FxHashMap::default();
        let (mut stretches, mut described) = (Vec::new(), Vec::new());
        let (mut at, mut end) = (until, until);
        let mut walker = history.walk(at);
        let mut behind_described = 0;
        while at > first && behind_described <= DESCRIBED_BACK {
            if let Some(callee) = self.callee_before(at)? {
                self.ran.spend(CALLEE)?;
                let (site, back) = match callee.entered {
                    Entered::Call { site } => (site, history.instruction(site)?.next()),
                    Entered::Signal { interrupted } => (callee.first, interrupted),
                    _ => return None,
                };
                if callee.end != at || history.pc(at) != Some(back) {
                    return None;
                }
                stretches.push(InstructionRun {
                    own: at..end,
                    after_callee: site < callee.first,
                });
                (at, end) = (site, site);
                walker = history.walk(at);
                continue;
            }
            let start = self.own_before(at)?.max(first);
            while at > start && behind_described <= DESCRIBED_BACK {
                self.ran.spend(1)?;
                let pc = walker.prev()?.pc;
                at -= 1;
                let row = rows.entry(pc).or_insert_with(|| symbols.unwind_row(pc));
                if behind_described.is_multiple_of(DESCRIBED_STEP)
                    && let Some(layout) = row.as_deref().and_then(Layout::by)
                {
                    described.push((at, layout));
                }
                behind_described += u32::from(!described.is_empty());
            }
        }
        stretches.push(InstructionRun {
            own: at..end,
            after_callee: false,
        });
        if at == first {
            described.push((first, Layout::at_entry()));
        }
        Some(ExecutedRange { stretches, described })
    }

    /// Returns the call by the frame that has the instruction before index `at`, if the instruction
    /// is not the frame's own. `None`: the frame is unknown.
    fn callee_before(&self, at: u64) -> Option<Option<Call>> {
        let mut call = self.forest.call_at(at.checked_sub(1)?)?;
        let mut inner = None;
        loop {
            let base = self.base(call)?;
            if base == self.outer {
                return Some(inner.map(|inner| self.forest.call(inner)));
            }
            inner = Some(base);
            call = self.forest.call(base).parent?;
        }
    }

    /// Since which instruction on all before number `at`, which has the one before it, is the
    /// frame's own.
    fn own_before(&self, at: u64) -> Option<u64> {
        let mut last = self.forest.last_begun(at)?;
        if self.forest.call(last).end >= at {
            return Some(self.forest.call(last).first);
        }
        loop {
            let call = self.forest.call(last);
            match call.parent.filter(|&parent| self.forest.call(parent).end < at) {
                Some(parent) => last = parent,
                None => return Some(call.end),
            }
        }
    }

    /// The call whose return a call shares.
    fn base(&self, call: CallId) -> Option<CallId> {
        let mut all = self.forest.ancestors(call);
        all.find(|&call| !matches!(self.forest.call(call).entered, Entered::TailCall { .. }))
    }
}
