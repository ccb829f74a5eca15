//! The alignment of types (System V ABI AMD64, section 3.1.2).

use super::types::{Shape, Ty};
use backtrail_symbolizer::types::MemberLocation;

/// The maximum depth of nested records.
const MAX_DEPTH: u32 = 32;
/// The maximum number of types.
const MAX_TYPES: u32 = 1 << 12;

/// Returns the alignment of a type, as computed from its members. Additional alignment in the
/// source is not recorded.
pub fn alignment(ty: &Ty) -> Option<u64> {
    let mut left = MAX_TYPES;
    aligned(ty, 0, &mut left)
}

fn aligned(ty: &Ty, depth: u32, left: &mut u32) -> Option<u64> {
    *left = left.checked_sub(1).filter(|_| depth <= MAX_DEPTH)?;
    let stated = ty.described().and_then(|(_, described)| described.alignment);
    if let Some(stated) = stated {
        return stated.is_power_of_two().then_some(stated);
    }
    match ty.shape() {
        Shape::Base(base) => base.size.is_power_of_two().then_some(base.size.min(16)),
        Shape::Pointer(..) | Shape::MemberPointer { .. } => Some(8),
        Shape::Enumeration(_, size) => size.is_power_of_two().then_some(size),
        Shape::Array { element, .. } => aligned(&element, depth + 1, left),
        Shape::Record(record) => {
            let mut natural = record.described.alignment.unwrap_or(1);
            let mut offsets = Vec::new();
            for member in &record.record().members {
                if matches!(member.location, MemberLocation::Static(_)) {
                    continue;
                }
                let own = match member.alignment {
                    Some(stated) => stated.is_power_of_two().then_some(stated)?,
                    None => aligned(&record.ty(member.entry), depth + 1, left)?,
                };
                natural = natural.max(own);
                if let MemberLocation::Offset(offset) = member.location {
                    offsets.push((offset, own));
                }
            }
            // If members are closer than that, the record is packed.
            offsets.extend(record.described.size.map(|size| (size, natural)));
            let closer = offsets
                .into_iter()
                .filter(|(place, own)| !place.is_multiple_of(*own));
            let closest = closer.map(|(place, _)| 1 << place.trailing_zeros().min(6));
            Some(closest.fold(natural, u64::min))
        }
        _ => None,
    }
}
