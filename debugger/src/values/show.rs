//! Values as text, as GDB writes it, and as a tree of what they are made of.

use super::arithmetic::{integer, is_read, is_signed};
use super::evaluate::Failure;
use super::members;
use super::registers;
use super::scalar;
use super::scene::Scene;
use super::text::REPEATS;
use super::types::{ArrayCount, Base, RecordShape, Shape, Ty};
use super::units::Units;
use super::value::{Gap, MAX_SIZE, Value};
use super::{cpp, rust};
use backtrail_symbolizer::VariableLocation;
use backtrail_symbolizer::types::{Encoding, Language, MemberLocation, PointerKind, TypeKind};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;

/// Records in records are shown this deep.
const MAX_DEPTH: u32 = 20;
/// Of one value, no more parts are shown.
const MAX_PARTS: usize = 4000;

/// A value as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// In one line.
    pub text: String,
    /// Where it is, if it is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Why it is not known, or not all of it; `"optimized out"` where it is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Before the crash, what it is known from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// What it is made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ShownMember>,
    /// It is of a library's type, and shown as what it holds.
    #[serde(skip)]
    pub(crate) pretty: bool,
    /// What is shown.
    #[serde(skip)]
    pub(crate) of: Whole,
}

/// The value that is shown, for who opens it further; it makes no difference between two that are shown alike.
#[derive(Clone, Default)]
pub(crate) struct Whole(pub Option<Value>);

impl PartialEq for Whole {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Whole {}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Whole" } else { "Nothing" })
    }
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownMember {
    /// What it is called: a member's name, `[0]`, `<Base>`.
    pub name: String,
    /// The part.
    #[serde(flatten)]
    pub value: Shown,
    /// So many elements in a row are the same.
    #[serde(skip_serializing_if = "is_once")]
    pub repeats: u64,
}

fn is_once(repeats: &u64) -> bool {
    *repeats == 1
}

impl ShownMember {
    pub(crate) fn new(name: impl Into<String>, value: Shown) -> Self {
        Self {
            name: name.into(),
            value,
            repeats: 1,
        }
    }
}

/// Shows values of a frame.
pub(crate) struct Shower<'a> {
    /// The frame.
    pub scene: &'a Scene<'a>,
    /// The form of numbers that was asked for.
    pub letter: Option<char>,
    /// Types of libraries are shown as they are inside.
    pub raw: bool,
    /// Records in records are shown this deep.
    pub depth: u32,
    /// Of what is shown, these elements are listed, each by itself.
    pub window: Option<Range<u64>>,
    /// How many elements what is shown has, where that is known.
    pub total: Cell<Option<u64>>,
    parts: Cell<usize>,
    /// The virtual bases of the object that is shown, each of which is shown once.
    virtual_bases: RefCell<Vec<String>>,
    /// What is shown next is a base of the object.
    base_next: Cell<bool>,
}

impl<'a> Shower<'a> {
    /// As many as are asked for are shown, in any case.
    fn most_parts(&self) -> usize {
        MAX_PARTS.max(self.scene.elements.saturating_mul(2))
    }

    /// Numbers in the form of `letter`.
    pub fn new(scene: &'a Scene<'a>, letter: Option<char>) -> Self {
        Self {
            scene,
            letter: letter.filter(|letter| *letter != 's'),
            raw: false,
            depth: MAX_DEPTH,
            window: None,
            total: Cell::new(None),
            parts: Cell::new(0),
            virtual_bases: RefCell::default(),
            base_next: Cell::new(false),
        }
    }

    /// As `print` shows it: a pointer with its type.
    pub fn top(&self, value: &Value) -> Shown {
        let mut shown = self.show(value, 0);
        let plain = self.letter.is_some() || shown.text.starts_with('<') && shown.unknown.is_some();
        let is_string = |target: &Ty| value.ty.below().is_none() && is_plain_char(target);
        if let Shape::Pointer(kind, target) = value.ty.shape()
            && !plain
            && !shown.pretty
            && !(kind == PointerKind::Pointer && is_string(&target))
        {
            shown.text = format!("({}) {}", value.ty.name(), shown.text);
        }
        shown
    }

    /// As it stands in another value, and in `info locals`.
    pub fn show(&self, value: &Value, depth: u32) -> Shown {
        let parts = self.parts.get();
        self.parts.set(parts.saturating_add(1));
        let too_deep = depth > MAX_DEPTH || depth > self.depth && !value.ty.is_scalar();
        let mut shown = if too_deep || parts > self.most_parts() {
            Shown {
                text: "{...}".to_owned(),
                ..Shown::default()
            }
        } else {
            match self.shown(value, depth) {
                Ok(shown) => shown,
                Err(gap) => Shown {
                    text: gap.text(),
                    unknown: Some(gap.reason()),
                    ..Shown::default()
                },
            }
        };
        shown.type_name = value.ty.name();
        shown.address = value.address();
        shown.of = Whole(Some(value.clone()));
        shown
    }

    fn shown(&self, value: &Value, depth: u32) -> Result<Shown, Gap> {
        if let super::value::Data::Gap(gap) = &value.data {
            return Err(gap.clone());
        }
        match value.ty.shape() {
            Shape::Void => Ok(text("void")),
            Shape::Base(base) => self.base(value, &base).map(text),
            Shape::Enumeration(described, size) => {
                let bytes = value.bytes(self.scene.source)?;
                let bits = value.bits.map_or(size * 8, |bits| bits.size);
                if let Some(letter) = self.letter
                    && let Some(found) = scalar::lettered(&bytes, letter, Encoding::Unsigned, bits)
                {
                    return Ok(text(found));
                }
                let signed = scalar::is_negative(&described);
                let number = integer(&bytes, signed, bits).unwrap_or_default();
                Ok(text(scalar::enumerator(&described, number)))
            }
            Shape::Pointer(PointerKind::Pointer, target) => self.pointer(value, &target).map(text),
            Shape::Pointer(_, target) => self.reference(value, &target, depth),
            Shape::Record(record) => self.record(value, &record, depth),
            Shape::Array { element, count, .. } => self.array(value, &element, count, depth),
            Shape::Function => {
                let at = value.address().unwrap_or(0);
                Ok(text(format!("{{{}}} {}", value.ty.name(), self.with_symbol(at))))
            }
            Shape::MemberPointer { class, target } => self.member_pointer(value, &class, &target).map(text),
            Shape::Other(why) => Err(Gap::Unknown(why.into())),
        }
    }

    fn base(&self, value: &Value, base: &Base) -> Result<String, Gap> {
        let bytes = value.bytes(self.scene.source)?;
        let bits = value.bits.map_or(bytes.len() as u64 * 8, |bits| bits.size);
        if let Some('a') = self.letter {
            let at = integer(&bytes, false, bits).unwrap_or_default() as u64;
            return Ok(self.with_symbol(at));
        }
        if let Some(found) = self
            .letter
            .and_then(|letter| scalar::lettered(&bytes, letter, base.encoding, bits))
        {
            return Ok(found);
        }
        let complex = base.encoding == Encoding::ComplexFloat;
        let part = base.size / if complex { 2 } else { 1 };
        if (complex || base.encoding == Encoding::Float) && !is_read(&base.name, part) {
            return Err(Gap::Unknown("numbers of its type are not read".into()));
        }
        if *base.name == *registers::FLAGS {
            let number = integer(&bytes, false, bits).unwrap_or_default();
            return Ok(registers::flags(number as u64));
        }
        // `()` of Rust.
        if bytes.is_empty() {
            return Ok("()".to_owned());
        }
        if let Some(units) = Units::of(&value.ty).filter(|units| units.is_wide()) {
            let signed = is_signed(base.encoding);
            return Ok(units.alone(integer(&bytes, signed, bits).unwrap_or_default()));
        }
        Ok(scalar::base(&bytes, base.encoding, bits, self.scene.language()))
    }

    /// `0x401136 <main+4>`.
    pub fn with_symbol(&self, at: u64) -> String {
        match self.scene.symbol(at) {
            Some(symbol) => format!("{at:#x} <{symbol}>"),
            None => format!("{at:#x}"),
        }
    }

    fn pointer(&self, value: &Value, target: &Ty) -> Result<String, Gap> {
        let bytes = value.read(self.scene.source, 8)?;
        let at = u64::from_le_bytes(bytes.as_slice().try_into().unwrap_or_default());
        match self.letter {
            None => {}
            Some('a') => return Ok(self.with_symbol(at)),
            Some(letter) => {
                let found = scalar::lettered(&bytes, letter, Encoding::Unsigned, 64);
                return Ok(found.unwrap_or_else(|| format!("{at:#x}")));
            }
        }
        let shown = self.with_symbol(at);
        let units = Units::of(target).filter(|_| at != 0 && value.ty.language() != Some(Language::Rust));
        Ok(match units {
            Some(units) => format!("{shown} {}", self.string_and_length(at, units).0),
            None => shown,
        })
    }

    /// The string of bytes at an address, to its end.
    pub fn string_at(&self, at: u64) -> String {
        self.string_and_length(at, Units::BYTES).0
    }

    /// The string at an address, and how many bytes it takes with what ends it, or as far as it is shown; `None`: memory
    /// ends before it.
    pub fn string_and_length(&self, at: u64, units: Units) -> (String, Option<u64>) {
        let elements = self.scene.elements;
        let limit = units.size * elements as u64;
        let mut bytes = Vec::new();
        // A string may end just before memory does.
        for offset in (0..=limit).step_by(units.size as usize) {
            let mut wide = [0; 4];
            let unit = wide.get_mut(..units.size as usize).unwrap_or_default();
            if let Err(why) = self.scene.source.memory(at.wrapping_add(offset), unit) {
                let read = match bytes.is_empty() {
                    true => String::new(),
                    false => units.quoted(&bytes, false, elements),
                };
                return (format!("{read}<unknown: {why}>"), None);
            }
            if unit.iter().all(|byte| *byte == 0) {
                return (units.quoted(&bytes, false, elements), Some(offset + units.size));
            }
            bytes.extend_from_slice(unit);
        }
        let shown = bytes.get(..limit as usize).unwrap_or(&bytes);
        (units.quoted(shown, true, elements), Some(limit))
    }

    fn reference(&self, value: &Value, target: &Ty, depth: u32) -> Result<Shown, Gap> {
        let bytes = match value.read(self.scene.source, 8) {
            Err(Gap::ImplicitPointer(entry, offset)) => {
                let inner = self.scene.implicit_target(entry, offset, target.clone());
                return self.shown(&inner, depth + 1);
            }
            other => other?,
        };
        let at = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let inner = self.show(&Value::at(target.clone(), at), depth + 1);
        if inner.pretty {
            return Ok(inner);
        }
        let shown = match depth {
            // GDB shows what members refer to by its address alone.
            0 => format!("@{at:#x}: {}", inner.text),
            _ => match target.shape() {
                Shape::Record(_) | Shape::Array { .. } => format!("@{at:#x}"),
                _ => format!("@{at:#x}: {}", inner.text),
            },
        };
        Ok(Shown {
            text: shown,
            members: inner.members,
            unknown: inner.unknown,
            ..Shown::default()
        })
    }

    /// Memory that is not there at all is said once, not for every member.
    fn is_there(&self, value: &Value) -> Result<(), Gap> {
        if value.address().is_some() && value.ty.size().is_none_or(|size| size > 0) {
            value.read(self.scene.source, 1)?;
        }
        Ok(())
    }

    fn record(&self, value: &Value, record: &RecordShape, depth: u32) -> Result<Shown, Gap> {
        if self.base_next.take() {
            return self.record_or_base(value, record, depth);
        }
        let outer = self.virtual_bases.take();
        let shown = self.record_or_base(value, record, depth);
        self.virtual_bases.replace(outer);
        shown
    }

    /// The virtual base is to be shown: no other base of the object has shown it.
    fn is_first(&self, base: &Ty) -> bool {
        let name = base.name();
        let mut bases = self.virtual_bases.borrow_mut();
        let first = !bases.contains(&name);
        bases.push(name);
        first
    }

    fn record_or_base(&self, value: &Value, record: &RecordShape, depth: u32) -> Result<Shown, Gap> {
        self.is_there(value)?;
        if record.record().declaration {
            return Ok(text("<incomplete type>"));
        }
        if !self.raw {
            let pretty = match record.described.language {
                Language::Rust => rust::show(self, value, record, depth),
                Language::Cpp => cpp::show(self, value, record, depth),
                _ => None,
            };
            if let Some(shown) = pretty {
                return Ok(Shown {
                    pretty: true,
                    ..shown
                });
            }
        }
        if record.described.language == Language::Rust {
            return rust::record(self, value, record, depth);
        }
        let mut shown: Vec<ShownMember> = Vec::new();
        let members = &record.record().members;
        for member in members {
            if member.is_virtual && !self.is_first(&record.ty(member.entry)) {
                continue;
            }
            let inner = members::value_of(self.scene, record, value, member);
            let is_static = matches!(member.location, MemberLocation::Static(_));
            let name = match (&member.name, member.base) {
                (_, true) => format!("<{}>", inner.ty.name()),
                (Some(name), _) if is_static => format!("static {name}"),
                (Some(name), _) => name.to_string(),
                (None, _) => String::new(),
            };
            // A static member of the type itself would not end.
            let endless = is_static && depth > 0 && !inner.ty.is_scalar();
            let inner = if endless {
                let mut shown = self.show(&Value::gap(inner.ty, Gap::OptimizedOut), depth + 1);
                shown.text = "...".to_owned();
                shown
            } else {
                self.base_next.set(member.base);
                // A number's form is not that of a pointer to a table of virtual functions.
                let plain = name.starts_with("_vptr").then(|| Shower::new(self.scene, None));
                let inner = plain.as_ref().unwrap_or(self).show(&inner, depth + 1);
                self.base_next.set(false);
                inner
            };
            shown.push(ShownMember::new(name, inner));
        }
        let mut parts: Vec<String> = shown
            .iter()
            .map(|member| match member.name.as_str() {
                "" => member.value.text.clone(),
                name => format!("{name} = {}", member.value.text),
            })
            .collect();
        if members.iter().all(|member| member.base) {
            parts.push("<No data fields>".to_owned());
        }
        Ok(Shown {
            text: format!("{{{}}}", parts.join(", ")),
            members: shown,
            ..Shown::default()
        })
    }

    /// How many elements an array has.
    pub fn count(&self, count: ArrayCount) -> Result<u64, Gap> {
        let (expression, more) = match count {
            ArrayCount::Known(count) => return Ok(count),
            ArrayCount::Unknown => return Ok(0),
            ArrayCount::UpperBound(expression) => (expression, 1),
            ArrayCount::Count(expression) => (expression, 0),
        };
        let unknown = || Gap::Unknown("how many elements it has is not known".into());
        let here = self.scene.here.as_ref().ok_or_else(unknown)?;
        let location = VariableLocation::Expression(expression);
        let value = self.scene.at_location(&location, here, Ty::long());
        // An expression for a value leaves it on the stack, as it would an address.
        let number = match value.address() {
            Some(number) => number as i64,
            None => members::number(self.scene, &value)
                .and_then(|number| i64::try_from(number).ok())
                .ok_or_else(unknown)?,
        };
        let count = u64::try_from(number.saturating_add(more)).unwrap_or(0);
        Ok(count)
    }

    fn array(&self, value: &Value, element: &Ty, count: ArrayCount, depth: u32) -> Result<Shown, Gap> {
        let count = self.count(count)?;
        if count > 0 {
            self.is_there(value)?;
        }
        let size = element.size().unwrap_or(0);
        let units = Units::of(element).filter(|_| {
            matches!(self.letter, None | Some('s')) && value.ty.language() != Some(Language::Rust)
        });
        if let Some(units) = units {
            let limit = self.scene.elements;
            let wanted = count.min(limit as u64 + 1);
            let mut bytes = value.read(self.scene.source, wanted * units.size)?;
            let last = bytes.len().saturating_sub(units.size as usize);
            if count <= limit as u64 && bytes.iter().skip(last).all(|byte| *byte == 0) {
                bytes.truncate(last);
            }
            return Ok(text(units.quoted(&bytes, false, limit)));
        }
        let elements = (0..count).map(|number| {
            let element = value.part(element.clone(), number.saturating_mul(size));
            (format!("[{number}]"), element)
        });
        let (shown, more) = self.elements(elements, depth);
        let (open, close) = match self.scene.language() {
            Language::Rust => ("[", "]"),
            _ => ("{", "}"),
        };
        Ok(Shown {
            text: format!("{open}{}{close}", listed(&shown, more, false)),
            members: shown,
            ..Shown::default()
        })
    }

    /// Elements, those that are the same in a row as one, and whether there are more.
    pub fn elements(
        &self,
        elements: impl Iterator<Item = (String, Value)>,
        depth: u32,
    ) -> (Vec<ShownMember>, bool) {
        if depth == 0 {
            let (least, most) = elements.size_hint();
            self.total
                .set(most.filter(|most| *most == least).map(|most| most as u64));
            if let Some(window) = &self.window {
                return self.listed_alone(elements, window, depth);
            }
        }
        let mut shown: Vec<ShownMember> = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        let limit = self.scene.elements;
        let mut printed = 0;
        let mut looked_at = 0u64;
        for (name, element) in elements {
            // Runs are counted, but not forever.
            looked_at += 1;
            if looked_at > MAX_SIZE || self.parts.get() > self.most_parts() {
                return (shown, true);
            }
            let bytes = element.bytes(self.scene.source).ok();
            if bytes.is_some()
                && bytes == last
                && let Some(run) = shown.last_mut()
            {
                run.repeats += 1;
                continue;
            }
            printed += shown.last().map_or(0, |run| printed_as(run.repeats));
            if printed >= limit {
                return (shown, true);
            }
            last = bytes;
            shown.push(ShownMember::new(name, self.show(&element, depth + 1)));
        }
        // A run at the end may have more than are shown.
        printed += shown.last().map_or(0, |run| printed_as(run.repeats));
        if printed > limit
            && let Some(run) = shown.last_mut().filter(|run| run.repeats < REPEATS as u64)
        {
            run.repeats = run.repeats.saturating_sub((printed - limit) as u64);
            return (shown, true);
        }
        (shown, false)
    }

    /// Some of the elements, each by itself.
    fn listed_alone(
        &self,
        elements: impl Iterator<Item = (String, Value)>,
        window: &Range<u64>,
        depth: u32,
    ) -> (Vec<ShownMember>, bool) {
        let count = window.end.saturating_sub(window.start);
        let skipped = elements.skip(usize::try_from(window.start).unwrap_or(usize::MAX));
        let wanted = skipped.take(usize::try_from(count).unwrap_or(usize::MAX));
        let shown = wanted
            .take_while(|_| self.parts.get() <= self.most_parts())
            .map(|(name, element)| ShownMember::new(name, self.show(&element, depth + 1)))
            .collect();
        (shown, false)
    }
}

/// How many elements a run counts as.
fn printed_as(repeats: u64) -> usize {
    (repeats as usize).min(REPEATS)
}

/// Elements in one line; `named`: with their names.
pub(crate) fn listed(elements: &[ShownMember], more: bool, named: bool) -> String {
    let mut parts = Vec::new();
    for element in elements {
        let shown = |after: u64| match named {
            true => format!("{} = {}", number_after(&element.name, after), element.value.text),
            false => element.value.text.clone(),
        };
        if element.repeats >= REPEATS as u64 {
            parts.push(format!("{} <repeats {} times>", shown(0), element.repeats));
        } else {
            parts.extend((0..element.repeats).map(shown));
        }
    }
    let mut text = parts.join(", ");
    if more {
        text.push_str("...");
    }
    text
}

/// The name of an element so many after the one that has this name.
fn number_after(name: &str, after: u64) -> String {
    let number = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match number.and_then(|number| number.parse::<u64>().ok()) {
        Some(number) if after > 0 => format!("[{}]", number.saturating_add(after)),
        _ => name.to_owned(),
    }
}

/// Text alone.
pub(crate) fn text(text: impl Into<String>) -> Shown {
    Shown {
        text: text.into(),
        ..Shown::default()
    }
}

/// `char`, with qualifiers or without, by this very name, or a wide character.
fn is_plain_char(ty: &Ty) -> bool {
    let mut ty = ty.clone();
    for _ in 0..4 {
        match ty.below() {
            Some((Some(_), below)) => ty = below,
            _ => break,
        }
    }
    if Units::has_letter(&ty) {
        return true;
    }
    match &ty {
        Ty::Base(base) => *base.name == *"char",
        _ => ty.described().is_some_and(|(_, described)| {
            described.name.as_deref() == Some("char") && matches!(described.kind, TypeKind::Base(_))
        }),
    }
}

impl Shower<'_> {
    /// A failure as it is shown in the place of a value.
    pub fn failed(failure: Failure) -> crate::Result<Shown> {
        match failure {
            Failure::Error(error) => Err(error),
            Failure::Gap(gap) => Ok(Shown {
                unknown: Some(gap.reason()),
                ..text(gap.text())
            }),
        }
    }
}
