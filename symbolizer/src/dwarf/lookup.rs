//! Finds entries by name, and computes the full names of types.

use super::entry::Entry;
use super::index::{NameKind, UnitIndex};
use super::info::{DebugInfo, LazyUnit};
use crate::entry_id::EntryId;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most units with a name that are searched.
const MAX_FOUND: usize = 64;

impl<'d> DebugInfo<'d> {
    pub(super) fn index_of<'i>(&self, unit: &'i LazyUnit<'d>) -> &'i UnitIndex<'d> {
        unit.index
            .get_or_init(|| Box::new(UnitIndex::new(&unit.unit, self.sections(unit), &self.budget)))
    }

    /// Returns the definitions that `wanted` can mean; it may be a qualified name. Those of the
    /// unit around `near` come first. The last components of a path are sufficient. If some entry
    /// has exactly this path, entries with longer paths are omitted.
    pub(super) fn entries_named(
        &self,
        wanted: &str,
        near: Option<EntryId>,
        is_wanted: impl Fn(NameKind) -> bool,
    ) -> Vec<(NameKind, EntryId)> {
        let wanted = wanted.trim_start_matches("::");
        let last = without_arguments(last_component(wanted));
        let wanted = &*normalized(wanted);
        let near = near
            .filter(|near| !near.supplementary)
            .and_then(|near| self.unit_of(near.offset))
            .map(|unit| unit.extent.start);
        let mut found = Vec::new();
        let first = self.units.iter().filter(|unit| Some(unit.extent.start) == near);
        let others = self.units.iter().filter(|unit| Some(unit.extent.start) != near);
        let mut exact = false;
        for unit in first.chain(others) {
            let index = self.index_of(unit);
            for number in index.by_name.get(last.as_bytes()).into_iter().flatten() {
                let Some(named) = index.named.get(*number as usize) else {
                    continue;
                };
                if named.declaration || !is_wanted(named.kind) || found.len() >= MAX_FOUND {
                    continue;
                }
                let full = normalized(&self.full_name(unit, named)).into_owned();
                // Source code cannot name an anonymous namespace.
                let shown = full.replace("(anonymous namespace)::", "");
                let same = full == wanted || shown == wanted;
                let ends = |full: &str| {
                    full.strip_suffix(wanted)
                        .is_some_and(|before| before.ends_with("::"))
                };
                let ends = ends(&full) || ends(&shown);
                if !(same || ends && !exact) {
                    continue;
                }
                if same && !exact {
                    exact = true;
                    found.clear();
                }
                let id = |offset| EntryId {
                    offset: unit.extent.start + offset,
                    supplementary: false,
                };
                found.push((named.kind, id(named.offset)));
            }
        }
        found
    }

    /// Returns the names of global variables and enumerators that begin with `prefix`, at most
    /// `limit`. Namespaces are left out if the name itself begins so.
    pub fn global_names(&self, prefix: &str, limit: usize) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for unit in &self.units {
            for named in &self.index_of(unit).named {
                let is_value = matches!(named.kind, NameKind::Variable | NameKind::Enumerator { .. });
                if named.declaration || !is_value {
                    continue;
                }
                if names.len() >= limit {
                    return names;
                }
                match std::str::from_utf8(named.name.text) {
                    Ok(own) if own.starts_with(prefix) => {
                        names.insert(own.to_owned());
                    }
                    _ if named.scope.is_some() => {
                        let full = self.full_name(unit, named);
                        if full.starts_with(prefix) {
                            names.insert(full.to_string());
                        }
                    }
                    _ => {}
                }
            }
        }
        names
    }

    /// Returns the enumeration of an enumerator that [`Self::entries_named`] found.
    pub(super) fn enumeration_of(&self, enumerator: EntryId, enumeration: usize) -> Option<EntryId> {
        let unit = self.unit_of(enumerator.offset)?;
        Some(EntryId {
            offset: unit.extent.start.checked_add(enumeration)?,
            supplementary: enumerator.supplementary,
        })
    }
}

impl<'d> Entry<'_, 'd> {
    /// Returns the qualified name.
    pub fn full_name(&self) -> Option<Arc<str>> {
        let index = self.info.index_of(self.unit);
        match index.named_at(self.unit_offset()) {
            Some(named) => Some(self.info.full_name(self.unit, named).into()),
            None => self.name(),
        }
    }
}

/// Returns a component of a path without its template arguments.
fn without_arguments(component: &str) -> &str {
    match component.find('<') {
        Some(start @ 1..) if !component.starts_with("operator") => {
            component.get(..start).unwrap_or(component)
        }
        _ => component,
    }
}

/// Returns a name without the spaces that do not separate words: `a<b, c<d> >` is `a<b,c<d>>`.
fn normalized(name: &str) -> Cow<'_, str> {
    if !name.contains('<') {
        return Cow::Borrowed(name);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(name.len());
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        let separates = out.ends_with(is_word) && characters.peek().is_some_and(|next| is_word(*next));
        if character != ' ' || separates {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Returns the last component of a path, including its template arguments.
fn last_component(path: &str) -> &str {
    let mut depth = 0u32;
    let mut start = 0;
    let mut previous = ' ';
    for (at, character) in path.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && previous == ':' => start = at + 1,
            _ => {}
        }
        previous = character;
    }
    path.get(start..).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{last_component, normalized, without_arguments};

    #[test]
    fn spaces_and_arguments_do_not_count() {
        assert_eq!(normalized("a<b, c<d *> >"), "a<b,c<d*>>");
        assert_eq!(normalized("f<unsigned long>"), "f<unsigned long>");
        assert_eq!(normalized("unsigned  long"), "unsigned  long");
        assert_eq!(without_arguments("vec<b::c>"), "vec");
        assert_eq!(without_arguments("operator<"), "operator<");
        assert_eq!(without_arguments("<x>"), "<x>");
    }

    #[test]
    fn template_arguments_belong_to_the_last_component() {
        assert_eq!(last_component("x"), "x");
        assert_eq!(last_component("a::b::x"), "x");
        assert_eq!(last_component("a::vec<b::c, d::e>"), "vec<b::c, d::e>");
        assert_eq!(last_component("fn() -> a::b"), "b");
        assert_eq!(last_component(""), "");
    }
}
