//! The memory that a protobuf message takes after it is decoded. A message of two bytes may become
//! a struct of a hundred, so that the length of the input is no limit of memory.

use prost::encoding::{WireType, decode_key, decode_varint, skip_field};

/// The most nested messages. `prost` has the same limit.
const MAX_DEPTH: usize = 100;

/// A kind of message.
#[derive(Debug)]
pub struct MessageShape {
    /// The size of the struct in bytes.
    pub size: usize,
    /// The fields that take further memory, by their numbers.
    pub fields: &'static [(u32, FieldShape)],
}

/// The memory that a field takes.
#[derive(Debug)]
pub enum FieldShape {
    /// Messages.
    Message(&'static MessageShape),
    /// Repeated numbers, with the size of one in bytes.
    Numbers(usize),
    /// Texts or bytes.
    Bytes,
}

/// Returns the estimated memory of a message in bytes. Growing vectors may take twice as much.
///
/// The estimate of a damaged message ends at the damage, as its decoding does.
///
/// ```
/// use backtrail_profile::format::decoded_size::{MessageShape, decoded_size};
///
/// static EMPTY: MessageShape = MessageShape { size: 24, fields: &[] };
/// assert_eq!(decoded_size(&[], &EMPTY), 24);
/// ```
#[must_use]
pub fn decoded_size(bytes: &[u8], shape: &MessageShape) -> usize {
    size_below(bytes, shape, MAX_DEPTH)
}

fn size_below(mut bytes: &[u8], shape: &MessageShape, depth: usize) -> usize {
    let mut size = shape.size;
    while let Some((tag, field)) = next_field(&mut bytes) {
        let kind = shape.fields.iter().find(|(number, _)| *number == tag);
        let added = match (kind, field) {
            (Some((_, FieldShape::Message(inner))), Some(field)) if depth > 0 => {
                size_below(field, inner, depth - 1)
            }
            // A packed number has a byte or more.
            (Some((_, FieldShape::Numbers(one))), Some(packed)) => one * packed.len(),
            (Some((_, FieldShape::Numbers(one))), None) => *one,
            (Some((_, FieldShape::Bytes)), Some(text)) => size_of::<String>() + text.len(),
            _ => 0,
        };
        size = size.saturating_add(added);
    }
    size
}

/// Takes a field from the start of a message. Returns its number, and its bytes if it has a
/// length. `None`: the message ends.
fn next_field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    if bytes.is_empty() {
        return None;
    }
    let (tag, wire) = decode_key(bytes).ok()?;
    if wire != WireType::LengthDelimited {
        skip_field(wire, tag, bytes, Default::default()).ok()?;
        return Some((tag, None));
    }
    let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
    let (field, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, Some(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    static LEAF: MessageShape = MessageShape {
        size: 10,
        fields: &[(1, FieldShape::Numbers(8)), (2, FieldShape::Bytes)],
    };
    static TREE: MessageShape = MessageShape {
        size: 100,
        fields: &[(1, FieldShape::Message(&LEAF)), (2, FieldShape::Message(&TREE))],
    };

    #[test]
    fn sizes_are_those_of_decoded_fields() {
        assert_eq!(decoded_size(&[], &TREE), 100);
        assert_eq!(decoded_size(&[0x0a, 0, 0x0a, 0], &TREE), 120);
        // Three packed numbers, one that is not packed, and a text of one byte.
        let leaf = [0x0a, 3, 1, 2, 3, 0x08, 1, 0x12, 1, b'a'];
        let text = size_of::<String>() + 1;
        assert_eq!(decoded_size(&leaf, &LEAF), 10 + 24 + 8 + text);
        assert_eq!(decoded_size(&[0x12, 2, 0x12, 0], &TREE), 300);
        // Other fields, and a damaged end.
        assert_eq!(decoded_size(&[0x1a, 1, 0, 0x0a, 9], &TREE), 100);
    }

    #[test]
    fn nesting_is_bounded() {
        let mut bytes = Vec::new();
        for _ in 0..500 {
            let mut outer = vec![0x12];
            prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
            outer.extend(bytes);
            bytes = outer;
        }
        assert_eq!(decoded_size(&bytes, &TREE), 100 * (MAX_DEPTH + 1));
    }
}
