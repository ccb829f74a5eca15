//! The context that a process published for OpenTelemetry: its resource, and the request that each
//! thread was working on.

use backtrail_pt::Tid;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Attributes by their names.
pub type Attributes = BTreeMap<String, String>;

/// The context of a process at the end of its trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedContext {
    /// The resource attributes of the process, such as `service.name`.
    pub resource: Attributes,
    /// The contexts of its threads.
    pub threads: Vec<ThreadContext>,
}

impl PublishedContext {
    /// Returns the context of a thread.
    #[must_use]
    pub fn thread(&self, tid: Tid) -> Option<&ThreadContext> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }
}

/// The context of a thread: the request that it was working on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadContext {
    /// The thread.
    pub tid: Tid,
    /// The active span.
    pub span: Option<SpanContext>,
    /// Other attributes of the request, such as its route.
    pub attributes: Attributes,
}

impl fmt::Display for ThreadContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(span) = &self.span {
            write!(f, "trace id {}, span id {}", span.trace_id, span.span_id)?;
            separator = ", ";
        }
        for (name, value) in &self.attributes {
            write!(f, "{separator}{name} {value}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// A span and its trace (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
    /// The trace flags. Bit 0: the span is sampled.
    pub flags: u8,
}

/// The id of a distributed trace. It is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span. It is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

/// Reads the digits of an id: lower-case hexadecimal, and not zero.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut id = [0; N];
    if text.len() != 2 * N
        || text
            .bytes()
            .any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(id)
}

macro_rules! id {
    ($name:ident, $size:literal, $text:literal) => {
        impl $name {
            /// Returns the id of these bytes, or `None` if all are zero, which means no id.
            #[must_use]
            pub fn new(bytes: [u8; $size]) -> Option<Self> {
                (bytes != [0; $size]).then_some(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                digits(text).and_then(Self::new).ok_or_else(|| {
                    concat!("this must be ", $text, " hexadecimal digits, not all zero").to_owned()
                })
            }
        }
    };
}

id!(TraceId, 16, "32");
id!(SpanId, 8, "16");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_printed() {
        let text = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(text.parse::<TraceId>().unwrap().to_string(), text);
        let text = "00f067aa0ba902b7";
        assert_eq!(text.parse::<SpanId>().unwrap().to_string(), text);
        for wrong in [
            "",
            "0000000000000000",
            "00F067aa0ba902b7",
            "+0f067aa0ba902b7",
            "00f067aa0ba902b",
        ] {
            assert!(wrong.parse::<SpanId>().is_err(), "{wrong}");
        }
        assert_eq!(TraceId::new([0; 16]), None);
    }

    #[test]
    fn context_is_one_line_with_ids_first() {
        let mut context = ThreadContext {
            tid: Tid(3),
            span: None,
            attributes: [("route".to_owned(), "/cart".to_owned())].into(),
        };
        assert_eq!(context.to_string(), "route /cart");
        context.span = Some(SpanContext {
            trace_id: TraceId::new([1; 16]).unwrap(),
            span_id: SpanId::new([2; 8]).unwrap(),
            flags: 1,
        });
        assert_eq!(
            context.to_string(),
            "trace id 01010101010101010101010101010101, span id 0202020202020202, route /cart"
        );
    }
}
