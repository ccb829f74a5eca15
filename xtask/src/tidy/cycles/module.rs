//! One source file as a module: the items that it defines and the paths that it names.

use crate::tidy::Source;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

/// A path that a `use` declaration imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The segments as written, `super` and `crate` included.
    pub path: Vec<String>,
    /// The name in this module, or `*`.
    pub name: String,
    /// Whether other modules can import the name from here.
    pub is_re_export: bool,
}

/// A module that is a file.
#[derive(Debug, Default)]
pub struct Module {
    /// The path of the file.
    pub file: String,
    /// The path of the module below the crate root, which is empty.
    pub path: Vec<String>,
    /// Names of the items that the file defines.
    pub items: BTreeSet<String>,
    /// Imports of `use` declarations.
    pub imports: Vec<Import>,
    /// Paths of two segments and more elsewhere in the code.
    pub paths: Vec<Vec<String>>,
    /// Identifiers that occur outside of `use` declarations.
    pub identifiers: BTreeSet<String>,
}

/// Keywords that introduce an item's name.
const ITEMS: &[&str] = &[
    "struct", "enum", "union", "trait", "type", "fn", "const", "static", "mod",
];

impl Module {
    /// Reads a source file, and returns nothing when it is not Rust that can be read.
    pub fn parse(source: &Source) -> Option<Self> {
        let stream: TokenStream = source.text.parse().ok()?;
        let mut module = Self {
            file: source.path.clone(),
            path: module_path(&source.path),
            ..Self::default()
        };
        module.read(stream, 0);
        Some(module)
    }

    /// The module as messages name it.
    pub fn name(&self) -> String {
        if self.path.is_empty() {
            "crate".to_owned()
        } else {
            self.path.join("::")
        }
    }

    /// Reads tokens; `depth` counts the inline modules around them.
    fn read(&mut self, stream: TokenStream, depth: usize) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut tokens = tokens.into_iter().peekable();
        let mut is_public = false;
        let mut after_colon = false;
        while let Some(token) = tokens.next() {
            let mut colon = false;
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && group.stream().to_string().replace(' ', "") == "cfg(test)"
                    {
                        tokens.next();
                        skip_item(&mut tokens);
                    }
                }
                TokenTree::Punct(mark) => colon = mark.as_char() == ':',
                TokenTree::Group(group) => {
                    is_public &= group.delimiter() == Delimiter::Parenthesis;
                    self.read(group.stream(), depth);
                    after_colon = false;
                    continue;
                }
                TokenTree::Literal(_) => {}
                TokenTree::Ident(word) => {
                    let text = word.to_string();
                    match text.as_str() {
                        "pub" => {
                            is_public = true;
                            continue;
                        }
                        "use" => self.read_use(&mut tokens, is_public, depth),
                        "mod" => self.read_mod(&mut tokens, depth),
                        keyword if ITEMS.contains(&keyword) => {
                            if let Some(TokenTree::Ident(name)) = tokens.peek() {
                                self.items.insert(name.to_string());
                            }
                        }
                        _ if !after_colon => self.read_path(&word, &mut tokens, depth),
                        _ => {
                            self.identifiers.insert(text);
                        }
                    }
                    is_public = false;
                }
            }
            after_colon = colon && after_colon_pair(&mut tokens, after_colon);
        }
    }

    fn read_mod(&mut self, tokens: &mut Peekable<IntoIter<TokenTree>>, depth: usize) {
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return;
        };
        self.items.insert(name.to_string());
        if let Some(TokenTree::Group(body)) = tokens.peek() {
            let body = body.stream();
            tokens.next();
            self.read(body, depth + 1);
        }
    }

    /// Reads a path that begins with `first` outside of a `use` declaration.
    fn read_path(&mut self, first: &Ident, tokens: &mut Peekable<IntoIter<TokenTree>>, depth: usize) {
        let mut path = vec![first.to_string()];
        self.identifiers.insert(first.to_string());
        while is_colon(tokens.peek()) {
            tokens.next();
            if !is_colon(tokens.peek()) {
                break;
            }
            tokens.next();
            let Some(TokenTree::Ident(segment)) = tokens.peek() else {
                break;
            };
            path.push(segment.to_string());
            tokens.next();
        }
        if path.len() > 1
            && let Some(path) = leave_inline_modules(path, depth)
        {
            self.paths.push(path);
        }
    }

    fn read_use(&mut self, tokens: &mut Peekable<IntoIter<TokenTree>>, is_re_export: bool, depth: usize) {
        let tree: Vec<TokenTree> = tokens
            .by_ref()
            .take_while(|token| !matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';'))
            .collect();
        let mut found = Vec::new();
        read_tree(tree, &[], &mut found);
        for (path, name) in found {
            if let Some(path) = leave_inline_modules(path, depth) {
                self.imports.push(Import {
                    path,
                    name,
                    is_re_export,
                });
            }
        }
    }
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
}

/// Returns whether the colon just read is the second of `::`.
fn after_colon_pair(tokens: &mut Peekable<IntoIter<TokenTree>>, was_colon: bool) -> bool {
    was_colon || is_colon(tokens.peek())
}

/// Skips an item that an attribute removes from the product.
fn skip_item(tokens: &mut Peekable<IntoIter<TokenTree>>) {
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}

/// Translates a path inside inline modules to one of the file; nothing if it stays inside of them.
fn leave_inline_modules(mut path: Vec<String>, depth: usize) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    if depth == 0 || path.first().is_some_and(|first| first == "crate") {
        return Some(path);
    }
    if supers < depth {
        return None;
    }
    path.drain(..depth);
    if supers == depth {
        path.insert(0, "self".to_owned());
    }
    Some(path)
}

/// Reads a tree of a `use` declaration into pairs of path and name.
fn read_tree(tree: Vec<TokenTree>, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let mut path = before.to_vec();
    let mut name = None;
    let mut is_alias = false;
    let mut tokens = tree.into_iter();
    let mut ends = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "as" => is_alias = true,
            TokenTree::Ident(word) if is_alias => name = Some(word.to_string()),
            TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(mark) if mark.as_char() == '*' => name = Some("*".to_owned()),
            TokenTree::Punct(mark) if mark.as_char() == ',' => {
                found.push(entry(&path, name.take()));
                read_tree(tokens.by_ref().collect(), before, found);
                return;
            }
            TokenTree::Group(group) => {
                read_tree(group.stream().into_iter().collect(), &path, found);
                ends = true;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        if ends {
            // A comma may follow a group.
            let rest: Vec<TokenTree> = tokens.by_ref().skip(1).collect();
            if !rest.is_empty() {
                read_tree(rest, before, found);
            }
            return;
        }
    }
    if path.len() > before.len() || name.is_some() {
        found.push(entry(&path, name));
    }
}

fn entry(path: &[String], name: Option<String>) -> (Vec<String>, String) {
    let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
    (path.to_vec(), name)
}

/// Returns the module path of a file below `src`.
fn module_path(file: &str) -> Vec<String> {
    let below = file.split_once("/src/").map_or(file, |(_, below)| below);
    let mut path: Vec<String> = below
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    let is_root = path.len() == 1 && matches!(path[0].as_str(), "lib" | "main");
    if is_root || path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str, text: &str) -> Module {
        Module::parse(&Source::sample(path, text)).unwrap()
    }

    #[test]
    fn a_use_declaration_is_read_leaf_by_leaf() {
        let module = parse(
            "pt/src/a/mod.rs",
            "pub(crate) use self::b::{C, d::{self, E as F}, g::*};\nuse super::x;\n",
        );
        assert_eq!(module.path, ["a"]);
        let leaves: Vec<(String, &str, bool)> = module
            .imports
            .iter()
            .map(|import| (import.path.join("::"), &*import.name, import.is_re_export))
            .collect();
        let expected = [
            ("self::b::C", "C", true),
            ("self::b::d", "d", true),
            ("self::b::d::E", "F", true),
            ("self::b::g", "*", true),
            ("super::x", "x", false),
        ];
        assert_eq!(
            leaves,
            expected.map(|(path, name, re_export)| (path.to_owned(), name, re_export))
        );
    }

    #[test]
    fn paths_in_code_and_inline_modules_are_read() {
        let module = parse(
            "pt/src/a.rs",
            "mod inner { use super::Outer; use super::super::b::B; fn f() { self::g(); } }\n\
             struct Outer;\nfn h() { crate::c::d(); }\n",
        );
        let imports: Vec<String> = module
            .imports
            .iter()
            .map(|import| import.path.join("::"))
            .collect();
        assert_eq!(imports, ["self::Outer", "super::b::B"]);
        assert!(
            module
                .paths
                .contains(&vec!["crate".into(), "c".into(), "d".into()])
        );
        assert!(module.items.contains("Outer") && module.items.contains("inner"));
    }
}
