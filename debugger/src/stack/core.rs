//! Joins the stack of a thread in the core with the stack of the call forest.
//!
//! A call that has not returned when history ends has the same callers at all of its positions.
//! These are its callers at the crash. They did not run in between, so their frames in the core are
//! unchanged.

use super::callers::Callers;
use super::core_cache::StackJoin;
use super::position::pc_at;
use super::trace_frames::TraceFrames;
use crate::session::{Session, Thread};
use crate::unwind::{self, Memory, PhysicalFrame, UnwindEnd, Unwound};
use backtrail_decoder::{CallId, Forest, Left};
use backtrail_pt::{Avma, Cofi};

/// The stack of a thread in the core; `None`: the core does not have the thread.
pub(crate) fn unwound<'a>(session: &Session, thread: &'a Thread) -> Option<&'a Unwound> {
    let find = || {
        let (registers, core) = (session.end_registers(thread.tid)?, session.core()?);
        let process = session.process(thread)?;
        let memory = Memory::new(core, &process.image);
        let past = TraceFrames::new(session, thread, process);
        Some(unwind::unwind(
            registers,
            process.symbols_at_end(),
            &memory,
            &past,
        ))
    };
    thread.core_stack.unwound.get_or_init(find).as_ref()
}

/// Returns the callers of a root of the call forest, innermost first, and the reason why there are
/// no more.
///
/// Returns `None` unless the callers are certain.
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
    *thread.core_stack.join.get_or_init(find)
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
        // A function that the root reached by a jump may be on another stack, so the same caller
        // must be proved.
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

/// The outermost frame is that of the program's entry point. Only what loaded the program can have
/// jumped there, and nothing called that.
fn ends_where_the_program_begins(session: &Session, thread: &Thread, unwound: &Unwound) -> bool {
    let found = || {
        let process = session.process(thread)?;
        let entry = Memory::new(session.core()?, &process.image).program_entry()?;
        let outermost = unwound.frames.last()?.look_up();
        Some(process.symbols_at_end().function_at(outermost)?.entry == entry)
    };
    unwound.end == UnwindEnd::Outermost && found().unwrap_or(false)
}

/// Returns whether the last instruction can lead to the position of the thread, so that nothing ran
/// since.
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
    let call = forest.call(call);
    let symbols = session.symbols_at(thread, call.first);
    let function = symbols.and_then(|symbols| symbols.function_at(call.function));
    function.is_some_and(|function| Memory::new(core, &process.image).is_behind_call_of(pc, function.entry))
}

/// Returns the last position at which an exception or `longjmp` ended calls.
///
/// If a function calls itself, it is uncertain which of its calls that returned to. The history of
/// the stack before that position does not apply after it.
fn last_unwinding(forest: &Forest) -> Option<u64> {
    let calls = forest.ids().map(|id| forest.call(id));
    calls
        .filter(|call| call.left == Left::Unwound)
        .map(|call| call.end)
        .max()
}
