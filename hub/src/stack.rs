//! Frames of a stack, with and without symbols.

use serde::{Deserialize, Serialize};

/// A frame of a stack. An inlined call is a frame of its own.
///
/// A frame without symbols has a module and an offset only. Nothing is guessed: an unknown
/// function is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The demangled name of the function, with its arguments and template arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The source file, as the debug information names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether the call was inlined into the next frame.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inlined: bool,
    /// The path of the module on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The module's build id, in lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The file offset within the module. `None`: the code belongs to no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}
