//! Types as the source writes them: `struct node *`, `int (*)(int)`, `char [16]`.

use super::types::{ModuleRef, Ty};
use backtrail_symbolizer::types::{Count, Keyword, Language, PointerKind, Qualifier, Type, TypeKind};
use std::sync::Arc;

/// Types of types are written this deep.
const MAX_DEPTH: u32 = 32;

impl Ty {
    /// The name.
    pub fn name(&self) -> String {
        self.declare("")
    }

    /// The declaration of something of this type; without `what`, its name.
    pub fn declare(&self, what: &str) -> String {
        declare(self, what.to_owned(), 0, PLAIN)
    }
}

/// The format of types in a declaration.
#[derive(Clone, Copy)]
pub struct TypeFormatter<'a> {
    /// Typedefs as what they stand for.
    pub resolve: bool,
    /// Returns the text of a type that is not written by its name.
    pub body: &'a dyn Fn(&Ty) -> Option<String>,
}

/// By their names.
const PLAIN: TypeFormatter<'static> = TypeFormatter {
    resolve: false,
    body: &|_| None,
};

/// A declaration in which types are written as `formatter` says.
pub fn declare_with(ty: &Ty, what: String, formatter: TypeFormatter<'_>) -> String {
    declare(ty, what, 0, formatter)
}

/// Pointers to arrays and functions take parentheses.
fn is_postfix(ty: &Ty) -> bool {
    match ty {
        Ty::Array(..) | Ty::Rest { .. } | Ty::Function(_) => true,
        _ => ty.described().is_some_and(|(_, described)| {
            matches!(described.kind, TypeKind::Array { .. } | TypeKind::Function { .. })
        }),
    }
}

/// Declares a pointer or reference: `sign` is `*` or `&`, followed by qualifiers.
fn declare_derived(sign: &str, target: &Ty, inner: &str, depth: u32, formatter: TypeFormatter<'_>) -> String {
    let space = if sign.len() > 2 && !inner.is_empty() {
        " "
    } else {
        ""
    };
    let inner = format!("{sign}{space}{inner}");
    let inner = if is_postfix(target) {
        format!("({inner})")
    } else {
        inner
    };
    declare(target, inner, depth + 1, formatter)
}

fn spaced(base: &str, inner: &str) -> String {
    match inner {
        "" => base.to_owned(),
        inner => format!("{base} {inner}"),
    }
}

fn declare(ty: &Ty, inner: String, depth: u32, formatter: TypeFormatter<'_>) -> String {
    if depth > MAX_DEPTH {
        return spaced("…", &inner);
    }
    if formatter.resolve
        && let Some((None, below)) = ty.below()
    {
        return declare(&below, inner, depth + 1, formatter);
    }
    if let Some(body) = (formatter.body)(ty) {
        return spaced(&body, &inner);
    }
    let (module, described) = match ty {
        Ty::Void => return spaced("void", &inner),
        Ty::Base(base) => return spaced(&base.name, &inner),
        Ty::Pointer(target) => return declare_derived("*", target, &inner, depth, formatter),
        Ty::Array(element, count) => {
            return declare(element, format!("{inner}[{count}]"), depth + 1, formatter);
        }
        Ty::Rest {
            element,
            dimensions,
            from,
            ..
        } => {
            let rest = dimensions.get(*from..).unwrap_or_default();
            return declare(element, format!("{inner}{}", written(rest)), depth + 1, formatter);
        }
        Ty::Function(result) => return declare(result, format!("{inner}()"), depth + 1, formatter),
        Ty::Entry { .. } => match ty.described() {
            Some(found) => found,
            None => return spaced("<unknown type>", &inner),
        },
    };
    declare_described(ty, &module, &described, inner, depth, formatter)
}

/// Declares something of a type that the debug information describes.
fn declare_described(
    ty: &Ty,
    module: &Arc<ModuleRef>,
    described: &Type,
    inner: String,
    depth: u32,
    formatter: TypeFormatter<'_>,
) -> String {
    let target = |target| Ty::of(module, target);
    match &described.kind {
        TypeKind::Pointer { .. } if described.language == Language::Rust && described.name.is_some() => {
            spaced(described.name.as_deref().unwrap_or_default(), &inner)
        }
        TypeKind::Pointer { kind, target: to } => {
            let sign = match kind {
                PointerKind::Pointer => "*",
                PointerKind::Reference => "&",
                PointerKind::RvalueReference => "&&",
            };
            declare_derived(sign, &target(*to), &inner, depth, formatter)
        }
        TypeKind::MemberPointer { class, target: to } => {
            let sign = format!("{}::*", target(*class).name());
            let inner = format!("{sign}{inner}");
            let to = target(*to);
            let inner = if is_postfix(&to) {
                format!("({inner})")
            } else {
                inner
            };
            declare(&to, inner, depth + 1, formatter)
        }
        TypeKind::Qualified { .. } => qualified(ty, inner, depth, formatter),
        TypeKind::Array {
            element, dimensions, ..
        } if described.language == Language::Rust => {
            let mut text = declare(&target(*element), String::new(), depth + 1, PLAIN);
            for count in dimensions.iter().rev() {
                text = match count {
                    Count::Known(count) => format!("[{text}; {count}]"),
                    _ => format!("[{text}]"),
                };
            }
            spaced(&text, &inner)
        }
        TypeKind::Array {
            element,
            dimensions,
            vector,
        } => {
            let element = target(*element);
            match dimensions.as_slice() {
                [Count::Known(count)] if *vector => {
                    let attribute = format!("__attribute__ ((vector_size({count})))");
                    declare(&element, spaced(&attribute, &inner), depth + 1, formatter)
                }
                dimensions => declare(
                    &element,
                    format!("{inner}{}", written(dimensions)),
                    depth + 1,
                    formatter,
                ),
            }
        }
        TypeKind::Function { result, .. } => {
            let parameters = function_parameters(&described.kind, module, depth);
            declare(
                &target(*result),
                format!("{inner}({parameters})"),
                depth + 1,
                formatter,
            )
        }
        _ => declare_named(described, &inner),
    }
}

/// Returns the parameters of a function type, separated by commas.
fn function_parameters(kind: &TypeKind, module: &Arc<ModuleRef>, depth: u32) -> String {
    let TypeKind::Function {
        parameters,
        variadic,
        prototyped,
        ..
    } = kind
    else {
        return String::new();
    };
    let mut names: Vec<String> = parameters
        .iter()
        .map(|parameter| {
            let ty = Ty::of(module, parameter.entry);
            match pointed_by_this(&ty).filter(|_| parameter.artificial) {
                Some(object) => declare_derived("* const", &object, "", depth, PLAIN),
                None => declare(&ty, String::new(), depth + 1, PLAIN),
            }
        })
        .collect();
    if *variadic && !names.is_empty() {
        names.push("...".to_owned());
    }
    if names.is_empty() && *prototyped && !*variadic {
        names.push("void".to_owned());
    }
    names.join(", ")
}

/// Declares something of a type that is written by its name.
fn declare_named(described: &Type, inner: &str) -> String {
    let kind = &described.kind;
    let name = described.name.as_deref().unwrap_or("{...}");
    let short = match (kind, described.language) {
        (TypeKind::Base(_), Language::C | Language::Cpp | Language::Go) => canonical(name).to_owned(),
        (TypeKind::Record(_), Language::Cpp) => short(name),
        _ => name.to_owned(),
    };
    let name = short.as_str();
    let keyword = match kind {
        TypeKind::Record(record) => Some(record.keyword.word()),
        TypeKind::Enumeration(_) => Some("enum"),
        _ => None,
    };
    let shown = described.language.is_written_as_c() || described.name.is_none();
    match keyword.filter(|_| shown) {
        Some(keyword) => spaced(&format!("{keyword} {name}"), inner),
        None => spaced(name, inner),
    }
}

/// Returns the target type of `this`, which is always a constant pointer.
fn pointed_by_this(ty: &Ty) -> Option<Ty> {
    let (module, described) = ty.described()?;
    match described.kind {
        TypeKind::Pointer { target, .. } => Some(Ty::of(&module, target)),
        _ => None,
    }
}

/// Adds qualifiers: before a name, and after the star of a pointer.
fn qualified(ty: &Ty, inner: String, depth: u32, formatter: TypeFormatter<'_>) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut below = ty.clone();
    while let Some((Some(qualifier), next)) = below.below() {
        let word = qualifier.word();
        if words.contains(&word) || words.len() > 4 {
            break;
        }
        words.push(word);
        below = next;
    }
    words.sort_unstable();
    let words = words.join(" ");
    let pointer = below
        .described()
        .and_then(|(module, described)| match described.kind {
            TypeKind::Pointer { kind, target } if described.language != Language::Rust => {
                Some((kind, Ty::of(&module, target)))
            }
            _ => None,
        });
    match pointer {
        Some((PointerKind::Pointer, target)) => {
            declare_derived(&format!("* {words}"), &target, &inner, depth, formatter)
        }
        _ if is_postfix(&below) => {
            // Qualifiers of an array apply to its elements.
            format!("{words} {}", declare(&below, inner, depth + 1, formatter))
        }
        _ => format!("{words} {}", declare(&below, inner, depth + 1, formatter)),
    }
}

/// As the source would write it; compilers write more words.
fn canonical(name: &str) -> &str {
    match name {
        "short int" => "short",
        "short unsigned int" => "unsigned short",
        "long int" => "long",
        "long unsigned int" => "unsigned long",
        "long long int" => "long long",
        "long long unsigned int" => "unsigned long long",
        other => other,
    }
}

/// A name of the C++ standard library without the arguments that are its defaults.
pub fn short(name: &str) -> String {
    const STRING: &str = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    let name = name.replace(STRING, "std::string").replace(
        "std::basic_string_view<char, std::char_traits<char> >",
        "std::string_view",
    );
    if !name.contains("std::") {
        return name;
    }
    let mut out = String::with_capacity(name.len());
    // For each open list of arguments: its start, and the start of its last argument in `out`.
    let mut open: Vec<(bool, usize)> = Vec::new();
    for character in name.chars() {
        match character {
            '<' => {
                let of_library = template_name(&out).starts_with("std::");
                out.push('<');
                open.push((of_library, out.len()));
            }
            ',' | '>' => {
                if let Some((of_library, argument)) = open.last_mut() {
                    let default = *of_library && out.get(*argument..).is_some_and(is_default);
                    if default {
                        out.truncate(*argument);
                        if out.ends_with(", ") {
                            out.truncate(out.len() - 2);
                        }
                    }
                    if character == ',' {
                        out.push_str(", ");
                        *argument = out.len();
                    }
                }
                if character == '>' {
                    open.pop();
                    let kept = out.trim_end().trim_end_matches(',').len();
                    out.truncate(kept);
                    out.push_str(if out.ends_with('>') { " >" } else { ">" });
                }
            }
            ' ' if out.ends_with([' ', '<']) => {}
            other => out.push(other),
        }
    }
    out
}

/// The name that ends where its arguments begin.
fn template_name(before: &str) -> &str {
    let start = before.rfind(['<', ',', ' ', '(']).map_or(0, |at| at + 1);
    before.get(start..).unwrap_or(before)
}

fn is_default(argument: &str) -> bool {
    [
        "std::allocator<",
        "std::less<",
        "std::hash<",
        "std::equal_to<",
        "std::default_delete<",
        "std::char_traits<",
    ]
    .iter()
    .any(|default| argument.trim_start().starts_with(default))
}

fn written(dimensions: &[Count]) -> String {
    dimensions
        .iter()
        .map(|count| match count {
            Count::Known(count) => format!("[{count}]"),
            Count::Unknown => "[]".to_owned(),
            _ => "[variable length]".to_owned(),
        })
        .collect()
}

/// The spelling of a keyword or qualifier.
pub trait TypeKeyword {
    /// In the source.
    fn word(self) -> &'static str;
}

impl TypeKeyword for Keyword {
    fn word(self) -> &'static str {
        match self {
            Self::Struct => "struct",
            Self::Class => "class",
            Self::Union => "union",
        }
    }
}

impl TypeKeyword for Qualifier {
    fn word(self) -> &'static str {
        match self {
            Self::Const => "const",
            Self::Volatile => "volatile",
            Self::Restrict => "restrict",
            Self::Atomic => "_Atomic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn default_arguments_are_left_out() {
        for (name, expected) in [
            ("std::vector<int, std::allocator<int> >", "std::vector<int>"),
            (
                "std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, \
                 std::allocator<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > > >",
                "std::vector<std::string>",
            ),
            (
                "std::map<int, std::vector<int, std::allocator<int> >, std::less<int>, \
                 std::allocator<std::pair<int const, std::vector<int, std::allocator<int> > > > >",
                "std::map<int, std::vector<int> >",
            ),
            ("std::allocator<int>", "std::allocator<int>"),
            (
                "shop::Pair<int, std::allocator<int> >",
                "shop::Pair<int, std::allocator<int> >",
            ),
            ("std::optional<int>", "std::optional<int>"),
            ("shop::Item", "shop::Item"),
            ("std::<<>>,<", "std::<<> ><"),
        ] {
            assert_eq!(short(name), expected, "{name}");
        }
    }
}
