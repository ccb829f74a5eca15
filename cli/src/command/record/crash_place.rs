//! The place of a crash, for the summary of a recording.

use backtrail_debugger::source::short;
use backtrail_debugger::stack::StackFrame;
use backtrail_debugger::{Navigator, OpenOptions, Session};
use backtrail_decoder::Watch;
use std::path::Path;

/// The innermost frames among which a line is searched.
const FRAMES: usize = 64;

/// Returns the function, file and line in which the program of a bundle ended. `None`: no function
/// is known.
///
/// The innermost frame of own code that has a line comes first, then the innermost of any code.
pub(super) fn read(bundle: &Path) -> Option<String> {
    let watch = Watch::none();
    let options = OpenOptions {
        first: Some(OpenOptions::FIRST),
        ..OpenOptions::default()
    };
    let navigator = Navigator::new(Session::open(bundle, &options, &watch).ok()?).ok()?;
    let stack = navigator.known_stack(FRAMES, &watch).ok()?;
    let with_line = |frame: &&StackFrame| frame.line.is_some() && frame.file.is_some();
    let frames = &stack.frames;
    let own = frames
        .iter()
        .find(|frame| frame.library.is_none() && with_line(frame));
    let frame = own.or(frames.iter().find(with_line)).or(frames.first())?;
    let function = frame.function.as_deref()?;
    Some(match frame.file.as_deref().zip(frame.line) {
        Some((file, line)) => format!("{function} at {}:{line}", short(file)),
        None => function.to_owned(),
    })
}
