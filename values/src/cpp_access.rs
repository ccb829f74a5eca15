//! The operators and member functions of containers and pointers of libstdc++: `v[1]`, `m["a"]`,
//! `*p`, `p->x`, `v.size()`.

use super::containers::{CppContainer, CppNodes, template};
use super::context::EvalContext;
use super::cpp::{alternative, owned, pointed_by_shared, tuple_part};
use super::failure::{Evaluated, outside, wrong};
use super::members::{address, number, path};
use super::types::{RecordShape, Shape, Ty};
use super::value::{Unavailable, Value};

/// An element by its number or key; `None`: it is no such container, or its layout is
/// unknown.
pub fn element(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    key: &Value,
) -> Option<Evaluated> {
    let index = || context.whole_number(key);
    let at = |value: &Value| Some(index().and_then(|index| context.index(value, index)));
    match template(record)?.as_str() {
        "array" => return at(&path(context, value, &["_M_elems"])?),
        "unique_ptr" => return at(&pointer(context, value, record)?),
        _ => {}
    }
    let container = CppContainer::of(context, value, record)?;
    let count = match &container {
        CppContainer::Nodes(nodes) if nodes.pairs => {
            return Some(compares_plainly(record).and_then(|()| by_key(context, nodes, key)));
        }
        CppContainer::Nodes(_) => return None,
        _ => container.count(context)?,
    };
    // The terminating zero of a string is an element too.
    if let CppContainer::Array(row) = &container
        && is_string(record)
        && index().is_ok_and(|index| index == i128::from(count))
    {
        return Some(Ok(row.at(count)));
    }
    Some(match index() {
        Ok(index) => numbered(context, &container, index, count),
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
            "its keys are compared by the program's function \"{name}\", which cannot be called"
        )),
    }
}

/// Returns the element with this number of `count`.
fn numbered(context: &EvalContext<'_>, container: &CppContainer, index: i128, count: u64) -> Evaluated {
    let inside = u64::try_from(index).ok().filter(|index| *index < count);
    match inside.map(|index| container.at(context, index)) {
        Some(Some(value)) => Ok(value),
        Some(None) => wrong("the container is inconsistent"),
        None => outside(count),
    }
}

/// Returns a part of a tuple, `__1` for the second; `None` if the value is not a tuple or has no
/// such part.
pub fn part(context: &EvalContext<'_>, value: &Value, record: &RecordShape, name: &str) -> Option<Value> {
    let number = name.strip_prefix("__")?.parse().ok()?;
    (template(record)? == "tuple").then(|| tuple_part(context, value, number))?
}

/// Returns up to `most` values of a key.
fn with_key(context: &EvalContext<'_>, nodes: &CppNodes, key: &Value, most: usize) -> Evaluated<Vec<Value>> {
    let Some(elements) = nodes.values(context, CppNodes::MOST) else {
        return wrong("the container is inconsistent");
    };
    let mut found = Vec::new();
    let all = elements.len() < CppNodes::MOST;
    for element in elements {
        let own = match nodes.pairs {
            true => path(context, &element, &["first"]),
            false => Some(element.clone()),
        };
        let Some(own) = own else {
            return wrong("its elements are not pairs of a key and a value");
        };
        if context.is_same(&own, key)? {
            found.push(element);
            if found.len() == most {
                return Ok(found);
            }
        }
    }
    match all {
        true => Ok(found),
        false => wrong("it has too many elements to search for a key"),
    }
}

fn by_key(context: &EvalContext<'_>, nodes: &CppNodes, key: &Value) -> Evaluated {
    let found = with_key(context, nodes, key, 1)?.pop();
    match found.and_then(|pair| path(context, &pair, &["second"])) {
        Some(value) => Ok(value),
        None => wrong("it has no such key"),
    }
}

/// Dereferences a pointer, iterator or `optional` of the library; `None` if the value is none of
/// them.
pub fn target(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Evaluated> {
    match template(record)?.as_str() {
        "__normal_iterator" => {
            let pointer = path(context, value, &["_M_current"])?;
            return Some(context.pointed(&pointer));
        }
        "optional" => return contained(context, value),
        _ => {}
    }
    let pointer = pointer(context, value, record)?;
    if matches!(pointer.ty.shape(), Shape::Pointer(_, target) if matches!(target.shape(), Shape::Void)) {
        return Some(wrong("it points to void"));
    }
    Some(context.pointed(&pointer))
}

/// The pointer in a smart pointer; `None`: it is none.
pub fn pointer(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Value> {
    let (pointer, target) = match template(record)?.as_str() {
        "unique_ptr" => owned(context, value, record)?,
        "shared_ptr" => pointed_by_shared(context, value, record)?,
        _ => return None,
    };
    Some(pointer.with_type(target.pointer()))
}

fn is_engaged(context: &EvalContext<'_>, value: &Value) -> Option<bool> {
    Some(number(context, &path(context, value, &["_M_payload", "_M_engaged"])?)? != 0)
}

fn contained(context: &EvalContext<'_>, value: &Value) -> Option<Evaluated> {
    Some(match is_engaged(context, value)? {
        true => Ok(path(context, value, &["_M_payload", "_M_payload", "_M_value"])?),
        false => wrong("it holds no value"),
    })
}

/// Returns the value that decides a condition: the pointer of a smart pointer, or whether an
/// `optional` has a value; `None` for other types.
pub fn truth(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<Value> {
    match template(record)?.as_str() {
        "optional" => Some(context.truth(is_engaged(context, value)?)),
        _ => pointer(context, value, record),
    }
}

/// Returns the result of a member function of a container or pointer; `None` if the function is not
/// supported.
pub fn method(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    name: &str,
    arguments: &[Value],
) -> Option<Evaluated> {
    let template = template(record)?;
    let count = |count: u64| Some(Ok(Value::number(Ty::unsigned_long(), i128::from(count))));
    let container = || CppContainer::of(context, value, record);
    match (template.as_str(), name, arguments) {
        ("unique_ptr" | "shared_ptr", "get", []) => Some(Ok(pointer(context, value, record)?)),
        ("shared_ptr" | "weak_ptr", "use_count", []) => {
            let counts = path(context, value, &["_M_refcount", "_M_pi"])?;
            if address(context, &counts)? == 0 {
                return count(0);
            }
            let counts = context.pointed(&counts).ok()?;
            Some(Ok(path(context, &counts, &["_M_use_count"])?))
        }
        ("optional", "has_value", []) => Some(Ok(truth(context, value, record)?)),
        ("optional", "value", []) => contained(context, value),
        ("variant", "index", []) => match alternative(context, value, record)? {
            Some((index, _)) => count(index as u64),
            None => count(u64::MAX),
        },
        (_, "size", []) => count(container()?.count(context)?),
        ("basic_string" | "basic_string_view", "length", []) => count(container()?.count(context)?),
        (_, "capacity", []) => match container()? {
            CppContainer::Array(row) => count(row.capacity?),
            CppContainer::BitVector(bits) => count(bits.capacity?),
            _ => None,
        },
        (_, "empty", []) => {
            let CppContainer::Nodes(nodes) = container()? else {
                return Some(Ok(context.truth(container()?.count(context)? == 0)));
            };
            Some(Ok(context.truth(nodes.values(context, 1)?.is_empty())))
        }
        ("basic_string" | "basic_string_view" | "vector" | "array", "data" | "c_str", []) => {
            let first = Value::number(Ty::int(), 0);
            let first = element(context, value, record, &first)?;
            Some(first.and_then(|first| match first.address() {
                Some(at) => Ok(Value::number(first.ty.pointer(), i128::from(at))),
                None => wrong("it is not in memory, so it has no address"),
            }))
        }
        _ => element_method(context, value, record, name, arguments),
    }
}

/// Returns the result of a member function of a container that reads its elements.
fn element_method(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    name: &str,
    arguments: &[Value],
) -> Option<Evaluated> {
    let template = template(record)?;
    let count = |count: u64| Some(Ok(Value::number(Ty::unsigned_long(), i128::from(count))));
    let container = || CppContainer::of(context, value, record);
    match (template.as_str(), name, arguments) {
        (_, "front", []) => {
            let container = container()?;
            Some(
                match container
                    .at(context, 0)
                    .filter(|_| !is_empty(context, &container))
                {
                    Some(first) => Ok(first),
                    None => wrong("it has no elements"),
                },
            )
        }
        (_, "back", []) => {
            let container = container()?;
            Some(
                match container.last(context).filter(|_| !is_empty(context, &container)) {
                    Some(last) => Ok(last),
                    None => wrong("it has no elements"),
                },
            )
        }
        (_, "at", [key]) => match container()? {
            CppContainer::Nodes(nodes) if !nodes.pairs => None,
            CppContainer::Nodes(nodes) => {
                Some(compares_plainly(record).and_then(|()| by_key(context, &nodes, key)))
            }
            other => {
                let elements = other.count(context)?;
                let index = context.whole_number(key);
                Some(index.and_then(|index| numbered(context, &other, index, elements)))
            }
        },
        ("bitset", "test", [key]) => element(context, value, record, key),
        ("list", "count" | "contains", _) => None,
        (_, "count", [key]) => match container()? {
            CppContainer::Nodes(nodes) => {
                let found =
                    compares_plainly(record).and_then(|()| with_key(context, &nodes, key, usize::MAX));
                match found {
                    Ok(found) => count(found.len() as u64),
                    Err(failure) => Some(Err(failure)),
                }
            }
            _ => None,
        },
        (_, "contains", [key]) => match container()? {
            CppContainer::Nodes(nodes) => {
                let found = compares_plainly(record).and_then(|()| with_key(context, &nodes, key, 1));
                Some(found.map(|found| context.truth(!found.is_empty())))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_empty(context: &EvalContext<'_>, container: &CppContainer) -> bool {
    match container {
        CppContainer::Nodes(nodes) => nodes.values(context, 1).is_none_or(|first| first.is_empty()),
        other => other.count(context) == Some(0),
    }
}

/// The characters of a string, as bytes; `None`: it is none, or its layout is
/// unknown.
pub fn text(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
    most: u64,
) -> Option<Result<Vec<u8>, Unavailable>> {
    match CppContainer::of(context, value, record)? {
        CppContainer::Array(row) if template(record)?.starts_with("basic_string") => {
            row.units()?;
            match row.count > most {
                true => Some(Err(Unavailable::Unknown(
                    "the string is too long to compare".into(),
                ))),
                false => row.bytes(context, most),
            }
        }
        _ => None,
    }
}
