//! The name of a frame: its function, else its file and line, else its module.

use crate::grouping::normalize;
use crate::stack::Frame;

/// The name of code that belongs to no file.
const UNKNOWN_CODE: &str = "unknown code";
/// The digits of a build id in the name of an address.
const BUILD_ID_DIGITS: usize = 8;

/// The name of a frame, as precise as its symbols are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameName {
    /// The normalized name of the function.
    Function(String),
    /// The file and the line.
    Line(String),
    /// The file name of the module.
    Module(String),
}

impl FrameName {
    /// Returns the name of a frame.
    pub fn of(frame: &Frame) -> Self {
        let present = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        if let Some(function) = present(&frame.function) {
            return Self::Function(normalize(&function));
        }
        if let Some(file) = present(&frame.file) {
            let line = frame.line.map_or(String::new(), |line| format!("#{line}"));
            return Self::Line(format!("{}{line}", file_name(&file)));
        }
        let module = present(&frame.module);
        Self::Module(module.map_or_else(|| UNKNOWN_CODE.to_owned(), |path| file_name(&path).to_owned()))
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        match self {
            Self::Function(text) | Self::Line(text) | Self::Module(text) => text,
        }
    }

    /// Returns the name of the function.
    pub fn function(&self) -> Option<&str> {
        match self {
            Self::Function(name) => Some(name),
            Self::Line(_) | Self::Module(_) => None,
        }
    }
}

/// Returns the address of a frame as `MODULE@BUILD+0xOFFSET`.
pub fn address(frame: &Frame) -> String {
    let module = frame.module.as_deref().map_or(UNKNOWN_CODE, file_name);
    let build = frame.build_id.as_deref().map_or(String::new(), |id| {
        format!("@{}", id.chars().take(BUILD_ID_DIGITS).collect::<String>())
    });
    let offset = frame
        .offset
        .map_or(String::new(), |offset| format!("+{offset:#x}"));
    format!("{module}{build}{offset}")
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\'])
        .find(|part| !part.is_empty())
        .unwrap_or(path)
}
