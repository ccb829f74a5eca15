//! The numbers of elements of arrays. The type states them, or a variable of the frame has them.
//! Some arrays have no bound.

use super::context::EvalContext;
use super::members;
use super::types::{ArrayCount, Shape, Ty};
use super::value::{Unavailable, Value};
use backtrail_pt::Avma;
use backtrail_symbolizer::VariableLocation;
use backtrail_symbolizer::types::{DynamicProperty, Language};
use std::sync::Arc;

/// Whether an array of this type has no bound. One of length 0 at the end of a structure of C has
/// none either.
pub(crate) fn is_open(ty: &Ty, count: &ArrayCount) -> bool {
    match count {
        ArrayCount::Unknown => true,
        ArrayCount::Known(0) => matches!(ty.language(), Some(Language::C | Language::Cpp)),
        _ => false,
    }
}

/// The maximum depth of nested arrays.
const MAX_DEPTH: u32 = 32;

impl EvalContext<'_> {
    /// The number of elements that the type of an array states; `None`: it states none.
    pub(crate) fn element_count(&self, count: &ArrayCount) -> Result<Option<u64>, Unavailable> {
        let (module, property, less) = match count {
            ArrayCount::Known(count) => return Ok(Some(*count)),
            ArrayCount::Unknown => return Ok(None),
            ArrayCount::Dynamic {
                module,
                property,
                less,
            } => (module, property, *less),
        };
        let unknown = || Unavailable::Unknown("the number of elements is not known".into());
        // The value is one of the frame, if it is one of its module.
        let here = self.here.as_ref().ok_or_else(unknown)?;
        if !Arc::ptr_eq(&here.file, &module.file) {
            return Err(unknown());
        }
        let number = match property {
            DynamicProperty::Expression(expression) => {
                let location = VariableLocation::Expression(expression.clone());
                let value = self.at_location(&location, here, Ty::long());
                // An expression for a value leaves it on the stack, as it would an address.
                match value.address() {
                    Some(number) => Some(number as i64),
                    None => self.whole_of(&value)?,
                }
            }
            DynamicProperty::Variable(entry) => {
                let at = self.look_up.ok_or_else(unknown)?.to_svma(here.bias);
                let variable = here.file.variable_at(*entry, at);
                let location = match &variable {
                    Some(variable) => variable.location.clone(),
                    // The compiler's own variable may have no name.
                    None => here.file.location_at(*entry, at).ok_or_else(unknown)?,
                };
                let ty = variable.and_then(|variable| variable.type_entry);
                let ty = ty.map_or_else(Ty::long, |ty| Ty::of(here, Some(ty)));
                let value = self.at_location(&location, here, ty);
                self.whole_of(&value)?
            }
        };
        let number = number.ok_or_else(unknown)?;
        Ok(Some(u64::try_from(number.saturating_sub(less)).unwrap_or(0)))
    }

    fn whole_of(&self, value: &Value) -> Result<Option<i64>, Unavailable> {
        let unknown = |cause: Unavailable| {
            let why = format!("the number of elements is not known: {}", cause.reason());
            Unavailable::Unknown(why.into())
        };
        value.bytes(self.source).map_err(unknown)?;
        Ok(members::number(self, value).and_then(|number| i64::try_from(number).ok()))
    }

    /// The number of elements of an array: as its type states it, or else to the end of the object
    /// that a symbol names. `None`: nothing states where the array ends.
    pub(crate) fn elements_of(
        &self,
        value: &Value,
        element: &Ty,
        count: &ArrayCount,
    ) -> Result<Option<u64>, Unavailable> {
        match is_open(&value.ty, count) {
            true => Ok(self.to_end_of_object(value, element)),
            false => self.element_count(count),
        }
    }

    /// Whether a value of a type ends with an array without a bound.
    pub(crate) fn has_open_array(&self, ty: &Ty) -> bool {
        let mut ty = ty.clone();
        for _ in 0..MAX_DEPTH {
            ty = match ty.shape() {
                Shape::Array { element, count, .. } => match is_open(&ty, &count) {
                    true => return true,
                    false => element,
                },
                Shape::Record(record) => match record.record().members.last() {
                    Some(member) => record.ty(member.entry),
                    None => return false,
                },
                _ => return false,
            };
        }
        false
    }

    fn to_end_of_object(&self, value: &Value, element: &Ty) -> Option<u64> {
        let at = value.address()?;
        let module = self.symbols.module_at(Avma(at))?;
        let data = module.file.as_ref()?.data_at(Avma(at).to_svma(module.bias))?;
        let start = data.start.to_avma(module.bias).0;
        let left = start.checked_add(data.size)?.checked_sub(at)?;
        let count = left / self.size_of_type(element).ok()??.max(1);
        (count > 0).then_some(count)
    }

    /// The size of a type in bytes, with the bounds of the frame; `None`: it is not stated.
    pub(crate) fn size_of_type(&self, ty: &Ty) -> Result<Option<u64>, Unavailable> {
        self.size_at_depth(ty, 0)
    }

    fn size_at_depth(&self, ty: &Ty, depth: u32) -> Result<Option<u64>, Unavailable> {
        match ty.shape() {
            Shape::Array { element, count, .. } if depth < MAX_DEPTH => {
                let size = self.size_at_depth(&element, depth + 1)?;
                let count = self.element_count(&count)?;
                Ok(size.zip(count).and_then(|(size, count)| size.checked_mul(count)))
            }
            _ => Ok(ty.size()),
        }
    }

    /// The type with the bounds that hold in this frame, so that it means the same in others.
    pub(crate) fn with_bounds(&self, ty: Ty) -> Ty {
        self.bounded(&ty, 0).unwrap_or(ty)
    }

    /// `None`: the type does not depend on the frame, or its bounds are not known.
    fn bounded(&self, ty: &Ty, depth: u32) -> Option<Ty> {
        if depth > MAX_DEPTH {
            return None;
        }
        match ty.shape() {
            Shape::Array {
                element,
                count,
                vector: false,
            } => {
                let inner = self.bounded(&element, depth + 1);
                if inner.is_none() && !matches!(count, ArrayCount::Dynamic { .. }) {
                    return None;
                }
                let count = self.element_count(&count).ok()??;
                Some(Ty::Array(Arc::new(inner.unwrap_or(element)), count))
            }
            Shape::Pointer(backtrail_symbolizer::types::PointerKind::Pointer, target) => {
                let is_array = matches!(target.shape(), Shape::Array { .. } | Shape::Pointer(..));
                let target = self.bounded(&target, depth + 1).filter(|_| is_array)?;
                Some(target.pointer())
            }
            _ => None,
        }
    }
}
