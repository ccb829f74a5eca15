//! The members of records: found by name, through bases and members without names, and by the form that a value
//! has.

use super::arithmetic::{integer, is_signed};
use super::scene::Scene;
use super::types::{RecordShape, Shape};
use super::value::{Bits, Data, Gap, Value};
use backtrail_symbolizer::types::{Encoding, Member, MemberLocation};

/// Records in records are searched this deep.
const MAX_DEPTH: u32 = 32;

/// The value of a member.
pub(crate) fn value_of(scene: &Scene<'_>, record: &RecordShape, whole: &Value, member: &Member) -> Value {
    let ty = record.ty(member.entry);
    match &member.location {
        MemberLocation::Offset(offset) => whole.part(ty, *offset),
        MemberLocation::Bits { offset, size } => {
            let mut part = whole.part(ty, offset / 8);
            part.bits = Some(Bits {
                offset: offset % 8,
                size: *size,
            });
            part
        }
        MemberLocation::Computed(expression) => match (whole.address(), &whole.data) {
            (Some(object), _) => match scene.member_at(expression, object, &record.module) {
                Ok(at) => Value::at(ty, at),
                Err(why) => Value::gap(ty, Gap::Unknown(why)),
            },
            (None, Data::Gap(gap)) => Value::gap(ty, gap.clone()),
            (None, _) => {
                let why = "where a virtual base is depends on where the object is, and it is not in memory";
                Value::gap(ty, Gap::Unknown(why.into()))
            }
        },
        MemberLocation::Unknown => {
            let why = "where it is in its object is not stated in a way that is understood";
            Value::gap(ty, Gap::Unknown(why.into()))
        }
        MemberLocation::Static(declaration) => match record.module.file.definition_of(*declaration) {
            Some(variable) => scene.value_of(&variable, &record.module),
            None => Value::gap(ty, Gap::OptimizedOut),
        },
    }
}

/// The member called `name`: of the record itself, of its members without names, of its bases.
pub(crate) fn member(scene: &Scene<'_>, record: &RecordShape, whole: &Value, name: &str) -> Option<Value> {
    search(scene, record, whole, name, 0)
}

fn search(scene: &Scene<'_>, record: &RecordShape, whole: &Value, name: &str, depth: u32) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    let members = &record.record().members;
    let own = members.iter().find(|member| member.name.as_deref() == Some(name));
    if let Some(found) = own {
        return Some(value_of(scene, record, whole, found));
    }
    members
        .iter()
        .filter(|member| member.name.is_none())
        .find_map(|member| {
            let inner = value_of(scene, record, whole, member);
            match inner.ty.shape() {
                Shape::Record(inner_record) => search(scene, &inner_record, &inner, name, depth + 1),
                _ => None,
            }
        })
}

/// The form that a value of a record with several has; `None`: it has no forms.
pub(crate) fn active(scene: &Scene<'_>, record: &RecordShape, whole: &Value) -> Result<Option<Value>, Gap> {
    let Some(variants) = &record.record().variants else {
        return Ok(None);
    };
    let discriminant = match &variants.discriminant {
        Some(member) => {
            let value = value_of(scene, record, whole, member);
            let size = value.ty.size().unwrap_or(0);
            let bytes = value.bytes(scene.source)?;
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
    let unknown = || Gap::Unknown("its discriminant is none of the type's".into());
    let member = member.ok_or_else(unknown)?;
    Ok(Some(value_of(scene, record, whole, member)))
}

/// A member by its path, for what knows the insides of a library's types.
pub(crate) fn path(scene: &Scene<'_>, value: &Value, names: &[&str]) -> Option<Value> {
    let mut value = value.clone();
    for name in names {
        let Shape::Record(record) = value.ty.shape() else {
            return None;
        };
        value = member(scene, &record, &value, name)?;
    }
    Some(value)
}

/// A whole number that is known.
pub(crate) fn number(scene: &Scene<'_>, value: &Value) -> Option<i128> {
    let bytes = value.bytes(scene.source).ok()?;
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
pub(crate) fn address(scene: &Scene<'_>, value: &Value) -> Option<u64> {
    let bytes = value.read(scene.source, 8).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
