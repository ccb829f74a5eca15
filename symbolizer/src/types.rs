//! Types as DWARF describes them (DWARF 5, chapter 5).
//!
//! Each type is read separately. It refers to others by [`EntryId`], which are read on demand.

use crate::entry_id::EntryId;
use crate::location::LocationExpression;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The source language of a unit. It determines how values are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// C, or an unknown language.
    #[default]
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
}

impl Language {
    /// Returns whether types are written as in C: `struct point`.
    pub fn is_written_as_c(self) -> bool {
        matches!(self, Self::C | Self::Go)
    }
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// The qualified name. `None` if the type has no name.
    pub name: Option<Arc<str>>,
    /// The size in bytes, if stated.
    pub size: Option<u64>,
    /// The kind of the type.
    pub kind: TypeKind,
    /// The size in bits, if it is less than that in bytes, as of `_BitInt(37)`.
    pub bit_size: Option<u64>,
    /// The alignment that the source requests.
    pub alignment: Option<u64>,
    /// The language of the type's unit.
    pub language: Language,
}

/// The kind of a type. References to types are `None` for `void`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum TypeKind {
    /// A number, a character or a boolean.
    Base(Encoding),
    /// A pointer or reference.
    Pointer {
        kind: PointerKind,
        target: Option<EntryId>,
    },
    /// A qualified type, such as `const T`.
    Qualified {
        qualifier: Qualifier,
        target: Option<EntryId>,
    },
    /// A typedef.
    Typedef { target: Option<EntryId> },
    /// A structure, class or union.
    Record(Record),
    /// An enumeration.
    Enumeration(Enumeration),
    /// An array. Each dimension has a count, if known.
    Array {
        element: Option<EntryId>,
        dimensions: Vec<Count>,
        /// Whether it is a SIMD vector.
        vector: bool,
    },
    /// A function.
    Function {
        result: Option<EntryId>,
        parameters: Vec<Parameter>,
        /// Whether it takes further arguments, or its parameters are not stated.
        variadic: bool,
        prototyped: bool,
    },
    /// A type without a name in the language, such as that of `nullptr`.
    Unspecified,
    /// A pointer to a member of a class.
    MemberPointer {
        class: Option<EntryId>,
        target: Option<EntryId>,
    },
    /// An unsupported type.
    Other(&'static str),
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's type.
    pub entry: Option<EntryId>,
    /// Whether the compiler added it, as `this`.
    pub artificial: bool,
}

/// The number of elements in a dimension of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// A constant count.
    Known(u64),
    /// The number of elements depends on a value, from which `less` is subtracted.
    Dynamic {
        /// The value.
        property: DynamicProperty,
        /// The number that is subtracted: the lower bound, less one if the value is the last index.
        less: i64,
    },
    /// The count is not stated, or not in a supported form.
    Unknown,
}

/// A property of a type that depends on the state of the program (DWARF 5, section 2.19).
#[derive(Clone, Debug, PartialEq)]
pub enum DynamicProperty {
    /// The value at this location.
    Expression(LocationExpression),
    /// The value of a variable.
    Variable(EntryId),
}

/// The encoding of a base type (DWARF 5, section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Encoding {
    Signed,
    Unsigned,
    SignedChar,
    UnsignedChar,
    /// A character of a string, of any width (`char16_t`, Rust's `char`).
    Utf,
    Boolean,
    Float,
    ComplexFloat,
    Address,
    /// A floating-point number of 128 bits (IEEE 754, binary128), or a complex number of two.
    Quadruple,
    /// A decimal floating-point number.
    DecimalFloat,
    /// A fixed-point number.
    Fixed,
    /// A number whose highest byte is first.
    BigEndian,
    /// Any other, such as complex integers.
    Unknown,
}

/// The kind of a pointer or reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PointerKind {
    Pointer,
    Reference,
    RvalueReference,
}

/// A type qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Qualifier {
    Const,
    Volatile,
    Restrict,
    Atomic,
}

/// A structure, class or union.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The keyword of its declaration.
    pub keyword: Keyword,
    /// Whether this is only a declaration, without members.
    pub declaration: bool,
    /// The bases and members, in order of declaration.
    pub members: Vec<Member>,
    /// The variants of a Rust enumeration.
    pub variants: Option<Variants>,
    /// The template arguments.
    pub arguments: Vec<TemplateArgument>,
    /// The member functions, in order of declaration.
    pub methods: Vec<Method>,
    /// The member typedefs.
    pub typedefs: Vec<MemberTypedef>,
    /// Whether other types are declared in it.
    pub nested: bool,
    /// The kind of a type of Go that is no structure in the source.
    pub go_kind: Option<GoKind>,
}

/// A kind of types of Go that its compiler describes as structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoKind {
    /// A string: `str` and `len`.
    String,
    /// A slice: `array`, `len` and `cap`.
    Slice,
}

/// A member function.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// The unqualified name.
    pub name: Arc<str>,
    /// The entry of its type.
    pub entry: EntryId,
    /// Whether it is virtual.
    pub is_virtual: bool,
    /// Whether the compiler added it.
    pub artificial: bool,
    /// The access of the function.
    pub access: Access,
}

/// A typedef in a record.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberTypedef {
    /// The unqualified name.
    pub name: Arc<str>,
    /// The aliased type.
    pub target: Option<EntryId>,
    /// The access of the typedef.
    pub access: Access,
}

/// The keyword that declares a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Keyword {
    #[default]
    Struct,
    Class,
    Union,
}

/// An argument of a template or generic.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateArgument {
    /// The name of the parameter.
    pub name: Arc<str>,
    /// The type argument, or the type of a value argument.
    pub entry: Option<EntryId>,
    /// The value of a value argument.
    pub value: Option<i128>,
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The name. `None` for an unnamed member, whose own members belong to the record.
    pub name: Option<Arc<str>>,
    /// The member's type.
    pub entry: Option<EntryId>,
    /// The member's location.
    pub location: MemberLocation,
    /// Whether it is a base class.
    pub base: bool,
    /// Whether it is a virtual base, which all bases share.
    pub is_virtual: bool,
    /// The alignment that the source requests.
    pub alignment: Option<u64>,
    /// Whether the compiler added it.
    pub artificial: bool,
    /// The access of the member.
    pub access: Access,
}

/// The access of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Access {
    Public,
    Protected,
    Private,
}

/// The location of a member.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberLocation {
    /// The offset in bytes from the start of the record.
    Offset(u64),
    /// A bit field.
    Bits {
        /// The offset in bits from the start of the record.
        offset: u64,
        /// The size in bits.
        size: u64,
    },
    /// An expression on the object's address, for a virtual base.
    Computed(LocationExpression),
    /// The location is not stated in a supported form.
    Unknown,
    /// A static member, given by its declaration.
    Static(EntryId),
}

/// The variant parts of a record, of which each value has one (DWARF 5, section 5.7.10).
#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    /// The member that selects the variant: its tag. `None` if there is only one.
    pub discriminant: Option<Member>,
    /// Whether tags have a sign.
    pub signed: bool,
    /// The variants.
    pub variants: Vec<Variant>,
}

/// A variant of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The tags that select this variant, as ranges. The list is empty for the default variant.
    /// Tags may be extended to 128 bits with or without their sign.
    pub tags: Vec<RangeInclusive<i128>>,
    /// The members of this variant.
    pub members: Vec<Member>,
}

/// An enumeration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enumeration {
    /// The underlying integer type.
    pub underlying: Option<EntryId>,
    /// The names and values. Values of 2^127 and above are those less 2^128.
    pub enumerators: Vec<(Arc<str>, i128)>,
    /// Whether the values are known to have no sign.
    pub unsigned: bool,
    /// Whether the enumerators are scoped (`enum class`).
    pub scoped: bool,
    /// Whether this is only a declaration, without enumerators.
    pub declaration: bool,
}
