//! The members of records: found by name, through bases and members without names, and by the form
//! that a value has.

use super::arithmetic::{integer, is_signed};
use super::context::EvalContext;
use super::types::{RecordShape, Shape};
use super::value::{BitField, Data, Gap, Value};
use backtrail_symbolizer::types::{Encoding, Member, MemberLocation};

/// Records in records are searched this deep.
const MAX_DEPTH: u32 = 32;

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
                Err(why) => Value::gap(ty, Gap::Unknown(why)),
            },
            (None, Data::Gap(gap)) => Value::gap(ty, gap.clone()),
            (None, _) => {
                let why = "the location of a virtual base depends on the object, which is not in memory";
                Value::gap(ty, Gap::Unknown(why.into()))
            }
        },
        MemberLocation::Unknown => {
            let why = "its location in the object has an unsupported form";
            Value::gap(ty, Gap::Unknown(why.into()))
        }
        MemberLocation::Static(declaration) => match record.module.file.definition_of(*declaration) {
            Some(variable) => context.value_of(&variable, &record.module),
            None => Value::gap(ty, Gap::OptimizedOut),
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
pub fn active(context: &EvalContext<'_>, record: &RecordShape, whole: &Value) -> Result<Option<Value>, Gap> {
    let Some(variants) = &record.record().variants else {
        return Ok(None);
    };
    let discriminant = match &variants.discriminant {
        Some(member) => {
            let value = value_of(context, record, whole, member);
            let size = value.ty.size().unwrap_or(0);
            let bytes = value.bytes(context.source)?;
            Some((integer(&bytes, false, size * 8), size))
        }
        None => None,
    };
    // The values of variants are written as signed or not, and as wide as the compiler likes.
    let cut = |value: u64, size: u64| match size {
        1..8 => value & ((1 << (size * 8)) - 1),
        _ => value,
    };
    let stated = variants.variants.iter().find(|variant| match discriminant {
        Some((Some(number), size)) => variant
            .value
            .is_some_and(|value| i128::from(cut(value, size)) == number),
        _ => variant.value.is_none(),
    });
    let default = || variants.variants.iter().find(|variant| variant.value.is_none());
    let variant = stated.or_else(default);
    let member = variant.and_then(|variant| variant.members.first());
    let unknown = || Gap::Unknown("its discriminant matches no variant of the type".into());
    let member = member.ok_or_else(unknown)?;
    Ok(Some(value_of(context, record, whole, member)))
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

/// A whole number that is known.
pub fn number(context: &EvalContext<'_>, value: &Value) -> Option<i128> {
    let bytes = value.bytes(context.source).ok()?;
    let signed = match value.ty.shape() {
        Shape::Base(base) => is_signed(base.encoding) && base.encoding != Encoding::Float,
        Shape::Pointer(..) | Shape::Enumeration(..) => false,
        _ => return None,
    };
    integer(
        &bytes,
        signed,
        value.bits.map_or(bytes.len() as u64 * 8, |bits| bits.size),
    )
}

/// The address that a pointer holds.
pub fn address(context: &EvalContext<'_>, value: &Value) -> Option<u64> {
    let bytes = value.read(context.source, 8).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
