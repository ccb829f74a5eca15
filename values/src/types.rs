//! The types of values: those of the debug information, and those that expressions create.

use backtrail_symbolizer::types::{
    Count, DynamicProperty, Encoding, Enumeration, Language, PointerKind, Qualifier, Record, Type, TypeKind,
};
use backtrail_symbolizer::{EntryId, SymbolFile, Symbolizer};
use std::sync::Arc;

/// Names of names, and qualifiers, are followed this far.
const MAX_NAMES: usize = 64;

/// A module, as types and variables need it.
#[derive(Clone)]
pub struct ModuleRef {
    /// Its symbols.
    pub file: Arc<SymbolFile>,
    /// Actual − stated address.
    pub bias: u64,
}

impl ModuleRef {
    /// Every module with symbols, once.
    pub fn all(symbols: &Symbolizer) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for module in symbols.modules() {
            let Some(file) = &module.file else { continue };
            let known = all
                .iter()
                .any(|known| Arc::ptr_eq(&known.file, file) && known.bias == module.bias);
            if !known {
                all.push(Self {
                    file: Arc::clone(file),
                    bias: module.bias,
                });
            }
        }
        all
    }
}

/// A type.
#[derive(Clone)]
pub enum Ty {
    /// `void`.
    Void,
    /// One that the debug information describes.
    Entry {
        /// Where.
        module: Arc<ModuleRef>,
        /// Which.
        entry: EntryId,
    },
    /// A number of C.
    Base(Base),
    /// A pointer to another.
    Pointer(Arc<Ty>),
    /// Several of another.
    Array(Arc<Ty>, u64),
    /// An array of the debug information without its first dimensions.
    Rest {
        /// The element.
        element: Arc<Ty>,
        /// The module that describes the array.
        module: Arc<ModuleRef>,
        /// The dimensions.
        dimensions: Arc<[Count]>,
        /// The number of removed dimensions.
        from: usize,
        /// A vector of the processor.
        vector: bool,
    },
    /// A function of which nothing is known, returning another type.
    Function(Arc<Ty>),
}

/// A number of C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The name.
    pub name: Arc<str>,
    /// In bytes.
    pub size: u64,
    /// The encoding of the bytes.
    pub encoding: Encoding,
    /// The number of bits that count.
    pub bits: u64,
}

/// The form of a type, without typedefs and qualifiers.
pub enum Shape {
    /// `void`.
    Void,
    /// A number.
    Base(Base),
    /// A pointer or reference.
    Pointer(PointerKind, Ty),
    /// A pointer to a member of a class, which has this type.
    MemberPointer { class: Ty, target: Ty },
    /// A structure, class or union.
    Record(RecordShape),
    /// An enumeration, and how many bytes it has.
    Enumeration(Arc<Type>, u64),
    /// An array.
    Array {
        /// The element.
        element: Ty,
        /// The count.
        count: ArrayCount,
        /// A vector of the processor.
        vector: bool,
    },
    /// A function.
    Function,
    /// An unsupported type, with a description.
    Other(String),
}

/// The number of elements of an array.
#[derive(Clone)]
pub enum ArrayCount {
    /// A known number.
    Known(u64),
    /// A value that the program has, less a constant.
    Dynamic {
        /// The module that describes the array.
        module: Arc<ModuleRef>,
        /// The value.
        property: DynamicProperty,
        /// The constant.
        less: i64,
    },
    /// The number is not recorded.
    Unknown,
}

/// A structure, class or union.
#[derive(Clone)]
pub struct RecordShape {
    /// The module that describes the type.
    pub module: Arc<ModuleRef>,
    /// Its description.
    pub described: Arc<Type>,
}

impl RecordShape {
    /// Its members.
    pub fn record(&self) -> &Record {
        static NONE: Record = Record {
            keyword: backtrail_symbolizer::types::Keyword::Struct,
            declaration: true,
            members: Vec::new(),
            variants: None,
            arguments: Vec::new(),
            methods: Vec::new(),
            typedefs: Vec::new(),
            nested: false,
            go_kind: None,
        };
        match &self.described.kind {
            TypeKind::Record(record) => record,
            _ => &NONE,
        }
    }

    /// The name, if it has one.
    pub fn name(&self) -> &str {
        self.described.name.as_deref().unwrap_or_default()
    }

    /// A type that it refers to.
    pub fn ty(&self, entry: Option<EntryId>) -> Ty {
        Ty::of(&self.module, entry)
    }

    /// A type that it was instantiated with.
    pub fn argument(&self, number: usize) -> Option<Ty> {
        let argument = self.record().arguments.get(number)?;
        Some(self.ty(argument.entry))
    }
}

impl Ty {
    /// The type that an entry describes; `None`: `void`.
    pub fn of(module: &Arc<ModuleRef>, entry: Option<EntryId>) -> Self {
        entry.map_or(Self::Void, |entry| Self::Entry {
            module: Arc::clone(module),
            entry,
        })
    }

    /// A number of C.
    pub fn base(name: &str, size: u64, encoding: Encoding) -> Self {
        Self::Base(Base {
            name: name.into(),
            size,
            encoding,
            bits: size.saturating_mul(8),
        })
    }

    /// `int`.
    pub fn int() -> Self {
        Self::base("int", 4, Encoding::Signed)
    }

    /// `long`.
    pub fn long() -> Self {
        Self::base("long", 8, Encoding::Signed)
    }

    /// `unsigned long`.
    pub fn unsigned_long() -> Self {
        Self::base("unsigned long", 8, Encoding::Unsigned)
    }

    /// `char`.
    pub fn char() -> Self {
        Self::base("char", 1, Encoding::SignedChar)
    }

    /// `double`.
    pub fn double() -> Self {
        Self::base("double", 8, Encoding::Float)
    }

    /// A pointer to it.
    pub fn pointer(self) -> Self {
        Self::Pointer(Arc::new(self))
    }

    /// Its description, if the debug information has one.
    pub fn described(&self) -> Option<(Arc<ModuleRef>, Arc<Type>)> {
        match self {
            Self::Entry { module, entry } => Some((Arc::clone(module), module.file.type_at(*entry)?)),
            _ => None,
        }
    }

    /// The name that it has itself; `None`: it has none.
    pub fn own_name(&self) -> Option<Arc<str>> {
        match self {
            Self::Base(base) => Some(Arc::clone(&base.name)),
            _ => self.described()?.1.name.clone(),
        }
    }

    /// Returns the type that a typedef or qualifier refers to; `None` for other types.
    pub fn below(&self) -> Option<(Option<Qualifier>, Self)> {
        let (module, described) = self.described()?;
        match described.kind {
            TypeKind::Typedef { target } => Some((None, Self::of(&module, target))),
            TypeKind::Qualified { qualifier, target } => Some((Some(qualifier), Self::of(&module, target))),
            _ => None,
        }
    }

    /// Returns the type without typedefs and qualifiers; a declared type is resolved to its
    /// definition.
    pub fn stripped(&self) -> Self {
        let mut ty = self.clone();
        for _ in 0..MAX_NAMES {
            match ty.below() {
                Some((_, below)) => ty = below,
                None => break,
            }
        }
        ty.defined().unwrap_or(ty)
    }

    /// The definition of a type that is only declared here.
    fn defined(&self) -> Option<Self> {
        let Self::Entry { module, entry } = self else {
            return None;
        };
        let described = module.file.type_at(*entry)?;
        let declared = match &described.kind {
            TypeKind::Record(record) => record.declaration,
            TypeKind::Enumeration(enumeration) => enumeration.declaration,
            _ => false,
        };
        let name = described.name.as_deref().filter(|_| declared)?;
        let found = module.file.tagged_type_named(name, Some(*entry))?;
        Some(Self::of(module, Some(found)))
    }

    /// Returns the form of the type.
    pub fn shape(&self) -> Shape {
        match self.stripped() {
            Self::Void => Shape::Void,
            Self::Base(base) => Shape::Base(base),
            Self::Pointer(target) => Shape::Pointer(PointerKind::Pointer, (*target).clone()),
            Self::Array(element, count) => Shape::Array {
                element: (*element).clone(),
                count: ArrayCount::Known(count),
                vector: false,
            },
            Self::Rest {
                element,
                module,
                dimensions,
                from,
                vector,
            } => dimension(&module, &element, &dimensions, from, vector),
            Self::Function(_) => Shape::Function,
            Self::Entry { module, entry } => match module.file.type_at(entry) {
                Some(described) => shape(&module, described),
                None => Shape::Other("the description of its type is not supported".to_owned()),
            },
        }
    }

    /// In bytes, if it is known without a value.
    pub fn size(&self) -> Option<u64> {
        if let Some(size) = self.described().and_then(|(_, described)| described.size) {
            return Some(size);
        }
        match self.shape() {
            Shape::Void | Shape::Function => Some(1),
            Shape::Base(base) => Some(base.size),
            Shape::Pointer(..) => Some(8),
            // Itanium C++ ABI, sections 2.3.1 and 2.3.2.
            Shape::MemberPointer { target, .. } => Some(match target.shape() {
                Shape::Function => 16,
                _ => 8,
            }),
            Shape::Record(record) => record.described.size,
            Shape::Enumeration(_, size) => Some(size),
            Shape::Array {
                element,
                count: ArrayCount::Known(count),
                ..
            } => element.size()?.checked_mul(count),
            _ => None,
        }
    }

    /// A number or a pointer.
    pub fn is_scalar(&self) -> bool {
        matches!(
            self.shape(),
            Shape::Base(_) | Shape::Pointer(..) | Shape::Enumeration(..)
        )
    }

    /// A number or a pointer, or a reference to one: what fits into a line among others.
    pub fn is_simple(&self) -> bool {
        match self.shape() {
            Shape::Pointer(kind, target) if kind != PointerKind::Pointer => target.is_scalar(),
            _ => self.is_scalar(),
        }
    }

    /// The language that it is written in.
    pub fn language(&self) -> Option<Language> {
        self.described().map(|(_, described)| described.language)
    }
}

fn shape(module: &Arc<ModuleRef>, described: Arc<Type>) -> Shape {
    match &described.kind {
        TypeKind::Base(encoding) => {
            let size = described.size.unwrap_or(0);
            Shape::Base(Base {
                name: described.name.clone().unwrap_or_default(),
                size,
                encoding: *encoding,
                bits: described.bit_size.unwrap_or(size.saturating_mul(8)),
            })
        }
        TypeKind::Pointer { kind, target } => Shape::Pointer(*kind, Ty::of(module, *target)),
        TypeKind::Record(_) => Shape::Record(RecordShape {
            module: Arc::clone(module),
            described,
        }),
        TypeKind::Enumeration(enumeration) => {
            let size = described.size.or_else(|| underlying_size(module, enumeration));
            Shape::Enumeration(described, size.unwrap_or(4))
        }
        TypeKind::Array {
            element,
            dimensions,
            vector,
        } => {
            let dimensions: Arc<[Count]> = dimensions.clone().into();
            dimension(
                module,
                &Arc::new(Ty::of(module, *element)),
                &dimensions,
                0,
                *vector,
            )
        }
        TypeKind::Function { .. } => Shape::Function,
        TypeKind::Unspecified => match described.name.as_deref() {
            Some("decltype(nullptr)") => Shape::Pointer(PointerKind::Pointer, Ty::Void),
            _ => Shape::Void,
        },
        TypeKind::MemberPointer { class, target } => Shape::MemberPointer {
            class: Ty::of(module, *class),
            target: Ty::of(module, *target),
        },
        TypeKind::Other(what) => Shape::Other(format!("its type is {what}")),
        TypeKind::Qualified { .. } | TypeKind::Typedef { .. } => {
            Shape::Other("the description of its type refers to itself".to_owned())
        }
        _ => Shape::Other("its type is not supported".to_owned()),
    }
}

fn underlying_size(module: &Arc<ModuleRef>, enumeration: &Enumeration) -> Option<u64> {
    module.file.type_at(enumeration.underlying?)?.size
}

fn dimension(
    module: &Arc<ModuleRef>,
    element: &Arc<Ty>,
    dimensions: &Arc<[Count]>,
    from: usize,
    vector: bool,
) -> Shape {
    let count = match dimensions.get(from) {
        Some(Count::Known(count)) => ArrayCount::Known(*count),
        Some(Count::Dynamic { property, less }) => ArrayCount::Dynamic {
            module: Arc::clone(module),
            property: property.clone(),
            less: *less,
        },
        Some(Count::Unknown) | None => ArrayCount::Unknown,
    };
    let element = if from + 1 < dimensions.len() {
        Ty::Rest {
            element: Arc::clone(element),
            module: Arc::clone(module),
            dimensions: Arc::clone(dimensions),
            from: from + 1,
            vector,
        }
    } else {
        (**element).clone()
    };
    Shape::Array {
        element,
        count,
        vector,
    }
}

/// Some enumerator is below zero.
pub fn is_negative(described: &Type) -> bool {
    match &described.kind {
        TypeKind::Enumeration(enumeration) => {
            !enumeration.unsigned && enumeration.enumerators.iter().any(|(_, value)| *value < 0)
        }
        _ => false,
    }
}

/// The value of an enumerator, as the source writes it.
pub fn written_value(enumeration: &Enumeration, value: i128) -> String {
    match enumeration.unsigned {
        true => (value as u128).to_string(),
        false => value.to_string(),
    }
}
