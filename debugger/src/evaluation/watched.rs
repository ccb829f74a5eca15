//! The value of a watched expression at a position, and the memory on which it depends.

use super::exact::by_dwarf;
use super::past_memory::PastMemory;
use super::selected_frame;
use crate::error::{Error, Result};
use crate::navigator::Navigator;
use crate::origin::{AnyRegister, RegisterSlice, ValueLocation};
use crate::replay::MemoryRange;
use crate::session::Thread;
use crate::watchpoint::{FrameRegisters, NameScope, WatchKind, WatchScope, WatchedValue, Watchpoint};
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_symbolizer::Unknown;
use backtrail_values::{EvalContext, Failure, Frame, Value, ValueFormatter, ValueSource, parse};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A value, or the reason why it is unknown.
type Known<T> = std::result::Result<T, Unknown>;

/// The largest value that is watched, in bytes.
const MAX_SIZE: u64 = 1 << 16;
/// DWARF's numbers of the frame pointer and the stack pointer.
const RBP: u16 = 6;
const RSP: u16 = 7;

/// Returns a watchpoint for an expression in the selected frame.
///
/// # Errors
/// If the expression is invalid, or depends on no memory that can change; when canceled.
pub(crate) fn watchpoint(
    navigator: &Navigator,
    expression: &str,
    kind: WatchKind,
    at_location: bool,
    watch: &Watch<'_>,
) -> Result<Watchpoint> {
    let thread = navigator.thread()?;
    let frame = selected_frame::selected(navigator, watch)?;
    let names = NameScope {
        look_up: frame.look_up,
        pc: frame.pc,
        level: frame.level,
        at: (thread.tid, navigator.index()),
    };
    // The frame pointer is where the caller's one is saved (System V ABI AMD64, section 3.2.2).
    let frame_pointer = frame.source.cfa().ok().map(|cfa| cfa.wrapping_sub(16));
    let recorder = RecordingSource::new(frame.source);
    let registers = recorder.registers.clone();
    let noted = recorder.noted.clone();
    let frame = Frame {
        source: Box::new(recorder),
        ..frame
    };
    let context = EvalContext::new(navigator.symbols()?, &frame, &navigator.printed);
    let value = value_of(&context, expression)?;
    let size = value
        .ty
        .size()
        .ok_or_else(|| Error::Cannot(format!("{expression} is no variable, so that nothing changes it")))?;
    let address = value.address();
    // The value may be unknown here. Reading it notes where it is.
    let _ = value.bytes(context.source);
    let registers = registers.take();
    let is_code = |at| {
        navigator
            .symbols()
            .is_ok_and(|symbols| symbols.function_at(Avma(at)).is_some())
    };
    if address.is_some_and(is_code) {
        return Err(Error::Cannot(format!("{expression} is code, and no variable")));
    }
    let has_no_place = address.is_none() && noted.ranges.borrow().is_empty() && registers.general.is_empty();
    // A variable may have a constant value here, and a register elsewhere.
    let is_local_constant = has_no_place && !at_location && names_local(&context, expression);
    if has_no_place && !is_local_constant {
        return Err(Error::Cannot(format!(
            "{expression} is a constant or has no place here, so that nothing changes it"
        )));
    }
    if size > MAX_SIZE {
        return Err(Error::Cannot(format!(
            "{expression} has {size} bytes; a watchpoint takes at most {MAX_SIZE}, so watch a part of it"
        )));
    }
    let location = match (at_location || kind != WatchKind::Change, address) {
        (true, Some(address)) => Some((value.ty.clone(), address)),
        (true, None) => {
            return Err(Error::Cannot(format!(
                "{expression} is not in memory here, so that it has no location to watch"
            )));
        }
        (false, _) => None,
    };
    let is_of_frame = registers.cfa.is_some() || !registers.general.is_empty();
    let is_in_registers =
        is_local_constant || location.is_none() && has_other_registers(&registers, frame_pointer);
    let scope = match is_local_constant || is_of_frame && !at_location {
        true => scope(navigator, watch)?,
        false => None,
    };
    let mut watchpoint = Watchpoint {
        expression: expression.to_owned(),
        kind,
        process: navigator.process()?.pid,
        scope,
        location,
        names,
        registers,
        is_in_registers,
        ranges: Vec::new(),
    };
    let (_, ranges) = evaluate(navigator, &watchpoint, (thread, navigator.index()), watch)?;
    watchpoint.ranges = ranges;
    Ok(watchpoint)
}

/// Returns whether an expression has the name of a variable of the frame.
fn names_local(context: &EvalContext<'_>, expression: &str) -> bool {
    let Some(scope) = &context.scope else {
        return false;
    };
    let locals = scope.blocks.iter().flatten().chain(&scope.parameters);
    let words: Vec<&str> = expression
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    locals
        .into_iter()
        .any(|variable| words.contains(&&*variable.name))
}

/// Returns the place of the value of an expression in the selected frame, and the value as text.
///
/// # Errors
/// If the expression is invalid, or not in one place; when canceled.
pub(crate) fn location(
    navigator: &Navigator,
    expression: &str,
    watch: &Watch<'_>,
) -> Result<(ValueLocation, String)> {
    let frame = selected_frame::selected(navigator, watch)?;
    let is_innermost = navigator.selected_frame() <= frame.level;
    let recorder = RecordingSource::new(frame.source);
    let registers = recorder.registers.clone();
    let noted = recorder.noted.clone();
    let frame = Frame {
        source: Box::new(recorder),
        ..frame
    };
    let context = EvalContext::new(navigator.symbols()?, &frame, &navigator.printed);
    let value = value_of(&context, expression)?;
    let cannot = |why: &str| Error::Cannot(format!("{expression} {why}"));
    let size = value.ty.size().filter(|size| *size > 0);
    let size = size.ok_or_else(|| cannot("has no size"))?;
    let text = || ValueFormatter::new(&context, None).top(&value).text;
    if let Some(address) = value.address() {
        return Ok((ValueLocation::Memory(MemoryRange { address, size }), text()));
    }
    let has_memory = !noted.ranges.borrow().is_empty();
    let general: Vec<u16> = registers.borrow().general.keys().copied().collect();
    let register = match (&*general, &**noted.vectors.borrow()) {
        ([number], []) if !has_memory => by_dwarf(*number).map(AnyRegister::General),
        ([], [number]) if !has_memory => u8::try_from(*number).ok().map(AnyRegister::Vector),
        _ => None,
    };
    let register =
        register.ok_or_else(|| cannot("is not in one register or in memory; ask for one of its parts"))?;
    if !is_innermost {
        return Err(cannot(
            "is in a register of an outer frame; go to that frame first, as with `reverse-finish`",
        ));
    }
    let slice = RegisterSlice {
        register,
        offset: 0,
        size,
    };
    Ok((ValueLocation::Register(slice), text()))
}

/// Returns whether an expression reads registers that change within a call. The frame pointer and
/// the stack pointer lead to variables, and do not.
fn has_other_registers(registers: &FrameRegisters, frame_pointer: Option<u64>) -> bool {
    registers.general.iter().any(|(&number, value)| match number {
        RSP => false,
        RBP => frame_pointer.is_none() || value.as_ref().ok() != frame_pointer.as_ref(),
        _ => true,
    })
}

/// Returns the call of the selected frame.
fn scope(navigator: &Navigator, watch: &Watch<'_>) -> Result<Option<WatchScope>> {
    let thread = navigator.thread()?;
    let selected = navigator.selected_frame();
    let frames = selected_frame::known_stack_of_frame(navigator, selected, watch)?;
    let forest = navigator.session().forest(thread, watch)?;
    let frame = frames.get(selected);
    let call = frame
        .and_then(|frame| frame.call.as_deref()?.parse().ok())
        .and_then(|name| thread.call_named(forest, name).ok()?);
    Ok(call.map(|id| {
        let call = forest.call(id);
        WatchScope {
            tid: thread.tid,
            instructions: call.first..call.end,
            has_start: !call.may_be_rest(),
            function: frame.and_then(|frame| frame.function.clone()),
        }
    }))
}

/// Returns the value of a watched expression before an instruction, and the memory on which it
/// depends.
///
/// # Errors
/// When canceled.
pub(crate) fn evaluate(
    navigator: &Navigator,
    watchpoint: &Watchpoint,
    (thread, index): (&Thread, u64),
    watch: &Watch<'_>,
) -> Result<(WatchedValue, Vec<MemoryRange>)> {
    let session = navigator.session();
    let process = session
        .process(thread)
        .ok_or_else(|| Error::Cannot("the trace describes no process of this thread".to_owned()))?;
    let memory = PastMemory {
        session,
        process,
        thread,
        index,
        watch,
    };
    let recorder = RecordingSource::new(Box::new(WatchSource {
        memory,
        registers: &watchpoint.registers,
    }));
    let noted = recorder.noted.clone();
    let names = watchpoint.names;
    let frame = Frame {
        look_up: names.look_up,
        pc: names.pc,
        level: names.level,
        source: Box::new(recorder),
    };
    let named = session.thread(names.at.0)?;
    let symbols = session.symbols_at(named, names.at.1).unwrap_or(&process.symbols);
    let context = EvalContext::new(symbols, &frame, &navigator.printed);
    let value = match &watchpoint.location {
        Some((ty, address)) => Ok(Value::at(ty.clone(), *address)),
        None => {
            let parsed = parse(&watchpoint.expression, &context)?;
            context.evaluate(&parsed)
        }
    };
    let evaluated = match value {
        Ok(value) => shown(&context, &value, &noted),
        Err(failure) => WatchedValue {
            text: ValueFormatter::failed(failure)?.text,
            bytes: None,
        },
    };
    if watch.is_canceled() {
        return Err(Error::Canceled);
    }
    Ok((evaluated, noted.ranges.take()))
}

/// Returns the value of a watched expression in its own frame, before one of the instructions of
/// that frame.
///
/// # Errors
/// When canceled.
pub(crate) fn value_in_frame(
    navigator: &Navigator,
    watchpoint: &Watchpoint,
    (thread, index): (&Thread, u64),
    watch: &Watch<'_>,
) -> Result<WatchedValue> {
    let unknown = |why: &str| WatchedValue {
        text: format!("<unknown: {why}>"),
        bytes: None,
    };
    let session = navigator.session();
    let (Some(symbols), Some(pc)) = (session.symbols_at(thread, index), thread.history.pc(index)) else {
        return Ok(unknown("its code is unknown"));
    };
    let function = watchpoint
        .scope
        .as_ref()
        .and_then(|scope| scope.function.as_deref());
    let frames = symbols.frames_at(pc);
    let level = frames.iter().position(|frame| Some(&*frame.function) == function);
    let Some(level) = level else {
        return Ok(unknown("its function is not there"));
    };
    let entry = watchpoint.scope.as_ref().map(|scope| scope.instructions.start);
    let frame = Frame {
        look_up: Some(pc),
        pc: Some(pc.0),
        level,
        source: selected_frame::source_in(navigator, (thread, index), entry, watch)?,
    };
    let context = EvalContext::new(symbols, &frame, &navigator.printed);
    let parsed = parse(&watchpoint.expression, &context)?;
    let value = match context.evaluate(&parsed) {
        Ok(value) => WatchedValue {
            text: ValueFormatter::new(&context, None).top(&value).text,
            bytes: value.bytes(context.source).ok(),
        },
        Err(failure) => WatchedValue {
            text: ValueFormatter::failed(failure)?.text,
            bytes: None,
        },
    };
    match watch.is_canceled() {
        true => Err(Error::Canceled),
        false => Ok(value),
    }
}

fn shown(context: &EvalContext<'_>, value: &Value, noted: &NotedMemory) -> WatchedValue {
    let bytes = value.bytes(context.source).ok();
    // Text may show more than the value, as the string at a pointer.
    noted.is_off.set(true);
    WatchedValue {
        text: ValueFormatter::new(context, None).top(value).text,
        bytes,
    }
}

fn value_of(context: &EvalContext<'_>, expression: &str) -> Result<Value> {
    match context.evaluate(&parse(expression, context)?) {
        Ok(value) => Ok(value),
        Err(Failure::Error(error)) => Err(error.into()),
        Err(Failure::Unavailable(cause)) => Err(Error::UnknownValue {
            name: expression.to_owned(),
            why: cause.reason(),
        }),
    }
}

/// The memory that a source has read.
#[derive(Default)]
struct NotedMemory {
    ranges: RefCell<Vec<MemoryRange>>,
    vectors: RefCell<Vec<u16>>,
    is_off: Cell<bool>,
}

/// A source that notes what is read.
struct RecordingSource<'a> {
    inner: Box<dyn ValueSource + 'a>,
    registers: Rc<RefCell<FrameRegisters>>,
    noted: Rc<NotedMemory>,
}

impl<'a> RecordingSource<'a> {
    fn new(inner: Box<dyn ValueSource + 'a>) -> Self {
        Self {
            inner,
            registers: Rc::default(),
            noted: Rc::default(),
        }
    }
}

impl ValueSource for RecordingSource<'_> {
    fn register(&self, register: u16) -> Known<u64> {
        let value = self.inner.register(register);
        let mut registers = self.registers.borrow_mut();
        registers.general.insert(register, value.clone());
        value
    }

    fn low(&self, register: u16, size: usize) -> Known<u64> {
        let value = self.inner.low(register, size);
        let mut registers = self.registers.borrow_mut();
        registers.general.entry(register).or_insert_with(|| value.clone());
        value
    }

    fn vector(&self, number: u16) -> Known<[u8; 16]> {
        let mut vectors = self.noted.vectors.borrow_mut();
        if !vectors.contains(&number) {
            vectors.push(number);
        }
        self.inner.vector(number)
    }

    fn special(&self, name: &str) -> Known<u64> {
        self.inner.special(name)
    }

    fn memory(&self, at: u64, out: &mut [u8]) -> Known<()> {
        if !self.noted.is_off.get() {
            self.noted.ranges.borrow_mut().push(MemoryRange {
                address: at,
                size: out.len() as u64,
            });
        }
        self.inner.memory(at, out)
    }

    fn cfa(&self) -> Known<u64> {
        let cfa = self.inner.cfa();
        self.registers.borrow_mut().cfa = Some(cfa.clone());
        cfa
    }

    fn thread_pointer(&self) -> Known<(u64, Option<Avma>)> {
        let pointer = self.inner.thread_pointer();
        self.registers.borrow_mut().thread_pointer = Some(pointer.clone());
        pointer
    }

    fn entry_value(&self, register: u16) -> Known<u64> {
        let value = self.inner.entry_value(register);
        let mut registers = self.registers.borrow_mut();
        registers.entry_values.insert(register, value.clone());
        value
    }
}

/// The registers of a frame as they were where a watchpoint was set, and the memory of another
/// position.
struct WatchSource<'a> {
    memory: PastMemory<'a>,
    registers: &'a FrameRegisters,
}

/// The reason for registers that a watched expression did not read at first.
const NOT_READ: Unknown = Unknown::Borrowed("the expression depends on a register of another frame");

impl ValueSource for WatchSource<'_> {
    fn register(&self, register: u16) -> Known<u64> {
        self.registers
            .general
            .get(&register)
            .cloned()
            .unwrap_or(Err(NOT_READ))
    }

    fn vector(&self, _number: u16) -> Known<[u8; 16]> {
        Err(NOT_READ)
    }

    fn special(&self, _name: &str) -> Known<u64> {
        Err(NOT_READ)
    }

    fn memory(&self, at: u64, out: &mut [u8]) -> Known<()> {
        self.memory.read(at, out)
    }

    fn cfa(&self) -> Known<u64> {
        self.registers.cfa.clone().unwrap_or(Err(NOT_READ))
    }

    fn thread_pointer(&self) -> Known<(u64, Option<Avma>)> {
        self.registers.thread_pointer.clone().unwrap_or(Err(NOT_READ))
    }

    fn entry_value(&self, register: u16) -> Known<u64> {
        let value = self.registers.entry_values.get(&register).cloned();
        value.unwrap_or(Err(NOT_READ))
    }
}
