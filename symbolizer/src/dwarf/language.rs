//! The source language of a unit.

use super::entry::Entry;
use super::source_language::is_cpp_language;
use crate::types::Language;
use gimli::AttributeValue;

/// Returns the source language of an entry's unit.
pub(super) fn language(entry: &Entry<'_, '_>) -> Language {
    let stated = match entry.root().and_then(|root| root.value(gimli::DW_AT_language)) {
        Some(AttributeValue::Language(language)) => language,
        _ => return Language::C,
    };
    match stated {
        gimli::DW_LANG_Rust => Language::Rust,
        gimli::DW_LANG_Go => Language::Go,
        stated if is_cpp_language(AttributeValue::Language(stated)) => Language::Cpp,
        _ => Language::C,
    }
}
