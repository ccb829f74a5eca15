//! Values as a tree that opens level by level: variables, their members, and the members of those.

use super::formatted::FormattedValue;
use super::formatter::ValueFormatter;
use super::types::{RecordShape, Shape, Ty};
use super::units::Units;
use super::value::Value;
use super::{EvalContext, parse};
use crate::error::{Error, Result};
use backtrail_symbolizer::Variable;
use backtrail_symbolizer::types::{Language, PointerKind};
use std::ops::Range;

/// In the line of a value, records in records are shown this deep.
const DEPTH: u32 = 1;

/// Which variables of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// The arguments of the function.
    Arguments,
    /// All others, those of the innermost block first.
    Locals,
}

/// The format of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Numbers are hexadecimal.
    pub hex: bool,
}

/// A variable, a part of one, or what an expression means.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name: that of a variable or member, `[0]`, or `<Base>`.
    pub name: String,
    /// Its value in one line, with its type and place.
    pub shown: FormattedValue,
    /// An expression that means it; `None`: none is known to.
    pub expression: Option<String>,
    /// The children.
    pub children: Children,
    /// Memory worth looking at: what a pointer points to, else where the value is.
    pub memory: Option<u64>,
    /// The expression that precedes the names of its parts.
    path: Option<String>,
}

/// The kind of a value's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Nothing.
    None,
    /// Members with names.
    Named,
    /// Elements, numbered from 0.
    Indexed(u64),
}

/// Returns the variables of the frame.
///
/// # Errors
/// If no debug information describes the frame.
pub fn variables(context: &EvalContext<'_>, kind: VariableKind, format: Format) -> Result<Vec<Node>> {
    let builder = TreeBuilder { context, format };
    let (Some(scope), Some(here)) = (&context.scope, &context.here) else {
        return Err(Error(
            "no debug information describes the variables here".to_owned(),
        ));
    };
    let node = |variable: &Variable| {
        let value = context.value_of(variable, here);
        builder.node(variable.name.to_string(), &value, Some(variable.name.to_string()))
    };
    Ok(match kind {
        VariableKind::Arguments => scope.parameters.iter().map(node).collect(),
        VariableKind::Locals => {
            let variables = scope.blocks.iter().flatten();
            variables
                .filter(|variable| !variable.is_internal())
                .map(node)
                .collect()
        }
    })
}

/// Evaluates an expression in the frame.
///
/// # Errors
/// If the expression cannot be parsed, or is wrong for its operands.
pub fn evaluate(context: &EvalContext<'_>, expression: &str, format: Format) -> Result<Node> {
    let builder = TreeBuilder { context, format };
    match context.evaluate(&parse(expression, context)?) {
        Ok(value) => {
            let mut node = builder.node(expression.to_owned(), &value, Some(expression.to_owned()));
            node.shown.text = builder.formatter().top(&value).text;
            node.shown.origins = context.source.origins();
            Ok(node)
        }
        Err(failure) => Ok(Node {
            name: expression.to_owned(),
            shown: ValueFormatter::failed(failure)?,
            expression: Some(expression.to_owned()),
            children: Children::None,
            memory: None,
            path: None,
        }),
    }
}

/// Returns the children of a node; of elements, those in `window`.
#[must_use]
pub fn children(context: &EvalContext<'_>, node: &Node, window: Range<u64>, format: Format) -> Vec<Node> {
    match &node.shown.of.0 {
        Some(value) => TreeBuilder { context, format }.children(value, node.path.as_deref(), window),
        None => Vec::new(),
    }
}

/// Opens values of a frame.
struct TreeBuilder<'a> {
    context: &'a EvalContext<'a>,
    format: Format,
}

impl<'a> TreeBuilder<'a> {
    fn formatter(&self) -> ValueFormatter<'a> {
        let mut formatter = ValueFormatter::new(self.context, self.format.hex.then_some('x'));
        formatter.depth = DEPTH;
        formatter
    }

    /// A value by its name; `path`: what may mean it.
    fn node(&self, name: String, named: &Value, path: Option<String>) -> Node {
        let formatter = self.formatter();
        let value = &referred(named, self.context);
        let mut shown = formatter.show(value, 0);
        shown.type_name = named.ty.name();
        shown.origins = self.context.source.origins();
        let total = formatter.total.get();
        let has_value = shown.unknown.is_none() || !shown.members.is_empty();
        let children = match value.ty.shape() {
            _ if !has_value => Children::None,
            Shape::Pointer(PointerKind::Pointer, target) if !shown.pretty => {
                match opens(value, &target, self.context) {
                    true => Children::Named,
                    false => Children::None,
                }
            }
            // A string is shown in its line, and opens all the same.
            Shape::Array { element, count, .. } => match self.context.elements_of(value, &element, &count) {
                Ok(Some(0) | None) | Err(_) => Children::None,
                Ok(Some(count)) => Children::Indexed(count),
            },
            _ => match (total, shown.members.is_empty()) {
                (Some(0), _) | (None, true) => Children::None,
                (Some(total), _) => Children::Indexed(total),
                (None, false) => Children::Named,
            },
        };
        // Only this level is shown with it.
        shown.members.clear();
        let expression = path.clone().filter(|path| self.evaluates_to(path, named));
        Node {
            name,
            memory: self.memory(value),
            shown,
            expression,
            children,
            path,
        }
    }

    fn memory(&self, value: &Value) -> Option<u64> {
        match value.ty.shape() {
            Shape::Pointer(..) => {
                let bytes = value.read(self.context.source, 8).ok()?;
                let target = u64::from_le_bytes(bytes.try_into().ok()?);
                Some(target).filter(|target| *target != 0)
            }
            _ => value.address(),
        }
    }

    /// An expression is evaluated to this very value.
    fn evaluates_to(&self, expression: &str, value: &Value) -> bool {
        let Ok(parsed) = parse(expression, self.context) else {
            return false;
        };
        let Ok(found) = self.context.evaluate(&parsed) else {
            // An unknown value is still meant by its name.
            return value.address().is_none() && expression.chars().all(|c| c.is_alphanumeric() || c == '_');
        };
        let source = self.context.source;
        found.ty.name() == value.ty.name()
            && found.address() == value.address()
            && (found.address().is_some() || found.bytes(source).ok() == value.bytes(source).ok())
    }

    fn children(&self, value: &Value, path: Option<&str>, window: Range<u64>) -> Vec<Node> {
        let base = path.map(grouped);
        if let Shape::Pointer(PointerKind::Pointer, target) = value.ty.shape() {
            let Ok(bytes) = value.read(self.context.source, 8) else {
                return Vec::new();
            };
            let at = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            let target_value = Value::at(target.clone(), at);
            let deref = base.as_ref().map(|base| format!("*{base}"));
            return match target.shape() {
                Shape::Record(record) if !is_rust_value(&record) => self.parts(
                    &target_value,
                    deref.map(|deref| format!("({deref})")),
                    base,
                    window,
                ),
                _ => vec![self.node(
                    deref.clone().unwrap_or_else(|| "*".to_owned()),
                    &target_value,
                    deref,
                )],
            };
        }
        if let Shape::Array { element, count, .. } = value.ty.shape() {
            let count = self.context.elements_of(value, &element, &count);
            let size = self.context.size_of_type(&element);
            let (Ok(Some(count)), Ok(Some(size))) = (count, size) else {
                return Vec::new();
            };
            let numbers = window.start.min(count)..window.end.min(count);
            return numbers
                .map(|number| {
                    let part = value.part(element.clone(), number.saturating_mul(size));
                    let path = base.as_ref().map(|base| format!("{base}[{number}]"));
                    self.node(format!("[{number}]"), &part, path)
                })
                .collect();
        }
        self.parts(value, base, None, window)
    }

    /// The parts of a record; `pointer`: an expression that points to it.
    fn parts(
        &self,
        value: &Value,
        base: Option<String>,
        pointer: Option<String>,
        window: Range<u64>,
    ) -> Vec<Node> {
        let mut formatter = self.formatter();
        formatter.window = Some(window);
        let members = formatter.show(value, 0).members;
        let parts = members.into_iter().filter_map(|member| {
            let part = member.value.of.0?;
            let is_name = member.name.chars().all(|c| c.is_alphanumeric() || c == '_');
            let path = match (member.name.as_str(), &base, &pointer) {
                // The members of a base, and of what has no name, are the object's own.
                ("", base, _) => base.clone(),
                (name, base, _) if name.starts_with('<') => base.clone(),
                (name, Some(base), _) if name.starts_with('[') => Some(format!("{base}{name}")),
                (name, _, Some(pointer)) if is_name && value.ty.language() != Some(Language::Rust) => {
                    Some(format!("{pointer}->{name}"))
                }
                (name, Some(base), _) if is_name => {
                    // The members of a tuple are called `__0` in the debug information.
                    Some(format!("{base}.{}", name.strip_prefix("__").unwrap_or(name)))
                }
                _ => None,
            };
            Some(self.node(member.name, &part, path))
        });
        parts.collect()
    }
}

/// Returns the target of a reference if it is known, and other values unchanged.
fn referred(value: &Value, context: &EvalContext<'_>) -> Value {
    let Shape::Pointer(kind, target) = value.ty.shape() else {
        return value.clone();
    };
    match value.read(context.source, 8) {
        Ok(bytes) if kind != PointerKind::Pointer => {
            Value::at(target, u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        }
        _ => value.clone(),
    }
}

/// Returns whether the target of a pointer can be shown below the pointer.
fn opens(pointer: &Value, target: &Ty, context: &EvalContext<'_>) -> bool {
    let Ok(bytes) = pointer.read(context.source, 8) else {
        return false;
    };
    let is_null = bytes.iter().all(|byte| *byte == 0);
    let is_string = Units::of(target).is_some() && pointer.ty.language() != Some(Language::Rust);
    !is_null && !is_string && !matches!(target.shape(), Shape::Void | Shape::Function | Shape::Other(_))
}

/// Its members make no sense alone: an enumeration of Rust.
fn is_rust_value(record: &RecordShape) -> bool {
    record.record().variants.is_some()
}

/// Returns an expression in parentheses if a suffix requires them.
fn grouped(expression: &str) -> String {
    let is_simple = expression
        .replace("->", ".")
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '[' | ']' | ':' | '$'));
    let inside = expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let is_grouped = inside.is_some_and(|inside| !inside.contains(['(', ')']));
    match is_simple || is_grouped {
        true => expression.to_owned(),
        false => format!("({expression})"),
    }
}
