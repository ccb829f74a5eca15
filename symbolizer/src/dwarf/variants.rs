//! Reads the variant parts of records: their tags, and which values of a tag select which variant
//! (DWARF 5, section 5.7.10).

use super::budget::Budget;
use super::entry::Entry;
use super::info::DebugInfo;
use super::sections::Slice;
use super::types::{member, number};
use crate::types::{Access, Variant, Variants};
use gimli::{AttributeValue, Reader};
use std::ops::RangeInclusive;

impl<'d> DebugInfo<'d> {
    /// Reads a variant part. Returns `None` if its form is not supported.
    pub(super) fn variants(&self, part: &Entry<'_, 'd>, budget: &Budget) -> Option<Variants> {
        let discriminant = match part.value(gimli::DW_AT_discr) {
            Some(_) => {
                let id = part.reference(gimli::DW_AT_discr)?;
                Some(member(&self.entry(id)?, Access::Public)?)
            }
            // The tag is in no member.
            None if part.value(gimli::DW_AT_type).is_some() => return None,
            None => None,
        };
        let tag = discriminant.as_ref().and_then(|member| member.entry);
        let signed = tag.is_some_and(|tag| self.is_signed(tag));
        let children = part.children(budget).into_iter();
        let mut variants = Vec::new();
        for child in children.filter(|child| child.tag() == gimli::DW_TAG_variant) {
            let inner = child.children(budget);
            // A variant part in a variant has a tag of its own.
            if inner
                .iter()
                .any(|inner| inner.tag() == gimli::DW_TAG_variant_part)
            {
                return None;
            }
            variants.push(Variant {
                tags: tags(&child, signed, budget)?,
                members: inner
                    .iter()
                    .filter(|child| child.tag() == gimli::DW_TAG_member)
                    .filter_map(|child| member(child, Access::Public))
                    .collect(),
            });
        }
        Some(Variants {
            discriminant,
            signed,
            variants,
        })
    }
}

/// Returns the tags of a variant; the default variant has none. Returns `None` if their form is
/// not supported.
fn tags(entry: &Entry<'_, '_>, signed: bool, budget: &Budget) -> Option<Vec<RangeInclusive<i128>>> {
    if let Some(value) = entry.value(gimli::DW_AT_discr_value) {
        let value = tag(value, signed)?;
        return Some(vec![value..=value]);
    }
    match entry.value(gimli::DW_AT_discr_list) {
        None => Some(Vec::new()),
        Some(AttributeValue::Block(list)) => ranges(list, signed, budget),
        Some(_) => None,
    }
}

/// Reads one tag. If the tag has a sign, so has its form: -1 of 64 bits is `0xff` in one byte.
fn tag(value: AttributeValue<Slice<'_>>, signed: bool) -> Option<i128> {
    match value {
        AttributeValue::Data1(value) if signed => Some((value as i8).into()),
        AttributeValue::Data2(value) if signed => Some((value as i16).into()),
        AttributeValue::Data4(value) if signed => Some((value as i32).into()),
        AttributeValue::Data8(value) if signed => Some((value as i64).into()),
        value => number(value),
    }
}

/// Reads a list of tags and ranges of tags.
fn ranges(mut list: Slice<'_>, signed: bool, budget: &Budget) -> Option<Vec<RangeInclusive<i128>>> {
    let mut ranges = Vec::new();
    while !list.is_empty() {
        budget.spend(1)?;
        let kind = gimli::DwDsc(list.read_u8().ok()?);
        let mut tag = || match signed {
            true => list.read_sleb128().map(i128::from).ok(),
            false => list.read_uleb128().map(i128::from).ok(),
        };
        let first = tag()?;
        let last = match kind {
            gimli::DW_DSC_label => first,
            gimli::DW_DSC_range => tag()?,
            _ => return None,
        };
        ranges.push(first..=last);
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::LittleEndian;

    #[test]
    fn lists_of_tags_have_the_sign_of_the_tag() {
        let read = |bytes, signed| ranges(Slice::new(bytes, LittleEndian), signed, &Budget::of(100));
        assert_eq!(
            read(&[0, 0x7b, 1, 0x70, 0x05], true),
            Some(vec![-5..=-5, -16..=5])
        );
        assert_eq!(
            read(&[0, 0x7b, 1, 0x70, 0x75], false),
            Some(vec![123..=123, 112..=117])
        );
        assert_eq!(read(&[], true), Some(Vec::new()));
    }

    #[test]
    fn short_forms_of_tags_have_a_sign() {
        let values = [
            AttributeValue::Data1(0xff),
            AttributeValue::Data2(0xfffe),
            AttributeValue::Data4(0xffff_fffd),
            AttributeValue::Data8(u64::MAX - 3),
            AttributeValue::Sdata(-5),
        ];
        let read = |signed| values.map(|value| tag(value, signed));
        assert_eq!(read(true), [-1, -2, -3, -4, -5].map(Some));
        let unsigned = [255, 0xfffe, 0xffff_fffd, i128::from(u64::MAX - 3), -5];
        assert_eq!(read(false), unsigned.map(Some));
        let wide = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x80];
        let block = AttributeValue::Block(Slice::new(&wide, LittleEndian));
        assert_eq!(tag(block, false), Some(i128::MIN + (1 << 64)));
        let long = AttributeValue::Block(Slice::new(&[0; 17], LittleEndian));
        assert_eq!(tag(long, false), None);
    }

    #[test]
    fn malformed_lists_of_tags_are_refused() {
        let read = |bytes| ranges(Slice::new(bytes, LittleEndian), false, &Budget::of(3));
        assert_eq!(read(&[2, 1]), None);
        assert_eq!(read(&[1, 1]), None);
        assert_eq!(read(&[0, 0x80]), None);
        assert_eq!(read(&[0, 1, 0, 2, 0, 3, 0, 4]), None);
    }
}
