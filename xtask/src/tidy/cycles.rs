//! No import cycle between the files of a crate.

mod graph;
mod module;

use super::{Problem, Source, coverage};
use graph::Graph;
use module::Module;
use std::collections::BTreeMap;

/// Crates in which no two files import each other. A new row comes when a crate's cycles are cut.
const HOLDS: &[&str] = &[
    "bpf",
    "bundle",
    "collector",
    "dap-adapter",
    "export",
    "process",
    "symbolizer",
    "values",
];

/// Checks the covered crates. A parent module that only re-exports its children imports nothing.
pub fn check(sources: &[Source]) -> Vec<Problem> {
    cycles(sources, Edges::All)
        .into_iter()
        .filter(|problem| coverage::includes(HOLDS, &problem.path))
        .collect()
}

/// Which imports count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Every import.
    All,
    /// All imports except those of a module from its own ancestors.
    WithoutAncestors,
}

/// Returns one problem for each group of files that import each other, in all crates.
pub fn cycles(sources: &[Source], edges: Edges) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<Module>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.ships()) {
        let modules = crates.entry(source.part()).or_default();
        modules.extend(Module::parse(source));
    }
    let mut problems = Vec::new();
    for modules in crates.into_values() {
        let graph = Graph::new(&modules, edges);
        for group in graph.groups() {
            let names: Vec<String> = graph
                .shortest_cycle(&group)
                .into_iter()
                .map(|at| modules[at].name())
                .collect();
            let message = format!(
                "{} files import each other in a circle, such as {}",
                group.len(),
                names.join(" → ")
            );
            problems.push(Problem {
                path: modules[group[0]].file.clone(),
                line: 0,
                message,
            });
        }
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
        cycles(&sources, Edges::All)
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
    fn a_parent_that_uses_a_child_which_uses_it_is_found() {
        let files = [
            ("pt/src/lib.rs", "mod a;\n"),
            ("pt/src/a.rs", "mod one;\nuse one::One;\npub struct A(One);\n"),
            ("pt/src/a/one.rs", "use super::A;\npub struct One(Box<A>);\n"),
        ];
        assert!(found(&files)[0].contains("a → a::one → a"));
        let sources = files.map(|(path, text)| Source::sample(path, text));
        assert_eq!(cycles(&sources, Edges::WithoutAncestors), []);
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
