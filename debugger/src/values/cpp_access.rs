//! What the operators of containers and pointers of the C++ standard library (libstdc++) give: `v[1]`, `*p`, `p->x`.

use super::cpp::{Deque, Vector, owned, pointed_by_shared};
use super::evaluate::{Evaluated, wrong};
use super::members::{number, path};
use super::scene::Scene;
use super::types::{RecordShape, Shape, Ty};
use super::value::Value;

/// The name of a class template of the library without its arguments.
fn template(record: &RecordShape) -> Option<String> {
    let name = record.name().replace("__cxx11::", "").replace("__debug::", "");
    let (template, _) = name.split_once('<')?;
    let template = template
        .strip_prefix("std::")
        .or_else(|| template.strip_prefix("__gnu_cxx::"))?;
    Some(template.to_owned())
}

/// An element by its number; `None`: it is no such container, or its insides are not as they are known.
pub(crate) fn element(
    scene: &Scene<'_>,
    value: &Value,
    record: &RecordShape,
    index: i128,
) -> Option<Evaluated> {
    let (count, at) = match template(record)?.as_str() {
        "array" => {
            let elements = path(scene, value, &["_M_elems"])?;
            return Some(scene.index(&elements, index));
        }
        "vector" => {
            let vector = Vector::of(scene, value, record)?;
            let at = u64::try_from(index).ok().map(|index| vector.at(index));
            (vector.length, at)
        }
        "deque" => {
            let deque = Deque::of(scene, value, record)?;
            let at = u64::try_from(index).ok().filter(|index| *index < deque.count);
            let at = match at {
                Some(index) => Some(deque.at(scene, index)?),
                None => None,
            };
            (deque.count, at)
        }
        "basic_string" => {
            let characters = path(scene, value, &["_M_dataplus", "_M_p"])?;
            let length = u64::try_from(number(scene, &path(scene, value, &["_M_string_length"])?)?).ok()?;
            // The zero behind it is its element, too.
            let count = length.checked_add(1)?;
            let inside = (0..i128::from(count)).contains(&index);
            return Some(match inside {
                true => scene.index(&characters, index),
                false => wrong(out_of_range(count)),
            });
        }
        "unique_ptr" => {
            let (pointer, target) = owned(scene, value, record)?;
            return Some(scene.index(&pointer.with_type(target.pointer()), index));
        }
        _ => return None,
    };
    let inside = u64::try_from(index).is_ok_and(|index| index < count);
    Some(match at.filter(|_| inside) {
        Some(value) => Ok(value),
        None => wrong(out_of_range(count)),
    })
}

fn out_of_range(count: u64) -> String {
    format!("there are {count} elements")
}

/// What a pointer, an iterator or an `optional` of the library stands for; `None`: it is none.
pub(crate) fn target(scene: &Scene<'_>, value: &Value, record: &RecordShape) -> Option<Evaluated> {
    let (pointer, target): (Value, Ty) = match template(record)?.as_str() {
        "unique_ptr" => owned(scene, value, record)?,
        "shared_ptr" => pointed_by_shared(scene, value, record)?,
        "__normal_iterator" => {
            let pointer = path(scene, value, &["_M_current"])?;
            return Some(scene.pointed(&pointer));
        }
        "optional" => {
            let payload = path(scene, value, &["_M_payload"])?;
            let engaged = number(scene, &path(scene, &payload, &["_M_engaged"])?)? != 0;
            return Some(match engaged {
                true => Ok(path(scene, &payload, &["_M_payload", "_M_value"])?),
                false => wrong("it holds no value"),
            });
        }
        _ => return None,
    };
    if matches!(target.shape(), Shape::Void) {
        return Some(wrong("what it points to has no type"));
    }
    Some(scene.pointed(&pointer.with_type(target.pointer())))
}
