//! Values of a chunk, walked by their types.

use super::cursor::{Cursor, Primitive, Text};
use super::metadata::{Field, Type, TypeIdx, Types};
use std::cell::Cell;
use std::collections::HashMap;

/// The most types that are inside of each other.
const MAX_DEPTH: usize = 16;
/// The most constants that lead to a text: a class, its symbol and the symbol's string.
const MAX_CONSTANTS: usize = 4;
/// The types whose constants are used.
const USED: [&str; 8] = [
    "java.lang.Class",
    "java.lang.String",
    "java.lang.Thread",
    "jdk.types.FrameType",
    "jdk.types.Method",
    "jdk.types.StackTrace",
    "jdk.types.Symbol",
    "jdk.types.ThreadState",
];

/// The values of a chunk. A method returns `None` if a value is damaged.
pub(super) struct Values<'a> {
    types: Types,
    start: Cursor<'a>,
    /// The positions of constants by type and key.
    constants: HashMap<(TypeIdx, i64), usize>,
    /// The number of fields, and of bytes of texts, that may still be read. It bounds the time for
    /// types without bytes, and for long texts that many constants share.
    steps: Cell<u64>,
}

impl<'a> Values<'a> {
    /// Returns the values of a chunk without its constants.
    pub(super) fn new(types: Types, start: Cursor<'a>) -> Self {
        let steps = (1 << 16) + 64 * start.remaining() as u64;
        Self {
            types,
            start,
            constants: HashMap::new(),
            steps: Cell::new(steps),
        }
    }

    /// Returns the types.
    pub(super) fn types(&self) -> &Types {
        &self.types
    }

    /// Adds the constants of a checkpoint. The first constant of a key counts.
    pub(super) fn add_constants(&mut self, cursor: Cursor<'a>) -> Option<()> {
        let mut cursor = cursor;
        // The start, the duration and the distance to another checkpoint.
        for _ in 0..3 {
            cursor.long()?;
        }
        cursor.byte()?;
        for _ in 0..cursor.count()? {
            let kind = self.types.with_id(cursor.long()?)?;
            let is_used = self
                .types
                .get(kind)
                .is_some_and(|kind| USED.contains(&&*kind.name));
            for _ in 0..cursor.count()? {
                let key = cursor.long()?;
                let at = cursor.position();
                self.skip(&mut cursor, kind, 0)?;
                if is_used {
                    self.constants.entry((kind, key)).or_insert(at);
                }
            }
        }
        Some(())
    }

    /// Returns the type and position of a constant.
    fn constant(&self, kind: TypeIdx, key: i64) -> Option<(&Type, Cursor<'a>)> {
        let at = *self.constants.get(&(kind, key))?;
        Some((self.types.get(kind)?, self.start.moved_to(at)?))
    }

    fn step(&self) -> Option<()> {
        self.charge(1)
    }

    /// Counts bytes of a text that is built. `None`: the chunk's limit is reached, and nothing more
    /// is read.
    pub(super) fn charge(&self, bytes: usize) -> Option<()> {
        let rest = self.steps.get().checked_sub(bytes as u64);
        self.steps.set(rest.unwrap_or(0));
        rest.map(|_| ())
    }

    /// Returns whether the limit of the chunk was reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Reads a text, or that of the constant that it names.
    fn read_text(&self, kind: TypeIdx, cursor: Cursor<'a>, constants: usize) -> Option<String> {
        let mut cursor = cursor;
        match cursor.text()? {
            Text::Null => Some(String::new()),
            Text::Constant(key) => self.constant_text(kind, key, constants),
            Text::Inline(text) => {
                self.charge(text.len())?;
                Some(text.into_owned())
            }
        }
    }

    /// Calls `visit` with each field of a value, and its position.
    pub(super) fn each_field<'t>(
        &self,
        cursor: &mut Cursor<'a>,
        kind: &'t Type,
        visit: &mut dyn FnMut(usize, &'t Field, Cursor<'a>),
    ) -> Option<()> {
        for (index, field) in kind.fields.iter().enumerate() {
            let at = *cursor;
            self.skip_field(cursor, field, 0)?;
            visit(index, field, at);
        }
        Some(())
    }

    fn skip(&self, cursor: &mut Cursor<'a>, kind: TypeIdx, depth: usize) -> Option<()> {
        self.step()?;
        let kind = self.types.get(kind)?;
        if let Some(primitive) = kind.primitive {
            return cursor.primitive(primitive).map(|_| ());
        }
        if depth == MAX_DEPTH {
            return None;
        }
        let mut fields = kind.fields.iter();
        fields.try_for_each(|field| self.skip_field(cursor, field, depth + 1))
    }

    fn skip_field(&self, cursor: &mut Cursor<'a>, field: &Field, depth: usize) -> Option<()> {
        let count = match field.is_array {
            true => cursor.count()?,
            false => 1,
        };
        for _ in 0..count {
            match field.is_constant {
                true => {
                    self.step()?;
                    cursor.long()?;
                }
                false => self.skip(cursor, field.kind?, depth)?,
            }
        }
        Some(())
    }

    /// Returns a number, or the key of a constant.
    pub(super) fn number(&self, field: &Field, cursor: Cursor<'a>) -> Option<i64> {
        let mut cursor = cursor;
        match (field.is_array, field.is_constant) {
            (true, _) => None,
            (false, true) => cursor.long(),
            (false, false) => cursor.primitive(self.types.get(field.kind?)?.primitive?),
        }
    }

    /// Returns the elements of an array without constants: their type, number, and the first one.
    pub(super) fn elements(&self, field: &Field, cursor: Cursor<'a>) -> Option<(&Type, usize, Cursor<'a>)> {
        let mut cursor = cursor;
        if !field.is_array || field.is_constant {
            return None;
        }
        let count = cursor.count()?;
        Some((self.types.get(field.kind?)?, count, cursor))
    }

    /// Returns the text of a field: its own, or that of the constant that it names.
    pub(super) fn text(&self, field: &Field, cursor: Cursor<'a>) -> Option<String> {
        self.text_of(field, cursor, MAX_CONSTANTS)
    }

    fn text_of(&self, field: &Field, cursor: Cursor<'a>, constants: usize) -> Option<String> {
        let mut cursor = cursor;
        let kind = field.kind.filter(|_| !field.is_array)?;
        if field.is_constant {
            return self.constant_text(kind, cursor.long()?, constants);
        }
        if self.types.get(kind)?.primitive != Some(Primitive::Text) {
            return None;
        }
        self.read_text(kind, cursor, constants)
    }

    /// Returns the text of a constant, as the name of a class.
    pub(super) fn text_of_constant(&self, (kind, key): (TypeIdx, i64)) -> Option<String> {
        self.constant_text(kind, key, MAX_CONSTANTS)
    }

    fn constant_text(&self, kind: TypeIdx, key: i64, constants: usize) -> Option<String> {
        let constants = constants.checked_sub(1)?;
        self.step()?;
        let (described, mut cursor) = self.constant(kind, key)?;
        if described.primitive == Some(Primitive::Text) {
            return self.read_text(kind, cursor, constants);
        }
        let mut found = None;
        self.each_field(&mut cursor, described, &mut |_, field, at| {
            if matches!(&*field.name, "string" | "name" | "description") {
                found = found.or(Some((field, at)));
            }
        })?;
        let (field, at) = found?;
        self.text_of(field, at, constants)
    }

    /// Calls `visit` with each field of the constant that a field names, and its position.
    pub(super) fn each_field_of_constant(
        &self,
        kind: TypeIdx,
        key: i64,
        visit: &mut dyn FnMut(&Field, Cursor<'a>),
    ) -> Option<()> {
        let (kind, mut cursor) = self.constant(kind, key)?;
        self.each_field(&mut cursor, kind, &mut |_, field, at| visit(field, at))
    }
}
