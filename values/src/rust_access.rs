//! What the operators and functions of containers of Rust's standard library give: `v[1]`, `m["a"]`, `v.len()`.

use super::evaluate::{Evaluated, outside, wrong};
use super::rust_containers::{Container, Table};
use super::scene::Scene;
use super::types::{RecordShape, Ty};
use super::value::{Gap, Value};

/// An element by its number or key.
pub fn element(scene: &Scene<'_>, value: &Value, record: &RecordShape, key: &Value) -> Evaluated {
    let (value, count) = match Container::of(scene, value, record) {
        Some(Container::Row(row)) => (index(scene, key, row.count)?.map(|at| row.at(at)), row.count),
        Some(Container::Deque(deque)) => {
            let at = index(scene, key, deque.count)?;
            (at.map(|at| deque.at(at)), deque.count)
        }
        Some(Container::Table(table)) => {
            return match with_key(scene, &table, key)? {
                Some(value) => Ok(value),
                None => wrong("it has no such key"),
            };
        }
        Some(Container::Text(_)) | None => return wrong("it is no array and no pointer"),
    };
    value.map_or_else(|| outside(count), Ok)
}

fn index(scene: &Scene<'_>, key: &Value, count: u64) -> Evaluated<Option<u64>> {
    let index = u64::try_from(scene.whole_number(key)?).ok();
    Ok(index.filter(|index| *index < count))
}

fn with_key(scene: &Scene<'_>, table: &Table, key: &Value) -> Evaluated<Option<Value>> {
    let Some(entries) = table.entries(scene, Table::MOST) else {
        return wrong("its elements do not hang together as they should");
    };
    let all = entries.len() < Table::MOST;
    for (own, value) in entries {
        if scene.is_same(&own, key)? {
            return Ok(Some(value));
        }
    }
    match all {
        true => Ok(None),
        false => wrong("there are too many elements to look for a key among them"),
    }
}

/// What a function of a container would give; `None`: it is not known of this one.
pub fn method(
    scene: &Scene<'_>,
    value: &Value,
    record: &RecordShape,
    name: &str,
    arguments: &[Value],
) -> Option<Evaluated> {
    let container = Container::of(scene, value, record)?;
    match (name, arguments) {
        ("len", []) => {
            let count = i128::from(container.count());
            Some(Ok(Value::number(
                scene.type_named("usize").unwrap_or_else(Ty::unsigned_long),
                count,
            )))
        }
        ("is_empty", []) => Some(Ok(scene.truth(container.count() == 0))),
        ("contains_key" | "contains", [key]) => match &container {
            Container::Table(table) => {
                let found = with_key(scene, table, key);
                Some(found.map(|found| scene.truth(found.is_some())))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The bytes of a string; `None`: it is none, or its insides are not as they are known.
pub fn text(
    scene: &Scene<'_>,
    value: &Value,
    record: &RecordShape,
    most: u64,
) -> Option<Result<Vec<u8>, Gap>> {
    match Container::of(scene, value, record)? {
        Container::Text(row) if row.count > most => {
            Some(Err(Gap::Unknown("too long a text to be compared".into())))
        }
        Container::Text(row) => row.bytes(scene, most),
        _ => None,
    }
}
