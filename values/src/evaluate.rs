//! Evaluates expressions in a frame.

use super::arithmetic::{self, combined, common, compared, converted, promoted};
use super::array_bounds::is_open;
use super::context::EvalContext;
use super::failure::{Evaluated, Failure, wrong};
use super::members::{active, member};
use super::number::{Complex, Number};
use super::parser::{Expression, Suffix, TypeName};
use super::types::{RecordShape, Shape, Ty};
use super::value::{Data, Unavailable, Value};
use super::{cpp_access, go, rust_access};
use backtrail_symbolizer::types::{Encoding, Language, PointerKind};
use std::sync::Arc;

/// References to references are followed this far.
const MAX_REFERENCES: u32 = 8;

impl EvalContext<'_> {
    /// Evaluates an expression.
    ///
    /// An unknown result is an unavailable value. An unknown operand of an operation is a failure.
    pub fn evaluate(&self, expression: &Expression) -> Evaluated {
        match expression {
            Expression::Integer(number, suffix) => Ok(literal(*number, suffix)),
            Expression::Float(number, suffix) => match suffix.as_str() {
                "" => Ok(converted(Number::Float(*number), Ty::double())),
                "f" => Ok(converted(
                    Number::Float(*number),
                    Ty::base("float", 4, Encoding::Float),
                )),
                other => wrong(format!("\"{other}\" is not a valid suffix of a number")),
            },
            Expression::Character(byte) => Ok(Value::new(Ty::char(), vec![*byte])),
            Expression::Text(text) => {
                let bytes: Vec<u8> = text.bytes().chain([0]).collect();
                let count = bytes.len() as u64;
                Ok(Value::new(Ty::Array(Arc::new(Ty::char()), count), bytes))
            }
            Expression::WideCharacter(letter, character) => {
                Ok(Value::number(wide(*letter), i128::from(u32::from(*character))))
            }
            Expression::WideText(letter, text) => Ok(wide_text(*letter, text)),
            Expression::Name(name) => self.name(name),
            Expression::InFile(file, name) => Ok(self.named_in_file(file, name)?),
            Expression::Dollar(name) => self.dollar(name),
            Expression::Unary(sign, inner) => self.unary(sign, inner),
            Expression::Binary(sign, left, right) => self.binary(sign, left, right),
            Expression::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let condition = self.is_true(condition)?;
                self.evaluate(if condition { yes } else { no })
            }
            Expression::Member(value, name) => {
                let value = self.evaluate(value)?;
                self.member(&value, name)
            }
            Expression::Index(value, index) => {
                let value = self.evaluate(value)?;
                let index = self.evaluate(index)?;
                self.subscript(value, index)
            }
            Expression::Method {
                value,
                arrow,
                name,
                arguments,
            } => {
                let value = self.evaluate(value)?;
                let arguments: Evaluated<Vec<Value>> = arguments
                    .iter()
                    .map(|argument| self.without_reference(self.evaluate(argument)?))
                    .collect();
                self.method(value, *arrow, name, &arguments?)
            }
            Expression::Cast(name, value) => {
                let ty = self.resolved(name)?;
                let value = self.evaluate(value)?;
                self.cast(value, ty)
            }
            Expression::SizeOf(name) => {
                let ty = self.resolved(name)?;
                self.size_of(&ty)
            }
            Expression::Type(_) => wrong("this is a type, not a value; `ptype` and `whatis` describe types"),
        }
    }

    fn size_of(&self, ty: &Ty) -> Evaluated {
        match self.size_of_type(ty)? {
            Some(size) => Ok(Value::number(Ty::unsigned_long(), i128::from(size))),
            None => wrong(format!("the size of \"{}\" is not known", ty.name())),
        }
    }

    fn name(&self, name: &str) -> Evaluated {
        if let Some(value) = self.named(name)? {
            return Ok(value);
        }
        if let Some(value) = self.static_member(name) {
            return Ok(value);
        }
        match name {
            "true" => return Ok(Value::number(boolean(), 1)),
            "false" => return Ok(Value::number(boolean(), 0)),
            "nullptr" | "NULL" => return Ok(Value::number(Ty::Void.pointer(), 0)),
            _ => {}
        }
        if self.data_named(name).is_some() {
            return wrong(format!(
                "\"{name}\" has no known type; cast its address: *(TYPE *) &{name}"
            ));
        }
        wrong(format!("no symbol \"{name}\" in the current context"))
    }

    /// A static member, by the path of its class.
    fn static_member(&self, path: &str) -> Option<Value> {
        let (class, name) = path.rsplit_once("::")?;
        let ty = self.type_named(class)?;
        let Shape::Record(record) = ty.shape() else {
            return None;
        };
        // Without an object, only static members are known.
        let object = Value::unavailable(ty.clone(), Unavailable::OptimizedOut);
        let found = member(self, &record, &object, name)?;
        (!matches!(found.data, Data::Unavailable(_))).then_some(found)
    }

    fn dollar(&self, name: &str) -> Evaluated {
        let count = self.history.len();
        let number = match name {
            "" => Some(1),
            "$" => Some(2),
            name => match name.strip_prefix('$') {
                Some(back) => back.parse::<usize>().ok().and_then(|back| back.checked_add(1)),
                None => name
                    .parse::<usize>()
                    .ok()
                    .map(|number| (count + 1).saturating_sub(number)),
            },
        };
        let Some(back) = number else {
            return self.register(name);
        };
        let found = count.checked_sub(back).and_then(|at| self.history.get(at));
        match found {
            Some(value) => Ok(value.clone()),
            None => wrong(format!("there is no value ${name} in the value history")),
        }
    }

    fn unary(&self, sign: &str, inner: &Expression) -> Evaluated {
        match sign {
            "&" => return self.address_of(inner),
            "sizeof" => {
                let value = self.evaluate(inner)?;
                return self.size_of(&self.without_reference(value)?.ty);
            }
            _ => {}
        }
        let value = self.evaluate(inner)?;
        if sign == "*" {
            return self.stands_for(&value)?.map_or_else(|| self.pointed(&value), Ok);
        }
        let value = self.without_reference(value)?;
        if sign == "!" {
            return Ok(self.truth(!self.is_true_value(value)?));
        }
        let (number, ty) = self.operand(&value)?;
        let ty = promoted(&ty);
        match (sign, number) {
            ("+", number) => Ok(converted(number, ty)),
            ("-", Number::Integer(number)) => Ok(Value::number(ty, number.wrapping_neg())),
            ("-", Number::Float(number)) => Ok(converted(Number::Float(-number), ty)),
            ("-", Number::Complex(Complex { re, im })) => {
                Ok(converted(Number::Complex(Complex { re: -re, im: -im }), ty))
            }
            // GDB and GCC take it as the conjugate.
            ("~", Number::Complex(Complex { re, im })) => {
                Ok(converted(Number::Complex(Complex { re, im: -im }), ty))
            }
            ("~", Number::Integer(number)) => Ok(Value::number(ty, !number)),
            _ => wrong(format!("\"{sign}\" requires an integer")),
        }
    }

    fn address_of(&self, inner: &Expression) -> Evaluated {
        // Data that only the symbol tables know has an address all the same.
        if let Expression::Name(name) = inner
            && self.named(name)?.is_none()
            && let Some(at) = self.data_named(name)
        {
            return Ok(Value::number(Ty::Void.pointer(), i128::from(at)));
        }
        let value = self.evaluate(inner)?;
        let value = self.without_reference(value)?;
        match (value.address(), &value.data) {
            (Some(at), _) => Ok(Value::number(value.ty.pointer(), i128::from(at))),
            (None, Data::Unavailable(cause)) => Err(Failure::Unavailable(cause.clone())),
            _ => wrong("it is not in memory, so it has no address"),
        }
    }

    fn binary(&self, sign: &str, left: &Expression, right: &Expression) -> Evaluated {
        match sign {
            "&&" => return Ok(self.truth(self.is_true(left)? && self.is_true(right)?)),
            "||" => return Ok(self.truth(self.is_true(left)? || self.is_true(right)?)),
            _ => {}
        }
        let left = self.evaluate(left)?;
        let left = self.without_reference(left)?;
        if sign == "@" {
            let count = self.whole(right)?;
            let Some(at) = left.address() else {
                return wrong("only values in memory can be extended with \"@\"");
            };
            // The count is the number of elements of an array without a bound.
            let element = match left.ty.shape() {
                Shape::Array { element, count, .. } if is_open(&left.ty, &count) => element,
                _ => left.ty,
            };
            return match u64::try_from(count) {
                Ok(count) if count > 0 => Ok(Value::at(Ty::Array(Arc::new(element), count), at)),
                _ => wrong("\"@\" requires a count above 0"),
            };
        }
        let right = self.evaluate(right)?;
        let right = self.without_reference(right)?;
        if matches!(sign, "==" | "!=")
            && let Some(same) = self.same_text(&left, &right)?
        {
            return Ok(self.truth(same == (sign == "==")));
        }
        let (left, right) = (self.pointer_in(left)?, self.pointer_in(right)?);
        if let Some(value) = self.pointer_arithmetic(sign, &left, &right)? {
            return Ok(value);
        }
        let ((left, left_type), (right, right_type)) = (self.number(&left)?, self.number(&right)?);
        let shift = matches!(sign, "<<" | ">>");
        let ty = if shift {
            promoted(&left_type)
        } else {
            common(&left_type, &right_type)
        };
        let is_comparison = matches!(sign, "==" | "!=" | "<" | ">" | "<=" | ">=");
        if !is_comparison
            && let Some(why) = arithmetic::refused(&left_type).or_else(|| arithmetic::refused(&right_type))
        {
            return wrong(why);
        }
        let cut = |number| match (
            number,
            arithmetic::number(&converted(number, ty.clone()), self.source),
        ) {
            // A real number beside a complex one stays real.
            (Number::Integer(_) | Number::Float(_), Ok(Some((Number::Complex(cut), _)))) => {
                Number::Float(cut.re)
            }
            (_, Ok(Some((number, _)))) => number,
            _ => number,
        };
        let (left, right) = if shift {
            (left, right)
        } else {
            (cut(left), cut(right))
        };
        if let Some(truth) = compared(sign, left, right) {
            return Ok(self.truth(truth));
        }
        if is_comparison {
            return wrong("complex numbers have no order");
        }
        combined(sign, left, right, ty).or_else(wrong)
    }

    /// Evaluates arithmetic of a pointer and a number, or of two pointers; `None` for other
    /// operands.
    fn pointer_arithmetic(&self, sign: &str, left: &Value, right: &Value) -> Evaluated<Option<Value>> {
        let (left_target, right_target) = (self.target(left), self.target(right));
        Ok(match (sign, left_target, right_target) {
            ("-", Some(target), Some(_)) => {
                let distance = self.pointer(left)?.wrapping_sub(self.pointer(right)?) as i64;
                let step = i64::try_from(self.step(&target)?).unwrap_or(i64::MAX);
                Some(Value::number(Ty::long(), i128::from(distance / step)))
            }
            ("+" | "-", Some(target), None) => {
                let (by, _) = self.number(right)?;
                Some(self.moved(left, target, by, sign == "-")?)
            }
            ("+", None, Some(target)) => {
                let (by, _) = self.number(left)?;
                Some(self.moved(right, target, by, false)?)
            }
            (_, None, None) => None,
            (sign, _, _) => {
                let number = |value: &Value, is_pointer: bool| -> Evaluated<Number> {
                    if is_pointer {
                        return Ok(Number::Integer(i128::from(self.pointer(value)?)));
                    }
                    let (number, _) = self.number(value)?;
                    Ok(match number {
                        Number::Integer(number) => Number::Integer(i128::from(number as u64)),
                        float => float,
                    })
                };
                let numbers = (
                    number(left, self.target(left).is_some())?,
                    number(right, self.target(right).is_some())?,
                );
                match compared(sign, numbers.0, numbers.1) {
                    Some(truth) => Some(self.truth(truth)),
                    None => match combined(sign, numbers.0, numbers.1, Ty::unsigned_long()) {
                        Ok(value) => Some(value),
                        Err(why) => return wrong(why),
                    },
                }
            }
        })
    }

    /// The distance between elements that pointers of a type point to.
    fn step(&self, target: &Ty) -> Evaluated<u64> {
        if matches!(target.shape(), Shape::Void | Shape::Function) {
            return Ok(1);
        }
        match self.size_of_type(target)? {
            Some(size) => Ok(size.max(1)),
            None => wrong(format!("the size of \"{}\" is not known", target.name())),
        }
    }

    fn moved(&self, pointer: &Value, target: Ty, by: Number, back: bool) -> Evaluated {
        let Number::Integer(by) = by else {
            return wrong("pointer arithmetic requires an integer");
        };
        let step = i128::from(self.step(&target)?);
        let distance = by.wrapping_mul(step);
        let distance = if back { distance.wrapping_neg() } else { distance };
        let at = i128::from(self.pointer(pointer)?).wrapping_add(distance);
        let ty = match pointer.ty.shape() {
            Shape::Pointer(..) => pointer.ty.clone(),
            _ => target.pointer(),
        };
        Ok(Value::number(ty, at))
    }

    /// Returns the target of a pointer, or an element of an array.
    fn target(&self, value: &Value) -> Option<Ty> {
        match value.ty.shape() {
            Shape::Pointer(PointerKind::Pointer, target) => Some(target),
            Shape::Array {
                element,
                vector: false,
                ..
            } => Some(element),
            Shape::Function => Some(value.ty.clone()),
            _ => None,
        }
    }

    /// The address that a pointer holds, or where an array or function is.
    pub fn pointer(&self, value: &Value) -> Evaluated<u64> {
        match value.ty.shape() {
            Shape::Array { .. } | Shape::Function => match value.address() {
                Some(at) => Ok(at),
                None => wrong("it is not in memory, so it has no address"),
            },
            _ => {
                let bytes = value.read(self.source, 8)?;
                Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
        }
    }

    /// Returns the target of a pointer.
    pub fn pointed(&self, value: &Value) -> Evaluated {
        match value.ty.shape() {
            Shape::Pointer(kind, target) => {
                if matches!(target.shape(), Shape::Void) {
                    return wrong("the pointer has type void *; cast it first");
                }
                match value.read(self.source, 8) {
                    Err(Unavailable::ImplicitPointer(entry, offset)) => {
                        Ok(self.implicit_target(entry, offset, target))
                    }
                    Err(cause) => Err(cause.into()),
                    Ok(bytes) => {
                        let at = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                        let value = Value::at(target, at);
                        match kind {
                            PointerKind::Pointer => self.without_reference(value),
                            _ => Ok(value),
                        }
                    }
                }
            }
            Shape::Array { element, .. } => Ok(value.part(element, 0)),
            Shape::Function => Ok(value.clone()),
            Shape::Base(base) if base.encoding != Encoding::Float => {
                let (number, _) = self.number(value)?;
                match number {
                    Number::Integer(number) => Ok(Value::at(Ty::long(), number as u64)),
                    _ => wrong("it is not a pointer"),
                }
            }
            _ => wrong("it is not a pointer"),
        }
    }

    /// Replaces a reference by its target.
    pub fn without_reference(&self, value: Value) -> Evaluated {
        match value.ty.shape() {
            Shape::Pointer(PointerKind::Reference | PointerKind::RvalueReference, _) => self.pointed(&value),
            _ => Ok(value),
        }
    }

    /// A member of a record, or of one that a pointer points to.
    pub fn member(&self, value: &Value, name: &str) -> Evaluated {
        let mut value = self.without_reference(value.clone())?;
        if let Shape::Pointer(..) = value.ty.shape() {
            value = self.pointed(&value)?;
        }
        let Shape::Record(record) = value.ty.shape() else {
            return wrong(format!(
                "\"{}\" is not a structure; it has no member \"{name}\"",
                value.ty.name()
            ));
        };
        let name = name.rsplit("::").next().unwrap_or(name);
        if let Some(found) = member(self, &record, &value, name) {
            return Ok(found);
        }
        if let Some(found) = cpp_access::part(self, &value, &record, name) {
            return Ok(found);
        }
        let in_variant = active(self, &record, &value).ok().flatten();
        if let Some(found) = in_variant.and_then(|inner| self.member(&inner, name).ok()) {
            return Ok(found);
        }
        // `p->x` of a smart pointer.
        match self.stands_for(&value)? {
            Some(target) => self.member(&target, name),
            None => wrong(format!("\"{}\" has no member \"{name}\"", value.ty.name())),
        }
    }

    /// Dereferences a pointer or iterator of a library; `None` if the value is not one.
    fn stands_for(&self, value: &Value) -> Evaluated<Option<Value>> {
        let value = self.without_reference(value.clone())?;
        match value.ty.shape() {
            Shape::Record(record) => cpp_access::target(self, &value, &record).transpose(),
            _ => Ok(None),
        }
    }

    /// An element of an array, or of what a pointer points to.
    pub fn index(&self, value: &Value, index: i128) -> Evaluated {
        let value = self.without_reference(value.clone())?;
        let distance = |element: &Ty| {
            let size = self.size_of_type(element)?.ok_or(Unavailable::Unknown(
                "the size of the element is not known".into(),
            ))?;
            Ok::<_, Failure>(index.wrapping_mul(i128::from(size)))
        };
        match value.ty.shape() {
            Shape::Array { element, .. } => {
                let distance = distance(&element)?;
                match &value.data {
                    Data::Memory(at) => Ok(Value::at(element, i128::from(*at).wrapping_add(distance) as u64)),
                    _ => match u64::try_from(distance) {
                        Ok(distance) => Ok(value.part(element, distance)),
                        Err(_) => wrong("the index is not in the array"),
                    },
                }
            }
            Shape::Pointer(_, element) => {
                let at = self.moved(&value, element, Number::Integer(index), false)?;
                self.pointed(&at)
            }
            _ => wrong("it is neither an array nor a pointer"),
        }
    }

    /// An element of anything, by a number or a key.
    fn subscript(&self, value: Value, key: Value) -> Evaluated {
        let value = self.without_reference(value)?;
        let key = self.without_reference(key)?;
        match self.held_record(&value)? {
            Some((value, record)) => cpp_access::element(self, &value, &record, &key)
                .or_else(|| go::element(self, &value, &record, &key))
                .unwrap_or_else(|| rust_access::element(self, &value, &record, &key)),
            None => self.index(&value, self.whole_number(&key)?),
        }
    }

    /// A record; in Rust, what a reference refers to as well.
    fn held_record(&self, value: &Value) -> Evaluated<Option<(Value, RecordShape)>> {
        let mut value = value.clone();
        for _ in 0..MAX_REFERENCES {
            match value.ty.shape() {
                Shape::Record(record) => return Ok(Some((value, record))),
                Shape::Pointer(_, target)
                    if value.ty.language() == Some(Language::Rust)
                        && matches!(target.shape(), Shape::Record(_) | Shape::Pointer(..)) =>
                {
                    value = self.pointed(&value)?;
                }
                _ => break,
            }
        }
        Ok(None)
    }

    /// Returns the result of a member function of a library type.
    fn method(&self, value: Value, arrow: bool, name: &str, arguments: &[Value]) -> Evaluated {
        let mut value = self.without_reference(value)?;
        if arrow {
            let target = self.stands_for(&value)?;
            value = target.map_or_else(|| self.pointed(&value), Ok)?;
        }
        let found = match self.held_record(&value)? {
            Some((value, record)) => cpp_access::method(self, &value, &record, name, arguments)
                .or_else(|| rust_access::method(self, &value, &record, name, arguments)),
            None => None,
        };
        found.unwrap_or_else(|| wrong("functions cannot be called in a recorded program"))
    }

    /// A number, for arithmetic.
    pub fn number(&self, value: &Value) -> Evaluated<(Number, Ty)> {
        match arithmetic::number(value, self.source)? {
            Some(found) => Ok(found),
            None => wrong(format!("\"{}\" is not a number", value.ty.name())),
        }
    }

    /// The whole number that an expression is.
    pub fn whole(&self, expression: &Expression) -> Evaluated<i128> {
        let value = self.evaluate(expression)?;
        self.whole_number(&self.without_reference(value)?)
    }

    /// The whole number that a value is.
    pub fn whole_number(&self, value: &Value) -> Evaluated<i128> {
        match self.number(value)?.0 {
            Number::Integer(number) => Ok(number),
            _ => wrong("an integer is required"),
        }
    }

    /// A number that takes part in an operation.
    fn operand(&self, value: &Value) -> Evaluated<(Number, Ty)> {
        let (number, ty) = self.number(value)?;
        match arithmetic::refused(&ty) {
            Some(why) => wrong(why),
            None => Ok((number, ty)),
        }
    }

    /// Returns whether a value is true in the sense of C.
    pub fn is_true(&self, expression: &Expression) -> Evaluated<bool> {
        let value = self.evaluate(expression)?;
        self.is_true_value(self.without_reference(value)?)
    }

    fn is_true_value(&self, value: Value) -> Evaluated<bool> {
        let value = match value.ty.shape() {
            Shape::Record(record) => cpp_access::truth(self, &value, &record).unwrap_or(value),
            _ => value,
        };
        if self.target(&value).is_some() {
            return Ok(self.pointer(&value)? != 0);
        }
        Ok(arithmetic::is_true(self.number(&value)?.0))
    }

    /// The pointer in a smart pointer; all else is itself.
    fn pointer_in(&self, value: Value) -> Evaluated {
        let pointer = match value.ty.shape() {
            Shape::Record(record) => cpp_access::pointer(self, &value, &record),
            _ => None,
        };
        Ok(pointer.unwrap_or(value))
    }

    /// C has numbers for truth values.
    pub fn truth(&self, truth: bool) -> Value {
        let ty = match self.language() {
            Language::C | Language::Go => Ty::int(),
            _ => boolean(),
        };
        Value::number(ty, i128::from(truth))
    }

    /// The type that is written.
    pub fn resolved(&self, name: &TypeName) -> Evaluated<Ty> {
        let Some(mut ty) = self.type_named(&name.base) else {
            return wrong(format!("no type \"{}\" in the current context", name.base));
        };
        for suffix in &name.suffixes {
            ty = match suffix {
                Suffix::Pointer => ty.pointer(),
                Suffix::Reference => {
                    return wrong("a reference cannot be made by a cast; take the address with \"&\"");
                }
                Suffix::Array(count) => Ty::Array(Arc::new(ty), *count),
                Suffix::Function => Ty::Function(Arc::new(ty)),
            };
        }
        Ok(ty)
    }

    fn cast(&self, value: Value, ty: Ty) -> Evaluated {
        let value = self.without_reference(value)?;
        if let Some(found) = self.cast_class(&value, &ty)? {
            return Ok(found);
        }
        match ty.shape() {
            Shape::Base(_) | Shape::Enumeration(..) | Shape::Pointer(PointerKind::Pointer, _) => {
                if self.target(&value).is_some() {
                    let at = self.pointer(&value)?;
                    return Ok(converted(Number::Integer(i128::from(at)), ty));
                }
                let (number, _) = self.number(&value)?;
                Ok(converted(number, ty))
            }
            Shape::Void => wrong("a void value cannot be used"),
            _ if ty.size().is_some() && ty.size() == value.ty.size() => Ok(value.with_type(ty)),
            _ => wrong(format!(
                "\"{}\" cannot be cast to \"{}\"; cast its address instead",
                value.ty.name(),
                ty.name()
            )),
        }
    }
}

fn boolean() -> Ty {
    Ty::base("bool", 1, Encoding::Boolean)
}

/// The type of characters with a letter before them.
fn wide(letter: char) -> Ty {
    match letter {
        'L' => Ty::base("wchar_t", 4, Encoding::Signed),
        'u' => Ty::base("char16_t", 2, Encoding::Utf),
        _ => Ty::base("char32_t", 4, Encoding::Utf),
    }
}

fn wide_text(letter: char, text: &str) -> Value {
    let element = wide(letter);
    let bytes: Vec<u8> = match letter {
        'u' => text
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect(),
        _ => text
            .chars()
            .chain(['\0'])
            .flat_map(|found| u32::from(found).to_le_bytes())
            .collect(),
    };
    let count = bytes.len() as u64 / element.size().unwrap_or(1);
    Value::new(Ty::Array(Arc::new(element), count), bytes)
}

/// The type of a literal is the first that holds it.
fn literal(number: u64, suffix: &str) -> Value {
    // A literal that is not decimal is unsigned before it is long.
    let fits = !suffix.contains('l') && u32::try_from(number).is_ok();
    let unsigned = suffix.contains('u')
        || number > i64::MAX as u64
        || suffix.starts_with('x') && fits && number > i32::MAX as u64;
    let long = !fits || !unsigned && number > i32::MAX as u64;
    let ty = match (unsigned, long) {
        (true, true) => Ty::unsigned_long(),
        (true, false) => Ty::base("unsigned int", 4, Encoding::Unsigned),
        (false, true) => Ty::long(),
        (false, false) => Ty::int(),
    };
    Value::number(ty, i128::from(number))
}
