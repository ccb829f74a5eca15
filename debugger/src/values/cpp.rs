//! Types of the C++ standard library (libstdc++) as what they hold, as its own printers for GDB show them.

use super::members::{address, number, path};
use super::names::short;
use super::scene::Scene;
use super::show::{Shower, Shown, ShownMember, listed, text};
use super::types::{RecordShape, Shape, Ty};
use super::units::Units;
use super::value::Value;
use backtrail_symbolizer::types::PointerKind;

/// A container as what it holds; `None`: it is none, or its insides are not as they are known.
pub(crate) fn show(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let name = record.name().replace("__cxx11::", "").replace("__debug::", "");
    let (template, _) = name.strip_prefix("std::")?.split_once('<')?;
    match template {
        "basic_string" => string(shower, value),
        "basic_string_view" => {
            let pointer = path(shower.scene, value, &["_M_str"])?;
            let length = path(shower.scene, value, &["_M_len"])?;
            characters(shower, &pointer, number(shower.scene, &length)?)
        }
        "vector" => vector(shower, value, record, depth),
        "map" | "multimap" => tree(shower, value, record, template, true, depth),
        "set" | "multiset" => tree(shower, value, record, template, false, depth),
        "unordered_map" | "unordered_multimap" => hash_table(shower, value, record, template, true, depth),
        "unordered_set" | "unordered_multiset" => hash_table(shower, value, record, template, false, depth),
        "list" => list(shower, value, record, depth),
        "deque" => deque(shower, value, record, depth),
        "optional" => optional(shower, value, record, depth),
        "unique_ptr" => unique(shower, value, record, depth),
        "pair" => pair(shower, value, depth),
        "shared_ptr" | "weak_ptr" => shared(shower, value, record, template, depth),
        _ => None,
    }
}

fn string(shower: &Shower<'_>, value: &Value) -> Option<Shown> {
    let scene = shower.scene;
    let pointer = path(scene, value, &["_M_dataplus", "_M_p"])?;
    let length = path(scene, value, &["_M_string_length"])?;
    characters(shower, &pointer, number(scene, &length)?)
}

/// So many characters behind a pointer, of its type.
fn characters(shower: &Shower<'_>, pointer: &Value, length: i128) -> Option<Shown> {
    let Shape::Pointer(_, element) = pointer.ty.shape() else {
        return None;
    };
    let units = Units::of(&element)?;
    let at = address(shower.scene, pointer)?;
    let length = u64::try_from(length).ok()?;
    let shown = length.min(shower.scene.elements as u64);
    let mut bytes = vec![0; usize::try_from(shown * units.size).ok()?];
    if let Err(why) = shower.scene.source.memory(at, &mut bytes) {
        return Some(Shown {
            unknown: Some(why.to_string()),
            ..text(format!("<unknown: {why}>"))
        });
    }
    Some(text(units.quoted(&bytes, length > shown, shower.scene.elements)))
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
    let element = record.argument(0)?;
    let end = |name: &str| path(scene, value, &["_M_impl", name]);
    if element.name() == "bool" {
        let start = address(scene, &path(scene, &end("_M_start")?, &["_M_p"])?)?;
        let finish = end("_M_finish")?;
        let words = address(scene, &path(scene, &finish, &["_M_p"])?)?.checked_sub(start)?;
        let bits = u64::try_from(number(scene, &path(scene, &finish, &["_M_offset"])?)?).ok()?;
        let limit = address(scene, &end("_M_end_of_storage")?)?;
        let length = words.checked_mul(8)?.checked_add(bits)?;
        let capacity = limit.checked_sub(start)?.checked_mul(8)?;
        let mut bytes = vec![0; usize::try_from(length.div_ceil(8).min(scene.elements as u64)).ok()?];
        scene.source.memory(start, &mut bytes).ok()?;
        let bit = |number: u64| {
            let byte = bytes.get((number / 8) as usize).copied().unwrap_or(0);
            let value = Value::new(element.clone(), vec![byte >> (number % 8) & 1]);
            (format!("[{number}]"), value)
        };
        let title = format!("std::vector<bool> of length {length}, capacity {capacity}");
        let known = length.min(bytes.len() as u64 * 8);
        return Some(container(shower, title, (0..known).map(bit), false, depth));
    }
    let vector = Vector::of(scene, value, record)?;
    let Vector { length, capacity, .. } = vector;
    let title = format!("std::vector of length {length}, capacity {capacity}");
    let values = (0..length).map(|number| (format!("[{number}]"), vector.at(number)));
    Some(container(shower, title, values, false, depth))
}

/// A vector, not of `bool`.
pub(crate) struct Vector {
    element: Ty,
    size: u64,
    start: u64,
    pub length: u64,
    capacity: u64,
}

impl Vector {
    pub fn of(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let element = record.argument(0).filter(|element| element.name() != "bool")?;
        let size = element.size().filter(|size| *size > 0)?;
        let end = |name: &str| address(scene, &path(scene, value, &["_M_impl", name])?);
        let start = end("_M_start")?;
        Some(Self {
            length: end("_M_finish")?.checked_sub(start)? / size,
            capacity: end("_M_end_of_storage")?.checked_sub(start)? / size,
            element,
            size,
            start,
        })
    }

    pub fn at(&self, number: u64) -> Value {
        let at = self.start.wrapping_add(number.wrapping_mul(self.size));
        Value::at(self.element.clone(), at)
    }
}

fn word(scene: &Scene<'_>, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    scene.source.memory(at, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Where the value is in a node that begins with `header` bytes of links.
fn behind(header: u64, ty: &Ty) -> Option<u64> {
    let aligned = super::layout::alignment(ty)?;
    header.checked_next_multiple_of(aligned)
}

fn key_and_value(
    shower: &Shower<'_>,
    pairs: Vec<Value>,
    count: u64,
    title: String,
    depth: u32,
) -> Option<Shown> {
    let mut shown = Vec::new();
    for pair in &pairs {
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

/// A red-black tree, in order (`_Rb_tree`).
fn tree(
    shower: &Shower<'_>,
    value: &Value,
    record: &RecordShape,
    template: &str,
    pairs: bool,
    depth: u32,
) -> Option<Shown> {
    let scene = shower.scene;
    let count = number(scene, &path(scene, value, &["_M_t", "_M_impl", "_M_node_count"])?)?;
    let count = u64::try_from(count).ok()?;
    let header = path(scene, value, &["_M_t", "_M_impl", "_M_header"])?;
    let end = header.address()?;
    let element = held(record)?;
    let offset = behind(32, &element)?;
    let mut node = address(scene, &path(scene, &header, &["_M_left"])?)?;
    let mut values = Vec::new();
    while node != end && (values.len() as u64) < count && values.len() <= scene.elements {
        values.push(Value::at(element.clone(), node.wrapping_add(offset)));
        node = successor(scene, node)?;
    }
    if (values.len() as u64) < count && values.len() <= scene.elements {
        return None;
    }
    let title = format!("std::{template} with {count} element{}", plural(count));
    match pairs {
        true => key_and_value(shower, values, count, title, depth),
        false => Some(container(shower, title, numbered(values), true, depth)),
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The next node: parent, left and right stand at 8, 16 and 24.
fn successor(scene: &Scene<'_>, node: u64) -> Option<u64> {
    /// No genuine tree is deeper.
    const MAX_DEPTH: usize = 256;
    let (parent, left, right) = (8, 16, 24);
    let follow = |node: u64, link: u64| word(scene, node.wrapping_add(link));
    let mut next = follow(node, right)?;
    if next != 0 {
        for _ in 0..MAX_DEPTH {
            match follow(next, left)? {
                0 => return Some(next),
                lower => next = lower,
            }
        }
        return None;
    }
    let mut from = node;
    next = follow(node, parent)?;
    for _ in 0..MAX_DEPTH {
        if follow(next, right)? != from {
            // The root's parent is the header, whose right link may be the root.
            return Some(next);
        }
        from = next;
        next = follow(next, parent)?;
    }
    None
}

/// What a container holds, by the name that it has for it.
fn held(record: &RecordShape) -> Option<Ty> {
    let name = format!("{}::value_type", record.name());
    let entry = record.module.file.type_named(&name, None)?;
    Some(record.ty(Some(entry)))
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
fn base(scene: &Scene<'_>, value: &Value, name: &str, depth: u32) -> Option<Value> {
    let Shape::Record(record) = value.ty.shape() else {
        return None;
    };
    if record.name().starts_with(name) {
        return Some(value.clone());
    }
    let bases = record
        .record()
        .members
        .iter()
        .filter(|member| member.base && depth < 8);
    let mut bases = bases.map(|member| super::members::value_of(scene, &record, value, member));
    bases.find_map(|inner| base(scene, &inner, name, depth + 1))
}

/// A table of `_Hashtable`: its nodes are one list.
fn hash_table(
    shower: &Shower<'_>,
    value: &Value,
    record: &RecordShape,
    template: &str,
    pairs: bool,
    depth: u32,
) -> Option<Shown> {
    let scene = shower.scene;
    let count = number(scene, &path(scene, value, &["_M_h", "_M_element_count"])?)?;
    let count = u64::try_from(count).ok()?;
    let element = held(record)?;
    let offset = behind(8, &element)?;
    let mut node = address(
        scene,
        &path(scene, value, &["_M_h", "_M_before_begin", "_M_nxt"])?,
    )?;
    let mut values = Vec::new();
    while node != 0 && (values.len() as u64) < count && values.len() <= scene.elements {
        values.push(Value::at(element.clone(), node.wrapping_add(offset)));
        node = word(scene, node)?;
    }
    let title = format!("std::{template} with {count} element{}", plural(count));
    match pairs {
        true => key_and_value(shower, values, count, title, depth),
        false => Some(container(shower, title, numbered(values), true, depth)),
    }
}

fn list(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let element = record.argument(0)?;
    let offset = behind(16, &element)?;
    let end = path(scene, value, &["_M_impl", "_M_node"])?.address()?;
    let mut node = word(scene, end)?;
    let mut values = Vec::new();
    while node != end && values.len() <= scene.elements {
        values.push(Value::at(element.clone(), node.wrapping_add(offset)));
        node = word(scene, node)?;
    }
    let title = match values.is_empty() {
        true => "empty std::__cxx11::list".to_owned(),
        false => "std::__cxx11::list".to_owned(),
    };
    Some(container(shower, title, numbered(values), true, depth))
}

fn deque(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let deque = Deque::of(shower.scene, value, record)?;
    // One more than fits shows that there are more.
    let some = deque.count.min(shower.scene.elements as u64 + 1);
    let values: Option<Vec<Value>> = (0..some).map(|number| deque.at(shower.scene, number)).collect();
    let title = match deque.count {
        0 => "std::deque with 0 elements".to_owned(),
        count => format!("std::deque with {count} element{}", plural(count)),
    };
    Some(container(shower, title, numbered(values?), false, depth))
}

/// A deque: the first node has elements from `first` on, all others are full.
pub(crate) struct Deque {
    element: Ty,
    size: u64,
    per_node: u64,
    first: u64,
    in_first: u64,
    /// Where the address of the first node is, followed by those of the others.
    nodes: u64,
    pub count: u64,
}

impl Deque {
    pub fn of(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Self> {
        let element = record.argument(0)?;
        let size = element.size().filter(|size| *size > 0)?;
        let per_node = if size < 512 { 512 / size } else { 1 };
        let field =
            |iterator: &str, name: &str| address(scene, &path(scene, value, &["_M_impl", iterator, name])?);
        let (first, last) = (field("_M_start", "_M_cur")?, field("_M_start", "_M_last")?);
        let (nodes, finish_node) = (field("_M_start", "_M_node")?, field("_M_finish", "_M_node")?);
        let (finish, finish_first) = (field("_M_finish", "_M_cur")?, field("_M_finish", "_M_first")?);
        let in_first = last.checked_sub(first)? / size;
        let count = match nodes == finish_node {
            true => finish.checked_sub(first)? / size,
            false => {
                let whole = (finish_node.checked_sub(nodes)? / 8).checked_sub(1)?;
                let in_last = finish.checked_sub(finish_first)? / size;
                whole
                    .checked_mul(per_node)?
                    .checked_add(in_first)?
                    .checked_add(in_last)?
            }
        };
        Some(Self {
            element,
            size,
            per_node,
            first,
            in_first,
            nodes,
            count,
        })
    }

    pub fn at(&self, scene: &Scene<'_>, number: u64) -> Option<Value> {
        let at = match number.checked_sub(self.in_first) {
            None => self.first.checked_add(number.checked_mul(self.size)?)?,
            Some(behind) => {
                let node = self.nodes.checked_add(8 * (behind / self.per_node + 1))?;
                let offset = (behind % self.per_node).checked_mul(self.size)?;
                word(scene, node)?.checked_add(offset)?
            }
        };
        Some(Value::at(self.element.clone(), at))
    }
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
pub(crate) fn owned(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<(Value, Ty)> {
    let tuple = path(scene, value, &["_M_t", "_M_t"])?;
    let first = base(scene, &tuple, "std::_Head_base<0", 0)?;
    let pointer = path(scene, &first, &["_M_head_impl"])
        .filter(|found| matches!(found.ty.shape(), Shape::Pointer(PointerKind::Pointer, _)))?;
    Some((pointer, pointee(record)?))
}

/// The pointer in a `shared_ptr` or `weak_ptr`, and the type of what it points to.
pub(crate) fn pointed_by_shared(
    scene: &Scene<'_>,
    value: &Value,
    record: &RecordShape,
) -> Option<(Value, Ty)> {
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
