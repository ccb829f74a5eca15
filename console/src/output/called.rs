//! The call of a frame.

use super::Text;
use backtrail_debugger::virtual_call::VirtualCall;
use serde::Serialize;

/// The call of a frame, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CalledView {
    /// Before the instruction that called it.
    pub position: Option<String>,
    /// That was a jump, at the end of its function: a tail call.
    pub jumped: bool,
    /// Its return address; `None`: unknown, or that of the function that jumped to it.
    pub returns_to: Option<u64>,
    /// The symbol at that address: `main+4`.
    pub returns_into: Option<String>,
    /// The virtual function, if the call was through a vtable.
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
                [class] => format!("the vtable of {class}"),
                classes => format!(
                    "the vtables of {}; the trace does not show which",
                    classes.join(", ")
                ),
            };
            to.line(format!("    virtual call of entry {slot} in {of}"));
        }
    }
}
