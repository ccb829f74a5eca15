//! The names of a type's members, for completion.

use super::types::{Shape, Ty};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum depth of bases, members without names, and pointers.
const MAX_DEPTH: u32 = 32;
/// The maximum number of types that are read.
const MAX_TYPES: u32 = 1 << 10;

/// Returns the names that `.` and `->` select in a value of this type. A pointer has those of its
/// target.
#[must_use]
pub fn member_names(ty: &Ty) -> BTreeSet<Arc<str>> {
    let mut names = BTreeSet::new();
    let mut types = 0;
    collect(ty, 0, &mut types, &mut names);
    names
}

fn collect(ty: &Ty, depth: u32, types: &mut u32, names: &mut BTreeSet<Arc<str>>) {
    *types += 1;
    if depth > MAX_DEPTH || *types > MAX_TYPES {
        return;
    }
    match ty.shape() {
        Shape::Pointer(_, target) => collect(&target, depth + 1, types, names),
        Shape::Record(record) => {
            for member in &record.record().members {
                match &member.name {
                    Some(name) if !member.base => {
                        if !member.artificial {
                            names.insert(Arc::clone(name));
                        }
                    }
                    _ => collect(&record.ty(member.entry), depth + 1, types, names),
                }
            }
        }
        _ => {}
    }
}
