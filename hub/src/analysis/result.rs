//! The result of an analysis: what pages, grouping and alerts need of a bundle.

use crate::stack::Frame;
use backtrail_debugger::timeline::chart::Timeline;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format. A hub analyzes a bundle again if its result has another version.
pub const VERSION: u32 = 1;

/// The result of an analysis. All lists and texts are bounded. An unknown value is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The version of the format, see [`VERSION`].
    pub version: u32,
    /// The program's file.
    pub program: Option<String>,
    /// The cause of the crash.
    pub cause: Cause,
    /// The stack of the crashed thread.
    pub crashed: StackView,
    /// The stacks of the other threads.
    pub threads: Vec<StackView>,
    /// The number of further threads.
    pub more_threads: usize,
    /// The lines around the faulting one, or around the innermost one that has source text.
    pub source: Option<SourceView>,
    /// The calls that began last in the crashed thread, oldest first.
    pub calls: Vec<LastCall>,
    /// The lines that the crashed thread executed last, oldest first.
    pub lines: Vec<ExecutedLine>,
    /// The reason for which there are no older lines, if there are none.
    pub before_lines: Option<String>,
    /// The last distinct pairs of caller and callee of the crashed thread, newest first.
    pub edges: Vec<CallEdge>,
    /// The functions that the crashed thread called and that returned, those with the newest calls
    /// first. An analysis of an earlier version has none.
    #[serde(default)]
    pub exact_calls: Vec<ExactCalls>,
    /// The branches of the crashed thread. The hub stores them as an object of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<LineBranches>,
    /// Missing parts of the crashed thread's history, oldest first.
    pub gaps: Vec<GapView>,
    /// The number of older gaps.
    pub more_gaps: usize,
    /// The mapped files, by address.
    pub modules: Vec<ModuleView>,
    /// Timelines: of the whole trace, and of shorter and shorter times before the crash. Empty: the
    /// trace has no calls.
    pub timelines: Vec<Timeline>,
    /// The labels of the request that the crashed thread served.
    pub labels: BTreeMap<String, String>,
    /// The attributes that the process published of itself, such as `service.name`.
    pub resource: BTreeMap<String, String>,
    /// The way in which the bundle was made.
    pub snapshot: Snapshot,
    /// Notes about losses and assumptions, one sentence each.
    pub notes: Vec<String>,
    /// The command line. `None`: unknown, or left out by a rule of redaction.
    pub command_line: Option<Vec<String>>,
}

/// The cause of a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// `si_signo`. 0: the program did not crash.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// The signal's name: `SIGSEGV`.
    pub name: String,
    /// The signal and its address in words: `SIGSEGV (segmentation fault) at address 0x28`.
    pub description: String,
    /// The meaning of the code: `no memory is mapped at the address`.
    pub meaning: Option<String>,
    /// `si_addr`, for signals that have one.
    pub fault_address: Option<u64>,
    /// The instruction pointer.
    pub pc: Option<u64>,
    /// The stack pointer.
    pub stack_pointer: Option<u64>,
    /// The access of the faulting instruction to the fault address.
    pub access: Option<Access>,
    /// The text of the failed assertion or check, as the C library kept it.
    pub message: Option<String>,
    /// The signal handler that was running at the crash.
    pub handler: Option<InterruptedBy>,
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// The instruction read.
    Read,
    /// The instruction wrote.
    Write,
    /// The instruction read and wrote the same memory.
    ReadWrite,
    /// The processor fetched the instruction itself.
    Execute,
}

/// A signal handler that was running at the crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedBy {
    /// The handler's function.
    pub handler: Option<String>,
    /// The position of its first instruction.
    pub position: String,
    /// The interrupted function.
    pub interrupted: Option<String>,
}

/// The stack of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackView {
    /// The thread's id.
    pub thread: u32,
    /// The thread's name.
    pub name: Option<String>,
    /// The position of the stack in the history.
    pub position: String,
    /// The number of instructions in the decoded history.
    pub instructions: u64,
    /// The frames, innermost first.
    pub frames: Vec<FrameView>,
    /// Whether there are more frames.
    pub more: bool,
    /// The reason for which older frames are unknown.
    pub unknown_beyond: Option<String>,
}

/// A frame, with what is known of it at the end of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameView {
    /// The frame.
    #[serde(flatten)]
    pub frame: Frame,
    /// The next instruction, or the return address.
    pub pc: Option<u64>,
    /// Whether it is a signal handler: the next frame was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signal_handler: bool,
    /// Whether it ended by a tail call to the frame before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tail_caller: bool,
    /// Whether `pc` is not code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bad_pointer: bool,
    /// The known values of arguments and locals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<KnownValue>,
}

/// The exact value of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownValue {
    /// Argument or local.
    pub kind: ValueKind,
    /// The variable.
    pub name: String,
    /// The value, as the debugger prints it.
    pub value: String,
}

/// The kinds of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueKind {
    /// A parameter of the function.
    Argument,
    /// A local variable.
    Local,
}

/// The check of a source file that came with the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceCheck {
    /// The debug information has the MD5 of the text.
    Verified,
    /// The debug information has no MD5.
    Unverified,
}

/// Lines of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    /// The file, as the debug information names it.
    pub file: String,
    /// The number of the first line.
    pub first: u32,
    /// The line of the crash.
    pub current: u32,
    /// The text. `None`: the file was not found.
    pub lines: Option<Vec<String>>,
    /// Whether the text is from the bundle, and then whether the debug information confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundled: Option<SourceCheck>,
    /// The number of executions of each line in the history, 0 for code that did not run. `None`:
    /// the line has no code. The list is empty if the counts are unknown.
    pub executions: Vec<Option<u64>>,
}

/// A call in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCall {
    /// The function, or its address.
    pub function: String,
    /// The number of calls around it, from the outermost one in the list.
    pub depth: usize,
    /// The file in which the function is declared. Of inlined calls: of the first line that ran.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
    /// The position of the first instruction, such as `t12#345`.
    pub position: String,
    /// Whether the call was inlined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
    /// The end of the call, if it is not a return.
    pub left: Option<String>,
    /// The duration in words.
    pub duration: Option<String>,
}

/// The complete calls of a function in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactCalls {
    /// The demangled name of the function.
    pub function: String,
    /// The build id of its module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The position of the newest call's first instruction.
    pub position: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of instructions that the newest call and its callees executed.
    pub instructions: u64,
    /// The duration of the newest call, in words. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// The conditional branches of a function in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineBranches {
    /// The demangled name of the function.
    pub function: String,
    /// The source file of the lines.
    pub file: String,
    /// The line at which the function is declared. `None`: unknown.
    pub declared: Option<u32>,
    /// The outcomes.
    pub outcomes: Vec<BranchOutcome>,
}

/// An outcome of the branches of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchOutcome {
    /// The line of the branches.
    pub line: u32,
    /// The line that ran next. `None`: the branch left the function.
    pub next: Option<u32>,
    /// The number of executions.
    pub count: u64,
}

/// A line that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedLine {
    /// The function, where it is another than in the line before.
    pub function: Option<String>,
    /// The number of calls around the line, from the outermost line in the list.
    pub depth: usize,
    /// The source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The text, if found.
    pub text: Option<String>,
    /// The number of executions in the history.
    pub count: Option<u64>,
    /// The position, such as `t12#345`.
    pub position: String,
    /// Whether the function was inlined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
}

/// A pair of caller and callee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEdge {
    /// The calling function, or the one that a signal interrupted. `None`: unknown.
    pub caller: Option<String>,
    /// The called function, or its address.
    pub callee: String,
    /// The position of the last such call.
    pub position: String,
}

/// A missing part of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapView {
    /// The first instruction after it.
    pub position: String,
    /// The cause.
    pub cause: String,
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleView {
    /// The path on the host.
    pub path: String,
    /// The build id.
    pub build_id: Option<String>,
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The symbols that were found.
    pub symbols: SymbolState,
    /// The reason for which debug information is missing or incomplete.
    pub problem: Option<String>,
}

/// The symbols of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SymbolState {
    /// The file is not in the bundle.
    NoFile,
    /// No function has a name.
    None,
    /// Functions have names, and no lines.
    SymbolTable,
    /// Functions have names, lines and variables.
    DebugInformation,
}

/// The way in which a bundle was made. Durations are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// `hardware`, `software` or `unknown`.
    pub source: String,
    /// The command that made the bundle.
    pub created_by: Option<String>,
    /// Seconds since 1970.
    pub created_at: Option<u64>,
    /// The host's name.
    pub host: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The processor as `family/model/stepping`.
    pub cpu: Option<String>,
    /// The trigger of the collector: `crash`, `snapshot` or `function`.
    pub trigger: Option<String>,
    /// The probe that reported the crash.
    pub probe: Option<String>,
    /// From the signal until the event was read.
    pub crash_to_reader: Option<u64>,
    /// From the signal until the trace was paused.
    pub crash_to_stop: Option<u64>,
    /// From the signal until the process's memory was read.
    pub crash_to_held: Option<u64>,
    /// The time for which the process was kept.
    pub held: Option<u64>,
    /// Bytes of older trace that were lost before the pause.
    pub overwritten: Option<u64>,
    /// Bytes of trace.
    pub history: Option<u64>,
    /// Absent parts of the bundle, one sentence each.
    pub missing: Vec<String>,
}
