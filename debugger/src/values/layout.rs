//! How types are aligned (System V ABI AMD64, section 3.1.2).

use super::types::{Shape, Ty};
use backtrail_symbolizer::types::MemberPlace;

/// Records in records are looked into this deep.
const MAX_DEPTH: u32 = 32;

/// The alignment of a type, as far as its members tell; what the source asks for beyond that is not stated.
pub(crate) fn alignment(ty: &Ty) -> Option<u64> {
    aligned(ty, 0)
}

fn aligned(ty: &Ty, depth: u32) -> Option<u64> {
    if depth > MAX_DEPTH {
        return None;
    }
    let stated = ty.described().and_then(|(_, described)| described.alignment);
    if let Some(stated) = stated {
        return stated.is_power_of_two().then_some(stated);
    }
    match ty.shape() {
        Shape::Base(base) => base.size.is_power_of_two().then_some(base.size.min(16)),
        Shape::Pointer(..) | Shape::MemberPointer { .. } => Some(8),
        Shape::Enumeration(_, size) => size.is_power_of_two().then_some(size),
        Shape::Array { element, .. } => aligned(&element, depth + 1),
        Shape::Record(record) => {
            let members = &record.record().members;
            let own = members
                .iter()
                .filter(|member| !matches!(member.place, MemberPlace::Static(_)));
            let each = own.map(|member| match member.alignment {
                Some(stated) => stated.is_power_of_two().then_some(stated),
                None => aligned(&record.ty(member.entry), depth + 1),
            });
            let most = each
                .collect::<Option<Vec<u64>>>()?
                .into_iter()
                .chain(record.described.alignment)
                .max();
            // Where members lie closer than that, the record is packed.
            let offsets = members.iter().filter_map(|member| match member.place {
                MemberPlace::Offset(offset) => Some((offset, aligned(&record.ty(member.entry), depth + 1)?)),
                _ => None,
            });
            let natural = most.unwrap_or(1);
            let closest = offsets
                .filter(|(offset, own)| !offset.is_multiple_of(*own))
                .map(|(offset, _)| offset)
                .chain(record.described.size.filter(|size| !size.is_multiple_of(natural)))
                .map(|place| 1 << place.trailing_zeros().min(6))
                .min();
            Some(closest.map_or(natural, |closest: u64| closest.min(natural)))
        }
        _ => None,
    }
}
