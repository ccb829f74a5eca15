//! The thread-local context record of OTEP 4947, little-endian and without padding:
//!
//! | offset | size | contents |
//! |---|---|---|
//! | 0 | 16 | trace id; zero: none |
//! | 16 | 8 | span id; zero: none. Both ids are set, or none |
//! | 24 | 1 | 1 if the record is valid; all other values mean that it is not |
//! | 25 | 1 | trace flags of W3C Trace Context |
//! | 26 | 2 | size of the attributes in bytes |
//! | 28 | | attributes: index of the name (1), size of the value (1), value in UTF-8 |
//!
//! The last attribute of a name counts. An attribute that does not fit ends the list. Names are in
//! the process context. A record should have at most 640 bytes. Attributes of a larger one are not
//! read, because a later value of a name could be missing.

use super::bytes;
use backtrail_bundle::context::{Attributes, SpanContext, SpanId, TraceId};
use backtrail_bundle::core::Memory;
use backtrail_pt::Avma;

/// Bytes before the attributes.
pub const HEADER: usize = 28;
/// Maximum bytes of a record with attributes.
pub const MAX_RECORD: usize = 640;
/// The value of the member `valid` of a valid record.
const VALID: u8 = 1;

/// A valid record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The active span.
    pub span: Option<SpanContext>,
    /// The attributes by the indexes of their names, in the order of the record.
    pub attributes: Vec<(u8, String)>,
}

impl Record {
    /// Parses a record. Returns `None` if it is not valid, or shorter than its header.
    ///
    /// Attributes are left out if they do not fit into the bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER>()?;
        let size = attributes_size(header)?;
        let trace_id = header.first_chunk().copied().and_then(TraceId::new);
        let span_id = header.get(16..24)?.try_into().ok().and_then(SpanId::new);
        let flags = *header.get(25)?;
        let attributes = bytes.get(HEADER..HEADER + size).unwrap_or_default();
        Some(Self {
            span: trace_id.zip(span_id).map(|(trace_id, span_id)| SpanContext {
                trace_id,
                span_id,
                flags,
            }),
            attributes: parse_attributes(attributes),
        })
    }

    /// Returns the attributes by their names. Attributes without a name are left out.
    #[must_use]
    pub fn named(&self, names: &[Option<String>]) -> Attributes {
        let named = self.attributes.iter().filter_map(|(index, value)| {
            let name = names.get(usize::from(*index))?.clone()?;
            Some((name, value.clone()))
        });
        named.collect()
    }
}

/// Returns the size of the attributes, or `None` if the record is not valid.
fn attributes_size(header: &[u8; HEADER]) -> Option<usize> {
    let [.., valid, _, low, high] = *header;
    (valid == VALID).then_some(usize::from(u16::from_le_bytes([low, high])))
}

fn parse_attributes(mut bytes: &[u8]) -> Vec<(u8, String)> {
    let mut found = Vec::new();
    while let [index, size, rest @ ..] = bytes {
        let Some((value, rest)) = rest.split_at_checked(usize::from(*size)) else {
            break;
        };
        bytes = rest;
        // A value that is not UTF-8 is unknown, and so is the value that it replaced.
        found.retain(|(known, _)| known != index);
        if let Ok(value) = std::str::from_utf8(value) {
            found.push((*index, value.to_owned()));
        }
    }
    found
}

/// Reads the record that the variable at `variable` points to.
///
/// The pointer and the header are read twice. A difference means that the thread runs, and that
/// the record may be torn.
pub(super) fn read(variable: u64, memory: &mut impl Memory) -> Option<Record> {
    let address = super::word(memory, variable).filter(|address| *address != 0)?;
    let header: [u8; HEADER] = bytes(memory, address)?;
    let size = HEADER + attributes_size(&header)?;
    let mut record = header.to_vec();
    if size <= MAX_RECORD {
        record.resize(size, 0);
        let rest = record.get_mut(HEADER..)?;
        if memory.read(Avma(address.wrapping_add(HEADER as u64)), rest) != rest.len() {
            return None;
        }
    }
    let is_same = super::word(memory, variable) == Some(address) && bytes(memory, address) == Some(header);
    is_same.then(|| Record::parse(&record)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(valid: u8, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xab; 16];
        bytes.extend([0xcd; 8]);
        bytes.extend([valid, 1]);
        bytes.extend((attributes.len() as u16).to_le_bytes());
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn valid_record_has_ids_and_attributes() {
        let found = Record::parse(&record(1, b"\x00\x05/cart\x02\x03GET\x01\x00")).unwrap();
        let span = found.span.unwrap();
        assert_eq!(span.trace_id.to_string(), "ab".repeat(16));
        assert_eq!(span.span_id.to_string(), "cd".repeat(8));
        assert_eq!(span.flags, 1);
        let text = |value: &str| value.to_owned();
        assert_eq!(
            found.attributes,
            [(0, text("/cart")), (2, text("GET")), (1, text(""))]
        );
        let names = [Some(text("route")), None, Some(text("method"))];
        assert_eq!(
            found.named(&names),
            [(text("route"), text("/cart")), (text("method"), text("GET"))].into()
        );
    }

    #[test]
    fn record_that_is_not_valid_gives_nothing() {
        for valid in [0, 2, 0xff] {
            assert_eq!(Record::parse(&record(valid, b"\x00\x01a")), None);
        }
        assert_eq!(Record::parse(&record(1, b"")[..HEADER - 1]), None);
        assert_eq!(Record::parse(&[]), None);
    }

    #[test]
    fn zero_ids_are_no_span() {
        let mut bytes = record(1, b"\x00\x01a");
        bytes[..16].fill(0);
        let found = Record::parse(&bytes).unwrap();
        assert_eq!((found.span, found.attributes.len()), (None, 1));
        let mut bytes = record(1, b"");
        bytes[16..24].fill(0);
        assert_eq!(Record::parse(&bytes).unwrap().span, None);
    }

    #[test]
    fn last_value_of_a_name_counts() {
        let parsed = |attributes: &[u8]| Record::parse(&record(1, attributes)).unwrap().attributes;
        assert_eq!(parsed(b"\x00\x01a\x00\x01b"), [(0, "b".to_owned())]);
        assert_eq!(parsed(b"\x00\x01a\x00\x01\xff"), []);
        assert_eq!(parsed(b"\x00\x01a\x01\x09b"), [(0, "a".to_owned())]);
        assert_eq!(parsed(b"\x00\x01a\x01"), [(0, "a".to_owned())]);
    }

    #[test]
    fn attributes_beyond_the_bytes_are_left_out() {
        let bytes = record(1, b"\x00\x01a\x01\x01b");
        let found = Record::parse(&bytes[..HEADER + 3]).unwrap();
        assert!(found.span.is_some() && found.attributes.is_empty());
    }

    /// A memory with the variable at 0x10 and the record at 0x100.
    fn memory(record: &[u8]) -> impl Memory {
        let mut bytes = vec![0; 0x100 + record.len()];
        bytes[0x10..0x18].copy_from_slice(&0x100u64.to_le_bytes());
        bytes[0x100..].copy_from_slice(record);
        move |address: Avma, out: &mut [u8]| {
            let from = bytes.get(address.0 as usize..).unwrap_or_default();
            let size = out.len().min(from.len());
            out[..size].copy_from_slice(&from[..size]);
            size
        }
    }

    #[test]
    fn record_is_read_through_the_variable() {
        let attributes = [&b"\x00\xff"[..], &[b'a'; 255]].concat();
        let found = read(0x10, &mut memory(&record(1, &attributes))).unwrap();
        assert_eq!(found.attributes[0].1.len(), 255);
        assert_eq!(read(0x20, &mut memory(&record(1, &attributes))), None);
        let large = [&attributes[..], &attributes, &attributes].concat();
        let found = read(0x10, &mut memory(&record(1, &large))).unwrap();
        assert!(found.span.is_some() && found.attributes.is_empty());
    }

    #[test]
    fn record_that_changes_while_it_is_read_gives_nothing() {
        let bytes = record(1, b"\x00\x01a");
        for change_at in 1..5 {
            let (mut inner, mut reads) = (memory(&bytes), 0);
            let mut other = bytes.clone();
            other[0] ^= 1;
            let mut changed = memory(&other);
            let mut torn = |address: Avma, out: &mut [u8]| {
                reads += 1;
                match reads > change_at {
                    true => changed.read(address, out),
                    false => inner.read(address, out),
                }
            };
            let found = read(0x10, &mut torn);
            // A change before the header was first read is not a tear.
            assert_eq!(found.is_some(), change_at == 1, "after {change_at} reads");
        }
    }
}
