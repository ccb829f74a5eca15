//! Pointers to members of C++ (Itanium C++ ABI, sections 2.3.1 and 2.3.2).

use super::formatter::ValueFormatter;
use super::types::{RecordShape, Shape, Ty};
use super::value::{Unavailable, Value};
use backtrail_symbolizer::types::MemberLocation;

/// Bases of bases are searched this deep.
const MAX_DEPTH: u32 = 16;

impl ValueFormatter<'_> {
    /// `&Node::value`, `(int (Node::*)(const Node * const)) 0x401136 <Node::get() const>`.
    pub(crate) fn member_pointer(
        &self,
        value: &Value,
        class: &Ty,
        target: &Ty,
    ) -> Result<String, Unavailable> {
        let word = |offset: u64| {
            let part = value.part(Ty::unsigned_long(), offset);
            let bytes = part.read(self.context.source, 8)?;
            Ok::<_, Unavailable>(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        };
        let first = word(0)?;
        if !matches!(target.shape(), Shape::Function) {
            return Ok(match first {
                u64::MAX => "NULL".to_owned(),
                offset => match member_at(class, offset, 0) {
                    Some(name) => format!("&{}::{name}", class.name()),
                    None => format!("{offset} bytes into {}", class.name()),
                },
            });
        }
        let moved = match word(8)? as i64 {
            0 => String::new(),
            by => format!(", this adjustment {by}"),
        };
        Ok(match first {
            0 => "NULL".to_owned(),
            virtually if virtually & 1 == 1 => {
                format!("&virtual function {} of {}{moved}", virtually / 8, class.name())
            }
            at => format!("({}) {}{moved}", value.ty.name(), self.with_symbol(at)),
        })
    }
}

/// Returns the member at an offset of an object.
fn member_at(class: &Ty, offset: u64, depth: u32) -> Option<String> {
    let Shape::Record(record) = class.shape() else {
        return None;
    };
    let begins = |place: &MemberLocation| match place {
        MemberLocation::Offset(at) => Some(*at),
        _ => None,
    };
    let inside = |record: &RecordShape, base: bool| {
        let members = record.record().members.iter();
        let found = members.filter(|member| member.base == base).map(|member| {
            let at = begins(&member.location)?;
            Some((at, member.name.clone(), record.ty(member.entry)))
        });
        found.flatten().collect::<Vec<_>>()
    };
    let own = inside(&record, false);
    if let Some(found) = own.iter().find(|(at, name, _)| *at == offset && name.is_some()) {
        return found.1.as_deref().map(str::to_owned);
    }
    let bases = inside(&record, true);
    bases
        .iter()
        .filter(|_| depth < MAX_DEPTH)
        .find_map(|(at, _, base)| member_at(base, offset.checked_sub(*at)?, depth + 1))
}
