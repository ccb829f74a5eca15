//! Decodes and encodes `meta.json` ([`Meta`]).

use super::Node;
use super::context::{decode_context, encode_context};
use crate::manifest::{Collected, Crash, Ending, MAX_STANDARD_ERROR, Meta, Overhead, Source};
use backtrail_pt::{Avma, Pid, Tid};
use serde_json::{Map, Value, json};

/// Decodes the file, and reports faults.
pub(crate) fn decode_meta(root: &Node<'_>) -> Option<Meta> {
    root.object()?;
    let source_node = root.field("source");
    let source = match source_node.optional_string()?.as_deref() {
        Some("hardware") => Source::Hardware,
        Some("software") => Source::Software,
        None | Some("unknown") => Source::Unknown,
        Some(other) => {
            source_node.report(format!("{other:?} is not a trace source"));
            Source::Unknown
        }
    };
    let created_at = root.field("createdAt");
    let crash_node = root.field("crash");
    let strings = |key| {
        root.field(key)
            .optional_array()
            .map(|list| list.filter_map(|node| node.string()).collect())
    };
    Some(Meta {
        source,
        created_by: root.field("createdBy").optional_string()?,
        created_at: if created_at.exists() {
            created_at.integer(u64::MAX)
        } else {
            None
        },
        program: root.field("program").optional_string()?,
        command_line: strings("commandLine")?,
        crash: if crash_node.exists() {
            crash(&crash_node)
        } else {
            None
        },
        ending: ending(&root.field("ending")),
        host: root.field("host").optional_string()?,
        kernel: root.field("kernel").optional_string()?,
        overhead: overhead(&root.field("overhead")),
        heap_events: heap_events(&root.field("heapEvents")),
        standard_error: standard_error(&root.field("standardError")),
        context: decode_context(&root.field("context")),
        collected: collected(&root.field("collected")),
        notes: strings("notes")?,
    })
}

fn heap_events(node: &Node<'_>) -> Option<u64> {
    node.exists().then(|| node.integer(u64::MAX)).flatten()
}

/// Decodes the last lines of standard error, and cuts them at the maximum length.
fn standard_error(node: &Node<'_>) -> Option<String> {
    let mut text = node.optional_string()??;
    text.truncate(text.floor_char_boundary(MAX_STANDARD_ERROR));
    Some(text)
}

fn overhead(node: &Node<'_>) -> Option<Overhead> {
    if !node.exists() {
        return None;
    }
    node.object()?;
    let program = node.field("programCpu");
    Some(Overhead {
        wall: node.field("wall").integer(u64::MAX)?,
        program_cpu: if program.exists() {
            program.integer(u64::MAX)
        } else {
            None
        },
        recorder_cpu: node.field("recorderCpu").integer(u64::MAX)?,
        stops: node.field("stops").integer(u64::MAX)?,
    })
}

fn collected(node: &Node<'_>) -> Option<Collected> {
    if !node.exists() {
        return None;
    }
    node.object()?;
    let number = |key| {
        let field = node.field(key);
        field.exists().then(|| field.integer(u64::MAX)).flatten()
    };
    let missing = node.field("missing");
    Some(Collected {
        trigger: node.field("trigger").string()?,
        time: number("time"),
        probe: node.field("probe").optional_string()?,
        crash_to_reader: number("crashToReader"),
        crash_to_stop: number("crashToStop"),
        overwritten: number("overwritten"),
        crash_to_held: number("crashToHeld"),
        held: number("held"),
        history: number("history").unwrap_or(0),
        user: number("user").and_then(|user| u32::try_from(user).ok()),
        deposited_by: number("depositedBy").and_then(|user| u32::try_from(user).ok()),
        service: node.field("service").optional_string()?,
        missing: missing
            .optional_array()?
            .filter_map(|node| node.string())
            .collect(),
    })
}

fn crash(node: &Node<'_>) -> Option<Crash> {
    node.object()?;
    let (pid, tid) = (
        node.field("pid").integer(u32::MAX.into()),
        node.field("tid").integer(u32::MAX.into()),
    );
    let (signal, code) = (node.field("signal").signed(), node.field("code").signed());
    let pc = node.field("pc").number();
    let address = node.field("faultAddress");
    Some(Crash {
        pid: Pid(pid? as u32),
        tid: Tid(tid? as u32),
        signal: signal?,
        code: code?,
        fault_address: if address.exists() {
            address.number().map(Avma)
        } else {
            None
        },
        pc: Avma(pc?),
    })
}

fn ending(node: &Node<'_>) -> Option<Ending> {
    if !node.exists() {
        return None;
    }
    node.object()?;
    let (exited, killed) = (node.field("exited"), node.field("killed"));
    match (exited.exists(), killed.exists()) {
        (true, false) => exited.signed().map(Ending::Exited),
        (false, true) => killed.signed().map(Ending::Killed),
        _ => {
            node.report("give either \"exited\" or \"killed\"");
            None
        }
    }
}

/// Encodes `meta`, and omits unknown fields.
pub(crate) fn encode_meta(meta: &Meta) -> Value {
    let source = match meta.source {
        Source::Hardware => "hardware",
        Source::Software => "software",
        Source::Unknown => "unknown",
    };
    let mut object = Map::new();
    object.insert("source".to_owned(), json!(source));
    let mut optional = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(key.to_owned(), value);
        }
    };
    optional("createdBy", meta.created_by.as_ref().map(|text| json!(text)));
    optional("createdAt", meta.created_at.map(|seconds| json!(seconds)));
    optional("program", meta.program.as_ref().map(|text| json!(text)));
    optional(
        "commandLine",
        (!meta.command_line.is_empty()).then(|| json!(meta.command_line)),
    );
    optional("crash", meta.crash.as_ref().map(encode_crash));
    optional("ending", meta.ending.map(encode_ending));
    optional("host", meta.host.as_ref().map(|text| json!(text)));
    optional("kernel", meta.kernel.as_ref().map(|text| json!(text)));
    optional("overhead", meta.overhead.as_ref().map(encode_overhead));
    optional("heapEvents", meta.heap_events.map(|version| json!(version)));
    optional(
        "standardError",
        meta.standard_error.as_ref().map(|text| json!(text)),
    );
    optional("context", meta.context.as_ref().map(encode_context));
    optional("collected", meta.collected.as_ref().map(encode_collected));
    optional("notes", (!meta.notes.is_empty()).then(|| json!(meta.notes)));
    Value::Object(object)
}

fn encode_ending(ending: Ending) -> Value {
    match ending {
        Ending::Exited(status) => json!({"exited": status}),
        Ending::Killed(signal) => json!({"killed": signal}),
    }
}

fn encode_overhead(overhead: &Overhead) -> Value {
    let mut value = json!({
        "wall": overhead.wall,
        "recorderCpu": overhead.recorder_cpu,
        "stops": overhead.stops,
    });
    if let (Some(program), Some(object)) = (overhead.program_cpu, value.as_object_mut()) {
        object.insert("programCpu".to_owned(), json!(program));
    }
    value
}

fn encode_collected(collected: &Collected) -> Value {
    let mut object = Map::new();
    object.insert("trigger".to_owned(), json!(collected.trigger));
    let mut number = |key: &str, value: Option<u64>| {
        if let Some(value) = value {
            object.insert(key.to_owned(), json!(value));
        }
    };
    number("time", collected.time);
    number("crashToReader", collected.crash_to_reader);
    number("crashToStop", collected.crash_to_stop);
    number("overwritten", collected.overwritten);
    number("crashToHeld", collected.crash_to_held);
    number("held", collected.held);
    number("history", Some(collected.history));
    number("user", collected.user.map(u64::from));
    number("depositedBy", collected.deposited_by.map(u64::from));
    for (key, text) in [("probe", &collected.probe), ("service", &collected.service)] {
        if let Some(text) = text {
            object.insert(key.to_owned(), json!(text));
        }
    }
    if !collected.missing.is_empty() {
        object.insert("missing".to_owned(), json!(collected.missing));
    }
    Value::Object(object)
}

fn encode_crash(crash: &Crash) -> Value {
    let mut value = json!({
        "pid": crash.pid.0,
        "tid": crash.tid.0,
        "signal": crash.signal,
        "code": crash.code,
        "pc": crash.pc.to_string(),
    });
    if let (Some(address), Some(object)) = (crash.fault_address, value.as_object_mut()) {
        object.insert("faultAddress".to_owned(), json!(address.to_string()));
    }
    value
}
