//! Contexts of processes and requests, as JSON and as text.

use backtrail_bundle::context::{Attributes, PublishedContext, ThreadContext};
use backtrail_pt::Tid;
use serde::Serialize;

/// The context of a process.
#[derive(Serialize)]
pub struct ContextInfo {
    resource: Attributes,
    threads: Vec<RequestInfo>,
}

/// The request that a thread worked on.
#[derive(Serialize)]
pub struct RequestInfo {
    tid: u32,
    trace_id: Option<String>,
    span_id: Option<String>,
    trace_flags: Option<u8>,
    attributes: Attributes,
}

impl ContextInfo {
    /// Returns the context of a bundle.
    pub fn new(context: &PublishedContext) -> Self {
        Self {
            resource: context.resource.clone(),
            threads: context.threads.iter().map(RequestInfo::new).collect(),
        }
    }
}

impl RequestInfo {
    /// Returns the request of a thread.
    pub fn new(thread: &ThreadContext) -> Self {
        let span = thread.span.as_ref();
        Self {
            tid: thread.tid.0,
            trace_id: span.map(|span| span.trace_id.to_string()),
            span_id: span.map(|span| span.span_id.to_string()),
            trace_flags: span.map(|span| span.flags),
            attributes: thread.attributes.clone(),
        }
    }
}

/// Returns the lines of a context: a name, and its text. The request of `first` comes first, and
/// the other requests name their threads.
pub fn lines(context: &PublishedContext, first: Option<Tid>) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(thread) = first.and_then(|first| context.thread(first)) {
        lines.push(("request", thread.to_string()));
    }
    let others = context.threads.iter().filter(|thread| Some(thread.tid) != first);
    lines.extend(others.map(|thread| ("request", format!("{thread} (thread {})", thread.tid))));
    let resource = context
        .resource
        .iter()
        .map(|(name, value)| format!("{name} {value}"));
    let resource: Vec<String> = resource.collect();
    if !resource.is_empty() {
        lines.push(("resource", resource.join(", ")));
    }
    lines
}
