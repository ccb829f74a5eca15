//! Writes the names of types as the source does, without reading their members.

use super::entry::Entry;
use super::info::DebugInfo;
use super::language::language;
use super::types::count;
use crate::entry_id::EntryId;
use crate::types::{Count, Language};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Types of types are written this deep.
const MAX_DEPTH: usize = 16;
/// The most bytes of a name. Later ones are left out.
const MAX_NAME: usize = 1 << 10;
/// The most parameters of a function type that are written.
const MAX_PARAMETERS: usize = 16;

/// Writes each type once.
pub(super) struct TypeNames<'i, 'd> {
    info: &'i DebugInfo<'d>,
    known: FxHashMap<EntryId, Arc<str>>,
}

impl<'i, 'd> TypeNames<'i, 'd> {
    pub fn new(info: &'i DebugInfo<'d>) -> Self {
        Self {
            info,
            known: FxHashMap::default(),
        }
    }

    /// Returns the name of a type. `None` is `void`.
    pub fn name(&mut self, ty: Option<EntryId>) -> Arc<str> {
        let Some(id) = ty else { return "void".into() };
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let mut text = self.declared(Some(id), String::new(), 0);
        if text.len() > MAX_NAME {
            let end = (0..=MAX_NAME).rev().find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        let name: Arc<str> = text.replace(char::is_control, "\u{fffd}").into();
        self.known.insert(id, name.clone());
        name
    }

    /// Returns the name of the type that a pointer points to. A qualifier of the pointer does not
    /// count.
    pub fn pointed_to(&mut self, pointer: EntryId) -> Option<Arc<str>> {
        let mut id = pointer;
        for _ in 0..MAX_DEPTH {
            let entry = self.info.entry(id)?;
            let target = entry.reference(gimli::DW_AT_type);
            match entry.tag() {
                gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => id = target?,
                gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type => {
                    return Some(self.name(target));
                }
                _ => break,
            }
        }
        Some(self.name(Some(pointer)))
    }

    /// Returns the declaration of `inner`, something of this type.
    fn declared(&mut self, ty: Option<EntryId>, inner: String, depth: usize) -> String {
        let Some(id) = ty else {
            return spaced("void", &inner);
        };
        if depth > MAX_DEPTH || inner.len() > MAX_NAME {
            return spaced("…", &inner);
        }
        let Some(entry) = self.info.entry(id) else {
            return spaced("<unknown type>", &inner);
        };
        let target = entry.reference(gimli::DW_AT_type);
        // Rust and Go name every type.
        if entry.text(gimli::DW_AT_name).is_some() {
            return spaced(&self.named(&entry), &inner);
        }
        match entry.tag() {
            gimli::DW_TAG_pointer_type => self.derived("*", target, &inner, depth),
            gimli::DW_TAG_reference_type => self.derived("&", target, &inner, depth),
            gimli::DW_TAG_rvalue_reference_type => self.derived("&&", target, &inner, depth),
            gimli::DW_TAG_const_type => self.qualified("const", target, inner, depth),
            gimli::DW_TAG_volatile_type => self.qualified("volatile", target, inner, depth),
            gimli::DW_TAG_restrict_type => self.qualified("restrict", target, inner, depth),
            gimli::DW_TAG_atomic_type => self.qualified("_Atomic", target, inner, depth),
            gimli::DW_TAG_array_type => self.array(&entry, target, &inner, depth),
            gimli::DW_TAG_subroutine_type => {
                let parameters = self.parameters(&entry, depth);
                self.declared(target, format!("{inner}({parameters})"), depth + 1)
            }
            gimli::DW_TAG_ptr_to_member_type => {
                let class = self.declared(
                    entry.reference(gimli::DW_AT_containing_type),
                    String::new(),
                    depth + 1,
                );
                self.derived(&format!("{class}::*"), target, &inner, depth)
            }
            tag => spaced(&format!("{}{{...}}", keyword(tag)), &inner),
        }
    }

    /// Declares a pointer or reference. Those to arrays and functions take parentheses.
    fn derived(&mut self, sign: &str, target: Option<EntryId>, inner: &str, depth: usize) -> String {
        let is_word = sign.ends_with(char::is_alphanumeric) && !inner.is_empty();
        let inner = format!("{sign}{}{inner}", if is_word { " " } else { "" });
        let inner = if self.is_postfix(target) {
            format!("({inner})")
        } else {
            inner
        };
        self.declared(target, inner, depth + 1)
    }

    /// Adds a qualifier: after the star of a pointer, and before other names.
    fn qualified(&mut self, word: &str, target: Option<EntryId>, inner: String, depth: usize) -> String {
        let below = target.and_then(|target| self.info.entry(target));
        let pointer = below.filter(|below| {
            below.tag() == gimli::DW_TAG_pointer_type && below.text(gimli::DW_AT_name).is_none()
        });
        match pointer {
            Some(pointer) => {
                let target = pointer.reference(gimli::DW_AT_type);
                self.derived(&format!("* {word}"), target, &inner, depth)
            }
            None => format!("{word} {}", self.declared(target, inner, depth + 1)),
        }
    }

    fn array(
        &mut self,
        entry: &Entry<'i, 'd>,
        element: Option<EntryId>,
        inner: &str,
        depth: usize,
    ) -> String {
        let children = entry.children(&self.info.budget);
        let ranges = children
            .iter()
            .filter(|child| child.tag() == gimli::DW_TAG_subrange_type);
        let counts: Vec<Count> = ranges.map(count).collect();
        if language(entry) == Language::Rust {
            let mut text = self.declared(element, String::new(), depth + 1);
            for count in counts.iter().rev() {
                text = match count {
                    Count::Known(count) => format!("[{text}; {count}]"),
                    _ => format!("[{text}]"),
                };
            }
            return spaced(&text, inner);
        }
        let written: String = counts
            .iter()
            .take(MAX_DEPTH)
            .map(|count| match count {
                Count::Known(count) => format!("[{count}]"),
                _ => "[]".to_owned(),
            })
            .collect();
        self.declared(element, format!("{inner}{written}"), depth + 1)
    }

    fn parameters(&mut self, function: &Entry<'i, 'd>, depth: usize) -> String {
        let mut names = Vec::new();
        for child in function
            .children(&self.info.budget)
            .into_iter()
            .take(MAX_PARAMETERS)
        {
            match child.tag() {
                gimli::DW_TAG_formal_parameter => {
                    let ty = child.reference(gimli::DW_AT_type);
                    names.push(self.declared(ty, String::new(), depth + 1));
                }
                gimli::DW_TAG_unspecified_parameters => names.push("...".to_owned()),
                _ => {}
            }
            if names.iter().map(String::len).sum::<usize>() > MAX_NAME {
                break;
            }
        }
        names.join(", ")
    }

    /// Returns the qualified name of a type, with the keyword of C. Many types could share one long
    /// name.
    fn named(&self, entry: &Entry<'i, 'd>) -> String {
        // C and Go have no scopes of types. A qualified name needs an index of the unit.
        let language = language(entry);
        let name = match language {
            Language::C | Language::Go => entry.name(),
            _ if entry.tag() == gimli::DW_TAG_base_type => entry.name(),
            _ => entry.full_name(),
        };
        let name = name.unwrap_or_default();
        if self.info.budget.spend(name.len()).is_none() {
            return "…".to_owned();
        }
        let keyword = match language {
            Language::C => keyword(entry.tag()),
            _ => "",
        };
        format!("{keyword}{name}")
    }

    fn is_postfix(&self, ty: Option<EntryId>) -> bool {
        let entry = ty.and_then(|ty| self.info.entry(ty));
        entry.is_some_and(|entry| {
            let tag = entry.tag();
            tag == gimli::DW_TAG_subroutine_type || tag == gimli::DW_TAG_array_type
        })
    }
}

/// Returns the keyword of a declaration, and a space.
fn keyword(tag: gimli::DwTag) -> &'static str {
    match tag {
        gimli::DW_TAG_structure_type => "struct ",
        gimli::DW_TAG_class_type => "class ",
        gimli::DW_TAG_union_type => "union ",
        gimli::DW_TAG_enumeration_type => "enum ",
        _ => "",
    }
}

fn spaced(base: &str, inner: &str) -> String {
    match inner {
        "" => base.to_owned(),
        inner => format!("{base} {inner}"),
    }
}
