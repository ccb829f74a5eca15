//! The members of records: found by name, through bases and members without names, and by the form
//! that a value has.

use super::arithmetic::{integer, is_integer, is_signed};
use super::context::EvalContext;
use super::types::{ArrayCount, RecordShape, Shape, Ty};
use super::value::{BitField, Data, Unavailable, Value};
use backtrail_symbolizer::types::{Keyword, Language, Member, MemberLocation, TypeKind, Variant, Variants};
use std::cell::Cell;

/// The maximum depth at which nested records are searched.
const MAX_DEPTH: u32 = 32;
/// The maximum number of types that one lookup inspects.
const MAX_TYPES: u32 = 1 << 12;

/// The value of a member.
pub fn value_of(context: &EvalContext<'_>, record: &RecordShape, whole: &Value, member: &Member) -> Value {
    let ty = record.ty(member.entry);
    match &member.location {
        MemberLocation::Offset(offset) => whole.part(ty, *offset),
        MemberLocation::Bits { offset, size } => {
            let mut part = whole.part(ty, offset / 8);
            part.bits = Some(BitField {
                offset: offset % 8,
                size: *size,
            });
            part
        }
        MemberLocation::Computed(expression) => match (whole.address(), &whole.data) {
            (Some(object), _) => match context.member_at(expression, object, &record.module) {
                Ok(at) => Value::at(ty, at),
                Err(why) => Value::unavailable(ty, Unavailable::Unknown(why)),
            },
            (None, Data::Unavailable(cause)) => Value::unavailable(ty, cause.clone()),
            (None, _) => {
                let why = "the location of a virtual base depends on the object, which is not in memory";
                Value::unavailable(ty, Unavailable::Unknown(why.into()))
            }
        },
        MemberLocation::Unknown => {
            let why = "its location in the object has an unsupported form";
            Value::unavailable(ty, Unavailable::Unknown(why.into()))
        }
        MemberLocation::Static(declaration) => match record.module.file.definition_of(*declaration) {
            Some(variable) => context.value_of(&variable, &record.module),
            None => Value::unavailable(ty, Unavailable::OptimizedOut),
        },
    }
}

/// The member called `name`: of the record itself, of its members without names, of its bases.
pub fn member(context: &EvalContext<'_>, record: &RecordShape, whole: &Value, name: &str) -> Option<Value> {
    search(context, record, whole, name, 0)
}

fn search(
    context: &EvalContext<'_>,
    record: &RecordShape,
    whole: &Value,
    name: &str,
    depth: u32,
) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    let members = &record.record().members;
    let own = members.iter().find(|member| member.name.as_deref() == Some(name));
    if let Some(found) = own {
        return Some(value_of(context, record, whole, found));
    }
    members
        .iter()
        .filter(|member| member.name.is_none())
        .find_map(|member| {
            let inner = value_of(context, record, whole, member);
            match inner.ty.shape() {
                Shape::Record(inner_record) => search(context, &inner_record, &inner, name, depth + 1),
                _ => None,
            }
        })
}

/// The form that a value of a record with several has; `None`: it has no forms.
pub fn active(
    context: &EvalContext<'_>,
    record: &RecordShape,
    whole: &Value,
) -> Result<Option<Value>, Unavailable> {
    let Some(variants) = &record.record().variants else {
        return Ok(None);
    };
    let variant = active_variant(context, record, variants, whole)?;
    let member = variant.members.first().ok_or_else(no_variant)?;
    Ok(Some(value_of(context, record, whole, member)))
}

fn no_variant() -> Unavailable {
    Unavailable::Unknown("its discriminant matches no variant of the type".into())
}

/// The variant that the tag of a value selects.
fn active_variant<'v>(
    context: &EvalContext<'_>,
    record: &RecordShape,
    variants: &'v Variants,
    whole: &Value,
) -> Result<&'v Variant, Unavailable> {
    if let Some(member) = &variants.discriminant {
        let tag = value_of(context, record, whole, member);
        let bits = match (tag.bits, tag.ty.shape()) {
            (Some(bits), _) => Some(bits.size),
            (None, Shape::Base(base)) => Some(base.bits),
            (None, _) => tag.ty.size().and_then(|size| size.checked_mul(8)),
        };
        let bytes = tag.bytes(context.source)?;
        let unsupported = || Unavailable::Unknown("its discriminant has an unsupported type".into());
        let bits = bits
            .filter(|bits| (1..=128).contains(bits))
            .ok_or_else(unsupported)?;
        let tag = integer(&bytes, false, bits).ok_or_else(unsupported)?;
        let selects = |variant: &&Variant| is_selected(variant, tag, bits as u32, variants.signed);
        if let Some(found) = variants.variants.iter().find(selects) {
            return Ok(found);
        }
    }
    let defaults = || {
        let variants = variants.variants.iter();
        variants.filter(|variant| variant.tags.is_empty())
    };
    if defaults().count() < 2 {
        return defaults().next().ok_or_else(no_variant);
    }
    // A variant that holds a type without values (`!`) has no value.
    let left = Cell::new(MAX_TYPES);
    let has_values = |variant: &&Variant| {
        let mut members = variant.members.iter();
        !members.any(|member| is_uninhabited(&record.ty(member.entry), 0, &left))
    };
    let mut possible = defaults().filter(has_values);
    match (possible.next(), possible.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(no_variant()),
    }
}

/// Returns whether no value of a Rust type exists, as far as `left` types show it.
fn is_uninhabited(ty: &Ty, depth: u32, left: &Cell<u32>) -> bool {
    let (inner, Some(Language::Rust)) = (depth + 1, ty.language()) else {
        return false;
    };
    left.set(left.get().saturating_sub(1));
    if depth > MAX_DEPTH || left.get() == 0 {
        return false;
    }
    match ty.shape() {
        Shape::Base(base) => *base.name == *"!",
        Shape::Enumeration(described, _) => match &described.kind {
            TypeKind::Enumeration(enumeration) => {
                enumeration.enumerators.is_empty() && !enumeration.declaration
            }
            _ => false,
        },
        Shape::Array {
            element,
            count: ArrayCount::Known(1..),
            ..
        } => is_uninhabited(&element, inner, left),
        Shape::Record(record) if record.record().keyword != Keyword::Union => {
            let holds_none = |members: &[Member]| {
                let mut members = members.iter();
                members.any(|member| is_uninhabited(&record.ty(member.entry), inner, left))
            };
            let variants = record.record().variants.as_ref();
            holds_none(&record.record().members)
                || variants.is_some_and(|variants| {
                    let mut variants = variants.variants.iter();
                    variants.all(|variant| holds_none(&variant.members))
                })
        }
        _ => false,
    }
}

/// Returns whether a tag of `bits` bits selects a variant.
fn is_selected(variant: &Variant, tag: i128, bits: u32, signed: bool) -> bool {
    // Compilers write tags as signed or not, and as wide as they like.
    let ordered = |tag: i128| {
        let unused = 128 - bits.clamp(1, 128);
        let tag = tag as u128;
        let tag = if signed { tag ^ 1 << (127 - unused) } else { tag };
        tag << unused
    };
    let tag = ordered(tag);
    variant
        .tags
        .iter()
        .any(|range| (ordered(*range.start())..=ordered(*range.end())).contains(&tag))
}

/// Returns a member by its path, for code that knows the layout of a library's types.
pub fn path(context: &EvalContext<'_>, value: &Value, names: &[&str]) -> Option<Value> {
    let mut value = value.clone();
    for name in names {
        let Shape::Record(record) = value.ty.shape() else {
            return None;
        };
        value = member(context, &record, &value, name)?;
    }
    Some(value)
}

/// Reads bytes of memory; `None`: more than this machine can hold.
pub fn bytes_at(context: &EvalContext<'_>, at: u64, size: u64) -> Option<Result<Vec<u8>, Unavailable>> {
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    let read = context.source.memory(at, &mut bytes);
    Some(read.map(|()| bytes).map_err(Into::into))
}

/// A whole number that is known.
pub fn number(context: &EvalContext<'_>, value: &Value) -> Option<i128> {
    let bytes = value.bytes(context.source).ok()?;
    let signed = match value.ty.shape() {
        Shape::Base(base) if is_integer(base.encoding) => is_signed(base.encoding),
        Shape::Pointer(..) | Shape::Enumeration(..) => false,
        _ => return None,
    };
    integer(&bytes, signed, value.bit_count(bytes.len()))
}

/// The address that a pointer holds.
pub fn address(context: &EvalContext<'_>, value: &Value) -> Option<u64> {
    let bytes = value.read(context.source, 8).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_match_in_any_width_and_sign() {
        let variant = |tags: &[std::ops::RangeInclusive<i128>]| Variant {
            tags: tags.to_vec(),
            members: Vec::new(),
        };
        let is = |variant: &Variant, tag, bits, signed| is_selected(variant, tag, bits, signed);
        // The same tag, written with its sign and without it.
        for written in [-3, 0xfd] {
            assert!(is(&variant(&[written..=written]), 0xfd, 8, true));
            assert!(is(&variant(&[written..=written]), 0xfd, 8, false));
        }
        let wide = variant(&[1..=1]);
        assert!(is(&wide, 1, 128, false));
        assert!(!is(&wide, (1 << 64) + 1, 128, false));
        assert!(is(&variant(&[i128::MIN..=i128::MIN]), i128::MIN, 128, true));
        // -2 to 3, as signed bytes; the same bounds without a sign are empty.
        let range = variant(&[-2..=3]);
        for (tag, expected) in [(0xfe, true), (0, true), (3, true), (4, false), (0xfd, false)] {
            assert_eq!(is(&range, tag, 8, true), expected, "{tag}");
        }
        assert!(!is(&range, 0, 8, false));
        let high = variant(&[0x80..=0xff]);
        assert!(is(&high, 0x90, 8, false) && !is(&high, 0x7f, 8, false));
    }
}
