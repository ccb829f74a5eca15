//! Types as DWARF describes them (DWARF 5, chapter 5).
//!
//! Each type is read separately. It refers to others by [`EntryId`], which are read on demand.

use crate::entry_id::EntryId;
use crate::location::LocationExpression;
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
    /// One more than the value at this location.
    UpperBound(LocationExpression),
    /// The value at this location.
    Count(LocationExpression),
    /// The count is not stated.
    Unknown,
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
    pub value: Option<i64>,
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
    /// The member that selects the variant. `None` if there is only one.
    pub discriminant: Option<Member>,
    /// The variants.
    pub variants: Vec<Variant>,
}

/// A variant of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The discriminant value. `None` for the default variant.
    pub value: Option<u64>,
    /// The members of this variant.
    pub members: Vec<Member>,
}

/// An enumeration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enumeration {
    /// The underlying integer type.
    pub underlying: Option<EntryId>,
    /// The names and values.
    pub enumerators: Vec<(Arc<str>, i64)>,
    /// Whether the enumerators are scoped (`enum class`).
    pub scoped: bool,
    /// Whether this is only a declaration, without enumerators.
    pub declaration: bool,
}
