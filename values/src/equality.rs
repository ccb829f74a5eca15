//! Compares two values in place of the program's own functions: keys and strings.

use super::arithmetic::{self, compared, converted};
use super::context::EvalContext;
use super::failure::{Evaluated, Failure, wrong};
use super::types::Shape;
use super::units::Units;
use super::value::{Data, MAX_SIZE, Unavailable, Value};
use super::{cpp_access, go, rust_access};

impl EvalContext<'_> {
    /// Both are numbers, or texts of the same characters; `other` is taken as `one` is.
    pub fn is_same(&self, one: &Value, other: &Value) -> Evaluated<bool> {
        if let (Shape::Pointer(..), Shape::Array { .. }) = (one.ty.shape(), other.ty.shape())
            && self.pointer(one)? == 0
        {
            return Ok(false);
        }
        if let Some((one, other)) = self.text(one)?.zip(self.text(other)?) {
            return Ok(one == other);
        }
        let numbers = (
            arithmetic::number(one, self.source)?,
            arithmetic::number(other, self.source)?,
        );
        match numbers {
            (Some((number, _)), Some((wanted, _))) => {
                // As what the other is: 0.1 is another number as a `float`.
                let wanted = arithmetic::number(&converted(wanted, one.ty.clone()), self.source)?;
                Ok(wanted.and_then(|(wanted, _)| compared("==", number, wanted)) == Some(true))
            }
            _ => wrong(format!(
                "comparing \"{}\" with \"{}\" requires a function of the program, which cannot be called",
                one.ty.name(),
                other.ty.name()
            )),
        }
    }

    /// One is a string of a library or in quotes, and both are texts: whether they have the same
    /// characters. `None`: they are compared in another way.
    pub fn same_text(&self, one: &Value, other: &Value) -> Evaluated<Option<bool>> {
        let is_string = |value: &Value| match value.ty.shape() {
            Shape::Record(_) => true,
            Shape::Array { .. } => matches!(value.data, Data::Bytes(..)),
            _ => false,
        };
        if !is_string(one) && !is_string(other) {
            return Ok(None);
        }
        let is_null = |value: &Value| {
            Ok::<_, Failure>(matches!(value.ty.shape(), Shape::Pointer(..)) && self.pointer(value)? == 0)
        };
        Ok(match (self.text(one)?, self.text(other)?) {
            (Some(one), Some(other)) => Some(one == other),
            (Some(_), None) if is_null(other)? => Some(false),
            (None, Some(_)) if is_null(one)? => Some(false),
            _ => None,
        })
    }

    /// The characters of a text as bytes; `None`: it is none.
    fn text(&self, value: &Value) -> Evaluated<Option<Vec<u8>>> {
        let (at, units) = match value.ty.shape() {
            Shape::Record(record) => {
                let found = cpp_access::text(self, value, &record, MAX_SIZE)
                    .or_else(|| rust_access::text(self, value, &record, MAX_SIZE))
                    .or_else(|| go::string(self, value, &record, MAX_SIZE));
                return Ok(found.transpose()?);
            }
            Shape::Array { element, .. } => {
                let Some(units) = Units::of(&element) else {
                    return Ok(None);
                };
                match value.address() {
                    Some(at) => (at, units),
                    None => return Ok(Some(until_zero(&value.bytes(self.source)?, units).to_vec())),
                }
            }
            Shape::Pointer(_, target) => {
                let Some(units) = Units::of(&target) else {
                    return Ok(None);
                };
                match self.pointer(value)? {
                    0 => return Ok(None),
                    at => (at, units),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(self.text_at(at, units)?))
    }

    /// The characters at an address, without the zero that ends them.
    fn text_at(&self, at: u64, units: Units) -> Result<Vec<u8>, Unavailable> {
        let mut bytes = Vec::new();
        for offset in (0..MAX_SIZE).step_by(units.size as usize) {
            let mut wide = [0; 4];
            let unit = wide.get_mut(..units.size as usize).unwrap_or_default();
            self.source.memory(at.wrapping_add(offset), unit)?;
            if unit.iter().all(|byte| *byte == 0) {
                return Ok(bytes);
            }
            bytes.extend_from_slice(unit);
        }
        Err(Unavailable::Unknown("the string has no terminator".into()))
    }
}

fn until_zero(bytes: &[u8], units: Units) -> &[u8] {
    let size = units.size as usize;
    let zero = bytes
        .chunks(size)
        .position(|unit| unit.iter().all(|byte| *byte == 0));
    let end = zero.map_or(bytes.len(), |units| units * size);
    bytes.get(..end).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_before_its_first_zero() {
        assert_eq!(until_zero(b"ab\0c\0", Units::BYTES), b"ab");
        assert_eq!(until_zero(b"ab", Units::BYTES), b"ab");
        let wide = Units::of_size(2);
        assert_eq!(until_zero(&[97, 0, 0, 1, 0, 0, 98, 0], wide), [97, 0, 0, 1]);
    }
}
