//! Values as text, as GDB writes it, and as a tree of what they are made of.

use super::arithmetic::{integer, is_integer, is_signed, is_supported, unsupported};
use super::context::EvalContext;
use super::failure::Failure;
use super::formatted::{FormattedMember, FormattedValue, UnderlyingValue, listed, text};
use super::members;
use super::registers;
use super::scalar;
use super::text::REPEATS;
use super::types::{ArrayCount, Base, RecordShape, Shape, Ty};
use super::units::Units;
use super::value::{Data, MAX_SIZE, Unavailable, Value};
use backtrail_symbolizer::types::{Encoding, Language, MemberLocation, PointerKind, TypeKind};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Records in records are shown this deep.
const MAX_DEPTH: u32 = 20;
/// The limit of parts that are shown of one value.
const MAX_PARTS: usize = 4000;

/// Shows values of a frame.
pub struct ValueFormatter<'a> {
    /// The frame.
    pub context: &'a EvalContext<'a>,
    /// The requested form of numbers.
    pub letter: Option<char>,
    /// Types of libraries are shown as they are inside.
    pub raw: bool,
    /// Records in records are shown this deep.
    pub depth: u32,
    /// If set, these elements are listed one by one.
    pub window: Option<Range<u64>>,
    /// The number of elements of the formatted value, if known.
    pub total: Cell<Option<u64>>,
    parts: Cell<usize>,
    /// The virtual bases of the object that is shown, each of which is shown once.
    virtual_bases: RefCell<Vec<String>>,
    /// Whether the next value is a base of the object.
    base_next: Cell<bool>,
}

impl<'a> ValueFormatter<'a> {
    /// At least the requested number of parts is shown.
    fn most_parts(&self) -> usize {
        MAX_PARTS.max(self.context.elements.saturating_mul(2))
    }

    /// Numbers in the form of `letter`.
    pub fn new(context: &'a EvalContext<'a>, letter: Option<char>) -> Self {
        Self {
            context,
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
    pub fn top(&self, value: &Value) -> FormattedValue {
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

    /// Formats a value as a part of another one, and for `info locals`.
    pub fn show(&self, value: &Value, depth: u32) -> FormattedValue {
        let parts = self.parts.get();
        self.parts.set(parts.saturating_add(1));
        let too_deep = depth > MAX_DEPTH || depth > self.depth && !value.ty.is_scalar();
        let mut shown = if too_deep || parts > self.most_parts() {
            FormattedValue {
                text: "{...}".to_owned(),
                ..FormattedValue::default()
            }
        } else {
            match self.shown(value, depth) {
                Ok(shown) => shown,
                Err(cause) => FormattedValue::unavailable(&cause),
            }
        };
        shown.type_name = value.ty.name();
        shown.address = value.address();
        shown.of = UnderlyingValue(Some(value.clone()));
        shown
    }

    fn shown(&self, value: &Value, depth: u32) -> Result<FormattedValue, Unavailable> {
        let shape = value.ty.shape();
        // As in GDB, references to temporary objects have no value then: gcc states registers for
        // them that the program uses again.
        let is_reference = matches!(shape, Shape::Pointer(PointerKind::Reference, _));
        match &value.data {
            Data::Unavailable(Unavailable::ImplicitPointer(..)) if is_reference => {}
            Data::Unavailable(cause) => return Err(cause.clone()),
            _ => {}
        }
        match shape {
            Shape::Void => Ok(text("void")),
            Shape::Base(base) => self.base(value, &base).map(text),
            Shape::Enumeration(described, size) => {
                let bytes = value.bytes(self.context.source)?;
                let bits = value.bits.map_or(size * 8, |bits| bits.size);
                if let Some(letter) = self.letter
                    && let Some(found) = scalar::lettered(&bytes, letter, Encoding::Unsigned, bits)
                {
                    return Ok(text(found));
                }
                let signed = super::types::is_negative(&described);
                let number = integer(&bytes, signed, bits).unwrap_or_default();
                Ok(text(scalar::enumerator(&described, number)))
            }
            Shape::Pointer(PointerKind::Pointer, target) => self.pointer(value, &target).map(text),
            Shape::Pointer(_, target) => self.reference(value, &target, depth),
            Shape::Record(record) => self.record(value, &record, depth),
            Shape::Array { element, count, .. } => self.array(value, &element, &count, depth),
            Shape::Function => {
                let at = value.address().unwrap_or(0);
                Ok(text(format!("{{{}}} {}", value.ty.name(), self.with_symbol(at))))
            }
            Shape::MemberPointer { class, target } => self.member_pointer(value, &class, &target).map(text),
            Shape::Other(why) => Err(Unavailable::Unknown(why.into())),
        }
    }

    /// The text of a complex number of which one part is not known.
    fn incomplete_complex(&self, value: &Value, base: &Base) -> Option<String> {
        let size = base.size / 2;
        let part = |offset| {
            let ty = Ty::base("part", size, Encoding::Float);
            self.shown(&value.part(ty, offset), 0)
        };
        let text = |part: Result<FormattedValue, Unavailable>| {
            part.map_or_else(|cause| cause.text(), |part| part.text)
        };
        let (real, imaginary) = (part(0), part(size));
        let is_one = real.is_ok() != imaginary.is_ok();
        is_one.then(|| format!("{} + {}i", text(real), text(imaginary)))
    }

    fn base(&self, value: &Value, base: &Base) -> Result<String, Unavailable> {
        if base.encoding == Encoding::ComplexFloat
            && self.letter.is_none()
            && is_supported(base)
            && let Some(found) = self.incomplete_complex(value, base)
        {
            return Ok(found);
        }
        let bytes = value.bytes(self.context.source)?;
        let bits = value.bit_count(bytes.len());
        let is_number = is_integer(base.encoding);
        if let Some('a') = self.letter.filter(|_| is_number) {
            let at = integer(&bytes, false, bits).unwrap_or_default() as u64;
            return Ok(self.with_symbol(at));
        }
        // The bits of any type can be shown. As a number, only those that are one.
        let in_bits = |letter: &char| is_number || matches!(letter, 'x' | 'z' | 'o' | 't');
        let in_letter = |letter: &char| in_bits(letter) || base.encoding == Encoding::Float;
        if let Some(found) = self
            .letter
            .filter(in_letter)
            .and_then(|letter| scalar::lettered(&bytes, letter, base.encoding, bits))
        {
            return Ok(found);
        }
        if !is_number && !is_supported(base) {
            return Err(unsupported(base));
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
        Ok(scalar::base(&bytes, base, bits, self.context.language()))
    }

    /// `0x401136 <main+4>`.
    pub fn with_symbol(&self, at: u64) -> String {
        match self.context.symbol(at) {
            Some(symbol) => format!("{at:#x} <{symbol}>"),
            None => format!("{at:#x}"),
        }
    }

    fn pointer(&self, value: &Value, target: &Ty) -> Result<String, Unavailable> {
        let bytes = value.read(self.context.source, 8)?;
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

    /// Returns the string at an address, and the number of bytes up to its terminator or to the
    /// limit; `None` if the memory ends earlier.
    pub fn string_and_length(&self, at: u64, units: Units) -> (String, Option<u64>) {
        let elements = self.context.elements;
        let limit = units.size * elements as u64;
        let mut bytes = Vec::new();
        // A string may end just before memory does.
        for offset in (0..=limit).step_by(units.size as usize) {
            let mut wide = [0; 4];
            let unit = wide.get_mut(..units.size as usize).unwrap_or_default();
            if let Err(why) = self.context.source.memory(at.wrapping_add(offset), unit) {
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

    fn reference(&self, value: &Value, target: &Ty, depth: u32) -> Result<FormattedValue, Unavailable> {
        let (name, inner) = match value.read(self.context.source, 8) {
            Ok(bytes) => {
                let at = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                (format!("@{at:#x}"), Value::at(target.clone(), at))
            }
            // The target is in no memory.
            Err(cause) => match cause {
                Unavailable::ImplicitPointer(entry, offset) => {
                    let inner = self.context.implicit_target(entry, offset, target.clone());
                    (cause.text(), inner)
                }
                cause => return Err(cause),
            },
        };
        let inner = self.show(&inner, depth + 1);
        if inner.pretty {
            return Ok(inner);
        }
        let shown = match depth {
            // GDB shows what members refer to by its address alone.
            0 => format!("{name}: {}", inner.text),
            _ => match target.shape() {
                Shape::Record(_) | Shape::Array { .. } => name,
                _ => format!("{name}: {}", inner.text),
            },
        };
        Ok(FormattedValue {
            text: shown,
            members: inner.members,
            unknown: inner.unknown,
            ..FormattedValue::default()
        })
    }

    /// Reports memory that is completely absent once, not for each member.
    fn is_there(&self, value: &Value) -> Result<(), Unavailable> {
        if value.address().is_some() && value.ty.size().is_none_or(|size| size > 0) {
            value.read(self.context.source, 1)?;
        }
        Ok(())
    }

    fn record(&self, value: &Value, record: &RecordShape, depth: u32) -> Result<FormattedValue, Unavailable> {
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

    fn record_or_base(
        &self,
        value: &Value,
        record: &RecordShape,
        depth: u32,
    ) -> Result<FormattedValue, Unavailable> {
        self.is_there(value)?;
        if record.record().declaration {
            return Ok(text("<incomplete type>"));
        }
        if !self.raw {
            let pretty = match record.described.language {
                Language::Rust => self.format_rust(value, record, depth),
                Language::Cpp => self.format_cpp(value, record, depth),
                Language::Go => self.format_go(value, record, depth),
                _ => None,
            };
            if let Some(shown) = pretty {
                return Ok(FormattedValue {
                    pretty: true,
                    ..shown
                });
            }
        }
        if record.described.language == Language::Rust {
            return self.format_rust_record(value, record, depth);
        }
        let mut shown: Vec<FormattedMember> = Vec::new();
        let members = &record.record().members;
        for member in members {
            if member.is_virtual && !self.is_first(&record.ty(member.entry)) {
                continue;
            }
            let inner = members::value_of(self.context, record, value, member);
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
                let mut shown = self.show(
                    &Value::unavailable(inner.ty, Unavailable::OptimizedOut),
                    depth + 1,
                );
                shown.text = "...".to_owned();
                shown
            } else {
                self.base_next.set(member.base);
                // A number's form is not that of a pointer to a table of virtual functions.
                let plain = name
                    .starts_with("_vptr")
                    .then(|| ValueFormatter::new(self.context, None));
                let inner = plain.as_ref().unwrap_or(self).show(&inner, depth + 1);
                self.base_next.set(false);
                inner
            };
            shown.push(FormattedMember::new(name, inner));
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
        Ok(FormattedValue::with_members(
            format!("{{{}}}", parts.join(", ")),
            shown,
        ))
    }

    /// An array without a bound: its address, and its text if it is one.
    fn open_array(&self, value: &Value, element: &Ty) -> Result<FormattedValue, Unavailable> {
        let Some(at) = value.address() else {
            return Err(Unavailable::Unknown("the number of elements is not known".into()));
        };
        let shown = self.with_symbol(at);
        let units = Units::of(element).filter(|_| matches!(self.letter, None | Some('s')));
        Ok(text(match units {
            Some(units) => format!("{shown} {}", self.string_and_length(at, units).0),
            None => shown,
        }))
    }

    fn array(
        &self,
        value: &Value,
        element: &Ty,
        count: &ArrayCount,
        depth: u32,
    ) -> Result<FormattedValue, Unavailable> {
        let Some(count) = self.context.elements_of(value, element, count)? else {
            return self.open_array(value, element);
        };
        if count > 0 {
            self.is_there(value)?;
        }
        let size = match self.context.size_of_type(element)? {
            Some(size) => size,
            None if count == 0 => 0,
            None => {
                return Err(Unavailable::Unknown(
                    "the size of its elements is not known".into(),
                ));
            }
        };
        let units = Units::of(element).filter(|_| {
            matches!(self.letter, None | Some('s')) && value.ty.language() != Some(Language::Rust)
        });
        if let Some(units) = units {
            let limit = self.context.elements;
            let wanted = count.min(limit as u64 + 1);
            match value.read(self.context.source, wanted * units.size) {
                Ok(mut bytes) => {
                    let last = bytes.len().saturating_sub(units.size as usize);
                    if count <= limit as u64 && bytes.iter().skip(last).all(|byte| *byte == 0) {
                        bytes.truncate(last);
                    }
                    return Ok(text(units.quoted(&bytes, false, limit)));
                }
                // The characters of which pieces are known are shown one by one.
                Err(_) if value.has_known_bytes() => {}
                Err(cause) => return Err(cause),
            }
        }
        let elements = (0..count).map(|number| {
            let element = value.part(element.clone(), number.saturating_mul(size));
            (format!("[{number}]"), element)
        });
        let (shown, more) = self.elements(elements, depth);
        let (open, close) = match self.context.language() {
            Language::Rust => ("[", "]"),
            _ => ("{", "}"),
        };
        Ok(FormattedValue::with_members(
            format!("{open}{}{close}", listed(&shown, more, false)),
            shown,
        ))
    }

    /// Elements, those that are the same in a row as one, and whether there are more.
    pub fn elements(
        &self,
        elements: impl Iterator<Item = (String, Value)>,
        depth: u32,
    ) -> (Vec<FormattedMember>, bool) {
        if depth == 0 {
            let (least, most) = elements.size_hint();
            self.total
                .set(most.filter(|most| *most == least).map(|most| most as u64));
            if let Some(window) = &self.window {
                return self.listed_alone(elements, window, depth);
            }
        }
        let mut shown: Vec<FormattedMember> = Vec::new();
        let mut last: Option<Result<Vec<u8>, Unavailable>> = None;
        let limit = self.context.elements;
        let mut printed = 0;
        let mut looked_at = 0u64;
        // The text after the bytes of an element differs between elements.
        let mut is_open = None;
        for (name, element) in elements {
            // Runs are counted, but not forever.
            looked_at += 1;
            if looked_at > MAX_SIZE || self.parts.get() > self.most_parts() {
                return (shown, true);
            }
            let bytes = element.bytes(self.context.source);
            let is_comparable = match bytes {
                Ok(_) => true,
                Err(Unavailable::OptimizedOut) => !element.has_known_bytes(),
                Err(_) => false,
            };
            if is_comparable
                && last.as_ref() == Some(&bytes)
                && !*is_open.get_or_insert_with(|| self.context.has_open_array(&element.ty))
                && let Some(run) = shown.last_mut()
            {
                run.repeats += 1;
                continue;
            }
            printed += shown.last().map_or(0, |run| printed_as(run.repeats));
            if printed >= limit {
                return (shown, true);
            }
            last = Some(bytes).filter(|_| is_comparable);
            shown.push(FormattedMember::new(name, self.show(&element, depth + 1)));
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
    ) -> (Vec<FormattedMember>, bool) {
        let count = window.end.saturating_sub(window.start);
        let skipped = elements.skip(usize::try_from(window.start).unwrap_or(usize::MAX));
        let wanted = skipped.take(usize::try_from(count).unwrap_or(usize::MAX));
        let shown = wanted
            .take_while(|_| self.parts.get() <= self.most_parts())
            .map(|(name, element)| FormattedMember::new(name, self.show(&element, depth + 1)))
            .collect();
        (shown, false)
    }
}

/// The number of elements that a run counts as.
fn printed_as(repeats: u64) -> usize {
    (repeats as usize).min(REPEATS)
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

impl ValueFormatter<'_> {
    /// A failure as it is shown in the place of a value.
    pub fn failed(failure: Failure) -> crate::error::Result<FormattedValue> {
        match failure {
            Failure::Error(error) => Err(error),
            Failure::Unavailable(cause) => Ok(FormattedValue::unavailable(&cause)),
        }
    }
}
