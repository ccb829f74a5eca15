//! Types of Rust as `ptype` shows them: as the source declares them, with a line for each field or
//! variant.

use super::ptype_line::line;
use super::types::{RecordShape, Shape, Ty, written_value};
use backtrail_symbolizer::types::{Enumeration, Keyword, Language, Member, MemberLocation, Type, TypeKind};

/// More fields and variants are left out.
const MAX_SHOWN: usize = 4096;

/// A structure, union, tuple or enumeration of Rust; `None`: it is none.
pub(crate) fn spelled(ty: &Ty) -> Option<String> {
    match ty.shape() {
        Shape::Record(record) if record.described.language == Language::Rust => Some(record_text(&record)),
        Shape::Enumeration(described, _) if described.language == Language::Rust => match &described.kind {
            TypeKind::Enumeration(enumeration) => Some(names(&described, enumeration)),
            _ => None,
        },
        _ => None,
    }
}

fn names(described: &Type, enumeration: &Enumeration) -> String {
    let name = described.name.as_deref().unwrap_or_default();
    let mut next = Some(0i128);
    let mut text = format!("enum {name} {{\n");
    for (variant, value) in enumeration.enumerators.iter().take(MAX_SHOWN) {
        text.push_str(&match next == Some(*value) {
            true => line(&format!("{variant},"), 4),
            false => line(&format!("{variant} = {},", written_value(enumeration, *value)), 4),
        });
        next = value.checked_add(1);
    }
    text + "}"
}

fn record_text(record: &RecordShape) -> String {
    let name = record.name();
    let described = record.record();
    if let Some(variants) = &described.variants {
        let mut text = format!("enum {name} {{\n");
        let forms = variants.variants.iter().flat_map(|variant| &variant.members);
        for form in forms.take(MAX_SHOWN) {
            text.push_str(&line(&format!("{},", variant(record, form)), 4));
        }
        return text + "}";
    }
    // A tuple has no name but what it is made of; so have references with a length.
    if name.starts_with(['(', '&', '*', '[']) {
        return name.to_owned();
    }
    let keyword = match described.keyword {
        Keyword::Union => "union",
        _ => "struct",
    };
    let fields = fields(record);
    let mut text = match (fields.is_empty(), is_tuple(&fields)) {
        (true, _) => return format!("{keyword} {name}"),
        (_, true) => format!("{keyword} {name} (\n"),
        (_, false) => format!("{keyword} {name} {{\n"),
    };
    for field in fields.iter().take(MAX_SHOWN) {
        text.push_str(&line(
            &format!("{},", written(record, field, is_tuple(&fields))),
            4,
        ));
    }
    text + if is_tuple(&fields) { ")" } else { "}" }
}

/// `Circle {center: Point, radius: f32}`, `Named(String)`, `Empty`.
fn variant(record: &RecordShape, form: &Member) -> String {
    let name = form.name.as_deref().unwrap_or_default();
    let Shape::Record(inner) = record.ty(form.entry).shape() else {
        return name.to_owned();
    };
    let fields = fields(&inner);
    let tuple = is_tuple(&fields);
    let parts: Vec<String> = fields
        .iter()
        .take(MAX_SHOWN)
        .map(|field| written(&inner, field, tuple))
        .collect();
    match (fields.is_empty(), tuple) {
        (true, _) => name.to_owned(),
        (_, true) => format!("{name}({})", parts.join(", ")),
        (_, false) => format!("{name} {{{}}}", parts.join(", ")),
    }
}

fn fields(record: &RecordShape) -> Vec<&Member> {
    let members = record.record().members.iter();
    members
        .filter(|member| !matches!(member.location, MemberLocation::Static(_)))
        .collect()
}

/// The compiler calls the fields of a tuple `__0`, `__1`, and so on.
fn is_tuple(fields: &[&Member]) -> bool {
    let mut numbered = (0..).zip(fields);
    !fields.is_empty()
        && numbered.all(|(number, field): (usize, _)| field.name.as_deref() == Some(&*format!("__{number}")))
}

fn written(record: &RecordShape, field: &Member, tuple: bool) -> String {
    let ty = record.ty(field.entry).name();
    match tuple {
        true => ty,
        false => format!("{}: {ty}", field.name.as_deref().unwrap_or_default()),
    }
}
