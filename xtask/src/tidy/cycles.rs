//! No import circle between the files of a crate.
//!
//! Files are in a circle if each imports from the next, by a `use` declaration or by a path in the
//! code. One kind of circle is allowed: a module with its own descendants. In Rust, a parent module
//! often holds a type, its children implement parts of it (`use super::Type`), and the parent calls
//! them. A reader opens these files together.
//!
//! So the rule is: **a circle must contain the module that all of its files are in.** A circle
//! between siblings, or across the trees of two siblings, does not, and is a problem. For each
//! module, the check ignores the module's own file, and searches its descendants for circles that
//! involve two of its children or more. The crate root is the parent of all top-level modules.
//!
//! A parent module that only re-exports its children imports nothing. Code under `cfg(test)` does
//! not count.

mod graph;
mod module;

use super::{Problem, Source};
use graph::Graph;
use module::Module;
use std::collections::{BTreeMap, BTreeSet};

/// Returns one problem for each group of files that import each other, in all crates.
pub fn check(sources: &[Source]) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<Module>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.ships()) {
        let modules = crates.entry(source.part()).or_default();
        modules.extend(Module::parse(source));
    }
    crates.values().flat_map(|modules| problems(modules)).collect()
}

/// Returns the problems of one crate.
fn problems(modules: &[Module]) -> Vec<Problem> {
    let graph = Graph::new(modules);
    let parents: BTreeSet<&[String]> = modules
        .iter()
        .flat_map(|module| (0..module.path.len()).map(|len| &module.path[..len]))
        .collect();
    let mut problems = Vec::new();
    for circle in parents.into_iter().flat_map(|parent| graph.circles_below(parent)) {
        let names: Vec<String> = circle.shortest.iter().map(|&at| modules[at].name()).collect();
        problems.push(Problem {
            path: modules[circle.shortest[0]].file.clone(),
            line: 0,
            message: format!(
                "{} files import each other in a circle, such as {}",
                circle.group.len(),
                names.join(" → ")
            ),
        });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::sample(path, text))
            .collect();
        check(&sources)
            .into_iter()
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect()
    }

    #[test]
    fn two_files_that_import_each_other_are_found() {
        let files = [
            ("pt/src/lib.rs", "mod a;\nmod b;\n"),
            ("pt/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("pt/src/b.rs", "use super::a::{self, A};\npub struct B;\n"),
        ];
        assert_eq!(
            found(&files),
            ["pt/src/a.rs: 2 files import each other in a circle, such as a → b → a"]
        );
    }

    #[test]
    fn a_longer_circle_through_paths_in_code_is_found() {
        let files = [
            ("pt/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("pt/src/a.rs", "pub fn a() { crate::b::b(); }\n"),
            (
                "pt/src/b.rs",
                "pub fn b() { let _ = format!(\"{}\", super::c::c()); }\n",
            ),
            ("pt/src/c.rs", "use crate::a;\npub fn c() { a::a(); }\n"),
        ];
        assert_eq!(found(&files).len(), 1);
        assert!(found(&files)[0].contains("a → b → c → a"));
    }

    #[test]
    fn a_parent_that_re_exports_is_no_circle() {
        let files = [
            ("pt/src/lib.rs", "mod a;\npub use a::{One, Two};\n"),
            (
                "pt/src/a.rs",
                "mod one;\nmod two;\npub use one::One;\npub use two::*;\n",
            ),
            ("pt/src/a/one.rs", "use super::Two;\npub struct One(Two);\n"),
            ("pt/src/a/two.rs", "pub struct Two;\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_re_export_hides_no_circle_between_children() {
        let files = [
            ("pt/src/lib.rs", "mod a;\n"),
            (
                "pt/src/a.rs",
                "mod one;\nmod two;\npub use one::One;\npub use two::*;\n",
            ),
            ("pt/src/a/one.rs", "use super::Two;\npub struct One(Two);\n"),
            ("pt/src/a/two.rs", "use super::One;\npub struct Two(Box<One>);\n"),
        ];
        assert!(found(&files)[0].contains("a::one → a::two → a::one"));
    }

    #[test]
    fn a_parent_and_its_descendants_may_use_each_other() {
        let files = [
            ("pt/src/lib.rs", "mod a;\npub struct Root(a::A);\n"),
            (
                "pt/src/a.rs",
                "mod one;\nmod two;\nuse one::One;\npub struct A(One);\npub struct Unit;\n",
            ),
            (
                "pt/src/a/one.rs",
                "mod part;\nuse super::two::Two;\npub struct One(Two, part::Part);\n",
            ),
            (
                "pt/src/a/one/part.rs",
                "use super::super::Unit;\npub struct Part(Unit);\n",
            ),
            (
                "pt/src/a/two.rs",
                "use super::A;\nuse crate::Root;\npub struct Two(Box<A>, Box<Root>);\n",
            ),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_circle_between_siblings_below_a_parent_is_found() {
        let files = [
            ("pt/src/lib.rs", "mod a;\n"),
            (
                "pt/src/a.rs",
                "mod one;\nmod two;\nuse one::One;\npub struct A(One);\n",
            ),
            (
                "pt/src/a/one.rs",
                "use super::A;\nuse super::two::Two;\npub struct One(Box<A>, Two);\n",
            ),
            (
                "pt/src/a/two.rs",
                "use crate::a::one::One;\npub struct Two(Box<One>);\n",
            ),
        ];
        assert_eq!(
            found(&files),
            ["pt/src/a/one.rs: 2 files import each other in a circle, such as a::one → a::two → a::one"]
        );
    }

    #[test]
    fn a_circle_across_two_trees_is_found() {
        let files = [
            ("pt/src/lib.rs", "mod a;\nmod b;\n"),
            ("pt/src/a.rs", "use crate::b::part::Part;\npub struct A(Part);\n"),
            (
                "pt/src/b.rs",
                "pub mod part;\nuse crate::a::A;\npub struct B(A);\npub struct Unit;\n",
            ),
            ("pt/src/b/part.rs", "use super::Unit;\npub struct Part(Unit);\n"),
        ];
        assert_eq!(
            found(&files),
            ["pt/src/a.rs: 3 files import each other in a circle, such as a → b::part → b → a"]
        );
    }

    #[test]
    fn tests_and_one_way_imports_are_fine() {
        let files = [
            ("pt/src/lib.rs", "mod a;\nmod b;\n"),
            ("pt/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
            (
                "pt/src/b.rs",
                "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; use super::*; }\n",
            ),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
