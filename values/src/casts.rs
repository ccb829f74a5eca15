//! Casts between classes and their bases.
//!
//! The address changes if the base is not first in the object. The vtable gives the location of a
//! virtual base (Itanium C++ ABI, sections 2.5 and 2.6).

use super::context::EvalContext;
use super::failure::{Evaluated, wrong};
use super::members::value_of;
use super::types::{RecordShape, Shape, Ty};
use super::value::{Data, Unavailable, Value};
use backtrail_symbolizer::types::{Language, Member, MemberLocation, PointerKind};

/// Bases of bases are searched this deep, and no more of them than this.
const MAX_DEPTH: u32 = 32;
const MAX_BASES: u32 = 4096;

/// Returns the class of a type, if it is a C++ class.
fn class(ty: &Ty) -> Option<RecordShape> {
    match ty.shape() {
        Shape::Record(record) if record.described.language == Language::Cpp => {
            (!record.name().is_empty()).then_some(record)
        }
        _ => None,
    }
}

impl EvalContext<'_> {
    /// Casts a class, or a pointer to one, to a base or derived class; `None` if the cast is not of
    /// this form.
    pub(crate) fn cast_class(&self, value: &Value, ty: &Ty) -> Evaluated<Option<Value>> {
        match (value.ty.shape(), ty.shape()) {
            (Shape::Pointer(PointerKind::Pointer, from), Shape::Pointer(PointerKind::Pointer, to)) => {
                let (Some(from_class), Some(to_class)) = (class(&from), class(&to)) else {
                    return Ok(None);
                };
                if from_class.name() == to_class.name() {
                    return Ok(None);
                }
                let at = self.pointer(value)?;
                if at == 0 {
                    return Ok(None);
                }
                let found = self.cast_object(&Value::at(from, at), &from_class, &to, &to_class)?;
                let found = found.and_then(|found| found.address());
                Ok(found.map(|at| Value::number(ty.clone(), i128::from(at))))
            }
            (Shape::Record(_), Shape::Record(_)) => {
                let (Some(from_class), Some(to_class)) = (class(&value.ty), class(ty)) else {
                    return Ok(None);
                };
                if from_class.name() == to_class.name() {
                    return Ok(None);
                }
                self.cast_object(value, &from_class, ty, &to_class)
            }
            _ => Ok(None),
        }
    }

    fn cast_object(
        &self,
        object: &Value,
        from: &RecordShape,
        to: &Ty,
        to_class: &RecordShape,
    ) -> Evaluated<Option<Value>> {
        let mut left = MAX_BASES;
        if let Some(base) = self.base_of(object, from, to_class.name(), 0, &mut left) {
            // An unknown location of the base is the reason why there is no value.
            if let Data::Unavailable(cause) = &base.data {
                return Err(cause.clone().into());
            }
            return Ok(Some(base.with_type(to.clone())));
        }
        let mut left = MAX_BASES;
        match offset_of(to_class, from.name(), 0, &mut left) {
            Some(BaseOffset::Fixed(offset)) => match object.address() {
                Some(at) => Ok(Some(Value::at(to.clone(), at.wrapping_sub(offset)))),
                None => unknown("the enclosing object cannot be found: the value is not in memory"),
            },
            Some(BaseOffset::Virtual) => self.whole_object(object, from, to, to_class).map(Some),
            None => Ok(None),
        }
    }

    /// The base called `name`, with its place, if it has one.
    fn base_of(
        &self,
        object: &Value,
        class: &RecordShape,
        name: &str,
        depth: u32,
        left: &mut u32,
    ) -> Option<Value> {
        let bases = class.record().members.iter().filter(|member| member.base);
        for member in bases {
            *left = left.checked_sub(1).filter(|_| depth < MAX_DEPTH)?;
            let base = value_of(self, class, object, member);
            let Shape::Record(inner) = base.ty.shape() else {
                continue;
            };
            if inner.name() == name {
                return Some(base);
            }
            if let Some(found) = self.base_of(&base, &inner, name, depth + 1, left) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the complete object that contains an object, by its vtable. The word two before the
    /// address point is the offset to the start of the complete object. The symbol of the vtable
    /// names the class.
    fn whole_object(&self, object: &Value, from: &RecordShape, to: &Ty, to_class: &RecordShape) -> Evaluated {
        let (Some(at), true) = (object.address(), has_table(from, 0)) else {
            return unknown("the enclosing object cannot be found: the value has no vtable");
        };
        let mut word = [0; 8];
        self.source.memory(at, &mut word).map_err(Unavailable::from)?;
        let table = u64::from_le_bytes(word);
        self.source
            .memory(table.wrapping_sub(16), &mut word)
            .map_err(Unavailable::from)?;
        let start = at.wrapping_add(u64::from_le_bytes(word));
        let symbol = self.symbol(table).unwrap_or_default();
        let name = symbol
            .strip_prefix("vtable for ")
            .and_then(|name| Some(name.rsplit_once('+')?.0));
        let whole = name.and_then(|name| self.type_named(name));
        let Some((whole, whole_class)) = whole.and_then(|whole| Some((whole.clone(), class(&whole)?))) else {
            return unknown("the enclosing object is unknown: the vtable has no symbol of a known class");
        };
        let whole = Value::at(whole, start);
        if whole_class.name() == to_class.name() {
            return Ok(whole.with_type(to.clone()));
        }
        let mut left = MAX_BASES;
        match self.base_of(&whole, &whole_class, to_class.name(), 0, &mut left) {
            Some(found) => Ok(found.with_type(to.clone())),
            None => wrong(format!(
                "it is part of a \"{}\", which has no base \"{}\"",
                whole_class.name(),
                to_class.name()
            )),
        }
    }
}

fn unknown<T>(what: &'static str) -> Evaluated<T> {
    Err(Unavailable::Unknown(what.into()).into())
}

/// The location of a base in the objects of a class.
enum BaseOffset {
    /// The number of bytes from the start.
    Fixed(u64),
    /// A virtual base is on the way.
    Virtual,
}

fn offset_of(class: &RecordShape, name: &str, depth: u32, left: &mut u32) -> Option<BaseOffset> {
    let bases = class.record().members.iter().filter(|member| member.base);
    for member in bases {
        *left = left.checked_sub(1).filter(|_| depth < MAX_DEPTH)?;
        let Shape::Record(inner) = class.ty(member.entry).shape() else {
            continue;
        };
        let found = match inner.name() == name {
            true => Some(BaseOffset::Fixed(0)),
            false => offset_of(&inner, name, depth + 1, left),
        };
        let Some(found) = found else { continue };
        return Some(match (&member.location, found) {
            (MemberLocation::Offset(offset), BaseOffset::Fixed(inner)) => {
                BaseOffset::Fixed(offset.wrapping_add(inner))
            }
            _ => BaseOffset::Virtual,
        });
    }
    None
}

/// Objects of the class begin with a pointer to a table of virtual functions.
fn has_table(class: &RecordShape, depth: u32) -> bool {
    let starts = |member: &&Member| member.location == MemberLocation::Offset(0);
    let members = &class.record().members;
    let own = members.iter().filter(starts).any(|member| {
        member
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with("_vptr"))
    });
    own || depth < MAX_DEPTH
        && members.iter().filter(|member| member.base).find(starts).is_some_and(|member| {
            matches!(class.ty(member.entry).shape(), Shape::Record(inner) if has_table(&inner, depth + 1))
        })
}
