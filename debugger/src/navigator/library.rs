//! The code that views fold or gray: that of libraries, and that which a rule of `skip` names.

use super::Navigator;
use crate::calls::CallView;
use crate::own_code::CodeOrigin;

/// The library of code that a rule of `skip` names.
const SKIPPED: &str = "skipped code";

impl Navigator {
    /// Returns the library of code; `None`: it is the user's own. Code that a rule of `skip` names
    /// counts as a library.
    #[must_use]
    pub fn library_of(&self, code: &CodeOrigin<'_>) -> Option<String> {
        let skipped = || self.skips.names(code).then(|| SKIPPED.to_owned());
        code.library().or_else(skipped)
    }

    /// Marks a call whose code a rule of `skip` names.
    pub fn mark_skipped(&self, call: &mut CallView) {
        if call.library.is_none() {
            let code = CodeOrigin {
                function: Some(&call.function),
                file: call.file.as_deref(),
                module: None,
            };
            call.library = self.library_of(&code);
        }
    }
}
