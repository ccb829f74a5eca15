//! Strings and slices of Go, whose compiler describes them as structures. They are shown as the
//! printers for GDB that come with Go show them.

use super::context::EvalContext;
use super::failure::{Evaluated, outside};
use super::formatted::{FormattedMember, FormattedValue, listed, text};
use super::formatter::ValueFormatter;
use super::members::{address, number, path};
use super::text::quoted;
use super::types::{RecordShape, Shape, Ty};
use super::value::{Unavailable, Value};
use backtrail_symbolizer::types::GoKind;

/// A string or a slice.
struct GoArray {
    kind: GoKind,
    element: Ty,
    size: u64,
    start: u64,
    count: u64,
}

impl GoArray {
    /// Returns the array that a record is; `None` if it is none, its parts are not known, or its
    /// length is impossible.
    fn of(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let kind = record.record().go_kind?;
        let whole = |name: &str| u64::try_from(number(context, &path(context, value, &[name])?)?).ok();
        let count = whole("len")?;
        let pointer = match kind {
            GoKind::String => path(context, value, &["str"])?,
            GoKind::Slice if count <= whole("cap")? => path(context, value, &["array"])?,
            GoKind::Slice => return None,
        };
        let Shape::Pointer(_, element) = pointer.ty.shape() else {
            return None;
        };
        Some(Self {
            kind,
            size: element.size()?,
            start: address(context, &pointer)?,
            count,
            element,
        })
        .filter(|array| match array.kind {
            GoKind::String => array.size == 1,
            // There may be any number of elements without a size.
            GoKind::Slice => array.size > 0 || array.count == 0,
        })
    }

    fn at(&self, number: u64) -> Value {
        let at = self.start.wrapping_add(number.wrapping_mul(self.size));
        Value::at(self.element.clone(), at)
    }

    /// Returns the first bytes of a string.
    fn bytes(&self, context: &EvalContext<'_>, most: u64) -> Result<Vec<u8>, Unavailable> {
        let mut bytes = vec![0; usize::try_from(self.count.min(most)).unwrap_or(0)];
        context.source.memory(self.start, &mut bytes)?;
        Ok(bytes)
    }
}

impl ValueFormatter<'_> {
    /// Formats a string as its text, and a slice as its elements; `None` for other types.
    pub(crate) fn format_go(
        &self,
        value: &Value,
        record: &RecordShape,
        depth: u32,
    ) -> Option<FormattedValue> {
        let array = GoArray::of(self.context, value, record)?;
        let limit = self.context.elements;
        if array.kind == GoKind::String {
            return Some(match array.bytes(self.context, limit as u64) {
                Ok(bytes) => text(quoted(&bytes, array.count > limit as u64, limit)),
                Err(cause) => FormattedValue::unavailable(&cause),
            });
        }
        let values = (0..array.count).map(|number| (format!("[{number}]"), array.at(number)));
        let (members, more): (Vec<FormattedMember>, bool) = self.elements(values, depth);
        let elements = listed(&members, more, false);
        let text = match members.is_empty() {
            true => record.name().to_owned(),
            false => format!("{} = {{{elements}}}", record.name()),
        };
        Some(FormattedValue::with_members(text, members))
    }
}

/// Returns an element of a string or a slice; `None` for other types.
pub fn element(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    key: &Value,
) -> Option<Evaluated> {
    let array = GoArray::of(context, value, record)?;
    let index = context.whole_number(key);
    Some(index.and_then(
        |index| match u64::try_from(index).ok().filter(|at| *at < array.count) {
            Some(at) => Ok(array.at(at)),
            None => outside(array.count),
        },
    ))
}

/// Returns the bytes of a string, at most `most`; `None` for other types.
pub fn string(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    most: u64,
) -> Option<Result<Vec<u8>, Unavailable>> {
    let array = GoArray::of(context, value, record).filter(|array| array.kind == GoKind::String)?;
    Some(match array.count > most {
        true => Err(Unavailable::Unknown("the string is too long to compare".into())),
        false => array.bytes(context, most),
    })
}
