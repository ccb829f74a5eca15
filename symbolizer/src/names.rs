//! Matches names that a user types against demangled names, as GDB does.

use crate::demangle::Name;
use crate::go_names::GoName;
use rustc_hash::FxHasher;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Returns whether a linkage name is a C++ (`_Z`) or Rust v0 (`_R`) symbol.
pub(crate) fn is_mangled(linkage: &[u8]) -> bool {
    linkage.starts_with(b"_Z") || linkage.starts_with(b"_R")
}

/// Returns the C function of a compiler-made variant: `f` for `f.lto_priv.0`, `f.constprop.0` and
/// `f.isra.0`. Returns `None` for other names, and for parts of a function (`f.part.0`, `f.cold`).
fn original_of_variant(linkage: &str) -> Option<&str> {
    let (function, suffix) = linkage.split_once('.')?;
    let piece = suffix.split('.').any(|word| word == "part" || word == "cold");
    (!piece && !function.is_empty() && !is_mangled(linkage.as_bytes())).then_some(function)
}

/// Returns whether a demangled name matches the name that a user typed, or ends with it.
#[must_use]
pub fn is_named(readable: &str, text: &str) -> bool {
    let name = Name {
        readable: readable.into(),
        linkage: readable.into(),
    };
    Query::new(text).matches(&name)
}

/// Returns whether the name `text` in an expression can refer to a demangled name, given code of
/// the function `from`. The name must be global, or in a namespace, class or module around the
/// function. Anonymous namespaces are ignored.
#[must_use]
pub fn is_visible(readable: &str, text: &str, from: Option<&str>) -> bool {
    if readable == text {
        return true;
    }
    let query = Query::new(text);
    let named = |part: &&str| *part != "(anonymous namespace)";
    let whole: Vec<&str> = components(path(readable), query.generic);
    let Some(around) = whole
        .strip_suffix(&*query.components)
        .filter(|_| !query.components.is_empty())
    else {
        return false;
    };
    let from = from
        .map(|from| components(path(from), query.generic))
        .unwrap_or_default();
    let mut within = from.iter().copied().filter(named);
    let mut around = around.iter().copied().filter(named);
    around.all(|part| within.next() == Some(part))
}

/// A name to search for.
pub(crate) struct Query<'q> {
    text: &'q str,
    components: Vec<&'q str>,
    /// Whether the user typed generic arguments, which must then match.
    generic: bool,
    /// Whether the user typed parameters, which must then match.
    parameters: bool,
    /// The text as a name of Go, if it can be one.
    go: Option<GoName<'q>>,
}

impl<'q> Query<'q> {
    pub fn new(text: &'q str) -> Self {
        let text = text.trim();
        let text = text.strip_prefix("::").unwrap_or(text);
        let generic = text.contains('<') && !text.contains("operator<");
        let path = path(text);
        Self {
            text,
            components: components(path, generic),
            generic,
            parameters: path.len() < text.len(),
            go: GoName::parse(text),
        }
    }

    /// Returns whether `name` matches the query, or ends with it.
    pub fn matches(&self, name: &Name) -> bool {
        let readable = &*name.readable;
        if readable == self.text
            || &*name.linkage == self.text
            || original_of_variant(&name.linkage) == Some(self.text)
        {
            return true;
        }
        if let Some(go) = &self.go
            && GoName::parse(readable).is_some_and(|name| go.means(&name))
        {
            return true;
        }
        if self.parameters {
            let before = readable.strip_suffix(self.text);
            return before.is_some_and(|before| before.ends_with("::") || before.ends_with(' '));
        }
        let name = components(path(readable), self.generic);
        let before = name.len().checked_sub(self.components.len());
        let last = before.and_then(|before| name.get(before..));
        let mut pairs = last.into_iter().flatten().zip(&self.components);
        !self.components.is_empty() && last.is_some() && pairs.all(|(name, typed)| is_component(name, typed))
    }

    /// Returns text that the linkage name of every match contains. It is empty if there is none.
    ///
    /// Both manglings contain identifiers verbatim. The exceptions are operators, and the standard
    /// classes that Itanium abbreviates (`St`, `Sa`, `Ss` …), whose constructors have their names.
    pub fn needle(&self) -> &'q [u8] {
        const ABBREVIATED: [&str; 9] = [
            "allocator",
            "basic_string",
            "string",
            "basic_istream",
            "istream",
            "basic_ostream",
            "ostream",
            "basic_iostream",
            "iostream",
        ];
        let last = last_component(path(self.text)).trim_start_matches('~');
        if is_operator(last, 0) || ABBREVIATED.contains(&last) {
            return b"";
        }
        let end = last
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(last.len());
        last.as_bytes().get(..end).unwrap_or_default()
    }

    fn key(&self) -> u64 {
        hash(last_component(path(self.text)))
    }
}

/// Returns whether a component of a name is the one that a user typed. Arguments count where they
/// are typed, and spaces do not.
fn is_component(name: &str, typed: &str) -> bool {
    if name == typed {
        return true;
    }
    if !typed.contains('<') || is_operator(typed, 0) {
        return without_arguments(name, false) == typed;
    }
    let is_space = |c: &char| *c != ' ';
    name.chars().filter(is_space).eq(typed.chars().filter(is_space))
}

/// Finds names by their last component or by the full linkage name.
pub(crate) struct NameIndex {
    /// Hashes of names and their indexes, sorted.
    entries: Vec<(u64, u32)>,
}

impl NameIndex {
    /// Indexes the names from 0 in the given order.
    pub fn new<'n>(names: impl Iterator<Item = &'n Name>) -> Self {
        let mut entries = Vec::new();
        for (number, name) in names.enumerate() {
            entries.push((hash(last_component(path(&name.readable))), number as u32));
            if let Some(go) = GoName::parse(&name.readable) {
                entries.push((hash(go.last()), number as u32));
            }
            if name.linkage != name.readable {
                entries.push((hash(&name.linkage), number as u32));
            }
        }
        entries.sort_unstable();
        entries.dedup();
        Self { entries }
    }

    /// Returns the indexes of names that may match.
    pub fn candidates(&self, query: &Query) -> impl Iterator<Item = u32> {
        let mut keys = vec![hash(query.text), query.key()];
        keys.extend(query.go.as_ref().map(|go| hash(go.last())));
        keys.sort_unstable();
        keys.dedup();
        // A name has several keys, but is one candidate.
        let numbers = keys.into_iter().flat_map(|key| {
            let first = self.entries.partition_point(|(hash, _)| *hash < key);
            let entries = self.entries.get(first..).unwrap_or_default().iter();
            entries
                .take_while(move |(hash, _)| *hash == key)
                .map(|(_, number)| *number)
        });
        let numbers: BTreeSet<u32> = numbers.collect();
        numbers.into_iter()
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = FxHasher::default();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns the path of a demangled name, without return type, parameters, and qualifiers after
/// them.
fn path(name: &str) -> &str {
    let bytes = name.as_bytes();
    let (mut depth, mut start, mut at) = (0u32, 0, 0);
    while let Some(&byte) = bytes.get(at) {
        if depth == 0 && is_operator(name, at) {
            let end = operator_end(name, at);
            match after_parameters(name, end) {
                Some(inner) => at = inner,
                None => return &name[start..end],
            }
            continue;
        }
        match byte {
            b'(' if depth == 0 && at > start && !name[..at].ends_with("::") => {
                match after_parameters(name, at) {
                    Some(inner) => at = inner,
                    None => return &name[start..at],
                }
                continue;
            }
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            // An arrow does not close a bracket.
            b'>' if at > 0 && bytes.get(at - 1) == Some(&b'-') => {}
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && !name[at..].starts_with(" [clone") => start = at + 1,
            b' ' if depth == 0 => return &name[start..at],
            _ => {}
        }
        at += 1;
    }
    &name[start..]
}

/// Returns the end of an operator's name, given the position `at` of the word `operator`. The name
/// may contain text with other meanings elsewhere: `()`, `<`, `new`, a type.
fn operator_end(name: &str, at: usize) -> usize {
    let text = at + "operator".len();
    let skip = if name[text..].starts_with("()") {
        text + 2
    } else {
        text
    };
    name[skip..].find('(').map_or(name.len(), |end| skip + end)
}

/// Returns where a name continues with `::` after the parameters that open at byte `open`. This is
/// the case for entities local to a function: `f(int)::{lambda()#1}::operator()`, `f(int)
/// const::Local::g`.
fn after_parameters(name: &str, open: usize) -> Option<usize> {
    const QUALIFIERS: [&str; 4] = [" const", " volatile", " &", "&"];
    let mut depth = 0u32;
    let close = name.bytes().enumerate().skip(open).find(|(_, byte)| {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    let mut rest = name.get(close?.0 + 1..)?;
    while let Some(without_arguments) = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = without_arguments;
    }
    rest.starts_with("::").then_some(name.len() - rest.len())
}

/// Returns whether the C++ keyword `operator` is at byte `at`.
fn is_operator(name: &str, at: usize) -> bool {
    let word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = name.as_bytes();
    bytes.get(at..).is_some_and(|rest| rest.starts_with(b"operator"))
        && !word(at.checked_sub(1).and_then(|before| bytes.get(before)))
        && !word(bytes.get(at + "operator".len()))
}

/// Returns the components of a path. `<T as Trait>::f` of Rust counts as `T::f`. Generic arguments
/// are dropped unless `generic` is set.
fn components(path: &str, generic: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = Some(path);
    while let Some(text) = rest {
        let (part, after) = split_component(text);
        rest = after;
        match part.strip_prefix('<').and_then(|part| part.strip_suffix('>')) {
            // One level is enough: the path of the type itself.
            Some(inner) => {
                let own = inner.split(" as ").next().unwrap_or(inner);
                let mut own = Some(own);
                while let Some(text) = own {
                    let (part, after) = split_component(text);
                    own = after;
                    parts.push(without_arguments(part, generic));
                }
            }
            None => parts.push(without_arguments(part, generic)),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn last_component(path: &str) -> &str {
    components(path, false).pop().unwrap_or(path)
}

/// Splits a path into its first component, and the part after its `::`.
fn split_component(text: &str) -> (&str, Option<&str>) {
    let bytes = text.as_bytes();
    let mut depth = 0u32;
    for (at, byte) in bytes.iter().enumerate() {
        if depth == 0 && is_operator(text, at) {
            return match after_parameters(text, operator_end(text, at)) {
                Some(inner) => (&text[..inner], Some(&text[inner + 2..])),
                None => (text, None),
            };
        }
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && bytes.get(at - 1) == Some(&b'-') => {}
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                return (&text[..at], Some(&text[at + 2..]));
            }
            _ => {}
        }
    }
    (text, None)
}

/// Returns a component without the parameters of an enclosing function. Generic arguments are
/// dropped unless `generic` is set.
fn without_arguments(part: &str, generic: bool) -> &str {
    if is_operator(part, 0) {
        return &part[..operator_end(part, 0)];
    }
    if part.starts_with(['<', '(', '{']) {
        return part;
    }
    let part = part.split('(').next().unwrap_or(part);
    match generic {
        true => part,
        false => part.split('<').next().unwrap_or(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(query: &str, readable: &str) -> bool {
        let name = Name {
            readable: readable.into(),
            linkage: "_Zlinkage".into(),
        };
        let index = NameIndex::new(std::iter::once(&name));
        let query = Query::new(query);
        let found = query.matches(&name);
        assert!(
            !found || index.candidates(&query).next().is_some(),
            "{readable} is not indexed"
        );
        found
    }

    #[test]
    fn expression_names_refer_to_enclosing_scopes() {
        for (readable, text, from, visible) in [
            ("main", "main", None, true),
            ("f(int)", "f", None, true),
            ("std::vector<int>::size() const", "size", Some("main"), false),
            (
                "std::vector<int>::size() const",
                "std::vector::size",
                Some("main"),
                true,
            ),
            ("std::vector<int>::size() const@plt", "size", Some("main"), false),
            ("ns::f(int)", "f", Some("ns::g()"), true),
            ("ns::f(int)", "f", Some("ns::A::g()"), true),
            ("ns::A::f(int)", "f", Some("ns::g()"), false),
            ("ns::A::f(int)", "A::f", Some("ns::g()"), true),
            ("(anonymous namespace)::f()", "f", Some("main"), true),
            ("app::ledger::pay", "pay", Some("app::ledger::charge"), true),
            ("app::ledger::pay", "pay", Some("app::main"), false),
        ] {
            assert_eq!(
                is_visible(readable, text, from),
                visible,
                "{text}: {readable} from {from:?}"
            );
        }
    }

    #[test]
    fn names_match_by_their_last_components() {
        for (query, readable) in [
            ("main", "main"),
            ("f", "ns::f(int)"),
            ("ns::f", "ns::f(int)"),
            ("::ns::f", "ns::f(int)"),
            ("ns::f(int)", "ns::f(int)"),
            ("f(int)", "ns::f(int)"),
            ("_Zlinkage", "ns::f(int)"),
            ("f", "(anonymous namespace)::f()"),
            ("A::f", "ns::A<int, std::pair<int, int> >::f() const"),
            ("A<int>::f", "ns::A<int>::f() const"),
            ("A<int,3>::f", "int ns::A<int, 3>::f<long>(long)"),
            ("A<int, B<int> >::f", "ns::A<int, B<int>>::f()"),
            ("f", "void ns::f<int>(int)"),
            ("f", "std::vector<int> (*ns::x)"),
            ("f<int>", "void ns::f<int>(int)"),
            ("operator()", "ns::A::operator()(int) const"),
            ("A::operator<", "ns::A::operator<(ns::A const&)"),
            ("operator new", "operator new(unsigned long)"),
            ("f", "ns::f(int) [clone .constprop.0]"),
            ("push", "<alloc::vec::Vec<T>>::push"),
            ("Vec::fmt", "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt"),
            ("main::{closure#0}", "demo::main::{closure#0}"),
            ("puts@plt", "puts@plt"),
            ("operator()", "work(int)::{lambda(int)#1}::operator()(int) const"),
            (
                "work::{lambda(int)#1}::operator()",
                "work(int)::{lambda(int)#1}::operator()(int) const",
            ),
            ("Local::twice", "ns::work(int (*)(int)) const::Local::twice(int)"),
            ("work::Local::twice", "int ns::work<int>(int)::Local::twice(int)"),
            ("work(int)::Local::twice", "work(int)::Local::twice(int)"),
            ("Local::f", "A::operator()(int) const::Local::f()"),
            ("main.(*Stack).Push", "main.(*Stack).Push"),
            ("main.Sum", "main.Sum[...]"),
            ("Stack.Push", "main.(*Stack[...]).Push"),
            ("(*Stack).Push", "example.com/a/stack.(*Stack[go.shape.int]).Push"),
        ] {
            assert_eq!(
                matches(query, readable),
                readable != "std::vector<int> (*ns::x)",
                "{query} in {readable}"
            );
        }
    }

    #[test]
    fn names_do_not_match_by_part_of_a_component() {
        for (query, readable) in [
            ("s::f", "ns::f(int)"),
            ("f", "ns::ff(int)"),
            ("ns", "ns::f(int)"),
            ("f(long)", "ns::f(int)"),
            ("main.Sum", "main.Summary[...]"),
            ("ack.Push", "main.(*Stack[...]).Push"),
            ("Push", "main.(*Stack[...]).Push"),
            ("f<long>", "void ns::f<int>(int)"),
            ("A<int>::f<long>", "void ns::A<int>::f<int>(int)"),
            ("A<long>::f", "void ns::A<int>::f<int>(int)"),
            ("int", "ns::f(int)"),
            ("puts", "puts@plt"),
            ("", "ns::f(int)"),
            ("work", "work(int)::{lambda(int)#1}::operator()(int) const"),
            ("work", "work(int) const &::Local::twice(int)"),
            (
                "A::operator()",
                "A::operator()(int) const::{lambda()#1}::operator()() const",
            ),
            ("work", "work(int)::{lambda(int)#1}::_FUN(int)"),
        ] {
            assert!(!matches(query, readable), "{query} in {readable}");
        }
    }

    #[test]
    fn variants_of_a_c_function_have_its_name() {
        for (query, linkage, wanted) in [
            ("f", "f.lto_priv.0", true),
            ("f", "f.constprop.0.isra.0", true),
            ("f.lto_priv.0", "f.lto_priv.0", true),
            ("f", "f.part.0", false),
            ("f", "f.lto_priv.0.cold", false),
            ("f", "ff.lto_priv.0", false),
            ("", ".lto_priv.0", false),
        ] {
            let query = Query::new(query);
            assert_eq!(query.matches(&Name::of(linkage.as_bytes())), wanted, "{linkage}");
            assert!(
                !wanted || linkage.as_bytes().starts_with(query.needle()),
                "{linkage}"
            );
        }
    }

    #[test]
    fn needles_are_in_the_linkage_names() {
        for (query, linkage) in [
            ("ns::f", "_ZN2ns1fEi"),
            ("Box<long>::get", "_ZNK2ns3BoxIlE3getEv"),
            ("A::~A", "_ZN1AD1Ev"),
            ("operator new", "_Znwm"),
            ("std::basic_string<char>::basic_string", "_ZNSsC1Ev"),
            ("mycrate::foo", "_RNvCs1234_7mycrate3foo"),
            ("main::{closure#0}", "_RNCNvCs1234_7mycrate4main0B3_"),
            ("puts@plt", "puts"),
            ("f.cold", "f.cold"),
            ("Stack.Push", "main.(*Stack[go.shape.int]).Push"),
            ("(*Stack).Push", "main.(*Stack).Push"),
            ("main.(*Stack).Push", "main.(*Stack).Push"),
        ] {
            let needle = Query::new(query).needle();
            assert!(
                memchr::memmem::find(linkage.as_bytes(), needle).is_some(),
                "{query} {linkage}"
            );
        }
        assert_eq!(Query::new("ns::f").needle(), b"f");
    }

    #[test]
    fn odd_text_does_not_break() {
        for text in [
            "<",
            ">>>",
            "((",
            "é::ü<ö",
            "operator",
            "operator(",
            "::::",
            " ",
            "a -> b",
            "operator é(",
        ] {
            let _ = matches(text, text);
        }
    }
}
