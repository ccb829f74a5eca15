//! The frame of a location, if several inlined functions begin at one instruction.

use crate::source::short;
use backtrail_pt::Avma;
use backtrail_symbolizer::{Frame, is_named};

/// The frame that a location asks for.
///
/// A call of an inlined function and the function itself can begin at the same instruction. GDB
/// then shows the frame of the breakpoint's location, and so do we.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AskedFrame {
    /// The innermost frame.
    #[default]
    Innermost,
    /// The frame of a function, by its name or the end of it.
    Function(String),
    /// The frame that executes a line.
    Line {
        /// The file, by any end of its path.
        file: String,
        /// The line, from 1.
        line: u32,
    },
}

impl AskedFrame {
    /// Returns the number of the frame among those at one instruction, the innermost first. It is
    /// 0 if none of them is asked for.
    #[must_use]
    pub fn number(&self, frames: &[Frame<Avma>]) -> usize {
        let is_asked = |frame: &Frame<Avma>| match self {
            Self::Innermost => true,
            Self::Function(name) => is_named(&frame.function, name) || *frame.linkage_name == **name,
            Self::Line { file, line } => {
                let location = frame.location.as_ref();
                location.is_some_and(|at| at.line == *line && short(&at.file) == short(file))
            }
        };
        frames.iter().position(is_asked).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_symbolizer::SourceLocation;

    fn frame(function: &str, line: u32, inlined: bool) -> Frame<Avma> {
        Frame {
            function: function.into(),
            linkage_name: function.into(),
            location: Some(SourceLocation {
                file: "/src/shop.c".into(),
                line,
                column: 1,
            }),
            declared: None,
            range: Avma(1)..Avma(2),
            entry: Avma(1),
            inlined,
        }
    }

    #[test]
    fn frame_of_the_location_is_found_among_inlined_ones() {
        let frames = [
            frame("note", 4, true),
            frame("ns::price", 9, true),
            frame("main", 30, false),
        ];
        let line = |line| AskedFrame::Line {
            file: "shop.c".to_owned(),
            line,
        };
        assert_eq!(AskedFrame::Innermost.number(&frames), 0);
        assert_eq!(AskedFrame::Function("price".to_owned()).number(&frames), 1);
        assert_eq!(AskedFrame::Function("ns::price".to_owned()).number(&frames), 1);
        assert_eq!(AskedFrame::Function("absent".to_owned()).number(&frames), 0);
        assert_eq!(line(30).number(&frames), 2);
        assert_eq!(line(5).number(&frames), 0);
        let other = AskedFrame::Line {
            file: "other.c".to_owned(),
            line: 30,
        };
        assert_eq!(other.number(&frames), 0);
        assert_eq!(line(30).number(&[]), 0);
    }
}
