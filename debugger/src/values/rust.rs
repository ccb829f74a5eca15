//! Values of Rust: records as the source writes them, and types of the standard library as what they hold.

use super::evaluate::{Evaluated, wrong};
use super::members::{self, active, address, number, path};
use super::scene::Scene;
use super::show::{Shower, Shown, ShownMember, listed, text};
use super::text::quoted;
use super::types::{RecordShape, Shape, Ty};
use super::value::{Gap, Value};
use backtrail_symbolizer::types::MemberPlace;

/// A record: `Point {x: 1, y: 2}`, `Some(5)`, `(1, 2)`.
pub(crate) fn record(
    shower: &Shower<'_>,
    value: &Value,
    record: &RecordShape,
    depth: u32,
) -> Result<Shown, Gap> {
    if let Some(form) = active(shower.scene, record, value)? {
        return Ok(variant(shower, record, &form, depth));
    }
    if record.record().variants.is_some() {
        return Err(Gap::Unknown("its form is not known".into()));
    }
    Ok(fields(shower, value, record, record.name(), depth))
}

/// `core::option::Option<i32>::Some(5)`.
fn variant(shower: &Shower<'_>, whole: &RecordShape, form: &Value, depth: u32) -> Shown {
    let Shape::Record(inner) = form.ty.shape() else {
        return text("<unknown: its form is no record>");
    };
    let last = inner
        .name()
        .strip_prefix(whole.name())
        .map(|rest| rest.trim_start_matches("::"));
    let name = match last {
        Some(last) if !last.is_empty() => format!("{}::{last}", whole.name()),
        _ => format!("{}::{}", whole.name(), inner.name()),
    };
    fields(shower, form, &inner, &name, depth)
}

fn fields(shower: &Shower<'_>, value: &Value, record: &RecordShape, name: &str, depth: u32) -> Shown {
    let own = record
        .record()
        .members
        .iter()
        .filter(|member| !matches!(member.place, MemberPlace::Static(_)));
    let shown: Vec<ShownMember> = own
        .map(|member| {
            let inner = members::value_of(shower.scene, record, value, member);
            let name = member.name.as_deref().unwrap_or_default();
            ShownMember::new(name, shower.show(&inner, depth + 1))
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
    Shown {
        text,
        members: shown,
        ..Shown::default()
    }
}

/// A type of the standard library as what it holds; `None`: it is none, or its insides are not as they are known.
pub(crate) fn show(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let name = record.name();
    let is = |path: &str| name == path || name.strip_prefix(path).is_some_and(|rest| rest.starts_with('<'));
    if name == "&str" || name == "&mut str" || name == "*const str" {
        return string(shower, &slice(scene, value)?);
    }
    if name.starts_with("&[") || name.starts_with("&mut [") || name.starts_with("*const [") {
        let slice = slice(scene, value)?;
        return Some(elements(shower, &slice, "&", depth));
    }
    if is("alloc::string::String") {
        let inner = path(scene, value, &["vec"])?;
        return string(shower, &vector(scene, &inner)?);
    }
    if is("alloc::vec::Vec") {
        return Some(elements(shower, &vector(scene, value)?, "Vec", depth));
    }
    if is("alloc::collections::vec_deque::VecDeque") {
        return deque(shower, value, record, depth);
    }
    if is("alloc::rc::Rc") || is("alloc::sync::Arc") {
        return counted(shower, value, depth);
    }
    if is("core::cell::Cell") || is("core::cell::UnsafeCell") {
        let inner = path(scene, value, &["value"])?;
        return Some(shower.show(&inner, depth));
    }
    if is("core::num::nonzero::NonZero") {
        let inner = path(scene, value, &["__0", "__0"]).or_else(|| path(scene, value, &["__0"]))?;
        return Some(shower.show(&inner, depth));
    }
    if is("core::cell::RefCell") {
        let borrow = path(scene, value, &["borrow", "value", "value"])
            .or_else(|| path(scene, value, &["borrow", "v", "value", "value"]))?;
        let held = path(scene, value, &["value", "value"])?;
        let borrow = number(scene, &borrow)?;
        let held = shower.show(&held, depth + 1);
        return Some(Shown {
            text: format!("RefCell(borrow={borrow}) {{{}}}", held.text),
            members: vec![ShownMember::new("value", held)],
            ..Shown::default()
        });
    }
    if is("std::collections::hash::map::HashMap") {
        return hash_map(shower, value, &["base", "table"], false, depth);
    }
    if is("std::collections::hash::set::HashSet") {
        return hash_map(shower, value, &["base", "map", "table"], true, depth);
    }
    None
}

/// Elements in a row in memory.
struct Row {
    element: Ty,
    at: u64,
    count: u64,
}

fn slice(scene: &Scene<'_>, value: &Value) -> Option<Row> {
    let pointer = path(scene, value, &["data_ptr"])?;
    let Shape::Pointer(_, element) = pointer.ty.shape() else {
        return None;
    };
    Some(Row {
        element,
        at: address(scene, &pointer)?,
        count: u64::try_from(number(scene, &path(scene, value, &["length"])?)?).ok()?,
    })
}

/// The address in a `NonNull` or `Unique`, however deep.
fn held_address(scene: &Scene<'_>, value: &Value) -> Option<u64> {
    let mut value = value.clone();
    for _ in 0..8 {
        match value.ty.shape() {
            Shape::Pointer(..) => return address(scene, &value),
            Shape::Record(record) => {
                let members = &record.record().members;
                let inner = members
                    .iter()
                    .map(|member| members::value_of(scene, &record, &value, member))
                    .find(|inner| inner.ty.size().is_some_and(|size| size >= 8))?;
                value = inner;
            }
            _ => return None,
        }
    }
    None
}

/// The buffer of a `RawVec`, of one and the other edition.
fn buffer(scene: &Scene<'_>, value: &Value) -> Option<u64> {
    let pointer =
        path(scene, value, &["buf", "inner", "ptr"]).or_else(|| path(scene, value, &["buf", "ptr"]))?;
    held_address(scene, &pointer)
}

fn vector(scene: &Scene<'_>, value: &Value) -> Option<Row> {
    let Shape::Record(record) = value.ty.shape() else {
        return None;
    };
    Some(Row {
        element: record.argument(0)?,
        at: buffer(scene, value)?,
        count: u64::try_from(number(scene, &path(scene, value, &["len"])?)?).ok()?,
    })
}

fn string(shower: &Shower<'_>, row: &Row) -> Option<Shown> {
    let shown = row.count.min(shower.scene.elements as u64);
    let mut bytes = vec![0; usize::try_from(shown).ok()?];
    if let Err(why) = shower.scene.source.memory(row.at, &mut bytes) {
        return Some(Shown {
            unknown: Some(why.to_string()),
            ..text(format!("<unknown: {why}>"))
        });
    }
    Some(text(quoted(&bytes, row.count > shown, shower.scene.elements)))
}

fn elements(shower: &Shower<'_>, row: &Row, name: &str, depth: u32) -> Shown {
    let size = row.element.size().unwrap_or(0);
    let values = (0..row.count).map(|number| {
        let at = row.at.wrapping_add(number.wrapping_mul(size));
        (format!("[{number}]"), Value::at(row.element.clone(), at))
    });
    counted_list(shower, name, row.count, values, depth)
}

fn counted_list(
    shower: &Shower<'_>,
    name: &str,
    count: u64,
    values: impl Iterator<Item = (String, Value)>,
    depth: u32,
) -> Shown {
    let (shown, more) = shower.elements(values, depth);
    let listed = listed(&shown, more, false);
    Shown {
        text: match name {
            "&" => format!("&[{listed}]"),
            name => format!("{name}(size={count}) = {{{listed}}}"),
        },
        members: shown,
        ..Shown::default()
    }
}

fn deque(shower: &Shower<'_>, value: &Value, record: &RecordShape, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let element = record.argument(0)?;
    let size = element.size()?;
    let at = buffer(scene, value)?;
    let field = |names: &[&str]| u64::try_from(number(scene, &path(scene, value, names)?)?).ok();
    let (head, count) = (field(&["head"])?, field(&["len"])?);
    let capacity = field(&["buf", "inner", "cap", "__0"]).or_else(|| field(&["buf", "cap", "__0"]))?;
    if capacity == 0 && count > 0 {
        return None;
    }
    let values = (0..count).map(|number| {
        let slot = head.wrapping_add(number) % capacity.max(1);
        let at = at.wrapping_add(slot.wrapping_mul(size));
        (format!("[{number}]"), Value::at(element.clone(), at))
    });
    Some(counted_list(shower, "VecDeque", count, values, depth))
}

/// `Rc` and `Arc`: what is counted, and how often it is held.
fn counted(shower: &Shower<'_>, value: &Value, depth: u32) -> Option<Shown> {
    let scene = shower.scene;
    let pointer = path(scene, value, &["ptr", "pointer"])?;
    let inner = scene.pointed(&pointer).ok()?;
    let count = |name: &str| {
        let counter = path(scene, &inner, &[name, "value", "value"])
            .or_else(|| path(scene, &inner, &[name, "v", "value"]))
            .or_else(|| path(scene, &inner, &[name, "v", "value", "__0"]))?;
        number(scene, &counter)
    };
    let (strong, weak) = (count("strong")?, count("weak")?);
    let held = path(scene, &inner, &["value"]).or_else(|| path(scene, &inner, &["data"]))?;
    let held = shower.show(&held, depth + 1);
    let kind = match value.ty.name() {
        name if name.starts_with("alloc::rc") => "Rc",
        _ => "Arc",
    };
    // All strong ones together hold one weak.
    let weak = weak.saturating_sub(1);
    Some(Shown {
        text: format!("{kind}(strong={strong}, weak={weak}) = {{{}}}", held.text),
        members: vec![ShownMember::new("value", held)],
        ..Shown::default()
    })
}

/// The slots of a table of `hashbrown` that are taken, by its control bytes.
fn hash_map(shower: &Shower<'_>, value: &Value, to: &[&str], set: bool, depth: u32) -> Option<Shown> {
    /// A larger table is not gone through.
    const MAX_SLOTS: u64 = 1 << 20;
    let scene = shower.scene;
    let raw = path(scene, value, to)?;
    let Shape::Record(record) = raw.ty.shape() else {
        return None;
    };
    let pair = record.argument(0)?;
    let size = pair.size()?;
    let table = path(scene, &raw, &["table"])?;
    let field = |name: &str| u64::try_from(number(scene, &path(scene, &table, &[name])?)?).ok();
    let (mask, count) = (field("bucket_mask")?, field("items")?);
    let control = held_address(scene, &path(scene, &table, &["ctrl"])?)?;
    if mask >= MAX_SLOTS {
        return None;
    }
    let mut controls = vec![0; usize::try_from(mask).ok()? + 1];
    scene.source.memory(control, &mut controls).ok()?;
    // The slots stand before the control bytes, the first one last.
    let taken = (1u64..).zip(&controls).filter(|(_, byte)| **byte < 0x80);
    let pairs: Vec<Value> = taken
        .map(|(slot, _)| Value::at(pair.clone(), control.wrapping_sub(slot.wrapping_mul(size))))
        .take(scene.elements)
        .collect();
    let more = count > pairs.len() as u64;
    let mut shown = Vec::new();
    for pair in pairs {
        let key = shower.show(&path(scene, &pair, &["__0"])?, depth + 1);
        if set {
            shown.push(ShownMember::new(format!("[{}]", shown.len()), key));
            continue;
        }
        let value = shower.show(&path(scene, &pair, &["__1"])?, depth + 1);
        shown.push(ShownMember::new(format!("[{}]", key.text), value));
    }
    let name = if set { "HashSet" } else { "HashMap" };
    Some(Shown {
        text: format!("{name}(size={count}) = {{{}}}", listed(&shown, more, !set)),
        members: shown,
        ..Shown::default()
    })
}

/// `v[i]` of a vector, a slice, a `VecDeque`.
pub(crate) fn element(scene: &Scene<'_>, value: &Value, index: i128) -> Evaluated {
    let name = value.ty.name();
    let row = if name.starts_with('&') {
        slice(scene, value)
    } else if name.starts_with("alloc::vec::Vec<") {
        vector(scene, value)
    } else {
        None
    };
    let Some(row) = row else {
        return wrong("it is no array and no pointer");
    };
    match u64::try_from(index) {
        Ok(index) if index < row.count => {
            let size = row.element.size().unwrap_or(0);
            Ok(Value::at(
                row.element,
                row.at.wrapping_add(index.wrapping_mul(size)),
            ))
        }
        _ => wrong(format!("there are {} elements", row.count)),
    }
}
