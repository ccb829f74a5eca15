//! The types of a chunk's values, as its metadata event describes them.

use super::cursor::{Cursor, Primitive, Text};
use std::collections::HashMap;
use std::rc::Rc;

/// The most elements of the metadata that are inside of each other.
const MAX_DEPTH: usize = 32;

/// The index of a type in [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TypeIdx(u32);

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Ticks of the chunk's clock.
    Ticks,
    /// Parts of a second, by their nanoseconds.
    Nanoseconds(i64),
}

/// A field of a type.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The name. Many fields may share a long one.
    pub name: Rc<str>,
    /// The type. `None`: the metadata do not describe it.
    pub kind: Option<TypeIdx>,
    /// Whether the value is the key of a constant.
    pub is_constant: bool,
    /// Whether the field has a number of values.
    pub is_array: bool,
    /// The unit, if it is one of time.
    pub unit: Option<Unit>,
}

/// A type of values or events.
#[derive(Clone, Debug)]
pub(super) struct Type {
    /// The name, as `jdk.ExecutionSample`.
    pub name: Rc<str>,
    /// The type of a value without fields.
    pub primitive: Option<Primitive>,
    /// The fields in their order.
    pub fields: Vec<Field>,
}

/// The types of a chunk.
#[derive(Debug, Default)]
pub(super) struct Types {
    types: Vec<Type>,
    by_id: HashMap<i64, TypeIdx>,
}

impl Types {
    /// Reads the metadata. `None`: they are damaged.
    pub(super) fn read(cursor: Cursor<'_>) -> Option<Self> {
        let mut cursor = cursor;
        // The start, the duration and the number of the metadata.
        for _ in 0..3 {
            cursor.long()?;
        }
        let mut strings = Vec::new();
        for _ in 0..cursor.count()? {
            strings.push(match cursor.text()? {
                Text::Inline(text) => Rc::from(&*text),
                Text::Null | Text::Constant(_) => Rc::default(),
            });
        }
        let mut builder = Builder {
            strings: &strings,
            types: Vec::new(),
        };
        builder.read_elements(&mut cursor)?;
        builder.finish()
    }

    /// Returns the type with a number in the file.
    pub(super) fn with_id(&self, id: i64) -> Option<TypeIdx> {
        self.by_id.get(&id).copied()
    }

    /// Returns a type.
    pub(super) fn get(&self, kind: TypeIdx) -> Option<&Type> {
        self.types.get(kind.0 as usize)
    }

    /// Returns the types with their numbers in the file and their indexes.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (i64, TypeIdx, &Type)> {
        let types = self.by_id.iter();
        types.filter_map(|(id, index)| Some((*id, *index, self.get(*index)?)))
    }
}

/// A type whose fields name other types by their numbers.
struct TypeElement {
    id: i64,
    name: Rc<str>,
    fields: Vec<FieldElement>,
}

/// A field as the metadata describe it.
#[derive(Default)]
struct FieldElement {
    name: Rc<str>,
    type_id: i64,
    is_constant: bool,
    is_array: bool,
    unit: Option<Unit>,
}

/// The kind of an element whose children are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ElementKind {
    Type,
    Field,
    Other,
}

struct Builder<'s> {
    strings: &'s [Rc<str>],
    types: Vec<TypeElement>,
}

impl<'s> Builder<'s> {
    fn string(&self, cursor: &mut Cursor<'_>) -> Option<&'s Rc<str>> {
        let index = usize::try_from(cursor.int()?).ok()?;
        self.strings.get(index)
    }

    /// Reads the tree of elements. The open elements are on a stack of their own, so that no input
    /// can exhaust that of the thread.
    fn read_elements(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let mut open: Vec<(ElementKind, usize)> = vec![(ElementKind::Other, 1)];
        while let Some((kind, children)) = open.last_mut() {
            let parent = *kind;
            match children.checked_sub(1) {
                None => {
                    open.pop();
                    continue;
                }
                Some(rest) => *children = rest,
            }
            let name = self.string(cursor)?;
            let kind = match (parent, &**name) {
                (ElementKind::Other, "class") => ElementKind::Type,
                (ElementKind::Type, "field") => ElementKind::Field,
                _ => ElementKind::Other,
            };
            let is_annotation = parent == ElementKind::Field && &**name == "annotation";
            self.read_attributes(cursor, kind, is_annotation)?;
            let children = cursor.int().and_then(|count| usize::try_from(count).ok())?;
            if open.len() == MAX_DEPTH {
                return None;
            }
            open.push((kind, children));
        }
        Some(())
    }

    fn read_attributes(
        &mut self,
        cursor: &mut Cursor<'_>,
        kind: ElementKind,
        is_annotation: bool,
    ) -> Option<()> {
        let mut number = None;
        let mut class = None;
        let mut name = Rc::default();
        let mut field = FieldElement::default();
        for _ in 0..cursor.count()? {
            let (key, value) = (self.string(cursor)?, self.string(cursor)?);
            match &**key {
                "id" => number = type_id(value),
                "name" => name = Rc::clone(value),
                "class" => class = type_id(value),
                "constantPool" => field.is_constant = &**value == "true",
                "dimension" => field.is_array = &**value != "0",
                "value" => field.unit = unit(value),
                _ => {}
            }
        }
        match kind {
            ElementKind::Type => self.types.push(TypeElement {
                id: number?,
                name,
                fields: Vec::new(),
            }),
            ElementKind::Field => {
                let fields = &mut self.types.last_mut()?.fields;
                fields.push(FieldElement {
                    name,
                    type_id: class?,
                    unit: None,
                    ..field
                });
            }
            ElementKind::Other if is_annotation => {
                let described = self.types.last_mut()?.fields.last_mut()?;
                described.unit = described.unit.or(field.unit);
            }
            ElementKind::Other => {}
        }
        Some(())
    }

    fn finish(self) -> Option<Types> {
        let mut by_id = HashMap::new();
        for (index, element) in self.types.iter().enumerate() {
            by_id.insert(element.id, TypeIdx(u32::try_from(index).ok()?));
        }
        let field = |field: FieldElement| Field {
            name: field.name,
            kind: by_id.get(&field.type_id).copied(),
            is_constant: field.is_constant,
            is_array: field.is_array,
            unit: field.unit,
        };
        let types = self.types.into_iter().map(|element| Type {
            primitive: Primitive::named(&element.name),
            name: element.name,
            fields: element.fields.into_iter().map(field).collect(),
        });
        Some(Types {
            types: types.collect(),
            by_id,
        })
    }
}

/// Returns the number of a type.
fn type_id(text: &str) -> Option<i64> {
    // A longer text is no number, and may be read many times.
    (text.len() <= 20).then(|| text.parse().ok())?
}

/// Returns the unit that an annotation of a time or of a length names.
fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "TICKS" => Unit::Ticks,
        "NANOSECONDS" | "NANOSECONDS_SINCE_EPOCH" => Unit::Nanoseconds(1),
        "MICROSECONDS" => Unit::Nanoseconds(1_000),
        "MILLISECONDS" | "MILLISECONDS_SINCE_EPOCH" => Unit::Nanoseconds(1_000_000),
        "SECONDS" => Unit::Nanoseconds(1_000_000_000),
        _ => return None,
    })
}
