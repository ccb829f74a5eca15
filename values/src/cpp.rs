//! Types of the C++ standard library (libstdc++) as what they hold, as its own printers for GDB show them.

use super::containers::Container;
use super::members::{address, number, path};
use super::names::short;
use super::scene::Scene;
use super::show::{Shower, Shown, ShownMember, listed, text};
use super::types::{RecordShape, Shape, Ty};
use super::value::{MAX_SIZE, Value};
use backtrail_symbolizer::types::PointerKind;

/// A container as what it holds; `None`: it is none, or its insides are not as they are known.
pub fn show(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let name = record.name().replace("__cxx11::", "").replace("__debug::", "");
    let (template, _) = name.strip_prefix("std::")?.split_once('<')?;
    match template {
        "basic_string" | "basic_string_view" => string(shower, value, record),
        "vector" => vector(shower, value, record, depth),
        "map" | "multimap" | "set" | "multiset" | "unordered_map" | "unordered_multimap"
        | "unordered_set" | "unordered_multiset" => associative(shower, value, record, template, depth),
        "list" => list(shower, value, record, depth),
        "deque" => deque(shower, value, record, depth),
        "optional" => optional(shower, value, record, depth),
        "unique_ptr" => unique(shower, value, record, depth),
        "pair" => pair(shower, value, depth),
        "tuple" => tuple(shower, value, depth),
        "variant" => variant(shower, value, record, depth),
        "bitset" => bitset(shower, value, record, depth),
        "shared_ptr" | "weak_ptr" => shared(shower, value, record, template, depth),
        _ => None,
    }
}

fn string(shower: &Shower<'_>, value: &Value, record: &RecordShape) -> Option<Shown> {
    let limit = shower.scene.elements;
    let Container::Row(row) = Container::of(shower.scene, value, record)? else {
        return None;
    };
    let units = row.units()?;
    Some(match row.bytes(shower.scene, limit as u64)? {
        Ok(bytes) => text(units.quoted(&bytes, row.count > limit as u64, limit)),
        Err(gap) => Shown {
            unknown: Some(gap.reason()),
            ..text(gap.text())
        },
    })
}

/// `std::vector of length 2 = {1, 2}`.
fn container(
    shower: &Shower<'_>,
    title: String,
    values: impl Iterator<Item = (String, Value)>,
    named: bool,
    depth: u32,
) -> Shown {
    let (shown, more) = shower.elements(values, depth);
    Shown {
        text: match shown.is_empty() {
            true => title,
            false => format!("{title} = {{{}}}", listed(&shown, more, named)),
        },
        members: shown,
        ..Shown::default()
    }
}

fn vector(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let title = |name: &str, count: u64, capacity: Option<u64>| {
        Some(format!("{name} of length {count}, capacity {}", capacity?))
    };
    match Container::of(scene, value, record)? {
        Container::Bits(bits) => {
            let title = title("std::vector<bool>", bits.count, bits.capacity)?;
            let values = (0..bits.count).map(|number| (format!("[{number}]"), bits.at(scene, number)));
            Some(container(shower, title, values, false, depth))
        }
        Container::Row(row) => {
            let title = title("std::vector", row.count, row.capacity)?;
            let values = (0..row.count).map(|number| (format!("[{number}]"), row.at(number)));
            Some(container(shower, title, values, false, depth))
        }
        _ => None,
    }
}

fn key_and_value(
    shower: &Shower<'_>,
    pairs: Vec<Value>,
    count: u64,
    title: String,
    depth: u32,
) -> Option<Shown> {
    let mut shown = Vec::new();
    for pair in pairs.iter().take(shower.scene.elements) {
        let key = shower.show(&path(shower.scene, pair, &["first"])?, depth + 1);
        let value = shower.show(&path(shower.scene, pair, &["second"])?, depth + 1);
        shown.push(ShownMember::new(format!("[{}]", key.text), value));
    }
    let more = count > shown.len() as u64;
    Some(Shown {
        text: match shown.is_empty() {
            true => title,
            false => format!("{title} = {{{}}}", listed(&shown, more, true)),
        },
        members: shown,
        ..Shown::default()
    })
}

fn numbered(values: Vec<Value>) -> impl Iterator<Item = (String, Value)> {
    (0..)
        .zip(values)
        .map(|(number, value): (usize, _)| (format!("[{number}]"), value))
}

/// Of a tree or a table of hashes.
fn associative(
    shower: &Shower<'_>,
    value: &Value,
    record: &RecordShape,
    template: &str,
    depth: u32,
) -> Option<Shown> {
    let scene = shower.scene;
    let Container::Nodes(nodes) = Container::of(scene, value, record)? else {
        return None;
    };
    let count = nodes.count(scene)?;
    let most = if nodes.pairs {
        scene.elements + 1
    } else {
        MAX_SIZE as usize
    };
    let values = nodes.values(scene, most)?;
    let title = format!("std::{template} with {count} element{}", plural(count));
    match nodes.pairs {
        true => key_and_value(shower, values, count, title, depth),
        false => Some(container(shower, title, numbered(values), true, depth)),
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `{first = 1, second = 2}`.
fn pair(shower: &Shower<'_>, value: &Value, depth: u32) -> Option<Shown> {
    let part = |name: &str| {
        let part = path(shower.scene, value, &[name])?;
        Some(ShownMember::new(name, shower.show(&part, depth + 1)))
    };
    let members = vec![part("first")?, part("second")?];
    Some(Shown {
        text: format!("{{{}}}", listed(&members, false, true)),
        members,
        ..Shown::default()
    })
}

/// The base of a record, or of a base of it, whose name begins so.
fn base(scene: &Scene<'_>, value: &Value, name: &str) -> Option<Value> {
    /// No genuine class has more bases.
    const MAX_BASES: u32 = 1 << 10;
    base_within(scene, value, name, &mut { MAX_BASES })
}

/// The same, of so many at most.
fn base_within(scene: &Scene<'_>, value: &Value, name: &str, left: &mut u32) -> Option<Value> {
    *left = left.checked_sub(1)?;
    let Shape::Record(record) = value.ty.shape() else {
        return None;
    };
    if record.name().starts_with(name) {
        return Some(value.clone());
    }
    let bases = record.record().members.iter().filter(|member| member.base);
    let mut bases = bases.map(|member| super::members::value_of(scene, &record, value, member));
    bases.find_map(|inner| base_within(scene, &inner, name, left))
}

fn list(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let Container::Nodes(nodes) = Container::of(scene, value, record)? else {
        return None;
    };
    let values = nodes.values(scene, MAX_SIZE as usize)?;
    let title = match values.is_empty() {
        true => "empty std::__cxx11::list".to_owned(),
        false => "std::__cxx11::list".to_owned(),
    };
    Some(container(shower, title, numbered(values), true, depth))
}

fn deque(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let Container::Deque(deque) = Container::of(shower.scene, value, record)? else {
        return None;
    };
    // A run may be longer than what is shown.
    let some = deque.count.min(MAX_SIZE);
    let values: Option<Vec<Value>> = (0..some).map(|number| deque.at(shower.scene, number)).collect();
    let title = match deque.count {
        0 => "std::deque with 0 elements".to_owned(),
        count => format!("std::deque with {count} element{}", plural(count)),
    };
    Some(container(shower, title, numbered(values?), false, depth))
}

/// The bits that are set.
fn bitset(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let Container::Bits(bits) = Container::of(scene, value, record)? else {
        return None;
    };
    // A larger value is not read at once.
    if bits.count > 8 * MAX_SIZE {
        return None;
    }
    let (mut shown, mut more) = (Vec::new(), false);
    for number in 0..bits.count {
        if bits.at(scene, number).bytes(scene.source).ok()? == [0] {
            continue;
        }
        if shown.len() >= scene.elements {
            more = true;
            break;
        }
        let set = shower.show(&Value::number(Ty::int(), 1), depth + 1);
        shown.push(ShownMember::new(format!("[{number}]"), set));
    }
    Some(Shown {
        text: match shown.is_empty() {
            true => "std::bitset".to_owned(),
            false => format!("std::bitset = {{{}}}", listed(&shown, more, true)),
        },
        members: shown,
        ..Shown::default()
    })
}

/// `std::tuple containing = {[1] = 1, [2] = "t"}`.
fn tuple(shower: &Shower<'_>, value: &Value, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let mut shown = Vec::new();
    while let Some(held) = tuple_part(scene, value, shown.len()) {
        let name = format!("[{}]", shown.len() + 1);
        shown.push(ShownMember::new(name, shower.show(&held, depth + 1)));
    }
    Some(Shown {
        text: match shown.is_empty() {
            true => "empty std::tuple".to_owned(),
            false => format!("std::tuple containing = {{{}}}", listed(&shown, false, true)),
        },
        members: shown,
        ..Shown::default()
    })
}

/// A part of a tuple, by its number from 0.
pub fn tuple_part(scene: &Scene<'_>, value: &Value, number: usize) -> Option<Value> {
    let head = base(scene, value, &format!("std::_Head_base<{number},"))?;
    path(scene, &head, &["_M_head_impl"]).or_else(|| match head.ty.shape() {
        // What has no members is a base itself.
        Shape::Record(record) => Some(head.part(record.argument(1)?, 0)),
        _ => None,
    })
}

/// `std::variant<int, std::string> [index 1] = {"text"}`.
fn variant(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let title = short(record.name());
    let Some((index, held)) = alternative(shower.scene, value, record)? else {
        return Some(text(format!("{title} [no contained value]")));
    };
    let shown = shower.show(&held, depth + 1);
    Some(Shown {
        text: format!("{title} [index {index}] = {{{}}}", shown.text),
        members: vec![ShownMember::new("[contained value]", shown)],
        ..Shown::default()
    })
}

/// What a `variant` holds, and which of its types that is; `Some(None)`: nothing.
pub fn alternative(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Option<(usize, Value)>> {
    let index = path(scene, value, &["_M_index"])?;
    let nothing = (1i128 << (8 * index.ty.size()?.min(8))) - 1;
    let index = number(scene, &index)?;
    if index == nothing {
        return Some(None);
    }
    let index = usize::try_from(index).ok()?;
    let ty = record.argument(index)?;
    let mut storage = path(scene, value, &["_M_u"])?;
    for _ in 0..index {
        storage = path(scene, &storage, &["_M_rest"])?;
    }
    let first = path(scene, &storage, &["_M_first"])?;
    Some(Some((index, first.part(ty, 0))))
}

fn optional(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let payload = path(scene, value, &["_M_payload"])?;
    let engaged = number(scene, &path(scene, &payload, &["_M_engaged"])?)? != 0;
    let title = short(record.name());
    if !engaged {
        return Some(text(format!("{title} [no contained value]")));
    }
    let held = path(scene, &payload, &["_M_payload", "_M_value"])?;
    let shown = shower.show(&held, depth + 1);
    Some(Shown {
        text: format!("{title} = {{[contained value] = {}}}", shown.text),
        members: vec![ShownMember::new("[contained value]", shown)],
        ..Shown::default()
    })
}

/// `get() = …`.
fn getter(shower: &Shower<'_>, title: String, pointer: &Value, target: Ty, depth: u32) -> Shown {
    let pointer = pointer.with_type(target.pointer());
    let shown = shower.show(&pointer, depth + 1);
    Shown {
        text: format!("{title} = {{get() = {}}}", shown.text),
        members: vec![ShownMember::new("get()", shown)],
        ..Shown::default()
    }
}

fn unique(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let (pointer, target) = owned(shower.scene, value, record)?;
    let title = format!("std::unique_ptr<{}>", record.argument(0)?.name());
    Some(getter(shower, title, &pointer, target, depth))
}

/// The pointer in a `unique_ptr`, and the type of what it points to.
pub fn owned(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<(Value, Ty)> {
    let tuple = path(scene, value, &["_M_t", "_M_t"])?;
    let first = base(scene, &tuple, "std::_Head_base<0")?;
    let pointer = path(scene, &first, &["_M_head_impl"])
        .filter(|found| matches!(found.ty.shape(), Shape::Pointer(PointerKind::Pointer, _)))?;
    Some((pointer, pointee(record)?))
}

/// The pointer in a `shared_ptr` or `weak_ptr`, and the type of what it points to.
pub fn pointed_by_shared(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<(Value, Ty)> {
    Some((path(scene, value, &["_M_ptr"])?, pointee(record)?))
}

/// What a smart pointer points to; of an array, an element.
fn pointee(record: &RecordShape) -> Option<Ty> {
    let target = record.argument(0)?;
    Some(match target.shape() {
        Shape::Array { element, .. } => element,
        _ => target,
    })
}

fn shared(
    shower: &Shower<'_>,
    value: &Value,
    record: &RecordShape,
    template: &str,
    depth: u32,
) -> Option<Shown> {
    let scene = shower.scene;
    let (pointer, target) = pointed_by_shared(scene, value, record)?;
    let counts = path(scene, value, &["_M_refcount", "_M_pi"])?;
    let state = match address(scene, &counts)? {
        0 => "empty".to_owned(),
        _ => {
            let counts = scene.pointed(&counts).ok()?;
            let uses = number(scene, &path(scene, &counts, &["_M_use_count"])?)?;
            let weak = number(scene, &path(scene, &counts, &["_M_weak_count"])?)?;
            match uses {
                0 => format!("expired, weak count {weak}"),
                uses => format!("use count {uses}, weak count {}", weak.saturating_sub(1)),
            }
        }
    };
    let title = format!("std::{template}<{}> ({state})", record.argument(0)?.name());
    Some(getter(shower, title, &pointer, target, depth))
}
