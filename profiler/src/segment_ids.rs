//! The ids of frames, threads and events in the segment that is written.

use crate::address::{CodeBranch, CodeFrame};
use crate::kernel::Kernel;
use crate::modules::{ModuleIdx, ModuleKind, Modules};
use crate::python::PythonCode;
use crate::vdso::Vdso;
use crate::{Error, Result};
use backtrail_profile::{
    EventId, Frame, FrameId, Line, Module, Profile, StackId, TakenBranch, Thread, ThreadId,
};
use backtrail_pt::{FileOffset, Pid, Tid};
use std::collections::HashMap;
use std::rc::Rc;

/// The code that frames are in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    /// The files.
    pub modules: &'a Modules,
    /// The functions of the kernel.
    pub kernel: &'a Kernel,
    /// The functions of Python.
    pub python: &'a PythonCode,
}

/// A thread with its names at one time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamedThread {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The name of the process.
    pub process_name: Rc<str>,
    /// The name of the thread.
    pub name: Rc<str>,
}

/// The ids of a segment's tables. They are invalid in the next segment.
#[derive(Debug, Default)]
pub(crate) struct SegmentIds {
    segment: u32,
    frames: HashMap<CodeFrame, FrameId>,
    threads: HashMap<NamedThread, ThreadId>,
    events: HashMap<usize, EventId>,
}

impl SegmentIds {
    /// Forgets all ids if another segment has begun, and adds its events. Returns whether it has.
    pub fn begin(
        &mut self,
        segment: u32,
        add_events: impl FnOnce() -> Result<HashMap<usize, EventId>>,
    ) -> Result<bool> {
        let is_new = self.segment != segment || self.events.is_empty();
        if is_new {
            *self = Self {
                segment,
                events: add_events()?,
                ..Self::default()
            };
        }
        Ok(is_new)
    }

    /// Returns the id of an event by its index in the sampler.
    pub fn event(&self, index: usize) -> Option<EventId> {
        self.events.get(&index).copied()
    }

    /// Returns the id of a stack of frames, the innermost first.
    pub fn stack(&mut self, profile: &mut Profile, frames: &[CodeFrame], code: Code<'_>) -> Result<StackId> {
        let mut stack = StackId::EMPTY;
        for frame in frames.iter().rev() {
            let frame = self.frame(profile, *frame, code)?;
            stack = profile.stacks.push(stack, frame)?;
        }
        Ok(stack)
    }

    /// Returns branches with the ids of their ends.
    pub fn branches(
        &mut self,
        profile: &mut Profile,
        branches: &[CodeBranch],
        code: Code<'_>,
    ) -> Result<Box<[TakenBranch]>> {
        let branches = branches.iter().map(|branch| {
            Ok(TakenBranch {
                from: self.frame(profile, branch.from, code)?,
                to: self.frame(profile, branch.to, code)?,
                is_mispredicted: branch.is_mispredicted,
            })
        });
        branches.collect()
    }

    fn frame(&mut self, profile: &mut Profile, frame: CodeFrame, code: Code<'_>) -> Result<FrameId> {
        if let Some(known) = self.frames.get(&frame) {
            return Ok(*known);
        }
        let added = add_frame(profile, frame, code)?;
        Ok(*self.frames.entry(frame).or_insert(added))
    }

    /// Returns the id of a thread.
    pub fn thread(&mut self, profile: &mut Profile, thread: NamedThread) -> Result<ThreadId> {
        if let Some(known) = self.threads.get(&thread) {
            return Ok(*known);
        }
        let added = Thread {
            pid: thread.pid,
            tid: thread.tid,
            process_name: profile.string(&thread.process_name)?,
            name: profile.string(&thread.name)?,
        };
        let added = profile.threads.intern(added)?;
        Ok(*self.threads.entry(thread).or_insert(added))
    }
}

/// Returns the function of code that no file has, because another machine does not know it.
fn host_function(module: ModuleIdx, offset: FileOffset, code: Code<'_>) -> Option<&str> {
    match code.modules.kind(module)? {
        ModuleKind::Kernel => code.kernel.function_at(module, offset),
        ModuleKind::Vdso => Vdso::of_this_machine()?.function_at(offset),
        ModuleKind::File | ModuleKind::Anonymous => None,
    }
}

/// Adds a frame to the tables of a segment. Functions of the kernel and of the vDSO get their names
/// at once.
fn add_frame(profile: &mut Profile, frame: CodeFrame, code: Code<'_>) -> Result<FrameId> {
    let (frame, name) = match frame {
        CodeFrame::Lost => (Frame::Lost, None),
        CodeFrame::Address(address) => (Frame::Address(address), None),
        CodeFrame::Python(index) => (code.python.profile_frame(profile, index)?, None),
        CodeFrame::Module(index, offset) => match code.modules.key(index) {
            None => (Frame::Lost, None),
            Some(key) => {
                let path = profile.string(&key.path)?;
                let build_id = key.build_id.clone();
                let module = profile.modules.intern(Module { build_id, path })?;
                (Frame::Code { module, offset }, host_function(index, offset, code))
            }
        },
    };
    let id = profile.frames.intern(frame).map_err(Error::Profile)?;
    if let Some(name) = name {
        let function = profile.function(name)?;
        profile.lines.insert(id, [Line { function, line: 0 }].into());
    }
    Ok(id)
}
