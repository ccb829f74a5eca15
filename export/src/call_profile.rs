//! The calls of a trace as a profile: calls, instructions and time of each stack.

use crate::call_times::CallTimes;
use crate::functions::FunctionKind;
use crate::{EnteredCall, EventKind, Function, FunctionId, Functions, Result, Timeline, Track, Unit};
use backtrail_debugger::latency::CallTimer;
use backtrail_decoder::Watch;
use backtrail_profile::{
    EventId, Frame, FrameId, Function as ProfileFunction, LabelSetId, Line, Module, ModuleId, Profile,
    Sample, StackId, Thread, ThreadId,
};
use backtrail_symbolizer::Module as MappedModule;
use rustc_hash::FxHashMap;

/// The deepest stack. Deeper calls count for their outermost caller at this depth, because listing
/// the functions of every stack takes quadratic time.
const MAX_DEPTH: usize = 1024;

/// The calls of a trace as a profile.
pub struct CallProfile {
    /// The samples: the own calls, instructions and time of each stack.
    pub profile: Profile,
    /// The lengths of the single calls.
    pub times: CallTimes,
}

/// The outermost frame of all stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackRoot {
    /// The outermost function.
    Function,
    /// The name of the thread, for formats without threads.
    Thread,
}

impl CallProfile {
    /// Adds up the calls of a timeline.
    ///
    /// # Errors
    /// Fails if a table of the profile is full, or if it was canceled.
    pub fn new(timeline: &Timeline<'_>, watch: &Watch<'_>) -> Result<Self> {
        Self::with_root(timeline, StackRoot::Function, watch)
    }

    pub(crate) fn with_root(timeline: &Timeline<'_>, root: StackRoot, watch: &Watch<'_>) -> Result<Self> {
        let mut builder = Builder::new(timeline, root)?;
        let mut functions = Functions::default();
        for track in timeline.tracks() {
            builder.add_track(track, &mut functions, watch)?;
        }
        let Builder {
            mut profile, times, ..
        } = builder;
        if timeline.unit() == Unit::Nanoseconds {
            let lengths = timeline.tracks().iter().map(|track| timeline.length(track));
            profile.duration = lengths.max();
        }
        profile.notes = timeline.notes();
        if times.deep() > 0 {
            profile.notes.push(format!(
                "{} calls below stacks of {MAX_DEPTH} calls are not counted; their time is that of the stack",
                times.deep()
            ));
        }
        Ok(Self { profile, times })
    }
}

/// The own cost of a stack's innermost function.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    calls: u64,
    instructions: u64,
    /// The time in the timeline's unit.
    time: u64,
}

struct Builder<'t> {
    timeline: &'t Timeline<'t>,
    root: StackRoot,
    profile: Profile,
    times: CallTimes,
    /// The frame of each function, in the order of their indexes.
    frames: Vec<FrameId>,
    no_labels: LabelSetId,
    calls: EventId,
    instructions: EventId,
    /// The last event, which readers show first.
    time: Option<EventId>,
}

impl<'t> Builder<'t> {
    fn new(timeline: &'t Timeline<'t>, root: StackRoot) -> Result<Self> {
        let mut profile = Profile::default();
        let calls = profile.event("calls", "count", 0)?;
        let instructions = profile.event("instructions", "count", 0)?;
        let time = match timeline.unit() {
            Unit::Nanoseconds => Some(profile.event("time", "nanoseconds", 0)?),
            Unit::Ticks => Some(profile.event("ticks", "count", 0)?),
            Unit::Instructions => None,
        };
        let mut builder = Self {
            timeline,
            root,
            no_labels: profile.label_set(Vec::new())?,
            profile,
            times: CallTimes::new(timeline.unit()),
            frames: Vec::new(),
            calls,
            instructions,
            time,
        };
        builder.add_program()?;
        Ok(builder)
    }

    /// Adds the program's file. pprof takes the first module for it.
    fn add_program(&mut self) -> Result<()> {
        let session = self.timeline.session();
        let modules = session
            .processes()
            .iter()
            .flat_map(|process| process.symbols_at_end().modules());
        let mut programs = modules.filter(|module| Some(&*module.name) == session.program());
        if let Some(program) = programs.next() {
            self.module(program)?;
        }
        Ok(())
    }

    fn module(&mut self, mapped: &MappedModule) -> Result<ModuleId> {
        let path = self.profile.string(&mapped.name)?;
        let build_id = mapped.file.as_ref().and_then(|file| file.build_id());
        Ok(self.profile.modules.intern(Module { build_id, path })?)
    }

    fn add_track(&mut self, track: &Track<'_>, functions: &mut Functions, watch: &Watch<'_>) -> Result<()> {
        let timeline = self.timeline;
        let thread = self.thread(track)?;
        let root = self.root_of(track)?;
        let times = timeline.session().times();
        let timer = CallTimer::new(track.thread, track.forest(), self.times.timer_unit(), times);
        let mut costs: FxHashMap<StackId, Cost> = FxHashMap::default();
        let mut open: Vec<StackId> = Vec::new();
        // The number of open calls beyond the depth.
        let mut deeper = 0_u64;
        let mut last = None;
        timeline.for_each_event(track, functions, watch, &mut |functions, event| {
            let (at, index) = last
                .replace((event.at, event.index))
                .unwrap_or((event.at, event.index));
            if let Some(running) = open.last() {
                let cost = costs.entry(*running).or_default();
                cost.time += event.at - at;
                cost.instructions += event.index.saturating_sub(index);
            }
            match event.kind {
                EventKind::Enter(_) if open.len() == MAX_DEPTH => {
                    deeper += 1;
                    self.times.skip_deep(event.entered.is_some());
                }
                EventKind::Enter(function) => {
                    let frame = self.frame(function, functions)?;
                    let caller = open.last().copied().unwrap_or(root);
                    let stack = self.profile.stacks.push(caller, frame)?;
                    costs.entry(stack).or_default().calls += 1;
                    open.push(stack);
                    if let Some(EnteredCall {
                        call,
                        range,
                        is_inlined,
                    }) = event.entered
                    {
                        let position = track.thread.position(event.index);
                        let instructions = range.end.saturating_sub(range.start);
                        let span = match is_inlined {
                            true => timer.span_within(call, range),
                            false => timer.span(call),
                        };
                        let length = (span, instructions);
                        self.times.add(stack, thread, position, length);
                    }
                }
                EventKind::Leave if deeper > 0 => deeper -= 1,
                EventKind::Leave => {
                    open.pop();
                }
                EventKind::Instant(_) => {}
            }
            Ok(())
        })?;
        let mut costs: Vec<(StackId, Cost)> = costs.into_iter().collect();
        costs.sort_unstable_by_key(|(stack, _)| *stack);
        for (stack, cost) in costs {
            self.add_samples(thread, stack, cost);
        }
        Ok(())
    }

    fn thread(&mut self, track: &Track<'_>) -> Result<ThreadId> {
        let process_name = self.profile.string(&self.timeline.program_of(track))?;
        let name = self.profile.string(&track.label())?;
        Ok(self.profile.threads.intern(Thread {
            pid: track.process.pid,
            tid: track.thread.tid,
            process_name,
            name,
        })?)
    }

    /// Returns the stack that calls the outermost functions.
    fn root_of(&mut self, track: &Track<'_>) -> Result<StackId> {
        if self.root == StackRoot::Function {
            return Ok(StackId::EMPTY);
        }
        let function = self.profile.function(&track.label())?;
        let frame = self
            .profile
            .frames
            .intern(Frame::Function { function, line: 0 })?;
        Ok(self.profile.stacks.push(StackId::EMPTY, frame)?)
    }

    fn add_samples(&mut self, thread: ThreadId, stack: StackId, cost: Cost) {
        let weights = [
            (Some(self.calls), cost.calls),
            (Some(self.instructions), cost.instructions),
            (self.time, cost.time),
        ];
        for (event, weight) in weights {
            let Some(event) = event.filter(|_| weight > 0) else {
                continue;
            };
            self.profile.samples.push(Sample {
                event,
                weight: i64::try_from(weight).unwrap_or(i64::MAX),
                stack,
                time: None,
                thread: Some(thread),
                cpu: None,
                labels: self.no_labels,
            });
        }
    }

    /// Returns the frame of a function. Functions are new in the order of their indexes.
    fn frame(&mut self, id: FunctionId, functions: &Functions) -> Result<FrameId> {
        for (_, function) in functions.iter().skip(self.frames.len()) {
            let frame = self.new_frame(function)?;
            self.frames.push(frame);
        }
        let frame = self.frames.get(id.0 as usize).copied();
        Ok(frame.ok_or(backtrail_profile::Error::Full)?)
    }

    /// Adds the frame of a function: the code of its entry, with its name and declaration. A
    /// function without a symbol has its place in the file as name, as in profiles by samples.
    fn new_frame(&mut self, function: &Function) -> Result<FrameId> {
        let place = self.code(function)?;
        let frame = match (function.kind, place) {
            (FunctionKind::Unnamed, Some(code)) => return Ok(self.profile.frames.intern(code)?),
            (FunctionKind::Unnamed, None) => {
                return Ok(self.profile.frames.intern(Frame::Address(function.entry.0))?);
            }
            (FunctionKind::Symbol | FunctionKind::Inlined, Some(code)) => {
                Some(self.profile.frames.intern(code)?)
            }
            (FunctionKind::Symbol | FunctionKind::Inlined | FunctionKind::Pause, _) => None,
        };
        let declared = function.declared.as_ref();
        let start_line = declared.map_or(0, |(_, line)| *line);
        let named = ProfileFunction {
            name: self.profile.string(&function.name)?,
            linkage_name: self.profile.string(&function.linkage_name)?,
            file: match declared {
                None => None,
                Some((file, _)) => Some(self.profile.string(file)?),
            },
            start_line,
        };
        let named = self.profile.functions.intern(named)?;
        Ok(match frame {
            Some(frame) => {
                let line = Line {
                    function: named,
                    line: start_line,
                };
                self.profile.lines.insert(frame, [line].into());
                frame
            }
            None => self.profile.frames.intern(Frame::Function {
                function: named,
                line: start_line,
            })?,
        })
    }

    /// Returns the place of a function's entry in the file of its module, if both are known.
    fn code(&mut self, function: &Function) -> Result<Option<Frame>> {
        if function.kind == FunctionKind::Pause {
            return Ok(None);
        }
        let mut processes = self.timeline.session().processes().iter();
        let process = processes.find(|process| process.pid == function.pid);
        let symbols = process.map(|process| process.symbols_at(function.version));
        let Some(mapped) = symbols.and_then(|symbols| symbols.module_at(function.entry)) else {
            return Ok(None);
        };
        let entry = function.entry.to_svma(mapped.bias);
        let offset = mapped.file.as_ref().and_then(|file| file.offset_of(entry));
        let Some(offset) = offset else { return Ok(None) };
        let module = self.module(mapped)?;
        let code = Frame::Code { module, offset };
        // An inlined function may begin where the function around it does, or another one.
        let frame = self.profile.frames.intern(code)?;
        let is_taken = self.profile.lines.contains_key(&frame);
        Ok((function.kind != FunctionKind::Inlined || !is_taken).then_some(code))
    }
}
