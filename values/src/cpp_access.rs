//! What the operators and functions of containers and pointers of the C++ standard library (libstdc++) give: `v[1]`,
//! `m["a"]`, `*p`, `p->x`, `v.size()`.

use super::containers::{Container, Nodes, template};
use super::cpp::{alternative, owned, pointed_by_shared, tuple_part};
use super::evaluate::{Evaluated, outside, wrong};
use super::members::{address, number, path};
use super::scene::Scene;
use super::types::{RecordShape, Shape, Ty};
use super::value::{Gap, Value};

/// An element by its number or key; `None`: it is no such container, or its insides are not as they are known.
pub fn element(scene: &Scene<'_>, value: &Value, record: &RecordShape, key: &Value) -> Option<Evaluated> {
    let index = || scene.whole_number(key);
    let at = |value: &Value| Some(index().and_then(|index| scene.index(value, index)));
    match template(record)?.as_str() {
        "array" => return at(&path(scene, value, &["_M_elems"])?),
        "unique_ptr" => return at(&pointer(scene, value, record)?),
        _ => {}
    }
    let container = Container::of(scene, value, record)?;
    let count = match &container {
        Container::Nodes(nodes) if nodes.pairs => {
            return Some(compares_plainly(record).and_then(|()| by_key(scene, nodes, key)));
        }
        Container::Nodes(_) => return None,
        _ => container.count(scene)?,
    };
    // The zero behind a string is its element, too.
    if let Container::Row(row) = &container
        && is_string(record)
        && index().is_ok_and(|index| index == i128::from(count))
    {
        return Some(Ok(row.at(count)));
    }
    Some(match index() {
        Ok(index) => numbered(scene, &container, index, count),
        Err(failure) => Err(failure),
    })
}

fn is_string(record: &RecordShape) -> bool {
    template(record).as_deref() == Some("basic_string")
}

/// Keys are compared by the library's own functions, and not by code of the program.
fn compares_plainly(record: &RecordShape) -> Evaluated<()> {
    const PLAIN: [&str; 4] = ["std::less<", "std::greater<", "std::hash<", "std::equal_to<"];
    let arguments = &record.record().arguments;
    let mut functions = arguments.iter().filter_map(|argument| {
        let name = record.ty(argument.entry).name();
        ["_Compare", "_Hash", "_Pred"]
            .contains(&&*argument.name)
            .then_some(name)
    });
    match functions.find(|name| !PLAIN.iter().any(|plain| name.starts_with(plain))) {
        None => Ok(()),
        Some(name) => wrong(format!(
            "its keys are compared by code of the program, \"{name}\", which cannot be called"
        )),
    }
}

/// The element with this number, of so many.
fn numbered(scene: &Scene<'_>, container: &Container, index: i128, count: u64) -> Evaluated {
    let inside = u64::try_from(index).ok().filter(|index| *index < count);
    match inside.map(|index| container.at(scene, index)) {
        Some(Some(value)) => Ok(value),
        Some(None) => wrong("its elements do not hang together as they should"),
        None => outside(count),
    }
}

/// A part of a tuple, `__1` for the second; `None`: it is none, or has not so many.
pub fn part(scene: &Scene<'_>, value: &Value, record: &RecordShape, name: &str) -> Option<Value> {
    let number = name.strip_prefix("__")?.parse().ok()?;
    (template(record)? == "tuple").then(|| tuple_part(scene, value, number))?
}

/// The values of a key, as many as are asked for.
fn with_key(scene: &Scene<'_>, nodes: &Nodes, key: &Value, most: usize) -> Evaluated<Vec<Value>> {
    let Some(elements) = nodes.values(scene, Nodes::MOST) else {
        return wrong("its elements do not hang together as they should");
    };
    let mut found = Vec::new();
    let all = elements.len() < Nodes::MOST;
    for element in elements {
        let own = match nodes.pairs {
            true => path(scene, &element, &["first"]),
            false => Some(element.clone()),
        };
        let Some(own) = own else {
            return wrong("its elements are no pairs of a key and a value");
        };
        if scene.is_same(&own, key)? {
            found.push(element);
            if found.len() == most {
                return Ok(found);
            }
        }
    }
    match all {
        true => Ok(found),
        false => wrong("there are too many elements to look for a key among them"),
    }
}

fn by_key(scene: &Scene<'_>, nodes: &Nodes, key: &Value) -> Evaluated {
    let found = with_key(scene, nodes, key, 1)?.pop();
    match found.and_then(|pair| path(scene, &pair, &["second"])) {
        Some(value) => Ok(value),
        None => wrong("it has no such key"),
    }
}

/// What a pointer, an iterator or an `optional` of the library stands for; `None`: it is none.
pub fn target(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Evaluated> {
    match template(record)?.as_str() {
        "__normal_iterator" => {
            let pointer = path(scene, value, &["_M_current"])?;
            return Some(scene.pointed(&pointer));
        }
        "optional" => return contained(scene, value),
        _ => {}
    }
    let pointer = pointer(scene, value, record)?;
    if matches!(pointer.ty.shape(), Shape::Pointer(_, target) if matches!(target.shape(), Shape::Void)) {
        return Some(wrong("what it points to has no type"));
    }
    Some(scene.pointed(&pointer))
}

/// The pointer in a smart pointer; `None`: it is none.
pub fn pointer(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Value> {
    let (pointer, target) = match template(record)?.as_str() {
        "unique_ptr" => owned(scene, value, record)?,
        "shared_ptr" => pointed_by_shared(scene, value, record)?,
        _ => return None,
    };
    Some(pointer.with_type(target.pointer()))
}

fn is_engaged(scene: &Scene<'_>, value: &Value) -> Option<bool> {
    Some(number(scene, &path(scene, value, &["_M_payload", "_M_engaged"])?)? != 0)
}

fn contained(scene: &Scene<'_>, value: &Value) -> Option<Evaluated> {
    Some(match is_engaged(scene, value)? {
        true => Ok(path(scene, value, &["_M_payload", "_M_payload", "_M_value"])?),
        false => wrong("it holds no value"),
    })
}

/// What is asked in its place whether it is true: the pointer in a smart pointer; of an `optional`, whether it holds a value.
/// `None`: it is neither.
pub fn truth(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Value> {
    match template(record)?.as_str() {
        "optional" => Some(scene.truth(is_engaged(scene, value)?)),
        _ => pointer(scene, value, record),
    }
}

/// What a function of a container or pointer would give; `None`: it is not known of this one.
pub fn method(
    scene: &Scene<'_>,
    value: &Value,
    record: &RecordShape,
    name: &str,
    arguments: &[Value],
) -> Option<Evaluated> {
    let template = template(record)?;
    let count = |count: u64| Some(Ok(Value::number(Ty::unsigned_long(), i128::from(count))));
    let container = || Container::of(scene, value, record);
    match (template.as_str(), name, arguments) {
        ("unique_ptr" | "shared_ptr", "get", []) => Some(Ok(pointer(scene, value, record)?)),
        ("shared_ptr" | "weak_ptr", "use_count", []) => {
            let counts = path(scene, value, &["_M_refcount", "_M_pi"])?;
            if address(scene, &counts)? == 0 {
                return count(0);
            }
            let counts = scene.pointed(&counts).ok()?;
            Some(Ok(path(scene, &counts, &["_M_use_count"])?))
        }
        ("optional", "has_value", []) => Some(Ok(truth(scene, value, record)?)),
        ("optional", "value", []) => contained(scene, value),
        ("variant", "index", []) => match alternative(scene, value, record)? {
            Some((index, _)) => count(index as u64),
            None => count(u64::MAX),
        },
        (_, "size", []) => count(container()?.count(scene)?),
        ("basic_string" | "basic_string_view", "length", []) => count(container()?.count(scene)?),
        (_, "capacity", []) => match container()? {
            Container::Row(row) => count(row.capacity?),
            Container::Bits(bits) => count(bits.capacity?),
            _ => None,
        },
        (_, "empty", []) => {
            let Container::Nodes(nodes) = container()? else {
                return Some(Ok(scene.truth(container()?.count(scene)? == 0)));
            };
            Some(Ok(scene.truth(nodes.values(scene, 1)?.is_empty())))
        }
        ("basic_string" | "basic_string_view" | "vector" | "array", "data" | "c_str", []) => {
            let first = Value::number(Ty::int(), 0);
            let first = element(scene, value, record, &first)?;
            Some(first.and_then(|first| match first.address() {
                Some(at) => Ok(Value::number(first.ty.pointer(), i128::from(at))),
                None => wrong("it has no address: it is not in memory"),
            }))
        }
        (_, "front", []) => {
            let container = container()?;
            Some(
                match container.at(scene, 0).filter(|_| !is_empty(scene, &container)) {
                    Some(first) => Ok(first),
                    None => wrong("it has no elements"),
                },
            )
        }
        (_, "back", []) => {
            let container = container()?;
            Some(
                match container.last(scene).filter(|_| !is_empty(scene, &container)) {
                    Some(last) => Ok(last),
                    None => wrong("it has no elements"),
                },
            )
        }
        (_, "at", [key]) => match container()? {
            Container::Nodes(nodes) if !nodes.pairs => None,
            Container::Nodes(nodes) => {
                Some(compares_plainly(record).and_then(|()| by_key(scene, &nodes, key)))
            }
            other => {
                let elements = other.count(scene)?;
                let index = scene.whole_number(key);
                Some(index.and_then(|index| numbered(scene, &other, index, elements)))
            }
        },
        ("bitset", "test", [key]) => element(scene, value, record, key),
        ("list", "count" | "contains", _) => None,
        (_, "count", [key]) => match container()? {
            Container::Nodes(nodes) => {
                let found = compares_plainly(record).and_then(|()| with_key(scene, &nodes, key, usize::MAX));
                match found {
                    Ok(found) => count(found.len() as u64),
                    Err(failure) => Some(Err(failure)),
                }
            }
            _ => None,
        },
        (_, "contains", [key]) => match container()? {
            Container::Nodes(nodes) => {
                let found = compares_plainly(record).and_then(|()| with_key(scene, &nodes, key, 1));
                Some(found.map(|found| scene.truth(!found.is_empty())))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_empty(scene: &Scene<'_>, container: &Container) -> bool {
    match container {
        Container::Nodes(nodes) => nodes.values(scene, 1).is_none_or(|first| first.is_empty()),
        other => other.count(scene) == Some(0),
    }
}

/// The characters of a string, as bytes; `None`: it is none, or its insides are not as they are known.
pub fn text(
    scene: &Scene<'_>,
    value: &Value,
    record: &RecordShape,
    most: u64,
) -> Option<Result<Vec<u8>, Gap>> {
    match Container::of(scene, value, record)? {
        Container::Row(row) if template(record)?.starts_with("basic_string") => {
            row.units()?;
            match row.count > most {
                true => Some(Err(Gap::Unknown("too long a text to be compared".into()))),
                false => row.bytes(scene, most),
            }
        }
        _ => None,
    }
}
