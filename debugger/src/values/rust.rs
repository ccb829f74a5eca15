//! Values of Rust: records as the source writes them, and types of the standard library as what they hold.

use super::members::{self, active, number, path};
use super::rust_containers::{Container, Row, Table};
use super::show::{Shower, Shown, ShownMember, listed, text};
use super::text::quoted;
use super::types::{RecordShape, Shape};
use super::value::{Gap, Value};
use backtrail_symbolizer::types::MemberLocation;

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
        .filter(|member| !matches!(member.location, MemberLocation::Static(_)));
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
    match Container::of(scene, value, record) {
        Some(Container::Text(row)) => return string(shower, &row),
        Some(Container::Row(row)) if name.starts_with("alloc::") => {
            return Some(elements(shower, &row, "Vec", depth));
        }
        Some(Container::Row(row)) => return Some(elements(shower, &row, "&", depth)),
        Some(Container::Deque(deque)) => {
            let values = (0..deque.count).map(|number| (format!("[{number}]"), deque.at(number)));
            return Some(counted_list(shower, "VecDeque", deque.count, values, depth));
        }
        Some(Container::Table(found)) => {
            let last = name.split('<').next().unwrap_or(name);
            let last = last.rsplit("::").next().unwrap_or(last);
            return table(shower, &found, last, depth);
        }
        None => {}
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
    None
}

fn string(shower: &Shower<'_>, row: &Row) -> Option<Shown> {
    let limit = shower.scene.elements;
    Some(match row.bytes(shower.scene, limit as u64)? {
        Ok(bytes) => text(quoted(&bytes, row.count > limit as u64, limit)),
        Err(gap) => Shown {
            unknown: Some(gap.reason()),
            ..text(gap.text())
        },
    })
}

fn elements(shower: &Shower<'_>, row: &Row, name: &str, depth: u32) -> Shown {
    let values = (0..row.count).map(|number| (format!("[{number}]"), row.at(number)));
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

/// `HashMap(size=1) = {["a"]: 1}`, and its like of sets.
fn table(shower: &Shower<'_>, table: &Table, name: &str, depth: u32) -> Option<Shown> {
    let entries = table.entries(shower.scene, shower.scene.elements)?;
    let more = table.count > entries.len() as u64;
    let is_set = name.ends_with("Set");
    let mut shown = Vec::new();
    for (key, value) in entries {
        let key = shower.show(&key, depth + 1);
        if is_set {
            shown.push(ShownMember::new(format!("[{}]", shown.len()), key));
            continue;
        }
        let value = shower.show(&value, depth + 1);
        shown.push(ShownMember::new(format!("[{}]", key.text), value));
    }
    Some(Shown {
        text: format!(
            "{name}(size={}) = {{{}}}",
            table.count,
            listed(&shown, more, !is_set)
        ),
        members: shown,
        ..Shown::default()
    })
}
