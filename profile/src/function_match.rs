//! Functions that are the same in two profiles, although their files have other names.

use crate::function_profile::Symbol;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of a function that decide whether it is the one of another profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionKey<'a> {
    /// The name. That of code without symbols is `MODULE+0xOFFSET`.
    pub name: &'a str,
    /// The source file. Only functions without a module are distinguished by it.
    pub file: &'a str,
    /// The name of the module's file. Empty: unknown.
    pub module: &'a str,
    /// The build id of the module. Empty: unknown. Only code without symbols is distinguished by
    /// it.
    pub build_id: &'a str,
    /// Whether the name is that of a function.
    pub is_function: bool,
}

/// A group of functions that are the same, unless only their names decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// A name in a file without the versions in its path.
    Named { name: String, file: String },
    /// An offset in a build.
    Code { build_id: String, offset: String },
}

/// The functions of a class: sets of the keys of both profiles.
type Sides<'a> = [BTreeSet<FunctionKey<'a>>; 2];

/// Returns a number for each function of two profiles. Equal numbers are one function.
///
/// Functions with names are matched by name. Those with the same name in several modules are
/// matched by the name of the module's file without versions, such as `libz.so` of
/// `libz.so.1.2`. If one module of each profile remains, its name does not matter. Code without
/// symbols is matched by its offset and the build id, or the module if a build id is unknown.
#[must_use]
pub fn match_functions(profiles: [&[FunctionKey<'_>]; 2]) -> [Vec<usize>; 2] {
    let mut classes: BTreeMap<Class, Sides<'_>> = BTreeMap::new();
    for (side, keys) in profiles.into_iter().enumerate() {
        for key in keys {
            let sides = classes.entry(class(key)).or_default();
            if let Some(keys) = sides.get_mut(side) {
                keys.insert(identity(*key));
            }
        }
    }
    let mut numbers: BTreeMap<FunctionKey<'_>, usize> = BTreeMap::new();
    let mut next = 0;
    // The classes that only one profile has, by name.
    let mut alone: BTreeMap<(bool, &str), [Vec<BTreeSet<FunctionKey<'_>>>; 2]> = BTreeMap::new();
    for sides in classes.into_values() {
        let [before, after] = &sides;
        if before == after {
            number_each(before, &mut numbers, &mut next);
        } else if !before.is_empty() && !after.is_empty() {
            number_all(before.union(after), &mut numbers, &mut next);
        } else if let Some(key) = before.union(after).next().copied() {
            let rest = alone.entry((key.is_function, key.name)).or_default();
            for (list, keys) in rest.iter_mut().zip(sides).filter(|(_, keys)| !keys.is_empty()) {
                list.push(keys);
            }
        }
    }
    for ((is_function, _), rest) in alone {
        match rest {
            [before, after]
                if before.len() == 1 && after.len() == 1 && (is_function || may_match(&before, &after)) =>
            {
                number_all(before.iter().chain(&after).flatten(), &mut numbers, &mut next);
            }
            rest => {
                for keys in rest.iter().flatten() {
                    number_each(keys, &mut numbers, &mut next);
                }
            }
        }
    }
    profiles.map(|keys| {
        let number = |key: &FunctionKey<'_>| numbers.get(&identity(*key)).copied().unwrap_or(0);
        keys.iter().map(number).collect()
    })
}

/// Gives all functions one number.
fn number_all<'a: 'k, 'k>(
    keys: impl IntoIterator<Item = &'k FunctionKey<'a>>,
    numbers: &mut BTreeMap<FunctionKey<'a>, usize>,
    next: &mut usize,
) {
    numbers.extend(keys.into_iter().map(|key| (*key, *next)));
    *next += 1;
}

/// Gives each function its own number.
fn number_each<'a>(
    keys: &BTreeSet<FunctionKey<'a>>,
    numbers: &mut BTreeMap<FunctionKey<'a>, usize>,
    next: &mut usize,
) {
    for key in keys {
        numbers.insert(*key, *next);
        *next += 1;
    }
}

/// Returns whether code of the same module and offset may be of one build, because a build id is
/// unknown.
fn may_match(before: &[BTreeSet<FunctionKey<'_>>], after: &[BTreeSet<FunctionKey<'_>>]) -> bool {
    let is_unknown = |keys: &[BTreeSet<FunctionKey<'_>>]| {
        let mut keys = keys.iter().flatten();
        keys.all(|key| key.build_id.is_empty())
    };
    is_unknown(before) || is_unknown(after)
}

/// Returns a key without the parts that distinguish nothing.
fn identity(mut key: FunctionKey<'_>) -> FunctionKey<'_> {
    if key.is_function {
        key.build_id = "";
    }
    if !key.module.is_empty() {
        key.file = "";
    }
    key
}

fn class(key: &FunctionKey<'_>) -> Class {
    if !key.is_function && !key.build_id.is_empty() {
        let offset = key.name.strip_prefix(key.module).unwrap_or(key.name);
        return Class::Code {
            build_id: key.build_id.to_owned(),
            offset: offset.to_owned(),
        };
    }
    let file = match (key.is_function, key.module) {
        (false, _) => key.module.to_owned(),
        (true, "") => without_versions(key.file),
        (true, module) => without_versions(module),
    };
    Class::Named {
        name: format!("{}{}", if key.is_function { "f" } else { "c" }, key.name),
        file,
    }
}

/// Returns a path without the versions in the names of its folders and file.
fn without_versions(path: &str) -> String {
    let names: Vec<_> = path.split('/').map(without_version).collect();
    names.join("/")
}

/// Returns a name without its version: `libz.so` of `libz.so.1.2`, and `app` of `app-1.0`.
fn without_version(name: &str) -> String {
    let (stem, extension) = match name.split_once(".so.") {
        Some((stem, _)) => (stem, ".so"),
        None => name.strip_suffix(".so").map_or((name, ""), |stem| (stem, ".so")),
    };
    let mut stem = stem;
    while let Some((rest, version)) = stem.rsplit_once(['-', '_', '.']) {
        let number = version.strip_prefix('v').unwrap_or(version);
        let is_version = number.starts_with(|c: char| c.is_ascii_digit());
        if rest.is_empty() || !is_version {
            break;
        }
        stem = rest;
    }
    format!("{stem}{extension}")
}

impl Symbol {
    /// Returns the key of the function, with the text of its build id.
    pub(crate) fn key<'a>(&'a self, build_id: &'a str) -> FunctionKey<'a> {
        FunctionKey {
            name: &self.name,
            file: &self.file,
            module: &self.module,
            build_id,
            is_function: self.is_function,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function<'a>(name: &'a str, module: &'a str) -> FunctionKey<'a> {
        FunctionKey {
            name,
            file: "",
            module,
            build_id: "",
            is_function: true,
        }
    }

    fn code<'a>(name: &'a str, module: &'a str, build_id: &'a str) -> FunctionKey<'a> {
        FunctionKey {
            build_id,
            is_function: false,
            ..function(name, module)
        }
    }

    /// Returns whether each function of the first list is that of the second list at its place.
    fn pairs(before: &[FunctionKey<'_>], after: &[FunctionKey<'_>]) -> Vec<bool> {
        let [before, after] = match_functions([before, after]);
        before
            .iter()
            .zip(&after)
            .map(|(one, other)| one == other)
            .collect()
    }

    #[test]
    fn versions_are_left_out_of_names() {
        let names = [
            ("app-1.0", "app"),
            ("app", "app"),
            ("libz.so.1.2", "libz.so"),
            ("libpthread-2.31.so", "libpthread.so"),
            ("server-v2.1.0", "server"),
            ("python3.11", "python3"),
            ("1.0", "1"),
            ("app2", "app2"),
        ];
        for (name, expected) in names {
            assert_eq!(without_version(name), expected);
        }
        assert_eq!(
            without_versions("/opt/app-1.0/lib/shop.py"),
            "/opt/app/lib/shop.py"
        );
    }

    #[test]
    fn name_alone_matches_modules_with_other_names() {
        assert_eq!(
            pairs(&[function("work", "app")], &[function("work", "app2")]),
            [true]
        );
    }

    #[test]
    fn same_name_in_two_modules_is_matched_by_module() {
        let before = [
            function("init", "liba.so.1"),
            function("init", "libb.so.1"),
            function("init", "tool"),
        ];
        let after = [
            function("init", "liba.so.2"),
            function("init", "libb.so.2"),
            function("init", "renamed"),
        ];
        assert_eq!(pairs(&before, &after), [true; 3]);
        let [before, _] = match_functions([&before, &after]);
        assert_ne!(before[0], before[1]);
        // Either of two modules may be the renamed one.
        let other = [
            function("init", "libc.so"),
            function("x", "x"),
            function("y", "y"),
        ];
        let before = [
            function("init", "liba.so"),
            function("init", "libb.so"),
            function("x", "x"),
        ];
        assert_eq!(pairs(&before[..1], &other[..1]), [true]);
        let [one, two] = match_functions([&before, &other]);
        assert!(one[0] != two[0] && one[1] != two[0]);
    }

    #[test]
    fn modules_with_equal_names_in_both_profiles_stay_apart() {
        let both = [function("f", "lib.so.1"), function("f", "lib.so.2")];
        let [one, two] = match_functions([&both, &both]);
        assert_eq!(one, two);
        assert_ne!(one[0], one[1]);
    }

    #[test]
    fn nameless_code_is_matched_by_build_id() {
        let before = code("app+0x10", "app", "aa");
        assert_eq!(pairs(&[before], &[code("app2+0x10", "app2", "aa")]), [true]);
        assert_eq!(pairs(&[before], &[code("app+0x10", "app", "bb")]), [false]);
        assert_eq!(pairs(&[before], &[code("app+0x10", "app", "")]), [true]);
        assert_eq!(
            pairs(&[code("app+0x10", "app", "")], &[code("app2+0x10", "app2", "")]),
            [false]
        );
        assert_eq!(pairs(&[before], &[function("app+0x10", "app")]), [false]);
    }

    #[test]
    fn functions_without_modules_are_matched_by_file() {
        let of = |file| FunctionKey {
            file,
            ..function("<module>", "")
        };
        let before = [of("/opt/shop-1/a.py"), of("/opt/shop-1/b.py"), of("/etc/old.py")];
        let after = [of("/opt/shop-2/a.py"), of("/opt/shop-2/b.py"), of("/etc/new.py")];
        assert_eq!(pairs(&before, &after), [true; 3]);
        let [before, _] = match_functions([&before, &after]);
        assert_ne!(before[0], before[1]);
    }
}
