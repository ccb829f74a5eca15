//! The parts of a class that `ptype` lists beside its data: access labels, member functions,
//! typedefs.

use super::ptype_line::line;
use super::types::{RecordShape, Ty};
use backtrail_symbolizer::types::{Access, Keyword, Language, Method, Parameter, Qualifier, TypeKind};

/// More member functions and typedefs are left out.
const MAX_SHOWN: usize = 4096;

/// The labels of a class, `public:` and its like.
pub(crate) struct Labels {
    /// Data and typedefs need them.
    needed: bool,
    /// The one that holds.
    current: Option<Access>,
    level: usize,
}

impl Labels {
    /// They are needed where not all is as the keyword says; what the compiler added counts as
    /// private.
    pub fn new(record: &RecordShape, level: usize) -> Self {
        let described = record.record();
        let own = described.members.iter().filter(|member| !member.base);
        let data = own.map(|member| match member.artificial {
            true => Access::Private,
            false => member.access,
        });
        let methods = described.methods.iter().map(|method| method.access);
        let typedefs = described.typedefs.iter().map(|typedef| typedef.access);
        let mut all = data.chain(methods).chain(typedefs);
        let needed = record.described.language == Language::Cpp
            && match described.keyword {
                Keyword::Class => all.any(|access| access != Access::Private),
                _ => all.any(|access| access != Access::Public),
            };
        Self {
            needed,
            current: None,
            level,
        }
    }

    /// Returns the label before data or a typedef.
    pub fn before(&mut self, access: Access) -> String {
        match self.needed {
            true => self.before_method(access),
            false => String::new(),
        }
    }

    /// Returns the label before a member function, which always has one.
    fn before_method(&mut self, access: Access) -> String {
        if self.current.replace(access) == Some(access) {
            return String::new();
        }
        line(&format!("{}:", word(access)), self.level + 2)
    }
}

/// Returns the declaration.
pub(crate) fn word(access: Access) -> &'static str {
    match access {
        Access::Public => "public",
        Access::Protected => "protected",
        Access::Private => "private",
    }
}

/// The member functions, those of one name together; those of the compiler are left out.
pub(crate) fn methods(record: &RecordShape, labels: &mut Labels, level: usize) -> String {
    let methods = &record.record().methods;
    let mut text = String::new();
    if labels.current.is_some() && methods.iter().any(|method| !method.artificial) {
        text.push('\n');
    }
    let mut order = rustc_hash::FxHashMap::default();
    for method in methods {
        let next = order.len();
        order.entry(&method.name).or_insert(next);
    }
    let mut sorted: Vec<&Method> = methods.iter().take(MAX_SHOWN).collect();
    sorted.sort_by_key(|method| order.get(&method.name));
    for method in sorted.into_iter().filter(|method| !method.artificial) {
        text.push_str(&labels.before_method(method.access));
        text.push_str(&line(&format!("{};", declared(record, method)), level + 4));
    }
    text
}

/// The typedefs in a class.
pub(crate) fn typedefs(record: &RecordShape, labels: &mut Labels, level: usize) -> String {
    let described = record.record();
    let mut text = String::new();
    if described.typedefs.is_empty() {
        return text;
    }
    if !described.members.is_empty() || !described.methods.is_empty() || described.nested {
        text.push('\n');
    }
    for typedef in described.typedefs.iter().take(MAX_SHOWN) {
        text.push_str(&labels.before(typedef.access));
        let declared = record.ty(typedef.target).declare(&typedef.name);
        text.push_str(&line(&format!("typedef {declared};"), level + 4));
    }
    text
}

/// `virtual int cost(void) const`.
fn declared(record: &RecordShape, method: &Method) -> String {
    let described = record.module.file.type_at(method.entry);
    let Some(TypeKind::Function {
        result,
        parameters,
        variadic,
        ..
    }) = described.as_deref().map(|described| &described.kind)
    else {
        return format!("<unknown type> {}", method.name);
    };
    let this = parameters.first().filter(|first| first.artificial);
    let kind = match (method.is_virtual, this) {
        (true, _) => "virtual ",
        (false, None) => "static ",
        (false, Some(_)) => "",
    };
    let result = match has_result(record, &method.name) {
        true => format!("{} ", record.ty(*result).name()),
        false => String::new(),
    };
    let arguments = arguments(record, parameters, this.is_some(), *variadic);
    let qualifiers = this
        .map(|this| qualifiers(&record.ty(this.entry)))
        .unwrap_or_default();
    format!("{kind}{result}{}({arguments}){qualifiers}", method.name)
}

/// Constructors, destructors and conversions state none.
fn has_result(record: &RecordShape, name: &str) -> bool {
    let class = last_name(record.name());
    let constructor = name
        .strip_prefix(class.split('<').next().unwrap_or(class))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('<'));
    !(constructor && !class.is_empty() || name.starts_with('~') || is_conversion(name))
}

/// Without the scopes before it; those of its arguments belong to it.
fn last_name(path: &str) -> &str {
    let end = path.find('<').unwrap_or(path.len());
    let start = path
        .get(..end)
        .and_then(|head| head.rfind("::"))
        .map_or(0, |at| at + 2);
    path.get(start..).unwrap_or(path)
}

/// `operator int`, but not `operator new`.
fn is_conversion(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("operator") else {
        return false;
    };
    let target = rest.trim_start();
    let is_word = |word: &str| {
        target
            .strip_prefix(word)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    rest.starts_with(' ')
        && target.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && !["new", "delete", "co_await"].into_iter().any(is_word)
}

/// Returns the template arguments without those that the compiler adds.
fn arguments(record: &RecordShape, parameters: &[Parameter], has_this: bool, variadic: bool) -> String {
    let given = parameters.get(usize::from(has_this)..).unwrap_or_default();
    let mut names: Vec<String> = given
        .iter()
        .filter(|parameter| !parameter.artificial)
        .map(|parameter| record.ty(parameter.entry).name())
        .collect();
    if variadic {
        names.push("...".to_owned());
    } else if names.is_empty() {
        names.push("void".to_owned());
    }
    names.join(", ")
}

/// Those of what `this` points to.
fn qualifiers(this: &Ty) -> String {
    let mut text = String::new();
    let mut ty = match this.stripped().described() {
        Some((module, described)) => match described.kind {
            TypeKind::Pointer { target, .. } => Ty::of(&module, target),
            _ => return text,
        },
        None => return text,
    };
    let mut found = [false; 2];
    for _ in 0..4 {
        match ty.below() {
            Some((Some(qualifier), below)) => {
                found[0] |= qualifier == Qualifier::Const;
                found[1] |= qualifier == Qualifier::Volatile;
                ty = below;
            }
            _ => break,
        }
    }
    if found[0] {
        text.push_str(" const");
    }
    if found[1] {
        text.push_str(" volatile");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_distinguished_from_other_operators() {
        for name in [
            "operator bool",
            "operator int*",
            "operator newer",
            "operator ns::T",
        ] {
            assert!(is_conversion(name), "{name}");
        }
        for name in [
            "operator new",
            "operator delete []",
            "operator()",
            "operator ->",
            "operators",
            "operatorx",
        ] {
            assert!(!is_conversion(name), "{name}");
        }
    }

    #[test]
    fn the_last_name_keeps_its_arguments() {
        assert_eq!(last_name("a::b::C"), "C");
        assert_eq!(last_name("a::Box<b::C, 3>"), "Box<b::C, 3>");
        assert_eq!(last_name("C"), "C");
        assert_eq!(last_name(""), "");
    }
}
