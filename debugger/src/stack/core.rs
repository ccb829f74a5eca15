//! The stack of a thread in the core, and where the call forest's stack meets it.
//!
//! A call that has not ended when history ends has the same callers at every position inside of it: those that it
//! has at the crash. They did not run, so their frames are in the core as they were.

use super::callers::Callers;
use super::pc_at;
use super::trace_frames::TraceFrames;
use crate::session::{Session, Thread};
use crate::unwind::{self, Memory, PhysicalFrame, UnwindEnd, Unwound};
use backtrail_decoder::{CallId, Forest, Left};
use backtrail_pt::{Avma, Cofi};
use std::cell::OnceCell;

/// What is known of a thread's stack in the core, found when first asked for.
#[derive(Default)]
pub(crate) struct CoreStack {
    unwound: OnceCell<Option<Unwound>>,
    meeting: OnceCell<StackJoin>,
    /// From this instruction on it is certain which call is meant where a function calls itself.
    settled: OnceCell<u64>,
}

/// How the two stacks of a thread at the end of its history fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StackJoin {
    /// Frame by frame the same, as far as history goes.
    Joint {
        /// The outermost call of the forest's stack.
        root: CallId,
        /// It is certain that what the root jumped to, if it did, has the root's caller: the past has it too.
        same_stack: bool,
        /// The number of the physical frame that called it.
        caller: usize,
    },
    /// They contradict each other: the call forest took something for what it was not.
    Differ,
    /// It is not certain.
    Unknown,
}

/// The stack of a thread in the core; `None`: the core does not have the thread.
pub(crate) fn unwound<'a>(session: &Session, thread: &'a Thread) -> Option<&'a Unwound> {
    let find = || {
        let (registers, core) = (session.end_registers(thread.tid)?, session.core()?);
        let process = session.process(thread)?;
        let memory = Memory::new(core, &process.image);
        let past = TraceFrames::new(session, thread, process);
        Some(unwind::unwind(registers, &process.symbols, &memory, &past))
    };
    thread.core_stack.unwound.get_or_init(find).as_ref()
}

/// The callers, innermost first, of a root of the call forest at a position inside of it, and why there are no
/// more; `None` unless it is certain who they are.
pub(super) fn callers<'a>(
    session: &Session,
    thread: &'a Thread,
    forest: &Forest,
    root: CallId,
    index: u64,
) -> Option<(&'a [PhysicalFrame], UnwindEnd)> {
    let unwound = unwound(session, thread)?;
    let StackJoin::Joint {
        root: joined,
        same_stack,
        caller,
    } = meeting(session, thread, forest, unwound)
    else {
        return None;
    };
    // At the end itself it does not matter what the root is: its frames are what the core has.
    let settled = || {
        *thread
            .core_stack
            .settled
            .get_or_init(|| last_unwinding(forest).unwrap_or(0))
    };
    let at_end = index >= thread.history.len();
    let certain = joined == root && (at_end || same_stack && settled() <= index);
    Some((unwound.frames.get(caller..).filter(|_| certain)?, unwound.end))
}

/// The core's stack at the end of history is not the forest's.
pub(super) fn contradicts(session: &Session, thread: &Thread, forest: &Forest) -> bool {
    let unwound = unwound(session, thread);
    unwound.is_some_and(|unwound| meeting(session, thread, forest, unwound) == StackJoin::Differ)
}

fn meeting(session: &Session, thread: &Thread, forest: &Forest, unwound: &Unwound) -> StackJoin {
    let find = || StackJoin::find(session, thread, forest, unwound);
    *thread.core_stack.meeting.get_or_init(find)
}

impl StackJoin {
    /// Goes along both stacks, innermost first: every frame must stand at the same address in both.
    fn find(session: &Session, thread: &Thread, forest: &Forest, unwound: &Unwound) -> Self {
        let mut physical = unwound.frames.iter().enumerate().peekable();
        let mut root = None;
        let (mut root_has_frame, mut jumped) = (false, true);
        let mut guessed = false;
        for step in Callers::new(session, thread, forest, thread.history.len()) {
            // One that jumped to its callee has no frame of its own.
            if !step.tail_caller {
                match physical.next() {
                    Some((_, frame)) if Some(frame.pc) == step.pc => guessed = frame.bad_pointer,
                    Some(_) if step.pc.is_some() && !guessed => return Self::Differ,
                    None if unwound.end == UnwindEnd::Outermost => return Self::Differ,
                    _ => return Self::Unknown,
                }
            }
            if step.signal_handler && physical.next_if(|(_, frame)| frame.signal_frame).is_none() {
                return Self::Unknown;
            }
            root = step.root;
            root_has_frame = step.call.is_some() && !step.tail_caller;
            jumped = root_has_frame || (jumped && step.tail_caller && !step.returned_to_start);
        }
        let Some(root) = root.filter(|&root| forest.call(root).left == Left::HistoryEnd) else {
            return Self::Unknown;
        };
        if !is_continuous(session, thread) {
            return Self::Unknown;
        }
        let caller = physical.next();
        // What the root jumped to may be on another stack. That it has the same caller must be seen.
        let same_stack = root_has_frame
            || jumped
                && match caller {
                    Some((_, caller)) => called(session, thread, caller.pc, forest, root),
                    None => ends_where_the_program_begins(session, thread, unwound),
                };
        Self::Joint {
            root,
            same_stack,
            caller: caller.map_or(unwound.frames.len(), |(number, _)| number),
        }
    }
}

/// The outermost frame is that of the program's entry point. Only what loaded the program can have jumped there,
/// and nothing called that.
fn ends_where_the_program_begins(session: &Session, thread: &Thread, unwound: &Unwound) -> bool {
    let found = || {
        let process = session.process(thread)?;
        let entry = Memory::new(session.core()?, &process.image).program_entry()?;
        let outermost = unwound.frames.last()?.look_up();
        Some(process.symbols.function_at(outermost)?.entry == entry)
    };
    unwound.end == UnwindEnd::Outermost && found().unwrap_or(false)
}

/// The last instruction can have led to where the thread stands: nothing ran since that is not in the history.
fn is_continuous(session: &Session, thread: &Thread) -> bool {
    let pc = pc_at(session, thread, thread.history.len());
    let last = thread.history.len().checked_sub(1);
    let last = last.and_then(|last| thread.history.instruction(last));
    let Some((pc, last)) = pc.zip(last) else {
        return false;
    };
    pc == last.pc
        || match last.cofi {
            Cofi::Sequential | Cofi::FarTransfer => pc == last.next(),
            Cofi::Conditional { target } => pc == target || pc == last.next(),
            Cofi::Jump { target } | Cofi::Call { target } => pc == target,
            Cofi::IndirectJump | Cofi::IndirectCall | Cofi::Return => true,
        }
}

/// A direct call of the function of `call` returns to `pc`.
fn called(session: &Session, thread: &Thread, pc: Avma, forest: &Forest, call: CallId) -> bool {
    let Some((process, core)) = session.process(thread).zip(session.core()) else {
        return false;
    };
    let function = process.symbols.function_at(forest.call(call).function);
    function.is_some_and(|function| Memory::new(core, &process.image).is_behind_call_of(pc, function.entry))
}

/// Where an exception or `longjmp` last ended calls. Of a function that calls itself it is not certain which of
/// its calls that went back to; what history says of the stack before does not hold beyond it.
fn last_unwinding(forest: &Forest) -> Option<u64> {
    let calls = forest.ids().map(|id| forest.call(id));
    calls
        .filter(|call| call.left == Left::Unwound)
        .map(|call| call.end)
        .max()
}
