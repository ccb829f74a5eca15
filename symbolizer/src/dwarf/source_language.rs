//! The values of `DW_AT_language`.

use super::sections::Slice;
use gimli::AttributeValue;

/// Returns whether the value of `DW_AT_language` is C++.
pub(super) fn is_cpp_language(value: AttributeValue<Slice<'_>>) -> bool {
    matches!(
        value,
        AttributeValue::Language(
            gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20
        )
    )
}
