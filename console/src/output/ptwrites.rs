//! The values that the program wrote into its trace by PTWRITE.

use super::{Paint, Text};
use backtrail_debugger::time::Time;
use serde::Serialize;

/// A value that `PTWRITE` put into the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PtwriteView {
    /// The position after the instruction that wrote it.
    pub position: String,
    /// When, if known.
    pub time: Option<Time>,
    /// The value.
    pub value: u64,
    /// The function, the innermost inlined one, that wrote it.
    pub function: Option<String>,
}

pub(super) fn render(writes: &[PtwriteView], older: usize, to: &mut Text) {
    if writes.is_empty() {
        to.line("The program executed no PTWRITE in this thread before this position.");
    }
    if older > 0 {
        to.line(to.paint(
            Paint::Faint,
            format!("    <{older} older ones: `info ptwrites N` shows N>"),
        ));
    }
    for write in writes {
        let mut aside = write.position.clone();
        if let Some(time) = &write.time {
            aside.push_str(&format!(", {time}"));
        }
        let function = write.function.as_deref().unwrap_or("??");
        to.line(format!(
            "{:#018x}  {}  {}",
            write.value,
            to.paint(Paint::Function, function),
            to.paint(Paint::Faint, format!("[{aside}]"))
        ));
    }
}
