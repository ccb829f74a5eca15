//! A frame of a stack by its address.

use serde::{Deserialize, Serialize};

/// A frame by its address: an offset within the file of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressFrame {
    /// The path or name of the module.
    pub module: String,
    /// The module's build id, in lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The file offset of the instruction. Of callers: of the call's last byte.
    pub offset: u64,
}
