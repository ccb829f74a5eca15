//! Python functions in stacks of CPython.
//!
//! The eBPF program reads the frames of the interpreter when a sample is taken. It describes each
//! code object once, before the first sample that refers to it.

mod build;
mod line_table;

pub use crate::address::PythonFrameIdx;
use backtrail_bpf::CodeEvent;
use backtrail_profile::{Frame, Function, Profile};
use backtrail_pt::Pid;
pub use build::PythonBuild;
use std::collections::HashMap;
use std::rc::Rc;

/// The bytes of all code objects that are kept, apart from the last one.
const MAX_BYTES: usize = 16 << 20;
/// The most functions with lines.
const MAX_FRAMES: usize = 1 << 20;
/// The name of a function whose description was lost.
const UNKNOWN: &str = "[unknown Python function]";

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PythonFunction {
    name: String,
    /// Empty if it is not known.
    file: String,
    /// 0 if it is not known.
    first_line: u32,
}

/// A code object of a process.
#[derive(Clone, Debug)]
struct CodeObject {
    function: Rc<PythonFunction>,
    lines: Box<[u8]>,
    /// The bytes that it takes.
    size: usize,
}

/// The code objects of all processes.
#[derive(Debug, Default)]
pub struct PythonCode {
    objects: HashMap<(Pid, u64, u32), CodeObject>,
    bytes: usize,
    frames: Vec<(Rc<PythonFunction>, u32)>,
    ids: HashMap<(Rc<PythonFunction>, u32), PythonFrameIdx>,
    is_full: bool,
}

impl PythonCode {
    /// Adds the description of a code object.
    pub fn add(&mut self, event: &CodeEvent) {
        let size = size_of::<CodeObject>() + event.qualname.len() + event.file.len() + event.lines.len();
        if self.bytes > MAX_BYTES {
            self.is_full = true;
            return;
        }
        let name = match text(&event.qualname, event.qualname_kind) {
            name if name.is_empty() => UNKNOWN.to_owned(),
            name => name,
        };
        let function = PythonFunction {
            name,
            file: text(&event.file, event.file_kind),
            first_line: event.first_line,
        };
        let object = CodeObject {
            function: function.into(),
            lines: event.lines.as_slice().into(),
            size,
        };
        let key = (Pid(event.pid), event.code, event.hash);
        let replaced = self.objects.insert(key, object);
        self.bytes += size;
        self.bytes -= replaced.map_or(0, |object| object.size);
    }

    /// Returns the frame of a code object at an offset of its instructions.
    pub fn frame(&mut self, pid: Pid, code: u64, state: u64) -> PythonFrameIdx {
        let (hash, offset) = ((state >> 32) as u32, state as u32);
        let (function, line) = match self.objects.get(&(pid, code, hash)) {
            Some(object) => {
                let function = Rc::clone(&object.function);
                let line = line_table::line_at(&object.lines, function.first_line, offset);
                (function, line.unwrap_or(0))
            }
            None => {
                let function = PythonFunction {
                    name: UNKNOWN.to_owned(),
                    file: String::new(),
                    first_line: 0,
                };
                (function.into(), 0)
            }
        };
        let key = (function, line);
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        if self.frames.len() >= MAX_FRAMES {
            self.is_full = true;
            return PythonFrameIdx(0);
        }
        let index = PythonFrameIdx(u32::try_from(self.frames.len()).unwrap_or(u32::MAX));
        self.frames.push(key.clone());
        self.ids.insert(key, index);
        index
    }

    /// Returns the frame of a function in a profile.
    ///
    /// # Errors
    ///
    /// Those of adding to a table.
    pub fn profile_frame(
        &self,
        profile: &mut Profile,
        index: PythonFrameIdx,
    ) -> backtrail_profile::Result<Frame> {
        let Some((function, line)) = self.frames.get(index.0 as usize) else {
            return Ok(Frame::Lost);
        };
        let name = profile.string(&function.name)?;
        let file = match function.file.as_str() {
            "" => None,
            file => Some(profile.string(file)?),
        };
        let function = profile.functions.intern(Function {
            name,
            linkage_name: name,
            file,
            start_line: function.first_line,
        })?;
        Ok(Frame::Function {
            function,
            line: *line,
        })
    }

    /// Forgets the code of a process that has ended.
    pub fn forget(&mut self, pid: Pid) {
        let bytes = &mut self.bytes;
        self.objects.retain(|(of, _, _), object| {
            let keep = *of != pid;
            if !keep {
                *bytes -= object.size;
            }
            keep
        });
    }

    /// Returns a sentence if some functions have no names because there are too many.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let note = "some Python functions have no names, because there are too many of them";
        self.is_full.then(|| note.to_owned())
    }
}

/// Returns the text of a string object's characters, each of `kind` bytes.
fn text(bytes: &[u8], kind: u8) -> String {
    let character = |number: u32| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
    let chunks = bytes.chunks_exact(usize::from(kind.max(1)));
    let numbers = chunks.map(|chunk| {
        chunk
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    });
    numbers.map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, hash: u32) -> CodeEvent {
        CodeEvent {
            code: 0x7000,
            hash,
            pid: 7,
            first_line: 10,
            qualname_kind: 1,
            file_kind: 1,
            qualname: name.as_bytes().to_vec(),
            file: b"a.py".to_vec(),
            lines: Vec::new(),
        }
    }

    #[test]
    fn reused_address_is_another_function() {
        let mut code = PythonCode::default();
        code.add(&event("first", 1));
        code.add(&event("second", 2));
        let mut named = |state: u64| {
            let index = code.frame(Pid(7), 0x7000, state);
            code.frames[index.0 as usize].0.name.clone()
        };
        assert_eq!(named(1 << 32), "first");
        assert_eq!(named(2 << 32), "second");
        assert_eq!(named(3 << 32), UNKNOWN);
        code.forget(Pid(7));
        assert_eq!((code.objects.len(), code.bytes), (0, 0));
    }

    #[test]
    fn forgotten_code_takes_no_memory() {
        let mut code = PythonCode::default();
        let wide = CodeEvent {
            qualname_kind: 4,
            ..event("wide", 2)
        };
        for event in [event("", 1), wide, event("again", 3), event("again and again", 3)] {
            code.add(&event);
        }
        code.forget(Pid(7));
        assert_eq!((code.objects.len(), code.bytes), (0, 0));
    }

    #[test]
    fn texts_of_all_widths_are_decoded() {
        assert_eq!(text(b"abc", 1), "abc");
        assert_eq!(text(&[0xe9], 1), "\u{e9}");
        assert_eq!(text(&[0x3b, 0x03, 0x41, 0], 2), "\u{33b}A");
        assert_eq!(text(&[0x00, 0xf6, 0x01, 0], 4), "\u{1f600}");
        // Not a character, and half of one.
        assert_eq!(text(&[0xff, 0xff, 0xff, 0xff], 4), "\u{fffd}");
        assert_eq!(text(&[1, 2, 3], 4), "");
    }
}
