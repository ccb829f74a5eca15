//! Decodes and encodes the key `context` of `meta.json` ([`PublishedContext`]).

use super::Node;
use crate::context::{Attributes, PublishedContext, SpanContext, ThreadContext};
use backtrail_pt::Tid;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::str::FromStr;

/// Decodes the context, and reports faults.
pub(super) fn decode_context(node: &Node<'_>) -> Option<PublishedContext> {
    if !node.exists() {
        return None;
    }
    node.object()?;
    let threads_node = node.field("threads");
    let threads: Vec<ThreadContext> = threads_node
        .optional_array()?
        .filter_map(|node| thread(&node))
        .collect();
    let mut tids = HashSet::new();
    for thread in &threads {
        if !tids.insert(thread.tid) {
            threads_node.report(format!("thread {} has two contexts", thread.tid));
        }
    }
    Some(PublishedContext {
        resource: attributes(&node.field("resource"))?,
        threads,
    })
}

fn thread(node: &Node<'_>) -> Option<ThreadContext> {
    node.object()?;
    let tid = node.field("tid").integer(u32::MAX.into());
    let attributes = attributes(&node.field("attributes"));
    let (trace, span) = (node.field("traceId"), node.field("spanId"));
    let span = if trace.exists() || span.exists() {
        let flags = node.field("traceFlags");
        let flags = match flags.exists() {
            true => flags.integer(u8::MAX.into()),
            false => Some(0),
        };
        let (trace_id, span_id) = (id(&trace), id(&span));
        Some(SpanContext {
            trace_id: trace_id?,
            span_id: span_id?,
            flags: flags? as u8,
        })
    } else {
        None
    };
    Some(ThreadContext {
        tid: Tid(tid? as u32),
        span,
        attributes: attributes?,
    })
}

fn id<T: FromStr<Err = String>>(node: &Node<'_>) -> Option<T> {
    let parsed = node.string()?.parse();
    parsed.map_err(|problem| node.report(problem)).ok()
}

/// Decodes an optional object of strings.
fn attributes(node: &Node<'_>) -> Option<Attributes> {
    let members = node.optional_members()?;
    Some(
        members
            .filter_map(|(name, value)| Some((name, value.string()?)))
            .collect(),
    )
}

/// Encodes a context, and omits unknown fields.
pub(super) fn encode_context(context: &PublishedContext) -> Value {
    let mut object = Map::new();
    if !context.resource.is_empty() {
        object.insert("resource".to_owned(), json!(context.resource));
    }
    if !context.threads.is_empty() {
        let threads = context.threads.iter().map(encode_thread).collect();
        object.insert("threads".to_owned(), threads);
    }
    Value::Object(object)
}

fn encode_thread(thread: &ThreadContext) -> Value {
    let mut object = Map::new();
    object.insert("tid".to_owned(), json!(thread.tid.0));
    if let Some(span) = &thread.span {
        object.insert("traceId".to_owned(), json!(span.trace_id.to_string()));
        object.insert("spanId".to_owned(), json!(span.span_id.to_string()));
        object.insert("traceFlags".to_owned(), json!(span.flags));
    }
    if !thread.attributes.is_empty() {
        object.insert("attributes".to_owned(), json!(thread.attributes));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Findings;

    fn decoded(value: &Value) -> (Option<PublishedContext>, Vec<String>) {
        let findings = Findings::default();
        let context = decode_context(&Node::root(value, "meta.json", &findings));
        let faults = findings.into_vec();
        (context, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn context_is_read_as_it_is_written() {
        let value = json!({
            "resource": {"service.name": "cart"},
            "threads": [
                {"tid": 7, "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
                 "traceFlags": 1, "attributes": {"route": "/cart"}},
                {"tid": 8},
            ],
        });
        let (context, faults) = decoded(&value);
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(encode_context(&context.unwrap()), value);
    }

    #[test]
    fn wrong_contexts_are_reported() {
        for (wrong, problem) in [
            (json!({"threads": [{"tid": 7}, {"tid": 7}]}), "two contexts"),
            (
                json!({"threads": [{"tid": 7, "traceId": "4bf9"}]}),
                "32 hexadecimal",
            ),
            (
                json!({"threads": [{"tid": 7, "spanId": "00f067aa0ba902b7"}]}),
                "is missing",
            ),
            (json!({"resource": {"service.name": 3}}), "a string"),
            (json!({"resource": []}), "an object"),
            (json!([]), "an object"),
        ] {
            let (_, faults) = decoded(&wrong);
            assert!(
                faults.iter().any(|fault| fault.contains(problem)),
                "{wrong}: {faults:?}"
            );
        }
    }
}
