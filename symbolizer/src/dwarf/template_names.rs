//! The names of templates' instances, where the compiler states the arguments in entries alone
//! (clang's `-gsimple-template-names`).

use super::budget::Budget;
use super::entry::{Entry, MAX_ORIGINS, budget};
use super::index::{IndexedName, ScopedName, UnitIndex, is_template_parameter};
use super::info::{DebugInfo, LazyUnit};
use super::language::language;
use super::stated_name::stated;
use super::types::{constant, is_signed_encoding, sign_extended};
use crate::entry_id::EntryId;
use crate::types::Language;
use std::borrow::Cow;
use std::sync::Arc;

/// The most scopes and the most bytes of a qualified name.
const MAX_SCOPES: usize = 64;
const MAX_QUALIFIED: usize = 16 << 10;
/// Arguments of arguments are read this deep.
const MAX_DEPTH: u32 = 32;

impl<'d> DebugInfo<'d> {
    /// Returns the qualified name of an entry of a unit.
    pub(super) fn full_name(&self, unit: &LazyUnit<'d>, named: &IndexedName<'d>) -> String {
        self.name_at_depth(unit, named, 0)
    }

    fn name_at_depth(&self, unit: &LazyUnit<'d>, named: &IndexedName<'d>, depth: u32) -> String {
        let index = self.index_of(unit);
        let mut parts = vec![self.instance(unit, index, named.name, depth)];
        let (mut scope, mut length) = (named.scope, 0);
        while let Some(here) = scope.and_then(|number| index.scope(number)) {
            length += here.name.text.len();
            if parts.len() > MAX_SCOPES || length > MAX_QUALIFIED {
                break;
            }
            if !here.transparent {
                parts.push(self.instance(unit, index, here.name, depth));
            }
            scope = here.parent;
        }
        parts.reverse();
        parts.join("::")
    }

    /// Returns one component of a name. If its arguments cannot be written, it has none.
    fn instance<'n>(
        &self,
        unit: &LazyUnit<'d>,
        index: &UnitIndex<'d>,
        name: ScopedName<'n>,
        depth: u32,
    ) -> Cow<'n, str> {
        let Some(offset) = name.template.filter(|_| depth < MAX_DEPTH) else {
            return stated(name.text);
        };
        let plain = stated(name.text);
        let known = || index.instances.lock().ok()?.get(&offset).cloned();
        if let Some(known) = known() {
            return Cow::Owned(known.to_string());
        }
        let written = || {
            let id = EntryId {
                offset: unit.extent.start.checked_add(offset)?,
                supplementary: false,
            };
            let arguments = self.arguments_of(&self.entry(id)?, depth + 1)?;
            self.budget.spend(arguments.len())?;
            Some(format!("{plain}{arguments}"))
        };
        let text = written().unwrap_or_else(|| plain.to_string());
        // Another thread may have written the same.
        if let Ok(mut instances) = index.instances.lock() {
            instances.insert(offset, Arc::from(text.as_str()));
        }
        Cow::Owned(text)
    }

    /// Returns the name of a member function, with the arguments of its template.
    pub(super) fn name_of_instance(&self, entry: &Entry<'_, 'd>) -> Option<Arc<str>> {
        let name = entry.name()?;
        let is_instance = || {
            let mut children = entry.children(&budget()).into_iter();
            children.any(|child| is_template_parameter(child.tag()))
        };
        if name.contains('<') || language(entry) != Language::Cpp || !is_instance() {
            return Some(name);
        }
        Some(match self.arguments_of(entry, 0) {
            Some(arguments) => format!("{name}{arguments}").into(),
            None => name,
        })
    }

    /// Returns the arguments of a template: `<int, 3>`.
    fn arguments_of(&self, entry: &Entry<'_, 'd>, depth: u32) -> Option<String> {
        let mut arguments = Vec::new();
        self.read_arguments(entry, depth, &budget(), &mut arguments)?;
        let text = arguments.join(", ");
        if text.len() > MAX_QUALIFIED {
            return None;
        }
        let space = if text.ends_with('>') { " " } else { "" };
        Some(format!("<{text}{space}>"))
    }

    fn read_arguments(
        &self,
        entry: &Entry<'_, 'd>,
        depth: u32,
        budget: &Budget,
        arguments: &mut Vec<String>,
    ) -> Option<()> {
        let children = entry.children(budget).into_iter();
        for child in children.filter(|child| is_template_parameter(child.tag())) {
            arguments.push(match child.tag() {
                gimli::DW_TAG_template_type_parameter => {
                    self.type_text(child.reference(gimli::DW_AT_type), String::new(), depth)?
                }
                gimli::DW_TAG_template_value_parameter => self.value_text(&child, depth)?,
                gimli::DW_TAG_GNU_template_template_param => {
                    String::from_utf8_lossy(child.text(gimli::DW_AT_GNU_template_name)?).into_owned()
                }
                _ => {
                    if depth >= MAX_DEPTH {
                        return None;
                    }
                    self.read_arguments(&child, depth + 1, budget, arguments)?;
                    continue;
                }
            });
        }
        Some(())
    }

    /// Returns a declaration of `inner` with a type, as clang writes types in names.
    fn type_text(&self, id: Option<EntryId>, inner: String, depth: u32) -> Option<String> {
        if depth >= MAX_DEPTH || inner.len() > MAX_QUALIFIED {
            return None;
        }
        let Some(id) = id else {
            return Some(spaced("void", &inner));
        };
        let entry = self.entry(id)?;
        let target = entry.reference(gimli::DW_AT_type);
        let deeper = depth + 1;
        let derived = |sign: &str| {
            let inner = format!("{sign}{inner}");
            let inner = match self.is_postfix(target) {
                true => format!("({inner})"),
                false => inner,
            };
            self.type_text(target, inner, deeper)
        };
        match entry.tag() {
            gimli::DW_TAG_pointer_type => derived("*"),
            gimli::DW_TAG_reference_type => derived("&"),
            gimli::DW_TAG_rvalue_reference_type => derived("&&"),
            gimli::DW_TAG_ptr_to_member_type => {
                let class = entry.reference(gimli::DW_AT_containing_type);
                let class = self.type_text(class, String::new(), deeper)?;
                derived(&format!("{class}::*"))
            }
            gimli::DW_TAG_const_type => self.qualified_text("const", target, inner, deeper),
            gimli::DW_TAG_volatile_type => self.qualified_text("volatile", target, inner, deeper),
            gimli::DW_TAG_array_type => {
                let bounds = self.bounds_text(&entry)?;
                self.type_text(target, format!("{inner}{bounds}"), deeper)
            }
            gimli::DW_TAG_subroutine_type => {
                let children = entry.children(&budget()).into_iter();
                let parameters: Option<Vec<String>> = children
                    .map(|child| match child.tag() {
                        gimli::DW_TAG_unspecified_parameters => Some("...".to_owned()),
                        _ => self.type_text(child.reference(gimli::DW_AT_type), String::new(), deeper),
                    })
                    .collect();
                let inner = format!("{inner}({})", parameters?.join(", "));
                let result = self.type_text(target, String::new(), deeper)?;
                Some(format!("{result} {inner}"))
            }
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_typedef => {
                let named = self.index_of(entry.unit).named_at(entry.unit_offset())?;
                let name = self.name_at_depth(entry.unit, named, deeper);
                Some(spaced(&name, &inner))
            }
            gimli::DW_TAG_base_type | gimli::DW_TAG_unspecified_type => {
                let name = String::from_utf8_lossy(entry.text(gimli::DW_AT_name)?);
                let name = match &*name {
                    "decltype(nullptr)" => "std::nullptr_t",
                    other => other,
                };
                Some(spaced(name, &inner))
            }
            _ => None,
        }
    }

    /// Returns a declaration with a qualifier: before a name, and after the star of a pointer.
    fn qualified_text(
        &self,
        word: &str,
        target: Option<EntryId>,
        inner: String,
        depth: u32,
    ) -> Option<String> {
        let tag = target.and_then(|id| self.entry(id)).map(|entry| entry.tag());
        match tag {
            Some(gimli::DW_TAG_pointer_type | gimli::DW_TAG_ptr_to_member_type) => {
                self.type_text(target, spaced(word, &inner), depth)
            }
            _ => Some(format!("{word} {}", self.type_text(target, inner, depth)?)),
        }
    }

    fn bounds_text(&self, array: &Entry<'_, 'd>) -> Option<String> {
        let mut bounds = String::new();
        for child in array.children(&budget()) {
            let count = match child.value(gimli::DW_AT_count) {
                Some(_) => Some(child.number(gimli::DW_AT_count)?),
                None => match child.number(gimli::DW_AT_upper_bound) {
                    Some(bound) => Some(bound.checked_add(1)?),
                    None => None,
                },
            };
            bounds.push_str(&count.map_or("[]".to_owned(), |count| format!("[{count}]")));
        }
        Some(bounds)
    }

    fn is_postfix(&self, target: Option<EntryId>) -> bool {
        let tag = target.and_then(|id| self.entry(id)).map(|entry| entry.tag());
        matches!(
            tag,
            Some(gimli::DW_TAG_array_type | gimli::DW_TAG_subroutine_type)
        )
    }

    /// Returns the value of an argument, with the signs of its type: `3`, `5U`, `'x'`,
    /// `(Color)1`.
    fn value_text(&self, argument: &Entry<'_, 'd>, depth: u32) -> Option<String> {
        let value = constant(argument)?;
        let stated = argument.reference(gimli::DW_AT_type);
        let mut next = stated.and_then(|id| self.entry(id));
        for _ in 0..MAX_ORIGINS {
            let entry = next?;
            let size = entry.number(gimli::DW_AT_byte_size);
            match entry.tag() {
                gimli::DW_TAG_enumeration_type => {
                    let name = self.type_text(stated, String::new(), depth + 1)?;
                    return Some(format!("({name}){value}"));
                }
                gimli::DW_TAG_base_type => {
                    let name = String::from_utf8_lossy(entry.text(gimli::DW_AT_name)?);
                    let bits = size?.checked_mul(8)?;
                    let value = sign_extended(value, bits, is_signed_encoding(&entry));
                    return number_text(&name, value);
                }
                gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                    next = entry.reference(gimli::DW_AT_type).and_then(|id| self.entry(id));
                }
                _ => return None,
            }
        }
        None
    }
}

/// Writes a number of a base type as an argument.
fn number_text(ty: &str, value: i128) -> Option<String> {
    let suffix = match ty {
        "bool" => return Some((value != 0).to_string()),
        "int" => "",
        "long" => "L",
        "long long" => "LL",
        "unsigned int" => "U",
        "unsigned long" => "UL",
        "unsigned long long" => "ULL",
        "char" => return character_text(value),
        "signed char" | "unsigned char" => return Some(format!("({ty}){}", character_text(value)?)),
        _ => return Some(format!("({ty}){value}")),
    };
    Some(format!("{value}{suffix}"))
}

fn character_text(value: i128) -> Option<String> {
    let byte = value as u8;
    Some(match byte {
        b'\'' | b'\\' => format!("'\\{}'", char::from(byte)),
        b' '..=b'~' => format!("'{}'", char::from(byte)),
        byte => format!("'\\x{byte:02x}'"),
    })
}

/// Joins a name and what is declared with it.
fn spaced(name: &str, inner: &str) -> String {
    match inner {
        "" => name.to_owned(),
        inner if inner.starts_with('[') => format!("{name}{inner}"),
        inner => format!("{name} {inner}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_signs_of_their_types() {
        for (ty, value, expected) in [
            ("int", -3, "-3"),
            ("unsigned int", 5, "5U"),
            ("unsigned long", 6, "6UL"),
            ("long long", 7, "7LL"),
            ("bool", 1, "true"),
            ("char", 120, "'x'"),
            ("char", 39, "'\\''"),
            ("unsigned char", 7, "(unsigned char)'\\x07'"),
            ("short", -2, "(short)-2"),
        ] {
            assert_eq!(number_text(ty, value).as_deref(), Some(expected));
        }
    }
}
