//! Types of the C++ standard library (libstdc++) as what they hold, as its own printers for GDB
//! show them.

use super::containers::CppContainer;
use super::context::EvalContext;
use super::formatted::{FormattedMember, FormattedValue, listed, numbered, text};
use super::formatter::ValueFormatter;
use super::members::{address, number, path};
use super::type_formatter::short;
use super::types::{RecordShape, Shape, Ty};
use super::value::{MAX_SIZE, Value};
use backtrail_symbolizer::types::PointerKind;

impl ValueFormatter<'_> {
    /// Formats a value of a C++ library type as its contents; `None` for other types.
    pub(crate) fn format_cpp(
        &self,
        value: &Value,
        record: &RecordShape,
        depth: u32,
    ) -> Option<FormattedValue> {
        show(self, value, record, depth)
    }
}

/// A container as what it holds; `None`: it is none, or its layout is unknown.
fn show(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let name = record.name().replace("__cxx11::", "").replace("__debug::", "");
    let (template, _) = name.strip_prefix("std::")?.split_once('<')?;
    match template {
        "basic_string" | "basic_string_view" => string(formatter, value, record),
        "vector" => vector(formatter, value, record, depth),
        "map" | "multimap" | "set" | "multiset" | "unordered_map" | "unordered_multimap"
        | "unordered_set" | "unordered_multiset" => associative(formatter, value, record, template, depth),
        "list" => list(formatter, value, record, depth),
        "deque" => deque(formatter, value, record, depth),
        "optional" => optional(formatter, value, record, depth),
        "unique_ptr" => unique(formatter, value, record, depth),
        "pair" => pair(formatter, value, depth),
        "tuple" => tuple(formatter, value, depth),
        "variant" => variant(formatter, value, record, depth),
        "bitset" => bitset(formatter, value, record, depth),
        "shared_ptr" | "weak_ptr" => shared(formatter, value, record, template, depth),
        _ => None,
    }
}

fn string(formatter: &ValueFormatter<'_>, value: &Value, record: &RecordShape) -> Option<FormattedValue> {
    let limit = formatter.context.elements;
    let CppContainer::Array(row) = CppContainer::of(formatter.context, value, record)? else {
        return None;
    };
    let units = row.units()?;
    Some(match row.bytes(formatter.context, limit as u64)? {
        Ok(bytes) => text(units.quoted(&bytes, row.count > limit as u64, limit)),
        Err(cause) => FormattedValue::unavailable(&cause),
    })
}

/// Returns a title and the parts, or the title alone if there are none.
fn titled(title: String, parts: Vec<FormattedMember>, more: bool, named: bool) -> FormattedValue {
    let text = match parts.is_empty() {
        true => title,
        false => format!("{title} = {{{}}}", listed(&parts, more, named)),
    };
    FormattedValue::with_members(text, parts)
}

/// `std::vector of length 2 = {1, 2}`.
fn container(
    formatter: &ValueFormatter<'_>,
    title: String,
    values: impl Iterator<Item = (String, Value)>,
    named: bool,
    depth: u32,
) -> FormattedValue {
    let (shown, more) = formatter.elements(values, depth);
    titled(title, shown, more, named)
}

fn vector(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let title = |name: &str, count: u64, capacity: Option<u64>| {
        Some(format!("{name} of length {count}, capacity {}", capacity?))
    };
    match CppContainer::of(context, value, record)? {
        CppContainer::BitVector(bits) => {
            let title = title("std::vector<bool>", bits.count, bits.capacity)?;
            let values = (0..bits.count).map(|number| bits.at(context, number));
            Some(container(formatter, title, numbered(values), false, depth))
        }
        CppContainer::Array(row) => {
            let title = title("std::vector", row.count, row.capacity)?;
            let values = (0..row.count).map(|number| row.at(number));
            Some(container(formatter, title, numbered(values), false, depth))
        }
        _ => None,
    }
}

fn key_and_value(
    formatter: &ValueFormatter<'_>,
    pairs: Vec<Value>,
    count: u64,
    title: String,
    depth: u32,
) -> Option<FormattedValue> {
    let mut shown = Vec::new();
    for pair in pairs.iter().take(formatter.context.elements) {
        let key = formatter.show(&path(formatter.context, pair, &["first"])?, depth + 1);
        let value = formatter.show(&path(formatter.context, pair, &["second"])?, depth + 1);
        shown.push(FormattedMember::new(format!("[{}]", key.text), value));
    }
    let more = count > shown.len() as u64;
    Some(titled(title, shown, more, true))
}

/// Formats a tree or a hash table.
fn associative(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    template: &str,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let CppContainer::Nodes(nodes) = CppContainer::of(context, value, record)? else {
        return None;
    };
    let count = nodes.count(context)?;
    let most = if nodes.pairs {
        context.elements + 1
    } else {
        MAX_SIZE as usize
    };
    let values = nodes.values(context, most)?;
    let title = format!("std::{template} with {count} element{}", plural(count));
    match nodes.pairs {
        true => key_and_value(formatter, values, count, title, depth),
        false => Some(container(formatter, title, numbered(values), true, depth)),
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `{first = 1, second = 2}`.
fn pair(formatter: &ValueFormatter<'_>, value: &Value, depth: u32) -> Option<FormattedValue> {
    let part = |name: &str| {
        let part = path(formatter.context, value, &[name])?;
        Some(FormattedMember::new(name, formatter.show(&part, depth + 1)))
    };
    let members = vec![part("first")?, part("second")?];
    Some(FormattedValue::with_members(
        format!("{{{}}}", listed(&members, false, true)),
        members,
    ))
}

/// The base of a record, or of a base of it, whose name begins so.
fn base(context: &EvalContext<'_>, value: &Value, name: &str) -> Option<Value> {
    /// No genuine class has more bases.
    const MAX_BASES: u32 = 1 << 10;
    base_within(context, value, name, &mut { MAX_BASES })
}

/// Returns up to `limit` of the elements.
fn base_within(context: &EvalContext<'_>, value: &Value, name: &str, left: &mut u32) -> Option<Value> {
    *left = left.checked_sub(1)?;
    let Shape::Record(record) = value.ty.shape() else {
        return None;
    };
    if record.name().starts_with(name) {
        return Some(value.clone());
    }
    let bases = record.record().members.iter().filter(|member| member.base);
    let mut bases = bases.map(|member| super::members::value_of(context, &record, value, member));
    bases.find_map(|inner| base_within(context, &inner, name, left))
}

fn list(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let CppContainer::Nodes(nodes) = CppContainer::of(context, value, record)? else {
        return None;
    };
    let values = nodes.values(context, MAX_SIZE as usize)?;
    let title = match values.is_empty() {
        true => "empty std::__cxx11::list".to_owned(),
        false => "std::__cxx11::list".to_owned(),
    };
    Some(container(formatter, title, numbered(values), true, depth))
}

fn deque(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let CppContainer::Deque(deque) = CppContainer::of(formatter.context, value, record)? else {
        return None;
    };
    // A run may be longer than what is shown.
    let some = deque.count.min(MAX_SIZE);
    let values: Option<Vec<Value>> = (0..some)
        .map(|number| deque.at(formatter.context, number))
        .collect();
    let title = match deque.count {
        0 => "std::deque with 0 elements".to_owned(),
        count => format!("std::deque with {count} element{}", plural(count)),
    };
    Some(container(formatter, title, numbered(values?), false, depth))
}

/// The bits that are set.
fn bitset(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let CppContainer::BitVector(bits) = CppContainer::of(context, value, record)? else {
        return None;
    };
    // A larger value is not read at once.
    if bits.count > 8 * MAX_SIZE {
        return None;
    }
    let (mut shown, mut more) = (Vec::new(), false);
    for number in 0..bits.count {
        if bits.at(context, number).bytes(context.source).ok()? == [0] {
            continue;
        }
        if shown.len() >= context.elements {
            more = true;
            break;
        }
        let set = formatter.show(&Value::number(Ty::int(), 1), depth + 1);
        shown.push(FormattedMember::new(format!("[{number}]"), set));
    }
    Some(titled("std::bitset".to_owned(), shown, more, true))
}

/// `std::tuple containing = {[1] = 1, [2] = "t"}`.
fn tuple(formatter: &ValueFormatter<'_>, value: &Value, depth: u32) -> Option<FormattedValue> {
    let context = formatter.context;
    let mut shown = Vec::new();
    while let Some(held) = tuple_part(context, value, shown.len()) {
        let name = format!("[{}]", shown.len() + 1);
        shown.push(FormattedMember::new(name, formatter.show(&held, depth + 1)));
    }
    let title = match shown.is_empty() {
        true => "empty std::tuple",
        false => "std::tuple containing",
    };
    Some(titled(title.to_owned(), shown, false, true))
}

/// A part of a tuple, by its number from 0.
pub fn tuple_part(context: &EvalContext<'_>, value: &Value, number: usize) -> Option<Value> {
    let head = base(context, value, &format!("std::_Head_base<{number},"))?;
    path(context, &head, &["_M_head_impl"]).or_else(|| match head.ty.shape() {
        // A class without members is the base itself.
        Shape::Record(record) => Some(head.part(record.argument(1)?, 0)),
        _ => None,
    })
}

/// `std::variant<int, std::string> [index 1] = {"text"}`.
fn variant(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let title = short(record.name());
    let Some((index, held)) = alternative(formatter.context, value, record)? else {
        return Some(text(format!("{title} [no contained value]")));
    };
    let shown = formatter.show(&held, depth + 1);
    Some(FormattedValue::with_members(
        format!("{title} [index {index}] = {{{}}}", shown.text),
        vec![FormattedMember::new("[contained value]", shown)],
    ))
}

/// Returns the value of a `variant` and the index of its type; `Some(None)` if it has no value.
pub fn alternative(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
) -> Option<Option<(usize, Value)>> {
    let index = path(context, value, &["_M_index"])?;
    let nothing = (1i128 << (8 * index.ty.size()?.min(8))) - 1;
    let index = number(context, &index)?;
    if index == nothing {
        return Some(None);
    }
    let index = usize::try_from(index).ok()?;
    let ty = record.argument(index)?;
    let mut storage = path(context, value, &["_M_u"])?;
    for _ in 0..index {
        storage = path(context, &storage, &["_M_rest"])?;
    }
    let first = path(context, &storage, &["_M_first"])?;
    Some(Some((index, first.part(ty, 0))))
}

fn optional(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let payload = path(context, value, &["_M_payload"])?;
    let engaged = number(context, &path(context, &payload, &["_M_engaged"])?)? != 0;
    let title = short(record.name());
    if !engaged {
        return Some(text(format!("{title} [no contained value]")));
    }
    let held = path(context, &payload, &["_M_payload", "_M_value"])?;
    let shown = formatter.show(&held, depth + 1);
    Some(FormattedValue::with_members(
        format!("{title} = {{[contained value] = {}}}", shown.text),
        vec![FormattedMember::new("[contained value]", shown)],
    ))
}

/// `get() = …`.
fn getter(
    formatter: &ValueFormatter<'_>,
    title: String,
    pointer: &Value,
    target: Ty,
    depth: u32,
) -> FormattedValue {
    let pointer = pointer.with_type(target.pointer());
    let shown = formatter.show(&pointer, depth + 1);
    FormattedValue::with_members(
        format!("{title} = {{get() = {}}}", shown.text),
        vec![FormattedMember::new("get()", shown)],
    )
}

fn unique(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Option<FormattedValue> {
    let (pointer, target) = owned(formatter.context, value, record)?;
    let title = format!("std::unique_ptr<{}>", record.argument(0)?.name());
    Some(getter(formatter, title, &pointer, target, depth))
}

/// The pointer in a `unique_ptr`, and the type of what it points to.
pub fn owned(context: &EvalContext<'_>, value: &Value, record: &RecordShape) -> Option<(Value, Ty)> {
    let tuple = path(context, value, &["_M_t", "_M_t"])?;
    let first = base(context, &tuple, "std::_Head_base<0")?;
    let pointer = path(context, &first, &["_M_head_impl"])
        .filter(|found| matches!(found.ty.shape(), Shape::Pointer(PointerKind::Pointer, _)))?;
    Some((pointer, pointee(record)?))
}

/// The pointer in a `shared_ptr` or `weak_ptr`, and the type of what it points to.
pub fn pointed_by_shared(
    context: &EvalContext<'_>,
    value: &Value,
    record: &RecordShape,
) -> Option<(Value, Ty)> {
    Some((path(context, value, &["_M_ptr"])?, pointee(record)?))
}

/// Returns the target of a smart pointer; of an array, an element.
fn pointee(record: &RecordShape) -> Option<Ty> {
    let target = record.argument(0)?;
    Some(match target.shape() {
        Shape::Array { element, .. } => element,
        _ => target,
    })
}

fn shared(
    formatter: &ValueFormatter<'_>,
    value: &Value,
    record: &RecordShape,
    template: &str,
    depth: u32,
) -> Option<FormattedValue> {
    let context = formatter.context;
    let (pointer, target) = pointed_by_shared(context, value, record)?;
    let counts = path(context, value, &["_M_refcount", "_M_pi"])?;
    let state = match address(context, &counts)? {
        0 => "empty".to_owned(),
        _ => {
            let counts = context.pointed(&counts).ok()?;
            let uses = number(context, &path(context, &counts, &["_M_use_count"])?)?;
            let weak = number(context, &path(context, &counts, &["_M_weak_count"])?)?;
            match uses {
                0 => format!("expired, weak count {weak}"),
                uses => format!("use count {uses}, weak count {}", weak.saturating_sub(1)),
            }
        }
    };
    let title = format!("std::{template}<{}> ({state})", record.argument(0)?.name());
    Some(getter(formatter, title, &pointer, target, depth))
}
