//! Values of Rust: records as the source writes them, and types of the standard library as what
//! they hold.

use super::formatted::{FormattedMember, FormattedValue, listed, numbered, text};
use super::formatter::ValueFormatter;
use super::members::{self, active, number, path};
use super::rust_containers::{RustContainer, RustHashTable, RustSlice};
use super::text::quoted;
use super::types::{RecordShape, Shape};
use super::value::{Unavailable, Value};
use backtrail_symbolizer::types::MemberLocation;

impl ValueFormatter<'_> {
    /// Formats a Rust structure, tuple or enumeration by its members.
    pub(crate) fn format_rust_record(
        &self,
        value: &Value,
        record: &RecordShape,
        depth: u32,
    ) -> Result<FormattedValue, Unavailable> {
        self::record(self, value, record, depth)
    }

    /// Formats a value of a Rust library type as its contents; `None` for other types.
    pub(crate) fn format_rust(
        &self,
        value: &Value,
        record: &RecordShape,
        depth: u32,
    ) -> Option<FormattedValue> {
        show(self, value, record, depth)
    }
}

/// A record: `Point {x: 1, y: 2}`, `Some(5)`, `(1, 2)`.
fn record(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Result<FormattedValue, Unavailable> {
    if let Some(form) = active(formatter.context, record, value)? {
        return Ok(variant(formatter, record, &form, depth));
    }
    if record.record().variants.is_some() {
        return Err(Unavailable::Unknown("its layout is not known".into()));
    }
    Ok(fields(formatter, value, record, record.name(), depth))
}

/// `core::option::Option<i32>::Some(5)`.
fn variant(formatter: &ValueFormatter<'_>, whole: &RecordShape, form: &Value, depth: u32) -> FormattedValue {
    let Shape::Record(inner) = form.ty.shape() else {
        return text("<unknown: its layout is not a record>");
    };
    let last = inner
        .name()
        .strip_prefix(whole.name())
        .map(|rest| rest.trim_start_matches("::"));
    let name = match last {
        Some(last) if !last.is_empty() => format!("{}::{last}", whole.name()),
        _ => format!("{}::{}", whole.name(), inner.name()),
    };
    fields(formatter, form, &inner, &name, depth)
}

fn fields(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    name: &str,
    depth: u32,
) -> FormattedValue {
    let own = record
        .record()
        .members
        .iter()
        .filter(|member| !matches!(member.location, MemberLocation::Static(_)));
    let shown: Vec<FormattedMember> = own
        .map(|member| {
            let inner = members::value_of(formatter.context, record, value, member);
            let name = member.name.as_deref().unwrap_or_default();
            FormattedMember::new(name, formatter.show(&inner, depth + 1))
        })
        .collect();
    let is_tuple = name.starts_with('(');
    let numbered = !shown.is_empty()
        && (0..)
            .zip(&shown)
            .all(|(number, member): (usize, _)| member.name == format!("__{number}"));
    let texts = |named: bool| -> Vec<String> {
        shown
            .iter()
            .map(|member| match named {
                true => format!("{}: {}", member.name, member.value.text),
                false => member.value.text.clone(),
            })
            .collect()
    };
    let text = if is_tuple || numbered {
        let prefix = if is_tuple { "" } else { name };
        format!("{prefix}({})", texts(false).join(", "))
    } else if shown.is_empty() {
        name.to_owned()
    } else {
        format!("{name} {{{}}}", texts(true).join(", "))
    };
    FormattedValue::with_members(text, shown)
}

/// A type of the standard library as what it holds; `None`: it is none, or its layout is unknown.
fn show(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let name = record.name();
    let is = |path: &str| name == path || name.strip_prefix(path).is_some_and(|rest| rest.starts_with('<'));
    match RustContainer::of(context, value, record) {
        Some(RustContainer::Text(row)) => return string(formatter, &row),
        Some(RustContainer::Slice(row)) if name.starts_with("alloc::") => {
            return Some(elements(formatter, &row, "Vec", depth));
        }
        Some(RustContainer::Slice(row)) => return Some(elements(formatter, &row, "&", depth)),
        Some(RustContainer::Deque(deque)) => {
            let values = (0..deque.count).map(|number| deque.at(number));
            return Some(counted_list(formatter, "VecDeque", deque.count, values, depth));
        }
        Some(RustContainer::HashTable(found)) => {
            let last = name.split('<').next().unwrap_or(name);
            let last = last.rsplit("::").next().unwrap_or(last);
            return table(formatter, &found, last, depth);
        }
        None => {}
    }
    if is("alloc::rc::Rc") || is("alloc::sync::Arc") {
        return counted(formatter, value, depth);
    }
    if is("core::cell::Cell") || is("core::cell::UnsafeCell") {
        let inner = path(context, value, &["value"])?;
        return Some(formatter.show(&inner, depth));
    }
    if is("core::num::nonzero::NonZero") {
        let inner = path(context, value, &["__0", "__0"]).or_else(|| path(context, value, &["__0"]))?;
        return Some(formatter.show(&inner, depth));
    }
    if is("core::cell::RefCell") {
        let borrow = path(context, value, &["borrow", "value", "value"])
            .or_else(|| path(context, value, &["borrow", "v", "value", "value"]))?;
        let held = path(context, value, &["value", "value"])?;
        let borrow = number(context, &borrow)?;
        let held = formatter.show(&held, depth + 1);
        return Some(FormattedValue::with_members(
            format!("RefCell(borrow={borrow}) {{{}}}", held.text),
            vec![FormattedMember::new("value", held)],
        ));
    }
    None
}

fn string(formatter: &ValueFormatter<'_>, row: &RustSlice) -> Option<FormattedValue> {
    let limit = formatter.context.elements;
    Some(match row.bytes(formatter.context, limit as u64)? {
        Ok(bytes) => text(quoted(&bytes, row.count > limit as u64, limit)),
        Err(cause) => FormattedValue::unavailable(&cause),
    })
}

fn elements(formatter: &ValueFormatter<'_>, row: &RustSlice, name: &str, depth: u32) -> FormattedValue {
    let values = (0..row.count).map(|number| row.at(number));
    counted_list(formatter, name, row.count, values, depth)
}

fn counted_list(
    formatter: &ValueFormatter<'_>,
    name: &str,
    count: u64,
    values: impl Iterator<Item = Value>,
    depth: u32,
) -> FormattedValue {
    let (shown, more) = formatter.elements(numbered(values), depth);
    let listed = listed(&shown, more, false);
    let text = match name {
        "&" => format!("&[{listed}]"),
        name => format!("{name}(size={count}) = {{{listed}}}"),
    };
    FormattedValue::with_members(text, shown)
}

/// `Rc` and `Arc`: what is counted, and how often it is held.
fn counted(formatter: &ValueFormatter<'_>, value: &Value, depth: u32) -> Option<FormattedValue> {
    let context = formatter.context;
    let pointer = path(context, value, &["ptr", "pointer"])?;
    let inner = context.pointed(&pointer).ok()?;
    let count = |name: &str| {
        let counter = path(context, &inner, &[name, "value", "value"])
            .or_else(|| path(context, &inner, &[name, "v", "value"]))
            .or_else(|| path(context, &inner, &[name, "v", "value", "__0"]))?;
        number(context, &counter)
    };
    let (strong, weak) = (count("strong")?, count("weak")?);
    let held = path(context, &inner, &["value"]).or_else(|| path(context, &inner, &["data"]))?;
    let held = formatter.show(&held, depth + 1);
    let kind = match value.ty.name() {
        name if name.starts_with("alloc::rc") => "Rc",
        _ => "Arc",
    };
    // All strong ones together hold one weak.
    let weak = weak.saturating_sub(1);
    Some(FormattedValue::with_members(
        format!("{kind}(strong={strong}, weak={weak}) = {{{}}}", held.text),
        vec![FormattedMember::new("value", held)],
    ))
}

/// `HashMap(size=1) = {["a"]: 1}`, and its like of sets.
fn table(
    formatter: &ValueFormatter<'_>,
    table: &RustHashTable,
    name: &str,
    depth: u32,
) -> Option<FormattedValue> {
    let entries = table.entries(formatter.context, formatter.context.elements)?;
    let more = table.count > entries.len() as u64;
    let is_set = name.ends_with("Set");
    let mut shown = Vec::new();
    for (key, value) in entries {
        let key = formatter.show(&key, depth + 1);
        if is_set {
            shown.push(FormattedMember::new(format!("[{}]", shown.len()), key));
            continue;
        }
        let value = formatter.show(&value, depth + 1);
        shown.push(FormattedMember::new(format!("[{}]", key.text), value));
    }
    Some(FormattedValue::with_members(
        format!(
            "{name}(size={}) = {{{}}}",
            table.count,
            listed(&shown, more, !is_set)
        ),
        shown,
    ))
}
