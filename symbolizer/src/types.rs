//! The model of types, as DWARF describes them (DWARF 5, chapter 5), without how they are read.
//!
//! A type is read an entry at a time: what it refers to is named by an [`EntryId`], and read when asked for.

use crate::place::LocationExpression;
use std::sync::Arc;

/// Names an entry in the debug information of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// From the start of `.debug_info`; `.debug_types` is taken to stand behind it.
    pub(crate) offset: usize,
    /// Of the supplementary file.
    pub(crate) supplementary: bool,
}

/// The language that a unit was written in, as far as values are written differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// C, and what is not known.
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
    /// Its name, with the namespaces and types around it; `None`: it has none.
    pub name: Option<Arc<str>>,
    /// In bytes, if stated.
    pub size: Option<u64>,
    /// What it is.
    pub kind: TypeKind,
    /// The alignment that the source asks for.
    pub alignment: Option<u64>,
    /// The language of its unit.
    pub language: Language,
}

/// What a type is. Where a type is referred to, `None` is `void`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum TypeKind {
    /// A number, a character, a truth value.
    Base(Encoding),
    /// A pointer or reference.
    Pointer {
        kind: PointerKind,
        target: Option<EntryId>,
    },
    /// `const T` and its like.
    Qualified {
        qualifier: Qualifier,
        target: Option<EntryId>,
    },
    /// Another name of a type.
    Typedef { target: Option<EntryId> },
    /// A structure, class or union.
    Record(Record),
    /// An enumeration.
    Enumeration(Enumeration),
    /// An array; a dimension is its count, where it is known.
    Array {
        element: Option<EntryId>,
        dimensions: Vec<Count>,
        /// A vector of the processor.
        vector: bool,
    },
    /// A function.
    Function {
        result: Option<EntryId>,
        parameters: Vec<Parameter>,
        /// It takes more arguments, or it is not stated which.
        variadic: bool,
        prototyped: bool,
    },
    /// A type that the language gives no name, like that of `nullptr`.
    Unspecified,
    /// A pointer to a member of a class, of a type.
    MemberPointer {
        class: Option<EntryId>,
        target: Option<EntryId>,
    },
    /// What is not understood.
    Other(&'static str),
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its type.
    pub entry: Option<EntryId>,
    /// The compiler added it, as `this`.
    pub artificial: bool,
}

/// How many elements a dimension of an array has.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// So many.
    Known(u64),
    /// One more than what is to be found there.
    UpperBound(LocationExpression),
    /// So many as are to be found there.
    Count(LocationExpression),
    /// It is not stated.
    Unknown,
}

/// How the bytes of a base type are read (DWARF 5, section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
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

/// Which pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PointerKind {
    Pointer,
    Reference,
    RvalueReference,
}

/// A qualifier.
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
    /// What it is declared with.
    pub keyword: Keyword,
    /// Only its name is stated here.
    pub declaration: bool,
    /// Its bases and members, as they are declared.
    pub members: Vec<Member>,
    /// What distinguishes its forms, of an enumeration of Rust.
    pub variants: Option<Variants>,
    /// The types that it was instantiated with.
    pub arguments: Vec<TemplateArgument>,
    /// Its member functions, as they are declared.
    pub methods: Vec<Method>,
    /// The typedefs in it.
    pub typedefs: Vec<MemberTypedef>,
    /// Other types are declared in it.
    pub nested: bool,
}

/// A member function.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// What it is called, without the scopes around it.
    pub name: Arc<str>,
    /// It as a type.
    pub entry: EntryId,
    /// It is called by what the object is.
    pub is_virtual: bool,
    /// The compiler added it.
    pub artificial: bool,
    /// Who may name it.
    pub access: Access,
}

/// A typedef in a record.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberTypedef {
    /// What it is called, without the scopes around it.
    pub name: Arc<str>,
    /// What it stands for.
    pub target: Option<EntryId>,
    /// Who may name it.
    pub access: Access,
}

/// What a record is declared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Keyword {
    #[default]
    Struct,
    Class,
    Union,
}

/// A type that a template or generic was instantiated with.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateArgument {
    /// What the parameter is called.
    pub name: Arc<str>,
    /// The type; of a value, its type.
    pub entry: Option<EntryId>,
    /// It is a value, not a type.
    pub value: Option<i64>,
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// What it is called; `None`: it has no name, and its own members are found in its record.
    pub name: Option<Arc<str>>,
    /// Its type.
    pub entry: Option<EntryId>,
    /// Where it is.
    pub place: MemberPlace,
    /// It is a base class.
    pub base: bool,
    /// It is a virtual base: all bases that have it share one.
    pub is_virtual: bool,
    /// The alignment that the source asks for.
    pub alignment: Option<u64>,
    /// The compiler added it.
    pub artificial: bool,
    /// Who may name it.
    pub access: Access,
}

/// Who may name a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Access {
    Public,
    Protected,
    Private,
}

/// Where a member is.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberPlace {
    /// So many bytes from the start of its record.
    Offset(u64),
    /// Some bits of it.
    Bits {
        /// From the start of the record.
        offset: u64,
        /// How many.
        size: u64,
    },
    /// Where the expression says, of the object's address: that of a virtual base.
    Computed(LocationExpression),
    /// It is not stated in a way that is understood.
    Unknown,
    /// Not in the record: static, by the entry that declares it.
    Static(EntryId),
}

/// The forms of a record, of which each value has one (DWARF 5, section 5.7.10).
#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    /// What tells which it is; `None`: there is but one.
    pub discriminant: Option<Member>,
    /// The forms.
    pub variants: Vec<Variant>,
}

/// A form of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The discriminant's value; `None`: any that no other has.
    pub value: Option<u64>,
    /// What this form has.
    pub members: Vec<Member>,
}

/// An enumeration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enumeration {
    /// The type of its numbers.
    pub underlying: Option<EntryId>,
    /// Names and values.
    pub enumerators: Vec<(Arc<str>, i64)>,
    /// The enumerators are named in it (`enum class`).
    pub scoped: bool,
    /// Only its name is stated here.
    pub declaration: bool,
}
