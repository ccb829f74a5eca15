//! Stack traces of a chunk as stacks of a profile.

use super::cursor::Cursor;
use super::metadata::Type;
use super::names::class_name;
use super::sample_kinds::ConstantKey;
use super::values::Values;
use crate::Result;
use crate::frame::{Frame, FrameId, Function, FunctionId};
use crate::profile::Profile;
use crate::stacks::StackId;
use std::collections::HashMap;

/// The most frames of a stack. The JVM and async-profiler write 2048 unless an option says more.
const MAX_FRAMES: usize = 1 << 14;
/// The name of a method whose constant is missing.
const UNKNOWN: &str = "[unknown method]";

/// The code that a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FrameKind {
    /// A method of Java, which the JVM interprets, compiles or inlines.
    Java,
    /// A function of C or C++.
    Native,
    /// A function of the kernel.
    Kernel,
}

/// The stack traces of a chunk that were read.
#[derive(Default)]
pub(super) struct ChunkStacks {
    stacks: HashMap<ConstantKey, StackId>,
    functions: HashMap<(ConstantKey, FrameKind), FunctionId>,
    classes: HashMap<ConstantKey, String>,
    kinds: HashMap<ConstantKey, FrameKind>,
    /// The number of stack traces that are missing or damaged.
    pub missing: u64,
}

/// A frame of a stack trace.
#[derive(Clone, Copy, Default)]
struct FrameFields {
    method: Option<ConstantKey>,
    kind: Option<ConstantKey>,
    line: u32,
}

/// A method with the parts of its name.
#[derive(Default)]
struct MethodFields {
    class: Option<ConstantKey>,
    name: Option<String>,
    descriptor: Option<String>,
}

impl ChunkStacks {
    /// Returns the stack of a stack trace. One that is missing is [`Frame::Lost`].
    pub(super) fn stack(
        &mut self,
        values: &Values<'_>,
        profile: &mut Profile,
        key: Option<ConstantKey>,
        is_async: bool,
    ) -> Result<StackId> {
        // The key 0 is a sample without a stack.
        let Some(key) = key.filter(|(_, key)| *key != 0) else {
            return Ok(StackId::EMPTY);
        };
        if let Some(stack) = self.stacks.get(&key) {
            return Ok(*stack);
        }
        let mut frames = Vec::new();
        let is_whole = self.frames(values, profile, key, is_async, &mut frames)?;
        let mut stack = StackId::EMPTY;
        if is_whole != Some(true) {
            let lost = profile.frames.intern(Frame::Lost)?;
            stack = profile.stacks.push(stack, lost)?;
        }
        self.missing += u64::from(is_whole.is_none());
        for frame in frames.into_iter().rev() {
            stack = profile.stacks.push(stack, frame)?;
        }
        self.stacks.insert(key, stack);
        Ok(stack)
    }

    /// Reads the frames of a stack trace, the innermost first. Returns whether they are all, or
    /// `None` if the trace is missing or damaged.
    fn frames(
        &mut self,
        values: &Values<'_>,
        profile: &mut Profile,
        (kind, key): ConstantKey,
        is_async: bool,
        frames: &mut Vec<FrameId>,
    ) -> Result<Option<bool>> {
        let mut is_truncated = false;
        let mut elements = None;
        let read = values.each_field_of_constant(kind, key, &mut |field, at| match &*field.name {
            "truncated" => is_truncated = values.number(field, at).is_some_and(|number| number != 0),
            "frames" => elements = values.elements(field, at),
            _ => {}
        });
        let Some((frame_type, count, mut cursor)) = read.and(elements) else {
            return Ok(None);
        };
        for _ in 0..count.min(MAX_FRAMES) {
            let Some(fields) = frame_fields(values, frame_type, &mut cursor) else {
                return Ok(None);
            };
            let kind = fields
                .kind
                .map_or(FrameKind::Java, |key| self.kind(values, key, is_async));
            let function = self.function(values, profile, fields.method, kind)?;
            let line = fields.line;
            frames.push(profile.frames.intern(Frame::Function { function, line })?);
        }
        Ok(Some(!is_truncated && count <= MAX_FRAMES))
    }

    /// Returns the kind of a frame. The JVM calls methods of Java without code *Native*, and
    /// async-profiler calls functions of C so.
    fn kind(&mut self, values: &Values<'_>, key: ConstantKey, is_async: bool) -> FrameKind {
        *self
            .kinds
            .entry(key)
            .or_insert_with(|| match values.text_of_constant(key).as_deref() {
                Some("Kernel") => FrameKind::Kernel,
                Some("C++") => FrameKind::Native,
                Some("Native") if is_async => FrameKind::Native,
                _ => FrameKind::Java,
            })
    }

    fn function(
        &mut self,
        values: &Values<'_>,
        profile: &mut Profile,
        method: Option<ConstantKey>,
        kind: FrameKind,
    ) -> Result<FunctionId> {
        let Some(method) = method else {
            return profile.function(UNKNOWN);
        };
        if let Some(function) = self.functions.get(&(method, kind)) {
            return Ok(*function);
        }
        let function = match self.names(values, method, kind) {
            None => profile.function(UNKNOWN)?,
            Some((name, linkage_name)) => {
                let (name, linkage_name) = (profile.string(&name)?, profile.string(&linkage_name)?);
                profile.functions.intern(Function {
                    name,
                    linkage_name,
                    file: None,
                    start_line: 0,
                })?
            }
        };
        self.functions.insert((method, kind), function);
        Ok(function)
    }

    /// Returns the name of a method, and its name in the JVM with its descriptor.
    fn names(
        &mut self,
        values: &Values<'_>,
        (method_type, key): ConstantKey,
        kind: FrameKind,
    ) -> Option<(String, String)> {
        let mut method = MethodFields::default();
        values.each_field_of_constant(method_type, key, &mut |field, at| match &*field.name {
            "type" => {
                let key = values.number(field, at);
                method.class = field.kind.filter(|_| field.is_constant).zip(key);
            }
            "name" => method.name = values.text(field, at),
            "descriptor" => method.descriptor = values.text(field, at),
            _ => {}
        })?;
        let name = method.name?;
        match kind {
            FrameKind::Native => return Some((name.clone(), name)),
            // Flame graphs mark functions of the kernel so.
            FrameKind::Kernel => return Some((format!("{name}_[k]"), name)),
            FrameKind::Java => {}
        }
        let class = match method.class {
            Some(key) => self.class(values, key),
            None => "",
        };
        let descriptor = method.descriptor.unwrap_or_default();
        values.charge(2 * (class.len() + name.len()) + descriptor.len())?;
        Some(match (class.is_empty(), name.is_empty()) {
            (true, _) => (name.clone(), name + &descriptor),
            (false, true) => (class_name(class), class.to_owned()),
            (false, false) => (
                format!("{}.{name}", class_name(class)),
                format!("{class}.{name}{descriptor}"),
            ),
        })
    }

    /// Returns the name of a class in the JVM. Empty: unknown.
    pub(super) fn class(&mut self, values: &Values<'_>, key: ConstantKey) -> &str {
        let name = || values.text_of_constant(key).unwrap_or_default();
        self.classes.entry(key).or_insert_with(name)
    }
}

fn frame_fields<'a>(values: &Values<'a>, frame: &Type, cursor: &mut Cursor<'a>) -> Option<FrameFields> {
    let mut fields = FrameFields::default();
    values.each_field(cursor, frame, &mut |_, field, at| {
        let number = || values.number(field, at);
        let constant = || field.kind.filter(|_| field.is_constant).zip(number());
        match &*field.name {
            "method" => fields.method = constant(),
            "type" => fields.kind = constant(),
            "lineNumber" => {
                fields.line = number().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            }
            _ => {}
        }
    })?;
    Some(fields)
}
