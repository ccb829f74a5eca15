//! The operators and member functions of containers of Rust's standard library: `v[1]`, `m["a"]`,
//! `v.len()`.

use super::context::EvalContext;
use super::failure::{Evaluated, outside, wrong};
use super::rust_containers::{RustContainer, RustHashTable};
use super::types::{RecordShape, Ty};
use super::value::{Unavailable, Value};

/// An element by its number or key.
pub fn element(context: &EvalContext<'_>, value: &Value, record: &RecordShape, key: &Value) -> Evaluated {
    let (value, count) = match RustContainer::of(context, value, record) {
        Some(RustContainer::Slice(row)) => (index(context, key, row.count)?.map(|at| row.at(at)), row.count),
        Some(RustContainer::Deque(deque)) => {
            let at = index(context, key, deque.count)?;
            (at.map(|at| deque.at(at)), deque.count)
        }
        Some(RustContainer::HashTable(table)) => {
            return match with_key(context, &table, key)? {
                Some(value) => Ok(value),
                None => wrong("it has no such key"),
            };
        }
        Some(RustContainer::Text(_)) | None => return wrong("it is neither an array nor a pointer"),
    };
    value.map_or_else(|| outside(count), Ok)
}

fn index(context: &EvalContext<'_>, key: &Value, count: u64) -> Evaluated<Option<u64>> {
    let index = u64::try_from(context.whole_number(key)?).ok();
    Ok(index.filter(|index| *index < count))
}

fn with_key(context: &EvalContext<'_>, table: &RustHashTable, key: &Value) -> Evaluated<Option<Value>> {
    let Some(entries) = table.entries(context, RustHashTable::MOST) else {
        return wrong("the container is inconsistent");
    };
    let all = entries.len() < RustHashTable::MOST;
    for (own, value) in entries {
        if context.is_same(&own, key)? {
            return Ok(Some(value));
        }
    }
    match all {
        true => Ok(None),
        false => wrong("it has too many elements to search for a key"),
    }
}

/// Returns the result of a method of a container; `None` if the method is not supported.
pub fn method(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    name: &str,
    arguments: &[Value],
) -> Option<Evaluated> {
    let container = RustContainer::of(context, value, record)?;
    match (name, arguments) {
        ("len", []) => {
            let count = i128::from(container.count());
            Some(Ok(Value::number(
                context.type_named("usize").unwrap_or_else(Ty::unsigned_long),
                count,
            )))
        }
        ("is_empty", []) => Some(Ok(context.truth(container.count() == 0))),
        ("contains_key" | "contains", [key]) => match &container {
            RustContainer::HashTable(table) => {
                let found = with_key(context, table, key);
                Some(found.map(|found| context.truth(found.is_some())))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The bytes of a string; `None`: it is none, or its layout is unknown.
pub fn text(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    most: u64,
) -> Option<Result<Vec<u8>, Unavailable>> {
    match RustContainer::of(context, value, record)? {
        RustContainer::Text(row) if row.count > most => Some(Err(Unavailable::Unknown(
            "the string is too long to compare".into(),
        ))),
        RustContainer::Text(row) => row.bytes(context, most),
        _ => None,
    }
}
