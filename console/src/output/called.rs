//! How a frame was called.

use super::Text;
use backtrail_debugger::virtual_call::VirtualCall;
use serde::Serialize;

/// How a frame was called, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CalledView {
    /// Before the instruction that called it.
    pub position: Option<String>,
    /// That was a jump, at the end of its function: a tail call.
    pub jumped: bool,
    /// Its return address; `None`: unknown, or that of the function that jumped to it.
    pub returns_to: Option<u64>,
    /// What is there: `main+4`.
    pub returns_into: Option<String>,
    /// It was called through a table of virtual functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_call: Option<VirtualCall>,
}

impl CalledView {
    pub(super) fn render(&self, to: &mut Text) {
        if let Some(position) = &self.position {
            let how = if self.jumped { "jumped to" } else { "called" };
            to.line(format!("    {how} at {position}"));
        }
        if let Some(returns_to) = self.returns_to {
            let into = self.returns_into.as_ref();
            let into = into.map(|name| format!(" <{name}>")).unwrap_or_default();
            to.line(format!("    returns to {returns_to:#x}{into}"));
        }
        if let Some(VirtualCall { slot, classes }) = &self.virtual_call {
            let of = match classes.as_slice() {
                [class] => format!("the table of {class}"),
                classes => format!(
                    "the tables of {}; of which one the object is, the trace does not tell",
                    classes.join(", ")
                ),
            };
            to.line(format!("    a virtual call, of function {slot} in {of}"));
        }
    }
}
