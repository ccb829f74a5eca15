//! Lists of known functions, by their normalized names.
//!
//! An entry is a whole name. An entry that ends with `*` is the start of names, and an entry that
//! begins with `*` is the end of names. Entries name functions that a crash of any program may have
//! on its stack. They name no program. A change of an entry changes signatures, so it needs a new
//! [version](super::Version).

mod cpp;
mod go;
mod python;
mod rust;
mod system;

use super::cause::CauseKind;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The role of a known function in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The function reports a crash: the signature starts at its caller.
    Sentinel,
    /// The function is part of every crash of its kind, and is dropped.
    Irrelevant,
    /// The function is a library's, and shows a defect of its caller.
    Prefix,
}

/// The library of a function. Of consecutive calls within a library only the outermost counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The allocator, whichever one.
    Allocator,
    /// The C library.
    C,
    /// The C++ standard library.
    Cpp,
    /// The Rust standard library.
    Rust,
    /// The Go runtime and standard library.
    Go,
    /// The Python interpreter.
    Python,
}

/// A list of functions with one role.
struct List {
    role: Role,
    library: Option<Library>,
    /// The kind of crash that the functions show.
    kind: Option<CauseKind>,
    names: &'static [&'static str],
}

/// The properties of a known function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFunction {
    /// Its role in a signature.
    pub role: Role,
    /// Its library.
    pub library: Option<Library>,
    /// The kind of crash that a call of it shows.
    pub kind: Option<CauseKind>,
}

/// All lists, in the order in which they are searched.
const LISTS: &[&[List]] = &[system::LISTS, rust::LISTS, cpp::LISTS, go::LISTS, python::LISTS];

/// The lists by name, and the entries that are starts and ends of names.
#[derive(Default)]
struct Index {
    names: HashMap<&'static str, KnownFunction>,
    starts: Vec<(&'static str, KnownFunction)>,
    ends: Vec<(&'static str, KnownFunction)>,
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut index = Index::default();
        for list in LISTS.iter().copied().flatten() {
            let function = KnownFunction {
                role: list.role,
                library: list.library,
                kind: list.kind,
            };
            for name in list.names {
                if let Some(start) = name.strip_suffix('*') {
                    index.starts.push((start, function));
                } else if let Some(end) = name.strip_prefix('*') {
                    index.ends.push((end, function));
                } else {
                    index.names.entry(name).or_insert(function);
                }
            }
        }
        index
    })
}

/// Returns the properties of a function by its normalized name. `None`: the function is the
/// program's own, or of an unknown library.
///
/// A whole name counts before the end of a name, and an end before a start. Of starts, the first
/// list counts.
#[must_use]
pub fn find(name: &str) -> Option<KnownFunction> {
    let index = index();
    let by_end = || index.ends.iter().find(|(end, _)| name.ends_with(end));
    let by_start = || index.starts.iter().find(|(start, _)| name.starts_with(start));
    let known = index.names.get(name).copied();
    known.or_else(|| by_end().or_else(by_start).map(|(_, function)| *function))
}

/// Returns whether a frame is the kernel's return from a signal handler.
#[must_use]
pub fn is_signal_trampoline(name: &str) -> bool {
    system::TRAMPOLINES.contains(&name)
}

/// Returns whether a function ends the process or raises a signal.
#[must_use]
pub fn is_raising(name: &str) -> bool {
    system::RAISING.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouping::normalize;

    fn role(name: &str) -> Option<Role> {
        find(&normalize(name)).map(|function| function.role)
    }

    #[test]
    fn functions_of_each_language_have_their_role() {
        for (name, expected) in [
            ("__assert_fail", Some(Role::Sentinel)),
            (
                "core::panicking::panic_fmt::h0123456789abcdef",
                Some(Role::Sentinel),
            ),
            ("runtime.gopanic", Some(Role::Sentinel)),
            ("__GI_raise", Some(Role::Irrelevant)),
            ("__pthread_kill_implementation", Some(Role::Irrelevant)),
            ("__asan_report_load8", Some(Role::Irrelevant)),
            ("_int_malloc", Some(Role::Irrelevant)),
            ("__memcpy_avx_unaligned_erms", Some(Role::Prefix)),
            ("operator new(unsigned long)", Some(Role::Prefix)),
            ("std::vector<int>::push_back(int&&)", Some(Role::Prefix)),
            ("core::option::Option<T>::unwrap", Some(Role::Prefix)),
            (
                "<alloc::vec::Vec<T,A> as core::ops::index::Index<I>>::index",
                Some(Role::Prefix),
            ),
            (
                "<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop",
                Some(Role::Prefix),
            ),
            ("_PyEval_EvalFrameDefault", Some(Role::Prefix)),
            ("je_malloc", Some(Role::Prefix)),
            ("start_thread", Some(Role::Irrelevant)),
            ("ledger::post", None),
            ("main", None),
            ("<ledger::Account as core::ops::drop::Drop>::drop", None),
            ("<ledger::Account as core::fmt::Display>::fmt", None),
            ("main.main", None),
            ("ns::std_like::f()", None),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
    }

    #[test]
    fn entries_are_in_normal_form_and_not_repeated() {
        let mut seen = std::collections::HashSet::new();
        for name in LISTS.iter().copied().flatten().flat_map(|list| list.names) {
            assert!(seen.insert(name), "{name} is there twice");
            if !name.contains('*') {
                assert_eq!(normalize(name), *name);
            }
        }
    }
}
