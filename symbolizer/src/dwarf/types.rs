//! Reads types from entries (DWARF 5, chapter 5).

use super::budget::Budget;
use super::entry::{Entry, budget};
use super::index::NameKind;
use super::info::DebugInfo;
use crate::entry_id::EntryId;
use crate::types::{
    Access, Count, Encoding, Enumeration, Keyword, Language, Member, MemberLocation, MemberTypedef, Method,
    Parameter, PointerKind, Qualifier, Record, TemplateArgument, Type, TypeKind, Variant, Variants,
};
use gimli::{AttributeValue, DwTag};

impl<'d> DebugInfo<'d> {
    /// Returns the type that an entry describes.
    pub fn type_at(&self, id: EntryId) -> Option<Type> {
        let entry = self.entry(id)?;
        let entry = self.in_type_unit(&entry).unwrap_or(entry);
        let budget = budget();
        let kind = self.type_kind(&entry, &budget)?;
        let name = match kind {
            TypeKind::Function { .. } => None,
            _ => entry.full_name(),
        };
        Some(Type {
            name,
            size: self.stated_size(&entry),
            kind,
            alignment: entry.number(gimli::DW_AT_alignment),
            language: language(&entry),
        })
    }

    /// Returns the full description of a type that is only declared here, from the type unit of its
    /// signature (DWARF 5, section 7.32).
    fn in_type_unit(&self, entry: &Entry<'_, 'd>) -> Option<Entry<'_, 'd>> {
        self.entry(entry.reference(gimli::DW_AT_signature)?)
    }

    /// Returns the definition of the type with this name. Returns `None` if units have different
    /// definitions, unless the unit of `near` defines it.
    pub fn type_named(&self, name: &str, near: Option<EntryId>) -> Option<EntryId> {
        let is_type = |kind| matches!(kind, NameKind::Type | NameKind::Tagged);
        self.sole_type(self.entries_named(name, near, is_type), near)
    }

    /// Returns the structure, class, union or enumeration with this name, by the same rule.
    pub fn tagged_type_named(&self, name: &str, near: Option<EntryId>) -> Option<EntryId> {
        let found = self.entries_named(name, near, |kind| kind == NameKind::Tagged);
        self.sole_type(found, near)
    }

    fn sole_type(&self, found: Vec<(NameKind, EntryId)>, near: Option<EntryId>) -> Option<EntryId> {
        let (kind, first) = *found.first()?;
        if near.is_some_and(|near| self.same_unit(first, near)) {
            return Some(first);
        }
        let size = |id: EntryId| {
            self.entry(id)
                .map(|entry| (entry.tag(), self.stated_size(&entry)))
        };
        let wanted = size(first);
        let mut alike = found.iter().filter(|(other, _)| *other == kind);
        let same = alike.all(|(_, id)| size(*id) == wanted);
        same.then_some(first)
    }

    fn stated_size(&self, entry: &Entry<'_, 'd>) -> Option<u64> {
        if let Some(size) = entry.number(gimli::DW_AT_byte_size) {
            return Some(size);
        }
        entry.number(gimli::DW_AT_bit_size).map(|bits| bits.div_ceil(8))
    }

    fn type_kind(&self, entry: &Entry<'_, 'd>, budget: &Budget) -> Option<TypeKind> {
        let target = entry.reference(gimli::DW_AT_type);
        let pointer = |kind| TypeKind::Pointer { kind, target };
        let qualified = |qualifier| TypeKind::Qualified { qualifier, target };
        Some(match entry.tag() {
            gimli::DW_TAG_base_type => TypeKind::Base(encoding(entry)),
            gimli::DW_TAG_pointer_type => pointer(PointerKind::Pointer),
            gimli::DW_TAG_reference_type => pointer(PointerKind::Reference),
            gimli::DW_TAG_rvalue_reference_type => pointer(PointerKind::RvalueReference),
            gimli::DW_TAG_const_type => qualified(Qualifier::Const),
            gimli::DW_TAG_volatile_type => qualified(Qualifier::Volatile),
            gimli::DW_TAG_restrict_type => qualified(Qualifier::Restrict),
            gimli::DW_TAG_atomic_type => qualified(Qualifier::Atomic),
            gimli::DW_TAG_typedef => TypeKind::Typedef { target },
            gimli::DW_TAG_structure_type => self.record(entry, Keyword::Struct, budget),
            gimli::DW_TAG_class_type => self.record(entry, Keyword::Class, budget),
            gimli::DW_TAG_union_type => self.record(entry, Keyword::Union, budget),
            gimli::DW_TAG_enumeration_type => self.enumeration(entry, target, budget),
            gimli::DW_TAG_array_type => self.array(entry, target, budget),
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => self.function(entry, budget),
            gimli::DW_TAG_unspecified_type => TypeKind::Unspecified,
            gimli::DW_TAG_ptr_to_member_type => TypeKind::MemberPointer {
                class: entry.reference(gimli::DW_AT_containing_type),
                target,
            },
            tag => TypeKind::Other(described(tag)?),
        })
    }

    fn record(&self, entry: &Entry<'_, 'd>, keyword: Keyword, budget: &Budget) -> TypeKind {
        let mut record = Record {
            keyword,
            declaration: entry.flag(gimli::DW_AT_declaration),
            ..Record::default()
        };
        let default = match keyword {
            Keyword::Class => Access::Private,
            _ => Access::Public,
        };
        for child in entry.children(budget) {
            match child.tag() {
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance | gimli::DW_TAG_variable => {
                    record.members.extend(member(&child, default));
                }
                gimli::DW_TAG_variant_part => {
                    let forms = child.children(budget);
                    if forms
                        .iter()
                        .any(|form| form.value(gimli::DW_AT_discr_list).is_some())
                    {
                        return TypeKind::Other("an enumeration with discriminant ranges");
                    }
                    record.variants = self.variants(&child, budget);
                }
                gimli::DW_TAG_GNU_template_parameter_pack => {
                    let pack = child.children(budget);
                    record.arguments.extend(pack.iter().filter_map(template_argument));
                }
                gimli::DW_TAG_subprogram => record.methods.extend(method(&child, default)),
                gimli::DW_TAG_typedef => record.typedefs.extend(child.name().map(|name| MemberTypedef {
                    name,
                    target: child.reference(gimli::DW_AT_type),
                    access: access(&child, default),
                })),
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_enumeration_type => record.nested = true,
                _ => record.arguments.extend(template_argument(&child)),
            }
        }
        TypeKind::Record(record)
    }

    fn variants(&self, part: &Entry<'_, 'd>, budget: &Budget) -> Option<Variants> {
        let discriminant = part.reference(gimli::DW_AT_discr);
        let discriminant = match discriminant {
            Some(id) => Some(member(&self.entry(id)?, Access::Public)?),
            None => None,
        };
        let children = part.children(budget).into_iter();
        let variants = children
            .filter(|child| child.tag() == gimli::DW_TAG_variant)
            .map(|child| Variant {
                value: child
                    .as_number(gimli::DW_AT_discr_value)
                    .map(|value| value as u64),
                members: child
                    .children(budget)
                    .iter()
                    .filter(|child| child.tag() == gimli::DW_TAG_member)
                    .filter_map(|child| member(child, Access::Public))
                    .collect(),
            })
            .collect();
        Some(Variants {
            discriminant,
            variants,
        })
    }

    fn enumeration(&self, entry: &Entry<'_, 'd>, underlying: Option<EntryId>, budget: &Budget) -> TypeKind {
        let children = entry.children(budget).into_iter();
        let enumerators = children
            .filter(|child| child.tag() == gimli::DW_TAG_enumerator)
            .filter_map(|child| Some((child.name()?, constant(&child)?)))
            .collect();
        TypeKind::Enumeration(Enumeration {
            underlying,
            enumerators,
            scoped: entry.flag(gimli::DW_AT_enum_class),
            declaration: entry.flag(gimli::DW_AT_declaration),
        })
    }

    fn array(&self, entry: &Entry<'_, 'd>, element: Option<EntryId>, budget: &Budget) -> TypeKind {
        let children = entry.children(budget).into_iter();
        let mut dimensions: Vec<_> = children
            .filter(|child| child.tag() == gimli::DW_TAG_subrange_type)
            .map(|child| count(&child))
            .collect();
        if dimensions.is_empty() {
            dimensions.push(Count::Unknown);
        }
        TypeKind::Array {
            element,
            dimensions,
            vector: entry.flag(gimli::DW_AT_GNU_vector),
        }
    }

    fn function(&self, entry: &Entry<'_, 'd>, budget: &Budget) -> TypeKind {
        // A copy of a function has no attributes of its own.
        let described = entry.clone().with_origins(self).last().unwrap_or(entry.clone());
        let children = described.children(budget);
        let parameters = children
            .iter()
            .filter(|child| child.tag() == gimli::DW_TAG_formal_parameter)
            .map(|child| Parameter {
                entry: child.reference(gimli::DW_AT_type),
                artificial: child.flag(gimli::DW_AT_artificial),
            })
            .collect();
        TypeKind::Function {
            result: described.reference(gimli::DW_AT_type),
            parameters,
            variadic: children
                .iter()
                .any(|child| child.tag() == gimli::DW_TAG_unspecified_parameters),
            prototyped: described.flag(gimli::DW_AT_prototyped) || language(entry) != Language::C,
        }
    }
}

fn described(tag: DwTag) -> Option<&'static str> {
    Some(match tag {
        gimli::DW_TAG_string_type => "a Fortran string",
        gimli::DW_TAG_set_type => "a set",
        gimli::DW_TAG_file_type => "a file",
        gimli::DW_TAG_coarray_type | gimli::DW_TAG_dynamic_type => "a dynamic type",
        gimli::DW_TAG_subrange_type => "a subrange",
        _ => return None,
    })
}

/// Returns the source language of an entry's unit.
pub(super) fn language(entry: &Entry<'_, '_>) -> Language {
    let stated = match entry.root().and_then(|root| root.value(gimli::DW_AT_language)) {
        Some(AttributeValue::Language(language)) => language,
        _ => return Language::C,
    };
    match stated {
        gimli::DW_LANG_Rust => Language::Rust,
        gimli::DW_LANG_C_plus_plus
        | gimli::DW_LANG_C_plus_plus_03
        | gimli::DW_LANG_C_plus_plus_11
        | gimli::DW_LANG_C_plus_plus_14
        | gimli::DW_LANG_C_plus_plus_17
        | gimli::DW_LANG_C_plus_plus_20 => Language::Cpp,
        _ => Language::C,
    }
}

/// Returns the argument of a template parameter, if the entry states it.
fn template_argument(entry: &Entry<'_, '_>) -> Option<TemplateArgument> {
    let value = match entry.tag() {
        gimli::DW_TAG_template_type_parameter => None,
        gimli::DW_TAG_template_value_parameter => constant(entry),
        _ => return None,
    };
    Some(TemplateArgument {
        name: entry.name().unwrap_or_default(),
        entry: entry.reference(gimli::DW_AT_type),
        value,
    })
}

fn encoding(entry: &Entry<'_, '_>) -> Encoding {
    let Some(AttributeValue::Encoding(encoding)) = entry.value(gimli::DW_AT_encoding) else {
        return Encoding::Unknown;
    };
    match encoding {
        gimli::DW_ATE_signed => Encoding::Signed,
        // Compilers disagree about the encoding of `char8_t`.
        gimli::DW_ATE_unsigned if entry.text(gimli::DW_AT_name) == Some(b"char8_t") => Encoding::Utf,
        gimli::DW_ATE_unsigned => Encoding::Unsigned,
        gimli::DW_ATE_signed_char => Encoding::SignedChar,
        gimli::DW_ATE_unsigned_char => Encoding::UnsignedChar,
        gimli::DW_ATE_UTF | gimli::DW_ATE_ASCII | gimli::DW_ATE_UCS => Encoding::Utf,
        gimli::DW_ATE_boolean => Encoding::Boolean,
        gimli::DW_ATE_float => Encoding::Float,
        gimli::DW_ATE_complex_float => Encoding::ComplexFloat,
        gimli::DW_ATE_address => Encoding::Address,
        _ => Encoding::Unknown,
    }
}

/// Returns `DW_AT_const_value` as a number.
pub(super) fn constant(entry: &Entry<'_, '_>) -> Option<i64> {
    entry.as_number(gimli::DW_AT_const_value)
}

impl Entry<'_, '_> {
    fn as_number(&self, name: gimli::DwAt) -> Option<i64> {
        number(self.value(name)?)
    }
}

/// Returns a constant of any form. Fixed-size forms have no sign, so the caller must apply the
/// type's.
pub(super) fn number(value: AttributeValue<super::sections::Slice<'_>>) -> Option<i64> {
    match value {
        AttributeValue::Sdata(value) => Some(value),
        AttributeValue::Udata(value) | AttributeValue::Data8(value) => Some(value as i64),
        AttributeValue::Data1(value) => Some(value.into()),
        AttributeValue::Data2(value) => Some(value.into()),
        AttributeValue::Data4(value) => Some(value.into()),
        other => other.sdata_value(),
    }
}

fn count(entry: &Entry<'_, '_>) -> Count {
    if let Some(value) = entry.value(gimli::DW_AT_count) {
        if let Some(count) = number(value) {
            return u64::try_from(count).map_or(Count::Unknown, Count::Known);
        }
        return entry
            .location_expression(value)
            .map_or(Count::Unknown, Count::Count);
    }
    let Some(value) = entry.value(gimli::DW_AT_upper_bound) else {
        return Count::Unknown;
    };
    if let Some(bound) = number(value) {
        // Compilers write the bound of an empty array as all ones, in one size or another.
        let empty = bound == -1 || bound == i64::from(u32::MAX);
        let bound = bound.checked_add(1).filter(|_| !empty).unwrap_or(0);
        return u64::try_from(bound).map_or(Count::Unknown, Count::Known);
    }
    entry
        .location_expression(value)
        .map_or(Count::Unknown, Count::UpperBound)
}

fn member(entry: &Entry<'_, '_>, default: Access) -> Option<Member> {
    let base = entry.tag() == gimli::DW_TAG_inheritance;
    let is_static = entry.tag() == gimli::DW_TAG_variable
        || (!base && (entry.flag(gimli::DW_AT_external) || entry.flag(gimli::DW_AT_declaration)));
    let name = entry.name().filter(|name| !name.is_empty());
    Some(Member {
        name: if base { None } else { name },
        entry: entry.reference(gimli::DW_AT_type),
        location: if is_static {
            MemberLocation::Static(entry.id())
        } else {
            member_place(entry)
        },
        base,
        is_virtual: base && is_virtual(entry),
        alignment: entry.number(gimli::DW_AT_alignment),
        artificial: entry.flag(gimli::DW_AT_artificial),
        access: access(entry, default),
    })
}

/// Returns the access of an entry (DWARF 5, section 2.9).
fn access(entry: &Entry<'_, '_>, default: Access) -> Access {
    match entry.value(gimli::DW_AT_accessibility) {
        Some(AttributeValue::Accessibility(gimli::DW_ACCESS_public)) => Access::Public,
        Some(AttributeValue::Accessibility(gimli::DW_ACCESS_protected)) => Access::Protected,
        Some(AttributeValue::Accessibility(gimli::DW_ACCESS_private)) => Access::Private,
        _ => default,
    }
}

/// Reads a member function (DWARF 5, section 5.7.7).
fn method(entry: &Entry<'_, '_>, default: Access) -> Option<Method> {
    Some(Method {
        name: entry.name()?,
        entry: entry.id(),
        is_virtual: is_virtual(entry),
        artificial: entry.flag(gimli::DW_AT_artificial),
        access: access(entry, default),
    })
}

fn is_virtual(entry: &Entry<'_, '_>) -> bool {
    matches!(
        entry.value(gimli::DW_AT_virtuality),
        Some(AttributeValue::Virtuality(
            gimli::DW_VIRTUALITY_virtual | gimli::DW_VIRTUALITY_pure_virtual
        ))
    )
}

fn member_place(entry: &Entry<'_, '_>) -> MemberLocation {
    let offset = match entry.value(gimli::DW_AT_data_member_location) {
        None => 0,
        Some(value) => match number(value).or_else(|| plain_offset(value)) {
            Some(offset) => match u64::try_from(offset) {
                Ok(offset) => offset,
                Err(_) => return MemberLocation::Unknown,
            },
            // The expression computes it from the object's address (DWARF 5, section 5.7.6).
            None => {
                return entry
                    .location_expression(value)
                    .map_or(MemberLocation::Unknown, MemberLocation::Computed);
            }
        },
    };
    let Some(size) = entry.number(gimli::DW_AT_bit_size) else {
        return MemberLocation::Offset(offset);
    };
    let start = offset.saturating_mul(8);
    if let Some(bits) = entry.number(gimli::DW_AT_data_bit_offset) {
        return MemberLocation::Bits {
            offset: start.saturating_add(bits),
            size,
        };
    }
    // Before DWARF 4, the offset counts from the most significant bit of the storage unit.
    let Some(bits) = entry.number(gimli::DW_AT_bit_offset) else {
        return MemberLocation::Bits { offset: start, size };
    };
    let storage = entry
        .number(gimli::DW_AT_byte_size)
        .and_then(|storage| storage.checked_mul(8));
    let offset = storage.and_then(|storage| start.checked_add(storage)?.checked_sub(bits.checked_add(size)?));
    offset.map_or(MemberLocation::Unknown, |offset| MemberLocation::Bits {
        offset,
        size,
    })
}

/// Returns N of `DW_OP_plus_uconst N`, which older producers write.
fn plain_offset(value: AttributeValue<super::sections::Slice<'_>>) -> Option<i64> {
    let expression = value.exprloc_value()?;
    let mut bytes = expression.0;
    let operation = gimli::Operation::parse(
        &mut bytes,
        gimli::Encoding {
            address_size: 8,
            format: gimli::Format::Dwarf32,
            version: 4,
        },
    );
    match operation {
        Ok(gimli::Operation::PlusConstant { value }) if bytes.is_empty() => i64::try_from(value).ok(),
        _ => None,
    }
}
