//! The steps of a chain: from a place of a value to the instruction that wrote it.

use super::OriginStep;
use super::flow::{ValueFlow, conditional_flow, flow, written};
use super::location::{RegisterSlice, ValueLocation, number};
use crate::disassembly;
use crate::error::{Error, Result};
use crate::evaluation::past_memory::PastMemory;
use crate::evaluation::thread_path::ThreadPath;
use crate::navigator::{Navigator, write_place};
use crate::replay::{AccessKind, ExecutedPath, MemoryRange, ReplayGap, ThreadReplay};
use crate::session::Thread;
use backtrail_decoder::{Stage, Version, Watch};
use backtrail_pt::Avma;
use backtrail_semantics::State;
use iced_x86::{Instruction, Mnemonic};
use rustc_hash::FxHashMap;

/// Instructions between two reports of progress.
const CHECK: u64 = 1 << 14;

/// The end of a chain.
pub struct End {
    pub text: String,
    pub is_complete: bool,
}

impl End {
    fn origin(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_complete: true,
        }
    }

    pub fn unknown(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_complete: false,
        }
    }
}

/// A step back.
pub enum Traced {
    /// The instruction moved the value.
    Through(OriginStep),
    /// The chain ends.
    End {
        /// The instruction with which it ends.
        step: Option<OriginStep>,
        end: End,
    },
}

/// A value at a place, before an instruction of a thread.
pub struct OriginTrace<'a> {
    navigator: &'a Navigator,
    watch: &'a Watch<'a>,
    thread: &'a Thread,
    index: u64,
    location: ValueLocation,
}

/// An instruction that wrote a place.
struct Writer<'a> {
    thread: &'a Thread,
    index: u64,
    instruction: Instruction,
    before: State,
    after: Option<State>,
}

impl<'a> OriginTrace<'a> {
    pub fn new(navigator: &'a Navigator, location: ValueLocation, watch: &'a Watch<'a>) -> Result<Self> {
        Ok(Self {
            navigator,
            watch,
            thread: navigator.thread()?,
            index: navigator.index(),
            location,
        })
    }

    /// Goes to the instruction that wrote the value.
    ///
    /// # Errors
    /// When canceled.
    pub fn step(&mut self) -> Result<Traced> {
        let found = match self.location {
            ValueLocation::Memory(_) => self.writer_of_memory(),
            ValueLocation::Register(slice) => self.writer_of_register(slice),
        };
        if self.watch.is_canceled() {
            return Err(Error::Canceled);
        }
        let writer = match found {
            Ok(writer) => writer,
            Err(traced) => return Ok(*traced),
        };
        let step = self.describe(&writer);
        (self.thread, self.index) = (writer.thread, writer.index);
        let end = |end| {
            Ok(Traced::End {
                step: Some(step.clone()),
                end,
            })
        };
        let mnemonic = format!("{:?}", writer.instruction.mnemonic()).to_lowercase();
        if writer.instruction.mnemonic() == Mnemonic::Syscall {
            let call = writer.before.general[0];
            return end(End::origin(format!("the result of system call {call}")));
        }
        let conditional = writer
            .after
            .as_ref()
            .and_then(|after| conditional_flow(&writer.instruction, &writer.before, after, self.location));
        let flow = conditional.unwrap_or_else(|| flow(&writer.instruction, &writer.before, self.location));
        match flow {
            ValueFlow::Copy(from) => {
                self.location = from;
                Ok(Traced::Through(step))
            }
            ValueFlow::Constant => end(End::origin("a constant of the instruction")),
            ValueFlow::ReturnAddress => end(End::origin("the return address of a call")),
            ValueFlow::Computed(inputs) if inputs.is_empty() => {
                end(End::origin(format!("the result of {mnemonic}")))
            }
            ValueFlow::Computed(inputs) => {
                let values = inputs.iter().map(|input| {
                    let value = match *input {
                        ValueLocation::Register(slice) => slice.value(&writer.before),
                        ValueLocation::Memory(range) => self.memory_at(&writer, writer.index, range),
                    };
                    let name = self.name_of(*input, &writer);
                    value.map_or_else(|| name.clone(), |value| format!("{name} = {value:#x}"))
                });
                let values: Vec<String> = values.collect();
                end(End::origin(format!(
                    "computed by {mnemonic} with {}",
                    values.join(", ")
                )))
            }
            ValueFlow::Unknown => end(End::unknown(
                "the instruction writes only a part of the value, so ask for the parts",
            )),
        }
    }

    fn writer_of_memory(&mut self) -> std::result::Result<Writer<'a>, Box<Traced>> {
        let stop = |text: String| {
            Box::new(Traced::End {
                step: None,
                end: End::unknown(text),
            })
        };
        let ValueLocation::Memory(range) = self.location else {
            return Err(stop("the value is in no memory".to_owned()));
        };
        let session = self.navigator.session();
        let process = session
            .process(self.thread)
            .ok_or_else(|| stop("the process is unknown".to_owned()))?;
        let memory = PastMemory {
            session,
            process,
            thread: self.thread,
            index: self.index,
            watch: self.watch,
        };
        let found = memory.last_writer(range).map_err(|why| stop(why.to_string()))?;
        let Some((thread, write)) = found else {
            return Err(stop("nothing wrote it while values were recorded".to_owned()));
        };
        if let Some(common) = range.common(write.range) {
            self.location = ValueLocation::Memory(common);
        }
        let writer = self.writer_at(thread, write.index)?;
        if write.kind == AccessKind::Kernel {
            let call = writer.before.general[0];
            let step = self.describe(&writer);
            return Err(Box::new(Traced::End {
                step: Some(step),
                end: End::origin(format!("written by the kernel in system call {call}")),
            }));
        }
        Ok(writer)
    }

    fn writer_of_register(&self, slice: RegisterSlice) -> std::result::Result<Writer<'a>, Box<Traced>> {
        let stop = |text: String| {
            Box::new(Traced::End {
                step: None,
                end: End::unknown(text),
            })
        };
        let (path, replay) = self.replay_of(self.thread)?;
        let mut known: FxHashMap<(Avma, Version), bool> = FxHashMap::default();
        let history = &self.thread.history;
        let mut walker = history.walk(self.index);
        let mut at = self.index;
        let gap = |gap: ReplayGap| stop(gap.reason(&path).to_string());
        let (mut start, mut continues) = replay.segment_start(&path, self.index, self.watch).map_err(gap)?;
        while at > 0 {
            if at.is_multiple_of(CHECK) {
                let report = self.watch.report(Stage::Search, self.index - at, self.index);
                report.map_err(|_| stop("canceled".to_owned()))?;
            }
            if at == start {
                if !continues {
                    let position = self.thread.position(at);
                    return Err(stop(format!(
                        "{slice} may have changed before {position} without an instruction"
                    )));
                }
                (start, continues) = replay.segment_start(&path, at - 1, self.watch).map_err(gap)?;
            }
            let Some(executed) = walker.prev() else {
                break;
            };
            at -= 1;
            let version = history.version(at);
            let writes = *known.entry((executed.pc, version)).or_insert_with(|| {
                let decoded = path.decode(version, executed.pc, executed.len);
                decoded.is_none_or(|instruction| written(&instruction).iter().any(|one| one.overlaps(&slice)))
            });
            if writes {
                return self.writer_at(self.thread, at);
            }
        }
        Err(stop(format!("no recorded instruction before wrote {slice}")))
    }

    fn replay_of(
        &self,
        thread: &'a Thread,
    ) -> std::result::Result<(ThreadPath<'a>, &'a ThreadReplay), Box<Traced>> {
        let session = self.navigator.session();
        let found = ThreadPath::of(session, thread).zip(session.replay(thread));
        found.ok_or_else(|| {
            Box::new(Traced::End {
                step: None,
                end: End::unknown(format!("the values of thread {} were not recorded", thread.tid)),
            })
        })
    }

    fn writer_at(&self, thread: &'a Thread, index: u64) -> std::result::Result<Writer<'a>, Box<Traced>> {
        let (path, replay) = self.replay_of(thread)?;
        let stop = |text: String| {
            Box::new(Traced::End {
                step: None,
                end: End::unknown(text),
            })
        };
        let version = thread.history.version(index);
        let executed = thread.history.instruction(index);
        let instruction = executed.and_then(|executed| path.decode(version, executed.pc, executed.len));
        let instruction = instruction.ok_or_else(|| {
            let position = thread.position(index);
            stop(format!("the code at {position} is not known"))
        })?;
        let before = replay
            .state_at(&path, index, self.watch)
            .map_err(|gap| stop(gap.reason(&path).to_string()))?;
        Ok(Writer {
            thread,
            index,
            instruction,
            before,
            after: replay.state_at(&path, index + 1, self.watch).ok(),
        })
    }

    fn describe(&self, writer: &Writer<'a>) -> OriginStep {
        let session = self.navigator.session();
        let thread = writer.thread;
        let pc = Avma(writer.instruction.ip());
        let process = session.process(thread);
        let text = process.and_then(|process| {
            let version = thread.history.version(writer.index);
            let end = Avma(writer.instruction.next_ip());
            let lines = disassembly::disassemble(process, version, pc..end, 1, self.navigator.flavor, None);
            lines.into_iter().next().map(|line| line.text)
        });
        OriginStep {
            position: thread.position(writer.index).to_string(),
            thread: thread.tid.0,
            name: thread.name.clone(),
            place: write_place(session, thread, writer.index),
            instruction: text.unwrap_or_default(),
            to: self.name_of(self.location, writer),
            value: self.value_after(writer),
        }
    }

    /// Returns the name of a place.
    fn name_of(&self, location: ValueLocation, writer: &Writer<'a>) -> String {
        match location {
            ValueLocation::Register(slice) => slice.to_string(),
            ValueLocation::Memory(range) => {
                let symbols = self.navigator.session().symbols_at(writer.thread, writer.index);
                let data = symbols.and_then(|symbols| symbols.data_at(Avma(range.address)));
                let offset = |start: Avma| range.address.wrapping_sub(start.0);
                match data.map(|data| (data.name.clone(), offset(data.start))) {
                    Some((name, 0)) => format!("<{name}>"),
                    Some((name, offset)) => format!("<{name}+{offset}>"),
                    None => format!("{:#x}", range.address),
                }
            }
        }
    }

    fn value_after(&self, writer: &Writer<'a>) -> Option<u64> {
        match self.location {
            ValueLocation::Register(slice) => slice.value(writer.after.as_ref()?),
            ValueLocation::Memory(range) => self.memory_at(writer, writer.index + 1, range),
        }
    }

    /// Returns at most eight bytes of memory as a number.
    fn memory_at(&self, writer: &Writer<'a>, index: u64, range: MemoryRange) -> Option<u64> {
        let session = self.navigator.session();
        let memory = PastMemory {
            session,
            process: session.process(writer.thread)?,
            thread: writer.thread,
            index,
            watch: self.watch,
        };
        let mut bytes = vec![0; usize::try_from(range.size.min(8)).ok()?];
        memory.read(range.address, &mut bytes).ok()?;
        number(&bytes)
    }
}
