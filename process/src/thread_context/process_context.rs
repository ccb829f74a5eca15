//! The process context of OTEP 4719: a memory mapping with this header, little-endian.
//!
//! | offset | size | contents |
//! |---|---|---|
//! | 0 | 8 | `OTEL_CTX`, written last |
//! | 8 | 4 | version 2 |
//! | 12 | 4 | size of the payload |
//! | 16 | 8 | time of publication (`CLOCK_BOOTTIME`, nanoseconds); zero during an update |
//! | 24 | 8 | address of the payload |
//!
//! The payload is a message of
//! `opentelemetry/proto/processcontext/v1development/process_context.proto`
//! (open-telemetry/opentelemetry-proto). The mapping is a memfd or anonymous memory. Its name
//! depends on the kernel: `/memfd:OTEL_CTX`, `[anon_shmem:OTEL_CTX]` or `[anon:OTEL_CTX]`
//! (`processcontext/processcontext.go` of open-telemetry/opentelemetry-ebpf-profiler).
//!
//! Two attributes describe the thread contexts (OTEP 4947): `threadlocal.schema_version`, and
//! `threadlocal.attribute_key_map`, the names of attributes by their indexes.

use super::bytes;
use crate::maps::Map;
use backtrail_bundle::context::Attributes;
use backtrail_bundle::core::Memory;
use backtrail_pt::Avma;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

/// Names of mappings with a process context.
const NAMES: &[&str] = &["/memfd:OTEL_CTX", "[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]"];
/// The first bytes of the header.
const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
/// The version of the header.
const VERSION: u32 = 2;
/// Bytes of the header.
const HEADER: usize = 32;
/// Maximum size of a payload, that of the OpenTelemetry eBPF profiler.
const MAX_PAYLOAD: usize = 64 << 10;
/// How often a context that changes is read again.
const TRIES: usize = 3;
/// Maximum number of mappings with the name whose headers are read.
const MAX_MAPPINGS: usize = 16;
/// Maximum number of names: an index has one byte.
const MAX_NAMES: usize = 256;
/// Maximum number of resource attributes.
const MAX_ATTRIBUTES: usize = 256;

/// The attribute with the format of the thread contexts.
const SCHEMA: &str = "threadlocal.schema_version";
/// The attribute with the names of the attributes of thread contexts.
const KEY_MAP: &str = "threadlocal.attribute_key_map";
/// Formats of thread contexts with the record of OTEP 4947 in a thread-local variable.
const SCHEMAS: &[&str] = &["tlsdesc_v1_dev", "tls_v1"];

/// The context of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessContext {
    /// The address of its header.
    pub address: u64,
    /// When it was published (`CLOCK_BOOTTIME`, nanoseconds). Each update has another time.
    pub published_at: u64,
    /// The resource attributes, such as `service.name`.
    pub resource: Attributes,
    /// The format of the thread contexts.
    pub schema: Option<String>,
    /// The names of the attributes of thread contexts, by their indexes.
    pub keys: Vec<Option<String>>,
}

impl ProcessContext {
    /// Returns whether the threads have contexts in a known format.
    #[must_use]
    pub fn has_thread_contexts(&self) -> bool {
        self.schema
            .as_deref()
            .is_some_and(|schema| SCHEMAS.contains(&schema))
    }
}

/// The payload. The messages inside are OTLP's.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<KeyValue>,
}

/// The valid header of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    size: usize,
    published_at: u64,
    address: u64,
}

/// Returns whether a mapping may have a process context.
#[must_use]
pub fn is_context_mapping(map: &Map) -> bool {
    let name = map.path.strip_suffix(" (deleted)").unwrap_or(&map.path);
    NAMES.contains(&name)
}

/// Reads the context of a process, or returns `None` if it has none or it is malformed.
pub fn read(maps: &[Map], memory: &mut impl Memory) -> Option<ProcessContext> {
    let mappings = maps.iter().filter(|map| is_context_mapping(map));
    mappings
        .take(MAX_MAPPINGS)
        .find_map(|map| read_at(map.start, memory))
}

/// Reads a context again if it was updated since. Returns `None` if it was not.
pub fn read_update(known: &ProcessContext, memory: &mut impl Memory) -> Option<ProcessContext> {
    let header = parse_header(&bytes(memory, known.address)?)?;
    (header.published_at != known.published_at)
        .then(|| read_at(known.address, memory))
        .flatten()
}

/// Reads the context whose header is at `address`. If it changes during that, it is read again.
fn read_at(address: u64, memory: &mut impl Memory) -> Option<ProcessContext> {
    for _ in 0..TRIES {
        let Some(header) = parse_header(&bytes(memory, address)?) else {
            continue;
        };
        let mut payload = vec![0; header.size];
        let is_whole = memory.read(Avma(header.address), &mut payload) == header.size;
        if parse_header(&bytes(memory, address)?) == Some(header) {
            let context = is_whole.then(|| parse_payload(&payload)).flatten()?;
            return Some(ProcessContext {
                address,
                published_at: header.published_at,
                ..context
            });
        }
    }
    None
}

/// Parses a header. Returns `None` if it is not complete, or of another version.
fn parse_header(header: &[u8; HEADER]) -> Option<Header> {
    let word = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let half = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let size = usize::try_from(half(12)?).ok()?;
    let found = Header {
        size,
        published_at: word(16)?,
        address: word(24)?,
    };
    let is_valid = header.starts_with(SIGNATURE)
        && half(8)? == VERSION
        && found.published_at != 0
        && (1..=MAX_PAYLOAD).contains(&size);
    is_valid.then_some(found)
}

/// Parses a payload. Returns `None` if it is too large, or not a message.
#[must_use]
pub fn parse_payload(payload: &[u8]) -> Option<ProcessContext> {
    if payload.len() > MAX_PAYLOAD {
        return None;
    }
    let Payload { resource, attributes } = Payload::decode(payload).ok()?;
    let mut context = ProcessContext::default();
    let resource = resource.unwrap_or_default().attributes;
    let named = resource.into_iter().take(MAX_ATTRIBUTES);
    context
        .resource
        .extend(named.filter_map(|pair| Some((pair.key, text(pair.value?)?))));
    for KeyValue { key, value, .. } in attributes {
        match (key.as_str(), value.and_then(|value| value.value)) {
            (SCHEMA, Some(Value::StringValue(schema))) => context.schema = Some(schema),
            (KEY_MAP, Some(Value::ArrayValue(keys))) => {
                let keys = keys.values.into_iter().take(MAX_NAMES);
                context.keys = keys.map(name).collect();
            }
            _ => {}
        }
    }
    Some(context)
}

/// Returns the name of an attribute.
fn name(value: AnyValue) -> Option<String> {
    match value.value? {
        Value::StringValue(name) => Some(name).filter(|name| !name.is_empty()),
        _ => None,
    }
}

/// Returns an attribute's value as text. `None`: it has no short text.
fn text(value: AnyValue) -> Option<String> {
    match value.value? {
        Value::StringValue(text) => Some(text),
        Value::BoolValue(value) => Some(value.to_string()),
        Value::IntValue(value) => Some(value.to_string()),
        Value::DoubleValue(value) => Some(value.to_string()),
        Value::ArrayValue(array) => {
            let texts: Option<Vec<String>> = array.values.into_iter().map(text).collect();
            Some(texts?.join(", "))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::ArrayValue;

    fn pair(key: &str, value: Value) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        }
    }

    fn string(text: &str) -> Value {
        Value::StringValue(text.to_owned())
    }

    fn payload() -> Vec<u8> {
        let array = |values: Vec<Value>| {
            let values = values.into_iter().map(|value| AnyValue { value: Some(value) });
            Value::ArrayValue(ArrayValue {
                values: values.collect(),
            })
        };
        let resource = Resource {
            attributes: vec![
                pair("service.name", string("cart")),
                pair("process.pid", Value::IntValue(42)),
                pair("tags", array(vec![string("a"), Value::BoolValue(true)])),
                pair("bytes", Value::BytesValue(vec![1])),
            ],
            ..Resource::default()
        };
        let keys = array(vec![string("route"), Value::IntValue(1), string("user")]);
        let attributes = vec![pair(SCHEMA, string("tlsdesc_v1_dev")), pair(KEY_MAP, keys)];
        let resource = Some(resource);
        Payload { resource, attributes }.encode_to_vec()
    }

    fn header(size: u32, published_at: u64) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(size.to_le_bytes());
        header.extend(published_at.to_le_bytes());
        header.extend(0x1020u64.to_le_bytes());
        header
    }

    fn map(start: u64, path: &str) -> Map {
        Map {
            start,
            end: start + 0x1000,
            path: path.to_owned(),
            ..Map::default()
        }
    }

    fn memory(start: u64, bytes: Vec<u8>) -> impl Memory {
        move |address: Avma, out: &mut [u8]| {
            let from = address
                .0
                .checked_sub(start)
                .and_then(|from| bytes.get(from as usize..));
            let from = from.unwrap_or_default();
            let size = out.len().min(from.len());
            out[..size].copy_from_slice(&from[..size]);
            size
        }
    }

    #[test]
    fn context_is_read_from_its_mapping() {
        let payload = payload();
        let image = [header(payload.len() as u32, 9), payload].concat();
        let expected: Attributes = [
            ("service.name", "cart"),
            ("process.pid", "42"),
            ("tags", "a, true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for name in NAMES
            .iter()
            .map(ToString::to_string)
            .chain(["/memfd:OTEL_CTX (deleted)".to_owned()])
        {
            let maps = [map(0x2000, "[heap]"), map(0x1000, &name)];
            let found = read(&maps, &mut memory(0x1000, image.clone())).unwrap();
            assert_eq!((found.published_at, &found.resource), (9, &expected), "{name}");
            assert!(found.has_thread_contexts());
            assert_eq!(
                found.keys,
                [Some("route".to_owned()), None, Some("user".to_owned())]
            );
        }
        let maps = [map(0x1000, "/memfd:OTEL_CTX2")];
        assert_eq!(read(&maps, &mut memory(0x1000, image)), None);
    }

    #[test]
    fn update_is_read_once() {
        let size = payload().len() as u32;
        let at = |time| memory(0x1000, [header(size, time), payload()].concat());
        let first = read(&[map(0x1000, NAMES[0])], &mut at(9)).unwrap();
        assert_eq!(read_update(&first, &mut at(9)), None);
        assert_eq!(read_update(&first, &mut at(0)), None);
        let next = read_update(&first, &mut at(10)).unwrap();
        assert_eq!((next.published_at, &next.keys), (10, &first.keys));
    }

    #[test]
    fn header_that_is_not_complete_gives_nothing() {
        let size = payload().len() as u32;
        let whole = |header: Vec<u8>| {
            let image = [header, payload()].concat();
            read(&[map(0x1000, NAMES[0])], &mut memory(0x1000, image))
        };
        assert!(whole(header(size, 1)).is_some());
        assert_eq!(whole(header(size, 0)), None, "an update is going on");
        assert_eq!(whole(header(0, 1)), None);
        assert_eq!(whole(header(size + 1, 1)), None, "the payload is cut off");
        assert_eq!(whole(header(u32::MAX, 1)), None);
        for at in [0, 8] {
            let mut wrong = header(size, 1);
            wrong[at] ^= 1;
            assert_eq!(whole(wrong), None, "byte {at}");
        }
    }

    #[test]
    fn context_that_always_changes_gives_nothing() {
        let image = [header(payload().len() as u32, 1), payload()].concat();
        let mut time = 0;
        let mut changing = |address: Avma, out: &mut [u8]| {
            time += 1;
            let mut image = image.clone();
            image[16] = time;
            memory(0x1000, image).read(address, out)
        };
        assert_eq!(read(&[map(0x1000, NAMES[0])], &mut changing), None);
    }

    #[test]
    fn other_schemas_have_no_thread_contexts() {
        for schema in ["nodejs_v1_dev", "go_pprof_labels_v1", ""] {
            let attributes = vec![pair(SCHEMA, string(schema))];
            let payload = Payload {
                resource: None,
                attributes,
            };
            let found = parse_payload(&payload.encode_to_vec()).unwrap();
            assert!(!found.has_thread_contexts(), "{schema}");
        }
        assert!(!parse_payload(&[]).unwrap().has_thread_contexts());
        assert_eq!(parse_payload(&[0xff]), None);
    }
}
