//! Types with what they are made of, as `ptype` shows them.

use super::ptype_class::{self, Labels, word};
use super::ptype_line::line;
use super::ptype_rust;
use super::scalar::path_of;
use super::type_formatter::{TypeFormatter, TypeKeyword, declare_with};
use super::types::{RecordShape, Shape, Ty, written_value};
use backtrail_symbolizer::types::{Enumeration, Language, Member, MemberLocation, Type, TypeKind};

/// More members and enumerators are left out.
const MAX_SHOWN: usize = 4096;

/// A type as `ptype` shows it: typedefs resolved, and the record or enumeration in it spelled out.
pub fn ptype(ty: &Ty) -> String {
    let formatter = TypeFormatter {
        resolve: true,
        body: &|base| spelled(base, 1, 0),
    };
    declare_with(ty, String::new(), formatter)
}

/// A record or enumeration spelled out, if it is one and `show` asks for it; `level`: how far its
/// lines are indented.
fn spelled(ty: &Ty, show: i32, level: usize) -> Option<String> {
    if ty.below().is_some() {
        return None;
    }
    if ty.language() == Some(Language::Rust) {
        return (show > 0).then(|| ptype_rust::spelled(ty)).flatten();
    }
    match ty.shape() {
        Shape::Record(record) if show > 0 || show == 0 && record.described.name.is_none() => {
            Some(record_text(&record, show, level))
        }
        Shape::Record(record) if record.described.name.is_none() => {
            Some(format!("{} {{...}}", record.record().keyword.word()))
        }
        Shape::Enumeration(described, _) if show > 0 || show == 0 && described.name.is_none() => {
            match &described.kind {
                TypeKind::Enumeration(enumeration) => Some(enumeration_text(ty, &described, enumeration)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn enumeration_text(ty: &Ty, described: &Type, enumeration: &Enumeration) -> String {
    let keyword = if enumeration.scoped { "enum class" } else { "enum" };
    let mut name = described
        .name
        .as_ref()
        .map(|name| format!("{name} "))
        .unwrap_or_default();
    if let (Language::Cpp, Some((module, _)), Some(entry)) =
        (described.language, ty.described(), enumeration.underlying)
    {
        name.push_str(&format!(": {} ", Ty::of(&module, Some(entry)).name()));
    }
    let path = path_of(described, enumeration.scoped);
    let mut next = Some(0i128);
    let mut parts: Vec<String> = Vec::new();
    for (enumerator, value) in enumeration.enumerators.iter().take(MAX_SHOWN) {
        parts.push(match next == Some(*value) {
            true => format!("{path}{enumerator}"),
            false => format!("{path}{enumerator} = {}", written_value(enumeration, *value)),
        });
        next = value.checked_add(1);
    }
    format!("{keyword} {name}{{{}}}", parts.join(", "))
}

fn record_text(record: &RecordShape, show: i32, level: usize) -> String {
    let described = record.record();
    let name = record
        .described
        .name
        .as_ref()
        .map(|name| format!("{name} "))
        .unwrap_or_default();
    let bases: Vec<String> = described
        .members
        .iter()
        .filter(|member| member.base)
        .map(|member| {
            let dynamic = if member.is_virtual { "virtual " } else { "" };
            format!(
                "{} {dynamic}{}",
                word(member.access),
                record.ty(member.entry).name()
            )
        })
        .collect();
    let bases = match bases.is_empty() {
        true => String::new(),
        false => format!(": {} ", bases.join(", ")),
    };
    let mut text = format!("{} {name}{bases}{{\n", described.keyword.word());
    if described.declaration {
        text.push_str(&line("<incomplete type>", level + 4));
    }
    let mut labels = Labels::new(record, level);
    let own = described.members.iter().filter(|member| !member.base);
    for member in own.filter(|member| !is_hidden(member)).take(MAX_SHOWN) {
        text.push_str(&labels.before(member.access));
        let storage = if matches!(member.location, MemberLocation::Static(_)) {
            "static "
        } else {
            ""
        };
        let bits = match member.location {
            MemberLocation::Bits { size, .. } => format!(" : {size}"),
            _ => String::new(),
        };
        let name = member.name.as_deref().unwrap_or_default();
        let formatter = TypeFormatter {
            resolve: false,
            body: &|base| spelled(base, show - 1, level + 4),
        };
        let declared = declare_with(&record.ty(member.entry), name.to_owned(), formatter);
        text.push_str(&line(&format!("{storage}{declared}{bits};"), level + 4));
    }
    text.push_str(&ptype_class::methods(record, &mut labels, level));
    text.push_str(&ptype_class::typedefs(record, &mut labels, level));
    let empty = described.members.is_empty() && described.methods.is_empty() && described.typedefs.is_empty();
    if empty && !described.declaration {
        text.push_str(&line("<no data fields>", level + 4));
    }
    text.push_str(&" ".repeat(level));
    text.push('}');
    text
}

/// The compiler's own.
fn is_hidden(member: &Member) -> bool {
    member.artificial
        || member
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with("_vptr"))
}
