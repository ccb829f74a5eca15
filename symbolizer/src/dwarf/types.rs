//! Reads types from entries (DWARF 5, chapter 5).

use super::budget::Budget;
use super::entry::{Entry, MAX_ORIGINS, budget};
use super::index::NameKind;
use super::info::DebugInfo;
use super::language::language;
use crate::entry_id::EntryId;
use crate::types::{
    Access, Count, DynamicProperty, Encoding, Enumeration, GoKind, Keyword, Language, Member, MemberLocation,
    MemberTypedef, Method, Parameter, PointerKind, Qualifier, Record, TemplateArgument, Type, TypeKind,
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
            bit_size: bit_size(&entry),
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
            gimli::DW_TAG_enumeration_type if is_big_endian(entry) => {
                TypeKind::Other("an enumeration in big-endian order")
            }
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
            go_kind: go_kind(entry),
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
                gimli::DW_TAG_variant_part => match self.variants(&child, budget) {
                    Some(variants) if record.variants.is_none() => record.variants = Some(variants),
                    _ => return TypeKind::Other("a record with variants of an unsupported form"),
                },
                gimli::DW_TAG_GNU_template_parameter_pack => {
                    let pack = child.children(budget);
                    record.arguments.extend(pack.iter().filter_map(template_argument));
                }
                gimli::DW_TAG_subprogram => record.methods.extend(self.method(&child, default)),
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

    /// Returns whether the numbers of a type have a sign.
    pub(super) fn is_signed(&self, id: EntryId) -> bool {
        let mut next = self.entry(id);
        for _ in 0..MAX_ORIGINS {
            let Some(entry) = next else { break };
            if entry.value(gimli::DW_AT_encoding).is_some() {
                return is_signed_encoding(&entry);
            }
            next = entry.reference(gimli::DW_AT_type).and_then(|id| self.entry(id));
        }
        false
    }

    fn enumeration(&self, entry: &Entry<'_, 'd>, underlying: Option<EntryId>, budget: &Budget) -> TypeKind {
        let size = self
            .stated_size(entry)
            .or_else(|| self.stated_size(&self.entry(underlying?)?));
        let bits = size.and_then(|size| size.checked_mul(8));
        let signed = underlying.map(|id| self.is_signed(id));
        let cut = |value: i128| match (signed, bits) {
            (Some(signed), Some(bits)) => sign_extended(value, bits, signed),
            _ => value,
        };
        let children = entry.children(budget).into_iter();
        let enumerators = children
            .filter(|child| child.tag() == gimli::DW_TAG_enumerator)
            .filter_map(|child| Some((child.name()?, cut(constant(&child)?))))
            .collect();
        TypeKind::Enumeration(Enumeration {
            underlying,
            enumerators,
            unsigned: signed == Some(false),
            scoped: entry.flag(gimli::DW_AT_enum_class),
            declaration: entry.flag(gimli::DW_AT_declaration),
        })
    }

    fn array(&self, entry: &Entry<'_, 'd>, element: Option<EntryId>, budget: &Budget) -> TypeKind {
        let children = entry.children(budget);
        let subranges = || {
            let children = children.iter();
            children.filter(|child| child.tag() == gimli::DW_TAG_subrange_type)
        };
        if !has_plain_layout(entry) || !subranges().all(has_plain_layout) {
            return TypeKind::Other("an array of an unsupported layout");
        }
        let mut dimensions: Vec<_> = subranges().map(count).collect();
        if dimensions.is_empty() {
            dimensions.push(Count::Unknown);
        }
        TypeKind::Array {
            element,
            dimensions,
            vector: entry.flag(gimli::DW_AT_GNU_vector),
        }
    }

    /// Reads a member function (DWARF 5, section 5.7.7).
    fn method(&self, entry: &Entry<'_, 'd>, default: Access) -> Option<Method> {
        Some(Method {
            name: self.name_of_instance(entry)?,
            entry: entry.id(),
            is_virtual: is_virtual(entry),
            artificial: entry.flag(gimli::DW_AT_artificial),
            access: access(entry, default),
        })
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
            prototyped: described.flag(gimli::DW_AT_prototyped) || !language(entry).is_written_as_c(),
        }
    }
}

/// Returns the kind that Go's compiler states with a structure.
fn go_kind(entry: &Entry<'_, '_>) -> Option<GoKind> {
    /// The attribute, and the numbers of kinds (package `reflect` of Go).
    const ATTRIBUTE: gimli::DwAt = gimli::DwAt(0x2900);
    const SLICE: u64 = 23;
    const STRING: u64 = 24;
    let kind = entry.number(ATTRIBUTE)?;
    match kind {
        _ if language(entry) != Language::Go => None,
        SLICE => Some(GoKind::Slice),
        STRING => Some(GoKind::String),
        _ => None,
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

/// Returns whether a floating-point or complex type is known to have the format binary128.
/// Fortran's names state it, and gcc's option for `long double` does.
fn is_quadruple(entry: &Entry<'_, '_>) -> bool {
    let has = |text: Option<&[u8]>, word: &[u8]| {
        text.is_some_and(|text| text.windows(word.len()).any(|found| found == word))
    };
    let name = entry.text(gimli::DW_AT_name);
    let producer = || entry.root()?.text(gimli::DW_AT_producer);
    has(name, b"(kind=16)") || has(name, b"long double") && has(producer(), b"-mlong-double-128")
}

fn encoding(entry: &Entry<'_, '_>) -> Encoding {
    let Some(AttributeValue::Encoding(encoding)) = entry.value(gimli::DW_AT_encoding) else {
        return Encoding::Unknown;
    };
    if is_big_endian(entry) {
        return Encoding::BigEndian;
    }
    match encoding {
        // Of these, the compiler states neither the number of bits nor what is in the others.
        gimli::DW_ATE_signed | gimli::DW_ATE_unsigned
            if is_bit_precise(entry) && bit_size(entry).is_none() =>
        {
            Encoding::Unknown
        }
        gimli::DW_ATE_signed => Encoding::Signed,
        // Compilers disagree about the encoding of `char8_t`.
        gimli::DW_ATE_unsigned if entry.text(gimli::DW_AT_name) == Some(b"char8_t") => Encoding::Utf,
        gimli::DW_ATE_unsigned => Encoding::Unsigned,
        gimli::DW_ATE_signed_char => Encoding::SignedChar,
        gimli::DW_ATE_unsigned_char => Encoding::UnsignedChar,
        gimli::DW_ATE_UTF | gimli::DW_ATE_ASCII | gimli::DW_ATE_UCS => Encoding::Utf,
        gimli::DW_ATE_boolean => Encoding::Boolean,
        gimli::DW_ATE_float | gimli::DW_ATE_complex_float if is_quadruple(entry) => Encoding::Quadruple,
        gimli::DW_ATE_float => Encoding::Float,
        gimli::DW_ATE_complex_float => Encoding::ComplexFloat,
        gimli::DW_ATE_address => Encoding::Address,
        gimli::DW_ATE_decimal_float => Encoding::DecimalFloat,
        gimli::DW_ATE_signed_fixed | gimli::DW_ATE_unsigned_fixed => Encoding::Fixed,
        _ => Encoding::Unknown,
    }
}

/// Returns whether the highest byte of a type is first (GCC's `scalar_storage_order`).
fn is_big_endian(entry: &Entry<'_, '_>) -> bool {
    let order = entry.value(gimli::DW_AT_endianity);
    matches!(order, Some(AttributeValue::Endianity(gimli::DW_END_big)))
}

/// Returns whether the elements of an array are in the order of C, without gaps.
fn has_plain_layout(entry: &Entry<'_, '_>) -> bool {
    let columns_first = matches!(
        entry.value(gimli::DW_AT_ordering),
        Some(AttributeValue::Ordering(gimli::DW_ORD_col_major))
    );
    let layout = [
        gimli::DW_AT_byte_stride,
        gimli::DW_AT_bit_stride,
        gimli::DW_AT_data_location,
    ];
    !columns_first && layout.iter().all(|name| entry.value(*name).is_none())
}

/// Returns whether a type is a `_BitInt` whose name does not have its bits.
fn is_bit_precise(entry: &Entry<'_, '_>) -> bool {
    matches!(
        entry.text(gimli::DW_AT_name),
        Some(b"_BitInt" | b"unsigned _BitInt")
    )
}

/// Returns `DW_AT_const_value` as a number.
pub(super) fn constant(entry: &Entry<'_, '_>) -> Option<i128> {
    number(entry.value(gimli::DW_AT_const_value)?)
}

/// Returns a constant of any form. Fixed-size forms and blocks have no sign, so the caller must
/// apply the type's.
pub(super) fn number(value: AttributeValue<super::sections::Slice<'_>>) -> Option<i128> {
    match value {
        AttributeValue::Sdata(value) => Some(value.into()),
        AttributeValue::Udata(value) | AttributeValue::Data8(value) => Some(value.into()),
        AttributeValue::Data1(value) => Some(value.into()),
        AttributeValue::Data2(value) => Some(value.into()),
        AttributeValue::Data4(value) => Some(value.into()),
        AttributeValue::Data16(value) => Some(value as i128),
        AttributeValue::Block(bytes) => {
            let mut wide = [0; 16];
            let bytes = bytes.slice();
            let filled = wide.get_mut(..bytes.len()).filter(|_| !bytes.is_empty())?;
            filled.copy_from_slice(bytes);
            Some(i128::from_le_bytes(wide))
        }
        other => other.sdata_value().map(i128::from),
    }
}

/// Returns whether the numbers of a base type have a sign.
pub(super) fn is_signed_encoding(entry: &Entry<'_, '_>) -> bool {
    matches!(encoding(entry), Encoding::Signed | Encoding::SignedChar)
}

/// Returns a number that is cut to `bits` bits and extended by its sign.
pub(super) fn sign_extended(value: i128, bits: u64, signed: bool) -> i128 {
    let Some(unused) = u32::try_from(bits)
        .ok()
        .and_then(|bits| 128u32.checked_sub(bits))
        .filter(|unused| *unused < 128)
    else {
        return value;
    };
    match signed {
        true => value << unused >> unused,
        false => ((value as u128) << unused >> unused) as i128,
    }
}

/// Returns the number of bits of a base type that count, if it has more (DWARF 5, section 5.1.2).
fn bit_size(entry: &Entry<'_, '_>) -> Option<u64> {
    if entry.tag() != gimli::DW_TAG_base_type {
        return None;
    }
    let stated = entry.number(gimli::DW_AT_bit_size);
    // Compilers state the bits of a bit-precise integer in its name alone.
    let name = entry.text(gimli::DW_AT_name);
    let named = || {
        let name = std::str::from_utf8(name?).ok()?;
        let (_, bits) = name.strip_suffix(')')?.split_once("_BitInt(")?;
        bits.parse().ok()
    };
    let bits = stated.or_else(named)?;
    let bytes = entry.number(gimli::DW_AT_byte_size).unwrap_or(0);
    (bits < bytes.saturating_mul(8)).then_some(bits)
}

/// Returns the number of elements of a dimension (DWARF 5, section 5.13).
pub(super) fn count(entry: &Entry<'_, '_>) -> Count {
    let property = |value: AttributeValue<super::sections::Slice<'_>>, name| match entry.reference(name) {
        Some(variable) => Some(DynamicProperty::Variable(variable)),
        None => value
            .exprloc_value()
            .and_then(|_| entry.location_expression(entry.value(name)?))
            .map(DynamicProperty::Expression),
    };
    if let Some(value) = entry.value(gimli::DW_AT_count) {
        if let Some(count) = number(value) {
            return u64::try_from(count).map_or(Count::Unknown, Count::Known);
        }
        return property(value, gimli::DW_AT_count)
            .map_or(Count::Unknown, |property| Count::Dynamic { property, less: 0 });
    }
    let Some(value) = entry.value(gimli::DW_AT_upper_bound) else {
        return Count::Unknown;
    };
    let lower = match entry.value(gimli::DW_AT_lower_bound) {
        None => default_lower_bound(entry),
        Some(lower) => match number(lower).and_then(|lower| i64::try_from(lower).ok()) {
            Some(lower) => lower,
            None => return Count::Unknown,
        },
    };
    let Some(less) = lower.checked_sub(1) else {
        return Count::Unknown;
    };
    if let Some(bound) = number(value) {
        // Compilers write the bound of an empty array as all ones, in one size or another.
        let empty = lower == 0 && [-1, i128::from(u32::MAX), i128::from(u64::MAX)].contains(&bound);
        let count = if empty { 0 } else { bound - i128::from(less) };
        return u64::try_from(count.max(0)).map_or(Count::Unknown, Count::Known);
    }
    property(value, gimli::DW_AT_upper_bound)
        .map_or(Count::Unknown, |property| Count::Dynamic { property, less })
}

/// Returns the lower bound of arrays that do not state theirs (DWARF 5, table 7.17).
fn default_lower_bound(entry: &Entry<'_, '_>) -> i64 {
    match entry.root().and_then(|root| root.value(gimli::DW_AT_language)) {
        Some(AttributeValue::Language(
            gimli::DW_LANG_Ada83
            | gimli::DW_LANG_Ada95
            | gimli::DW_LANG_Cobol74
            | gimli::DW_LANG_Cobol85
            | gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Pascal83
            | gimli::DW_LANG_Modula2
            | gimli::DW_LANG_Modula3
            | gimli::DW_LANG_PLI,
        )) => 1,
        _ => 0,
    }
}

pub(super) fn member(entry: &Entry<'_, '_>, default: Access) -> Option<Member> {
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
fn plain_offset(value: AttributeValue<super::sections::Slice<'_>>) -> Option<i128> {
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
        Ok(gimli::Operation::PlusConstant { value }) if bytes.is_empty() => Some(value.into()),
        _ => None,
    }
}
